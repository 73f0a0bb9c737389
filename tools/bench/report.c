/* SPDX-License-Identifier: Apache-2.0
 * txbench report: all that can be measured of a device in some minutes, part by part, in a file to send; and several
 * such files on one page. */
#include "tools/bench/bench.h"
#include "tools/bench/part.h"
#include "tools/bench/peaks.h"
#include "tools/bench/roofline.h"
#include "tools/cli/output.h"
#include "tx_file.h"
#include "tx_folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SCHEMA 1 /* of docs/report.schema.json */
#define CACHE_PARENT "/tmp"
#define REPORT_BYTES (INT64_C(64) << 20)
#define SHARES 3.0          /* a part is ended after so many times its share of the budget */
#define CPU_SECONDS 300.0   /* with which a CPU can make steps of 1024 tokens */
#define DEVICE_SECONDS 60.0 /* in which a device is opened, whatever the budget */
#define HANG_SHARE 0.1      /* and not before this share of it */

typedef struct settings {
    const char *device, *config, *output, *only;
    int64_t batch, block, threads;
    double budget;
    bool kernels;
    tx_words files;
} settings;

static const tx_option options[] = {
    {TX_OPTION_REAL, "budget", AT(budget), 1, 1e6, "X", "seconds that all parts may take; they shrink or are left out"},
    {TX_OPTION_TEXT, "output", AT(output), .choices = "NAME", .help = "what is written: NAME.json and NAME.html"},
    {TX_OPTION_TEXT, "only", AT(only), .choices = "PART,...", .help = "these parts, as \"step fp32,products fp32\""},
    TX_BENCH_MODEL(AT),
    {TX_OPTION_INTEGER, "batch", AT(batch), 0, 1 << 20, "N",
     "blocks of a training step; 0: 4, or 1 on a CPU with less than 300 s"},
    {TX_OPTION_INTEGER, "block", AT(block), 0, 1 << 24, "N", "tokens a block; 0: 1024 on a GPU, else 256"},
    {TX_OPTION_FLAG, "kernels", AT(kernels),
     .help = "keep what each kernel takes of private and local memory (spills)"},
    TX_BENCH_DEVICE(AT),
};

static const settings defaults = {.device = "cpu", .config = "gpt2", .output = "txbench-report", .budget = 600.0};

static const struct part {
    const char *name;
    double weight, least;
    const char *needs, *takes, *words;
} list[] = {
#define TX_REPORT_PART(name, weight, least, needs, takes, words) {name, weight, least, needs, takes, words},
#include "tools/bench/report_parts.def"
};
enum { PARTS = sizeof list / sizeof list[0] };

/* Where TX and drivers look for what they compiled. */
static const char *const caches[] = {"TX_CACHE_DIR", "POCL_CACHE_DIR", "CUDA_CACHE_PATH", "AMD_COMGR_CACHE_DIR",
                                     "NEO_CACHE_DIR"};
enum { CACHES = sizeof caches / sizeof caches[0] };

typedef struct report {
    const settings *set;
    double begin;
    tx_json *all, *parts;  /* parts are a member of all */
    const tx_json *device; /* the first part's figures; NULL: not known */
    char cache[32];        /* an empty cache folder, for the cold start; "": none */
    char *kept[CACHES];    /* the values of those variables meanwhile */
    int32_t failed;
} report;

static double spent(const report *r)
{
    return tx_now() - r->begin;
}

/* ---- Files ------------------------------------------------------------------------------------------------ */

static tx_status write_page(const char *name, tx_json *reports)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.html", name);
    tx_json *data = tx_json_object();
    tx_json_set_string(data, "version", TX_VERSION);
    tx_status status = tx_json_set(data, "reports", reports);
    TX_THEN(status, tx_page_write(path, tx_report_page, data));
    tx_json_free(data);
    return status;
}

/* What there is so far, so that a report that is killed can be read. */
static tx_status write_report(const report *r, bool complete)
{
    char path[4096];
    tx_json_set_bool(r->all, "complete", complete);
    tx_json_set_number(r->all, "seconds", spent(r));
    snprintf(path, sizeof path, "%s.json", r->set->output);
    char *text = tx_json_text(r->all, TX_JSON_PRETTY);
    const size_t size = text ? strlen(text) : 0;
    if (text)
        text[size] = '\n'; /* replaces the NUL, which is not written */
    const tx_status written = text ? tx_file_write_output(path, text, size + 1) : TX_MEMORY;
    free(text);
    TX_TRY(written);
    tx_json *reports = tx_json_array();
    TX_TRY(tx_json_append(reports, tx_json_copy(r->all)));
    return write_page(r->set->output, reports);
}

/* ---- One part --------------------------------------------------------------------------------------------- */

static bool has(const report *r, const char *what)
{
    const char *text = "";
    bool is = true;
    if (!*what || !r->device)
        return true;
    if (strcmp(what, "opencl") == 0)
        return !tx_json_get_string(r->device, "device", &text) && strncmp(text, "opencl", 6) == 0;
    tx_json_get_bool(r->device, what, &is);
    return is;
}

