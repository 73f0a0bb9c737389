/* SPDX-License-Identifier: Apache-2.0
 *
 * Another program to compare with: a Python script that takes commands on its standard input, and trains the same model
 * on random tokens or generates with it. And measurements of TX and a peer in turn. */
#ifndef TX_TOOLS_PEER_H
#define TX_TOOLS_PEER_H

#include "tools/bench/figures.h"
#include "tools/bench/training.h"

typedef struct tx_peer tx_peer;

/* Seconds by the clock, and of all the processors that the process had. */
typedef struct tx_peer_time {
    double clock, processor;
} tx_peer_time;
/* Trains for `steps` steps, or generates as many tokens a row, and waits for that. */
tx_status tx_peer_run(tx_peer *peer, int64_t steps, tx_peer_time *time);

/* ---- Pairs: what txbench train and generate share ------------------------------------------------------------ */

enum { TX_PEER_NONE, TX_PEER_TORCH };

typedef struct tx_pairs_settings {
    const char *config, *device;
    int64_t batch, block, count, pairs, threads; /* rows, tokens of a row; steps or new tokens; measurements */
    double seconds;                              /* no measurement but the first begins after so many */
    int32_t peer;
    bool json;
} tx_pairs_settings;

typedef struct tx_pairs {
    const tx_pairs_settings *set;
    tx_config *config;
    tx_bench_training tx; /* at least its engine, model and tokens */
    tx_peer *peer;
    const char *peer_name;                                       /* NULL: there is none */
    tx_json *method;                                             /* the peer's; NULL: it has none */
    int64_t measured;                                            /* measurements made */
    double begin;                                                /* when it all began, as tx_now tells */
    double ours[TX_BENCH_PAIRS], theirs[TX_BENCH_PAIRS];         /* seconds */
    double our_work[TX_BENCH_PAIRS], their_work[TX_BENCH_PAIRS]; /* of processors */
} tx_pairs;

/* What is measured. */
typedef struct tx_pairs_task {
    const char *name;                                                 /* "train", as the peer knows it */
    const char *seconds;                                              /* the key of the seconds */
    tx_status (*open)(tx_pairs *pairs);                               /* all that TX needs */
    tx_status (*run)(tx_pairs *pairs, bool peer, tx_peer_time *time); /* one measurement */
    double (*tokens)(const tx_pairs_settings *set);                   /* of one measurement */
    tx_status (*add)(tx_pairs *pairs, tx_json *figures);              /* more figures; or NULL */
} tx_pairs_task;

/* A run of both to warm up, then measurements in turn, so that what else the machine does meets both alike; each is
 * told on standard error. Then prints device, driver, each side's seconds and tokens a second, and the median of pairs
 * of the peer's seconds, and seconds of processors, over those of TX. `pairs` begins empty, and is to be closed on any
 * outcome. */
tx_status tx_pairs_run(const tx_pairs_task *task, const tx_cli *program, const tx_pairs_settings *set, tx_pairs *pairs);
void tx_pairs_close(tx_pairs *pairs);
/* Whether what takes so many seconds more would end after `times` the time that was given. */
bool tx_pairs_late(const tx_pairs *pairs, double seconds, double times);

#endif
