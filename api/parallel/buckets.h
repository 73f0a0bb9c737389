/* SPDX-License-Identifier: Apache-2.0
 *
 * Data parallelism and ZeRO. Gradients are divided into buckets, ranges of the arenas that are summed over the ranks as
 * soon as the backward pass has filled them. Each bucket is divided into shards, one for each rank.
 *
 * Ranks exchange data in windows (comm.h). All ranks allocate windows in the same order and size, independently of
 * their devices. If the device shares the host's memory, arenas WEIGHTS and GRADIENTS are windows themselves. Otherwise
 * the data are copied between them and window arenas with the same layout.
 *
 *              arena GRADIENTS   buckets              arena OPTIMIZER   weights
 *   Stage 0    all               ranges of it         all               every rank updates all.
 *   Stage 1    all               ranges of it         local shards      gathered after an update.
 *   Stage 2    local shards      planned tensors      local shards      gathered after an update.
 *   Stage 3    local shards      planned tensors      local shards      local shards, gathered before use.
 *
 * In ZeRO stage 3 arena WEIGHTS has addresses but no memory; buckets refer to these addresses. Own shards are in arena
 * SHARDS, and their 16-bit copies in HALF with the layout of SHARDS. Likewise FROZEN has addresses only, and
 * FROZEN_SHARDS the local shards. Frozen parameters have many types (4 bits with scales too) but never change. Their
 * buckets therefore consist of 4-byte words, and data are reinterpreted only after they were gathered.
 *
 * Buckets of experts are shared among the ranks with the same experts, all other buckets among all ranks. With hybrid
 * sharding they are shared within a group (mesh.shards), whose sums are then added over the groups (mesh.replicate):
 * for stage 1 in the update plan, for 2 and 3 in the last micro-batch of a step.
 *
 * In every stage the norm of the update is the sum of the ranks' sums over their local shards. Stages therefore give
 * the same bits. The exception is stage 2 with accumulation, which sums over ranks first and then over micro-batches.
 */
#ifndef TX_API_BUCKETS_H
#define TX_API_BUCKETS_H

#include "api/graph/graph.h"
#include "api/model/model.h"
#include "api/parallel/own.h"
#include "api/plan/host.h"
#include "comm/comm.h"

/* A bucket. The buckets of a model are created for the first training graph and never change. */
typedef struct tx_bucket {
    tx_comm *comm;        /* the ranks that sum it and have shards of it */
    tx_comm *replicate;   /* the ranks with the same shard, which add these sums; NULL without hybrid sharding */
    tx_arena_id arena;    /* WEIGHTS or FROZEN */
    tx_dtype dtype;       /* type of its elements: the stored type, or I32 for FROZEN */
    int64_t address;      /* of its first weight; the bucket is in one chunk */
    int64_t count;        /* elements */
    int64_t element;      /* bytes of an element */
    int64_t first, owned; /* this rank's shard, in elements of the bucket */
    int64_t kept;         /* ZeRO stages 2 and 3: address of the local shard in GRADIENTS, SHARDS or FROZEN_SHARDS */
    int64_t sent;         /* with `replicate`: address in EXCHANGE of the shard, if the device has its own memory */
    int32_t owner;        /* rank of `comm` that has the whole bucket; -1 if each rank has a shard */
} tx_bucket;

/* Contiguously packed ranges of a bucket, as plans gather them. Each rank contributes those in its shard. */
typedef struct tx_packing {
    int64_t count, first, owned; /* elements in total, and of this rank's part */
    int64_t *shard;              /* by rank: start of its part; one more for the end */
} tx_packing;

/* Elements begin .. end - 1 of a bucket. */
typedef struct tx_bucket_range {
    int64_t begin, end;
} tx_bucket_range;

/* A transfer that a plan has started and not yet waited for. */
typedef struct tx_moving {
    tx_command command; /* REDUCE_GRADIENTS, REDUCE_SHARDS or GATHER_WEIGHTS */
    tx_event *arrived;  /* after the copies from and to the window so far; NULL if complete */
    int32_t request;    /* of the communicator; -1 if it starts after that copy */
} tx_moving;

