/* SPDX-License-Identifier: Apache-2.0
 * Elements of parameters, their gradients and their optimizer states, between the arenas and the host. */
#include "api/plan/values.h"

#include "api/model/split.h"
#include "api/parallel/parallel.h"
#include "api/plan/packed.h"
#include "api/plan/pieces.h"
#include "api/plan/stored.h"

#include "api/base/half.h"
#include "api/base/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Elements that are converted at once: whole words. */
#define SLICE (INT64_C(1) << 20)

/* Where elements of a part of a parameter lie. */
typedef struct place {
    tx_arena_id arena;
    tx_dtype dtype;
    int64_t address;
} place;

static tx_status part_place(const tx_model *model, tx_part part, int32_t index, place *p)
{
    const tx_param_record *r = &model->param[index];
    if (part == TX_PART_GRADIENT && !model->has_gradients)
        return tx_fail(TX_NOT_FOUND, "the model has no gradients");
    if (part == TX_PART_GRADIENT && tx_parallel_sharded(model->parallel))
        return tx_fail(TX_NOT_FOUND, "no rank has all gradients: they are spread (zero_stage %d)",
                       (int)model->parallel->options.zero_stage);
    *p = (place){part == TX_PART_WEIGHT ? r->arena : TX_ARENA_GRADIENTS, r->spec.dtype, r->offset};
    return TX_OK;
}

tx_status tx_values_shape(const tx_model *model, tx_part part, int32_t index, tx_shape *shape)
{
    if (index < 0 || index >= model->params)
        return tx_fail(TX_NOT_FOUND, "the model has no parameter number %d", index);
    if (part != TX_PART_WEIGHT && model->param[index].spec.frozen)
        return tx_fail(TX_NOT_FOUND, "parameter %s is frozen: it has no gradient and no optimizer state",
                       model->param[index].name);
    if (part < TX_PART_STATE) {
        *shape = model->param[index].whole.logical;
        return TX_OK;
    }
    tx_state_info info;
    tx_status status = tx_model_state(model, index, (int32_t)part - TX_PART_STATE, &info);
    if (status == TX_OK)
        *shape = info.shape;
    return status;
}

/* Makes the model ready for a copy of elements of a part. */
static tx_status prepare_copy(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count)
{
    tx_shape shape;
    model->sealed = true;
    tx_status status = tx_values_shape(model, part, index, &shape);
    if (status != TX_OK)
        return status;
    const int64_t elements = tx_shape_count(&shape);
    if (first < 0 || count < 0 || first > elements || count > elements - first)
        return tx_fail(TX_INVALID,
                       "parameter %s has %" PRId64 " elements, %" PRId64 " from %" PRId64 " on were asked for",
                       model->param[index].name, elements, count, first);
    status = tx_model_ready(model);
    return status == TX_OK ? tx_model_settle(model) : status;
}

/* ---- As stored ---------------------------------------------------------------------------------------- */

static tx_status write_stored(tx_model *model, const place *p, const void *data, int64_t count)
{
    const tx_engine *e = model->engine;
    tx_status status = tx_stored_write(model, p->arena, p->address, data, count * (int64_t)tx_dtype_size(p->dtype));
    return status == TX_OK ? e->backend->finish(e->context) : status;
}

static tx_status read_stored(tx_model *model, const place *p, void *data, int64_t count)
{
    return tx_stored_read(model, p->arena, p->address, data, count * (int64_t)tx_dtype_size(p->dtype));
}

/* ---- In other types ----------------------------------------------------------------------------------- */

static void narrow(tx_dtype dtype, const float *from, void *to, int64_t count)
{
    uint8_t *byte = to;
    uint16_t *half = to;
    for (int64_t i = 0; i < count; i++)
        if (dtype == TX_U8)
            byte[i] = (uint8_t)from[i];
        else
            half[i] = dtype == TX_BF16 ? tx_f32_to_bf16(from[i]) : tx_f32_to_f16(from[i]);
}

static void widen(tx_dtype dtype, const void *from, float *to, int64_t count)
{
    const uint8_t *byte = from;
    const uint16_t *half = from;
    for (int64_t i = 0; i < count; i++)
        if (dtype == TX_U8)
            to[i] = byte[i];
        else
            to[i] = dtype == TX_BF16 ? tx_bf16_to_f32(half[i]) : tx_f16_to_f32(half[i]);
}

/* Converts slice by slice; one of `from` and `to` is NULL. What comes behind a failure is moved all the same, as ranks
 * that have shards move it together. */
static tx_status convert(tx_model *model, place p, const float *from, float *to, int64_t count)
{
    const int64_t size = (int64_t)tx_dtype_size(p.dtype);
    void *slice = malloc((size_t)((count < SLICE ? count : SLICE) * size) + sizeof(int32_t));
    if (!slice)
        return tx_fail(TX_MEMORY, "no memory to convert a parameter");
    tx_status status = TX_OK;
    for (int64_t first = 0; first < count; first += SLICE) {
        const int64_t n = count - first < SLICE ? count - first : SLICE;
        if (from)
            narrow(p.dtype, from + first, slice, n);
        const tx_status moved = from ? write_stored(model, &p, slice, n) : read_stored(model, &p, slice, n);
        status = status ? status : moved;
        if (to && status == TX_OK)
            widen(p.dtype, slice, to + first, n);
        p.address += n * size;
    }
    free(slice);
    return status;
}

