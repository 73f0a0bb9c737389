/* SPDX-License-Identifier: Apache-2.0
 * The pieces of the arenas that an optimizer's nodes work on, and where their states lie. */
#include "api/plan/pieces.h"

#include "api/base/swap.h"
#include "api/parallel/parallel.h"

#include <stdlib.h>

/* Weights that this rank updates: a chunk, or its part of a bucket. */
typedef struct span {
    int64_t begin, end; /* addresses */
    int64_t gradients, groups;
} span;

/* Elements of a range that a piece may have: no state outgrows an allocation, also of F32. */
static int64_t most_elements(const tx_model *model, const tx_optimizer *o)
{
    const int64_t chunk = model->arena[TX_ARENA_OPTIMIZER].chunk_bytes / (int64_t)sizeof(float);
    const int64_t most = chunk / TX_PARAM_BLOCK * TX_PARAM_BLOCK, moved = tx_offload_elements(o);
    const bool away = o->options.offload || tx_model_fetches(model);
    return away && moved < most ? moved : most;
}

/* The piece ends with the last element of its range or begins a new one. */
static tx_status add_part(const tx_model *model, tx_optimizer *o, const tx_optimizer_piece *part)
{
    const int64_t element = tx_model_element(model), most = most_elements(model, o);
    tx_optimizer_piece *last = o->pieces ? &o->piece[o->pieces - 1] : NULL;
    const bool goes_on = last && last->form == part->form && !part->form->whole && last->count + part->count <= most &&
                         last->address + last->count * element == part->address &&
                         last->gradients + last->count * element == part->gradients &&
                         last->groups + last->count / TX_PARAM_BLOCK == part->groups;
    if (goes_on) {
        last->count += part->count;
        last->shape = TX_SHAPE(last->count);
        return TX_OK;
    }
    tx_optimizer_piece *more = realloc(o->piece, (size_t)(o->pieces + 1) * sizeof *more);
    if (!more)
        return tx_fail(TX_MEMORY, "no memory for the optimizer's pieces");
    o->piece = more;
    o->piece[o->pieces++] = *part;
    return TX_OK;
}

/* The piece of this shape that begins at an address of the span. */
static tx_optimizer_piece piece_at(const tx_model *model, const tx_optimizer *o, const span *s, int32_t param,
                                   int64_t address, tx_shape shape)
{
    const int64_t before = address - s->begin;
    return (tx_optimizer_piece){.form = tx_optimizer_form_of(o, &model->param[param].spec),
                                .param = param,
                                .shape = shape,
                                .address = address,
                                .count = tx_shape_count(&shape),
                                .gradients = s->gradients + before,
                                .groups = s->groups + before / (TX_PARAM_BLOCK * tx_model_element(model))};
}

/* A piece for each tensor of a parameter. */
static tx_status add_tensors(const tx_model *model, tx_optimizer *o, const span *s, int32_t param)
{
    const tx_param_record *r = &model->param[param];
    for (int32_t i = 0; i < tx_param_tensors(&r->spec); i++) {
        const tx_param_tensor t = tx_param_tensor_of(&r->spec, i);
        tx_optimizer_piece piece = piece_at(model, o, s, param, r->offset + t.first * tx_model_element(model), t.shape);
        piece.tensor = i;
        TX_TRY(add_part(model, o, &piece));
    }
    return TX_OK;
}

/* Elements begin .. end, addresses, of a parameter: as many parts as pieces need. */
static tx_status cut_param(const tx_model *model, tx_optimizer *o, const span *s, int32_t param, int64_t begin,
                           int64_t end)
{
    const int64_t element = tx_model_element(model), most = most_elements(model, o) * element;
    if (tx_optimizer_form_of(o, &model->param[param].spec)->whole)
        return add_tensors(model, o, s, param);
    for (int64_t at = begin; at < end; at += most) {
        const int64_t bytes = end - at < most ? end - at : most;
        const tx_optimizer_piece piece = piece_at(model, o, s, param, at, TX_SHAPE(bytes / element));
        TX_TRY(add_part(model, o, &piece));
    }
    return TX_OK;
}

static tx_status cut(const tx_model *model, tx_optimizer *o, const span *s)
{
    const int64_t element = tx_model_element(model);
    tx_status status = TX_OK;
    for (int32_t i = 0; i < model->params && status == TX_OK; i++) {
        const tx_param_record *r = &model->param[i];
        const int64_t stop = r->offset + tx_param_blocks(tx_shape_count(&r->spec.shape)) * TX_PARAM_BLOCK * element;
        const int64_t begin = r->offset > s->begin ? r->offset : s->begin, end = stop < s->end ? stop : s->end;
        if (!r->absent && r->arena == TX_ARENA_WEIGHTS && begin < end)
            status = cut_param(model, o, s, i, begin, end);
    }
    return status;
}

