/* SPDX-License-Identifier: Apache-2.0
 * txplot: draws loss, learning rate, gradient norm and speed of training runs as one HTML page. */
#include "tools/cli/alive.h"
#include "tools/cli/options.h"
#include "tools/cli/output.h"
#include "tools/train/follow.h"
#include "tools/train/history.h"
#include "tx_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A longer series is divided into POINTS / 2 intervals, and only the minimum and maximum of each interval are drawn. */
#define POINTS 4000
#define MAX_RUNS 64

typedef struct settings {
    tx_words runs;
    const char *output, *follow;
    double smoothing;
    bool clip;
} settings;

static const tx_option options[] = {
    {TX_OPTION_TEXT, "o", offsetof(settings, output), .choices = "FILE",
     .help = "the page to write; - is standard output"},
#ifdef TX_HTTP
    {TX_OPTION_OPTIONAL, "follow", offsetof(settings, follow), .choices = "PORT",
     .help = "serve the page at http://localhost:PORT/, by default 6006, and draw new steps while the runs go on; "
             "Ctrl-C ends"},
#endif
    {TX_OPTION_REAL, "smoothing", offsetof(settings, smoothing), 0, 0.99, "X",
     "initial weight of earlier values in the smoothed lines, as in TensorBoard; 0 draws the values unchanged"},
    {TX_OPTION_FLAG, "clip_spikes", offsetof(settings, clip),
     .help = "initially show only the range without the highest and lowest 1 % of values"},
};

static const tx_cli program = {
    .name = "txplot",
    .one_process = "start it without the launcher",
    .usage = "txplot RUN... [-o FILE | --follow]",
    .about = "Draws training runs as one HTML page: loss, learning rate, gradient norm, speed.\n"
             "A RUN is an output_dir of txtrain or of transformers' Trainer, or its log.jsonl or trainer_state.json.\n"
             "The page works without a network.",
    .example = "  txplot out -o out.html",
    .table = {TX_CLI_OPTIONS(options)},
    .operand = "DIR|FILE",
    .operands = offsetof(settings, runs),
    .operands_least = 1,
    .operands_most = MAX_RUNS,
};

/* ---- series ---------------------------------------------------------------------------------------- */

static tx_status append(tx_json *steps, tx_json *values, const tx_series *s, int64_t i)
{
    const double value = s->point[i].value;
    TX_TRY(tx_json_append_int(steps, s->point[i].step));
    if (isfinite(value))
        return tx_json_append_number(values, value);
    return tx_json_append_string(values, isnan(value) ? "NaN" : value > 0.0 ? "Infinity" : "-Infinity");
}

/* Appends the minimum, the maximum and the last value that is not finite of points first..last-1, in step order. */
static tx_status append_interval(tx_json *steps, tx_json *values, const tx_series *s, int64_t first, int64_t last)
{
    int64_t pick[3] = {-1, -1, -1}; /* minimum, maximum, not finite */
    for (int64_t i = first; i < last; i++) {
        if (!isfinite(s->point[i].value)) {
            pick[2] = i;
            continue;
        }
        pick[0] = pick[0] < 0 || s->point[i].value < s->point[pick[0]].value ? i : pick[0];
        pick[1] = pick[1] < 0 || s->point[i].value > s->point[pick[1]].value ? i : pick[1];
    }
    for (int64_t done = first - 1, next;; done = next) {
        next = last;
        for (int p = 0; p < 3; p++)
            if (pick[p] > done && pick[p] < next)
                next = pick[p];
        if (next == last)
            return TX_OK;
        TX_TRY(append(steps, values, s, next));
    }
}

static tx_status add_series(tx_json *to, const char *key, const tx_series *s)
{
    tx_json *steps = tx_json_array(), *values = tx_json_array();
    TX_TRY(tx_json_set(to, key, tx_json_pack("{s:o, s:o}", "step", steps, "value", values)));
    const int64_t intervals = s->count > POINTS ? POINTS / 2 : s->count;
    for (int64_t i = 0; i < intervals; i++)
        TX_TRY(append_interval(steps, values, s, i * s->count / intervals, (i + 1) * s->count / intervals));
    return TX_OK;
}

/* ---- a run ------------------------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Computes the median of the finite values, or NaN if there are none. */
static tx_status median(const tx_series *s, double *result)
{
    double *sorted = malloc((size_t)(s->count + 1) * sizeof *sorted);
    if (!sorted)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " steps", s->count);
    size_t count = 0;
    for (int64_t i = 0; i < s->count; i++)
        if (isfinite(s->point[i].value))
            sorted[count++] = s->point[i].value;
    qsort(sorted, count, sizeof *sorted, ascending);
    *result = count ? 0.5 * (sorted[(count - 1) / 2] + sorted[count / 2]) : (double)NAN;
    free(sorted);
    return TX_OK;
}

/* The value, or null if JSON cannot represent it. */
static tx_json *number(double value)
{
    return isfinite(value) ? tx_json_pack("f", value) : tx_json_pack("n");
}

/* The number of steps whose loss or gradient norm is not finite. */
static int64_t count_bad(const tx_series *loss, const tx_series *norm)
{
    int64_t bad = 0, at = 0;
    for (int64_t i = 0; i < loss->count; i++) {
        while (at < norm->count && norm->point[at].step < loss->point[i].step)
            at++;
        bad += !isfinite(loss->point[i].value) ||
               (at < norm->count && norm->point[at].step == loss->point[i].step && !isfinite(norm->point[at].value));
    }
    return bad;
}

