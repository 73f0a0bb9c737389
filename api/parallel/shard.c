/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass shard: inserts the collectives of a training graph. A bucket is summed over the ranks as soon as its last
 * gradient is written, while the backward pass computes earlier layers. */
#include "api/parallel/parallel.h"

#include "api/graph/edit.h"
#include "api/parallel/buckets.h"

#include <stdlib.h>
#include <string.h>

/* A bucket's memory is freed when this many later buckets are full (ZeRO stages 2 and 3). */
#define IN_FLIGHT 2

/* How this graph fills a bucket. */
typedef struct filling {
    int32_t bucket;
    /* First and last node that write to it; after all nodes if there are none. */
    int32_t begin, ready;
    tx_tensor *x, *w; /* its gradients on the device, and their window */
} filling;

typedef struct sharding {
    tx_graph *graph;
    tx_parallel *parallel;
    tx_edit *edit;
    int32_t end;      /* number of nodes before the pass inserts any */
    filling *filling; /* in the order in which the buckets become full */
    bool *written;    /* by parameter: this graph computes its gradient */
} sharding;

/* ---- Buckets ------------------------------------------------------------------------------------------ */

/* Returns the bucket of a gradient tensor, or -1 if it is not a gradient. */
static int32_t bucket_of(const sharding *s, tx_tensor *t)
{
    const tx_tensor *root = tx_tensor_root(t);
    return root && root->arena == TX_ARENA_GRADIENTS
               ? tx_parallel_bucket_at(s->parallel, TX_ARENA_WEIGHTS, root->offset)
               : -1;
}

static void find_writers(sharding *s)
{
    for (int32_t i = 0; i < s->parallel->buckets; i++)
        s->filling[i] = (filling){.bucket = i, .begin = s->end, .ready = s->end - 1};
    for (int32_t n = 0; n < s->end; n++)
        for (int k = 0; k < TX_MAX_OUT; k++) {
            const int32_t bucket = bucket_of(s, s->graph->node[n].out[k]);
            if (bucket < 0)
                continue;
            filling *f = &s->filling[bucket];
            f->begin = n < f->begin ? n : f->begin;
            f->ready = n;
        }
}

static int by_ready(const void *left, const void *right)
{
    const filling *a = left, *b = right;
    return a->ready != b->ready ? (a->ready > b->ready) - (a->ready < b->ready) : a->bucket - b->bucket;
}

static tx_status find_fillings(sharding *s)
{
    tx_parallel *p = s->parallel;
    s->filling = tx_edit_alloc(s->edit, (size_t)p->buckets, sizeof *s->filling);
    TX_TRY(tx_edit_check(s->edit));
    find_writers(s);
    qsort(s->filling, (size_t)p->buckets, sizeof *s->filling, by_ready);
    return TX_OK;
}

/* The first graph creates the buckets and determines their order. */
static tx_status make_buckets(sharding *s)
{
    tx_parallel *p = s->parallel;
    TX_TRY(tx_parallel_make_buckets(s->graph->model));
    TX_TRY(find_fillings(s));
    tx_bucket *made = tx_edit_alloc(s->edit, (size_t)p->buckets, sizeof *made);
    TX_TRY(tx_edit_check(s->edit));
    memcpy(made, p->bucket, (size_t)p->buckets * sizeof *made);
    for (int32_t i = 0; i < p->buckets; i++)
        p->bucket[i] = made[s->filling[i].bucket];
    return tx_parallel_place_buckets(s->graph->model);
}

/* ---- Nodes ---------------------------------------------------------------------------------------------- */

static tx_status insert_collective(const sharding *s, int32_t at, tx_op op, int32_t bucket, tx_tensor *in,
                                   tx_tensor *out)
{
    tx_node node = {.op = op, .direction = op == TX_OP_WAIT_WEIGHTS ? TX_FORWARD : TX_BACKWARD};
    node.attrs.exchange.bucket = bucket;
    node.in[0] = in;
    node.out[0] = out;
    return in && out ? tx_edit_insert(s->edit, at, &node, NULL) : s->graph->status;
}

