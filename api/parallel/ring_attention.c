/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass ring_attention: context parallelism for causal attention over whole rows (others: heads.c). Ranks that share
 * rows have two chunks of each row's positions, and attention needs the keys and values of other ranks (Liu et al.,
 * Ring Attention with Blockwise Transformers, 2023). A row has 2 N chunks for N ranks; rank r has chunks r and 2 N - 1
 * - r (zigzag). Each rank then has 2 N + 1 pairs of a query chunk and a key chunk at or before it, two of them causal.
 *
 * The pass replaces each node of attention, and of its gradient, by a series: pairs within the rank, then pairs with
 * the chunks of the rank before it, and so on around the ring. Each rank sends its local chunks to the ranks with later
 * queries. Outputs are merged by their log-sum-exps. The gradient uses the merged output and log-sum-exp, so the result
 * of each pair is exact. A rank's contributions to gradients of keys and values are sent to the owner, which sums them
 * in fp32 in a fixed order. */
#include "api/parallel/parallel.h"

#include "api/graph/edit.h"
#include "api/parallel/buckets.h"

#include <inttypes.h>

/* A message between two ranks: the tensor and its buffer. The number distinguishes messages in progress between two
 * ranks: 0 and 1 are keys and values of a chunk, 2 and 3 their gradients. */
typedef struct message {
    tx_tensor *x, *w;
    int32_t peer, number;
} message;

/* The replaced node, its sizes and its operands. Chunk 0 is the earlier one of the rank. */
typedef struct ring {
    tx_graph *graph;
    tx_node node;
    int32_t rank, size;
    int64_t length;          /* of a chunk */
    int64_t queries, others; /* columns of q, and of k | v */
    tx_tensor *qkv;
    tx_tensor *own[2], *kv[2]; /* q | k | v of a chunk, and only k | v */
} ring;

/* ---- Messages ----------------------------------------------------------------------------------------- */

static void append(const ring *r, tx_op op, const message *m, tx_tensor *in, tx_tensor *out)
{
    tx_node node = tx_message_node(op, r->node.direction, m->peer, m->number, in, out);
    int32_t at = 0;
    node.block = r->node.block;
    node.attrs.exchange.around = true;
    if (!r->graph->status && !tx_graph_append(r->graph, &node, &at) && out)
        out->producer = out->producer < 0 ? at : out->producer;
}

/* Creates a message. Its buffer is in host memory if the device has its own memory. It cannot be in a window, as
 * windows must be equal on all ranks. */
static message message_of(const ring *r, tx_tensor *x, int32_t peer, int32_t number)
{
    const bool host = r->graph->model->engine->backend->host_memory;
    tx_tensor *w = !x || host ? x : tx_parallel_buffer(r->graph, x->dtype, x->shape);
    return (message){x, w, peer, number};
}

static message start_send(const ring *r, tx_tensor *x, int32_t peer, int32_t number)
{
    const message m = message_of(r, x, peer, number);
    append(r, TX_OP_SEND, &m, m.x, m.w == m.x ? NULL : m.w);
    return m;
}

static void wait_sent(const ring *r, const message *m)
{
    if (m->x)
        append(r, TX_OP_WAIT_SENT, m, m->w, NULL);
}

static message start_receive(const ring *r, tx_dtype dtype, int32_t peer, int32_t number)
{
    const tx_shape shape = TX_SHAPE(r->qkv->shape.dim[0], r->length, r->others);
    const message m = message_of(r, tx_tensor_planned(r->graph, dtype, shape, TX_ARENA_PLANNED), peer, number);
    append(r, TX_OP_RECEIVE, &m, NULL, m.w);
    return m;
}

static tx_tensor *wait_received(const ring *r, const message *m)
{
    if (m->x)
        append(r, TX_OP_WAIT_RECEIVED, m, m->w, m->x);
    return m->x;
}

/* ---- Nodes -------------------------------------------------------------------------------------------- */

/* Takes columns of x as `dtype`, or adds them to `to`. */
static tx_tensor *take_columns(const ring *r, tx_tensor *x, int64_t first, int64_t count, tx_dtype dtype, tx_tensor *to)
{
    tx_emit_args args = {.op = TX_OP_TAKE_COLUMNS, .attrs = TX_PLAIN, .in = {x}, .dtype = &dtype, .out = {to}};
    args.attrs.first = first;
    args.attrs.rows = count;
    args.attrs.accumulate = to ? TX_ADD : TX_STORE;
    return x ? tx_emit(r->graph, &args) : NULL;
}

