/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of txbench ddp: one training job, done as PyTorch's DataParallel does it (one process, a replica a device)
 * and as DistributedDataParallel does (one process a device). Both see the same rows in the same steps, so their losses
 * agree. */
#ifndef TX_TOOLS_BENCH_DDP_H
#define TX_TOOLS_BENCH_DDP_H

#include "comm/topology/placement.h"
#include "models/arch/arch.h"
#include "models/task/causal_lm.h"
#include "models/train/pace.h"
#include "models/train/trainer.h"

#define TX_DDP_RANKS_MAX 64

typedef struct tx_ddp_job {
    tx_config *config;
    int32_t ranks;         /* devices: replicas or processes */
    int64_t batch, block;  /* rows of each, tokens of a row */
    int64_t warmup, steps; /* before the clock runs, and with it */
    double learning_rate;
    tx_overlap overlap;
} tx_ddp_job;

typedef struct tx_ddp_result {
    double seconds, loss; /* of the timed steps; of the last one */
    double bytes;         /* moved between devices a step */
    bool overlap;         /* gradients were summed during the backward pass in the last step */
} tx_ddp_result;

/* Rows of all devices in the next step; `random` is the state, the same everywhere. */
typedef struct tx_ddp_data {
    uint64_t random;
    int64_t counted;          /* labels that count, of all rows */
    int32_t *tokens, *labels; /* [ranks * batch, block] */
} tx_ddp_data;

tx_status tx_ddp_data_make(const tx_ddp_job *job, tx_ddp_data *data);
void tx_ddp_data_next(const tx_ddp_job *job, tx_ddp_data *data);
void tx_ddp_data_free(tx_ddp_data *data);

/* The optimizer of both. */
tx_optimizer_options tx_ddp_optimizer(void);
#define TX_DDP_MAX_GRAD_NORM 1.0
#define TX_DDP_SEED 1

/* Cores for each of `count` devices of this host; NULL where the host does not tell them, and then nothing is bound. */
tx_status tx_ddp_places(int32_t count, tx_placement **placement);
/* Moves the calling thread to those of device `index` and tells how many threads it is to use there. */
tx_status tx_ddp_take(const tx_placement *placement, int32_t index, int32_t count, int32_t *threads);

/* Trains as DataParallel does. (bench_ddp_replicas.c) */
tx_status tx_ddp_replicas(const tx_ddp_job *job, tx_ddp_result *result);
/* Trains as one of the ranks of `comm`; all of them get the same result. (bench_ddp_rank.c) */
tx_status tx_ddp_rank(const tx_ddp_job *job, tx_comm *comm, tx_ddp_result *result);

/* Starts this program with `arguments` (which a NULL ends), under the launcher of this build unless `launcher` is NULL,
 * with TX_COMM_SHM=0 unless `shared`, waits for it, and gives what it printed: one JSON object.
 * (bench_ddp_start.c) */
tx_status tx_ddp_start(const char *launcher, int32_t ranks, bool shared, char *const arguments[], tx_json **printed);

#endif