/* Returns the first node that reads a weight of the bucket, or the number of nodes if there is none. */
static int32_t first_reader(const sharding *s, const tx_bucket *b)
{
    int32_t first = s->end, count;
    for (int32_t i = 0; i < s->graph->tensors; i++) {
        const tx_tensor *root = tx_tensor_root(s->graph->tensor[i]);
        if (root->arena != TX_ARENA_WEIGHTS || !tx_bucket_holds(b, root->offset))
            continue;
        const tx_use *use = tx_edit_readers(s->edit, s->graph->tensor[i], &count);
        if (count > 0 && use[0].node < first)
            first = use[0].node;
    }
    return first;
}

static tx_status wait_for_weights(const sharding *s, int32_t bucket)
{
    return insert_collective(s, first_reader(s, &s->parallel->bucket[bucket]), TX_OP_WAIT_WEIGHTS, bucket,
                             tx_parallel_exchanged(s->graph, TX_ARENA_WEIGHTS, bucket),
                             tx_parallel_tensor(s->graph, TX_ARENA_WEIGHTS, bucket));
}

/* ---- ZeRO stages 2 and 3: buckets are planned tensors of a micro-batch ------------------------------------------ */

/* The bucket's gradients become views of one tensor. If the device shares the host's memory, it is exchanged directly.
 */
static tx_status write_to_tensor(const sharding *s, filling *f)
{
    tx_graph *graph = s->graph;
    const tx_bucket *b = &s->parallel->bucket[f->bucket];
    const tx_dtype dtype = graph->model->stored;
    f->w = tx_tensor_planned(graph, dtype, TX_SHAPE(b->count), TX_ARENA_EXCHANGE);
    f->x = graph->model->engine->backend->host_memory
               ? f->w
               : tx_tensor_planned(graph, dtype, TX_SHAPE(b->count), TX_ARENA_PLANNED);
    if (!f->x || !f->w)
        return graph->status;
    tx_node reserve = {.op = TX_OP_RESERVE, .direction = TX_BACKWARD};
    reserve.out[TX_OUT(reserve, w)] = f->w;
    tx_status status = tx_edit_insert(s->edit, f->begin, &reserve, NULL);
    for (int32_t i = 0; i < graph->tensors; i++) {
        tx_tensor *t = graph->tensor[i];
        if (t->base || bucket_of(s, t) != f->bucket)
            continue;
        t->base = f->x;
        t->within = t->offset - b->address;
        t->arena = f->x->arena;
    }
    return status;
}

/* Writes only the gradients of this micro-batch. */
static void store_gradients(const sharding *s)
{
    for (int32_t n = 0; n < s->end; n++) {
        tx_node *node = &s->graph->node[n];
        for (int k = 0; k < TX_MAX_OUT; k++)
            if (bucket_of(s, node->out[k]) >= 0 && node->attrs.accumulate == TX_ADD_CONTROL)
                node->attrs.accumulate = TX_STORE;
    }
}

/* Fills elements that no node writes with 0, because the tensor's memory is reused. */
static tx_status clear_gap(const sharding *s, const filling *f, int64_t first, int64_t count)
{
    tx_node fill = {.op = TX_OP_FILL, .direction = TX_BACKWARD, .attrs = {.control = -1}};
    if (count == 0)
        return TX_OK;
    fill.out[0] = tx_tensor_view(f->x, first, TX_SHAPE(count));
    return fill.out[0] ? tx_edit_insert(s->edit, f->begin, &fill, NULL) : s->graph->status;
}

static tx_status clear_gaps(const sharding *s, const filling *f)
{
    const tx_model *model = s->graph->model;
    const tx_bucket *b = &s->parallel->bucket[f->bucket];
    for (int32_t i = 0; i < model->params; i++) {
        const int64_t offset = model->param[i].offset, count = tx_shape_count(&model->param[i].spec.shape);
        if (model->param[i].spec.frozen || !tx_bucket_holds(b, offset))
            continue;
        const int64_t first = (offset - b->address) / b->element, written = s->written[i] ? count : 0;
        TX_TRY(clear_gap(s, f, first + written, tx_param_blocks(count) * TX_PARAM_BLOCK - written));
    }
    return TX_OK;
}

