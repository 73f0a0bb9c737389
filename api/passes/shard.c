/* SPDX-License-Identifier: Apache-2.0
 *
 * The collective nodes of a training graph. A bucket is summed over the ranks as soon as its last gradient is written,
 * while the backward pass goes on with the layers before. */
#include "api/passes/passes.h"

#include "api/edit.h"
#include "api/parallel.h"

typedef struct sharding {
    tx_graph *graph;
    const tx_parallel *parallel;
    tx_edit *edit;
    int32_t end; /* number of nodes before any was inserted */
} sharding;

/* Before node `at`, and behind what was inserted there earlier. */
static tx_status insert(const sharding *s, int32_t at, const tx_node *node)
{
    return tx_edit_insert(s->edit, at < s->end ? at : TX_EDIT_END, node, NULL);
}

static tx_status insert_collective(const sharding *s, int32_t at, tx_op op, int32_t bucket)
{
    const bool forward = op == TX_OP_WAIT_WEIGHTS || op == TX_OP_NAME_ROWS;
    tx_node node = {.op = op, .direction = forward ? TX_FORWARD : TX_BACKWARD};
    node.attrs.bucket = bucket;
    return insert(s, at, &node);
}

/* The first node that reads a weight of the bucket; the number of nodes where none does. */
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

/* ---- Stage 2 ------------------------------------------------------------------------------------------ */

/* Gradients go to the buckets' memory, whose contents are of this micro-batch alone. */
static void write_to_buckets(tx_graph *graph)
{
    const tx_parallel *p = graph->model->parallel;
    for (int32_t n = 0; n < graph->nodes; n++)
        for (int k = 0; k < TX_MAX_OUT; k++) {
            tx_node *node = &graph->node[n];
            const tx_tensor *root = node->out[k] ? tx_tensor_root(node->out[k]) : NULL;
            if (root && root->arena == TX_ARENA_GRADIENTS && node->attrs.accumulate == TX_ADD_CONTROL)
                node->attrs.accumulate = TX_STORE;
        }
    for (int32_t i = 0; i < graph->tensors; i++) {
        tx_tensor *t = graph->tensor[i];
        if (t->base || t->arena != TX_ARENA_GRADIENTS)
            continue;
        for (int32_t k = 0; k < p->buckets; k++) {
            const tx_bucket *b = &p->bucket[k];
            if (!tx_bucket_holds(b, t->offset))
                continue;
            t->arena = TX_ARENA_BUCKETS;
            t->offset += b->gradient - b->address;
            break;
        }
    }
}

/* The own shard of a bucket's sum is added to what the rank keeps. */
static tx_status keep_shard(const sharding *s, int32_t at, int32_t bucket)
{
    const tx_bucket *b = &s->parallel->bucket[bucket];
    const tx_shape shape = TX_SHAPE(b->owned);
    tx_status status = insert_collective(s, at, TX_OP_WAIT_GRADIENTS, bucket);
    if (status || b->owned == 0)
        return status;
    tx_node copy = {.op = TX_OP_COPY, .direction = TX_BACKWARD};
    copy.attrs = (tx_attrs){.control = -1, .alpha = 1.0f, .accumulate = TX_ADD_CONTROL};
    copy.in[0] =
        tx_tensor_fixed(s->graph, TX_F32, shape, TX_ARENA_BUCKETS, b->gradient + b->first * (int64_t)sizeof(float));
    copy.out[0] = tx_tensor_fixed(s->graph, TX_F32, shape, TX_ARENA_GRADIENTS, b->kept);
    return copy.in[0] && copy.out[0] ? insert(s, at, &copy) : s->graph->status;
}

/* A bucket is waited for when its memory is needed again, or at the end. */
static tx_status keep_shards(const sharding *s)
{
    const tx_parallel *p = s->parallel;
    tx_status status = TX_OK;
    for (int32_t i = 0; i < p->buckets && !status; i++) {
        int32_t at = i + TX_BUCKETS_IN_FLIGHT < p->buckets ? p->bucket[i + TX_BUCKETS_IN_FLIGHT].ready + 1 : s->end;
        status = keep_shard(s, at, i);
    }
    return status;
}

/* ---- The pass ----------------------------------------------------------------------------------------- */

static tx_status insert_all(const sharding *s)
{
    const tx_parallel *p = s->parallel;
    tx_status status = TX_OK;
    for (int32_t i = 0; i < p->buckets && !status; i++) {
        status = insert_collective(s, p->bucket[i].ready + 1, TX_OP_REDUCE_GRADIENTS, i);
        if (!status && p->options.zero_stage > 0)
            status = insert_collective(s, first_reader(s, &p->bucket[i]), TX_OP_WAIT_WEIGHTS, i);
    }
    if (!status && p->rows.bucket >= 0)
        status = insert_collective(s, 0, TX_OP_NAME_ROWS, p->rows.bucket);
    if (!status && p->rows.bucket >= 0) /* the last before that node */
        status = insert_collective(s, p->rows.node, TX_OP_ADD_ROWS, p->rows.bucket);
    if (!status && p->options.zero_stage == 2) {
        write_to_buckets(s->graph);
        status = keep_shards(s);
    }
    return status;
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
    if (!s.parallel || !has_backward(graph))
        return TX_OK;
    tx_status status = tx_parallel_buckets(graph->model, graph);
    if (!status)
        status = tx_edit_open(graph, &s.edit);
    if (status)
        return status;
    status = insert_all(&s);
    if (!status)
        return tx_edit_commit(s.edit);
    tx_edit_discard(s.edit);
    return status;
}
