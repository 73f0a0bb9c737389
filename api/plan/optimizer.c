/* SPDX-License-Identifier: Apache-2.0
 * The update plan: global gradient norm, clip factor, and the optimizer over the flat arenas. */
#include "api/base/needs.h"
#include "api/parallel/buckets.h"
#include "api/plan/plan.h"

/* ---- Nodes ------------------------------------------------------------------------------------- */

/* A node of a piece reads and writes a range of the arenas, or a tensor. This rank's shard of weights lies as its
 * gradients do. */
static tx_tensor *weights_of(tx_graph *graph, const tx_optimizer_piece *piece, tx_shape shape)
{
    const tx_parallel *p = graph->model->parallel;
    return tx_tensor_fixed(graph, graph->model->stored, shape, tx_parallel_weights(p),
                           tx_parallel_gathers(p) ? piece->gradients : piece->address);
}

static tx_tensor *gradients_of(tx_graph *graph, const tx_optimizer_piece *piece, tx_shape shape)
{
    return tx_tensor_fixed(graph, graph->model->stored, shape, TX_ARENA_GRADIENTS, piece->gradients);
}

/* The operand that a state is. */
static tx_tensor *state_operand(tx_graph *graph, const tx_optimizer_piece *piece, int32_t k)
{
    const tx_optimizer_state *state = &piece->form->state[k];
    return tx_tensor_fixed(graph, state->dtype, TX_SHAPE(tx_state_count(state, &piece->shape, piece->count)),
                           TX_ARENA_OPTIMIZER, piece->state[k]);
}

/* Result GRAD_SUMSQ gains the sum over gradients. */
static void add_sumsq(tx_graph *graph, int64_t gradients, int64_t count)
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
    return TX_ATTRS(.eps = o->eps, .update.beta1 = o->beta1, .update.beta2 = o->beta2, .update.momentum = o->momentum,
                    .update.weight_decay = o->weight_decay, .update.nesterov = o->nesterov,
                    .update.relative_step = o->relative_step, .update.scale_parameter = o->scale_parameter,
                    .update.warmup_init = o->warmup_init);
}

/* Which operand of a form's op is the weights' copy of 16 bits: the one behind all states that its row has; 0: none. */
static int32_t copy_operand(const tx_optimizer_form *form)
{
    int32_t operand = (int32_t)TX_IN(adamw, m);
    for (int32_t k = 0; k < TX_MAX_OPTIMIZER_STATES && form->state[k].name; k++)
        operand++;
    return operand < tx_op_info_of(form->op)->inputs ? operand : 0;
}

/* Where one form cannot write copies, all are cast. */
static bool writes_copies(const tx_model *model)
{
    const tx_optimizer_form *form = model->optimizer->form;
    return model->copies.dtype != TX_F32 && copy_operand(&form[0]) && copy_operand(&form[1]) &&
           !tx_parallel_gathers_updates(model->parallel);
}

