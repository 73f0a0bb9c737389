/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass gather_weights: all-gathers sharded weights (ZeRO stage 3), also frozen ones. Nodes read planned tensors
 * instead: one of a bucket's weights in the stored type and one of their 16-bit copies. These are filled before their
 * first reader and freed after the last one; the planner places them like other tensors. While the readers of one
 * bucket are computed the next bucket is gathered. */
#include "api/parallel/parallel.h"

#include "api/parallel/buckets.h"
#include "api/residency/visits.h"

#include <stdlib.h>

/* A bucket stays resident until this many others have been gathered since its last use. Layers that are in two buckets
 * read them alternately, and the backward pass starts with the last buckets of the forward pass. */
#define WINDOW 2

static const tx_step steps[] = {{TX_OP_WAIT_WEIGHTS, 0}, {TX_OP_GATHER_WEIGHTS, 1}};

/* A visit of a bucket. */
typedef struct gathering {
    int32_t bucket;
    int32_t last;     /* last node that reads it */
    int32_t since;    /* number of visits at that node */
    int32_t piece[2]; /* stored weights, and their 16-bit copies */
} gathering;

/* An operand that is a weight or its 16-bit copy. */
typedef struct reading {
    tx_use use;
    int32_t visit;
    bool copy;
    const tx_tensor *weight; /* in the stored type */
} reading;

/* A piece packs ranges of its bucket: stored weights, or their 16-bit copies. */
typedef struct packed_piece {
    int32_t bucket, packing, ranges;
    tx_bucket_range *range;
    bool copies;
} packed_piece;

typedef struct gathers {
    tx_residency r; /* must be first: steps get a pointer to it */
    const tx_parallel *parallel;
    gathering *gathering; /* by visit */
    packed_piece *packed; /* by piece */
    reading *reading;
    int32_t readings;
    tx_bucket_range *range; /* free memory for the next piece */
} gathers;

/* ---- Readers ---------------------------------------------------------------------------------- */

/* Returns the weight that an operand is or is the copy of, or NULL. */
static const tx_tensor *weight_of(const gathers *g, tx_tensor *t, bool *copy)
{
    tx_tensor *root = tx_tensor_root(t);
    *copy = root && root->arena == TX_ARENA_HALF;
    if (*copy)
        root = tx_tensor_root(g->r.graph->node[root->producer].in[0]);
    return root && (root->arena == TX_ARENA_WEIGHTS || root->arena == TX_ARENA_FROZEN) ? root : NULL;
}

/* Returns the visit in which node `at` reads a bucket: the last one while the bucket is resident, or a new one. */
static int32_t visit_for(gathers *g, int32_t bucket, int32_t at)
{
    tx_residency *r = &g->r;
    int32_t visit = r->visits - 1;
    while (visit >= 0 && g->gathering[visit].bucket != bucket)
        visit--;
    if (visit < 0 || r->visits - g->gathering[visit].since > WINDOW) {
        visit = r->visits++;
        g->gathering[visit].bucket = bucket;
        r->visit[visit].node = at;
    }
    g->gathering[visit].since = r->visits;
    g->gathering[visit].last = at;
    return visit;
}

static void find_readings(gathers *g)
{
    for (int32_t n = 0; n < g->r.end; n++) {
        const tx_node *node = &g->r.graph->node[n];
        for (int k = 0; k < TX_MAX_IN && !tx_op_is_virtual(node->op); k++) {
            bool copy;
            const tx_tensor *weight = weight_of(g, node->in[k], &copy);
            if (!weight)
                continue;
            const int32_t bucket = tx_parallel_bucket_at(g->parallel, weight->arena, weight->offset);
            g->reading[g->readings++] = (reading){{n, k}, visit_for(g, bucket, n), copy, weight};
        }
    }
}

/* ---- Pieces -------------------------------------------------------------------------------------- */