/* One of `from` and `to` is NULL. */
static tx_status copy(tx_model *model, const place *p, const float *from, float *to, int64_t count)
{
    if (p->dtype != TX_F32)
        return convert(model, *p, from, to, count);
    return from ? write_stored(model, p, from, count) : read_stored(model, p, to, count);
}

/* ---- Elements ----------------------------------------------------------------------------------------- */

/* Copies what the pieces of this rank hold; where they are shards, all ranks read together. */
static tx_status copy_state(tx_model *model, const tx_state_range *range, const float *from, float *to)
{
    const tx_optimizer *o = model->optimizer;
    const bool spread = tx_parallel_sharded(model->parallel);
    tx_status status = TX_OK;
    if (to && spread)
        memset(to, 0, (size_t)range->count * sizeof *to);
    for (int32_t i = 0; i < o->pieces && status == TX_OK; i++) {
        tx_state_part part;
        if (!tx_optimizer_part_of(model, &o->piece[i], range, &part))
            continue;
        const place p = {TX_ARENA_OPTIMIZER, part.dtype, part.address};
        status = copy(model, &p, from ? from + part.at : NULL, to ? to + part.at : NULL, part.count);
    }
    const tx_param_spec *spec = &model->param[range->param].spec;
    return from || !spread ? status : tx_stored_add_up(tx_parallel_summers(model, spec), to, range->count, status);
}

/* Whether ranks have shards alone of this part, which is no state. */
static bool in_shards(const tx_model *model, tx_part part, int32_t index)
{
    return part == TX_PART_WEIGHT && model->arena[model->param[index].arena].addresses;
}

bool tx_values_spread(const tx_model *model, tx_part part, int32_t index)
{
    if (tx_model_splits(model, index) || (tx_model_has_pipeline(model) && index >= 0 && index < model->params))
        return true;
    if (!tx_parallel_sharded(model->parallel) || index < 0 || index >= model->params)
        return false;
    return part >= TX_PART_STATE || in_shards(model, part, index);
}

/* Elements as this rank has them. */
static tx_status copy_own(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count, const float *from,
                          float *to)
{
    place p = {0};
    if (part >= TX_PART_STATE)
        return copy_state(model, &(tx_state_range){index, (int32_t)part - TX_PART_STATE, first, count}, from, to);
    TX_TRY(part_place(model, part, index, &p));
    if (tx_dtype_packed(p.dtype))
        return from ? tx_packed_write(model, &model->param[index], first, count, from)
                    : tx_packed_read(model, &model->param[index], first, count, to);
    p.address += first * (int64_t)tx_dtype_size(p.dtype);
    return copy(model, &p, from, to, count);
}

/* What this rank has of elements of a parameter that is split; all ranks of its groups read together. */
static tx_status copy_split(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count,
                            const float *from, float *to)
{
    const tx_param_record *r = &model->param[index];
    const tx_param_split split = tx_param_own(r);
    const int64_t begin = tx_param_split_before(&split, first),
                  own = tx_param_split_before(&split, first + count) - begin;
    float *mine = malloc((size_t)own * sizeof *mine + 1);
    tx_status status = mine ? TX_OK : tx_fail(TX_MEMORY, "no memory for parameter %s", r->name);
    if (from && mine)
        tx_param_split_take(&split, first, count, from, mine);
    if (own > 0)
        TX_THEN(status, copy_own(model, part, index, begin, own, from ? mine : NULL, from ? NULL : mine));
    if (to) {
        memset(to, 0, (size_t)count * sizeof *to);
        if (!status)
            tx_param_split_put(&split, first, count, mine, to);
        if (r->division.parts > 1)
            status = tx_stored_add_up(model->mesh.tensor.comm, to, count, status);
        if (r->experts.parts > 1)
            status = tx_stored_add_up(model->mesh.expert.comm, to, count, status);
    }
    free(mine);
    return status;
}

static tx_status copy_of_stage(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count,
                               const float *from, float *to)
{
    return (tx_model_splits(model, index) ? copy_split : copy_own)(model, part, index, first, count, from, to);
}

/* The same of a pipeline: the stage that owns a parameter reads it, all stages together; those that have it write it.
 */
static tx_status copy_staged(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count,
                             const float *from, float *to)
{
    tx_status status = TX_OK;
    if (from)
        return model->param[index].absent ? TX_OK : copy_of_stage(model, part, index, first, count, from, NULL);
    if (tx_model_owns(model, index))
        status = copy_of_stage(model, part, index, first, count, NULL, to);
    else
        memset(to, 0, (size_t)count * sizeof *to);
    return tx_stored_add_up(model->mesh.pipeline.comm, to, count, status);
}

/* The same of a model that is divided among devices: those that have a parameter are written, its own one is read. */
static tx_status copy_divided(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count,
                              const float *from, float *to)
{
    for (tx_model *m = model; m; m = m->following)
        if (from ? !m->param[index].absent : tx_model_owns(m, index)) {
            TX_TRY(prepare_copy(m, part, index, first, count));
            TX_TRY(copy_own(m, part, index, first, count, from, to));
        }
    return TX_OK;
}

tx_status tx_values_copy(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count, const float *from,
                         float *to)
{
    TX_TRY(prepare_copy(model, part, index, first, count));
    if (tx_model_is_divided(model))
        return copy_divided(model, part, index, first, count, from, to);
    if (from && in_shards(model, part, index)) /* of all that was given, whatever part of it this rank has */
        model->parallel->written = tx_hash_words(model->parallel->written, from, count);
    return (model->mesh.stages > 1 ? copy_staged : copy_of_stage)(model, part, index, first, count, from, to);
}
