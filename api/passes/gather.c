/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathering weights of which every rank has its shard (ZeRO's stage 3), frozen ones too. What nodes read of a bucket
 * comes from planned tensors, one of weights as they are stored and one of their copies of 16 bits, which are filled
 * before the first node that reads them and go behind the last; memory for them is found as for any other. While the
 * nodes that read one bucket are computed the next is on its way. */
#include "api/passes/passes.h"

#include "api/parallel/parallel.h"
#include "api/passes/residency.h"

#include <stdlib.h>

/* A bucket stays resident until so many others have been gathered since it was last read: layers that two buckets
 * share read them in turns, and the backward pass begins with what the forward pass read last. */
#define WINDOW 2

static const tx_step steps[] = {{TX_OP_WAIT_WEIGHTS, 0}, {TX_OP_GATHER_WEIGHTS, 1}};

/* A visit of a bucket. */
typedef struct gathering {
    int32_t bucket;
    int32_t last;     /* the last node that reads it */
    int32_t since;    /* number of visits at that node */
    int32_t piece[2]; /* its weights as they are stored, and their 16-bit copies */
} gathering;

/* An operand that is a weight, or its 16-bit copy. */
typedef struct reading {
    tx_use use;
    int32_t visit;
    bool copy;
    const tx_tensor *weight; /* as it is stored */
} reading;

/* The part of its bucket that a piece has. */
typedef struct ranges {
    tx_bucket_range *range;
    int32_t count;
    bool copy;
} ranges;

typedef struct gathers {
    tx_residency r; /* the first member */
    const tx_parallel *parallel;
    gathering *gathering; /* by visit */
    ranges *ranges;       /* by piece */
    reading *reading;
    int32_t readings;
    tx_bucket_range *range; /* room for the next piece */
} gathers;

/* ---- What is read when ---------------------------------------------------------------------------------- */

/* The weight that an operand is, or is the copy of; NULL: it is none. */
static const tx_tensor *weight_of(const gathers *g, tx_tensor *t, bool *copy)
{
    tx_tensor *root = tx_tensor_root(t);
    *copy = root && root->arena == TX_ARENA_HALF;
    if (*copy)
        root = tx_tensor_root(g->r.graph->node[root->producer].in[0]);
    return root && (root->arena == TX_ARENA_WEIGHTS || root->arena == TX_ARENA_FROZEN) ? root : NULL;
}

/* The visit in which node `at` reads a bucket: the last one, while that is resident, or a new one. */
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
        for (int k = 0; k < TX_MAX_IN && node->op != TX_OP_COPY_OF_PARAM && node->op != TX_OP_RESHAPE; k++) {
            bool copy;
            const tx_tensor *weight = weight_of(g, node->in[k], &copy);
            if (!weight)
                continue;
            const int32_t bucket = tx_parallel_bucket_at(g->parallel, weight->arena, weight->offset);
            g->reading[g->readings++] = (reading){{n, k}, visit_for(g, bucket, n), copy, weight};
        }
    }
}

/* ---- What goes along -------------------------------------------------------------------------------------- */

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

/* The ranges of a bucket that a visit's nodes read in a form; neighbours are one. */
static ranges find_ranges(const gathers *g, int32_t visit, bool copy)
{
    const tx_bucket *b = &g->parallel->bucket[g->gathering[visit].bucket];
    ranges f = {.range = g->range, .copy = copy};
    int32_t found = 0;
    for (int32_t i = 0; i < g->readings; i++)
        if (g->reading[i].visit == visit && g->reading[i].copy == copy)
            f.range[found++] = range_of(b, g->reading[i].weight);
    qsort(f.range, (size_t)found, sizeof *f.range, by_begin);
    for (int32_t i = 0; i < found; i++) {
        tx_bucket_range *last = f.count ? &f.range[f.count - 1] : NULL;
        if (!last || f.range[i].begin > last->end)
            f.range[f.count++] = f.range[i];
        else if (f.range[i].end > last->end)
            last->end = f.range[i].end;
    }
    return f;
}

/* Ranks whose device has its own memory reserve the exchange memory for as long as the others, so that all ranks place
 * it alike. */