static int by_begin(const void *a, const void *b)
{
    const tx_bucket_range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static tx_bucket_range range_of(const tx_bucket *b, const tx_tensor *weight)
{
    const int64_t begin = (weight->offset - b->address) / b->element;
    return (tx_bucket_range){begin, begin + tx_bucket_elements(b, tx_tensor_bytes(weight))};
}

/* Finds the ranges of a piece that a visit's nodes read. Contiguous ones are merged. */
static void find_ranges(const gathers *g, int32_t visit, packed_piece *p)
{
    tx_bucket_range *range = p->range = g->range;
    int32_t found = 0;
    for (int32_t i = 0; i < g->readings; i++)
        if (g->reading[i].visit == visit && g->reading[i].copy == p->copies)
            range[found++] = range_of(&g->parallel->bucket[p->bucket], g->reading[i].weight);
    qsort(range, (size_t)found, sizeof *range, by_begin);
    for (int32_t i = 0; i < found; i++) {
        tx_bucket_range *last = p->ranges ? &range[p->ranges - 1] : NULL;
        if (!last || range[i].begin > last->end)
            range[p->ranges++] = range[i];
        else if (range[i].end > last->end)
            last->end = range[i].end;
    }
}

/* Adds a piece. RESERVE nodes keep the communication buffer allocated equally long on ranks with and without own device
 * memory, so that all ranks place it at the same address. */
static tx_status add_piece(gathers *g, int32_t visit, bool copy)
{
    tx_graph *graph = g->r.graph;
    gathering *one = &g->gathering[visit];
    tx_piece *p = &g->r.piece[g->r.pieces];
    packed_piece *packed = &g->packed[g->r.pieces];
    *packed = (packed_piece){.bucket = one->bucket, .copies = copy};
    find_ranges(g, visit, packed);
    if (packed->ranges == 0)
        return TX_OK;
    TX_TRY(tx_parallel_pack(graph->model, packed->bucket, packed->range, packed->ranges, &packed->packing));
    const tx_dtype dtype = copy ? graph->model->copies.dtype : g->parallel->bucket[packed->bucket].dtype;
    const tx_shape shape = TX_SHAPE(g->parallel->packing[packed->packing - 1].count);
    p->staged = tx_tensor_planned(graph, dtype, shape, TX_ARENA_EXCHANGE);
    p->resident = graph->model->engine->backend->host_memory ? p->staged
                                                             : tx_tensor_planned(graph, dtype, shape, TX_ARENA_PLANNED);
    TX_TRY(graph->status);
    g->range += packed->ranges;
    one->piece[copy] = g->r.pieces++;
    return tx_edit_insert_op(g->r.edit, one->last + 1, one->last, TX_OP_RESERVE, NULL, p->staged);
}

static tx_status add_pieces(gathers *g)
{
    tx_residency *r = &g->r;
    for (int32_t i = 0; i < r->visits; i++) {
        r->visit[i].piece = r->pieces;
        TX_TRY(add_piece(g, i, false));
        TX_TRY(add_piece(g, i, true));
    }
    r->visit[r->visits] = (tx_visit){r->end, r->pieces};
    return TX_OK;
}

/* ---- Nodes ------------------------------------------------------------------------------------------------ */

/* Copies this rank's shard of the ranges to its position in the gathered piece. */
static tx_status put_own(const tx_residency *to, const packed_piece *p, tx_tensor *here, int32_t at)
{
    tx_graph *graph = to->graph;
    const tx_parallel *parallel = graph->model->parallel;
    const tx_bucket *b = &parallel->bucket[p->bucket];
    for (int32_t i = 0; i < p->ranges; i++) {
        const tx_bucket_range *r = &p->range[i];
        const int64_t begin = tx_max(r->begin, b->first),
                      end = r->end < b->first + b->owned ? r->end : b->first + b->owned,
                      stored = b->kept + (begin - b->first) * b->element;
        if (begin >= end)
            continue;
        const tx_shape shape = TX_SHAPE(end - begin);
        tx_tensor *own =
            tx_tensor_fixed(graph, here->dtype, shape, p->copies ? TX_ARENA_HALF : tx_bucket_keeper(parallel, b),
                            p->copies ? tx_model_half_address(graph->model, stored) : stored);
        tx_tensor *among = tx_tensor_view(here, tx_parallel_packed(p->range, p->ranges, begin), shape);
        TX_TRY(graph->status);
        TX_TRY(tx_edit_insert_op(to->edit, at, at, TX_OP_COPY, own, among));
    }
    return TX_OK;
}

static tx_status insert(const tx_residency *r, tx_op op, int32_t piece, int32_t at)
{
    const packed_piece *packed = &((const gathers *)(const void *)r)->packed[piece];
    const tx_piece *p = &r->piece[piece];
    const tx_attrs attrs = TX_ATTRS(.exchange.bucket = packed->bucket, .exchange.packing = packed->packing);
    if (op == TX_OP_WAIT_WEIGHTS)
        return tx_residency_move(r, at, op, &attrs, p->staged, p->resident);
    TX_TRY(tx_edit_insert_op(r->edit, at, at, TX_OP_RESERVE, NULL, p->staged));
    TX_TRY(put_own(r, packed, p->resident, at));
    return tx_residency_move(r, at, op, &attrs, p->resident, p->staged);
}

/* Replaces the operand by the same bytes of the gathered piece. It keeps its type; pieces of frozen weights are words.
 */
static tx_status read_gathered(const gathers *g, const reading *r)
{
    tx_tensor *was = g->r.graph->node[r->use.node].in[r->use.operand];
    const gathering *one = &g->gathering[r->visit];
    tx_tensor *here = g->r.piece[one->piece[r->copy]].resident;
    const packed_piece *p = &g->packed[one->piece[r->copy]];
    const tx_bucket_range range = range_of(&g->parallel->bucket[one->bucket], r->weight);
    const int64_t begin = tx_parallel_packed(p->range, p->ranges, range.begin) * (int64_t)tx_dtype_size(here->dtype);
    return tx_residency_read(&g->r, r->use, here, begin + tx_tensor_address(was) - tx_tensor_root(was)->offset);
}

/* Removes copies of whole weights, which have no readers now. Arena HALF has only shards. */
static void erase_copies(const gathers *g)
{
    bool copy;
    for (int32_t n = 0; n < g->r.end; n++)
        if (g->r.graph->node[n].op == TX_OP_COPY_OF_PARAM && weight_of(g, g->r.graph->node[n].in[0], &copy))
            tx_edit_erase(g->r.edit, n);
}

/* ---- The pass --------------------------------------------------------------------------------------------- */

static tx_status change(tx_edit *edit, void *state)
{
    gathers *g = state;
    const int32_t room = g->r.graph->nodes * TX_MAX_IN;
    g->gathering = tx_edit_alloc(edit, (size_t)room, sizeof *g->gathering);
    g->packed = tx_edit_alloc(edit, (size_t)room, sizeof *g->packed);
    g->reading = tx_edit_alloc(edit, (size_t)room, sizeof *g->reading);
    g->range = tx_edit_alloc(edit, (size_t)room, sizeof *g->range);
    TX_TRY(tx_residency_open(&g->r, edit, room, room));
    find_readings(g);
    TX_TRY(add_pieces(g));
    TX_TRY(tx_residency_insert(&g->r));
    for (int32_t i = 0; i < g->readings; i++)
        TX_TRY(read_gathered(g, &g->reading[i]));
    erase_copies(g);
    return TX_OK;
}

tx_status tx_gather_weights(tx_graph *graph)
{
    gathers g = {.r = {.graph = graph, .step = steps, .steps = 2, .insert = insert},
                 .parallel = graph->model->parallel};
    if (!tx_parallel_gathers(g.parallel) || graph->direction == TX_UPDATE)
        return TX_OK;
    TX_TRY(tx_parallel_need_buckets(graph->model));
    return tx_edit_run(graph, change, &g);
}
