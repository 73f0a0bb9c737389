/* SPDX-License-Identifier: Apache-2.0
 * The table of optimizers and the shapes of their states. */
#include "api/model/model.h"

#include "api/base/needs.h"
#include "api/optimizers/optimizers.h"

#include <stdlib.h>
#include <string.h>

/* ---- Functions and tables of the rows ------------------------------------------------------------- */

static bool with_momentum(const tx_optimizer_options *options)
{
    return options->momentum > 0;
}

typedef enum form_id {
#define TX_FORM(NAME, ...) FORM_##NAME,
#include "optimizers.def"
} form_id;

static const tx_optimizer_form forms[] = {
#define TX_FORM(NAME, is_whole, emit, ...) {TX_OP_##NAME, is_whole, emit, {__VA_ARGS__}, 0},
#include "optimizers.def"
};

static const struct {
    bool built; /* false if extension `optimizers`, which has most rows, is not in the build */
    form_id form, other;
    bool (*takes)(const tx_param_spec *spec);
} optimizers[TX_OPTIMIZER_KINDS] = {
#define TX_OPTIMIZER(NAME, form, other, takes) [TX_##NAME] = {true, FORM_##form, FORM_##other, takes},
#include "optimizers.def"
};

/* ---- Forms ----------------------------------------------------------------------------------------- */

/* Returns a form with these options: the types of its states and their number. */
static tx_optimizer_form with_options(const tx_optimizer_form *row, const tx_optimizer_options *o)
{
    tx_optimizer_form form = *row;
    for (int32_t k = 0; k < TX_MAX_OPTIMIZER_STATES; k++) {
        tx_optimizer_state *state = &form.state[k];
        if (!state->name || (state->kept && !state->kept(o)))
            break;
        if (state->type)
            state->dtype = *(const tx_dtype *)(const void *)((const char *)o + state->type);
        if (state->times)
            state->width = *(const int32_t *)(const void *)((const char *)o + state->times);
        form.states++;
    }
    return form;
}

tx_status tx_optimizer_choose(const tx_optimizer_options *options, tx_optimizer **optimizer)
{
    if (!optimizers[options->kind].built)
        return tx_fail(TX_UNSUPPORTED, "this build does not have the optimizer: build TX with extension optimizers");
    tx_optimizer *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for the optimizer");
    made->options = *options;
    made->form[0] = with_options(&forms[optimizers[options->kind].form], options);
    made->form[1] = with_options(&forms[optimizers[options->kind].other], options);
    made->takes = optimizers[options->kind].takes;
    *optimizer = made;
    return TX_OK;
}

void tx_optimizer_free(tx_optimizer *optimizer)
{
    if (optimizer)
        free(optimizer->piece);
    free(optimizer);
}

int64_t tx_offload_elements(const tx_optimizer *optimizer)
{
    const int64_t requested = optimizer ? optimizer->options.offload_elements : 0;
    return (requested ? requested : INT64_C(4) << 20) / TX_PARAM_BLOCK * TX_PARAM_BLOCK;
}

const tx_optimizer_form *tx_optimizer_form_of(const tx_optimizer *optimizer, const tx_param_spec *spec)
{
    return &optimizer->form[optimizer->takes && !optimizer->takes(spec)];
}

bool tx_optimizer_keeps_zeros(const tx_optimizer *optimizer, const tx_param_spec *spec)
{
    return optimizer && optimizer->options.keep_zeros && spec->logical.rank == 2 && !spec->table;
}

bool tx_optimizer_is_whole(tx_optimizer_kind kind)
{
    return (uint32_t)kind < TX_OPTIMIZER_KINDS &&
           (forms[optimizers[kind].form].whole || forms[optimizers[kind].other].whole);
}

bool tx_optimizer_needs_epsilon(tx_optimizer_kind kind)
{
    switch (kind) {
    case TX_ADAMW:
    case TX_ADAMW_8BIT:
    case TX_ADAMW_ANYPRECISION:
    case TX_ADEMAMIX:
    case TX_SCHEDULE_FREE_ADAMW:
    case TX_APOLLO:
        return true;
    default:
        return false;
    }
}

