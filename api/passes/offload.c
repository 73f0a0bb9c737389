/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer states, and weights, that lie outside the device's memory (Rajbhandari et al., ZeRO-Infinity, 2021). Nodes
 * of updates compute what they computed before, on tensors that the planner places: so every optimizer is offloaded
 * alike, with the same bits. Other graphs read copies of weights.
 *
 *     transfer queue    fetch 1   fetch 2   put back 1   fetch 3   put back 2   ..
 *     compute queue               update 1               update 2               ..
 *
 * What lies in a file is read into host memory one update earlier, and written when it has been put back there. Where
 * the device's memory is the host's, updates compute there:
 *
 *     file                read 1, 2   read 3     write 1, read 4   ..
 *     compute queue                   update 1   update 2          .. */
#include "api/passes/passes.h"

#include "api/base/swap.h"
#include "api/graph/edit.h"
#include "api/model/model.h"

#include <stdlib.h>

/* Places of states in host memory on their way: one is read, one copied to the device, one put back, one written; or
 * two are read, one is updated, one written. */
#define SLOTS 4

/* The states that a node updates, the weights, and their copies of 16 bits. */
#define MOST (TX_MAX_OPTIMIZER_STATES + 2)

/* What a node reads from outside: where it lies, in host memory on its way from and to a file, and on the device, which
 * may be the same; and whether the node writes it. */
typedef struct visit {
    int32_t node, states;
    tx_tensor *away[MOST], *staged[MOST], *here[MOST];
    bool written[MOST];
} visit;

typedef struct offloading {
    tx_graph *graph;
    tx_edit *edit;
    int32_t end; /* number of nodes before any was inserted */
    visit *visit;
    int32_t visits;
} offloading;

/* ---- Tensors ------------------------------------------------------------------------------------------------ */

static bool is_away(const tx_graph *graph, const tx_tensor *t)
{
    return t && t->is_fixed && !t->base && tx_arena_is_away(&graph->model->arena[t->arena]);
}

/* Copies of 16 bits are written by updates, and not read. */
static bool is_made(const tx_tensor *away)
{
    return away->arena == TX_ARENA_HALF;
}

static bool in_file(const offloading *o, const tx_tensor *away)
{
    return o->graph->model->arena[away->arena].space == TX_SPACE_FILE;
}

/* What comes from the file to a device whose memory is the host's is computed on where it arrives. */
static bool stays_staged(const offloading *o, const tx_tensor *away)
{
    return in_file(o, away) && o->graph->model->engine->backend->host_memory;
}

/* The tensor that nodes read and write becomes one of the planner's, or of a slot; another one is what lies outside. */
static tx_status bring_here(const offloading *o, tx_tensor *here, visit *v)
{
    tx_tensor *away = tx_tensor_fixed(o->graph, here->dtype, here->shape, here->arena, here->offset);
    if (!away)
        return o->graph->status;
    const tx_node *n = &o->graph->node[v->node];
    here->is_fixed = stays_staged(o, away);
    here->arena = here->is_fixed ? TX_ARENA_STAGING : TX_ARENA_PLANNED;
    here->offset = 0;
    v->away[v->states] = away;
    v->here[v->states] = here;
    if (is_made(away) && !here->is_fixed)
        here->producer = v->node;
    for (int k = 0; k < TX_MAX_OUT; k++)
        v->written[v->states] = v->written[v->states] || n->out[k] == here;
    v->states++;
    return TX_OK;
}

static tx_status find_visits(offloading *o)
{
    for (int32_t n = 0; n < o->end; n++) {
        visit *v = &o->visit[o->visits];
        v->node = n;
        for (int k = 0; k < TX_MAX_IN && tx_op_info_of(o->graph->node[n].op)->place == TX_ON_DEVICE; k++)
            if (is_away(o->graph, o->graph->node[n].in[k]))
                TX_TRY(bring_here(o, o->graph->node[n].in[k], v));
        o->visits += v->states > 0;
    }
    return TX_OK;
}