static tx_status add_piece(gathers *g, int32_t visit, bool copy)
{
    tx_graph *graph = g->r.graph;
    gathering *one = &g->gathering[visit];
    const ranges f = find_ranges(g, visit, copy);
    const tx_dtype dtype = copy ? graph->model->copies.dtype : g->parallel->bucket[one->bucket].dtype;
    if (f.count == 0)
        return TX_OK;
    tx_piece *p = &g->r.piece[g->r.pieces];
    p->bucket = one->bucket;
    TX_TRY(tx_parallel_pack(graph->model, p->bucket, f.range, f.count, &p->packing));
    const tx_shape shape = TX_SHAPE(g->parallel->packing[p->packing - 1].count);
    p->staged = tx_tensor_planned(graph, dtype, shape, TX_ARENA_EXCHANGE);
    p->here = graph->model->engine->backend->host_memory ? p->staged
                                                         : tx_tensor_planned(graph, dtype, shape, TX_ARENA_PLANNED);
    TX_TRY(graph->status);
    g->range += f.count;
    g->ranges[g->r.pieces] = f;
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

/* What this rank's shard has of the ranges goes to its place among the others'. */
static tx_status put_own(const gathers *g, const tx_piece *p, int32_t at)
{
    tx_graph *graph = g->r.graph;
    const tx_bucket *b = &g->parallel->bucket[p->bucket];
    const ranges *f = &g->ranges[p - g->r.piece];
    for (int32_t i = 0; i < f->count; i++) {
        const tx_bucket_range *r = &f->range[i];
        const int64_t begin = r->begin > b->first ? r->begin : b->first,
                      end = r->end < b->first + b->owned ? r->end : b->first + b->owned,
                      stored = b->kept + (begin - b->first) * b->element;
        if (begin >= end)
            continue;
        const tx_shape shape = TX_SHAPE(end - begin);
        tx_tensor *own =
            tx_tensor_fixed(graph, p->here->dtype, shape, f->copy ? TX_ARENA_HALF : tx_bucket_keeper(g->parallel, b),
                            f->copy ? tx_model_half_address(graph->model, stored) : stored);
        tx_tensor *among = tx_tensor_view(p->here, tx_parallel_packed(f->range, f->count, begin), shape);
        TX_TRY(graph->status);
        TX_TRY(tx_edit_insert_op(g->r.edit, at, at, TX_OP_COPY, own, among));
    }
    return TX_OK;
}

static tx_status gather(const tx_residency *r, const tx_piece *p, int32_t at)
{
    TX_TRY(tx_edit_insert_op(r->edit, at, at, TX_OP_RESERVE, NULL, p->staged));
    TX_TRY(put_own((const gathers *)r, p, at));
    return tx_residency_move(r, p, at, TX_OP_GATHER_WEIGHTS, p->here, p->staged);
}

/* The operand becomes the same bytes of the gathered piece. It keeps its type, which the words of frozen weights have
 * not. */
static tx_status read_gathered(const gathers *g, const reading *r)
{
    tx_tensor *was = g->r.graph->node[r->use.node].in[r->use.operand];
    const gathering *one = &g->gathering[r->visit];
    const tx_piece *p = &g->r.piece[one->piece[r->copy]];
    const ranges *f = &g->ranges[one->piece[r->copy]];
    const tx_bucket_range range = range_of(&g->parallel->bucket[one->bucket], r->weight);
    const int64_t begin = tx_parallel_packed(f->range, f->count, range.begin) * (int64_t)tx_dtype_size(p->here->dtype);
    return tx_residency_read(&g->r, r->use, p->here, begin + tx_tensor_address(was) - tx_tensor_root(was)->offset);
}

/* Nobody reads the copies of whole weights any more, of which arena HALF has shards. */
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
    const int32_t most = g->r.graph->nodes * TX_MAX_IN;
    g->gathering = tx_edit_alloc(edit, (size_t)most, sizeof *g->gathering);
    g->ranges = tx_edit_alloc(edit, (size_t)most, sizeof *g->ranges);
    g->reading = tx_edit_alloc(edit, (size_t)most, sizeof *g->reading);
    g->range = tx_edit_alloc(edit, (size_t)most, sizeof *g->range);
    TX_TRY(tx_residency_open(&g->r, edit, most, most));
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
    gathers g = {.r = {.graph = graph, .step = steps, .steps = 2, .gather = gather},
                 .parallel = graph->model->parallel};
    if (!tx_parallel_gathers(g.parallel) || graph->direction == TX_UPDATE)
        return TX_OK;
    TX_TRY(tx_parallel_need_buckets(graph->model));
    return tx_edit_run(graph, change, &g);
}
