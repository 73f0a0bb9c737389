/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the parts of a report as separate processes. A driver that crashes, hangs or exhausts memory then ends only one
 * part and not the others. */
#ifndef TX_TOOLS_BENCH_PART_H
#define TX_TOOLS_BENCH_PART_H

#include "tools/process/process.h"
#include "tx_json.h"

/* How a part ended. X(NAME, "word") */
#define TX_PART_MAP(X)                                                    \
    X(OK, "ok")                                                           \
    X(FAILED, "failed")     /* with an error message; may have figures */ \
    X(STOPPED, "stopped")   /* killed at its time limit */                \
    X(LEFT_OUT, "left out") /* not run, with a message about the reason */

typedef enum tx_part_state {
#define X(name, word) TX_PART_##name,
    TX_PART_MAP(X)
#undef X
} tx_part_state;

/* Runs the command for at most `seconds`, and appends an object to `parts` with "part", "state", "seconds", "command",
 * "message" if it did not succeed, and "figures", the JSON that it printed. Paths are removed from texts. Returns an
 * error only if no part could be run at all. */
tx_status tx_part_run(tx_json *parts, const char *name, const tx_command_line *command, double seconds,
                      tx_part_state *state);
/* Appends a part that is not run. */
tx_status tx_part_leave_out(tx_json *parts, const char *name, const char *format, ...) TX_PRINTF(3, 4);

/* Copies the name, vendor, driver and so on of a device from the figures of txbench device. */
void tx_part_facts(const tx_json *device, tx_json *to);

/* The NUL-terminated text of report.html. @DATA@ is the place of the reports. */
extern const unsigned char tx_report_page[];

#endif
