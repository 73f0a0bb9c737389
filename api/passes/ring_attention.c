/* SPDX-License-Identifier: Apache-2.0
 *
 * Context parallelism: ranks that share rows have a chunk of positions each, and keys and values go round them (Liu et
 * al., Ring Attention with Blockwise Transformers, 2023). Each node of attention, and of its gradient, becomes a
 * series: attention of this rank's queries to its own chunk, which is causal, then to each chunk before it, nearest
 * first, which all of them see. Outputs are merged by their log-sum-exps. The gradient takes the merged output and
 * log-sum-exp, so that what each pair of chunks gives is exact; gradients of keys and values go back the way these
 * came, from the last rank to the chunk's own, each rank adding its part in fp32. Chunks follow one another, so the
 * last rank has as many pairs as there are ranks, and the first has one. */
#include "api/passes/passes.h"

#include "api/graph/edit.h"
#include "api/parallel/parallel.h"

#include <inttypes.h>

/* A message between neighbours: the tensor, and where it lies on its way. */
typedef struct message {
    tx_tensor *x, *w;
    int32_t peer, chunk;
} message;

/* The node that is replaced, and how wide its parts are. */
typedef struct ring {
    tx_graph *graph;
    tx_node node;
    int32_t rank, size;
    int64_t length;          /* of a chunk */
    int64_t queries, others; /* columns of q, and of k | v */
    tx_tensor *qkv;
} ring;

static const tx_attrs plain = {.control = -1, .alpha = 1.0f};

/* ---- Messages ----------------------------------------------------------------------------------------- */

static void append(const ring *r, tx_op op, const message *m, tx_tensor *in, tx_tensor *out)
{
    tx_node node = tx_message_node(op, r->node.direction, m->peer, m->chunk, in, out);
    int32_t number = 0;
    node.block = r->node.block;
    if (!r->graph->status && !tx_graph_append(r->graph, &node, &number) && out)
        out->producer = out->producer < 0 ? number : out->producer;
}

/* Where the device has memory of its own, messages lie in the host's: windows are alike on all ranks, and these are
 * not. */
static message message_of(const ring *r, tx_tensor *x, int32_t peer, int32_t chunk)
{
    const bool host = r->graph->model->engine->backend->host_memory;
    tx_tensor *w = !x || host ? x : tx_tensor_planned(r->graph, x->dtype, x->shape, TX_ARENA_AWAY);
    if (w && !host)
        r->graph->model->arena[TX_ARENA_AWAY].space = TX_SPACE_PINNED;
    return (message){x, w, peer, chunk};
}

static message send(const ring *r, tx_tensor *x, int32_t peer, int32_t chunk)
{
    const message m = message_of(r, x, peer, chunk);
    append(r, TX_OP_SEND, &m, m.x, m.w == m.x ? NULL : m.w);
    return m;
}

static void wait_sent(const ring *r, const message *m)
{
    if (m->x)
        append(r, TX_OP_WAIT_SENT, m, m->w, NULL);
}

static message call(const ring *r, tx_dtype dtype, int32_t peer, int32_t chunk)
{
    const tx_shape *qkv = &r->qkv->shape;
    const tx_shape shape = TX_SHAPE(qkv->dim[0], qkv->dim[1], r->others);
    const message m = message_of(r, tx_tensor_planned(r->graph, dtype, shape, TX_ARENA_PLANNED), peer, chunk);
    append(r, TX_OP_RECEIVE, &m, NULL, m.w);
    return m;
}

static tx_tensor *wait_received(const ring *r, const message *m)
{
    append(r, TX_OP_WAIT_RECEIVED, m, m->w, m->x);
    return m->x;
}

/* ---- Nodes -------------------------------------------------------------------------------------------- */

/* Emits a node whose outputs, where given, are those of the one that is replaced. */
static tx_tensor *emit(const ring *r, tx_emit_args *args)
{
    tx_tensor *y = tx_emit(r->graph, args);
    for (int k = 0; y && k < TX_MAX_OUT; k++)
        for (int was = 0; args->out[k] && was < TX_MAX_OUT; was++)
            if (args->out[k] == r->node.out[was])
                args->out[k]->producer = r->graph->nodes - 1;
    return y;
}

