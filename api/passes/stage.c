/* SPDX-License-Identifier: Apache-2.0
 *
 * A stage of a pipeline: of the whole model's graph, forward and backward, the nodes of this rank's blocks are left,
 * with messages where a tensor crosses from one stage to the next. What stands in front of the blocks is the first
 * stage's, what stands behind them, the loss too, the last one's. */
#include "api/passes/passes.h"

#include "api/graph/edit.h"
#include "api/parallel/parallel.h"

#include <stdlib.h>

enum { ANYWHERE = -1 };

typedef struct staging {
    tx_graph *graph;
    const tx_model *model;
    tx_edit *edit;
    int32_t end;     /* number of nodes before any was inserted */
    int32_t *stage;  /* by node; ANYWHERE: wherever it is read */
    bool *wanted;    /* by node of ANYWHERE: this stage reads it */
    bool crossed[2]; /* a tensor goes out, by direction */
    bool came[2];
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
    }
}

static tx_status cannot_divide(const char *why)
{
    return tx_fail(TX_UNSUPPORTED,
                   "a pipeline's stages cannot divide this model: %s; train it without a pipeline, or, of experts, "
                   "without their routers' losses",
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

static tx_node node_of(tx_op op, tx_direction direction, int32_t peer, tx_tensor *in, tx_tensor *out)
{
    tx_node node = {.op = op, .direction = direction, .attrs = {.control = -1, .peer = peer}};
    node.in[0] = in;
    node.out[0] = out;
    return node;
}

static tx_status send(staging *s, tx_tensor *t, int32_t peer)
{
    const tx_direction direction = s->graph->node[t->producer].direction;
    const bool back = direction != TX_FORWARD;
    tx_tensor *w = message_of(s, t);
    if (!w || s->crossed[back])
        return w ? cannot_divide("more than one tensor goes from a stage to the next") : s->graph->status;
    s->crossed[back] = true;
    const tx_node out = node_of(TX_OP_SEND, direction, peer, t, w == t ? NULL : w),
                  wait = node_of(TX_OP_WAIT_SENT, direction, peer, w, NULL);
    TX_TRY(tx_edit_insert(s->edit, t->producer + 1, &out, NULL));
    return tx_edit_insert(s->edit, t->producer + 1, &wait, NULL);
}

/* What this stage's nodes read of a tensor that another makes. */
static tx_status receive(staging *s, tx_tensor *t, int32_t peer, int32_t first)
{
    const tx_direction direction = s->graph->node[t->producer].direction;
    const bool back = direction != TX_FORWARD;
    tx_tensor *x = tx_tensor_planned(s->graph, t->dtype, t->shape, TX_ARENA_PLANNED);
    tx_tensor *w = x ? message_of(s, x) : NULL;
    if (!w || s->came[back])
        return w ? cannot_divide("more than one tensor comes to a stage") : s->graph->status;
    s->came[back] = true;
    const tx_node call = node_of(TX_OP_RECEIVE, direction, peer, NULL, w),
                  wait = node_of(TX_OP_WAIT_RECEIVED, direction, peer, w, x);
    TX_TRY(tx_edit_insert(s->edit, first, &call, &w->producer));
    TX_TRY(tx_edit_insert(s->edit, first, &wait, &x->producer));
    tx_edit_replace(s->edit, t, x);
    for (int32_t i = 0; i < s->graph->tensors; i++)
        if (s->graph->tensor[i]->base == t)
            s->graph->tensor[i]->base = x;
    return TX_OK;
}

/* The first stage that reads a tensor and is not its own, and by which node first; ANYWHERE: none. */
static int32_t reader_of(const staging *s, const tx_tensor *t, int32_t own, int32_t *first)
{
    int32_t count;
    const tx_use *use = tx_edit_readers(s->edit, t, &count);
    for (int32_t i = 0; i < count; i++)
        if (s->stage[use[i].node] != own && s->stage[use[i].node] != ANYWHERE) {
            *first = use[i].node;
            return s->stage[use[i].node];
        }
    return ANYWHERE;
}

/* A tensor that one stage makes and another reads goes between neighbours, forward or back. */
static tx_status cross(staging *s, tx_tensor *t)
{
    const int32_t from = t->producer >= 0 ? s->stage[t->producer] : ANYWHERE;
    int32_t first = -1;
    if (from == ANYWHERE || t->is_fixed)
        return TX_OK;
    const int32_t to = reader_of(s, t, from, &first);
    if (to == ANYWHERE)
        return TX_OK;
    if (to - from != (s->graph->node[t->producer].direction == TX_FORWARD ? 1 : -1))
        return cannot_divide("a stage reads what one that is no neighbour makes");
    if (from == s->model->stage)
        return send(s, t, to);
    return to == s->model->stage ? receive(s, t, from, first) : TX_OK;
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

static tx_status check_params(const staging *s, const tx_node *n)
{
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
    tx_node node = node_of(TX_OP_SUM_TIED, TX_BACKWARD, 0, g, g);
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
    for (int32_t i = 0; i < tensors; i++)
        TX_TRY(cross(s, s->graph->tensor[i]));
    find_wanted(s);
    store_first(s);
    TX_TRY(sum_all_tied(s));
    for (int32_t i = 0; i < s->end; i++)
        if (!is_kept(s, i))
            tx_edit_erase(s->edit, i);
        else
            TX_TRY(check_params(s, &s->graph->node[i]));
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