static tx_status find_written(sharding *s)
{
    const tx_model *model = s->graph->model;
    s->written = tx_edit_alloc(s->edit, (size_t)model->params, sizeof *s->written);
    TX_TRY(tx_edit_check(s->edit));
    for (int32_t i = 0; i < model->params; i++)
        for (int32_t n = 0; n < s->end && !s->written[i]; n++)
            s->written[i] = tx_edit_writes_gradient(&s->graph->node[n], model->param[i].offset);
    return TX_OK;
}

/* Adds the local shard of a bucket's sum to the rank's gradients, and starts its sum over `replicate`. */
static tx_status add_shard(const sharding *s, int32_t at, const filling *f)
{
    const tx_bucket *b = &s->parallel->bucket[f->bucket];
    TX_TRY(insert_collective(s, at, TX_OP_WAIT_GRADIENTS, f->bucket, f->w, f->x));
    if (b->owned == 0)
        return TX_OK;
    tx_node copy = {.op = TX_OP_COPY, .direction = TX_BACKWARD};
    copy.attrs = (tx_attrs){.control = -1, .alpha = 1.0f, .accumulate = TX_ADD_CONTROL};
    copy.in[0] = tx_tensor_view(f->x, b->first, TX_SHAPE(b->owned));
    copy.out[0] = tx_tensor_fixed(s->graph, f->x->dtype, TX_SHAPE(b->owned), TX_ARENA_GRADIENTS, b->kept);
    if (!copy.in[0] || !copy.out[0])
        return s->graph->status;
    TX_TRY(tx_edit_insert(s->edit, at, &copy, NULL));
    if (!b->replicate)
        return TX_OK;
    const tx_node sum = tx_parallel_shard_node(s->graph, TX_OP_REDUCE_SHARDS, f->bucket);
    TX_TRY(s->graph->status);
    return tx_edit_insert(s->edit, at, &sum, NULL);
}

static tx_status make_tensors(sharding *s)
{
    TX_TRY(find_written(s));
    store_gradients(s);
    for (int32_t i = 0; i < s->parallel->buckets; i++) {
        TX_TRY(write_to_tensor(s, &s->filling[i]));
        TX_TRY(clear_gaps(s, &s->filling[i]));
    }
    return TX_OK;
}

/* ---- The pass ----------------------------------------------------------------------------------------- */

static tx_status change(tx_edit *edit, void *state)
{
    sharding *s = state;
    const tx_parallel *p = s->parallel;
    const bool keeps_shards = tx_parallel_keeps_shards(p);
    s->edit = edit;
    if (!p->bucket)
        TX_TRY(make_buckets(s));
    if (s->graph->model->mesh.data.size == 1)
        return TX_OK;
    TX_TRY(find_fillings(s));
    if (keeps_shards)
        TX_TRY(make_tensors(s));
    for (int32_t i = 0; i < p->buckets; i++) {
        filling *f = &s->filling[i];
        if (!keeps_shards) {
            f->x = tx_parallel_tensor(s->graph, TX_ARENA_GRADIENTS, f->bucket);
            f->w = tx_parallel_exchanged(s->graph, TX_ARENA_GRADIENTS, f->bucket);
        }
        TX_TRY(insert_collective(s, f->ready + 1, TX_OP_REDUCE_GRADIENTS, f->bucket, f->x, f->w));
        if (tx_parallel_sharded(p) && !tx_parallel_gathers(p))
            TX_TRY(wait_for_weights(s, f->bucket));
    }
    for (int32_t i = 0; i < p->buckets && keeps_shards; i++) {
        const int32_t later = i + IN_FLIGHT;
        TX_TRY(add_shard(s, later < p->buckets ? s->filling[later].ready + 1 : s->end, &s->filling[i]));
    }
    return TX_OK;
}

static bool has_backward(const tx_graph *graph)
{
    for (int32_t i = 0; i < graph->nodes; i++)
        if (graph->node[i].direction == TX_BACKWARD)
            return true;
    return false;
}

tx_status tx_shard(tx_graph *graph)
{
    sharding s = {.graph = graph, .parallel = graph->model->parallel, .end = graph->nodes};
    const bool sums = s.parallel && has_backward(graph);
    return sums ? tx_edit_run(graph, change, &s) : TX_OK;
}
