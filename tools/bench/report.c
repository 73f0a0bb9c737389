/* SPDX-License-Identifier: Apache-2.0
 * txbench report: measures a device part by part in a few minutes and writes a file to send. It also shows several such
 * files on one page. */
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
#define SHARES 3.0          /* a part is killed after this multiple of its share of the budget */
#define HANG_SHARE 0.1      /* but not before this fraction of the whole budget */
#define CPU_SECONDS 300.0   /* from this budget on, a CPU runs steps with a batch of 4 */
#define DEVICE_SECONDS 60.0 /* time limit for opening the device, independent of the budget */

typedef struct settings {
    const char *device, *config, *output, *only;
    int64_t batch, block, threads;
    double budget;
    bool kernels, resume;
    tx_words files;
} settings;

static const tx_option options[] = {
    {TX_OPTION_REAL, "budget", AT(budget), 1, 1e6, "X",
     "time for all parts in seconds; if it is short, parts measure less or are left out"},
    {TX_OPTION_TEXT, "output", AT(output), .choices = "NAME", .help = "write NAME.json and NAME.html"},
    {TX_OPTION_FLAG, "resume", AT(resume), .help = "keep the parts of NAME.json that succeeded, and run the others"},
    {TX_OPTION_TEXT, "only", AT(only), .choices = "PART,...",
     .help = "run only these parts, such as \"step fp32,products fp32\""},
    TX_BENCH_MODEL(AT),
    {TX_OPTION_INTEGER, "batch", AT(batch), 0, 1 << 20, "N",
     "rows of a training step; 0 means 4, or 1 on a CPU with a budget below 300 s"},
    {TX_OPTION_INTEGER, "block", AT(block), 0, 1 << 24, "N", "tokens of a row; 0 means 1024 on a GPU, or else 256"},
    {TX_OPTION_FLAG, "kernels", AT(kernels),
     .help = "include the private and local memory of each kernel (register spills)"},
    TX_BENCH_DEVICE(AT),
};

static const settings defaults = {.device = "auto", .config = "gpt2", .output = "txbench-report", .budget = 600.0};

static const struct part {
    const char *name;
    double weight, least;
    const char *needs, *takes, *words;
} list[] = {
#define TX_REPORT_PART(name, weight, least, needs, takes, words) {name, weight, least, needs, takes, words},
#include "tools/bench/report_parts.def"
};
enum { PARTS = sizeof list / sizeof list[0] };

/* Variables of the folders in which TX and drivers cache compiled kernels. */
static const char *const caches[] = {"TX_CACHE_DIR", "POCL_CACHE_DIR", "CUDA_CACHE_PATH", "AMD_COMGR_CACHE_DIR",
                                     "NEO_CACHE_DIR"};
enum { CACHES = sizeof caches / sizeof caches[0] };

typedef struct report {
    const settings *set;
    double begin;
    tx_json *all, *parts;  /* the report; its member "parts" */
    const tx_json *device; /* figures of the first part, or NULL if it failed */
    tx_json *before;       /* the report that --resume continues, or NULL */
    char cache[32];        /* path of the cache folder of cold and warm starts, or "" */
    char *kept[CACHES];    /* saved values of the cache variables */
    int32_t failed;
    char left_out[512]; /* names of the parts for which the budget is too small */
    double enough;      /* a budget that includes them if no part takes long */
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
    tx_json *data = tx_json_pack("{s:s, s:o}", "version", TX_VERSION, "reports", reports);
    const tx_status status = data ? tx_page_write(path, tx_report_page, data) : TX_MEMORY;
    tx_json_free(data);
    return status;
}

/* Writes the parts so far, so that an interrupted report is readable. */
static tx_status write_report(const report *r, bool complete)
{
    char path[4096];
    tx_json_set_bool(r->all, "complete", complete);
    tx_json_set_number(r->all, "seconds", spent(r));
    snprintf(path, sizeof path, "%s.json", r->set->output);
    char *text = tx_json_text(r->all, TX_JSON_PRETTY);
    const size_t size = text ? strlen(text) : 0;
    if (text)
        text[size] = '\n'; /* instead of the NUL, which is not written */
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
    if (strcmp(what, "gpu") == 0)
        return !tx_json_get_string(r->device, "type", &text) && strcmp(text, "gpu") == 0;
    tx_json_get_bool(r->device, what, &is);
    return is;
}

