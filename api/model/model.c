/* SPDX-License-Identifier: Apache-2.0
 * Declares parameters and states, and writes and reads their memory. */
#include "api/model/model.h"

#include "api/base/blocks.h"
#include "api/base/grow.h"
#include "api/base/needs.h"
#include "api/packed/packed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Whether the sections, if any, add up to their dimension. */
static bool has_good_sections(const tx_param_spec *spec)
{
    const tx_param_sections *s = &spec->sections;
    if (s->count == 0)
        return true;
    if (s->count < 0 || s->count > TX_MAX_SECTIONS || s->dimension < 0 || s->dimension >= spec->shape.rank ||
        spec->shape.rank > 3)
        return false;
    int64_t sum = 0;
    for (int32_t i = 0; i < s->count; i++) {
        if (s->size[i] < 1 || s->unit[i] < 0 || (s->unit[i] > 0 && s->size[i] % s->unit[i] != 0))
            return false;
        sum += s->size[i];
    }
    return sum == spec->logical.dim[s->dimension];
}

static tx_status check_spec(const char *name, const tx_param_spec *spec, tx_dtype stored)
{
    const tx_shape *s = &spec->shape, *l = &spec->logical;
    bool good = l->rank == s->rank && l->dim[0] >= 1 && l->dim[0] <= s->dim[0];
    for (int32_t i = 1; good && i < l->rank; i++)
        good = l->dim[i] == s->dim[i];
    if (!good)
        return tx_fail(TX_INVALID, "parameter %s: only the first dimension may be padded", name);
    if (!has_good_sections(spec))
        return tx_fail(TX_INVALID, "parameter %s: its sections do not add up to their dimension", name);
    if (spec->apart && spec->sections.count > 0 && spec->sections.dimension != (spec->experts ? 1 : 0))
        return tx_fail(TX_INVALID, "parameter %s: only sections of rows can be separate tensors in files", name);
    if (spec->alternating && (!spec->experts || spec->alternating < 0 || tx_shape_last(l) % spec->alternating))
        return tx_fail(TX_INVALID, "parameter %s: its columns are not of %" PRId64 " experts", name, spec->alternating);
    if (spec->experts && (spec->alternating ? spec->split > 1 : spec->split == 1))
        return tx_fail(TX_INVALID, "parameter %s: the tensor group cannot divide the dimension of experts", name);
    if (tx_dtype_packed(spec->dtype) && spec->frozen)
        return tx_packed_check(name, spec);
    if (!spec->frozen && spec->dtype != stored)
        return tx_fail(TX_INVALID, "parameter %s: only a frozen one can be stored in %s", name,
                       tx_dtype_name(spec->dtype));
    return spec->rounding.parts > 0 ? tx_rounding_check(name, spec) : TX_OK;
}

static bool same_spec(const tx_param_spec *a, const tx_param_spec *b)
{
    const bool as_sections = a->sections.count == b->sections.count &&
                             (a->sections.count == 0 || memcmp(&a->sections, &b->sections, sizeof a->sections) == 0);
    return tx_shape_equal(&a->shape, &b->shape) && as_sections &&
           (b->logical.rank == 0 || tx_shape_equal(&a->logical, &b->logical)) && a->decay == b->decay &&
           a->rate == b->rate && a->table == b->table && a->frozen == b->frozen && a->dtype == b->dtype &&
           a->split == b->split && a->experts == b->experts && a->alternating == b->alternating && a->apart == b->apart;
}

/* Returns the alignment of a parameter. Shards of a divided parameter are whole blocks of 32-bit words for every type.
 */
static int64_t alignment_of(const tx_model *model, const tx_param_spec *spec)
{
    if (spec->frozen && model->arena[TX_ARENA_FROZEN].addresses)
        return tx_dtype_bytes(TX_I32, TX_PARAM_BLOCK);
    return tx_dtype_packed(spec->dtype) ? TX_ALIGNMENT : tx_dtype_bytes(spec->dtype, TX_PARAM_BLOCK);
}