/* The state in a slot. */
static tx_tensor *stage_one(const offloading *o, tx_tensor *here, int64_t address)
{
    if (!here->is_fixed)
        return tx_tensor_fixed(o->graph, here->dtype, here->shape, TX_ARENA_STAGING, address);
    here->offset = address;
    return here;
}

/* Each slot has room for any of the states with that number. */
static tx_status stage(const offloading *o)
{
    tx_arena *arena = &o->graph->model->arena[TX_ARENA_STAGING], need = {.chunk_bytes = arena->chunk_bytes};
    int64_t most[MOST] = {0}, address[SLOTS][MOST];
    for (int32_t i = 0; i < o->visits; i++)
        for (int32_t k = 0; k < o->visit[i].states; k++) {
            const tx_tensor *away = o->visit[i].away[k];
            const int64_t bytes = in_file(o, away) ? tx_tensor_bytes(away) : 0;
            most[k] = bytes > most[k] ? bytes : most[k];
        }
    for (int32_t s = 0; s < SLOTS && s < o->visits; s++)
        for (int32_t k = 0; k < MOST; k++)
            if (most[k] > 0)
                TX_TRY(tx_arena_append(&need, most[k], TX_SWAP_BLOCK, &address[s][k]));
    tx_arena_cover(arena, &need);
    for (int32_t i = 0; i < o->visits; i++)
        for (int32_t k = 0; k < o->visit[i].states; k++) {
            const tx_tensor *away = o->visit[i].away[k];
            if (!in_file(o, away))
                continue;
            o->visit[i].staged[k] = stage_one(o, o->visit[i].here[k], address[i % SLOTS][k]);
            if (!o->visit[i].staged[k])
                return o->graph->status;
        }
    return TX_OK;
}

/* ---- Nodes -------------------------------------------------------------------------------------------------- */

/* A visit by its number; one of nothing before the first and behind the last. */
static const visit *visit_of(const offloading *o, int32_t number)
{
    static const visit none = {0};
    return number >= 0 && number < o->visits ? &o->visit[number] : &none;
}

static bool is_copied(const visit *v, int32_t k)
{
    return v->staged[k] != v->here[k];
}

/* Inserts `op` of state k of a visit, which moves it one way or waits until it has moved. */
static tx_status insert(const offloading *o, int32_t at, tx_op op, const visit *v, int32_t k)
{
    const bool file = op == TX_OP_READ_FILE || op == TX_OP_WRITE_FILE;
    const bool in = op == TX_OP_READ_FILE || op == TX_OP_FETCH;
    tx_tensor *outer = file || !v->staged[k] ? v->away[k] : v->staged[k];
    tx_tensor *inner = file || op == TX_OP_WAIT_FILE ? v->staged[k] : v->here[k], *to = in ? inner : outer;
    const tx_node node = {.op = op,
                          .direction = TX_UPDATE,
                          .attrs = {.control = -1, .alpha = 1.0f},
                          .in = {in ? outer : inner},
                          .out = {op == TX_OP_WAIT_FILE ? NULL : to}};
    return inner ? tx_edit_insert(o->edit, at, &node, op == TX_OP_FETCH ? &inner->producer : NULL) : TX_OK;
}

/* Moves the states of a visit one way: to the device, or away from it. What is written and not read goes to its place
 * in host memory when what lay there before has been written to the file. */
static tx_status move(const offloading *o, int32_t at, tx_op op, int32_t number)
{
    const visit *v = visit_of(o, number);
    const bool file = op == TX_OP_READ_FILE || op == TX_OP_WRITE_FILE;
    const bool in = op == TX_OP_READ_FILE || op == TX_OP_FETCH;
    for (int32_t k = 0; k < v->states; k++) {
        const bool made = is_made(v->away[k]);
        if (made && is_copied(v, k) && op == TX_OP_READ_FILE)
            TX_TRY(insert(o, at, TX_OP_WAIT_FILE, v, k));
        if ((file || is_copied(v, k)) && (in ? !made : v->written[k]))
            TX_TRY(insert(o, at, op, v, k));
    }
    return TX_OK;
}