/* Concatenates the first `columns` of a and b as `dtype`, or in `to`. */
static tx_tensor *join(const ring *r, tx_tensor *a, int64_t columns, tx_tensor *b, tx_dtype dtype, tx_tensor *to)
{
    tx_emit_args args = {.op = TX_OP_JOIN_COLUMNS, .attrs = TX_PLAIN, .in = {a, b}, .dtype = &dtype, .out = {to}};
    args.attrs.rows = columns;
    return a && b ? tx_emit(r->graph, &args) : NULL;
}

/* Views x [B, T, C] as [B, T C]; the columns are the rows of a sample. */
static tx_tensor *by_sample(tx_tensor *x)
{
    return x ? tx_tensor_view(x, 0, TX_SHAPE(x->shape.dim[0], x->shape.dim[1] * x->shape.dim[2])) : NULL;
}

/* Returns the rows of a chunk of x [B, T, C]. */
static tx_tensor *chunk_of(const ring *r, tx_tensor *x, int chunk)
{
    const int64_t width = x->shape.dim[2], count = r->length * width;
    tx_tensor *y = take_columns(r, by_sample(x), chunk * count, count, x->dtype, NULL);
    return y ? tx_tensor_view(y, 0, TX_SHAPE(x->shape.dim[0], r->length, width)) : NULL;
}

/* Marks the last node as producer of an output of the replaced node. */
static void set_producer(const ring *r, tx_tensor *out)
{
    if (out && !r->graph->status)
        out->producer = r->graph->nodes - 1;
}

/* Writes the rows of both chunks to an output of the replaced node. */
static void join_chunks(const ring *r, tx_tensor *const chunk[2], tx_tensor *out)
{
    tx_tensor *a = by_sample(chunk[0]), *b = by_sample(chunk[1]), *to = by_sample(out);
    if (a && b && to)
        join(r, a, tx_shape_last(&a->shape), b, out->dtype, to);
    set_producer(r, out);
}

/* ---- Pairs ------------------------------------------------------------------------------------------- */

/* Whether some query of rank `rank`, at least in its later chunk, sees chunk `key` of rank `other`. */
static bool needs(const ring *r, int32_t rank, int32_t other, int key)
{
    return tx_mesh_chunk(r->size, other, key) <= tx_mesh_chunk(r->size, rank, 1);
}

static bool sees(const ring *r, int query, int32_t other, int key)
{
    return tx_mesh_chunk(r->size, other, key) <= tx_mesh_chunk(r->size, r->rank, query);
}

static int32_t rank_before(const ring *r, int32_t steps)
{
    return (r->rank - steps + r->size) % r->size;
}

static int32_t rank_after(const ring *r, int32_t steps)
{
    return (r->rank + steps) % r->size;
}

/* Concatenates q of one chunk with k and v of another. */
static tx_tensor *pack_qkv(const ring *r, int query, int32_t other, int key, tx_tensor *kv)
{
    const bool same = tx_mesh_chunk(r->size, other, key) == tx_mesh_chunk(r->size, r->rank, query);
    return same ? r->own[query] : join(r, r->own[query], r->queries, kv, r->qkv->dtype, NULL);
}

static tx_attrs attrs_of(const ring *r, int query, int32_t other, int key)
{
    const int32_t row = tx_mesh_chunk(r->size, r->rank, query), column = tx_mesh_chunk(r->size, other, key);
    tx_attrs attrs = r->node.attrs;
    attrs.attention.causal = row == column;
    attrs.draw.row = row * r->length;
    attrs.draw.column = column * r->length;
    return attrs;
}

/* A turn uses keys and values of the rank `steps` before this one. During its computation the rank receives those of
 * the next turn and sends its own to the rank that needs them then. It waits for both afterwards. */
typedef struct turn {
    tx_tensor *kv[2]; /* NULL if not needed or after a failure, which the graph records */
    message sent[2], next[2];
} turn;

static void begin_turn(const ring *r, int32_t steps, turn *t)
{
    const int32_t from = rank_before(r, steps + 1), to = rank_after(r, steps + 1);
    for (int k = 0; k < 2; k++) {
        t->next[k] = t->sent[k] = (message){0};
        if (steps + 1 < r->size && needs(r, r->rank, from, k))
            t->next[k] = start_receive(r, r->qkv->dtype, from, k);
        if (steps + 1 < r->size && needs(r, to, r->rank, k))
            t->sent[k] = start_send(r, r->kv[k], to, k);
    }
}

