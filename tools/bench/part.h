/* SPDX-License-Identifier: Apache-2.0
 *
 * Measurements made of other commands, each a process of its own: what a driver crashes, hangs or has run out of memory
 * takes one part along and not the others. */
#ifndef TX_TOOLS_BENCH_PART_H
#define TX_TOOLS_BENCH_PART_H

#include "tools/process/process.h"
#include "tx_json.h"

/* How a part ended. X(NAME, "word") */
#define TX_PART_MAP(X)                                                                   \
    X(OK, "ok")                                                                          \
    X(FAILED, "failed")     /* its message says why; it may have figures all the same */ \
    X(STOPPED, "stopped")   /* it took longer than it was given */                       \
    X(LEFT_OUT, "left out") /* its message says why */

typedef enum tx_part_state {
#define X(name, word) TX_PART_##name,
    TX_PART_MAP(X)
#undef X
} tx_part_state;

/* Runs the command, ends it after `seconds`, and appends to `parts`: "part", "state", "seconds", "command"; "message"
 * where it did not go well; "figures", what it printed as JSON. Paths in them are taken out. Fails only where no part
 * could be run at all. */
tx_status tx_part_run(tx_json *parts, const char *name, const tx_command_line *command, double seconds,
                      tx_part_state *state);
/* Appends a part that is not run. */
tx_status tx_part_leave_out(tx_json *parts, const char *name, const char *format, ...) TX_PRINTF(3, 4);

/* Sets the words by which the figures of txbench device name it. */
void tx_part_facts(const tx_json *device, tx_json *to);

/* The text of report.html, a NUL after it; @DATA@ stands for the reports. */
extern const unsigned char tx_report_page[];

#endif
