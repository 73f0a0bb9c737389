/* SPDX-License-Identifier: Apache-2.0
 * Reads and writes parameters, their gradients and their optimizer states by the table of ownership (own.h), as a whole
 * or in ranges. */
#include "api/packed/packed.h"
#include "api/plan/plan.h"

#include "api/base/half.h"
#include "api/base/needs.h"

#include <inttypes.h>
#include <stdlib.h>

/* Elements that are converted at once; a multiple of whole words. */
#define SLICE (INT64_C(1) << 20)

/* Returns the shape of a part, or fails if the part does not exist. */
static tx_status shape_of(const tx_model *model, tx_param_role part, int32_t index, tx_shape *shape)
{
    if (index < 0 || index >= model->params)
        return tx_fail(TX_NOT_FOUND, "the model has no parameter number %d", index);
    if (part != TX_PARAM_WEIGHT && model->param[index].spec.frozen)
        return tx_fail(TX_NOT_FOUND, "parameter %s is frozen: it has no gradient and no optimizer state",
                       model->param[index].name);
    *shape = model->param[index].whole.logical;
    if (part < TX_PARAM_STATE)
        return TX_OK;
    tx_state_info info;
    TX_TRY(tx_model_state(model, index, (int32_t)part - TX_PARAM_STATE, &info));
    *shape = info.shape;
    return TX_OK;
}

tx_status tx_values_prepare(tx_model *model, const tx_value_copy *c)
{
    tx_shape shape;
    model->sealed = true;
    TX_TRY(shape_of(model, c->part, c->index, &shape));
    const int64_t elements = tx_shape_count(&shape);
    if (c->first < 0 || c->count < 0 || c->first > elements || c->count > elements - c->first)
        return tx_fail(TX_INVALID, "parameter %s has %" PRId64 " elements, not %" PRId64 " from %" PRId64 " on",
                       model->param[c->index].name, elements, c->count, c->first);
    TX_TRY(tx_model_ready(model));
    TX_TRY(tx_model_wait(model));
    return c->part != TX_PARAM_GRADIENT || model->has_gradients ? TX_OK
                                                                : tx_fail(TX_NOT_FOUND, "the model has no gradients");
}

/* ---- The local array ------------------------------------------------------------------------------------ */

/* Copies the stored values of a part: bytes from byte `at` of the local array. */
static tx_status move(tx_model *model, const tx_value_copy *c, int64_t at, void *data, int64_t bytes)
{
    if (c->to)
        return tx_stored_read(model, c->part, c->index, at, data, bytes);
    TX_TRY(tx_stored_write(model, c->part, c->index, at, data, bytes));
    return model->engine->backend->finish(model->engine->context);
}

/* Converts slice by slice. After a failure the remaining slices are still transferred, because the ranks that have
 * shards do so collectively. */
static tx_status convert(tx_model *model, const tx_value_copy *c, tx_dtype dtype)
{
    const int64_t size = (int64_t)tx_dtype_size(dtype);
    void *slice = malloc((size_t)(tx_min(c->count, SLICE) * size) + sizeof(int32_t));
    if (!slice)
        return tx_fail(TX_MEMORY, "no memory to convert a parameter");
    tx_status status = TX_OK;
    for (int64_t i = 0; i < c->count; i += SLICE) {
        const int64_t n = c->count - i < SLICE ? c->count - i : SLICE;
        if (c->from)
            tx_from_f32(dtype, c->from + i, n, slice);
        const tx_status moved = move(model, c, (c->first + i) * size, slice, n * size);
        status = status ? status : moved;
        if (c->to && status == TX_OK)
            tx_to_f32(dtype, slice, n, c->to + i);
    }
    free(slice);
    return status;
}

tx_status tx_values_copy_own(tx_model *model, const tx_value_copy *c)
{
    const int64_t word = (int64_t)sizeof(float);
    tx_state_info info = {.dtype = model->param[c->index].spec.dtype};
    if (c->part >= TX_PARAM_STATE)
        TX_TRY(tx_model_state(model, c->index, (int32_t)c->part - TX_PARAM_STATE, &info));
    if (tx_dtype_packed(info.dtype))
        return c->from ? tx_packed_write(model, c->index, c->first, c->count, c->from, c->blocks)
                       : tx_packed_read(model, c->index, c->first, c->count, c->to);
    if (info.dtype != TX_F32)
        return convert(model, c, info.dtype);
    return move(model, c, c->first * word, c->from ? (float *)(uintptr_t)c->from : c->to, c->count * word);
}

/* ---- Ranges -------------------------------------------------------------------------------------------- */

tx_status tx_values_copy(tx_model *model, const tx_value_copy *copy)
{
    if (model->hooks)
        return model->hooks->copy(model, copy);
    TX_TRY(tx_values_prepare(model, copy));
    return tx_values_copy_own(model, copy);
}

tx_status tx_model_write_range(tx_model *model, tx_param_role part, int32_t index, int64_t first, int64_t count,
                               const float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    return tx_values_copy(model, &(tx_value_copy){part, index, first, count, .from = data});
}

tx_status tx_model_read_range(tx_model *model, tx_param_role part, int32_t index, int64_t first, int64_t count,
                              float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    return tx_values_copy(model, &(tx_value_copy){part, index, first, count, .to = data});
}

tx_status tx_model_map(tx_model *model, int32_t index, void **memory)
{
    TX_NEEDS(model && memory, TX_INVALID);
    TX_TRY(tx_values_prepare(model, &(tx_value_copy){.index = index}));
    const tx_param_record *r = &model->param[index];
    const tx_arena *arena = &model->arena[r->arena];
    const bool divided = r->absent || r->division.parts > 1 || r->experts.parts > 1 || model->following;
    const bool is_here = !divided && !arena->addresses && arena->space != TX_SPACE_FILE;
    char *chunk = is_here ? model->engine->backend->map(arena->buffer[tx_arena_chunk(arena, r->offset)]) : NULL;
    *memory = chunk ? chunk + r->offset % arena->chunk_bytes : NULL;
    model->copies.half_stale = model->copies.kept_stale = true;
    return TX_OK;
}

/* Returns the elements of a part, or 0 if it does not exist; the copy then fails. */
static int64_t elements_of(const tx_model *model, tx_param_role part, int32_t index)
{
    tx_shape shape;
    return shape_of(model, part, index, &shape) == TX_OK ? tx_shape_count(&shape) : 0;
}

tx_status tx_model_write(tx_model *model, tx_param_role part, int32_t index, const float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    return tx_model_write_range(model, part, index, 0, elements_of(model, part, index), data);
}

tx_status tx_model_read(tx_model *model, tx_param_role part, int32_t index, float *data)
{
    TX_NEEDS(model && data, TX_INVALID);
    return tx_model_read_range(model, part, index, 0, elements_of(model, part, index), data);
}