static void end_turn(const ring *r, turn *t)
{
    for (int k = 0; k < 2; k++) {
        wait_sent(r, &t->sent[k]);
        t->kv[k] = wait_received(r, &t->next[k]);
    }
}

static turn first_turn(ring *r)
{
    for (int k = 0; k < 2; k++) {
        r->own[k] = chunk_of(r, r->qkv, k);
        r->kv[k] = take_columns(r, r->own[k], r->queries, r->others, r->qkv->dtype, NULL);
    }
    return (turn){.kv = {r->kv[0], r->kv[1]}};
}

/* ---- The series --------------------------------------------------------------------------------------- */

/* Outputs of a chunk of queries, merged so far. */
typedef struct merged {
    tx_tensor *o, *lse;
} merged;

static void attend_pair(const ring *r, const turn *t, int32_t other, int query, int key, merged *m)
{
    tx_emit_args pair = {.op = TX_OP_ATTENTION,
                         .attrs = attrs_of(r, query, other, key),
                         .in = {pack_qkv(r, query, other, key, t->kv[key])}};
    if (!pair.in[0] || !tx_emit(r->graph, &pair))
        return;
    tx_tensor *o = pair.out[TX_OUT(attention, o)], *lse = pair.out[TX_OUT(attention, lse)];
    tx_emit_args merge = {.op = TX_OP_ATTENTION_MERGE, .attrs = r->node.attrs, .in = {m->o, m->lse, o, lse}};
    if (m->o && tx_emit(r->graph, &merge)) {
        o = merge.out[TX_OUT(attention_merge, o)];
        lse = merge.out[TX_OUT(attention_merge, lse)];
    }
    *m = (merged){o, lse};
}

static void attend(ring *r)
{
    tx_tensor *lse = r->node.out[TX_OUT(attention, lse)];
    merged m[2] = {{0}};
    turn t = first_turn(r);
    for (int32_t s = 0; s < r->size && !r->graph->status; s++) {
        begin_turn(r, s, &t);
        for (int key = 0; key < 2; key++)
            for (int query = 0; query < 2; query++)
                if (sees(r, query, rank_before(r, s), key))
                    attend_pair(r, &t, rank_before(r, s), query, key, &m[query]);
        end_turn(r, &t);
    }
    join_chunks(r, (tx_tensor *[]){m[0].o, m[1].o}, r->node.out[TX_OUT(attention, o)]);
    join(r, m[0].lse, r->length, m[1].lse, TX_F32, lse);
    set_producer(r, lse);
}

/* Operands of the gradient for each chunk of queries, and the sums of gradients so far. */
typedef struct gradients {
    tx_tensor *d_o[2], *o[2], *lse[2];
    tx_tensor *dq[2], *dkv[2]; /* of queries, and of the turn's keys and values */
} gradients;

static void differentiate_pair(const ring *r, const turn *t, int32_t other, int query, int key, gradients *g)
{
    tx_emit_args pair = {.op = TX_OP_ATTENTION_GRAD,
                         .attrs = attrs_of(r, query, other, key),
                         .in = {g->d_o[query], pack_qkv(r, query, other, key, t->kv[key]), g->o[query], g->lse[query]}};
    tx_tensor *d = pair.in[0] && pair.in[1] && pair.in[2] && pair.in[3] ? tx_emit(r->graph, &pair) : NULL;
    g->dq[query] = take_columns(r, d, 0, r->queries, TX_F32, g->dq[query]);
    g->dkv[key] = take_columns(r, d, r->queries, r->others, TX_F32, g->dkv[key]);
}

/* Gradients of keys and values that are sent to their owner. They arrive while the next turn computes. */
typedef struct kv_gradients {
    message sent[2], received[2];
} kv_gradients;

static void receive_gradients(const ring *r, int32_t steps, kv_gradients *p)
{
    for (int k = 0; k < 2; k++)
        if (steps > 0 && needs(r, rank_after(r, steps), r->rank, k))
            p->received[k] = start_receive(r, TX_F32, rank_after(r, steps), 2 + k);
}

static void send_gradients(const ring *r, int32_t steps, tx_tensor *const dkv[2], kv_gradients *p)
{
    for (int k = 0; k < 2; k++)
        if (steps > 0 && dkv[k])
            p->sent[k] = start_send(r, dkv[k], rank_before(r, steps), 2 + k);
}

