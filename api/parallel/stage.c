/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass stage: keeps the nodes of this rank's pipeline stages, forward and backward, and inserts messages for tensors
 * that cross from one stage to the next. Nodes before the blocks belong to the first stage, nodes after them (also the
 * loss) to the last. Ranks with several stages have them in turn, so that neighbouring stages are on different ranks. A
 * tensor that a rank has received is also read by its later stages. If one process has all stages on different devices,
 * a crossing tensor is an output of one graph and an input of the next. */
#include "api/parallel/parallel.h"

#include "api/graph/edit.h"
#include "api/parallel/buckets.h"

#include <stdlib.h>

enum { ANYWHERE = -1 };

typedef struct staging {
    tx_graph *graph;
    const tx_model *model;
    tx_edit *edit;
    int32_t end;    /* number of nodes before the pass inserts any */
    int32_t *stage; /* by node; ANYWHERE for nodes of every stage that reads them */
    bool *wanted;   /* by node of ANYWHERE: this rank reads it */
    struct span {
        int32_t first, last, sent; /* first and last node, -1 if none; tensors sent from it */
    } * span[2];                   /* by direction (forward, backward) and stage */
} staging;

/* ---- Stages of nodes ---------------------------------------------------------------------------------- */

/* Whether a node depends only on parameters and inputs and is cheap. Each stage that reads it then computes it. */
static bool is_in_every_stage(const staging *s, const tx_node *n)
{
    if (n->op != TX_OP_PARAM && n->op != TX_OP_RANGE && !tx_op_is_same(n->op))
        return false;
    for (int k = 0; k < TX_MAX_IN; k++) {
        const tx_tensor *t = n->in[k];
        if (t && t->producer >= 0 && s->stage[t->producer] != ANYWHERE)
            return false;
    }
    return true;
}

static void find_stages(staging *s)
{
    const int32_t last = s->model->mesh.stages - 1;
    bool in_blocks[2] = {false, false}; /* forward, backward */
    for (int32_t i = 0; i < s->end; i++) {
        const tx_node *n = &s->graph->node[i];
        const bool back = n->direction != TX_FORWARD;
        in_blocks[back] = in_blocks[back] || n->block > 0;
        s->stage[i] = is_in_every_stage(s, n)    ? ANYWHERE
                      : n->block > 0             ? tx_model_stage_of(s->model, n->block)
                      : in_blocks[back] == !back ? last
                                                 : 0;
        struct span *own = s->stage[i] == ANYWHERE ? NULL : &s->span[back][s->stage[i]];
        if (own) {
            own->first = own->first < 0 ? i : own->first;
            own->last = i;
        }
    }
}

static tx_status cannot_divide(const char *why)
{
    return tx_fail(TX_UNSUPPORTED,
                   "this model cannot be divided into stages: %s; run it without a pipeline, on one device", why);
}

/* ---- Crossing tensors ------------------------------------------------------------------------------------- */

/* Returns the buffer of a message, which is the tensor itself if the device shares the host's memory. */
static tx_tensor *message_of(const staging *s, tx_tensor *x)
{
    if (s->model->engine->backend->host_memory)
        return x;
    return tx_tensor_planned(s->graph, x->dtype, x->shape, TX_ARENA_EXCHANGE);
}

tx_node tx_message_node(tx_op op, tx_direction direction, int32_t peer, int32_t number, tx_tensor *in, tx_tensor *out)
{
    tx_node node = {
        .op = op, .direction = direction, .attrs = {.control = -1, .exchange.peer = peer, .exchange.bucket = number}};
    node.in[0] = in;
    node.out[0] = out;
    return node;
}

/* A crossing of a tensor from one stage to the next. All ranks count all crossings, so that both ends have equal
 * numbers. */
typedef struct crossing {
    tx_direction direction;
    int32_t from, to; /* stages */
    int32_t number;   /* index among the crossings between these stages */
} crossing;

static tx_node node_of(const staging *s, const crossing *h, tx_op op, tx_tensor *in, tx_tensor *out)
{
    const int32_t peer = (op == TX_OP_SEND || op == TX_OP_WAIT_SENT ? h->to : h->from) % s->model->mesh.pipeline.size;
    const int32_t chunk = h->from / s->model->mesh.pipeline.size, back = h->direction != TX_FORWARD;
    return tx_message_node(op, h->direction, peer, (2 * chunk + back) * TX_CROSSINGS + h->number, in, out);
}

/* Sends a tensor from node `at` on. The host waits for it after all computation of the stage, to prevent a
 * deadlock with a stage that waits for later results of this one. */
static tx_status start_send(staging *s, tx_tensor *t, const crossing *h, int32_t at)
{
    if (tx_model_is_divided(s->model)) {
        tx_tensor_root(t)->is_output = true;
        s->graph->sent[h->number] = t;
        return TX_OK;
    }
    tx_tensor *w = message_of(s, t);
    if (!w)
        return s->graph->status;
    const tx_node out = node_of(s, h, TX_OP_SEND, t, w == t ? NULL : w), wait = node_of(s, h, TX_OP_WAIT_SENT, w, NULL);
    TX_TRY(tx_edit_insert(s->edit, at, &out, NULL));
    return tx_edit_insert(s->edit, s->span[h->direction != TX_FORWARD][h->from].last + 1, &wait, NULL);
}