/* Whether `only`, a list of names, has that one; NULL has all. */
static bool is_among(const char *only, const char *name)
{
    for (const char *at = only; at; at = strchr(at, ','), at += at ? 1 : 0)
        if (strncmp(at, name, strlen(name)) == 0 && strchr(",", at[strlen(name)]))
            return true;
    return !only;
}

/* The device is asked in any case. */
static bool is_asked_for(const report *r, const struct part *p)
{
    return p == list || is_among(r->set->only, p->name);
}

/* Its share of what is left. */
static double share_of(const report *r, const struct part *p)
{
    double weights = 0.0;
    for (const struct part *other = p; other < list + PARTS; other++)
        weights += has(r, other->needs) && is_asked_for(r, other) ? other->weight : 0.0;
    return fmax(r->set->budget - spent(r), 0.0) * p->weight / weights;
}

static tx_status make_command(const report *r, const struct part *p, double share, tx_command_line *command)
{
    const settings *set = r->set;
    const char *type = "";
    if (r->device)
        tx_json_get_string(r->device, "type", &type);
    const bool gpu = strcmp(type, "gpu") == 0;
    const int64_t batch = set->batch ? set->batch : gpu || set->budget >= CPU_SECONDS ? 4 : 1;
    const int64_t block = set->block ? set->block : gpu ? 1024 : 256;
    TX_TRY(tx_command_line_add(command, "%s --json --device", p->words));
    TX_TRY(tx_command_line_add_word(command, set->device));
    if (set->threads)
        TX_TRY(tx_command_line_add(command, "--threads %" PRId64, set->threads));
    if (strchr(p->takes, 'S'))
        TX_TRY(tx_command_line_add(command, "--seconds %.1f", share / 2));
    if (strchr(p->takes, 'B'))
        TX_TRY(tx_command_line_add(command, "--batch %" PRId64 " --block %" PRId64, batch, block));
    if (!strpbrk(p->takes, "CM"))
        return TX_OK;
    TX_TRY(tx_command_line_add(command, strchr(p->takes, 'M') ? "--model" : "--config"));
    char *whole = strchr(set->config, '/') ? realpath(set->config, NULL) : NULL; /* a path that can be told as one */
    const tx_status status = tx_command_line_add_word(command, whole ? whole : set->config);
    free(whole);
    return status;
}

/* So that the first start of all can be timed again: nothing compiled or measured before is found. */
static void set_caches(report *r, bool empty)
{
    for (int i = 0; i < CACHES && r->cache[0]; i++) {
        const char *before = getenv(caches[i]);
        if (empty) {
            r->kept[i] = before ? strdup(before) : NULL;
            setenv(caches[i], r->cache, 1);
        } else if (r->kept[i]) {
            setenv(caches[i], r->kept[i], 1);
            free(r->kept[i]);
        } else {
            unsetenv(caches[i]);
        }
    }
}

static tx_status run_part(report *r, const struct part *p, double share)
{
    const double left = r->set->budget - spent(r), most = fmax(SHARES * share, HANG_SHARE * r->set->budget);
    const double limit = p == list ? DEVICE_SECONDS : fmin(most, left);
    const bool cold = strcmp(p->name, "cold start") == 0;
    tx_command_line command = {0};
    tx_part_state state = TX_PART_OK;
    fprintf(stderr, "[%4.0f of %.0f s] %s\n", spent(r), r->set->budget, p->name);
    if (cold)
        set_caches(r, true);
    tx_status status = make_command(r, p, share, &command);
    TX_THEN(status, tx_part_run(r->parts, p->name, &command, limit, &state));
    if (cold)
        set_caches(r, false);
    tx_command_line_free(&command);
    r->failed += state != TX_PART_OK;
    return status;
}

/* Who it is, for readers of the file; what kernels take goes where it was not asked for. */
static void tidy(report *r)
{
    const tx_json *part = tx_json_at(r->parts, tx_json_size(r->parts) - 1);
    tx_json *figures = tx_json_find(part, "figures");
    if (figures && !r->set->kernels && tx_json_has(figures, "kernels"))
        tx_json_set_null(figures, "kernels");
    if (tx_json_size(r->parts) > 1 || !figures)
        return;
    r->device = figures;
    tx_part_facts(figures, r->all);
}

static tx_status measure(report *r)
{
    for (const struct part *p = list; p < list + PARTS; p++) {
        if (!is_asked_for(r, p))
            continue;
        const double share = share_of(r, p);
        tx_status status;
        if (!has(r, p->needs))
            status = tx_part_leave_out(r->parts, p->name,
                                       strcmp(p->needs, "opencl") == 0 ? "for OpenCL devices alone: there is no %s here"
                                                                       : "the device has nothing for %s that TX uses",
                                       p->needs);
        else if (share < p->least)
            status = tx_part_leave_out(r->parts, p->name, "its share of the budget is %.1f s, and it needs %.0f", share,
                                       p->least);
        else
            status = run_part(r, p, share);
        if (status)
            return status;
        tidy(r);
        TX_TRY(write_report(r, false));
        if (p == list && !r->device)
            break; /* without a device nothing else can be measured */
    }
    return write_report(r, true);
}