/* Adds received gradients to `sum`. */
static void add_received(const ring *r, const kv_gradients *p, tx_tensor *const sum[2])
{
    for (int k = 0; k < 2; k++) {
        take_columns(r, wait_received(r, &p->received[k]), 0, r->others, TX_F32, sum[k]);
        wait_sent(r, &p->sent[k]);
    }
}

static gradients read_gradients(const ring *r)
{
    tx_tensor *const *in = r->node.in;
    gradients g = {.dq = {NULL, NULL}};
    for (int k = 0; k < 2; k++) {
        g.d_o[k] = chunk_of(r, in[TX_IN(attention_grad, d_o)], k);
        g.o[k] = chunk_of(r, in[TX_IN(attention_grad, o)], k);
        g.lse[k] = take_columns(r, in[TX_IN(attention_grad, lse)], k * r->length, r->length, TX_F32, NULL);
    }
    return g;
}

static void differentiate(ring *r)
{
    gradients g = read_gradients(r);
    tx_tensor *sum[2] = {NULL, NULL}, *dqkv[2];
    turn t = first_turn(r);
    kv_gradients before = {.sent = {{0}}};
    for (int32_t s = 0; s < r->size && !r->graph->status; s++) {
        kv_gradients now = {.sent = {{0}}};
        begin_turn(r, s, &t);
        receive_gradients(r, s, &now);
        g.dkv[0] = g.dkv[1] = NULL;
        for (int key = 0; key < 2; key++)
            for (int query = 0; query < 2; query++)
                if (sees(r, query, rank_before(r, s), key))
                    differentiate_pair(r, &t, rank_before(r, s), query, key, &g);
        send_gradients(r, s, g.dkv, &now);
        add_received(r, &before, sum);
        for (int k = 0; k < 2 && s == 0; k++)
            sum[k] = g.dkv[k];
        end_turn(r, &t);
        before = now;
    }
    add_received(r, &before, sum);
    for (int k = 0; k < 2; k++)
        dqkv[k] = join(r, g.dq[k], r->queries, sum[k], r->qkv->dtype, NULL);
    join_chunks(r, dqkv, r->node.out[TX_OUT(attention_grad, dqkv)]);
}

/* ---- The pass ----------------------------------------------------------------------------------------- */

/* Returns the index of operand packed q | k | v, or -1 if the node is not attention. */
static int packed_of(tx_op op)
{
    if (op == TX_OP_ATTENTION)
        return TX_IN(attention, qkv);
    return op == TX_OP_ATTENTION_GRAD ? (int)TX_IN(attention_grad, qkv) : -1;
}

static tx_status check(const tx_node *n, int packed)
{
    if (n->in[packed]->shape.dim[1] % 8 != 0)
        return tx_fail(TX_UNSUPPORTED,
                       "context parallelism: %" PRId64 " positions are not two chunks of a multiple of 4",
                       n->in[packed]->shape.dim[1]);
    return TX_OK;
}

/* Replaces node `at` by the series. */
static tx_status replace(tx_graph *graph, tx_edit *edit, int32_t at)
{
    const tx_model *model = graph->model;
    const int packed = packed_of(graph->node[at].op);
    TX_TRY(check(&graph->node[at], packed));
    ring r = {
        .graph = graph, .node = graph->node[at], .rank = model->mesh.context.rank, .size = model->mesh.context.size};
    r.qkv = r.node.in[packed];
    r.length = r.qkv->shape.dim[1] / 2;
    const int64_t size =
        r.qkv->shape.dim[2] / (r.node.attrs.attention.heads + 2 * (int64_t)r.node.attrs.attention.kv_heads);
    r.queries = r.node.attrs.attention.heads * size;
    r.others = 2 * r.node.attrs.attention.kv_heads * size;
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

static tx_status change(tx_edit *edit, void *state)
{
    tx_graph *graph = state;
    const int32_t end = graph->nodes;
    for (int32_t i = 0; i < end; i++)
        if (packed_of(graph->node[i].op) >= 0 && !graph->node[i].attrs.attention.whole)
            TX_TRY(replace(graph, edit, i));
    return TX_OK;
}

tx_status tx_ring_attention(tx_graph *graph)
{
    return graph->model->mesh.context.size == 1 ? TX_OK : tx_edit_run(graph, change, graph);
}