tx_status tx_own_add(tx_model *model, const tx_param_slice *holding)
{
    tx_param_slice *grown = tx_grown(model->holding, model->holdings, sizeof *grown);
    if (!grown)
        return tx_fail(TX_MEMORY, "no memory for the table of ownership");
    model->holding = grown;
    model->holding[model->holdings++] = *holding;
    return TX_OK;
}

/* Allocates the local array in its arena, and in arena GRADIENTS if it is trained. */
static tx_status place_param(tx_model *model, tx_param_record *r)
{
    const int64_t count = tx_shape_count(&r->spec.shape), bytes = tx_dtype_bytes(r->spec.dtype, count);
    TX_TRY(tx_arena_append(&model->arena[r->arena], bytes, alignment_of(model, &r->spec), &r->offset));
    tx_param_slice h = {model->params, TX_PARAM_WEIGHT, r->arena, r->offset, 0, bytes};
    if (r->spec.frozen)
        return tx_own_add(model, &h);
    h.bytes = tx_dtype_bytes(r->spec.dtype, tx_param_blocks(count) * TX_PARAM_BLOCK);
    TX_TRY(tx_own_add(model, &h));
    h.part = TX_PARAM_GRADIENT;
    h.arena = TX_ARENA_GRADIENTS;
    return tx_own_add(model, &h);
}

/* Appends a complete record, and allocates its local array. */
static tx_status append_param(tx_model *model, tx_param_record *record)
{
    const tx_param_spec *whole = &record->whole;
    const int32_t holdings = model->holdings;
    const char *name = record->name;
    tx_param_record *grown = tx_grown(model->param, model->params, sizeof *grown);
    model->param = grown ? grown : model->param;
    record->name = grown ? strdup(name) : NULL;
    if (!record->name)
        return tx_fail(TX_MEMORY, "no memory for parameter %s", name);
    record->arena = whole->frozen ? TX_ARENA_FROZEN : TX_ARENA_WEIGHTS;
    const tx_status status = record->absent ? TX_OK : place_param(model, record);
    if (status != TX_OK) {
        model->holdings = holdings;
        free(record->name);
        return tx_fail_in(status, "parameter %s", name);
    }
    model->param[model->params++] = *record;
    return TX_OK;
}

tx_status tx_model_store(tx_model *model, tx_dtype dtype)
{
    TX_NEEDS(model, TX_INVALID);
    if (dtype != TX_F32 && dtype != TX_BF16 && dtype != TX_F16)
        return tx_fail(TX_INVALID, "parameters are stored in F32, BF16 or F16");
    if (model->params > 0)
        return tx_fail(TX_INVALID, "parameters have been declared: call tx_model_store before");
    for (; model; model = model->following)
        model->stored = dtype;
    return TX_OK;
}

/* Declares a new parameter. */
static tx_status declare_new(tx_model *model, const char *name, const tx_param_spec *spec)
{
    tx_param_record record = {.name = (char *)(uintptr_t)name, .whole = *spec, .experts.parts = 1, .division.parts = 1};
    if (spec->logical.rank == 0)
        record.whole.logical = spec->shape;
    TX_TRY(check_spec(name, &record.whole, model->stored));
    if (tx_block_values(record.whole.dtype) > 0 && (model->hooks || !model->engine->backend->blocks))
        return tx_fail(TX_UNSUPPORTED, "parameter %s: only one cpu device computes with %s", name,
                       tx_dtype_name(record.whole.dtype));
    record.spec = record.whole;
    if (model->hooks)
        TX_TRY(model->hooks->divide(model, &record));
    if (model->sealed)
        return tx_fail(TX_INVALID,
                       "parameter %s is declared too late: declare all parameters before the first one is read or "
                       "written and before the optimizer is created",
                       name);
    return append_param(model, &record);
}

