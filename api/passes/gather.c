/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathering weights of which every rank has its shard (ZeRO's stage 3), frozen ones too. What nodes read of a bucket
 * comes from planned tensors, one of weights as they are stored and one of their copies of 16 bits, which are filled
 * before the first node that reads them and go behind the last; memory for them is found as for any other. While the
 * nodes that read one bucket are computed the next is on its way. */
#include "api/passes/passes.h"

#include "api/graph/edit.h"
#include "api/parallel/parallel.h"

#include <stdlib.h>

/* A bucket stays gathered until so many others have been since it was last read: layers that two buckets share read
 * them in turns, and the backward pass begins with what the forward pass read last. */
#define KEPT 2

/* What nodes read of a bucket in one form. */
typedef struct form {
    int32_t packing;  /* 0: nothing */
    tx_tensor *x, *w; /* on the device, and where the ranks exchange it */
} form;

/* A bucket as nodes first .. last read it: its weights as they are stored, and their copies of 16 bits. */
typedef struct gathering {
    int32_t bucket, first, last;
    form form[2];
} gathering;

/* An operand that is a weight. */
typedef struct reading {
    int32_t node, operand, gathering;
    const tx_tensor *weight; /* as it is stored */
    bool copy;               /* its copy of 16 bits is read */
    int64_t at;              /* element of what is gathered in that form at which the weight begins */
} reading;

typedef struct gathers {
    tx_graph *graph;
    const tx_parallel *parallel;
    tx_edit *edit;
    int32_t end; /* number of nodes before any was inserted */
    gathering *gathering;
    reading *reading;
    int32_t gatherings, readings;
    tx_bucket_range *range; /* of the form that is being inserted */
    int32_t ranges;
    int32_t *latest; /* by bucket: its last gathering; -1: none yet */
    int32_t *since;  /* by bucket: gatherings that there were when it was last read */
} gathers;

/* ---- What is read when ---------------------------------------------------------------------------------- */

/* The weight that an operand is, or is the copy of; NULL: it is none. */
static const tx_tensor *weight_of(const gathers *g, tx_tensor *t, bool *copy)
{
    tx_tensor *root = t ? tx_tensor_root(t) : NULL;
    *copy = root && root->arena == TX_ARENA_HALF;
    if (*copy)
        root = tx_tensor_root(g->graph->node[root->producer].in[0]);
    return root && (root->arena == TX_ARENA_WEIGHTS || root->arena == TX_ARENA_FROZEN) ? root : NULL;
}

/* The gathering that node `at` reads a bucket from: the last one, while it is kept, or a new one. */
static int32_t gathering_for(gathers *g, int32_t bucket, int32_t at)
{
    const int32_t latest = g->latest[bucket];
    if (latest < 0 || g->gatherings - g->since[bucket] > KEPT) {
        g->latest[bucket] = g->gatherings;
        g->gathering[g->gatherings++] = (gathering){.bucket = bucket, .first = at};
    }
    g->since[bucket] = g->gatherings;
    g->gathering[g->latest[bucket]].last = at;
    return g->latest[bucket];
}

static void find_readings(gathers *g)
{
    for (int32_t n = 0; n < g->end; n++) {
        const tx_node *node = &g->graph->node[n];
        for (int k = 0; k < TX_MAX_IN && node->op != TX_OP_COPY_OF_PARAM && node->op != TX_OP_RESHAPE; k++) {
            bool copy;
            const tx_tensor *weight = weight_of(g, node->in[k], &copy);
            if (!weight)
                continue;
            const int32_t bucket = tx_parallel_bucket_at(g->parallel, weight->arena, weight->offset);
            g->reading[g->readings++] = (reading){n, k, gathering_for(g, bucket, n), weight, copy, 0};
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

/* The ranges of a bucket that a gathering's nodes read in a form; neighbours are one. */
static void find_ranges(gathers *g, int32_t number, int copy)
{
    const tx_bucket *b = &g->parallel->bucket[g->gathering[number].bucket];
    int32_t found = 0;
    for (int32_t i = 0; i < g->readings; i++)
        if (g->reading[i].gathering == number && g->reading[i].copy == copy)
            g->range[found++] = range_of(b, g->reading[i].weight);
    qsort(g->range, (size_t)found, sizeof *g->range, by_begin);
    g->ranges = 0;
    for (int32_t i = 0; i < found; i++) {
        tx_bucket_range *last = g->ranges ? &g->range[g->ranges - 1] : NULL;
        if (!last || g->range[i].begin > last->end)
            g->range[g->ranges++] = g->range[i];
        else if (g->range[i].end > last->end)
            last->end = g->range[i].end;
    }
    for (int32_t i = 0; i < g->readings; i++)
        if (g->reading[i].gathering == number && g->reading[i].copy == copy)
            g->reading[i].at = tx_parallel_packed(g->range, g->ranges, range_of(b, g->reading[i].weight).begin);
}

/* ---- Nodes ------------------------------------------------------------------------------------------------ */

/* Before node `at`, of its direction and block, behind what was inserted there earlier. */
static tx_status insert(const gathers *g, int32_t at, int32_t like, tx_op op, tx_attrs attrs, tx_tensor *in,
                        tx_tensor *out)
{
    tx_node node = {.op = op, .direction = g->graph->node[like].direction, .block = g->graph->node[like].block};
    node.attrs = attrs;
    node.attrs.control = -1;
    node.attrs.alpha = 1.0f;
    node.in[0] = in;
    node.out[0] = out;
    if (!out)
        return g->graph->status;
    return tx_edit_insert(g->edit, at, &node, &out->producer);
}

static tx_attrs attrs_of(const gathering *one, const form *f)
{
    return (tx_attrs){.exchange.bucket = one->bucket, .exchange.packing = f->packing};
}

/* What this rank's shard has of the ranges goes to its place among the others'. */
static tx_status put_own(const gathers *g, const gathering *one, int copy, int32_t at)
{
    const tx_bucket *b = &g->parallel->bucket[one->bucket];
    const tx_model *model = g->graph->model;
    for (int32_t i = 0; i < g->ranges; i++) {
        const tx_bucket_range *r = &g->range[i];
        const int64_t begin = r->begin > b->first ? r->begin : b->first,
                      end = r->end < b->first + b->owned ? r->end : b->first + b->owned,
                      stored = b->kept + (begin - b->first) * b->element;
        if (begin >= end)
            continue;
        tx_tensor *x = one->form[copy].x,
                  *own = tx_tensor_fixed(g->graph, x->dtype, TX_SHAPE(end - begin),
                                         copy ? TX_ARENA_HALF : tx_bucket_keeper(g->parallel, b),
                                         copy ? tx_model_half_address(model, stored) : stored);
        if (!own)
            return g->graph->status;
        TX_TRY(insert(g, at, at, TX_OP_COPY, (tx_attrs){0}, own,
                      tx_tensor_view(x, tx_parallel_packed(g->range, g->ranges, begin), own->shape)));
    }
    return TX_OK;
}

/* One form of a gathering is asked for before node `at`. Memory where ranks exchange is taken for as long by those
 * whose device has its own as by the others, so that all place it alike. */
static tx_status begin_form(gathers *g, int32_t number, int copy, int32_t at)
{
    tx_graph *graph = g->graph;
    gathering *one = &g->gathering[number];
    form *f = &one->form[copy];
    const tx_dtype dtype = copy ? graph->model->copies.dtype : g->parallel->bucket[one->bucket].dtype;
    find_ranges(g, number, copy);
    if (g->ranges == 0)
        return TX_OK;
    TX_TRY(tx_parallel_pack(graph->model, one->bucket, g->range, g->ranges, &f->packing));
    const tx_shape shape = TX_SHAPE(g->parallel->packing[f->packing - 1].count);
    f->w = tx_tensor_planned(graph, dtype, shape, TX_ARENA_EXCHANGE);
    f->x = graph->model->engine->backend->host_memory ? f->w : tx_tensor_planned(graph, dtype, shape, TX_ARENA_PLANNED);
    if (!f->w || !f->x)
        return graph->status;
    TX_TRY(insert(g, at, at, TX_OP_RESERVE, (tx_attrs){0}, NULL, f->w));
    TX_TRY(put_own(g, one, copy, at));
    TX_TRY(insert(g, at, at, TX_OP_GATHER_WEIGHTS, attrs_of(one, f), f->x, f->w));
    return insert(g, one->last + 1, one->last, TX_OP_RESERVE, (tx_attrs){0}, NULL, f->w);
}

static tx_status begin(gathers *g, int32_t number, int32_t at)
{
    for (int copy = 0; copy < 2 && number < g->gatherings; copy++)
        TX_TRY(begin_form(g, number, copy, at));
    return TX_OK;
}

static tx_status insert_gatherings(gathers *g)
{
    TX_TRY(begin(g, 0, g->gathering[0].first));
    for (int32_t i = 0; i < g->gatherings; i++) {
        const gathering *one = &g->gathering[i];
        for (int copy = 0; copy < 2; copy++) {
            const form *f = &one->form[copy];
            if (f->packing)
                TX_TRY(insert(g, one->first, one->first, TX_OP_WAIT_WEIGHTS, attrs_of(one, f), f->w, f->x));
        }
        TX_TRY(begin(g, i + 1, one->first));
    }
    return TX_OK;
}

/* ---- Operands --------------------------------------------------------------------------------------------- */

/* The operand becomes the same bytes of what was gathered, in its own type, which words of frozen weights have not. */
static tx_status read_gathered(const gathers *g, const reading *r)
{
    tx_tensor **operand = &g->graph->node[r->node].in[r->operand], *was = *operand;
    tx_tensor *now = tx_tensor_view(g->gathering[r->gathering].form[r->copy].x, r->at, was->shape);
    if (!now)
        return g->graph->status;
    now->dtype = was->dtype;
    now->within += tx_tensor_address(was) - tx_tensor_root(was)->offset;
    *operand = now;
    return TX_OK;
}

/* Nobody reads the copies of whole weights any more, of which arena HALF has shards. */
static void erase_copies(const gathers *g)
{
    bool copy;
    for (int32_t n = 0; n < g->end; n++)
        if (g->graph->node[n].op == TX_OP_COPY_OF_PARAM && weight_of(g, g->graph->node[n].in[0], &copy))
            tx_edit_erase(g->edit, n);
}

/* ---- The pass --------------------------------------------------------------------------------------------- */

static tx_status prepare(gathers *g)
{
    const size_t buckets = (size_t)g->parallel->buckets + (size_t)g->parallel->frozen + 1;
    const size_t most = (size_t)g->end * TX_MAX_IN + 1;
    g->gathering = calloc(most, sizeof *g->gathering);
    g->reading = calloc(most, sizeof *g->reading);
    g->latest = malloc(buckets * sizeof *g->latest);
    g->since = calloc(buckets, sizeof *g->since);
    g->range = calloc(most, sizeof *g->range);
    if (!g->gathering || !g->reading || !g->latest || !g->since || !g->range)
        return tx_fail(TX_MEMORY, "no memory for the list of what is gathered");
    for (size_t i = 0; i < buckets; i++)
        g->latest[i] = -1;
    return tx_edit_open(g->graph, &g->edit);
}

static tx_status change(gathers *g)
{
    find_readings(g);
    TX_TRY(insert_gatherings(g));
    for (int32_t i = 0; i < g->readings; i++)
        TX_TRY(read_gathered(g, &g->reading[i]));
    erase_copies(g);
    return TX_OK;
}

tx_status tx_gather_weights(tx_graph *graph)
{
    gathers g = {.graph = graph, .parallel = graph->model->parallel, .end = graph->nodes};
    if (!tx_parallel_gathers(g.parallel) || graph->direction == TX_UPDATE)
        return TX_OK;
    TX_TRY(tx_parallel_need_buckets(graph->model));
    tx_status status = prepare(&g);
    if (!status)
        status = change(&g);
    if (!status)
        status = tx_edit_commit(g.edit);
    else
        tx_edit_discard(g.edit);
    free(g.gathering);
    free(g.reading);
    free(g.latest);
    free(g.since);
    free(g.range);
    return status;
}
