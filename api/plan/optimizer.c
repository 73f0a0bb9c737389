/* SPDX-License-Identifier: Apache-2.0
 * The update plan: global gradient norm, clip factor, and the optimizer over the flat arenas. */
#include "api/base/hash.h"
#include "api/base/needs.h"
#include "api/plan/plan.h"
#include "api/residency/residency.h"

#include <string.h>

/* ---- Nodes ------------------------------------------------------------------------------------- */

/* The node of a piece reads and writes a range of the arenas, or a tensor. */
static tx_tensor *weights_of(tx_graph *graph, const tx_optimizer_piece *piece, tx_shape shape)
{
    return tx_tensor_fixed(graph, graph->model->stored, shape, graph->model->exchange.weights, piece->weights);
}

static tx_tensor *gradients_of(tx_graph *graph, const tx_optimizer_piece *piece, tx_shape shape)
{
    return tx_tensor_fixed(graph, graph->model->stored, shape, TX_ARENA_GRADIENTS, piece->gradients);
}

/* Returns the operand for a state. */
static tx_tensor *state_operand(tx_graph *graph, const tx_optimizer_piece *piece, int32_t k)
{
    const tx_optimizer_state *state = &piece->form->state[k];
    return tx_tensor_fixed(graph, state->dtype, TX_SHAPE(tx_state_count(state, &piece->shape, piece->count)),
                           TX_ARENA_OPTIMIZER, piece->state[k]);
}

void tx_update_add_squares(tx_graph *graph, int64_t gradients, int64_t count)
{
    if (count == 0)
        return;
    tx_emit_args args = {
        .op = TX_OP_REDUCE,
        .attrs = TX_ATTRS(.reduction = TX_REDUCE_SUMSQ, .axis = TX_AXIS_ALL, .accumulate = TX_ADD),
        .in = {tx_tensor_fixed(graph, graph->model->stored, TX_SHAPE(count), TX_ARENA_GRADIENTS, gradients)},
        .out = {tx_tensor_result(graph, TX_RESULT_GRAD_SUMSQ)}};
    tx_emit(graph, &args);
}

static void clear_sumsq(tx_graph *graph)
{
    tx_emit_args args = {.op = TX_OP_FILL,
                         .attrs = {.control = -1, .alpha = 0.0f},
                         .shape = &TX_SHAPE(1),
                         .out = {tx_tensor_result(graph, TX_RESULT_GRAD_SUMSQ)}};
    tx_emit(graph, &args);
}

static tx_attrs attrs_of(const tx_optimizer_options *o)
{
    return TX_ATTRS(.eps = o->eps, .update.beta1 = o->beta1, .update.beta2 = o->beta2, .update.beta3 = o->beta3,
                    .update.slow_weight = o->slow_weight, .update.beta3_steps = o->beta3_steps,
                    .update.slow_weight_steps = o->slow_weight_steps, .update.warmup_steps = o->warmup_steps,
                    .update.momentum = o->momentum, .update.weight_decay = o->weight_decay,
                    .update.nesterov = o->nesterov, .update.relative_step = o->relative_step,
                    .update.scale_parameter = o->scale_parameter, .update.warmup_init = o->warmup_init,
                    .update.projection_steps = o->update_proj_gap, .update.by_tensor = o->scale_by_tensor,
                    .update.scale_front = o->scale_front, .update.unlimited = o->disable_nl);
}

/* Returns the index of the op's operand for the 16-bit copy, after all states of the form's row, or 0 if it has none.
 */
static int32_t copy_operand(const tx_optimizer_form *form)
{
    int32_t operand = (int32_t)TX_IN(adamw, m);
    for (int32_t k = 0; k < TX_MAX_OPTIMIZER_STATES && form->state[k].name; k++)
        operand++;
    return operand < tx_op_info_of(form->op)->inputs ? operand : 0;
}

/* If one form cannot write copies, or ranks gather the new weights, all weights are cast instead. */
static bool writes_copies(const tx_model *model)
{
    const tx_optimizer_form *form = model->optimizer->form;
    return model->copies.dtype != TX_F32 && !model->copies.range && copy_operand(&form[0]) && copy_operand(&form[1]);
}

/* Returns the key of random numbers for a tensor, by its name, so that it is the same on all ranks. */
static int32_t site_of(const tx_model *model, const tx_optimizer_piece *piece)
{
    const char *name = model->param[piece->param].name;
    const uint64_t hash = tx_hash(tx_hash(TX_HASH_START, name, strlen(name)), &piece->tensor, sizeof piece->tensor);
    return (int32_t)(uint32_t)(hash ^ hash >> 32);
}

