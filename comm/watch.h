/* SPDX-License-Identifier: Apache-2.0
 *
 * The watch over a run: one a process. MPI reports almost no failure (a rank that is stopped, a link that is cut, and
 * all others wait for ever), so each rank says what it gets done, and a thread ends the process where nothing was said
 * for too long. Under txlaunch the same thread sends heartbeats.
 *
 * The contract: between two reports (step, alive, pause, resume) no more than the limit may pass. Whatever takes
 * longer, on this rank or on one that this rank waits for, stands between pause and resume on every rank. Time in which
 * the process itself was stopped does not count. Where a rank sees that the process of the one it waits for no longer
 * lives (its watch makes no marks: it is stopped, or gone), the usual limit holds even before the first step and within
 * a pause; of a rank on another host that is not seen.
 *
 * At its end a process says one line on standard error and leaves by _exit(TX_WATCH_STATUS), on which launchers end all
 * ranks, also a stopped one. So that it is one line, a rank that itself does not get on speaks at once, then the lowest
 * of those that wait for another, and the others only where nobody has ended them a moment later.
 *
 * All functions take NULL for "no watch", and any thread may call them. */
#ifndef TX_COMM_WATCH_H
#define TX_COMM_WATCH_H

#include "comm/comm.h"

#define TX_WATCH_STATUS 17
#define TX_WATCH_LONG 600.0 /* seconds for what nobody knows the time of */

typedef struct tx_watch tx_watch;

/* Texts and context must outlive the watch. */
typedef struct tx_watch_options {
    size_t size;         /* sizeof(tx_watch_options) */
    const char *program; /* "txtrain": begins the lines */
    const char *advice;  /* ends the last line: "start again with --resume_from_checkpoint" */
    double timeout;      /* the limit in seconds; 0: 30, or 10 times the median step where that is more. A job of one
                          * rank without txlaunch has then none */
    double start;        /* the limit up to the first step, which may compile; 0: TX_WATCH_LONG, or timeout where that
                          * is more */
    /* For tests. */
    void (*tell)(void *context, const char *line); /* takes a line without its end; NULL: standard error */
    void (*end)(void *context, int status);        /* ends the process; NULL: _exit */
    void *context;
} tx_watch_options;

/* Joins txlaunch where the environment names it, and starts the thread. A launcher that cannot be reached, or goes
 * later, is told and is no failure. */
tx_status tx_watch_start(tx_comm *comm, const tx_watch_options *options, tx_watch **watch);

/* An optimizer step is done; calls the communicator's mark. */
void tx_watch_step(tx_watch *watch, int64_t step);
/* Something within a step, an evaluation or the writing of a file is done. */
void tx_watch_alive(tx_watch *watch);
/* What begins now may take `seconds` without a report; 0: TX_WATCH_LONG. A limit that is longer stays. */
void tx_watch_pause(tx_watch *watch, double seconds);
void tx_watch_resume(tx_watch *watch);
/* The limit that holds now, in seconds; 0 where there is none. */
double tx_watch_limit(tx_watch *watch);
/* A checkpoint was written; tells txlaunch. */
void tx_watch_saved(tx_watch *watch, const char *checkpoint);

/* This rank has nothing left to do but to close the communicator, which is not touched from now on; rank 0 says it
 * after everything is written: it is the mark of success. Every rank calls it. Some MPIs hang when they end; as all is
 * done, a process that is still there after the limit (not that of the start) leaves by _exit(0). */
void tx_watch_done(tx_watch *watch);
/* This rank is about to end with this exit status, not 0; tells txlaunch. The communicator is touched no more either,
 * and a process that is still there 10 seconds later leaves with that status: MPI's end waits for the other ranks. */
void tx_watch_failed(tx_watch *watch, int status, const char *message);
/* Ends the thread and frees the watch. */
void tx_watch_stop(tx_watch *watch);

#endif
