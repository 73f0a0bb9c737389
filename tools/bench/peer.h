/* SPDX-License-Identifier: Apache-2.0
 *
 * A peer is another program to compare with: a Python script that trains the same model on random tokens or generates
 * with it, and reads commands from its standard input. Pairs are alternating measurements of TX and a peer. */
#ifndef TX_TOOLS_PEER_H
#define TX_TOOLS_PEER_H

#include "tools/bench/figures.h"
#include "tools/bench/training.h"

typedef struct tx_peer tx_peer;

/* Wall-clock seconds, and CPU seconds of all threads. */
typedef struct tx_peer_time {
    double clock, processor;
} tx_peer_time;
/* Trains for `steps` steps, or generates `steps` tokens per row, and waits for the end. */
tx_status tx_peer_run(tx_peer *peer, int64_t steps, tx_peer_time *time);

/* ---- Pairs, for txbench train and generate --------------------------------------------------------------------- */

enum { TX_PEER_NONE, TX_PEER_TORCH, TX_PEER_TORCH_COMPILE, TX_PEER_LLAMA_CPP };

typedef struct tx_pairs_settings {
    const char *config, *device;
    const char *model, *dtype; /* a model with its weights instead of `config`, or NULL; only for generate */
    int64_t batch, block, count, pairs, threads; /* rows, tokens of a row; steps or new tokens; measurements */
    double seconds;                              /* no new measurement starts after this time, except the first */
    int32_t peer;
    bool json;
} tx_pairs_settings;

typedef struct tx_pairs {
    const tx_pairs_settings *set;
    tx_device_info device; /* of TX */
    tx_config *config;
    tx_bench_training tx; /* generate uses only its engine, model and tokens */
    tx_peer *peer;
    const char *peer_name;                                       /* NULL without a peer */
    tx_json *method;                                             /* the training method for the peer, or NULL */
    int64_t measured;                                            /* number of finished measurements */
    double begin;                                                /* time of the start, as tx_now */
    double ours[TX_BENCH_PAIRS], theirs[TX_BENCH_PAIRS];         /* wall-clock seconds of TX and the peer */
    double our_work[TX_BENCH_PAIRS], their_work[TX_BENCH_PAIRS]; /* CPU seconds */
    double others[TX_BENCH_PAIRS]; /* processors that other programs used meanwhile, on average */
    int64_t repeated;              /* pairs that were measured again, because others used more than a tenth of all */
} tx_pairs;

/* The measured task. */
typedef struct tx_pairs_task {
    const char *name;                                                 /* "train" or "generate", for the peer */
    const char *seconds;                                              /* the key of the seconds in the figures */
    bool each;                                                        /* these are of one of `count` */
    tx_status (*open)(tx_pairs *pairs);                               /* prepares TX */
    tx_status (*run)(tx_pairs *pairs, bool peer, tx_peer_time *time); /* runs one measurement */
    double (*tokens)(const tx_pairs_settings *set);                   /* returns the tokens of one measurement */
    tx_status (*add)(tx_pairs *pairs, tx_json *figures);              /* adds more figures; may be NULL */
} tx_pairs_task;

/* Runs both sides once to warm up, then measures them alternately, so that other load on the machine affects both
 * equally. Repeats at most as many pairs as are asked for, if other programs disturbed them. Prints each pair on
 * standard error. Then prints device, driver, seconds and tokens per second of both sides, and the median ratios of
 * wall-clock and CPU seconds, peer over TX. `pairs` must be zeroed before; the caller closes it on success and on
 * errors. */
tx_status tx_pairs_run(const tx_pairs_task *task, const tx_cli *program, const tx_pairs_settings *set, tx_pairs *pairs);
void tx_pairs_close(tx_pairs *pairs);
/* True if work of `seconds` more would end after `times` times the limit of --seconds. */
bool tx_pairs_late(const tx_pairs *pairs, double seconds, double times);

#endif