bool tx_optimizer_divides(const tx_optimizer *optimizer)
{
    for (int i = 0; i < 2; i++)
        for (int32_t k = 0; k < optimizer->form[i].states; k++)
            if (optimizer->form[i].whole || optimizer->form[i].state[k].per != TX_PER_WEIGHT)
                return false;
    return true;
}

/* ---- States ---------------------------------------------------------------------------------------- */

int64_t tx_state_count(const tx_optimizer_state *state, const tx_shape *shape, int64_t elements)
{
    const int64_t width = state->width ? state->width : 1;
    switch (state->per) {
    case TX_PER_BLOCK:
        return tx_param_blocks(elements) * width;
    case TX_PER_ROW:
        return shape->dim[0] * width;
    case TX_PER_COLUMN:
        return shape->dim[1] * width;
    case TX_PER_CHANNEL:
        return tx_max(shape->dim[0], shape->dim[1]) * width;
    case TX_PER_TENSOR:
        return width;
    default:
        return elements * width;
    }
}

int64_t tx_state_values_before(const tx_optimizer_state *state, const tx_param_spec *spec, int32_t number)
{
    int64_t count = 0;
    for (int32_t i = 0; i < number; i++) {
        const tx_shape shape = tx_param_tensor_of(spec, i).shape;
        count += tx_state_count(state, &shape, tx_shape_count(&shape));
    }
    return count;
}

/* Returns the logical shape of a state. States by column have one row for each tensor. */
static tx_shape shape_of_state(const tx_optimizer_state *state, const tx_param_spec *spec)
{
    const int32_t tensors = tx_param_tensors(spec);
    if (state->per == TX_PER_WEIGHT)
        return spec->logical;
    const int64_t count = state->per == TX_PER_BLOCK
                              ? tx_state_count(state, &spec->logical, tx_shape_count(&spec->logical))
                              : tx_state_values_before(state, spec, tensors);
    if (state->per == TX_PER_COLUMN && tensors > 1)
        return TX_SHAPE(tensors, count / tensors);
    return state->width > 1 ? TX_SHAPE(count / state->width, state->width) : TX_SHAPE(count);
}

/* Returns the form of a parameter, or NULL if it has no states. */
static const tx_optimizer_form *form_of(const tx_model *model, int32_t index)
{
    const bool trained = model->optimizer && index >= 0 && index < model->params;
    return trained && !model->param[index].spec.frozen
               ? tx_optimizer_form_of(model->optimizer, &model->param[index].spec)
               : NULL;
}

int32_t tx_model_states(const tx_model *model, int32_t index)
{
    TX_NEEDS(model, 0);
    const tx_optimizer_form *form = form_of(model, index);
    return form ? form->states : 0;
}

tx_status tx_model_state(const tx_model *model, int32_t index, int32_t k, tx_state_info *info)
{
    TX_NEEDS(model && info, TX_INVALID);
    if (k < 0 || k >= tx_model_states(model, index))
        return tx_fail(TX_NOT_FOUND, "the model's optimizer has no state number %d of parameter %d", k, index);
    const tx_optimizer_state *state = &form_of(model, index)->state[k];
    *info = (tx_state_info){state->name, state->dtype, shape_of_state(state, &model->param[index].whole),
                            state->never_negative};
    return TX_OK;
}

int64_t tx_model_state_bytes(const tx_model *model)
{
    TX_NEEDS(model, 0);
    int64_t bytes = 0;
    for (int32_t p = 0; p < model->params; p++)
        for (int32_t k = 0; k < tx_model_states(model, p); k++) {
            const tx_optimizer_state *state = &form_of(model, p)->state[k];
            const tx_shape shape = shape_of_state(state, &model->param[p].whole);
            bytes += tx_shape_count(&shape) * (int64_t)tx_dtype_size(state->dtype);
        }
    return bytes;
}
