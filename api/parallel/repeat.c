/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass repeat: a rank's whole step as one graph. The nodes of a micro-batch, forward and backward on each of the rank's
 * stages, are repeated for each micro-batch in the order of the timetable. Each micro-batch has its own tensors. The
 * planner thus allocates memory for as many micro-batches as the schedule keeps at a time. */
#include "api/parallel/parallel.h"

#include "api/graph/edit.h"
#include "api/parallel/buckets.h"
#include "api/parallel/timetable.h"

#include <stdlib.h>
#include <string.h>

typedef struct repeating {
    tx_graph *graph;
    tx_edit *edit;
    int32_t nodes, tensors; /* of one micro-batch */
    int32_t backward;       /* its first node after the forward pass */
    int32_t micro_batches;
    tx_timetable table;
    int32_t *chunk;    /* by node: index of the stage on this rank */
    int32_t *times;    /* by node: number of its copies so far */
    int32_t *producer; /* by tensor: the node of the micro-batch that produces it */
} repeating;

/* ---- Tensors ------------------------------------------------------------------------------------------ */

/* Whether each micro-batch has its own copy of the tensor. */
static bool is_own(tx_tensor *t)
{
    const tx_tensor *root = tx_tensor_root(t);
    return !root->is_fixed && tx_arena_info_of(root->arena)->placed;
}

/* Returns the tensor of micro-batch `m`; NULL on failure, which the graph records. */
static tx_tensor *tensor_of(const repeating *r, tx_tensor *t, int32_t m)
{
    tx_graph *g = r->graph;
    if (!t || !is_own(t) || m == 0)
        return t;
    tx_tensor **made = &g->repeated[m * r->tensors + t->id];
    if (*made)
        return *made;
    tx_tensor *copy = tx_tensor_planned(g, t->dtype, t->shape, t->arena);
    if (!copy)
        return NULL;
    *made = copy;
    copy->requires_grad = t->requires_grad;
    copy->is_output = t->is_output;
    copy->is_input = t->is_input;
    copy->range = t->range;
    copy->within = t->within;
    if (t->base)
        copy->base = tensor_of(r, t->base, m);
    if (t->name && !(copy->name = strdup(t->name)))
        tx_graph_fail(g, tx_fail(TX_MEMORY, "no memory for a name"));
    return t->base && !copy->base ? NULL : copy;
}

/* ---- Nodes -------------------------------------------------------------------------------------------- */

/* Appends node `i` for micro-batch `m`. */
static tx_status append(const repeating *r, int32_t i, int32_t m)
{
    tx_node node = r->graph->node[i];
    int32_t number;
    node.attrs.exchange.micro_batch = m;
    if (node.attrs.accumulate == TX_ADD_CONTROL) /* results and gradients of parameters */
        node.attrs.accumulate = r->times[i] ? TX_ADD : TX_STORE;
    r->times[i]++;
    for (int k = 0; k < TX_MAX_IN; k++)
        if (node.in[k] && !(node.in[k] = tensor_of(r, node.in[k], m)))
            return r->graph->status;
    bool makes[TX_MAX_OUT];
    for (int k = 0; k < TX_MAX_OUT; k++) {
        makes[k] = node.out[k] && r->producer[node.out[k]->id] == i;
        if (node.out[k] && !(node.out[k] = tensor_of(r, node.out[k], m)))
            return r->graph->status;
    }
    TX_TRY(tx_edit_insert(r->edit, TX_EDIT_END, &node, &number));
    for (int k = 0; k < TX_MAX_OUT; k++)
        if (makes[k])
            node.out[k]->producer = number;
    return TX_OK;
}

/* Returns the kind of turn that includes a node. Messages within a stage belong to its computation. */
static tx_turn_kind turn_of(const tx_node *n)
{
    if (n->attrs.exchange.around)
        return TX_TURN_COMPUTE;
    switch (n->op) {
    case TX_OP_RECEIVE:
        return TX_TURN_RECEIVE;
    case TX_OP_WAIT_RECEIVED:
        return TX_TURN_RECEIVED;
    case TX_OP_SEND:
        return TX_TURN_SEND;
    case TX_OP_WAIT_SENT:
        return TX_TURN_SENT;
    default:
        return TX_TURN_COMPUTE;
    }
}

/* Returns the chunk of a message. The number of a sent message includes it (pass `stage`). A received one has the same
 * chunk unless it comes from the other end of the ranks. */
static int32_t chunk_of_message(const tx_model *model, const tx_node *n)
{
    const int32_t from = n->attrs.exchange.bucket / (2 * TX_CROSSINGS), last = model->mesh.pipeline.size - 1;
    const bool comes = n->op == TX_OP_RECEIVE || n->op == TX_OP_WAIT_RECEIVED, back = n->direction != TX_FORWARD;
    const int32_t end = back ? 0 : last;
    return comes && n->attrs.exchange.peer == end && model->mesh.pipeline.rank == last - end ? from + (back ? -1 : 1)
                                                                                             : from;
}

/* Nodes without a block belong to the chunk of the nodes before them. The forward pass starts with the first chunk, the
 * backward pass with the last. */
