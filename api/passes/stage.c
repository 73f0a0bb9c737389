/* SPDX-License-Identifier: Apache-2.0
 *
 * A stage of a pipeline: of the whole model's graph, forward and backward, the nodes of this rank's blocks are left,
 * with messages where a tensor crosses from one stage to the next. What stands in front of the blocks is the first
 * stage's, what stands behind them, the loss too, the last one's. Where one process has all stages, each on a device,
 * what crosses is an output of the one and an input of the next. */
#include "api/passes/passes.h"

#include "api/graph/edit.h"
#include "api/parallel/parallel.h"

#include <stdlib.h>

enum { ANYWHERE = -1 };

typedef struct staging {
    tx_graph *graph;
    const tx_model *model;
    tx_edit *edit;
    int32_t end;               /* number of nodes before any was inserted */
    int32_t *stage;            /* by node; ANYWHERE: wherever it is read */
    bool *wanted;              /* by node of ANYWHERE: this stage reads it */
    int32_t first[2], last[2]; /* of this stage's nodes, by direction: forward, and back */
    int32_t gone[2], come[2];  /* tensors, likewise */
} staging;

/* ---- Whose a node is ---------------------------------------------------------------------------------- */

/* Whether a node makes what it makes of parameters and inputs alone, at no cost: each stage that reads it has it. */
static bool is_anywhere(const staging *s, const tx_node *n)
{
    if (n->op != TX_OP_PARAM && n->op != TX_OP_COPY_OF_PARAM && n->op != TX_OP_CAST && n->op != TX_OP_RESHAPE)
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
    const int32_t last = s->model->stages - 1;
    bool in_blocks[2] = {false, false}; /* forward, and else */
    for (int32_t i = 0; i < s->end; i++) {
        const tx_node *n = &s->graph->node[i];
        const bool back = n->direction != TX_FORWARD;
        in_blocks[back] = in_blocks[back] || n->block > 0;
        s->stage[i] = is_anywhere(s, n)          ? ANYWHERE
                      : n->block > 0             ? tx_model_stage_of(s->model, n->block)
                      : in_blocks[back] == !back ? last
                                                 : 0;
        if (s->stage[i] == s->model->stage) {
            s->first[back] = s->first[back] < 0 ? i : s->first[back];
            s->last[back] = i;
        }
    }
}

static tx_status cannot_divide(const char *why)
{
    return tx_fail(TX_UNSUPPORTED, "stages cannot divide this model: %s; take it without a pipeline, on one device",
                   why);
}

/* ---- What crosses ------------------------------------------------------------------------------------- */

/* Where a message lies: in the tensor itself where the device's memory is the host's. */
static tx_tensor *message_of(const staging *s, tx_tensor *x)
{
    if (s->model->engine->backend->host_memory)
        return x;
    return tx_tensor_planned(s->graph, x->dtype, x->shape, TX_ARENA_EXCHANGE);
}

tx_node tx_message_node(tx_op op, tx_direction direction, int32_t peer, int32_t number, tx_tensor *in, tx_tensor *out)
{
    tx_node node = {.op = op, .direction = direction, .attrs = {.control = -1, .peer = peer, .bucket = number}};
    node.in[0] = in;
    node.out[0] = out;
    return node;
}

static tx_status check_crossings(int32_t number)
{
    return number < TX_CROSSINGS ? TX_OK : cannot_divide("too many tensors go from a stage to the next");
}

/* Sends a tensor from node `at` on. What goes out is waited for when all is computed, so that no stage waits here for
 * one that waits for what is computed below. */
static tx_status send(staging *s, tx_tensor *t, tx_direction direction, int32_t peer, int32_t at)
{
    const bool back = direction != TX_FORWARD;
    const int32_t number = s->gone[back]++;
    TX_TRY(check_crossings(number));
    if (tx_model_is_divided(s->model)) {
        tx_tensor_root(t)->is_output = true;
        s->graph->gone[number] = t;
        return TX_OK;
    }
    tx_tensor *w = message_of(s, t);
    if (!w)
        return s->graph->status;
    const tx_node out = tx_message_node(TX_OP_SEND, direction, peer, number, t, w == t ? NULL : w),
                  wait = tx_message_node(TX_OP_WAIT_SENT, direction, peer, number, w, NULL);
    TX_TRY(tx_edit_insert(s->edit, at, &out, NULL));
    return tx_edit_insert(s->edit, s->last[back] + 1, &wait, NULL);
}