/* ---- The command ------------------------------------------------------------------------------------------ */

static tx_status begin(report *r)
{
    char date[32], model[64];
    const time_t now = time(NULL);
    const char *slash = strrchr(r->set->config, '/');
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    snprintf(model, sizeof model, "%.60s", slash ? "(own)" : r->set->config);
    tx_json_set_string(r->all, "what", "report");
    tx_json_set_int(r->all, "schema", SCHEMA);
    tx_json_set_string(r->all, "version", TX_VERSION);
    tx_json_set_string(r->all, "date", date);
    tx_json_set_string(r->all, "model", model);
    tx_json_set_number(r->all, "budget", r->set->budget);
    return tx_json_set(r->all, "parts", r->parts);
}

static tx_status print(const report *r)
{
    for (size_t i = 0; i < tx_json_size(r->parts); i++) {
        const tx_json *part = tx_json_at(r->parts, i);
        const char *name = "", *state = "", *message = "";
        double seconds = 0.0;
        tx_json_get_string(part, "part", &name);
        tx_json_get_string(part, "state", &state);
        if (tx_json_has(part, "message"))
            tx_json_get_string(part, "message", &message);
        if (tx_json_has(part, "seconds"))
            tx_json_get_number(part, "seconds", 0.0, HUGE_VAL, &seconds);
        tx_print_line(stdout, "%-16s %-9s %6.1f s  %s", name, state, seconds, message);
    }
    printf("%s.json, %s.html: %.0f s\n", r->set->output, r->set->output, spent(r));
    return r->failed ? tx_fail(TX_DEVICE, "%d of %zu parts failed: %s.html tells why", r->failed,
                               tx_json_size(r->parts), r->set->output)
                     : TX_OK;
}

/* Every name of `only` is that of a part. */
static tx_status check_only(const char *only)
{
    char name[64], names[512] = "";
    for (const char *at = only; at; at = strchr(at, ','), at += at ? 1 : 0) {
        bool known = false;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        for (int i = 0; i < PARTS; i++)
            known |= strcmp(list[i].name, name) == 0;
        for (int i = 0; i < PARTS && !known; i++)
            tx_list_add(names, sizeof names, ", ", "%s", list[i].name);
        if (!known)
            return tx_fail(TX_INVALID, "--only: \"%s\" is no part of a report: there are %s", name, names);
    }
    return TX_OK;
}

static tx_status make_report(const settings *set)
{
    TX_TRY(check_only(set->only));
    report r = {.set = set, .begin = tx_now(), .all = tx_json_object(), .parts = tx_json_array()};
    snprintf(r.cache, sizeof r.cache, CACHE_PARENT "/txbench-XXXXXX");
    if (!mkdtemp(r.cache))
        r.cache[0] = '\0';
    tx_status status = begin(&r);
    TX_THEN(status, measure(&r));
    TX_THEN(status, print(&r));
    if (r.cache[0])
        (void)tx_folder_remove(CACHE_PARENT, strrchr(r.cache, '/') + 1); /* it is temporary anyway */
    tx_json_free(r.all);
    return status;
}

static tx_status compare(const settings *set)
{
    tx_json *reports = tx_json_array(), *one;
    for (int32_t i = 0; i < set->files.count; i++) {
        const char *path = set->files.word[i], *what = "";
        tx_status status = tx_json_read(path, REPORT_BYTES, &one);
        if (!status && (tx_json_get_string(one, "what", &what) || strcmp(what, "report") != 0)) {
            tx_json_free(one);
            status = tx_fail(TX_FORMAT, "%s: is no report of txbench", path);
        }
        TX_THEN(status, tx_json_append(reports, one));
        if (status) {
            tx_json_free(reports);
            return status;
        }
    }
    TX_TRY(write_page(set->output, reports));
    printf("%s.html: %d reports\n", set->output, set->files.count);
    return TX_OK;
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    (void)argv;
    return set->files.count ? compare(set) : make_report(set);
}

const tx_bench_command tx_bench_report = {
    {
        .name = "txbench",
        .usage = "txbench report [REPORT.json...] [options]",
        .about =
            "Measures a device from end to end and writes what it found after each part: a JSON file, which holds "
            "no names\nof users, hosts or files, and a page. What fails says why, and the rest goes on. With files, "
            "compares the\nreports that they hold on one page. Exit status: 0 all parts went well, 1 one failed.",
        .options = options,
        .count = (int32_t)(sizeof options / sizeof options[0]),
        .values = &defaults,
        .operand = "REPORT.json",
        .operands = offsetof(settings, files),
        .operands_most = 64,
    },
    sizeof defaults,
    run,
};