static void add_update(tx_graph *graph, const tx_optimizer_piece *piece)
{
    const tx_optimizer_form *form = piece->form;
    tx_emit_args args = {.op = form->op, .attrs = attrs_of(&graph->model->optimizer->options)};
    const int64_t blocks = form->whole ? 1 : piece->count / TX_PARAM_BLOCK;
    args.attrs.first = piece->address / tx_model_element(graph->model);
    /* p, g, groups, states and p, states are what all rows of optimizers.def have. */
    args.in[TX_IN(adamw, p)] = args.out[TX_OUT(adamw, p)] = weights_of(graph, piece, piece->shape);
    args.in[TX_IN(adamw, g)] = gradients_of(graph, piece, piece->shape);
    args.in[TX_IN(adamw, groups)] = tx_tensor_fixed(graph, TX_U8, TX_SHAPE(blocks), TX_ARENA_STATE, piece->groups);
    for (int32_t k = 0; k < form->states; k++)
        args.in[TX_IN(adamw, m) + (size_t)k] = args.out[TX_OUT(adamw, m) + (size_t)k] = state_operand(graph, piece, k);
    if (writes_copies(graph->model) && args.in[TX_IN(adamw, p)]) { /* as output behind the states, too */
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

/* Gradients of pruned weights, before the norm sees them; pieces of one tensor of a parameter that keeps no zeros
 * need nothing. */
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

static void add_collective(tx_graph *graph, tx_op op, int32_t bucket, tx_tensor *in, tx_tensor *out)
{
    tx_emit(graph, &(tx_emit_args){.op = op, .attrs = TX_ATTRS(.exchange.bucket = bucket), .in = {in}, .out = {out}});
}

static void wait_for_gradients(tx_graph *graph, int32_t bucket)
{
    add_collective(graph, TX_OP_WAIT_GRADIENTS, bucket, tx_parallel_exchanged(graph, TX_ARENA_GRADIENTS, bucket),
                   tx_parallel_tensor(graph, TX_ARENA_GRADIENTS, bucket));
}

static void gather_weights(tx_graph *graph, int32_t bucket)
{
    add_collective(graph, TX_OP_GATHER_WEIGHTS, bucket, tx_parallel_tensor(graph, TX_ARENA_WEIGHTS, bucket),
                   tx_parallel_exchanged(graph, TX_ARENA_WEIGHTS, bucket));
}

#define SUMMED 3 /* results: LOSS, GRAD_SUMSQ and DROPPED, the first */

/* They are summed over the ranks. */
static void reduce_results(tx_graph *graph)
{
    _Static_assert(TX_RESULT_LOSS < SUMMED && TX_RESULT_GRAD_SUMSQ < SUMMED && TX_RESULT_DROPPED < SUMMED,
                   "what is summed lies together");
    tx_tensor *x = tx_tensor_fixed(graph, TX_F32, TX_SHAPE(SUMMED), TX_ARENA_RESULT, 0);
    tx_tensor *w =
        tx_tensor_fixed(graph, TX_F32, TX_SHAPE(SUMMED + 1), TX_ARENA_EXCHANGE, graph->model->parallel->results);
    tx_emit(graph, &(tx_emit_args){.op = TX_OP_REDUCE_RESULTS, .attrs = TX_PLAIN, .in = {x}, .out = {x, w}});
}

/* The stretches of a parameter of which this rank is the first replica, as far as its shard of the bucket has them. */
static void add_param(tx_graph *graph, const tx_bucket *b, const tx_param_record *r)
{
    const int64_t gradients = tx_bucket_gradients(graph->model->parallel, b);
    const int64_t begin = b->address + b->first * b->element, own = begin + b->owned * b->element;
    tx_param_run s;
    for (int32_t run = 0; tx_own_stretch(r, &run, &s);) {
        const int64_t first = r->offset + s.own * b->element, end = first + s.count * b->element;
        const int64_t from = first > begin ? first : begin, to = end < own ? end : own;
        if (s.replica == 0 && from < to)
            add_sumsq(graph, gradients + from - begin, (to - from) / b->element);
    }
}

/* This rank's shard of a bucket. Of what all ranks of a tensor group have the first one counts, the others what they
 * have parts of; what two stages have one of them counts. */
static void add_bucket(tx_graph *graph, const tx_bucket *b)
{
    const tx_model *model = graph->model;
    const bool again =
        model->mesh.stages > 1 && tx_model_has_stage(model, model->mesh.stages - 1); /* the first counts what is tied */
    if (model->mesh.tensor.rank == 0 && !again) {
        add_sumsq(graph, tx_bucket_gradients(model->parallel, b), b->owned);
        return;
    }
    for (int32_t i = 0; i < model->params; i++) {
        const bool counts =
            (model->mesh.tensor.rank == 0 || model->param[i].division.parts > 1) && tx_model_owns(model, i);
        if (counts && model->param[i].arena == TX_ARENA_WEIGHTS)
            add_param(graph, b, &model->param[i]);
    }
}

/* The norm of the gradients: of all of them, or the ranks' sums over their shards. */
static void add_norm(tx_graph *graph)
{
    const tx_model *model = graph->model;
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    const tx_parallel *p = model->parallel;
    for (int32_t i = 0; p && i < p->buckets; i++)
        if (!tx_parallel_keeps_shards(p)) /* else the training plan has waited */
            wait_for_gradients(graph, i);
    mask_gradients(graph);
    clear_sumsq(graph);
    for (int32_t i = 0; p && i < p->buckets; i++)
        add_bucket(graph, &p->bucket[i]);
    for (int32_t c = 0; !p && c < weights->chunks; c++)
        add_sumsq(graph, c * weights->chunk_bytes, weights->used[c] / tx_model_element(model));
    if (p)
        reduce_results(graph);
    tx_emit(graph, &(tx_emit_args){.op = TX_OP_CLIP_NORM, .attrs = TX_PLAIN});
}

/* The pieces in their order; a sharded bucket moves when the last of its own has been updated. */
static void add_updates(tx_graph *graph)
{
    const tx_optimizer *o = graph->model->optimizer;
    const tx_parallel *p = graph->model->parallel;
    int32_t done = 0;
    for (int32_t i = tx_parallel_sharded(p) ? p->buckets - 1 : -1; i >= 0; i--) {
        for (; done < o->pieces && tx_bucket_holds(&p->bucket[i], o->piece[done].address); done++)
            add_update(graph, &o->piece[done]);
        if (!tx_parallel_gathers(p)) /* else what reads them does */
            gather_weights(graph, i);
    }
    for (; done < o->pieces; done++)
        add_update(graph, &o->piece[done]);
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
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1))
        return tx_fail(TX_INVALID, "optimizer: betas must lie in [0, 1)");
    if (!(o->eps >= 0 && o->momentum >= 0 && o->weight_decay >= 0))
        return tx_fail(TX_INVALID, "optimizer: epsilon, momentum and weight decay must not be negative");
    if (o->keep_zeros && o->eps == 0 &&
        (o->kind == TX_ADAMW || o->kind == TX_ADAMW_8BIT || o->kind == TX_ADAMW_ANYPRECISION))
        return tx_fail(TX_INVALID,
                       "optimizer: keep_zeros needs an epsilon above 0, since moments that are 0 are divided");
    if (o->nesterov && !(o->momentum > 0))
        return tx_fail(TX_INVALID, "optimizer: nesterov needs a momentum");
    if (o->warmup_init && !o->relative_step)
        return tx_fail(TX_INVALID, "optimizer: warmup_init needs relative_step");
    if (o->offload == TX_OFFLOAD_FILE && !o->offload_folder)
        return tx_fail(TX_INVALID, "optimizer: a file of states needs offload_folder");
    if ((uint32_t)o->offload > TX_OFFLOAD_FILE || (o->offload_elements != 0 && o->offload_elements < TX_PARAM_BLOCK))
        return tx_fail(TX_INVALID, "optimizer: offload moves at least %d elements at a time, to one of %d places",
                       TX_PARAM_BLOCK, TX_OFFLOAD_FILE);
    if (!is_state_type(o->momentum_dtype) || !is_state_type(o->variance_dtype) || !is_state_type(o->compensation_dtype))
        return tx_fail(TX_INVALID, "optimizer: states are of F32 or BF16");
    return TX_OK;
}

