/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the watchdog: its state, its reports (watch.c), and the rule by which it ends a process
 * (watch_rule.c). The caller of each function here must hold the watchdog's lock. */
#ifndef TX_COMM_WATCH_STATE_H
#define TX_COMM_WATCH_STATE_H

#include "api/base/thread.h"
#include "comm/report.h"
#include "comm/watch.h"

#include <sys/types.h>

enum {
    TX_WATCHDOG_WINDOW = 64, /* number of recent steps whose median is used */
    TX_WATCHDOG_KNOWN = 3,   /* minimum steps for a median, and batches after which nothing is compiled any more */
};

/* Another rank, as this rank sees it. */
typedef struct tx_watchdog_other {
    int64_t beats;
    double silent; /* seconds since the count of heartbeats changed */
} tx_watchdog_other;

struct tx_watchdog {
    int32_t rank, size; /* from the launcher's environment until the communicator is open */
    char host[64];
    void (*leave)(void); /* the communicator's `leave`; the communicator itself may be closed by then */
    tx_watchdog_options o;
    pthread_t thread;
    bool running;         /* the thread exists */
    pthread_mutex_t lock; /* protects all fields below */
    pthread_cond_t wake;
    tx_comm *comm;             /* NULL before the communicator is open */
    tx_watchdog_other *others; /* by rank */
    bool stop;
    bool over;  /* the run has ended; the communicator may be closed */
    int result; /* exit status if `over` */
    tx_watchdog_phase phase;
    char detail[64];
    int64_t reports; /* progress reports within the phase */
    double quiet;    /* seconds since the last report of progress, or since this rank began a transfer */
    int64_t begun;   /* transfers of this rank, when the watchdog looked last */
    double notice;   /* seconds until the next warning about a slow disk */
    int64_t step;
    double began; /* start of the current step */
    double took[TX_WATCHDOG_WINDOW];
    int64_t steps;
    double median;
    int channel;     /* file descriptor for reports to txlaunch; -1 if none */
    double reported; /* time of the last step report */
    double sent_at;  /* time of the last heartbeat to the other ranks */
    /* Surviving (survive.c). */
    char folder[TX_REPORT_LINE - 64]; /* of tx_watchdog_keep, or "" */
    pid_t parent;                     /* txlaunch's agent; another one if it has ended */
    bool blames;                      /* the last judgement was about another rank or the launcher */
    bool survives;                    /* this rank's waits have ended, and its file is in the folder */
    double marked;                    /* time of the file */
};

/* Prints one line to the user, prefixed with the program's name. */
void tx_watchdog_report(const tx_watchdog *watch, const char *format, ...) TX_PRINTF(2, 3);
/* Return the default limit, and the current limit (INFINITY if there is none). */
double tx_watchdog_default_limit(const tx_watchdog *watch);
double tx_watchdog_limit_now(const tx_watchdog *watch);
/* Warns the user about ranks whose heartbeats do not arrive. */
void tx_watchdog_report_silent(const tx_watchdog *watch);
/* While the communicator is open: sends this rank's heartbeat and reads those of the others. `elapsed` is the
 * seconds since the previous call. */
void tx_watchdog_listen(tx_watchdog *watch, double elapsed);
/* Returns true if the process must end, with its exit status and the reason. An empty reason is not printed. */
bool tx_watchdog_judge(tx_watchdog *watch, int *status, char *why, size_t size);

/* After a judgement: returns true if the process does not end yet, because it can save the last complete step. */
bool tx_watchdog_survive(tx_watchdog *watch, const char *why);
/* Shows from time to time that a surviving rank is alive. Returns false if the run has continued without it. */
bool tx_watchdog_renew(tx_watchdog *watch);
/* Shows that a surviving rank has written a checkpoint. */
void tx_watchdog_mark_saved(const tx_watchdog *watch, const char *checkpoint);
/* Shows that a surviving rank has ended. */
void tx_watchdog_unmark(const tx_watchdog *watch);

#endif