/* Starts to receive before all other nodes of the stage, and waits at node `at`. */
static tx_status start_receive(staging *s, tx_tensor *x, const crossing *h, int32_t at)
{
    tx_tensor *w = message_of(s, x);
    if (!w)
        return s->graph->status;
    const tx_node call = node_of(s, h, TX_OP_RECEIVE, NULL, w), wait = node_of(s, h, TX_OP_WAIT_RECEIVED, w, x);
    TX_TRY(tx_edit_insert(s->edit, s->span[h->direction != TX_FORWARD][h->to].first, &call, &w->producer));
    return tx_edit_insert(s->edit, at, &wait, &x->producer);
}

/* Creates this rank's copy of a tensor that another rank produces. Node `at` is its first reader in the stage. */
static tx_status receive(staging *s, tx_tensor *t, const crossing *h, int32_t at, tx_tensor **here)
{
    const bool divided = tx_model_is_divided(s->model);
    tx_tensor *x = divided ? tx_input(s->graph, "input from the previous device", t->dtype, t->shape)
                           : tx_tensor_planned(s->graph, t->dtype, t->shape, TX_ARENA_PLANNED);
    if (!x)
        return s->graph->status;
    if (divided)
        s->graph->received[h->number] = x;
    else
        TX_TRY(start_receive(s, x, h, at));
    tx_edit_replace(s->edit, t, x);
    for (int32_t i = 0; i < s->graph->tensors; i++)
        if (s->graph->tensor[i]->base == t)
            s->graph->tensor[i]->base = x;
    *here = x;
    return TX_OK;
}

/* Returns the stage furthest from stage `from` that reads a tensor, or ANYWHERE. */
static int32_t furthest_reader(const staging *s, const tx_tensor *t, int32_t from)
{
    int32_t count, furthest = ANYWHERE;
    const tx_use *use = tx_edit_readers(s->edit, t, &count);
    for (int32_t i = 0; i < count; i++) {
        const int32_t stage = s->stage[use[i].node];
        if (stage != from && stage != ANYWHERE && (furthest == ANYWHERE || abs(stage - from) > abs(furthest - from)))
            furthest = stage;
    }
    return furthest;
}

/* Returns the first node of a stage that reads a tensor, or the stage's first node. */
static int32_t first_reader(const staging *s, const tx_tensor *t, int32_t stage, bool back)
{
    int32_t count;
    const tx_use *use = tx_edit_readers(s->edit, t, &count);
    for (int32_t i = 0; i < count; i++)
        if (s->stage[use[i].node] == stage)
            return use[i].node;
    return s->span[back][stage].first;
}

/* Sends a tensor that one stage produces and another reads from neighbour to neighbour, forward or backward, until its
 * last reader or every rank has it. */
static tx_status cross(staging *s, tx_tensor *t)
{
    const int32_t from = t->producer >= 0 ? s->stage[t->producer] : ANYWHERE;
    const int32_t to = from == ANYWHERE || t->is_fixed ? ANYWHERE : furthest_reader(s, t, from);
    if (to == ANYWHERE)
        return TX_OK;
    crossing h = {.direction = s->graph->node[t->producer].direction, .from = from};
    const bool back = h.direction != TX_FORWARD;
    const int32_t step = back ? -1 : 1;
    int32_t at = t->producer + 1;
    if ((to - from) * step < 0)
        return cannot_divide("a stage reads a result of a later one");
    for (int32_t crossings = 1; h.from != to && crossings < s->model->mesh.pipeline.size; crossings++, h.from = h.to) {
        h.to = h.from + step;
        h.number = s->span[back][h.from].sent++;
        if (h.number == TX_CROSSINGS)
            return cannot_divide("too many tensors cross from one stage to the next");
        if (tx_model_has_stage(s->model, h.from))
            TX_TRY(start_send(s, t, &h, at));
        if (tx_model_has_stage(s->model, h.to)) {
            at = first_reader(s, t, h.to, back);
            TX_TRY(receive(s, t, &h, at, &t));
        }
    }
    return TX_OK;
}

/* ---- Kept nodes ------------------------------------------------------------------------------------- */

static bool is_kept(const staging *s, int32_t node)
{
    return s->stage[node] == ANYWHERE ? s->wanted[node] : tx_model_has_stage(s->model, s->stage[node]);
}

/* Marks nodes of ANYWHERE whose results this rank reads, from the last to the first. */
static void find_wanted(staging *s)
{
    for (int32_t i = s->end - 1; i >= 0; i--)
        for (int k = 0; k < TX_MAX_IN && is_kept(s, i); k++) {
            const tx_tensor *t = s->graph->node[i].in[k];
            if (t && t->producer >= 0 && t->producer < s->end)
                s->wanted[t->producer] = true;
        }
}

