/* SPDX-License-Identifier: Apache-2.0
 *
 * Another program to compare with: a Python script that takes commands on its standard input, and trains the same model
 * on random tokens or generates with it. And measurements of TX and a peer in turn. */
#ifndef TX_TOOLS_PEER_H
#define TX_TOOLS_PEER_H

#include "models/arch/arch.h"
#include "tools/bench/figures.h"

typedef struct tx_peer tx_peer;

/* Starts tools/bench/peer_torch.py with the interpreter in $TX_PYTHON (python3 where it is not set) and waits until its
 * model is ready. It is to "train" or to "generate", with `batch` rows of `block` tokens. threads 0: all that the
 * process may use. */
tx_status tx_peer_start(const char *task, const tx_config *config, int64_t batch, int64_t block, int64_t threads,
                        tx_peer **peer);
/* What the peer says it is: "torch 2.15.0, transformers 5.23.0, 2 threads". */
const char *tx_peer_name(const tx_peer *peer);
/* Trains for `steps` steps, or generates as many tokens a row, and waits for that. */
tx_status tx_peer_run(tx_peer *peer, int64_t steps, double *seconds);
/* Ends the program. NULL is fine. */
void tx_peer_stop(tx_peer *peer);

typedef struct tx_pairs {
    int64_t count;                                       /* measurements of each */
    const char *peer;                                    /* its name; NULL: there is none */
    double ours[TX_BENCH_PAIRS], theirs[TX_BENCH_PAIRS]; /* seconds */
} tx_pairs;

/* A run of both to warm up, then measurements in turn, so that what else the machine does meets both alike. Each is
 * told on standard error. */
tx_status tx_pairs_measure(tx_pairs *pairs, tx_status (*run)(void *context, bool peer, double *seconds), void *context);
/* Adds device, driver, each side's seconds as `key` and tokens a second, where a measurement has so many, and tokens a
 * second of TX over the peer's, the median of pairs. */
void tx_pairs_figures(const tx_pairs *pairs, const tx_device_info *device, const char *key, double tokens,
                      tx_json *figures);

#endif