/* Adds a run with the figures of the page's table, which are computed from all steps, and with its series. */
static tx_status add_run(tx_json *runs, const char *name, const tx_history *h)
{
    const tx_series *loss = &h->series[TX_SERIES_LOSS], *eval = &h->series[TX_SERIES_EVAL_LOSS];
    const tx_series_point *last = loss->count ? &loss->point[loss->count - 1] : NULL, *best = NULL;
    for (int64_t i = 0; i < eval->count; i++)
        if (isfinite(eval->point[i].value) && (!best || eval->point[i].value < best->value))
            best = &eval->point[i];
    double speed = (double)NAN;
    TX_TRY(median(&h->series[TX_SERIES_SPEED], &speed));
    tx_json *series = tx_json_object(), *named = tx_json_pack("s", name);
    tx_json *run = tx_json_pack(
        "{s:o, s:o, s:I, s:I, s:I, s:o, s:o, s:o*, s:o}", "name",
        named ? named : tx_json_pack("s", "run"), /* the path is not UTF-8 */
        "median_speed", number(speed), "steps", last ? last->step : eval->point[eval->count - 1].step, "tokens",
        h->tokens, "bad_steps", count_bad(loss, &h->series[TX_SERIES_GRAD_NORM]), "last_loss",
        number(last ? last->value : (double)NAN), "best_eval_loss", number(best ? best->value : (double)NAN),
        "best_eval_step", best ? tx_json_pack("I", best->step) : NULL, "series", series);
    TX_TRY(tx_json_append(runs, run));
    for (int i = 0; i < TX_SERIES_COUNT; i++)
        if (h->series[i].count)
            TX_TRY(add_series(series, tx_series_keys[i], &h->series[i]));
    return TX_OK;
}

/* The path without the name of a log and without trailing slashes; the caller frees it. */
static char *path_of(const char *run)
{
    const char *slash = strrchr(run, '/');
    const bool log = slash && (strcmp(slash + 1, TX_HISTORY_LOG) == 0 || strcmp(slash + 1, TX_HISTORY_TRAINER) == 0);
    size_t length = log && slash > run ? (size_t)(slash - run) : strlen(run);
    while (length > 1 && run[length - 1] == '/')
        length--;
    return strndup(run, length);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Names the runs by the last parts of their paths if these are distinct, or else by their paths. The caller frees the
 * names. */
static tx_status name_runs(const tx_words *runs, char *names[])
{
    bool distinct = true;
    for (int32_t i = 0; i < runs->count; i++) {
        names[i] = path_of(runs->word[i]);
        if (!names[i])
            return tx_fail(TX_MEMORY, "%s: out of memory", runs->word[i]);
        for (int32_t j = 0; j < i; j++)
            distinct = distinct && strcmp(last_part(names[i]), last_part(names[j])) != 0;
    }
    for (int32_t i = 0; i < runs->count && distinct; i++) {
        const char *name = last_part(names[i]);
        memmove(names[i], name, strlen(name) + 1);
    }
    return TX_OK;
}

static tx_status collect(const settings *set, tx_json *runs)
{
    char *names[MAX_RUNS] = {0};
    tx_status status = name_runs(&set->runs, names);
    for (int32_t i = 0; i < set->runs.count && !status; i++) {
        tx_history history = {.tokens = 0};
        status = tx_history_read(set->runs.word[i], &history);
        TX_THEN(status, add_run(runs, names[i], &history));
        tx_history_free(&history);
    }
    for (int32_t i = 0; i < set->runs.count; i++)
        free(names[i]);
    return status;
}

/* All data of the page. The caller frees `*data`, also after an error. */
static tx_status make_data(const settings *set, tx_json **data)
{
    tx_json *runs = tx_json_array();
    *data = tx_json_pack("{s:s, s:f, s:b, s:b, s:o}", "version", TX_VERSION, "smoothing", set->smoothing, "clip",
                         set->clip, "follow", set->follow != NULL, "runs", runs);
    return *data ? collect(set, runs) : TX_MEMORY;
}

#ifdef TX_HTTP
static tx_status draw(const void *context, char **page, size_t *size)
{
    tx_json *data = NULL;
    tx_status status = make_data(context, &data);
    TX_THEN(status, tx_page_text(tx_plot_page, data, page, size));
    tx_json_free(data);
    return status;
}

static void print_address(int64_t port)
{
    tx_print_line(stdout, "http://localhost:%" PRId64 "/ shows the runs; Ctrl-C ends", port);
    fflush(stdout);
}

static int follow(const settings *set)
{
    char *end;
    const long port = *set->follow ? strtol(set->follow, &end, 10) : 6006;
    if (*set->follow && (*end || port < 0 || port > 65535))
        return tx_complain(&program, TX_EXIT_USAGE, "--follow %s: give a port from 0 to 65535", set->follow);
    return tx_follow(port, draw, set, print_address) ? tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
}
#endif

int main(int argc, char **argv)
{
    settings set = {.output = "txplot.html"};
    int result = tx_options_parse(&program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
#ifdef TX_HTTP
    if (set.follow)
        return tx_end(&program, follow(&set));
#endif
    tx_alive *alive = tx_alive_start(&program, stderr, "reading logs");
    tx_json *all = NULL;
    tx_status status = make_data(&set, &all);
    TX_THEN(status, tx_page_write(set.output, tx_plot_page, all));
    if (!status && strcmp(set.output, "-") != 0)
        tx_print_line(stdout, "%s: %d run%s", set.output, (int)set.runs.count, set.runs.count > 1 ? "s" : "");
    tx_json_free(all);
    tx_alive_stop(alive);
    return tx_end(&program, status ? tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error()) : 0);
}