/* Returns the index of the parameter of this name, or -1. */
static int32_t find_param(const tx_model *model, const char *name)
{
    int32_t i = model->params - 1;
    while (i >= 0 && strcmp(model->param[i].name, name) != 0)
        i--;
    return i;
}

tx_status tx_model_declare(tx_model *model, const char *name, const tx_param_spec *spec, int32_t *index)
{
    tx_param_spec stored;
    if (spec && spec->dtype == TX_F32) {
        stored = *spec;
        stored.dtype = model->stored;
        spec = &stored;
    }
    int32_t found = find_param(model, name);
    if (found < 0 && !spec)
        return tx_fail(TX_NOT_FOUND, "parameter %s was not declared", name);
    if (found >= 0 && spec && !same_spec(&model->param[found].whole, spec))
        return tx_fail(TX_INVALID, "parameter %s was declared differently before", name);
    if (found < 0) {
        TX_TRY(declare_new(model, name, spec));
        found = model->params - 1;
    }
    *index = found;
    return model->following && spec ? tx_model_declare(model->following, name, spec, &found) : TX_OK;
}

/* The arena for one more state of `bytes` in the memory of other tensors. Gradients whose size may still change, or
 * whose memory other ranks read, lend none. */
static tx_arena_id shared_arena(const tx_model *model, int64_t bytes)
{
    const tx_arena *gradients = &model->arena[TX_ARENA_GRADIENTS], *lent = &model->arena[TX_ARENA_LENT_STATE],
                   *layout = &model->arena[model->exchange.gradients_as];
    const int64_t size = tx_aligned(bytes), begin = tx_arena_fit(lent->chunk_bytes, tx_arena_end(lent), size);
    const int32_t chunk = tx_arena_chunk(lent, begin);
    const bool lends = model->sealed && model->has_gradients && gradients->space == TX_SPACE_DEVICE;
    return lends && chunk < layout->chunks && begin % lent->chunk_bytes + size <= layout->used[chunk]
               ? TX_ARENA_LENT_STATE
               : TX_ARENA_SHARED_STATE;
}

static tx_status append_state(tx_model *model, const char *name, tx_dtype dtype, const tx_shape *shape, bool absent,
                              int64_t *offset)
{
    tx_state_record *grown = tx_grown(model->state, model->states, sizeof *grown);
    if (!grown)
        return tx_fail(TX_MEMORY, "no memory for a state");
    model->state = grown;
    tx_state_record record = {.name = name ? strdup(name) : NULL, .dtype = dtype, .shape = *shape, .absent = absent};
    const int64_t bytes = tx_shape_count(shape) * (int64_t)tx_dtype_size(dtype);
    record.arena = name && model->shares_states ? shared_arena(model, bytes) : TX_ARENA_STATE;
    if (name && !record.name)
        return tx_fail(TX_MEMORY, "no memory for state %s", name);
    tx_status status =
        absent ? TX_OK : tx_arena_append(&model->arena[record.arena], bytes, TX_ALIGNMENT, &record.offset);
    if (status != TX_OK) {
        free(record.name);
        return status;
    }
    model->state[model->states++] = record;
    *offset = record.offset;
    return TX_OK;
}

const tx_state_record *tx_model_find_state(const tx_model *model, const char *name)
{
    for (int32_t i = 0; i < model->states; i++)
        if (model->state[i].name && strcmp(model->state[i].name, name) == 0)
            return &model->state[i];
    return NULL;
}

