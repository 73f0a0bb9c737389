/* SPDX-License-Identifier: Apache-2.0
 *
 * The watch over a run: one a process. MPI reports almost no failure (a rank that is stopped, a link that is cut, and
 * all others wait for ever), so each rank says what it gets done, and a thread ends the process where something is
 * wrong. Under txlaunch rank 0 also reports its steps (report.h).
 *
 * Three rules, from before MPI starts to the end:
 *
 *   - A rank whose process no longer lives (it is stopped, or cannot be reached) is named by rank 0 after the limit, in
 *     whatever phase; rank 0 itself is named by the others. Each process tells that it lives by `tell` of its
 *     communicator, whatever else it does.
 *   - A rank that gets nothing done for the limit of its phase, though it waits for no other, says so itself.
 *   - A rank that waits for one that lives and is busy waits as long as that one's own watch lets it. Where ranks wait
 *     for each other, the limit of the phase holds.
 *
 * Writing files has no limit: a disk that is slow is told of, and waited for. Time in which the process itself was
 * stopped does not count.
 *
 * At its end a process says one line on standard error and leaves by _exit(TX_WATCH_STATUS), on which launchers end all
 * ranks, also a stopped one.
 *
 * All functions take NULL for "no watch", and any thread may call them. */
#ifndef TX_COMM_WATCH_H
#define TX_COMM_WATCH_H

#include "comm/comm.h"

#define TX_WATCH_STATUS 17
#define TX_WATCH_LONG 600.0 /* seconds without a report where nobody knows how long a thing takes */
#define TX_WATCH_JOIN 120.0 /* seconds in which all ranks have to start */

/* What a run goes through. The limit without a report is TX_WATCH_LONG, but for those that name another one.
 * X(NAME, "what a rank is doing") */
#define TX_WATCH_PHASE_MAP(X)                                                                     \
    X(JOINING, "waiting for all ranks to start") /* `join` */                                     \
    X(READING, "reading its inputs")                                                              \
    X(COMPILING, "compiling")                                                                     \
    X(LOADING, "loading weights")                                                                 \
    X(TRAINING, "training")     /* `timeout`, once the first steps are done, which may compile */ \
    X(EVALUATING, "evaluating") /* `timeout`, once the first batches are done */                  \
    X(WRITING, "writing files") /* none */

typedef enum tx_watch_phase {
#define X(name, text) TX_WATCH_##name,
    TX_WATCH_PHASE_MAP(X)
#undef X
        TX_WATCH_PHASE_COUNT
} tx_watch_phase;

typedef struct tx_watch tx_watch;

/* Texts and context must outlive the watch. */
typedef struct tx_watch_options {
    size_t size;         /* sizeof(tx_watch_options) */
    const char *program; /* "txtrain": begins the lines */
    const char *advice;  /* ends the last line: "start again with --resume_from_checkpoint" */
    double timeout;      /* the limit in seconds; 0: 30, or 10 times the median step where that is more. A job of one
                          * rank without txlaunch has then none */
    double join;         /* the limit of JOINING; 0: TX_WATCH_JOIN, or timeout where that is more */
    /* For tests. */
    void (*tell)(void *context, const char *line); /* takes a line without its end; NULL: standard error */
    void (*end)(void *context, int status);        /* ends the process; NULL: _exit */
    void *context;
} tx_watch_options;

/* Before the communicator is opened, which may hang: starts the thread, and reports to txlaunch if the environment
 * names it. The phase is JOINING. */
tx_status tx_watch_start(const tx_watch_options *options, tx_watch **watch);
/* Behind its opening. The communicator must not be closed before tx_watch_done or _failed. */
tx_status tx_watch_join(tx_watch *watch, tx_comm *comm);

/* What begins now; what was begun before ends. Counts as a report. */
void tx_watch_begin(tx_watch *watch, tx_watch_phase phase);
/* An optimizer step is done. */
void tx_watch_step(tx_watch *watch, int64_t step);
/* Something within the phase is done. `detail`, where not NULL, says of what: "book.txt, 43 %". */
void tx_watch_alive(tx_watch *watch, const char *detail);
/* Writes what this rank does, "reading its inputs, book.txt, 43 %"; "" at the end and without a watch. */
void tx_watch_doing(tx_watch *watch, char *text, size_t size);
/* A checkpoint was written; tells txlaunch. */
void tx_watch_saved(tx_watch *watch, const char *checkpoint);

/* All ranks know that the run is complete and its files are written: nothing is left but to close the communicator,
 * which is not touched from now on. Said by rank 0 it is the mark of success. Every rank calls it. Some MPIs hang when
 * they end; as all is done, a process that is still there after the limit leaves by _exit(0). */
void tx_watch_done(tx_watch *watch);
/* This rank is about to end with this exit status, not 0; tells txlaunch. The communicator is touched no more either,
 * and a process that is still there 10 seconds later leaves with that status: MPI's end waits for the other ranks. */
void tx_watch_failed(tx_watch *watch, int status, const char *message);
/* Ends the thread and frees the watch. */
void tx_watch_stop(tx_watch *watch);

#endif
