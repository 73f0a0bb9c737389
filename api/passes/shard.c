/* SPDX-License-Identifier: Apache-2.0
 *
 * The collective nodes of a training graph. A bucket is summed over the ranks as soon as its last gradient is written,
 * while the backward pass goes on with the layers before. */
#include "api/passes/passes.h"

#include "api/parallel.h"

#include <stdlib.h>
#include <string.h>

/* A node to be inserted before node `at`. */
typedef struct insertion {
    int32_t at, order;
    tx_node node;
} insertion;

typedef struct insertions {
    insertion *all; /* room for all that there can be */
    int32_t count;
} insertions;

static void insert(insertions *list, int32_t at, const tx_node *node)
{
    list->all[list->count] = (insertion){at, list->count, *node};
    list->count++;
}

static void insert_collective(insertions *list, int32_t at, tx_op op, int32_t bucket)
{
    const bool forward = op == TX_OP_WAIT_WEIGHTS || op == TX_OP_NAME_ROWS;
    tx_node node = {.op = op, .direction = forward ? TX_FORWARD : TX_BACKWARD};
    node.attrs.bucket = bucket;
    insert(list, at, &node);
}

static int compare(const void *left, const void *right)
{
    const insertion *a = left, *b = right;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

/* Rebuilds the list of nodes with the insertions in their places; tensors learn the new numbers of their producers. */
static tx_status apply(tx_graph *graph, insertions *list)
{
    int32_t total = graph->nodes + list->count;
    tx_node *nodes = malloc((size_t)total * sizeof *nodes);
    int32_t *moved = malloc((size_t)graph->nodes * sizeof *moved);
    if (!nodes || !moved) {
        free(nodes);
        free(moved);
        return tx_fail(TX_MEMORY, "no memory for collective nodes");
    }
    qsort(list->all, (size_t)list->count, sizeof *list->all, compare);
    int32_t next = 0, taken = 0;
    for (int32_t i = 0; i < graph->nodes; i++) {
        while (taken < list->count && list->all[taken].at <= i)
            nodes[next++] = list->all[taken++].node;
        moved[i] = next;
        nodes[next++] = graph->node[i];
    }
    while (taken < list->count)
        nodes[next++] = list->all[taken++].node;
    tx_graph_replace_nodes(graph, nodes, total, moved);
    free(moved);
    return TX_OK;
}

/* The first node that reads a weight of the bucket; the number of nodes where none does. */
static int32_t first_reader(const tx_graph *graph, const tx_bucket *b)
{
    for (int32_t n = 0; n < graph->nodes; n++)
        for (int k = 0; k < TX_MAX_IN; k++) {
            tx_tensor *t = graph->node[n].in[k];
            const tx_tensor *root = t ? tx_tensor_root(t) : NULL;
            if (root && root->arena == TX_ARENA_WEIGHTS && tx_bucket_holds(b, root->offset))
                return n;
        }
    return graph->nodes;
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
static tx_status keep_shard(tx_graph *graph, insertions *list, int32_t at, int32_t bucket)
{
    const tx_bucket *b = &graph->model->parallel->bucket[bucket];
    tx_shape shape = TX_SHAPE(b->owned);
    insert_collective(list, at, TX_OP_WAIT_GRADIENTS, bucket);
    if (b->owned == 0)
        return TX_OK;
    tx_node copy = {.op = TX_OP_COPY, .direction = TX_BACKWARD};
    copy.attrs = (tx_attrs){.control = -1, .alpha = 1.0f, .accumulate = TX_ADD_CONTROL};
    copy.in[0] =
        tx_tensor_fixed(graph, TX_F32, shape, TX_ARENA_BUCKETS, b->gradient + b->first * (int64_t)sizeof(float));
    copy.out[0] = tx_tensor_fixed(graph, TX_F32, shape, TX_ARENA_GRADIENTS, b->kept);
    insert(list, at, &copy);
    return copy.in[0] && copy.out[0] ? TX_OK : graph->status;
}

/* A bucket is waited for when its memory is needed again, or at the end. */
static tx_status keep_shards(tx_graph *graph, insertions *list)
{
    const tx_parallel *p = graph->model->parallel;
    tx_status status = TX_OK;
    for (int32_t i = 0; i < p->buckets && !status; i++) {
        int32_t at =
            i + TX_BUCKETS_IN_FLIGHT < p->buckets ? p->bucket[i + TX_BUCKETS_IN_FLIGHT].ready + 1 : graph->nodes;
        status = keep_shard(graph, list, at, i);
    }
    return status;
}

tx_status tx_shard(tx_graph *graph)
{
    const tx_parallel *p = graph->model->parallel;
    if (!p)
        return TX_OK;
    tx_status status = tx_parallel_buckets(graph->model, graph);
    if (status)
        return status;
    insertions list = {.all = calloc((size_t)p->buckets * 4 + 2, sizeof *list.all)};
    if (!list.all)
        return tx_fail(TX_MEMORY, "no memory for collective nodes");
    for (int32_t i = 0; i < p->buckets; i++) {
        insert_collective(&list, p->bucket[i].ready + 1, TX_OP_REDUCE_GRADIENTS, i);
        if (p->options.zero_stage > 0)
            insert_collective(&list, first_reader(graph, &p->bucket[i]), TX_OP_WAIT_WEIGHTS, i);
    }
    if (p->rows.bucket >= 0) {
        insert_collective(&list, 0, TX_OP_NAME_ROWS, p->rows.bucket);
        insert_collective(&list, p->rows.node, TX_OP_ADD_ROWS, p->rows.bucket); /* the last before that node */
    }
    if (p->options.zero_stage == 2) {
        write_to_buckets(graph);
        status = keep_shards(graph, &list);
    }
    if (!status)
        status = apply(graph, &list);
    free(list.all);
    return status;
}