void tx_update_add_piece(tx_graph *graph, const tx_optimizer_piece *piece)
{
    const tx_optimizer_form *form = piece->form;
    tx_emit_args args = {.op = form->op, .attrs = attrs_of(&graph->model->optimizer->options)};
    args.attrs.update.rate = piece->rate;
    const int64_t blocks = form->whole ? 1 : piece->count / TX_PARAM_BLOCK;
    args.attrs.first = piece->address / tx_model_element(graph->model);
    args.attrs.draw.site = site_of(graph->model, piece);
    /* Every row of optimizers.def has the operands p, g, groups, states and the results p, states. */
    args.in[TX_IN(adamw, p)] = args.out[TX_OUT(adamw, p)] = weights_of(graph, piece, piece->shape);
    args.in[TX_IN(adamw, g)] = gradients_of(graph, piece, piece->shape);
    args.in[TX_IN(adamw, groups)] = tx_tensor_fixed(graph, TX_U8, TX_SHAPE(blocks), TX_ARENA_STATE, piece->groups);
    for (int32_t k = 0; k < form->states; k++)
        args.in[TX_IN(adamw, m) + (size_t)k] = args.out[TX_OUT(adamw, m) + (size_t)k] = state_operand(graph, piece, k);
    if (writes_copies(graph->model) && args.in[TX_IN(adamw, p)]) { /* also an output, after the states */
        const int32_t copy = copy_operand(form);
        args.in[copy] = args.out[copy - 2] =
            tx_tensor_fixed(graph, graph->model->copies.dtype, TX_SHAPE(piece->count), TX_ARENA_HALF,
                            tx_model_half_address(graph->model, args.in[TX_IN(adamw, p)]->offset));
    }
    if (form->emit)
        form->emit(graph, &args, &graph->model->optimizer->options);
    else
        tx_emit(graph, &args);
}

/* Masks gradients of pruned weights before the norm is computed. Pieces that are one tensor of a parameter without
 * keep_zeros are skipped. */
static void mask_gradients(tx_graph *graph)
{
    const tx_optimizer *o = graph->model->optimizer;
    for (int32_t i = 0; i < o->pieces && o->options.keep_zeros; i++) {
        const tx_optimizer_piece *piece = &o->piece[i];
        const tx_shape count = TX_SHAPE(piece->count), blocks = TX_SHAPE(tx_param_blocks(piece->count));
        if (piece->form->whole && !tx_optimizer_keeps_zeros(o, &graph->model->param[piece->param].spec))
            continue;
        tx_emit_args args = {.op = TX_OP_MASK_GRADIENT, .attrs = TX_PLAIN};
        args.in[TX_IN(mask_gradient, p)] = weights_of(graph, piece, count);
        args.in[TX_IN(mask_gradient, g)] = args.out[TX_OUT(mask_gradient, g)] = gradients_of(graph, piece, count);
        args.in[TX_IN(mask_gradient, groups)] = tx_tensor_fixed(graph, TX_U8, blocks, TX_ARENA_STATE, piece->groups);
        tx_emit(graph, &args);
    }
}

static void add_norm(tx_graph *graph)
{
    const tx_model *model = graph->model;
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    const tx_parallel_hooks *hooks = model->hooks;
    if (hooks)
        hooks->add_waits(graph);
    mask_gradients(graph);
    clear_sumsq(graph);
    if (hooks)
        hooks->add_squares(graph);
    for (int32_t c = 0; !hooks && c < weights->chunks; c++)
        tx_update_add_squares(graph, c * weights->chunk_bytes, weights->used[c] / tx_model_element(model));
    tx_emit(graph, &(tx_emit_args){.op = TX_OP_CLIP_NORM, .attrs = TX_PLAIN});
}

static void add_pieces(tx_graph *graph)
{
    const tx_model *model = graph->model;
    if (model->hooks)
        model->hooks->add_updates(graph);
    for (int32_t i = 0; !model->hooks && i < model->optimizer->pieces; i++)
        tx_update_add_piece(graph, &model->optimizer->piece[i]);
}

static bool is_state_type(tx_dtype dtype)
{
    return dtype == TX_F32 || dtype == TX_BF16;
}

