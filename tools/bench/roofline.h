/* SPDX-License-Identifier: Apache-2.0
 *
 * What txbench ops, gemm and attention share: options, rows of timings held against the device's peaks, as a
 * table or as JSON. */
#ifndef TX_TOOLS_BENCH_ROOFLINE_H
#define TX_TOOLS_BENCH_ROOFLINE_H

#include "tools/bench/peaks.h"

/* The end of what the programs say about themselves. */
#define TX_BENCH_ABOUT                                                                                         \
    "\nShares are of what the device's own measured peaks allow: its copy rate (bytes read and written) and\n" \
    "its best product, the fastest matrix product of the run. More than 100 %: operands stayed in the caches."

typedef struct tx_bench_row {
    tx_timing timing;
    char name[64];
    const char *group; /* points of a group have one colour */
    int64_t count;     /* how many of it a training step has; 0: it is not one of a step's */
} tx_bench_row;

typedef struct tx_roofline {
    const tx_bench_common *common;
    const char *what; /* "ops", "gemm" or "attention" */
    char *const *argv;
    tx_target target;
    tx_bench_peaks peaks;
    tx_bench_row *row;
    int32_t rows;
    size_t room;
    double begin;     /* when it began, as tx_now tells */
    int32_t left_out; /* measurements that would have begun too late */
} tx_roofline;

/* The whole course of a command that reports: opens the device, calls `measure` and prints. */
tx_status tx_roofline_run(const char *what, char *const *argv, const tx_bench_common *common,
                          tx_status (*measure)(tx_roofline *report, const void *user), const void *user);
/* Shows what is about to be measured where standard error is a terminal. */
void tx_roofline_progress(const tx_roofline *report, const char *name, const char *label);
/* Whether the time for measuring is up; counts what is then left out. */
bool tx_roofline_late(tx_roofline *report);
/* Adds a row; `name` and the timing are copied. Measures the best product of its type if that is not known. */
tx_status tx_roofline_add(tx_roofline *report, const tx_timing *timing, const char *name, const char *group,
                          int64_t count);
/* Times a command and adds it as a row of that label, unless the time is up. */
tx_status tx_roofline_time(tx_roofline *report, const tx_command *command, const char *name, const char *group,
                           const char *label, int64_t count);
/* Starts the JSON of a measurement: version, command, device, driver, and what it is. */
void tx_bench_json_head(tx_json *object, const char *what, char *const *argv, const tx_device_info *device);

#endif