/* True if the list `only` contains the name. NULL contains all names. */
static bool is_among(const char *only, const char *name)
{
    for (const char *at = only; at; at = strchr(at, ','), at += at ? 1 : 0)
        if (strncmp(at, name, strlen(name)) == 0 && strchr(",", at[strlen(name)]))
            return true;
    return !only;
}

/* True if the part is selected. The first part, the device, always is. */
static bool is_selected(const report *r, const struct part *p)
{
    return p == list || is_among(r->set->only, p->name);
}

/* Returns the part's share of the remaining budget as a fraction. */
static double share_of(const report *r, const struct part *p)
{
    double weights = 0.0;
    for (const struct part *other = p; other < list + PARTS; other++)
        weights += has(r, other->needs) && is_selected(r, other) ? other->weight : 0.0;
    return p->weight / weights;
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
    if (strchr(p->takes, 'P') && getenv("TX_PYTHON"))
        TX_TRY(tx_command_line_add(command, "--peer torch"));
    if (strchr(p->takes, 'S'))
        TX_TRY(tx_command_line_add(command, "--seconds %.1f", share / 2));
    if (strchr(p->takes, 'B'))
        TX_TRY(tx_command_line_add(command, "--batch %" PRId64 " --block %" PRId64, batch, block));
    if (!strpbrk(p->takes, "CM"))
        return TX_OK; /* the words name the model, if there is one */
    TX_TRY(tx_command_line_add(command, strchr(p->takes, 'M') ? "--model" : "--config"));
    char *whole = strchr(set->config, '/') ? realpath(set->config, NULL) : NULL; /* absolute, so that it is hidden */
    const tx_status status = tx_command_line_add_word(command, whole ? whole : set->config);
    free(whole);
    return status;
}

