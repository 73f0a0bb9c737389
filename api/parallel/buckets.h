/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that many ranks train: its gradients cut into buckets, ranges of the arenas that are summed over the ranks as
 * soon as the backward pass has filled them, and each bucket into shards, one a rank.
 *
 * What the ranks exchange lies in windows (comm.h), which every rank takes in the same order and of the same size,
 * whatever its device. Where the device's memory is the host's, arenas WEIGHTS and GRADIENTS are windows themselves;
 * else what moves is copied to arenas that lie as they do, and back.
 *
 *              arena GRADIENTS   buckets              arena OPTIMIZER   weights
 *   stage 0    all               ranges of it         all               every rank updates all
 *   stage 1    all               ranges of it         own shards        gathered after an update
 *   stage 2    own shards        planned tensors      own shards        gathered after an update
 *   stage 3    own shards        planned tensors      own shards        own shards, gathered where a plan reads them
 *
 * Of stage 3 arena WEIGHTS is addresses alone, by which buckets say what they are of; own shards lie in arena SHARDS,
 * and their copies of 16 bits in HALF, as in SHARDS. So is FROZEN, with own shards in FROZEN_SHARDS. What it holds is
 * of many types, of 4 bits with their scales too, but never changes: its buckets are of words of 4 bytes, which are cut
 * and gathered as they lie, and only what is whole again is read as what it is. Buckets of experts that an expert group
 * divides go among the ranks that have the same ones, all others among all. The update's norm is a sum of the ranks'
 * sums over their own shards, in every stage. So stages differ in no bit, but for stage 2 with accumulation, which sums
 * over ranks first and over micro-batches then. */
#ifndef TX_API_BUCKETS_H
#define TX_API_BUCKETS_H

#include "api/graph/graph.h"
#include "api/model/model.h"
#include "api/parallel/own.h"
#include "api/plan/host.h"
#include "comm/comm.h"

/* Where buckets lie. Those of a model stay as the first training graph made them. */
typedef struct tx_bucket {
    tx_comm *comm;        /* the ranks that sum it and have shards of it */
    tx_arena_id arena;    /* WEIGHTS, or FROZEN */
    tx_dtype dtype;       /* of its elements: the stored type, or, of FROZEN, I32 */
    int64_t address;      /* of its first weight; all of it is in one chunk */
    int64_t count;        /* elements */
    int64_t element;      /* bytes of one */
    int64_t first, owned; /* this rank's shard: elements of the bucket */
    int64_t kept;         /* stages 2 and 3: address in GRADIENTS, and SHARDS or FROZEN_SHARDS, of the own shard */
    int32_t owner;        /* where buckets are whole: the rank that has it; -1: each has a shard */
} tx_bucket;

/* Ranges of a bucket, one behind the other, as plans gather them; each rank has those that lie in its shard. */
typedef struct tx_packing {
    int64_t count, first, owned; /* elements of all, and of this rank's part */
    int64_t *shard;              /* by rank, and one more: where its part begins */
} tx_packing;

/* Elements begin .. end - 1 of a bucket. */
typedef struct tx_bucket_range {
    int64_t begin, end;
} tx_bucket_range;

/* A transfer that a plan has begun and nobody has waited for yet. */
typedef struct tx_moving {
    tx_command command; /* REDUCE_GRADIENTS or GATHER_WEIGHTS */
    tx_event *arrived;  /* behind the copy from the device to the window; NULL: there is none to wait for */
    int32_t request;    /* of the communicator; -1: begun when the copy has arrived */
} tx_moving;

/* A message that a plan has begun and not waited for. */
typedef struct tx_message_on_way {
    tx_comm *comm;
    tx_op op; /* SEND or RECEIVE */
    int32_t peer, number, request;
} tx_message_on_way;

#define TX_ANSWER (INT64_C(1) << 18) /* elements that rank 0 asks for at once (values.c) */

struct tx_parallel {
    tx_parallel_options options;
    uint64_t written; /* hash of all weights that were given, of which this rank kept its shards */
    bool asks;        /* this rank reads what is spread while the others answer (plan/values.c) */
    float vote, votes;
    tx_bucket *bucket;       /* those that have gradients in the order in which the first graph fills them */
    int32_t buckets, frozen; /* so many of them, and in stage 3 behind them so many of arena FROZEN */
    int64_t results;         /* address in EXCHANGE */
    tx_message_on_way message[2 * TX_MESSAGES]; /* of a pipeline, and of a ring */
    int32_t messages;
    tx_packing *packing;
    int32_t packings;
    tx_moving *moving; /* in the order in which they began: at most a sum and two gatherings of each bucket */
    int32_t movings;
    float *answer;  /* room for TX_ANSWER elements that rank 0 asks for */
    int64_t *block; /* of an all-to-all of the expert group: elements to each rank, then from each */
};