/* Calls for what crosses before all else, and waits for it at node `at`. */
static tx_status call_for(staging *s, tx_tensor *x, tx_direction direction, int32_t peer, int32_t number, int32_t at)
{
    const bool back = direction != TX_FORWARD;
    tx_tensor *w = message_of(s, x);
    if (!w)
        return s->graph->status;
    const tx_node call = tx_message_node(TX_OP_RECEIVE, direction, peer, number, NULL, w),
                  wait = tx_message_node(TX_OP_WAIT_RECEIVED, direction, peer, number, w, x);
    TX_TRY(tx_edit_insert(s->edit, s->first[back], &call, &w->producer));
    return tx_edit_insert(s->edit, at, &wait, &x->producer);
}

/* What this stage has of a tensor that another makes; node `at` is the first that reads it here. */
static tx_status receive(staging *s, tx_tensor *t, tx_direction direction, int32_t peer, int32_t at, tx_tensor **here)
{
    const bool divided = tx_model_is_divided(s->model);
    const int32_t number = s->come[direction != TX_FORWARD]++;
    TX_TRY(check_crossings(number));
    tx_tensor *x = divided ? tx_input(s->graph, "what the device before gives", t->dtype, t->shape)
                           : tx_tensor_planned(s->graph, t->dtype, t->shape, TX_ARENA_PLANNED);
    if (!x)
        return s->graph->status;
    if (divided)
        s->graph->come[number] = x;
    else
        TX_TRY(call_for(s, x, direction, peer, number, at));
    tx_edit_replace(s->edit, t, x);
    for (int32_t i = 0; i < s->graph->tensors; i++)
        if (s->graph->tensor[i]->base == t)
            s->graph->tensor[i]->base = x;
    *here = x;
    return TX_OK;
}

/* The stage furthest from its own that reads a tensor, ANYWHERE where none does, and the first node by which this stage
 * does. */
static int32_t furthest_reader(const staging *s, const tx_tensor *t, int32_t from, int32_t *at)
{
    int32_t count, furthest = ANYWHERE;
    const tx_use *use = tx_edit_readers(s->edit, t, &count);
    for (int32_t i = 0; i < count; i++) {
        const int32_t stage = s->stage[use[i].node];
        if (stage == s->model->stage && *at < 0)
            *at = use[i].node;
        if (stage != from && stage != ANYWHERE && (furthest == ANYWHERE || abs(stage - from) > abs(furthest - from)))
            furthest = stage;
    }
    return furthest;
}

/* A tensor that one stage makes and another reads goes from neighbour to neighbour, forward or back. */
static tx_status cross(staging *s, tx_tensor *t)
{
    const int32_t from = t->producer >= 0 ? s->stage[t->producer] : ANYWHERE, own = s->model->stage;
    int32_t at = -1;
    if (from == ANYWHERE || t->is_fixed)
        return TX_OK;
    const int32_t to = furthest_reader(s, t, from, &at);
    if (to == ANYWHERE)
        return TX_OK;
    const tx_direction direction = s->graph->node[t->producer].direction;
    const int32_t step = direction == TX_FORWARD ? 1 : -1;
    if ((to - from) * step < 0)
        return cannot_divide("a stage reads what a later one makes");
    if (own == from)
        return send(s, t, direction, own + step, t->producer + 1);
    if ((own - from) * step < 0 || (to - own) * step < 0)
        return TX_OK;
    at = at < 0 ? s->first[step < 0] : at;
    TX_TRY(receive(s, t, direction, own - step, at, &t));
    return own == to ? TX_OK : send(s, t, direction, own + step, at);
}

/* ---- What is left ------------------------------------------------------------------------------------- */

static bool is_kept(const staging *s, int32_t node)
{
    return s->stage[node] == ANYWHERE ? s->wanted[node] : s->stage[node] == s->model->stage;
}

/* Nodes of any stage whose results this one reads, from the last to the first. */
static void find_wanted(staging *s)
{
    for (int32_t i = s->end - 1; i >= 0; i--)
        for (int k = 0; k < TX_MAX_IN && is_kept(s, i); k++) {
            const tx_tensor *t = s->graph->node[i].in[k];
            if (t && t->producer >= 0 && t->producer < s->end)
                s->wanted[t->producer] = true;
        }
}

