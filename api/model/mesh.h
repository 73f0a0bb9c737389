/* SPDX-License-Identifier: Apache-2.0
 *
 * The device mesh: the division of training among ranks, with one axis for each kind of parallelism. Two ranks are in
 * the same communicator of an axis if all their other coordinates are equal. */
#ifndef TX_API_MESH_H
#define TX_API_MESH_H

#include "backends/backend.h"
#include "comm/comm.h"

typedef struct tx_mesh_axis {
    int32_t rank, size; /* this rank's coordinate; 0 of 1 if the axis divides nothing */
    tx_comm *comm;      /* NULL if the axis divides nothing or divides devices of one process */
} tx_mesh_axis;

typedef struct tx_mesh {
    tx_mesh_axis data;     /* batch rows; every parallel model has this communicator */
    tx_mesh_axis shards;   /* ZeRO shards: the data axis, or with hybrid sharding a part of it */
    tx_mesh_axis tensor;   /* each weight matrix (tx_param_spec.split) */
    tx_mesh_axis context;  /* the positions of a row: rank r of N has chunks r and 2 N - 1 - r */
    tx_mesh_axis expert;   /* the experts of each layer; part of the data axis */
    tx_mesh_axis pipeline; /* the blocks: rank r of N has stages r, r + N, ... */
    tx_comm *replicate;    /* hybrid sharding: data-parallel ranks with the same shards; otherwise NULL */
    tx_comm *replicas;     /* data-parallel ranks with the same experts; NULL without an expert axis */
    tx_comm *ends;         /* first and last rank of the pipeline, which share tied parameters */
    tx_comm *peers;        /* tx_parallel_options.peers */
    bool sequence;         /* the tensor axis also divides the positions of activations between products */
    int32_t stages;        /* of the pipeline, over all ranks */
    int32_t *last_block;   /* last block of each stage; NULL if there is one stage */
} tx_mesh;

/* A mesh that divides nothing. */
static inline tx_mesh tx_mesh_whole(void)
{
    const tx_mesh_axis whole = {.size = 1};
    return (tx_mesh){.data = whole,
                     .shards = whole,
                     .tensor = whole,
                     .context = whole,
                     .expert = whole,
                     .pipeline = whole,
                     .stages = 1};
}

/* Whether no axis divides anything among processes. */
static inline bool tx_mesh_is_one_rank(const tx_mesh *mesh)
{
    return mesh->data.size == 1 && !mesh->tensor.comm && !mesh->pipeline.comm;
}

/* Returns the number of positions between the two chunks of a row on a rank of the context axis. `length` counts the
 * positions of both chunks. The second chunk is as far from the end of the row as the first is from its start. */
static inline int64_t tx_mesh_gap(const tx_mesh *mesh, int64_t length)
{
    return (mesh->context.size - 1 - mesh->context.rank) * length;
}

/* Returns the index, among all chunks of a row, of the first or second chunk of a rank of the context axis. */
static inline int32_t tx_mesh_chunk(int32_t ranks, int32_t rank, int second)
{
    return second ? 2 * ranks - 1 - rank : rank;
}

/* Returns the axis of a communicator. It divides nothing if that is NULL or has one rank. */
static inline tx_mesh_axis tx_mesh_along(tx_comm *comm)
{
    return comm && comm->size > 1 ? (tx_mesh_axis){comm->rank, comm->size, comm} : (tx_mesh_axis){.size = 1};
}

#endif