/* Whether updates are spread over the ranks. */
static inline bool tx_parallel_sharded(const tx_parallel *parallel)
{
    return parallel && parallel->options.zero_stage > 0;
}

/* Whether a rank keeps shards of the gradients alone, and of the weights. */
static inline bool tx_parallel_keeps_shards(const tx_parallel *parallel)
{
    return parallel && parallel->options.zero_stage >= 2;
}

static inline bool tx_parallel_gathers(const tx_parallel *parallel)
{
    return parallel && parallel->options.zero_stage == 3;
}

/* Where a rank keeps its shard of a bucket. */
static inline tx_arena_id tx_bucket_keeper(const tx_parallel *parallel, const tx_bucket *b)
{
    return b->arena == TX_ARENA_FROZEN ? TX_ARENA_FROZEN_SHARDS
                                       : (tx_parallel_gathers(parallel) ? TX_ARENA_SHARDS : TX_ARENA_GRADIENTS);
}

/* Elements of a bucket, whole blocks, that so many bytes of it take. */
static inline int64_t tx_bucket_elements(const tx_bucket *b, int64_t bytes)
{
    return tx_param_blocks((bytes + b->element - 1) / b->element) * TX_PARAM_BLOCK;
}

/* The ranks that sum a parameter's gradient. */
static inline tx_comm *tx_parallel_summers(const tx_model *model, const tx_param_spec *spec)
{
    return spec->experts && model->mesh.replicas ? model->mesh.replicas : model->mesh.data.comm;
}

/* Whether the weight at an address is one of a bucket's. */
static inline bool tx_bucket_holds(const tx_bucket *b, int64_t address)
{
    return address >= b->address && address < b->address + b->count * b->element;
}

/* Where in GRADIENTS this rank's shard of a bucket lies when it is updated. */
static inline int64_t tx_bucket_gradients(const tx_parallel *parallel, const tx_bucket *b)
{
    return tx_parallel_keeps_shards(parallel) ? b->kept : b->address + b->first * b->element;
}

/* Makes the buckets from the parameters; the order is the caller's to change until they are placed. */
tx_status tx_parallel_make_buckets(tx_model *model);
/* Gives them addresses. */
tx_status tx_parallel_place_buckets(tx_model *model);
/* Both, in the order of the parameters, where that has not been done: what reads or writes weights that are parted. */
tx_status tx_parallel_need_buckets(tx_model *model);
/* The bucket that holds the weight at an address of WEIGHTS, or FROZEN; -1: none. */
int32_t tx_parallel_bucket_at(const tx_parallel *parallel, tx_arena_id arena, int64_t address);
/* A packing of ranges of a bucket, which ascend and begin and end on multiples of TX_PARAM_BLOCK. Gives its number,
 * counted from 1; the model keeps it. */
tx_status tx_parallel_pack(tx_model *model, int32_t bucket, const tx_bucket_range *range, int32_t ranges,
                           int32_t *number);
/* Elements of the ranges that lie before an element of the bucket. */
int64_t tx_parallel_packed(const tx_bucket_range *range, int32_t ranges, int64_t element);
/* The gradients (stages 0 and 1) or weights of a bucket on the device, and where the ranks exchange them. NULL on
 * failure, which the graph keeps. */
tx_tensor *tx_parallel_tensor(tx_graph *graph, tx_arena_id arena, int32_t bucket);
tx_tensor *tx_parallel_exchanged(tx_graph *graph, tx_arena_id arena, int32_t bucket);
void tx_parallel_free(tx_model *model);

/* A node of a message to or from rank `peer`: SEND, RECEIVE or what waits for one. The number tells those apart that
 * are on their way between two ranks in one direction: of a pipeline that among the tensors that cross this border, of
 * which both sides go through in the same order. */
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
tx_status tx_parallel_copy(tx_model *model, const tx_value_copy *copy);
tx_status tx_parallel_complete(const tx_model *model, tx_param_role part, int32_t index, int32_t *words, int64_t count,
                               tx_status status);
tx_status tx_parallel_check_optimizer(const tx_model *model, const tx_optimizer *optimizer);
void tx_parallel_add_waits(tx_graph *graph);
void tx_parallel_add_squares(tx_graph *graph);
void tx_parallel_add_updates(tx_graph *graph);

#endif