static tx_status check_model(const tx_model *model, const tx_optimizer_options *o)
{
    const tx_parallel *p = model->parallel;
    if (!model->has_gradients)
        return tx_fail(TX_INVALID, "the optimizer needs a graph with gradients first (tx_backward)");
    if (model->optimizer)
        return tx_fail(TX_INVALID, "the model has an optimizer already");
    if (model->stored == TX_F16)
        return tx_fail(TX_INVALID, "weights that are stored in float16 cannot be trained");
    if (model->stored == TX_BF16 && o->kind != TX_ADAMW && o->kind != TX_ADAMW_ANYPRECISION)
        return tx_fail(TX_UNSUPPORTED, "weights that are stored in bfloat16 are updated by AdamW alone");
    if (tx_parallel_sharded(p) && tx_optimizer_is_whole(o->kind) && !p->options.whole)
        return tx_fail(TX_INVALID, "this optimizer works on whole parameters, and the ranks have parts of them: give "
                                   "tx_model_parallel the option `whole`");
    return TX_OK;
}

/* The options as they hold for weights of the model's type: AdamW of BF16 is the one whose states have types. */
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

/* A file has no limit on one piece. */
static tx_status place_states_away(tx_model *model, const tx_optimizer_options *o)
{
    tx_arena *states = &model->arena[TX_ARENA_OPTIMIZER];
    if (o->offload == TX_OFFLOAD_HOST)
        states->space = TX_SPACE_PINNED;
    if (o->offload != TX_OFFLOAD_FILE)
        return TX_OK;
    states->chunk_bytes = INT64_C(1) << 46;
    return tx_model_file_arena(model, TX_ARENA_OPTIMIZER, o->offload_folder);
}

/* Chooses the optimizer and gives its states their places. */
static tx_status make_optimizer(tx_model *model, const tx_optimizer_options *options, const int64_t *groups,
                                tx_optimizer **optimizer)
{
    const tx_mesh *mesh = &model->mesh;
    const tx_optimizer_options meant = as_stored(model, options);
    TX_TRY(place_states_away(model, &meant));
    TX_TRY(tx_optimizer_choose(&meant, optimizer));
    if ((mesh->tensor.size > 1 || mesh->expert.size > 1 || mesh->stages > 1) && !tx_optimizer_divides(*optimizer))
        return tx_fail(TX_UNSUPPORTED,
                       "this optimizer's states are of blocks or whole parameters, of which the ranks "
                       "of a tensor group, an expert group or a pipeline have parts: take AdamW, SGD or Lion");
    return tx_optimizer_cut(model, groups, *optimizer);
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
    TX_TRY(tx_model_declare_groups(model, groups));
    tx_status status = make_optimizer(model, options, groups, &optimizer);
    TX_THEN(status, tx_graph_create(model, &graph));
    if (status != TX_OK) {
        tx_optimizer_free(optimizer);
        model->holdings = holdings;
        return status;
    }
    model->optimizer = optimizer;
    graph->direction = TX_UPDATE;
    add_norm(graph);
    add_updates(graph);
    TX_TRY(tx_plan_create_owned(graph, "update", plan));
    (*plan)->changes_weights = true;
    (*plan)->leaves_copies = !writes_copies(model) && !tx_parallel_gathers_updates(model->parallel);
    return TX_OK;
}
