/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that many ranks train: its gradients cut into buckets, ranges of the arenas that are summed over the ranks as
 * soon as the backward pass has filled them, and each bucket into shards, one a rank.
 *
 * Two windows (comm.h) lie the same on every rank, whatever its device: one for gradients, one for weights. Where the
 * device's memory is the host's they are the arenas themselves; else the arenas are copied there and back.
 *
 *              arena GRADIENTS      arena OPTIMIZER   weights after an update
 *   stage 0    all, in the window   all               every rank has made them
 *   stage 1    all, in the window   own shards        gathered in their window
 *   stage 2    own shards; the      own shards        gathered in their window
 *              buckets in the window
 *
 * Of a tied table the bucket is summed without the rows of the step's tokens, which follow (rows.h).
 *
 * The update's norm is a sum of the ranks' sums over their own shards, in every stage. So stages differ in no bit, but
 * for stage 2 with accumulation, which sums over ranks first and over micro-batches then. */
#ifndef TX_API_PARALLEL_H
#define TX_API_PARALLEL_H

#include "api/model.h"
#include "api/rows.h"
#include "comm/comm.h"

/* A bucket's memory is free again when so many later ones are full (stage 2). */
#define TX_BUCKETS_IN_FLIGHT 2

typedef struct tx_bucket {
    int64_t address;             /* of its first weight; all of it is in one chunk */
    int64_t position;            /* elements of all buckets at lower addresses: its place in the window of weights */
    int64_t count;               /* elements */
    int64_t first, owned;        /* this rank's shard: elements of the bucket */
    int64_t gradient;            /* address of its gradients, in GRADIENTS or (stage 2) BUCKETS */
    int64_t window;              /* bytes into the window of gradients */
    int64_t kept;                /* stage 2: address in GRADIENTS of the own shard */
    int64_t moment[2];           /* stages 1 and 2: address in OPTIMIZER of the own shard's moments */
    int32_t begin, ready;        /* the first node of the last graph that writes to it, and the last */
    int32_t reducing, gathering; /* outstanding requests of the communicator; -1: none */
    tx_event *reading;           /* outstanding copy from the device */
    bool to_reduce, to_gather;   /* what is begun when that has arrived */
} tx_bucket;

struct tx_parallel {
    tx_comm *comm;
    tx_parallel_options options;
    bool synchronize;
    float vote, votes;
    tx_rows rows;
    tx_bucket *bucket; /* in the order in which the backward pass fills them */
    int32_t buckets;
    char *gradients, *weights; /* the windows; NULL: not yet, or none */
    int64_t gradient_bytes, weight_bytes;
    float *results;     /* behind the gradients: what REDUCE_RESULTS sums */
    tx_buffer **staged; /* buffers over the windows, for devices with a memory of their own, and over `results` */
    int32_t stages;
};

/* Whether updates are spread over the ranks. */
static inline bool tx_parallel_sharded(const tx_parallel *parallel)
{
    return parallel && parallel->options.zero_stage > 0;
}

/* The arena that the window of gradients stands for. */
static inline tx_arena_id tx_parallel_gradients(const tx_parallel *parallel)
{
    return parallel->options.zero_stage == 2 ? TX_ARENA_BUCKETS : TX_ARENA_GRADIENTS;
}

/* Whether an address of arena WEIGHTS lies in the bucket. */
static inline bool tx_bucket_holds(const tx_bucket *bucket, int64_t address)
{
    return address >= bucket->address && address < bucket->address + bucket->count * (int64_t)sizeof(float);
}

/* Makes the buckets, from the parameters and the nodes of `graph` that write their gradients, and gives them addresses;
 * or, for a model that has them, finds where this graph fills them. */
tx_status tx_parallel_buckets(tx_model *model, tx_graph *graph);
/* Addresses of the moments, for a sharded update. */
tx_status tx_parallel_moments(tx_model *model);
/* Takes the windows; all ranks call it. */
tx_status tx_parallel_allocate(tx_model *model);
/* Where in a window chunk `c` of an arena lies; NULL: the backend allocates it. */
void *tx_parallel_place(const tx_model *model, tx_arena_id arena, int32_t c);
/* Bytes that the windows take beside the arenas. */
int64_t tx_parallel_bytes(const tx_model *model);
void tx_parallel_free(tx_model *model);

/* Copies elements first.. of a parameter's moment from or to the shards; all ranks call them. */
tx_status tx_parallel_read_moment(tx_model *model, int32_t moment, int64_t address, int64_t count, float *data);
tx_status tx_parallel_write_moment(tx_model *model, int32_t moment, int64_t address, int64_t count, const float *data);

/* ---- What the executor does at a collective node (exchange.c) ------------------------------------- */

/* Begins a transfer; sets its wire type by the model's options. */
tx_status tx_parallel_begin(tx_parallel *parallel, tx_transfer transfer, int32_t *request);
tx_status tx_parallel_collective(tx_model *model, tx_op op, int32_t bucket);
/* Begins what waits for copies from the device. */
tx_status tx_parallel_flush(tx_model *model);

#endif
