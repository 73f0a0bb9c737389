/* SPDX-License-Identifier: Apache-2.0
 *
 * txresearch ddp: one training job with two implementations. Both see the same rows in the same steps, so their losses
 * agree. */
#ifndef TX_TOOLS_RESEARCH_DDP_H
#define TX_TOOLS_RESEARCH_DDP_H

#include "tools/bench/training.h"

#define TX_DDP_RANKS_MAX 64
#define TX_DDP_WARMUP 2 /* steps */

typedef struct tx_ddp_settings {
    const char *config;
    int64_t ranks, batch, block; /* number of replicas or processes; rows of each; tokens of a row */
    int64_t steps, rounds;       /* timed steps; runs of each row */
    int32_t row;
    bool json;
} tx_ddp_settings;

typedef struct tx_ddp_result {
    int ranks;
    double seconds, bytes, loss; /* seconds of the timed steps; transferred bytes of a step; loss of the last step */
} tx_ddp_result;

/* Returns the number of threads for each of `devices` devices of this host. */
int32_t tx_ddp_threads(int64_t devices);

/* Trains as DataParallel does: one process with a replica for each device. (ddp_replicas.c) */
tx_status tx_ddp_replicas(const tx_ddp_settings *set, const tx_config *config, tx_ddp_result *result);

#endif