tx_status tx_model_declare_state(tx_model *model, const char *name, tx_dtype dtype, const tx_shape *shape,
                                 int32_t block, int64_t *offset)
{
    const tx_state_record *s = tx_model_find_state(model, name);
    int64_t elsewhere;
    if (s && (s->dtype != dtype || !tx_shape_equal(&s->shape, shape)))
        return tx_fail(TX_INVALID, "state %s was declared differently before", name);
    if (!s && model->shares_states && model->shared)
        return tx_fail(TX_INVALID, "state %s: a plan was made with the other states in the memory of activations",
                       name);
    if (s)
        *offset = s->offset;
    else
        TX_TRY(append_state(model, name, dtype, shape, !tx_model_has_stage(model, tx_model_stage_of(model, block)),
                            offset));
    return model->following ? tx_model_declare_state(model->following, name, dtype, shape, block, &elsewhere) : TX_OK;
}

tx_status tx_model_share_states(tx_model *model)
{
    TX_NEEDS(model, TX_INVALID);
    for (; model; model = model->following) {
        model->shares_states = true;
        model->arena[TX_ARENA_SHARED_STATE].addresses = model->arena[TX_ARENA_LENT_STATE].addresses = true;
        model->arena[TX_ARENA_LENT_STATE].chunk_bytes = model->arena[TX_ARENA_GRADIENTS].chunk_bytes;
    }
    return TX_OK;
}

tx_status tx_model_declare_groups(tx_model *model, int64_t offset[TX_MAX_CHUNKS])
{
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    model->sealed = true;
    for (int32_t c = 0; c < weights->chunks; c++) {
        tx_shape blocks = TX_SHAPE(weights->used[c] / (TX_PARAM_BLOCK * tx_model_element(model)));
        TX_TRY(append_state(model, NULL, TX_U8, &blocks, false, &offset[c]));
    }
    return TX_OK;
}

int32_t tx_model_param_count(const tx_model *model)
{
    TX_NEEDS(model, 0);
    return model->params;
}

tx_status tx_model_param(const tx_model *model, int32_t index, const char **name, const tx_param_spec **spec)
{
    TX_NEEDS(model && name && spec, TX_INVALID);
    if (index < 0 || index >= model->params)
        return tx_fail(TX_NOT_FOUND, "the model has no parameter number %d", index);
    *name = model->param[index].name;
    *spec = &model->param[index].whole;
    return TX_OK;
}

tx_status tx_model_find(const tx_model *model, const char *name, int32_t *index)
{
    TX_NEEDS(model && name && index, TX_INVALID);
    const int32_t found = find_param(model, name);
    if (found < 0)
        return tx_fail(TX_NOT_FOUND, "the model has no parameter %s", name);
    *index = found;
    return TX_OK;
}

int64_t tx_model_half_address(const tx_model *model, int64_t weights)
{
    const int64_t within = weights % model->arena[TX_ARENA_WEIGHTS].chunk_bytes;
    return weights - within + within / 2;
}

/* ---- Memory of arenas ----------------------------------------------------------------------------------- */

tx_status tx_model_write_at(tx_model *model, tx_arena_id id, int64_t address, const void *data, int64_t bytes)
{
    const tx_engine *e = model->engine;
    const tx_arena *arena = &model->arena[id];
    model->copies.half_stale = model->copies.half_stale || id == TX_ARENA_WEIGHTS || id == TX_ARENA_SHARDS;
    model->copies.kept_stale = model->copies.kept_stale || id == TX_ARENA_WEIGHTS;
    if (arena->space == TX_SPACE_FILE)
        return model->residency->move(model, arena, true, address, (void *)(uintptr_t)data, bytes);
    return e->backend->write(e->context, TX_QUEUE_COMPUTE, arena->buffer[tx_arena_chunk(arena, address)],
                             address % arena->chunk_bytes, data, bytes);
}

tx_status tx_model_read_at(tx_model *model, tx_arena_id id, int64_t address, void *data, int64_t bytes)
{
    const tx_engine *e = model->engine;
    const tx_arena *arena = &model->arena[id];
    if (arena->space == TX_SPACE_FILE)
        return model->residency->move(model, arena, false, address, data, bytes);
    return e->backend->read(e->context, arena->buffer[tx_arena_chunk(arena, address)], address % arena->chunk_bytes,
                            data, bytes);
}
