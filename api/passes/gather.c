/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathering weights of which every rank has its shard (ZeRO's stage 3). What a node reads of a bucket comes from a
 * planned tensor, which is filled before the first node that reads it and goes behind the last; memory for it is found
 * as for any other. While the nodes that read one bucket are computed the next is on its way. */
#include "api/passes/passes.h"

#include "api/graph/edit.h"
#include "api/parallel/parallel.h"

#include <stdlib.h>

/* A bucket stays gathered until so many others have been since it was last read: layers that two buckets share read
 * them in turns, and the backward pass begins with what the forward pass read last. */
#define KEPT 2

/* A bucket as nodes first .. last read it. */
typedef struct gathering {
    int32_t bucket, first, last;
    tx_tensor *x, *w; /* all of its weights on the device, and where the ranks exchange them */
} gathering;

/* An operand that is a weight. */
typedef struct reading {
    int32_t node, operand, gathering;
    tx_tensor *weight; /* as it is stored */
    bool copy;         /* its copy of 16 bits is read */
} reading;

typedef struct gathers {
    tx_graph *graph;
    const tx_parallel *parallel;
    tx_edit *edit;
    int32_t end; /* number of nodes before any was inserted */
    gathering *gathering;
    reading *reading;
    int32_t gatherings, readings;
    int32_t *latest;     /* by bucket: its last gathering; -1: none yet */
    int32_t *since;      /* by bucket: gatherings that there were when it was last read */
    tx_tensor **copy;    /* by tensor, of weights: the copy of 16 bits */
    int32_t *copied_for; /* by tensor: the gathering that it was made of */
} gathers;

/* ---- What is read when ---------------------------------------------------------------------------------- */

/* The weight that an operand is, or is the copy of; NULL: it is none. */
static tx_tensor *weight_of(const gathers *g, tx_tensor *t, bool *copy)
{
    tx_tensor *root = t ? tx_tensor_root(t) : NULL;
    *copy = root && root->arena == TX_ARENA_HALF;
    if (*copy)
        root = tx_tensor_root(g->graph->node[root->producer].in[0]);
    return root && root->arena == TX_ARENA_WEIGHTS ? root : NULL;
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
            tx_tensor *weight = weight_of(g, node->in[k], &copy);
            if (!weight)
                continue;
            const int32_t bucket = tx_parallel_bucket_at(g->parallel, weight->offset);
            g->reading[g->readings++] = (reading){n, k, gathering_for(g, bucket, n), weight, copy};
        }
    }
}

/* ---- Nodes ------------------------------------------------------------------------------------------------ */

/* Before node `at` of direction and block of node `like`, behind what was inserted there earlier. */
static tx_status insert(const gathers *g, int32_t at, int32_t like, tx_op op, int32_t bucket, tx_tensor *in,
                        tx_tensor *out)
{
    tx_node node = {.op = op, .direction = g->graph->node[like].direction, .block = g->graph->node[like].block};
    node.attrs = (tx_attrs){.control = -1, .alpha = 1.0f, .bucket = bucket};
    node.in[0] = in;
    node.out[0] = out;
    if (!out)
        return g->graph->status;
    return tx_edit_insert(g->edit, at, &node, &out->producer);
}

/* The own shard goes to its place among the others, which are asked for, before node `at`. Memory where ranks exchange
 * is taken for as long by those whose device has its own as by the others, so that all place it alike. */
static tx_status begin(const gathers *g, gathering *one, int32_t at)
{
    tx_graph *graph = g->graph;
    const tx_dtype dtype = graph->model->stored;
    const tx_bucket *b = &g->parallel->bucket[one->bucket];
    const bool in_place = graph->model->engine->backend->host_memory;
    one->w = tx_tensor_planned(graph, dtype, TX_SHAPE(b->count), TX_ARENA_EXCHANGE);
    one->x = in_place ? one->w : tx_tensor_planned(graph, dtype, TX_SHAPE(b->count), TX_ARENA_PLANNED);
    if (!one->w || !one->x)
        return graph->status;
    TX_TRY(insert(g, at, at, TX_OP_RESERVE, 0, NULL, one->w));
    if (b->owned > 0) {
        tx_tensor *own = tx_tensor_fixed(graph, dtype, TX_SHAPE(b->owned), TX_ARENA_SHARDS, b->kept);
        TX_TRY(own ? insert(g, at, at, TX_OP_COPY, 0, own, tx_tensor_view(one->x, b->first, own->shape))
                   : graph->status);
    }
    TX_TRY(insert(g, at, at, TX_OP_GATHER_WEIGHTS, one->bucket, one->x, one->w));
    return insert(g, one->last + 1, one->last, TX_OP_RESERVE, 0, NULL, one->w);
}

