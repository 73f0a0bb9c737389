/* SPDX-License-Identifier: Apache-2.0
 * Inside the conformance suite: the median of runs. */
#ifndef TX_TESTS_OPS_TIMING_H
#define TX_TESTS_OPS_TIMING_H

#include "tests/ops/conformance.h"

/* Commands of a program with bound arenas. */
typedef struct tx_timed_run {
    const tx_target *target;
    tx_executable *executable;
    int32_t first, count;
    const tx_controls *controls;
    bool profiled; /* device time of command `first`, which is then the only one and among the first TX_TIMED_COMMANDS;
                      else the host's clock until all is done */
} tx_timed_run;

#define TX_TIMED_COMMANDS 2

/* Runs it twice to warm up, then `repeats` times. With 0 repeats it runs as often as fits in about half a second. Sets
 * the median in seconds and the spread, (90th - 10th percentile) / median. */
tx_status tx_time_runs(const tx_timed_run *run, int32_t repeats, double *median, double *spread);

/* Computes a timing's figures from its seconds, for one run of command `index` of a program. */
void tx_timing_finish(const tx_target *target, const tx_executable *executable, const tx_command *program,
                      int32_t index, tx_timing *timing);

#endif