/* Columns of x in fp32, or added to `to`, or, of another type, as they are. */
static tx_tensor *take(const ring *r, tx_tensor *x, int64_t first, int64_t count, tx_dtype dtype, tx_tensor *to)
{
    tx_emit_args args = {.op = TX_OP_TAKE_COLUMNS, .attrs = plain, .in = {x}, .dtype = &dtype, .out = {to}};
    args.attrs.first = first;
    args.attrs.rows = count;
    args.attrs.accumulate = to ? TX_ADD : TX_STORE;
    return x ? emit(r, &args) : NULL;
}

/* q of `a` beside keys and values, or their gradients. */
static tx_tensor *join(const ring *r, tx_tensor *a, tx_tensor *b, tx_tensor *to)
{
    tx_emit_args args = {.op = TX_OP_JOIN_COLUMNS, .attrs = plain, .in = {a, b}, .dtype = &r->qkv->dtype, .out = {to}};
    args.attrs.rows = r->queries;
    return a && b ? emit(r, &args) : NULL;
}

/* Attributes of attention to the chunk `steps` before the rank's own. */
static tx_attrs attrs_of(const ring *r, int32_t steps)
{
    tx_attrs attrs = r->node.attrs;
    attrs.causal = steps == 0;
    attrs.row = r->rank * r->length;
    attrs.column = (r->rank - steps) * r->length;
    return attrs;
}

/* Keys and values on their way round the ring. Step s has those of the chunk s before the rank's own: it calls for the
 * next ones and sends its own on before it computes, and waits behind that. */
typedef struct turn {
    tx_tensor *pair; /* packed q | k | v that attention is of; NULL on failure, which the graph keeps */
    message gone, next;
} turn;

static turn begin_turn(const ring *r, int32_t steps, tx_tensor *kv)
{
    const int32_t chunk = r->rank - steps;
    turn t = {.pair = steps == 0 ? r->qkv : NULL};
    if (chunk > 0)
        t.next = call(r, r->qkv->dtype, r->rank - 1, chunk - 1);
    if (r->rank < r->size - 1 && !kv)
        kv = take(r, r->qkv, r->queries, r->others, r->qkv->dtype, NULL);
    if (r->rank < r->size - 1)
        t.gone = send(r, kv, r->rank + 1, chunk);
    if (steps > 0)
        t.pair = join(r, r->qkv, kv, NULL);
    return t;
}

/* What the next step is of; NULL: there is none. */
static tx_tensor *end_turn(const ring *r, const turn *t)
{
    wait_sent(r, &t->gone);
    return t->next.x ? wait_received(r, &t->next) : NULL;
}

/* ---- The series --------------------------------------------------------------------------------------- */

static void attend(const ring *r)
{
    tx_tensor *o = r->node.out[TX_OUT(attention, o)], *lse = r->node.out[TX_OUT(attention, lse)], *kv = NULL;
    tx_tensor *merged = NULL, *merged_lse = NULL;
    for (int32_t s = 0; s <= r->rank && !r->graph->status; s++) {
        const bool last = s == r->rank;
        const turn t = begin_turn(r, s, kv);
        tx_emit_args of_pair = {.op = TX_OP_ATTENTION, .attrs = attrs_of(r, s), .in = {t.pair}};
        if (last && s == 0) {
            of_pair.out[TX_OUT(attention, o)] = o;
            of_pair.out[TX_OUT(attention, lse)] = lse;
        }
        if (t.pair)
            emit(r, &of_pair);
        tx_emit_args merge = {.op = TX_OP_ATTENTION_MERGE,
                              .attrs = r->node.attrs,
                              .in = {merged, merged_lse, of_pair.out[0], of_pair.out[1]},
                              .dtype = last ? &o->dtype : NULL,
                              .out = {last ? o : NULL, last ? lse : NULL}};
        if (s > 0)
            emit(r, &merge);
        merged = s > 0 ? merge.out[0] : of_pair.out[0];
        merged_lse = s > 0 ? merge.out[1] : of_pair.out[1];
        kv = end_turn(r, &t);
    }
}

/* Gradients of a chunk's keys and values: what the ranks behind this one have, and its part of it. */
static tx_tensor *add_others(const ring *r, tx_tensor *dpair, const message *come)
{
    tx_tensor *sum = come->x ? wait_received(r, come) : NULL;
    return take(r, dpair, r->queries, r->others, TX_F32, sum);
}