static tx_status insert_gatherings(const gathers *g)
{
    if (g->gatherings > 0)
        TX_TRY(begin(g, &g->gathering[0], g->gathering[0].first));
    for (int32_t i = 0; i < g->gatherings; i++) {
        const gathering *one = &g->gathering[i];
        TX_TRY(insert(g, one->first, one->first, TX_OP_WAIT_WEIGHTS, one->bucket, one->w, one->x));
        if (i + 1 < g->gatherings)
            TX_TRY(begin(g, &g->gathering[i + 1], one->first));
    }
    return TX_OK;
}

/* ---- Operands --------------------------------------------------------------------------------------------- */

/* Elements from the beginning of the bucket. */
static tx_tensor *gathered(const gathers *g, const reading *r, int64_t within, const tx_shape *shape)
{
    const gathering *one = &g->gathering[r->gathering];
    const tx_bucket *b = &g->parallel->bucket[one->bucket];
    return tx_tensor_view(one->x, (r->weight->offset - b->address) / b->element + within, *shape);
}

/* The copy of 16 bits of all of a weight, which the first that reads it in a gathering has made. */
static tx_tensor *copy_of(const gathers *g, const reading *r, tx_dtype dtype)
{
    const int32_t id = r->weight->id;
    if (g->copied_for[id] == r->gathering)
        return g->copy[id];
    tx_tensor *x = gathered(g, r, 0, &r->weight->shape),
              *y = x ? tx_tensor_planned(g->graph, dtype, x->shape, TX_ARENA_PLANNED) : NULL;
    if (!y || insert(g, r->node, r->node, TX_OP_CAST, 0, x, y))
        return NULL;
    g->copied_for[id] = r->gathering;
    return g->copy[id] = y;
}

static tx_status read_gathered(const gathers *g, const reading *r)
{
    const tx_tensor *t = g->graph->node[r->node].in[r->operand];
    const tx_tensor *root = tx_tensor_root((tx_tensor *)(uintptr_t)t);
    const int64_t within = (tx_tensor_address(t) - root->offset) / (int64_t)tx_dtype_size(t->dtype);
    tx_tensor *copy = r->copy ? copy_of(g, r, t->dtype) : NULL, *now;
    if (r->copy && !copy)
        return g->graph->status;
    if (r->copy)
        now = t == root ? copy : tx_tensor_view(copy, within, t->shape);
    else
        now = gathered(g, r, within, &t->shape);
    if (now)
        g->graph->node[r->node].in[r->operand] = now;
    return now ? TX_OK : g->graph->status;
}

/* Nobody reads the copies in arena HALF any more, which there is not. */
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
    const size_t buckets = (size_t)g->parallel->buckets + 1, tensors = (size_t)g->graph->tensors + 1;
    const size_t most = (size_t)g->end * TX_MAX_IN + 1;
    g->gathering = calloc(most, sizeof *g->gathering);
    g->reading = calloc(most, sizeof *g->reading);
    g->latest = malloc(buckets * sizeof *g->latest);
    g->since = calloc(buckets, sizeof *g->since);
    g->copy = calloc(tensors, sizeof *g->copy);
    g->copied_for = malloc(tensors * sizeof *g->copied_for);
    if (!g->gathering || !g->reading || !g->latest || !g->since || !g->copy || !g->copied_for)
        return tx_fail(TX_MEMORY, "no memory for the list of what is gathered");
    for (size_t i = 0; i < buckets; i++)
        g->latest[i] = -1;
    for (size_t i = 0; i < tensors; i++)
        g->copied_for[i] = -1;
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
    free(g.copy);
    free(g.copied_for);
    return status;
}
