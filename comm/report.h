/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of the ranks to txlaunch: one line each on standard error, which the launcher of MPI forwards from all hosts.
 * A control character marks a report, so that txlaunch finds it between the lines that programs print.
 *
 *   RANK hello RANKS HOST PID   its process has started
 *   RANK step STEP              the last step that is done (-1: none); rank 0 repeats it as a heartbeat
 *   RANK saved FOLDER           a checkpoint is written
 *   RANK lost OTHER             the run ends because that rank (or this one) is stuck or gone
 *   RANK failed STATUS MESSAGE  this rank ends the run with this exit status
 *   RANK done                   this rank has nothing left to do; rank 0 has written everything
 *   RANK left STATUS            its process has ended; 128 + the number of the signal that killed it */
#ifndef TX_COMM_REPORT_H
#define TX_COMM_REPORT_H

#include "tx.h"

#define TX_REPORT_VARIABLE "TX_LAUNCH" /* the descriptor of txlaunch's standard error, in the environment of a rank */
#define TX_REPORT_MARK '\x1e'          /* the record separator of ASCII */
#define TX_REPORT_LINE 4096            /* bytes of the longest report, which a pipe takes as a whole */

/* The descriptor that reports are written to; -1 without txlaunch. A program that closed it reports on standard error.
 */
int tx_report_descriptor(void);
/* Writes a report and waits at most `seconds` for room. Control characters become blanks; a report that is too long or
 * finds no room, or no reader, is dropped. */
void tx_report(int descriptor, double seconds, const char *format, ...) TX_PRINTF(3, 4);

#endif
