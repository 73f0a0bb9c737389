/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog of a run, one per process. MPI hardly detects failures: if a rank is stopped or a link is cut, the
 * other ranks wait forever. Each rank therefore reports its progress, and a thread of the watchdog ends the process
 * if the run is stuck. Under txlaunch, rank 0 also reports its steps (report.h).
 *
 * Three rules apply from before MPI starts until the end of the run:
 *
 * 1. Dead rank: each process sends heartbeats (`send_status` of its communicator) in every phase. If those of a rank
 * stop for longer than the timeout, rank 0 reports that rank. The other ranks report rank 0.
 * 2. Stuck rank: a rank that makes no progress within the limit of its phase reports itself, unless it waits for
 *    another rank.
 * 3. Waiting rank: a rank that waits for a live and busy rank waits as long as the watchdog of that rank allows. If
 *    ranks wait for each other, the limit of the phase applies.
 *
 * Writing files has no limit; a slow disk only causes a warning. Generating has none either, because requests may
 * arrive at any time. A transfer that this rank begins is progress, so that ranks which exchange tokens for hours are
 * not taken for ranks that wait for each other. Time during which the process itself was suspended does not count.
 *
 * When the watchdog ends a process, it prints one line on standard error and calls _exit(TX_WATCHDOG_STATUS). Launchers
 * then end all ranks, including suspended ones.
 *
 * A run may ask for the chance to save its last complete step first (tx_watchdog_keep).
 *
 * All functions accept NULL as "no watchdog". Any thread may call them. */
#ifndef TX_COMM_WATCH_H
#define TX_COMM_WATCH_H

#include "comm/comm.h"

#define TX_WATCHDOG_STATUS 17
#define TX_WATCHDOG_LONG 600.0 /* seconds without progress for operations of unknown duration */
#define TX_WATCHDOG_JOIN 120.0 /* seconds within which all ranks must start */

/* The phases of a run. The limit without progress is TX_WATCHDOG_LONG unless a comment names another one. X(NAME,
 * "activity of the rank") */
#define TX_WATCHDOG_PHASE_MAP(X)                                                                 \
    X(JOINING, "waiting for all ranks to start") /* limit: `join` */                             \
    X(READING, "reading its inputs")                                                             \
    X(COMPILING, "compiling")                                                                    \
    X(LOADING, "loading weights")                                                                \
    X(TRAINING, "training")     /* limit: `timeout`, after the first steps, which may compile */ \
    X(EVALUATING, "evaluating") /* limit: `timeout`, after the first batches */                  \
    X(WRITING, "writing files") /* no limit */                                                   \
    X(GENERATING, "generating") /* no limit */

typedef enum tx_watchdog_phase {
#define X(name, text) TX_WATCHDOG_##name,
    TX_WATCHDOG_PHASE_MAP(X)
#undef X
        TX_WATCHDOG_PHASE_COUNT
} tx_watchdog_phase;

typedef struct tx_watchdog tx_watchdog;

/* Strings and context must outlive the watchdog. */
typedef struct tx_watchdog_options {
    size_t size;         /* sizeof(tx_watchdog_options) */
    const char *program; /* "txtrain": prefix of the lines */
    const char *advice;  /* end of the last line: "start again with --resume_from_checkpoint" */
    double timeout; /* limit in seconds; 0 selects 30 seconds or 10 times the median step, whichever is longer. A job of
                       one rank without txlaunch has no limit by default */
    double join;    /* limit of JOINING; 0 selects TX_WATCHDOG_JOIN or the timeout, whichever is longer */
    /* For tests. */
    void (*print)(void *context, const char *line); /* receives a line without newline; NULL selects stderr */
    void (*end)(void *context, int status);         /* ends the process; NULL calls _exit */
    void *context;
} tx_watchdog_options;

/* Call it before the communicator is opened, which may hang. Starts the thread. Reports to txlaunch if the
 * environment names it. The first phase is JOINING. */
tx_status tx_watchdog_start(const tx_watchdog_options *options, tx_watchdog **watch);
/* Call it after the communicator was opened. Do not close the communicator before tx_watchdog_done or
 * tx_watchdog_failed. */
tx_status tx_watchdog_join(tx_watchdog *watch, tx_comm *comm);

/* Begins a phase and ends the previous one. Counts as progress. */
void tx_watchdog_begin(tx_watchdog *watch, tx_watchdog_phase phase);
/* Reports that an optimizer step is complete. */
void tx_watchdog_step(tx_watchdog *watch, int64_t step);
/* Reports progress within the phase. `detail`, if not NULL, describes it: "book.txt, 43 %". */
void tx_watchdog_alive(tx_watchdog *watch, const char *detail);
/* Writes the current activity of this rank, "reading its inputs, book.txt, 43 %"; "" after the end of the run and
 * without a watchdog. */
void tx_watchdog_doing(tx_watchdog *watch, char *text, size_t size);
/* Reports to txlaunch that a checkpoint was written. */
void tx_watchdog_saved(tx_watchdog *watch, const char *checkpoint);

/* Whether txlaunch started this process. */
bool tx_watchdog_is_launched(const tx_watchdog *watch);
/* Under txlaunch: if another rank does not answer, or the launcher ends, this process no longer ends at once. Its waits
 * for other ranks end (tx_comm_abandon), so that the run can save its last complete step and call tx_watchdog_leave. It
 * has the time limit of a step to begin with WRITING, and TX_WATCHDOG_LONG then. Meanwhile a file of this rank is in
 * `folder`, which all ranks share (report.h). The process ends if the folder is removed. Pass "" to end this. */
void tx_watchdog_keep(tx_watchdog *watch, const char *folder);
/* After a failure: returns true if this rank's waits were ended (tx_comm_abandon), by the watchdog or by a
 * communicator that failed. */
bool tx_watchdog_survives(tx_watchdog *watch);
/* Ends the process of a surviving rank with TX_WATCHDOG_STATUS. */
void tx_watchdog_leave(tx_watchdog *watch);

/* Reports that all ranks have completed the run and its files are written; only the communicator remains to be
 * closed. The watchdog no longer uses the communicator. The call of rank 0 marks the run as successful. Every rank
 * must call it. Some MPI libraries hang in MPI_Finalize; a process that still exists after the limit calls
 * _exit(0). */
void tx_watchdog_done(tx_watchdog *watch);
/* Reports to txlaunch that this rank is about to end with a nonzero exit status. The watchdog no longer uses the
 * communicator. A process that still exists 10 seconds later exits with that status, because MPI_Finalize waits for
 * the other ranks. */
void tx_watchdog_failed(tx_watchdog *watch, int status, const char *message);
/* Ends the thread and frees the watchdog. */
void tx_watchdog_stop(tx_watchdog *watch);

#endif