static void find_chunks(const repeating *r)
{
    const tx_model *model = r->graph->model;
    int32_t now = 0;
    for (int32_t i = 0; i < r->nodes; i++) {
        const tx_node *n = &r->graph->node[i];
        if (i == r->backward)
            now = model->mesh.stages / model->mesh.pipeline.size - 1;
        if (n->block > 0)
            now = tx_model_stage_of(model, n->block) / model->mesh.pipeline.size;
        r->chunk[i] = turn_of(n) == TX_TURN_COMPUTE ? now : chunk_of_message(model, n);
    }
}

/* Whether the ranks do this once a step, after the last micro-batch, when all gradients of a bucket exist. The sum of a
 * tied table, and nodes that depend on it, come when no other stage waits for this one. */
static bool is_once_a_step(const repeating *r, const tx_node *n)
{
    const tx_parallel *p = r->graph->model->parallel;
    if (n->op == TX_OP_SUM_TIED)
        return true;
    for (int32_t i = 0; i < r->nodes && n->op == TX_OP_REDUCE_GRADIENTS; i++) {
        const tx_node *tied = &r->graph->node[i];
        if (tied->op == TX_OP_SUM_TIED &&
            tx_parallel_bucket_at(p, TX_ARENA_WEIGHTS, tied->in[0]->offset) == n->attrs.exchange.bucket)
            return true;
    }
    return false;
}

static tx_status append_begin(const repeating *r, bool backward, int32_t m)
{
    const tx_node pass = {.op = TX_OP_BEGIN_MICRO_BATCH,
                          .direction = backward ? TX_BACKWARD : TX_FORWARD,
                          .attrs = {.control = -1, .exchange.micro_batch = m}};
    return tx_edit_insert(r->edit, TX_EDIT_END, &pass, NULL);
}

static tx_status append_turn(const repeating *r, const tx_turn *t)
{
    const int32_t first = t->backward ? r->backward : 0, end = t->backward ? r->nodes : r->backward;
    if (t->kind == TX_TURN_COMPUTE)
        TX_TRY(append_begin(r, t->backward, t->micro_batch));
    for (int32_t i = first; i < end; i++) {
        const tx_node *n = &r->graph->node[i];
        const bool sums = n->op == TX_OP_REDUCE_GRADIENTS || n->op == TX_OP_SUM_REPLICAS,
                   early = sums && t->micro_batch < r->micro_batches - 1,
                   late = n->op == TX_OP_WAIT_WEIGHTS && t->micro_batch > 0;
        if (turn_of(n) == t->kind && r->chunk[i] == t->chunk && !early && !late && !is_once_a_step(r, n))
            TX_TRY(append(r, i, t->micro_batch));
    }
    return TX_OK;
}

static tx_status append_all(const repeating *r)
{
    for (int32_t i = 0; i < r->table.turns; i++)
        TX_TRY(append_turn(r, &r->table.turn[i]));
    for (int32_t i = 0; i < r->nodes; i++)
        if (is_once_a_step(r, &r->graph->node[i]))
            TX_TRY(append(r, i, r->micro_batches - 1));
    for (int32_t i = 0; i < r->nodes; i++)
        tx_edit_erase(r->edit, i);
    return TX_OK;
}

/* ---- The pass ----------------------------------------------------------------------------------------- */

static tx_status change(tx_edit *edit, void *state)
{
    repeating *r = state;
    tx_graph *graph = r->graph;
    const size_t nodes = (size_t)r->nodes, tensors = (size_t)r->tensors;
    r->edit = edit;
    r->chunk = tx_edit_alloc(edit, nodes, sizeof *r->chunk);
    r->times = tx_edit_alloc(edit, nodes, sizeof *r->times);
    r->producer = tx_edit_alloc(edit, tensors, sizeof *r->producer);
    TX_TRY(tx_edit_check(edit));
    graph->repeats = r->micro_batches;
    graph->repeated_tensors = r->tensors;
    graph->repeated = calloc((size_t)r->micro_batches * tensors, sizeof(tx_tensor *));
    if (!graph->repeated)
        return tx_fail(TX_MEMORY, "no memory to repeat a graph for each micro-batch");
    for (int32_t i = 0; i < r->tensors; i++)
        r->producer[i] = graph->tensor[i]->producer;
    find_chunks(r);
    const tx_mesh *mesh = &graph->model->mesh;
    TX_TRY(tx_timetable_make(graph->model->parallel->options.schedule, mesh->pipeline.rank, mesh->pipeline.size,
                             mesh->stages / mesh->pipeline.size, r->micro_batches, &r->table));
    for (int32_t i = 0; i < r->tensors; i++) /* also inputs that this stage does not read */
        for (int32_t m = 1; m < r->micro_batches && graph->tensor[i]->is_input; m++)
            if (!tensor_of(r, graph->tensor[i], m))
                return graph->status;
    return append_all(r);
}

tx_status tx_repeat(tx_graph *graph)
{
    repeating r = {.graph = graph, .nodes = graph->nodes, .tensors = graph->tensors};
    while (r.backward < r.nodes && graph->node[r.backward].direction == TX_FORWARD)
        r.backward++;
    if (graph->model->mesh.stages == 1 || r.backward == r.nodes || graph->node[r.backward].direction == TX_UPDATE)
        return TX_OK;
    r.micro_batches = graph->model->parallel->options.micro_batches;
    const tx_status status = tx_edit_run(graph, change, &r);
    tx_timetable_free(&r.table);
    return status;
}
