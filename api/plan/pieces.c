/* SPDX-License-Identifier: Apache-2.0
 * Splits the arenas into pieces for the optimizer's nodes and places their states. tx_optimizer_create calls it. */
#include "api/plan/plan.h"

#include "api/base/grow.h"

/* Returns the most elements in a piece: a state, also of F32, must fit in one allocation. */
static int64_t element_limit(const tx_model *model, const tx_optimizer *o)
{
    const int64_t chunk = model->arena[TX_ARENA_OPTIMIZER].chunk_bytes / (int64_t)sizeof(float);
    const int64_t limit = chunk / TX_PARAM_BLOCK * TX_PARAM_BLOCK, moved = tx_offload_elements(o);
    const bool offloaded = o->options.offload || tx_model_fetches(model);
    return offloaded && moved < limit ? moved : limit;
}

/* Adds a piece, or extends the last one if both are contiguous. */
static tx_status add_part(const tx_model *model, tx_optimizer *o, const tx_optimizer_piece *part)
{
    const int64_t element = tx_model_element(model), limit = element_limit(model, o);
    tx_optimizer_piece *last = o->pieces ? &o->piece[o->pieces - 1] : NULL;
    const bool continues = last && last->form == part->form && last->rate == part->rate && !part->form->whole &&
                           last->count + part->count <= limit &&
                           last->address + last->count * element == part->address &&
                           last->gradients + last->count * element == part->gradients &&
                           last->groups + last->count / TX_PARAM_BLOCK == part->groups;
    if (continues) {
        last->count += part->count;
        last->shape = TX_SHAPE(last->count);
        return TX_OK;
    }
    tx_optimizer_piece *more = tx_grown(o->piece, o->pieces, sizeof *more);
    if (!more)
        return tx_fail(TX_MEMORY, "no memory for the optimizer's pieces");
    o->piece = more;
    o->piece[o->pieces++] = *part;
    return TX_OK;
}

/* Adds the piece of this shape whose gradients start `at` bytes into a holding. */
static tx_status add_piece(const tx_model *model, tx_optimizer *o, const int64_t *groups, const tx_param_slice *h,
                           int64_t at, int32_t tensor, tx_shape shape)
{
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    const tx_param_record *r = &model->param[h->param];
    const int64_t address = r->offset + h->at + at, block = TX_PARAM_BLOCK * tx_model_element(model);
    const int32_t chunk = tx_arena_chunk(weights, address);
    return add_part(
        model, o,
        &(tx_optimizer_piece){.form = tx_optimizer_form_of(o, &r->spec),
                              .param = h->param,
                              .tensor = tensor,
                              .rate = r->spec.rate,
                              .shape = shape,
                              .address = address,
                              .count = tx_shape_count(&shape),
                              .gradients = h->address + at,
                              .weights = model->exchange.weights == TX_ARENA_SHARDS ? h->address + at : address,
                              .groups = groups[chunk] + address % weights->chunk_bytes / block});
}

/* Adds a piece for each tensor of a parameter, or as many as its bytes need. */
static tx_status cut(const tx_model *model, tx_optimizer *o, const int64_t *groups, const tx_param_slice *h)
{
    const tx_param_spec *spec = &model->param[h->param].spec;
    const int64_t element = tx_model_element(model), limit = element_limit(model, o) * element;
    if (!tx_optimizer_form_of(o, spec)->whole) {
        for (int64_t at = 0; at < h->bytes; at += limit) {
            const int64_t bytes = h->bytes - at < limit ? h->bytes - at : limit;
            TX_TRY(add_piece(model, o, groups, h, at, 0, TX_SHAPE(bytes / element)));
        }
        return TX_OK;
    }
    for (int32_t i = 0; i < tx_param_tensors(spec) && h->bytes > 0; i++) {
        const tx_param_tensor t = tx_param_tensor_of(spec, i);
        TX_TRY(add_piece(model, o, groups, h, t.first * element, i, t.shape));
    }
    return TX_OK;
}

/* Allocates the states one after the other, each with its pieces in order. */
static tx_status place_states(tx_model *model, tx_optimizer *o)
{
    tx_arena *arena = &model->arena[TX_ARENA_OPTIMIZER];
    const int64_t align = arena->space == TX_SPACE_FILE ? TX_FILE_BLOCK : TX_ALIGNMENT;
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

/* Returns the values of a state for `elements` elements of a piece. */
static int64_t values_of(const tx_optimizer_state *state, const tx_optimizer_piece *piece, int64_t elements)
{
    const int64_t width = state->width ? state->width : 1;
    switch (state->per) {
    case TX_PER_BLOCK:
        return elements / TX_PARAM_BLOCK * width;
    case TX_PER_ROW:
        return elements / piece->shape.dim[1] * width;
    case TX_PER_COLUMN:
        return elements / piece->shape.dim[0] * width;
    case TX_PER_CHANNEL: /* of whole tensors */
    case TX_PER_TENSOR:
        return elements ? tx_state_count(state, &piece->shape, elements) : 0;
    default:
        return elements * width;
    }
}

/* Adds holdings of a piece's states for the parameter of `gradients`, if the piece has gradients of it. */
static tx_status hold_states(tx_model *model, const tx_optimizer_piece *piece, const tx_param_slice *gradients)
{
    const int64_t element = tx_model_element(model), last = piece->gradients + piece->count * element,
                  stop = gradients->address + gradients->bytes, begin = tx_max(gradients->address, piece->gradients),
                  end = tx_min(stop, last);
    if (begin >= end)
        return TX_OK;
    const int64_t first = (gradients->at + begin - gradients->address) / element, count = (end - begin) / element,
                  before = (begin - piece->gradients) / element;
    const tx_param_spec *spec = &model->param[gradients->param].spec;
    for (int32_t k = 0; k < piece->form->states; k++) {
        const tx_optimizer_state *state = &piece->form->state[k];
        const int64_t size = (int64_t)tx_dtype_size(state->dtype), bytes = values_of(state, piece, count) * size;
        const bool by_tensor = state->per >= TX_PER_COLUMN; /* its values are not in proportion to the rows */
        const int64_t at =
            by_tensor ? tx_state_values_before(state, spec, piece->tensor) : values_of(state, piece, first);
        const tx_param_slice held = {.param = gradients->param,
                                     .part = (tx_param_role)(TX_PARAM_STATE + k),
                                     .arena = TX_ARENA_OPTIMIZER,
                                     .address = piece->state[k] + values_of(state, piece, before) * size,
                                     .at = at * size,
                                     .bytes = bytes};
        TX_TRY(tx_own_add(model, &held));
    }
    return TX_OK;
}

tx_status tx_optimizer_cut(tx_model *model, const int64_t *groups, tx_optimizer *optimizer)
{
    const int32_t holdings = model->holdings;
    for (int32_t i = 0; i < holdings; i++)
        if (model->holding[i].part == TX_PARAM_GRADIENT)
            TX_TRY(cut(model, optimizer, groups, &model->holding[i]));
    TX_TRY(place_states(model, optimizer));
    for (int32_t k = 0; k < optimizer->pieces; k++)
        for (int32_t i = 0; i < holdings; i++) {
            const tx_param_slice gradients = model->holding[i]; /* a copy, because the table may be reallocated */
            if (gradients.part == TX_PARAM_GRADIENT)
                TX_TRY(hold_states(model, &optimizer->piece[k], &gradients));
        }
    return TX_OK;
}
