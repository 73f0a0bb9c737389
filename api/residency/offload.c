/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass offload: optimizer states and weights outside the device's memory (Rajbhandari et al., ZeRO-Infinity, 2021).
 * Nodes of updates compute the same on planned tensors. All optimizers are thus offloaded in the same manner, with the
 * same bits. Other graphs read copies of weights.
 *
 *     transfer queue    fetch 1   fetch 2   put back 1   fetch 3   put back 2   ..
 *     compute queue               update 1               update 2               ..
 *
 * Data in a file are read to host memory one update earlier, and written after they were copied back. If the device
 * shares the host's memory, updates compute in that memory:
 *
 *     file                read 1, 2   read 3     write 1, read 4   ..
 *     compute queue                   update 1   update 2          .. */
#include "api/residency/residency.h"

#include "api/model/model.h"
#include "api/residency/visits.h"

/* Staging slots in host memory. At a time one is read, one copied to the device, one copied back and one written; or
 * two are read, one is updated and one written. */
#define SLOTS 4

/* The states that a node updates, the weights and their 16-bit copies. */
#define MOST (TX_MAX_OPTIMIZER_STATES + 2)

static const tx_step steps[] = {{TX_OP_WAIT_COPIES, 0}, {TX_OP_WRITE_FILE, -1}, {TX_OP_READ_FILE, 2},
                                {TX_OP_WAIT_FILE, 0},   {TX_OP_FETCH, 1},       {TX_OP_PUT_BACK, 0}};

/* ---- Tensors ------------------------------------------------------------------------------------------------ */

static bool is_offloaded(const tx_graph *graph, const tx_tensor *t)
{
    return t && t->is_fixed && !t->base && tx_arena_is_offloaded(&graph->model->arena[t->arena]);
}

static bool in_file(const tx_residency *r, const tx_tensor *storage)
{
    return r->graph->model->arena[storage->arena].space == TX_SPACE_FILE;
}

/* Replaces the tensor that node `n` uses by a planned one, or by one in a slot if it comes from a file and the device
 * shares the host's memory. A new tensor has the old address. */
static tx_status add_piece(tx_residency *r, int32_t n, tx_tensor *resident)
{
    const tx_node *node = &r->graph->node[n];
    tx_tensor *storage = tx_tensor_fixed(r->graph, resident->dtype, resident->shape, resident->arena, resident->offset);
    if (!storage)
        return r->graph->status;
    tx_piece *p = &r->piece[r->pieces++];
    *p = (tx_piece){.storage = storage, .resident = resident, .loads = storage->arena != TX_ARENA_HALF};
    resident->is_fixed = in_file(r, storage) && r->graph->model->engine->backend->host_memory;
    resident->arena = resident->is_fixed ? TX_ARENA_STAGING : TX_ARENA_PLANNED;
    resident->offset = 0;
    if (!p->loads && !resident->is_fixed) /* updates write 16-bit copies but do not read them */
        resident->producer = n;
    for (int k = 0; k < TX_MAX_OUT; k++)
        p->stores = p->stores || node->out[k] == resident;
    return TX_OK;
}

static tx_status find_visits(tx_residency *r)
{
    for (int32_t n = 0; n < r->end; n++) {
        const int32_t first = r->pieces;
        for (int k = 0; k < TX_MAX_IN && tx_op_info_of(r->graph->node[n].op)->place == TX_ON_DEVICE; k++)
            if (is_offloaded(r->graph, r->graph->node[n].in[k]))
                TX_TRY(add_piece(r, n, r->graph->node[n].in[k]));
        if (r->pieces > first)
            r->visit[r->visits++] = (tx_visit){n, first};
    }
    r->visit[r->visits] = (tx_visit){r->end, r->pieces};
    return TX_OK;
}