/* What a node reads is here before it: what is copied comes while the node before computes. */
static tx_status arrive(const offloading *o, int32_t at, int32_t number)
{
    const visit *v = visit_of(o, number);
    for (int32_t k = 0; k < v->states; k++)
        if (!is_copied(v, k))
            TX_TRY(insert(o, at, TX_OP_WAIT_FILE, v, k));
    return move(o, at, TX_OP_FETCH, number + 1);
}

/* What was copied to the device is there, and its memory of what was put back free, from there on. */
static tx_status let_go(const offloading *o, int32_t at, int32_t number)
{
    const visit *v = visit_of(o, number);
    tx_node node = {.op = TX_OP_WAIT_COPIES, .direction = TX_UPDATE, .attrs = {.control = -1, .alpha = 1.0f}};
    for (int32_t k = 0; k < v->states; k++)
        node.in[k] = v->here[k];
    TX_TRY(tx_edit_insert(o->edit, at, &node, NULL));
    return move(o, at, TX_OP_WRITE_FILE, number);
}

/* The first are read while the norm of the gradients is computed. */
static tx_status insert_all(const offloading *o)
{
    for (int32_t i = 0; i < o->visits; i++) {
        const int32_t at = o->visit[i].node;
        if (i == 0) {
            TX_TRY(move(o, 0, TX_OP_READ_FILE, 0));
            TX_TRY(move(o, 0, TX_OP_READ_FILE, 1));
            TX_TRY(move(o, at, TX_OP_FETCH, 0));
        }
        TX_TRY(let_go(o, at, i - 1));
        TX_TRY(move(o, at, TX_OP_READ_FILE, i + 2));
        TX_TRY(arrive(o, at, i));
        TX_TRY(move(o, at + 1, TX_OP_PUT_BACK, i));
    }
    return o->visits > 0 ? let_go(o, o->end, o->visits - 1) : TX_OK;
}

/* ---- Other graphs ------------------------------------------------------------------------------------------- */

/* What nodes read of weights themselves is on the device once more (plan/copies). */
static tx_status read_kept(tx_graph *graph)
{
    for (int32_t n = 0; n < graph->nodes; n++)
        for (int k = 0; k < TX_MAX_IN && tx_op_info_of(graph->node[n].op)->place == TX_ON_DEVICE; k++) {
            tx_tensor *root = graph->node[n].in[k] ? tx_tensor_root(graph->node[n].in[k]) : NULL;
            if (!root || root->arena != TX_ARENA_WEIGHTS)
                continue;
            TX_TRY(tx_model_keep(graph->model, root->param, &root->offset));
            root->arena = TX_ARENA_KEPT;
        }
    return TX_OK;
}

/* ---- The pass ----------------------------------------------------------------------------------------------- */

tx_status tx_offload(tx_graph *graph)
{
    const bool states = tx_arena_is_away(&graph->model->arena[TX_ARENA_OPTIMIZER]);
    const bool weights = tx_model_weights_away(graph->model), fetched = tx_model_fetches(graph->model);
    offloading o = {.graph = graph, .end = graph->nodes};
    if (graph->direction != TX_UPDATE)
        return weights && !fetched ? read_kept(graph) : TX_OK;
    if (!states && !weights && !fetched)
        return TX_OK;
    o.visit = calloc((size_t)graph->nodes + 1, sizeof *o.visit);
    tx_status status = o.visit ? tx_edit_open(graph, &o.edit) : tx_fail(TX_MEMORY, "no memory to offload states");
    TX_THEN(status, find_visits(&o));
    TX_THEN(status, stage(&o));
    TX_THEN(status, insert_all(&o));
    if (status == TX_OK)
        status = tx_edit_commit(o.edit);
    else
        tx_edit_discard(o.edit);
    free(o.visit);
    return status;
}