/* A message that a plan has started and not yet waited for. */
typedef struct tx_message_on_way {
    tx_comm *comm;
    tx_op op; /* SEND or RECEIVE */
    int32_t peer, number, request;
} tx_message_on_way;

#define TX_ANSWER (INT64_C(1) << 18) /* most elements that rank 0 requests at a time (values.c) */

struct tx_parallel {
    tx_parallel_options options;
    uint64_t written; /* hash of all weights written, of which this rank kept its shards */
    bool torn;        /* a gather of weights has failed, so that this rank's whole weights are incomplete */
    bool asks;        /* this rank reads values of other ranks, which are in tx_model_serve_reads (values.c) */
    bool more;        /* the step has another micro-batch */
    float vote, votes;
    /* Buckets with gradients, in the order in which the first graph fills them. In ZeRO stage 3 buckets of FROZEN
     * follow. */
    tx_bucket *bucket;
    int32_t buckets, frozen;                    /* number of buckets with gradients, and of frozen ones */
    int64_t results;                            /* address in EXCHANGE */
    tx_message_on_way message[2 * TX_MESSAGES]; /* of a pipeline and of a context-parallel ring */
    int32_t messages;
    tx_packing *packing;
    int32_t packings;
    /* In the order of their start. At most two sums and two gathers for each bucket. */
    tx_moving *moving;
    int32_t movings;
    float *answer;  /* buffer for TX_ANSWER elements */
    int64_t *block; /* elements to each rank, then from each, in an all-to-all of the expert group */
};

/* Whether ranks divide updates. */
static inline bool tx_parallel_sharded(const tx_parallel *parallel)
{
    return parallel && parallel->options.zero_stage > 0;
}

/* Whether a rank keeps only shards of gradients, or of weights too. */
static inline bool tx_parallel_keeps_shards(const tx_parallel *parallel)
{
    return parallel && parallel->options.zero_stage >= 2;
}

static inline bool tx_parallel_gathers(const tx_parallel *parallel)
{
    return parallel && parallel->options.zero_stage == 3;
}

/* Returns the arena of a rank's shard of a bucket. */
static inline tx_arena_id tx_bucket_keeper(const tx_parallel *parallel, const tx_bucket *b)
{
    return b->arena == TX_ARENA_FROZEN ? TX_ARENA_FROZEN_SHARDS
                                       : (tx_parallel_gathers(parallel) ? TX_ARENA_SHARDS : TX_ARENA_GRADIENTS);
}

/* Returns the elements of a bucket, in whole blocks, for `bytes`. */
static inline int64_t tx_bucket_elements(const tx_bucket *b, int64_t bytes)
{
    return tx_param_blocks(tx_ceil_div(bytes, b->element)) * TX_PARAM_BLOCK;
}

/* Returns the ranks that sum a parameter's gradient first, and have shards of it. */
static inline tx_comm *tx_parallel_summers(const tx_model *model, const tx_param_spec *spec)
{
    return spec->experts && model->mesh.replicas ? model->mesh.replicas : model->mesh.shards.comm;
}

/* Whether the weight at an address belongs to a bucket. */
static inline bool tx_bucket_holds(const tx_bucket *b, int64_t address)
{
    return address >= b->address && address < b->address + b->count * b->element;
}

/* Returns the address in GRADIENTS of this rank's shard of a bucket when it is updated. */
static inline int64_t tx_bucket_gradients(const tx_parallel *parallel, const tx_bucket *b)
{
    return tx_parallel_keeps_shards(parallel) ? b->kept : b->address + b->first * b->element;
}

/* Creates the buckets from the parameters. The caller may change their order until they are placed. */
tx_status tx_parallel_make_buckets(tx_model *model);
/* Allocates addresses for the buckets. */
tx_status tx_parallel_place_buckets(tx_model *model);
/* Creates and places buckets in the order of the parameters unless they exist. Code that reads or writes sharded
 * weights calls it. */