static void differentiate(const ring *r)
{
    tx_tensor *const *in = r->node.in, *kv = NULL, *dq = NULL, *own = NULL;
    for (int32_t s = 0; s <= r->rank && !r->graph->status; s++) {
        const int32_t chunk = r->rank - s;
        const turn t = begin_turn(r, s, kv);
        const message come = r->rank < r->size - 1 ? call(r, TX_F32, r->rank + 1, chunk) : (message){0};
        message gone = {0};
        tx_emit_args of_pair = {.op = TX_OP_ATTENTION_GRAD,
                                .attrs = attrs_of(r, s),
                                .in = {in[TX_IN(attention_grad, d_o)], t.pair, in[TX_IN(attention_grad, o)],
                                       in[TX_IN(attention_grad, lse)]}};
        tx_tensor *dpair = t.pair ? emit(r, &of_pair) : NULL;
        dq = r->rank == 0 ? dpair : take(r, dpair, 0, r->queries, TX_F32, dq);
        tx_tensor *dkv = add_others(r, dpair, &come);
        if (s == 0)
            own = dkv;
        else
            gone = send(r, dkv, r->rank - 1, chunk);
        kv = end_turn(r, &t);
        wait_sent(r, &gone);
    }
    join(r, dq, own, r->node.out[TX_OUT(attention_grad, dqkv)]);
}

/* ---- The pass ----------------------------------------------------------------------------------------- */

/* Where in a node packed q | k | v is; -1: it is no attention. */
static int packed_of(tx_op op)
{
    if (op == TX_OP_ATTENTION)
        return TX_IN(attention, qkv);
    return op == TX_OP_ATTENTION_GRAD ? (int)TX_IN(attention_grad, qkv) : -1;
}

static tx_status check(const tx_node *n, int packed)
{
    const bool bounded = n->in[packed == 0 ? TX_IN(attention, lengths) : TX_IN(attention_grad, lengths)] ||
                         n->in[packed == 0 ? TX_IN(attention, starts) : TX_IN(attention_grad, starts)];
    if (!n->attrs.causal || n->attrs.window > 0 || bounded)
        return tx_fail(TX_UNSUPPORTED,
                       "context parallelism divides causal attention over whole rows: no models that see both sides, "
                       "no sliding windows, no rows with padding or several samples; train it without");
    if (n->in[packed]->shape.dim[1] % 4 != 0)
        return tx_fail(TX_UNSUPPORTED, "context parallelism: chunks of %" PRId64 " positions are no multiples of 4",
                       n->in[packed]->shape.dim[1]);
    return TX_OK;
}

/* Puts the series in the place of node `at`. */
static tx_status replace(tx_graph *graph, tx_edit *edit, int32_t at)
{
    const tx_model *model = graph->model;
    const int packed = packed_of(graph->node[at].op);
    TX_TRY(check(&graph->node[at], packed));
    ring r = {.graph = graph, .node = graph->node[at], .rank = model->context, .size = model->contexts};
    r.qkv = r.node.in[packed];
    r.length = r.qkv->shape.dim[1];
    const int64_t size = r.qkv->shape.dim[2] / (r.node.attrs.heads + 2 * (int64_t)r.node.attrs.kv_heads);
    r.queries = r.node.attrs.heads * size;
    r.others = 2 * r.node.attrs.kv_heads * size;
    const int32_t first = graph->nodes;
    graph->direction = r.node.direction;
    graph->block = r.node.block;
    if (r.node.op == TX_OP_ATTENTION)
        attend(&r);
    else
        differentiate(&r);
    graph->direction = TX_FORWARD;
    graph->block = 0;
    for (int32_t i = first; i < graph->nodes && !graph->status; i++)
        tx_edit_move(edit, i, at);
    tx_edit_erase(edit, at);
    return graph->status;
}

tx_status tx_ring_attention(tx_graph *graph)
{
    const int32_t end = graph->nodes;
    tx_edit *edit;
    if (graph->model->contexts == 1)
        return TX_OK;
    tx_status status = tx_edit_open(graph, &edit);
    if (status)
        return status;
    for (int32_t i = 0; i < end && !status; i++)
        if (packed_of(graph->node[i].op) >= 0)
            status = replace(graph, edit, i);
    if (!status)
        return tx_edit_commit(edit);
    tx_edit_discard(edit);
    return status;
}
