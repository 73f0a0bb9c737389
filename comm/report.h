/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of the ranks to txlaunch, one line each on standard error. The MPI launcher forwards them from all hosts.
 * A control character marks a report, so that txlaunch finds it among the other output of programs.
 *
 * RANK hello RANKS HOST PID   Its process has started.
 * RANK step STEP              The last completed step (-1: none). Rank 0 repeats it as a heartbeat.
 * RANK saved FOLDER           A checkpoint was written.
 * RANK keeps FOLDER           From now on ranks that survive a failure save the last complete step. Each has a file
 *                             TX_SURVIVOR_MARK and its number in this folder while it does so. A checkpoint that it
 *                             wrote is there as TX_SURVIVOR_SAVED and its name. To end the ranks, remove the folder.
 * RANK lost OTHER             The run ends because that rank (or this one) is stuck or unreachable.
 * RANK failed STATUS MESSAGE  This rank ends the run with this exit status.
 * RANK done                   This rank has finished. Rank 0 has written all files.
 * RANK left STATUS            Its process has ended. The status is 128 + N if signal N killed it. */
#ifndef TX_COMM_REPORT_H
#define TX_COMM_REPORT_H

#include "tx.h"

#define TX_REPORT_VARIABLE \
    "TX_LAUNCH"               /* environment variable of a rank: the file descriptor of txlaunch's standard error */
#define TX_REPORT_MARK '\x1e' /* the record separator of ASCII */
#define TX_REPORT_LINE 4096   /* maximum bytes of a report; a pipe writes as many atomically */
#define TX_SURVIVOR_MARK "rank-"
#define TX_SURVIVOR_SAVED "saved-"

/* Returns the file descriptor for reports; -1 without txlaunch. If the program has closed it, reports go to
 * standard error. */
int tx_report_descriptor(void);
/* Writes a report and waits at most `seconds` for space in the pipe. Control characters are replaced by spaces. A
 * report is dropped if it is too long, if there is no space or no reader. */
void tx_report(int descriptor, double seconds, const char *format, ...) TX_PRINTF(3, 4);

#endif
