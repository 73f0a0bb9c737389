/* SPDX-License-Identifier: Apache-2.0
 * 16-bit copies of offloaded weights. They are cast on the device, range by range, and copied back. The host casts
 * those in the file. */
#include "api/base/half.h"
#include "api/plan/plan.h"
#include "api/residency/hooks.h"

#include <stdlib.h>

static bool in_file(const tx_model *model)
{
    return model->arena[TX_ARENA_HALF].space == TX_SPACE_FILE;
}

static bool copies_offloaded(const tx_model *model)
{
    return model->arena[TX_ARENA_HALF].space == TX_SPACE_PINNED;
}

/* Returns a range in fp32. For offloaded weights it is in their arena, or with `resident` in a buffer on the device. */
static tx_tensor *weights_of(tx_graph *graph, int32_t number, const tx_copy_range *r, bool resident)
{
    const tx_model *model = graph->model;
    const bool fetched = resident && tx_model_weights_offloaded(model);
    return tx_tensor_fixed(graph, TX_F32, TX_SHAPE(r->count), fetched ? TX_ARENA_KEPT : model->exchange.weights,
                           fetched ? model->copies.casting[number % 2] : r->address);
}

/* Fetches a range of offloaded weights. The buffer is not planned, because plans' inputs are in planned memory. */
static void add_fetch(tx_graph *graph, int32_t number)
{
    tx_copy_range r;
    if (!tx_model_weights_offloaded(graph->model) || !tx_copies_range(graph->model, number, &r))
        return;
    tx_emit(graph, &(tx_emit_args){.op = TX_OP_FETCH,
                                   .attrs = TX_PLAIN,
                                   .in = {weights_of(graph, number, &r, false)},
                                   .out = {weights_of(graph, number, &r, true)}});
}

void tx_residency_cast(tx_graph *graph, int32_t number, const tx_copy_range *r)
{
    const tx_model *model = graph->model;
    tx_emit_args cast = {.op = TX_OP_CAST, .attrs = TX_PLAIN, .dtype = &model->copies.dtype},
                 put_back = {.op = TX_OP_PUT_BACK, .attrs = TX_PLAIN};
    cast.in[0] = weights_of(graph, number, r, true);
    put_back.out[0] = cast.out[0] = tx_tensor_fixed(graph, model->copies.dtype, TX_SHAPE(r->count), TX_ARENA_HALF,
                                                    tx_model_half_address(model, r->address));
    if (copies_offloaded(model))
        put_back.in[0] = cast.out[0] = tx_tensor_fixed(graph, model->copies.dtype, TX_SHAPE(r->count), TX_ARENA_KEPT,
                                                       model->copies.casted[number % 2]);
    if (number == 0)
        add_fetch(graph, 0);
    if (tx_model_weights_offloaded(model))
        tx_emit(graph, &(tx_emit_args){.op = TX_OP_WAIT_COPIES, .attrs = TX_PLAIN});
    add_fetch(graph, number + 1);
    tx_emit(graph, &cast);
    if (put_back.in[0])
        tx_emit(graph, &put_back);
}

tx_status tx_residency_prepare(tx_model *model)
{
    int64_t largest = 0;
    tx_copy_range r;
    if (!tx_model_keeps_copies(model) || !tx_model_weights_offloaded(model) || in_file(model))
        return TX_OK;
    for (int32_t i = 0; tx_copies_range(model, i, &r); i++)
        largest = r.count * (int64_t)sizeof(float) > largest ? r.count * (int64_t)sizeof(float) : largest;
    for (int i = 0; i < 2 && model->copies.casting_bytes < largest; i++) {
        TX_TRY(tx_arena_append(&model->arena[TX_ARENA_KEPT], largest, TX_ALIGNMENT, &model->copies.casting[i]));
        if (copies_offloaded(model))
            TX_TRY(tx_arena_append(&model->arena[TX_ARENA_KEPT], largest / 2, TX_ALIGNMENT, &model->copies.casted[i]));
    }
    model->copies.casting_bytes = tx_max(largest, model->copies.casting_bytes);
    return TX_OK;
}

static tx_status copy_in_file(tx_model *model, const tx_copy_range *r, float *weights, uint16_t *copies)
{
    TX_TRY(tx_model_read_at(model, model->exchange.weights, r->address, weights, r->count * (int64_t)sizeof *weights));
    tx_from_f32(model->copies.dtype, weights, r->count, copies);
    return tx_model_write_at(model, TX_ARENA_HALF, tx_model_half_address(model, r->address), copies,
                             r->count * (int64_t)sizeof *copies);
}

static tx_status copy_all_in_file(tx_model *model)
{
    const size_t room = (size_t)tx_copies_elements(model);
    float *weights = malloc(room * sizeof *weights);
    uint16_t *copies = malloc(room * sizeof *copies);
    tx_status status = weights && copies ? TX_OK : tx_fail(TX_MEMORY, "no memory to make copies of weights");
    tx_copy_range r;
    for (int32_t i = 0; status == TX_OK && tx_copies_range(model, i, &r); i++)
        status = copy_in_file(model, &r, weights, copies);
    free(weights);
    free(copies);
    return status;
}

static tx_status renew_offloaded(tx_model *model)
{
    if (!model->copies.half_stale)
        return TX_OK;
    tx_status status = in_file(model) ? copy_all_in_file(model) : tx_plan_execute(model->copies.plan);
    model->copies.half_stale = status != TX_OK;
    return status;
}

static tx_status renew_kept(tx_model *model)
{
    const tx_engine *e = model->engine;
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS], *kept = &model->arena[TX_ARENA_KEPT];
    tx_status status = TX_OK;
    for (int32_t i = 0; i < model->params && model->copies.kept_stale && status == TX_OK; i++) {
        const tx_param_record *r = &model->param[i];
        if (r->is_kept)
            status = e->backend->copy(e->context, TX_QUEUE_COMPUTE, weights->buffer[tx_arena_chunk(weights, r->offset)],
                                      r->offset % weights->chunk_bytes, kept->buffer[tx_arena_chunk(kept, r->kept)],
                                      r->kept % kept->chunk_bytes,
                                      tx_dtype_bytes(r->spec.dtype, tx_shape_count(&r->spec.shape)));
    }
    model->copies.kept_stale = model->copies.kept_stale && status != TX_OK;
    return status;
}

tx_status tx_residency_renew(const tx_plan *plan)
{
    tx_model *model = plan->model;
    if (plan->reads_copies && tx_model_keeps_copies(model) && tx_model_weights_offloaded(model))
        TX_TRY(renew_offloaded(model));
    return plan->reads_kept ? renew_kept(model) : TX_OK;
}