/* Selects the folder of cold and warm starts, or restores the usual caches. */
static void set_caches(report *r, bool own)
{
    for (int i = 0; i < CACHES && r->cache[0]; i++) {
        const char *before = getenv(caches[i]);
        if (own) {
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

/* Removes the folder of cold and warm starts. Errors are harmless: it is in the folder of temporary files. */
static void remove_cache(report *r)
{
    if (r->cache[0])
        (void)tx_folder_remove(CACHE_PARENT, strrchr(r->cache, '/') + 1);
    r->cache[0] = '\0';
}

/* Makes the folder anew. With an empty cache the start is as slow as the very first one. */
static void empty_cache(report *r)
{
    remove_cache(r);
    snprintf(r->cache, sizeof r->cache, CACHE_PARENT "/txbench-XXXXXX");
    if (!mkdtemp(r->cache))
        r->cache[0] = '\0';
}

static tx_status run_part(report *r, const struct part *p, double share)
{
    const double left = r->set->budget - spent(r), most = fmax(SHARES * share, HANG_SHARE * r->set->budget);
    const double limit = p == list ? DEVICE_SECONDS : fmin(most, left);
    const bool start = strpbrk(p->takes, "EK") != NULL;
    tx_command_line command = {0};
    tx_part_state state = TX_PART_OK;
    fprintf(stderr, "[%4.0f of %.0f s] %s\n", spent(r), r->set->budget, p->name);
    if (strchr(p->takes, 'E'))
        empty_cache(r);
    if (start)
        set_caches(r, true);
    tx_status status = make_command(r, p, share, &command);
    TX_THEN(status, tx_part_run(r->parts, p->name, &command, limit, &state));
    if (start)
        set_caches(r, false);
    tx_command_line_free(&command);
    r->failed += state != TX_PART_OK;
    return status;
}

/* Removes kernel figures unless --kernels is given. After the first part, copies the device's name to the report. */
static void finish_part(report *r)
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

/* Appends the part of the report that is continued, if it succeeded. Returns false if there is none. */
static bool keep_part(report *r, const struct part *p)
{
    const tx_json *parts = r->before && p != list ? tx_json_find(r->before, "parts") : NULL;
    for (size_t i = 0; parts && i < tx_json_size(parts); i++) {
        const tx_json *part = tx_json_at(parts, i);
        const char *name = "", *state = "";
        tx_json_get_string(part, "part", &name);
        tx_json_get_string(part, "state", &state);
        if (strcmp(name, p->name) == 0 && strcmp(state, "ok") == 0)
            return tx_json_append(r->parts, tx_json_copy(part)) == TX_OK;
    }
    return false;
}

/* The measurements of one file are of one device, model and version. */
static tx_status check_same(const report *r)
{
    static const char *const same[] = {"name", "driver", "model", "version"};
    for (size_t i = 0; r->before && i < sizeof same / sizeof same[0]; i++) {
        const char *before = "", *now = "";
        tx_json_get_string(r->before, same[i], &before);
        tx_json_get_string(r->all, same[i], &now);
        if (strcmp(before, now) != 0)
            return tx_fail(TX_INVALID, "--resume: the %s of %s.json is \"%s\", not \"%s\": choose another --output",
                           same[i], r->set->output, before, now);
    }
    return TX_OK;
}

static tx_status measure(report *r)
{
    for (const struct part *p = list; p < list + PARTS; p++) {
        if (!is_selected(r, p) || keep_part(r, p))
            continue;
        const double fraction = share_of(r, p), share = fmax(r->set->budget - spent(r), 0.0) * fraction;
        tx_status status;
        if (!has(r, p->needs))
            status = tx_part_leave_out(r->parts, p->name,
                                       strcmp(p->needs, "opencl") == 0 ? "only for devices of the backend %s"
                                       : strcmp(p->needs, "gpu") == 0  ? "the device is no %s"
                                                                       : "the device has no %s that TX uses",
                                       p->needs);
        else if (share < p->least) {
            status = tx_part_leave_out(r->parts, p->name, "its share of the budget is %.1f s, but it needs %.0f s",
                                       share, p->least);
            tx_list_add(r->left_out, sizeof r->left_out, ", ", "%s", p->name);
            r->enough = fmax(r->enough, SHARES * (spent(r) + p->least / fraction)); /* other parts may take longer */
        } else
            status = run_part(r, p, share);
        if (status)
            return status;
        finish_part(r);
        if (p == list)
            TX_TRY(check_same(r));
        TX_TRY(write_report(r, false));
        if (p == list && !r->device)
            break; /* without a device, nothing else can be measured */
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
    if (r->set->resume) {
        char path[4096];
        snprintf(path, sizeof path, "%s.json", r->set->output);
        TX_TRY(tx_json_read(path, REPORT_BYTES, &r->before));
    }
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
    if (*r->left_out)
        printf("left out because the budget is too small: %s; try --budget %.0f\n", r->left_out,
               10.0 * ceil(r->enough / 10.0));
    return r->failed ? tx_fail(TX_DEVICE, "%d of %zu parts failed; see %s.html for the reasons", r->failed,
                               tx_json_size(r->parts), r->set->output)
                     : TX_OK;
}

/* Fails if a name in --only is not a part. */
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
            return tx_fail(TX_INVALID, "--only: \"%s\" is not a part of a report; the parts are %s", name, names);
    }
    return TX_OK;
}

static tx_status make_report(const settings *set)
{
    TX_TRY(check_only(set->only));
    report r = {.set = set, .begin = tx_now(), .all = tx_json_object(), .parts = tx_json_array()};
    tx_status status = begin(&r);
    TX_THEN(status, measure(&r));
    TX_THEN(status, print(&r));
    remove_cache(&r);
    tx_json_free(r.before);
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
            status = tx_fail(TX_FORMAT, "%s: not a report of txbench", path);
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
            "Measures a device and writes a report after each part: a JSON file and an HTML page. The report has no\n"
            "names of users, hosts or files. If a part fails, the report has the reason and the other parts still "
            "run.\nIf you give report files, it compares them on one page. Exit status: 0 if all parts succeeded, "
            "1 if one failed.",
        .table = {TX_CLI_OPTIONS(options)},
        .values = &defaults,
        .operand = "REPORT.json",
        .operands = offsetof(settings, files),
        .operands_most = 64,
    },
    sizeof defaults,
    run,
};