/* What a node that is left reads and keeps its value is to be this stage's. */
static tx_status check_kept(const staging *s, const tx_node *n)
{
    for (int k = 0; k < TX_MAX_IN; k++) {
        const tx_tensor *t = n->in[k];
        const tx_state_record *state =
            t && t->name && t->arena == TX_ARENA_STATE ? tx_model_find_state(s->model, t->name) : NULL;
        if (state && state->absent)
            return tx_fail_in(cannot_divide("another stage than its own reads it"), "state %s", t->name);
    }
    const int32_t param = n->op == TX_OP_PARAM ? n->out[0]->param : -1;
    if (param >= 0 && s->model->param[param].absent)
        return tx_fail_in(cannot_divide("another stage than its own reads it"), "parameter %s",
                          s->model->param[param].name);
    return TX_OK;
}

/* The first node that is left of those which write a parameter's gradient stores it. */
static void store_first(const staging *s)
{
    const tx_graph *g = s->graph;
    for (int32_t i = 0; i < s->end; i++)
        for (int k = 0; k < TX_MAX_OUT && is_kept(s, i); k++) {
            const tx_tensor *t = g->node[i].out[k] ? tx_tensor_root(g->node[i].out[k]) : NULL;
            bool first = t && t->arena == TX_ARENA_GRADIENTS && g->node[i].attrs.accumulate == TX_ADD;
            for (int32_t before = 0; before < i && first; before++)
                for (int b = 0; b < TX_MAX_OUT && is_kept(s, before); b++) {
                    const tx_tensor *o = g->node[before].out[b] ? tx_tensor_root(g->node[before].out[b]) : NULL;
                    first = first && !(o && o->arena == TX_ARENA_GRADIENTS && o->offset == t->offset);
                }
            if (first)
                g->node[i].attrs.accumulate = TX_ADD_CONTROL;
        }
}

/* ---- Tied parameters ---------------------------------------------------------------------------------- */

/* The gradient of what the first stage has and the last is the sum of theirs, once both are there. */
static tx_status sum_tied(const staging *s, const tx_param_record *r)
{
    int32_t last = -1;
    for (int32_t i = 0; i < s->end; i++)
        for (int k = 0; k < TX_MAX_OUT && is_kept(s, i); k++) {
            const tx_tensor *t = s->graph->node[i].out[k] ? tx_tensor_root(s->graph->node[i].out[k]) : NULL;
            last = t && t->arena == TX_ARENA_GRADIENTS && t->offset == r->offset ? i : last;
        }
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
        if (tx_model_ties(s->model, i))
            TX_TRY(sum_tied(s, &s->model->param[i]));
    return TX_OK;
}

/* ---- The pass ----------------------------------------------------------------------------------------- */

static tx_status cut(staging *s)
{
    const int32_t tensors = s->graph->tensors;
    find_stages(s);
    if (s->first[0] < 0)
        return cannot_divide("one of them has no block");
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
    staging s = {.graph = graph, .model = graph->model, .end = graph->nodes, .first = {-1, -1}};
    bool blocks = false, params = false;
    for (int32_t i = 0; i < graph->nodes; i++) {
        blocks = blocks || graph->node[i].block > 0;
        params = params || graph->node[i].op == TX_OP_PARAM;
    }
    if (graph->model->stages == 1 || !params) /* an update works on what the rank has */
        return TX_OK;
    if (!blocks)
        return tx_fail(TX_UNSUPPORTED,
                       "a pipeline's stages have blocks of the graph (tx_graph_block), and it has none");
    s.stage = calloc((size_t)s.end + 1, sizeof *s.stage);
    s.wanted = calloc((size_t)s.end + 1, sizeof *s.wanted);
    tx_status status = s.stage && s.wanted ? TX_OK : tx_fail(TX_MEMORY, "no memory to cut a graph into stages");
    TX_THEN(status, tx_edit_open(graph, &s.edit));
    TX_THEN(status, cut(&s));
    if (!status)
        status = tx_edit_commit(s.edit);
    else
        tx_edit_discard(s.edit);
    free(s.stage);
    free(s.wanted);
    return status;
}