tx_status tx_parallel_need_buckets(tx_model *model);
/* Returns the bucket of the weight at an address of WEIGHTS or FROZEN, or -1. */
int32_t tx_parallel_bucket_at(const tx_parallel *parallel, tx_arena_id arena, int64_t address);
/* Creates a packing of ranges of a bucket, which are in ascending order and aligned to TX_PARAM_BLOCK. Returns its
 * number, counted from 1. The model owns it. */
tx_status tx_parallel_pack(tx_model *model, int32_t bucket, const tx_bucket_range *range, int32_t ranges,
                           int32_t *number);
/* Returns the elements of the ranges that come before an element of the bucket. */
int64_t tx_parallel_packed(const tx_bucket_range *range, int32_t ranges, int64_t element);
/* Return the gradients (ZeRO stages 0 and 1) or weights of a bucket on the device, and their window. NULL on failure,
 * which the graph records. */
tx_tensor *tx_parallel_tensor(tx_graph *graph, tx_arena_id arena, int32_t bucket);
tx_tensor *tx_parallel_exchanged(tx_graph *graph, tx_arena_id arena, int32_t bucket);
/* Returns the node that starts or awaits the sum of this rank's shard of a bucket over `replicate`: op REDUCE_SHARDS or
 * WAIT_SHARDS. Check graph->status. */
tx_node tx_parallel_shard_node(tx_graph *graph, tx_op op, int32_t bucket);
void tx_parallel_free(tx_model *model);

/* Creates the node of a message to or from rank `peer`: SEND, RECEIVE or a wait. `number` distinguishes the messages in
 * progress between two ranks in one direction. In a pipeline it is the tensor's index at this border, and both sides
 * use the same order. */
tx_node tx_message_node(tx_op op, tx_direction direction, int32_t peer, int32_t number, tx_tensor *in, tx_tensor *out);

/* The functions of tx_parallel_hooks. */
extern const tx_parallel_hooks tx_parallel_table;
tx_status tx_parallel_divide(const tx_model *model, tx_param_record *record);
tx_status tx_parallel_flush(tx_model *model);
tx_status tx_parallel_wait(tx_model *model);
tx_tensor *tx_parallel_places(const tx_tensor *x);
bool tx_parallel_divides(const tx_tensor *x);
tx_tensor *tx_parallel_embed(tx_tensor *tokens, tx_tensor *table, int64_t padding, tx_tensor *position_table,
                             tx_tensor *positions);
tx_tensor *tx_parallel_loss(tx_tensor *logits, tx_tensor *labels, int64_t vocab, float smoothing);
tx_tensor *tx_parallel_gather(tx_tensor *logits);
tx_tensor *tx_parallel_attention(tx_tensor *qkv, tx_tensor *lengths, tx_tensor *starts, tx_tensor *sinks,
                                 const tx_attrs *attrs);
tx_status tx_parallel_copy(tx_model *model, const tx_value_copy *copy);
tx_status tx_parallel_complete(const tx_model *model, tx_param_role part, int32_t index, int32_t *words, int64_t count,
                               tx_status status);
tx_status tx_parallel_check_optimizer(const tx_model *model, const tx_optimizer *optimizer);
void tx_parallel_add_waits(tx_graph *graph);
void tx_parallel_add_squares(tx_graph *graph);
void tx_parallel_add_updates(tx_graph *graph);

/* Allocates a planned buffer in host memory for messages, which need no window. */
tx_tensor *tx_parallel_buffer(tx_graph *graph, tx_dtype dtype, tx_shape shape);
/* Emits CP_TO_HEADS or CP_TO_ROWS of x, which may be NULL after an earlier failure. */
tx_tensor *tx_cp_move(tx_tensor *x, tx_op op, const tx_attrs *attrs);
/* TP_ALL_GATHER or TP_REDUCE_SCATTER of x [B, T, C]. */
tx_tensor *tx_tp_move(tx_tensor *x, tx_op op);

/* The sum of x over the ranks whose rows tx_dp_all_gather joins. */
tx_tensor *tx_dp_all_reduce(tx_tensor *x);

#endif