/* Checks that states and parameters that a kept node reads belong to this stage. */
static tx_status check_kept(const staging *s, const tx_node *n)
{
    for (int k = 0; k < TX_MAX_IN; k++) {
        const tx_tensor *t = n->in[k];
        const tx_state_record *state =
            t && t->name && tx_arena_has_states(t->arena) ? tx_model_find_state(s->model, t->name) : NULL;
        if (state && state->absent)
            return tx_fail_in(cannot_divide("another stage than its own reads it"), "state %s", t->name);
    }
    const int32_t param = n->op == TX_OP_PARAM ? n->out[0]->param : -1;
    if (param >= 0 && s->model->param[param].absent)
        return tx_fail_in(cannot_divide("another stage than its own reads it"), "parameter %s",
                          s->model->param[param].name);
    return TX_OK;
}

/* The first kept node that writes a parameter's gradient must store it. */
static void store_first(const staging *s)
{
    const tx_graph *g = s->graph;
    for (int32_t i = 0; i < s->end; i++)
        for (int k = 0; k < TX_MAX_OUT && is_kept(s, i); k++) {
            const tx_tensor *t = g->node[i].out[k] ? tx_tensor_root(g->node[i].out[k]) : NULL;
            bool first = t && t->arena == TX_ARENA_GRADIENTS && g->node[i].attrs.accumulate == TX_ADD;
            for (int32_t before = 0; before < i && first; before++)
                first = !is_kept(s, before) || !tx_edit_writes_gradient(&g->node[before], t->offset);
            if (first)
                g->node[i].attrs.accumulate = TX_ADD_CONTROL;
        }
}

/* ---- Tied parameters ---------------------------------------------------------------------------------- */

/* Sums the gradient of a tied parameter over the first and the last stage, after both have computed it. */
static tx_status sum_tied(const staging *s, const tx_param_record *r)
{
    int32_t last = -1;
    for (int32_t i = 0; i < s->end; i++)
        last = is_kept(s, i) && tx_edit_writes_gradient(&s->graph->node[i], r->offset) ? i : last;
    if (last < 0)
        return TX_OK;
    tx_tensor *g = tx_tensor_fixed(s->graph, s->model->stored, r->spec.shape, TX_ARENA_GRADIENTS, r->offset);
    tx_tensor *w = g ? message_of(s, g) : NULL;
    if (!w)
        return s->graph->status;
    tx_node node = tx_message_node(TX_OP_SUM_TIED, TX_BACKWARD, 0, 0, g, g);
    node.out[TX_OUT(sum_tied, w)] = w == g ? NULL : w;
    return tx_edit_insert(s->edit, last + 1, &node, NULL);
}

static tx_status sum_all_tied(const staging *s)
{
    for (int32_t i = 0; i < s->model->params; i++)
        if (tx_model_ties(s->model, i) && !s->model->param[i].spec.frozen)
            TX_TRY(sum_tied(s, &s->model->param[i]));
    return TX_OK;
}

/* ---- The pass ----------------------------------------------------------------------------------------- */

static tx_status change(tx_edit *edit, void *state)
{
    staging *s = state;
    const int32_t tensors = s->graph->tensors, stages = s->model->mesh.stages;
    s->edit = edit;
    s->stage = tx_edit_alloc(edit, (size_t)s->end, sizeof *s->stage);
    s->wanted = tx_edit_alloc(edit, (size_t)s->end, sizeof *s->wanted);
    for (int back = 0; back < 2; back++)
        s->span[back] = tx_edit_alloc(edit, (size_t)stages, sizeof *s->span[back]);
    TX_TRY(tx_edit_check(edit));
    for (int32_t i = 0; i < stages; i++)
        s->span[0][i].first = s->span[1][i].first = -1;
    find_stages(s);
    for (int32_t i = 0; i < stages; i++)
        if (s->span[0][i].first < 0)
            return cannot_divide("a stage has no block");
    for (int32_t i = 0; i < tensors; i++)
        TX_TRY(cross(s, s->graph->tensor[i]));
    find_wanted(s);
    store_first(s);
    TX_TRY(sum_all_tied(s));
    for (int32_t i = 0; i < s->end; i++)
        if (!is_kept(s, i))
            tx_edit_erase(s->edit, i);
        else
            TX_TRY(check_kept(s, &s->graph->node[i]));
    return TX_OK;
}

tx_status tx_stage(tx_graph *graph)
{
    staging s = {.graph = graph, .model = graph->model, .end = graph->nodes};
    bool blocks = false, params = false;
    for (int32_t i = 0; i < graph->nodes; i++) {
        blocks = blocks || graph->node[i].block > 0;
        params = params || graph->node[i].op == TX_OP_PARAM;
    }
    if (graph->model->mesh.stages == 1 || !params) /* an update plan is already restricted to this rank */
        return TX_OK;
    if (!blocks)
        return tx_fail(TX_UNSUPPORTED, "a pipeline needs a graph with blocks (tx_graph_block)");
    return tx_edit_run(graph, change, &s);
}