/* Each slot has room for the largest k-th state of any visit. */
static tx_status find_slots(const tx_residency *r, int64_t address[SLOTS][MOST])
{
    tx_arena *arena = &r->graph->model->arena[TX_ARENA_STAGING], need = {.chunk_bytes = arena->chunk_bytes};
    int64_t largest[MOST] = {0};
    for (int32_t v = 0; v < r->visits; v++)
        for (int32_t i = r->visit[v].piece, k = 0; i < r->visit[v + 1].piece; i++, k++) {
            const int64_t bytes = in_file(r, r->piece[i].storage) ? tx_tensor_bytes(r->piece[i].storage) : 0;
            largest[k] = tx_max(bytes, largest[k]);
        }
    for (int32_t s = 0; s < SLOTS && s < r->visits; s++)
        for (int32_t k = 0; k < MOST; k++)
            if (largest[k] > 0)
                TX_TRY(tx_arena_append(&need, largest[k], TX_FILE_BLOCK, &address[s][k]));
    tx_arena_cover(arena, &need);
    return TX_OK;
}

static tx_status stage(const tx_residency *r)
{
    int64_t address[SLOTS][MOST];
    TX_TRY(find_slots(r, address));
    for (int32_t v = 0; v < r->visits; v++)
        for (int32_t i = r->visit[v].piece, k = 0; i < r->visit[v + 1].piece; i++, k++) {
            tx_tensor *resident = r->piece[i].resident;
            if (resident->is_fixed)
                resident->offset = address[v % SLOTS][k];
            if (in_file(r, r->piece[i].storage))
                r->piece[i].staged = resident->is_fixed ? resident
                                                        : tx_tensor_fixed(r->graph, resident->dtype, resident->shape,
                                                                          TX_ARENA_STAGING, address[v % SLOTS][k]);
        }
    return r->graph->status;
}

/* ---- Other graphs ------------------------------------------------------------------------------------------- */

/* Allocates memory for a parameter in arena KEPT and returns its address. */
static tx_status keep(tx_model *model, int32_t index, int64_t *address)
{
    tx_param_record *r = &model->param[index];
    const int64_t bytes = tx_dtype_bytes(r->spec.dtype, tx_shape_count(&r->spec.shape));
    if (!r->is_kept)
        TX_TRY(tx_arena_append(&model->arena[TX_ARENA_KEPT], bytes, TX_ALIGNMENT, &r->kept));
    r->is_kept = true;
    *address = r->kept;
    return TX_OK;
}

/* Weights that nodes read themselves have another copy on the device (copies.c). */
static tx_status read_kept(tx_graph *graph)
{
    for (int32_t n = 0; n < graph->nodes; n++)
        for (int k = 0; k < TX_MAX_IN && tx_op_info_of(graph->node[n].op)->place == TX_ON_DEVICE; k++) {
            tx_tensor *root = tx_tensor_root(graph->node[n].in[k]);
            if (!root || root->arena != TX_ARENA_WEIGHTS)
                continue;
            TX_TRY(keep(graph->model, root->param, &root->offset));
            root->arena = TX_ARENA_KEPT;
        }
    return TX_OK;
}

/* ---- The pass ----------------------------------------------------------------------------------------------- */

static tx_status change(tx_edit *edit, void *state)
{
    tx_residency *r = state;
    const int32_t nodes = r->graph->nodes;
    TX_TRY(tx_residency_open(r, edit, nodes, nodes * TX_MAX_IN));
    TX_TRY(find_visits(r));
    TX_TRY(stage(r));
    return tx_residency_insert(r);
}

tx_status tx_offload(tx_graph *graph)
{
    const bool states = tx_arena_is_offloaded(&graph->model->arena[TX_ARENA_OPTIMIZER]);
    const bool weights = tx_model_weights_offloaded(graph->model), fetched = tx_model_fetches(graph->model);
    if (graph->direction != TX_UPDATE)
        return weights && !fetched ? read_kept(graph) : TX_OK;
    if (!states && !weights && !fetched)
        return TX_OK;
    return tx_edit_run(graph, change, &(tx_residency){.graph = graph, .step = steps, .steps = 6});
}