/* A sharded update begins with the lowest layers, which the next forward pass needs first. */
static tx_status cut_shards(const tx_model *model, const int64_t *groups, tx_optimizer *o)
{
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    const tx_parallel *p = model->parallel;
    const int64_t element = tx_model_element(model);
    tx_status status = TX_OK;
    for (int32_t i = p->buckets - 1; i >= 0 && status == TX_OK; i--) {
        const tx_bucket *b = &p->bucket[i];
        const int64_t begin = b->address + b->first * element;
        const int64_t block = begin % weights->chunk_bytes / (TX_PARAM_BLOCK * element);
        status = cut(model, o,
                     &(span){begin, begin + b->owned * element, tx_bucket_gradients(p, b),
                             groups[tx_arena_chunk(weights, begin)] + block});
    }
    return status;
}

/* State after state, each with its pieces in their order. */
static tx_status place_states(tx_model *model, tx_optimizer *o)
{
    tx_arena *arena = &model->arena[TX_ARENA_OPTIMIZER];
    const int64_t align = arena->space == TX_SPACE_FILE ? TX_SWAP_BLOCK : TX_ALIGNMENT;
    tx_status status = TX_OK;
    for (int32_t k = 0; k < TX_MAX_OPTIMIZER_STATES; k++)
        for (int32_t i = 0; i < o->pieces && status == TX_OK; i++) {
            tx_optimizer_piece *piece = &o->piece[i];
            const tx_optimizer_state *state = &piece->form->state[k];
            if (k >= piece->form->states)
                continue;
            const int64_t count = tx_state_count(state, &piece->shape, piece->count);
            status = tx_arena_append(arena, count * (int64_t)tx_dtype_size(state->dtype), align, &piece->state[k]);
        }
    return status;
}

tx_status tx_optimizer_cut(tx_model *model, const int64_t *groups, tx_optimizer *optimizer)
{
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    tx_status status = TX_OK;
    if (tx_parallel_sharded(model->parallel))
        status = cut_shards(model, groups, optimizer);
    else
        for (int32_t c = 0; c < weights->chunks && status == TX_OK; c++) {
            const int64_t begin = c * weights->chunk_bytes;
            status = cut(model, optimizer, &(span){begin, begin + weights->used[c], begin, groups[c]});
        }
    return status == TX_OK ? place_states(model, optimizer) : status;
}

/* ---- A parameter's part of a piece -------------------------------------------------------------------- */

/* Numbers of the state before the parameter, in the piece; below 0 if it begins in another one. */
static int64_t numbers_before(const tx_optimizer_state *state, const tx_optimizer_piece *piece,
                              const tx_param_record *r)
{
    const int64_t weights = (r->offset - piece->address) / (int64_t)tx_dtype_size(r->spec.dtype);
    const int64_t width = state->width ? state->width : 1;
    switch (state->per) {
    case TX_PER_BLOCK:
        return weights / TX_PARAM_BLOCK * width;
    case TX_PER_ROW:
        return weights / piece->shape.dim[1] * width;
    case TX_PER_COLUMN:
        return -piece->tensor * piece->shape.dim[1] * width;
    default:
        return weights * width;
    }
}

bool tx_optimizer_part_of(const tx_model *model, const tx_optimizer_piece *piece, const tx_state_range *range,
                          tx_state_part *part)
{
    const tx_param_record *r = &model->param[range->param];
    const int64_t element = tx_model_element(model);
    const int64_t stop = r->offset + tx_param_blocks(tx_shape_count(&r->spec.shape)) * TX_PARAM_BLOCK * element;
    if (range->k >= piece->form->states || r->offset >= piece->address + piece->count * element ||
        stop <= piece->address)
        return false;
    const tx_optimizer_state *state = &piece->form->state[range->k];
    const int64_t before = numbers_before(state, piece, r) + range->first;
    const int64_t held = tx_state_count(state, &piece->shape, piece->count);
    const int64_t begin = before > 0 ? before : 0, end = before + range->count < held ? before + range->count : held;
    if (begin >= end)
        return false;
    *part = (tx_state_part){begin - before, end - begin, state->dtype,
                            piece->state[range->k] + begin * (int64_t)tx_dtype_size(state->dtype)};
    return true;
}
