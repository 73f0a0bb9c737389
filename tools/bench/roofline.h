/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared code of txbench ops, gemm and attention: timings compared with the device's peaks, as a table or as JSON. */
#ifndef TX_TOOLS_BENCH_ROOFLINE_H
#define TX_TOOLS_BENCH_ROOFLINE_H

#include "tools/bench/peaks.h"

/* The end of each command's description. */
#define TX_BENCH_ABOUT                                                                                      \
    "\nShares are relative to the roofline of the device's measured peaks: its copy rate (bytes read and\n" \
    "written) and the fastest matrix product of the run. Above 100 %, operands stayed in the caches."

typedef struct tx_bench_row {
    tx_timing timing;
    char name[64];
    const char *group; /* points of a group have one colour in the report */
    int64_t count;     /* number of such operations in a training step, or 0 */
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
    double begin;     /* time of the start, as tx_now */
    int32_t left_out; /* measurements that were left out because of --seconds */
} tx_roofline;

/* Runs a command: opens the device, calls `measure` and prints the report. */
tx_status tx_roofline_run(const char *what, char *const *argv, const tx_bench_common *common,
                          tx_status (*measure)(tx_roofline *report, const void *user), const void *user);
/* Shows the next measurement on standard error, if it is a terminal. */
void tx_roofline_progress(const tx_roofline *report, const char *name, const char *label);
/* True if the time of --seconds is over. Counts the measurement as left out then. */
bool tx_roofline_late(tx_roofline *report);
/* Adds a row. Copies `name` and the timing. Measures the product peak of its type unless it is known. */
tx_status tx_roofline_add(tx_roofline *report, const tx_timing *timing, const char *name, const char *group,
                          int64_t count);
/* Times a command and adds it as a row with `label`, unless the time is over. */
tx_status tx_roofline_time(tx_roofline *report, const tx_command *command, const char *name, const char *group,
                           const char *label, int64_t count);
/* Starts the JSON of a measurement: version, command, device, driver, and `what` (its kind). */
void tx_bench_json_head(tx_json *object, const char *what, char *const *argv, const tx_device_info *device);

#endif