static tx_status check_options(const tx_optimizer_options *o)
{
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "optimizer options: size is %zu, wanted %zu", o->size, sizeof *o);
    if ((uint32_t)o->kind >= TX_OPTIMIZER_KINDS)
        return tx_fail(TX_INVALID, "optimizer: there is no kind %d", (int)o->kind);
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1 && o->beta3 >= 0 && o->beta3 < 1))
        return tx_fail(TX_INVALID, "optimizer: betas must be in [0, 1)");
    if (!(o->eps >= 0 && o->momentum >= 0 && o->weight_decay >= 0))
        return tx_fail(TX_INVALID, "optimizer: epsilon, momentum and weight decay must not be negative");
    if (o->keep_zeros && o->eps == 0 && tx_optimizer_needs_epsilon(o->kind))
        return tx_fail(TX_INVALID, "optimizer: keep_zeros needs an epsilon above 0, because it divides moments of 0");
    if (o->nesterov && !(o->momentum > 0))
        return tx_fail(TX_INVALID, "optimizer: nesterov needs a momentum");
    if (!(o->warmup_steps >= 0))
        return tx_fail(TX_INVALID, "optimizer: warmup_steps must not be negative");
    if (!(o->slow_weight >= 0 && o->slow_weight_steps >= 0 && o->beta3_steps >= 0) ||
        (o->beta3_steps > 0 && !(o->beta1 > 0 && o->beta3 > 0)))
        return tx_fail(TX_INVALID, "optimizer: the slow moment's weight and steps must not be negative, "
                                   "and a beta3 that rises needs betas above 0");
    if (o->kind == TX_APOLLO && !(o->rank > 0 && o->update_proj_gap > 0 && o->scale > 0))
        return tx_fail(TX_INVALID, "optimizer: APOLLO's rank, steps of a projection and scale must be above 0");
    if (o->warmup_init && !o->relative_step)
        return tx_fail(TX_INVALID, "optimizer: warmup_init needs relative_step");
    if (o->offload == TX_OFFLOAD_FILE && !o->offload_folder)
        return tx_fail(TX_INVALID, "optimizer: offload to a file needs offload_folder");
    if ((uint32_t)o->offload > TX_OFFLOAD_FILE || (o->offload_elements != 0 && o->offload_elements < TX_PARAM_BLOCK))
        return tx_fail(TX_INVALID, "optimizer: offload_elements must be at least %d, offload one of the places 0 to %d",
                       TX_PARAM_BLOCK, TX_OFFLOAD_FILE);
    if (!is_state_type(o->momentum_dtype) || !is_state_type(o->variance_dtype) || !is_state_type(o->compensation_dtype))
        return tx_fail(TX_INVALID, "optimizer: the type of states must be F32 or BF16");
    return TX_OK;
}

static tx_status check_model(const tx_model *model, const tx_optimizer_options *o)
{
    if (!model->has_gradients)
        return tx_fail(TX_INVALID, "the optimizer needs a graph with gradients first (tx_backward)");
    if (model->optimizer)
        return tx_fail(TX_INVALID, "the model has an optimizer already");
    if (model->stored == TX_F16)
        return tx_fail(TX_INVALID, "weights stored in float16 cannot be trained");
    if (model->stored == TX_BF16 && o->kind != TX_ADAMW && o->kind != TX_ADAMW_ANYPRECISION)
        return tx_fail(TX_UNSUPPORTED, "weights stored in bfloat16 need AdamW: no other optimizer can update them");
    return TX_OK;
}

/* Returns the options for the model's storage type: AdamW of BF16 becomes AdamW with typed states. */
static tx_optimizer_options as_stored(const tx_model *model, const tx_optimizer_options *options)
{
    tx_optimizer_options o = *options;
    if (model->stored == TX_BF16 && o.kind == TX_ADAMW) {
        o.kind = TX_ADAMW_ANYPRECISION;
        o.momentum_dtype = o.variance_dtype = TX_BF16;
        o.kahan = false;
    }
    return o;
}

tx_status tx_optimizer_create(tx_model *model, const tx_optimizer_options *options, tx_plan **plan)
{
    TX_NEEDS(model && options && plan, TX_INVALID);
    tx_graph *graph = NULL;
    tx_optimizer *optimizer = NULL;
    int64_t groups[TX_MAX_CHUNKS];
    const int32_t holdings = model->holdings;
    TX_TRY(check_options(options));
    TX_TRY(check_model(model, options));
    const tx_optimizer_options resolved = as_stored(model, options);
    TX_TRY(tx_optimizer_choose(&resolved, &optimizer));
    tx_status status = model->hooks ? model->hooks->check_optimizer(model, optimizer) : TX_OK;
    TX_THEN(status, tx_model_declare_groups(model, groups));
    if (resolved.offload != TX_OFFLOAD_NONE)
        TX_THEN(status, tx_model_offload_states(model, &resolved));
    TX_THEN(status, tx_optimizer_cut(model, groups, optimizer));
    TX_THEN(status, tx_graph_create(model, &graph));
    if (status != TX_OK) {
        tx_optimizer_free(optimizer);
        model->holdings = holdings;
        return status;
    }
    model->optimizer = optimizer;
    graph->direction = TX_UPDATE;
    add_norm(graph);
    add_pieces(graph);
    TX_TRY(tx_plan_create_owned(graph, "update", plan));
    (*plan)->changes_weights = true;
    (*plan)->leaves_copies = !writes_copies(model) && !model->copies.range;
    return TX_OK;
}

tx_status tx_optimizer_average(tx_model *model, tx_plan **plan)
{
    TX_NEEDS(model && plan, TX_INVALID);
    tx_graph *graph = NULL;
    if (!model->optimizer)
        return tx_fail(TX_INVALID, "the model has no optimizer yet");
    *plan = NULL;
    if (!model->optimizer->form[0].state[0].averages)
        return TX_OK;
    TX_TRY(tx_graph_create(model, &graph));
    graph->direction = TX_UPDATE;
    graph->exchanges = true;
    add_pieces(graph);
    TX_TRY(tx_plan_create_owned(graph, "average", plan));
    (*plan)->settles = true; /* the weights of the update may still be on their way */
    (*plan)->changes_weights = true;
    (*plan)->leaves_copies = !model->copies.range;
    return TX_OK;
}
