/* SPDX-License-Identifier: Apache-2.0
 * Timings compared with the device's peaks, as a table and as JSON. */
#include "tools/bench/roofline.h"
#include "tools/bench/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND 512

/* ---- rows ------------------------------------------------------------------------------------------- */

/* Joins the command line. */
static void command_text(char *const *argv, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "txbench");
    for (; *argv && used < size; argv++)
        used += (size_t)snprintf(text + used, size - used, " %s", *argv);
}

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

void tx_roofline_progress(const tx_roofline *report, const char *name, const char *label)
{
    if (!isatty(STDERR_FILENO))
        return;
    clear_progress();
    fprintf(stderr, "%d measured; %s %.60s", report->rows, name, label);
}

tx_status tx_roofline_add(tx_roofline *report, const tx_timing *timing, const char *name, const char *group,
                          int64_t count)
{
    TX_TRY(tx_bench_need_product(&report->target, tx_bench_bound_dtype(timing), (int32_t)report->common->repeats,
                                 &report->peaks));
    TX_TRY(tx_array_reserve(&report->row, &report->room, (size_t)report->rows + 1, sizeof *report->row, "timings"));
    tx_bench_row *row = &report->row[report->rows++];
    *row = (tx_bench_row){.timing = *timing, .group = group, .count = count};
    snprintf(row->name, sizeof row->name, "%s", name);
    tx_bench_raise(&report->peaks, timing);
    tx_roofline_progress(report, name, timing->label);
    return TX_OK;
}

bool tx_roofline_late(tx_roofline *report)
{
    const bool late = report->rows > 0 && tx_now() - report->begin > report->common->seconds;
    report->left_out += late;
    return late;
}

tx_status tx_roofline_time(tx_roofline *report, const tx_command *command, const char *name, const char *group,
                           const char *label, int64_t count)
{
    tx_timing timing = {0};
    if (tx_roofline_late(report))
        return TX_OK;
    tx_roofline_progress(report, name, label);
    tx_status status = tx_conformance_time(&report->target, command, (int32_t)report->common->repeats, &timing);
    if (status)
        return tx_fail_in(status, "%s", label);
    snprintf(timing.label, sizeof timing.label, "%s", label);
    return tx_roofline_add(report, &timing, name, group, count);
}

static void report_free(tx_roofline *report)
{
    clear_progress(); /* before an error message */
    if (report->target.context)
        tx_target_close(&report->target);
    free(report->row);
}

/* Sums over the rows that are part of a training step. */
typedef struct step {
    int64_t operations;
    double seconds, flops;
} step;

static step step_of(const tx_roofline *report)
{
    step s = {0};
    for (int32_t i = 0; i < report->rows; i++) {
        const tx_bench_row *row = &report->row[i];
        s.operations += row->count;
        s.seconds += (double)row->count * row->timing.seconds;
        s.flops += (double)row->count * row->timing.flops;
    }
    return s;
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

void tx_bench_json_head(tx_json *object, const char *what, char *const *argv, const tx_device_info *device)
{
    char command[COMMAND];
    command_text(argv, command, sizeof command);
    tx_json_set_string(object, "version", TX_VERSION);
    if (tx_json_set_string(object, "command", command)) /* a path in it is not UTF-8 */
        tx_json_set_string(object, "command", "txbench");
    tx_json_set_string(object, "device", device->id);
    tx_json_set_string(object, "name", device->name);
    tx_json_set_string(object, "vendor", device->vendor);
    tx_json_set_string(object, "platform", device->platform);
    tx_json_set_string(object, "driver", device->driver);
    tx_json_set_string(object, "what", what);
}

static tx_json *row_json(const tx_roofline *report, const tx_bench_row *row)
{
    const tx_timing *t = &row->timing;
    bool by_copy;
    const double attainable = tx_bench_attainable(&report->peaks, t, &by_copy);
    tx_json *one = tx_json_object();
    tx_json_set_string(one, "name", row->name);
    tx_json_set_string(one, "case", t->label);
    tx_json_set_string(one, "group", row->group);
    tx_json_set_string(one, "op", t->op);
    tx_json_set_string(one, "variant", t->variant);
    tx_json_set_string(one, "dtype", tx_dtype_name(t->dtype));
    tx_json_set_string(one, "bound", by_copy ? "copy" : "product");
    tx_json_set_number(one, "seconds", t->seconds);
    tx_json_set_number(one, "spread", t->spread);
    tx_json_set_number(one, "flops", t->flops);
    tx_json_set_number(one, "bytes", t->bytes);
    tx_json_set_number(one, "gflops", t->gflops);
    tx_json_set_number(one, "gbytes", t->gbytes);
    tx_json_set_number(one, "attainable_gflops", 1e-9 * attainable);
    tx_json_set_number(one, "share", 1e9 * t->gflops / attainable);
    tx_json_set_number(one, "of_copy", 1e9 * t->gbytes / report->peaks.copy);
    tx_json_set_number(one, "of_product", 1e9 * t->gflops / report->peaks.product[tx_bench_bound_dtype(t)]);
    if (row->count > 0)
        tx_json_set_int(one, "count", row->count);
    return one;
}

static tx_json *report_json(const tx_roofline *report)
{
    const step s = step_of(report);
    tx_json *all = tx_json_object(), *peaks = tx_json_object(), *rows = tx_json_array();
    tx_bench_json_head(all, report->what, report->argv, &report->target.info);
    tx_bench_peaks_json(&report->peaks, peaks);
    tx_json_set(all, "peaks", peaks);
    for (int32_t i = 0; i < report->rows; i++)
        tx_json_append(rows, row_json(report, &report->row[i]));
    tx_json_set(all, "rows", rows);
    tx_json_set_int(all, "left_out", report->left_out);
    if (s.operations > 0) {
        tx_json *one = tx_json_object();
        tx_json_set_int(one, "operations", s.operations);
        tx_json_set_number(one, "seconds", s.seconds);
        tx_json_set_number(one, "flops", s.flops);
        tx_json_set_number(one, "gflops", 1e-9 * s.flops / s.seconds);
        tx_json_set(all, "step", one);
    }
    return all;
}

tx_status tx_roofline_run(const char *what, char *const *argv, const tx_bench_common *common,
                          tx_status (*measure)(tx_roofline *report, const void *user), const void *user)
{
    tx_roofline report = {.common = common, .what = what, .argv = argv, .begin = tx_now()};
    tx_roofline_progress(&report, "peaks", "copy, launch");
    tx_status status = tx_bench_open(common, &report.target, &report.peaks);
    TX_THEN(status, measure(&report, user));
    clear_progress();
    TX_THEN(status, tx_bench_print(report_json(&report), common->json,
                                   "name|case|variant|bound|seconds|spread|gflops|gbytes|share|count"));
    report_free(&report);
    return status;
}
