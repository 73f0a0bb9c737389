/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the watch: its state, what it tells (watch.c), and the rule by which it ends a process (watch_rule.c). All
 * functions here want the watch's lock to be held. */
#ifndef TX_COMM_WATCH_STATE_H
#define TX_COMM_WATCH_STATE_H

#include "api/base/thread.h"
#include "comm/report.h"
#include "comm/watch.h"

enum {
    TX_WATCH_WINDOW = 64, /* steps whose median counts */
    TX_WATCH_KNOWN = 3,   /* steps after which there is one, and batches after which nothing compiles any more */
};

/* Another rank, as this one hears it. */
typedef struct tx_watch_other {
    int64_t beats;
    double silent; /* seconds since the number changed */
} tx_watch_other;

struct tx_watch {
    int32_t rank, size; /* as the launcher says, until the communicator is open */
    char host[64];
    void (*leave)(void); /* of the communicator, which may be gone by then */
    tx_watch_options o;
    pthread_t thread;
    bool running;         /* the thread */
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t wake;
    tx_comm *comm;          /* NULL: not open yet */
    tx_watch_other *others; /* by rank */
    bool stop;
    bool over;  /* nothing is left to do: the communicator may be gone */
    int result; /* then: the exit status */
    tx_watch_phase phase;
    char detail[64];
    int64_t reports; /* within the phase */
    double quiet;    /* seconds without a report */
    double notice;   /* seconds after which a slow disk is told of next */
    int64_t step;
    double began; /* when the present step did */
    double took[TX_WATCH_WINDOW];
    int64_t steps;
    double median;
    int channel;     /* of reports to txlaunch; -1: none */
    double reported; /* when the last step was */
    double told;     /* when the other ranks were told last */
};

/* Says one line to the user, the program's name before it. */
void tx_watch_report(const tx_watch *watch, const char *format, ...) TX_PRINTF(2, 3);
/* The limit by default, and the one that holds now (INFINITY: none). */
double tx_watch_default_limit(const tx_watch *watch);
double tx_watch_limit_now(const tx_watch *watch);
/* Tells the user of ranks that are not heard. */
void tx_watch_report_silent(const tx_watch *watch);
/* While the communicator is open: tells the others that this rank lives, and hears what they tell; `elapsed` seconds
 * after it did so last. */
void tx_watch_listen(tx_watch *watch, double elapsed);
/* Whether the process has to end, with this status, and why; for no reason nothing is said. */
bool tx_watch_judge(tx_watch *watch, int *status, char *why, size_t room);

#endif
