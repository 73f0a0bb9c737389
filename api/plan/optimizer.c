/* SPDX-License-Identifier: Apache-2.0
 * The update plan: global gradient norm, clip factor, and the optimizer over the flat arenas. */
#include "api/parallel/parallel.h"
#include "api/plan/plan.h"

#include <string.h>

static const tx_attrs plain = {.control = -1, .alpha = 1.0f};

/* ---- The table --------------------------------------------------------------------------------- */

typedef struct optimizer {
    tx_op op;
    tx_optimizer_state state[TX_MAX_OPTIMIZER_STATES]; /* behind the last: no name */
} optimizer;

static const optimizer optimizers[TX_OPTIMIZER_KINDS] = {
#define TX_OPTIMIZER(NAME, ...) [TX_##NAME] = {TX_OP_##NAME, {__VA_ARGS__}},
#include "optimizers.def"
};

enum {
    ROWS = 0
#define TX_OPTIMIZER(...) +1
#include "optimizers.def"
};
_Static_assert((int)ROWS == (int)TX_OPTIMIZER_KINDS, "every kind of tx.h has a row in optimizers.def");

/* How many states it keeps with these options: those that an option can leave out come last. */
static int32_t count_states(const tx_optimizer_options *o)
{
    const tx_optimizer_state *state = optimizers[o->kind].state;
    for (int32_t k = 0; k < TX_MAX_OPTIMIZER_STATES; k++) {
        const void *option = (const char *)o + state[k].option;
        if (!state[k].name || (state[k].option && !(*(const float *)option > 0)))
            return k;
    }
    return TX_MAX_OPTIMIZER_STATES;
}

int32_t tx_model_optimizer_states(const tx_model *model)
{
    return model->optimizer_states;
}

tx_status tx_model_optimizer_state(const tx_model *model, int32_t index, const char **name, bool *never_negative)
{
    if (index < 0 || index >= model->optimizer_states)
        return tx_fail(TX_NOT_FOUND, "the model's optimizer has no state number %d", index);
    *name = model->optimizer_state[index].name;
    *never_negative = model->optimizer_state[index].never_negative;
    return TX_OK;
}

/* ---- Nodes ------------------------------------------------------------------------------------- */

/* Elements of an arena as one vector. */
static tx_tensor *range(tx_graph *graph, tx_arena_id arena, int64_t address, int64_t count)
{
    return tx_tensor_fixed(graph, TX_F32, TX_SHAPE(count), arena, address);
}

/* What one optimizer node works on: a range of the weights, its gradients, states and group bytes. */
typedef struct span {
    int64_t count; /* elements */
    int64_t weights, gradients, groups, state[TX_MAX_OPTIMIZER_STATES];
} span;

/* The operand that a state is. */
static tx_tensor *state_range(tx_graph *graph, const span *s, int32_t k)
{
    const tx_optimizer_state *state = &graph->model->optimizer_state[k];
    const int64_t bytes = tx_optimizer_bytes(state, s->count * (int64_t)sizeof(float));
    return tx_tensor_fixed(graph, state->dtype, TX_SHAPE(bytes / (int64_t)tx_dtype_size(state->dtype)),
                           TX_ARENA_OPTIMIZER, s->state[k]);
}

/* Result GRAD_SUMSQ gains the sum over a span's gradients. */
static void add_sumsq(tx_graph *graph, const span *s)
{
    tx_emit_args args = {.op = TX_OP_REDUCE, .attrs = plain};
    args.attrs.reduction = TX_REDUCE_SUMSQ;
    args.attrs.axis = TX_AXIS_ALL;
    args.attrs.accumulate = TX_ADD;
    args.in[0] = range(graph, TX_ARENA_GRADIENTS, s->gradients, s->count);
    args.out[0] = tx_tensor_result(graph, TX_RESULT_GRAD_SUMSQ);
    if (args.in[0] && args.out[0])
        tx_emit(graph, &args);
}

static void clear_sumsq(tx_graph *graph)
{
    tx_emit_args args = {.op = TX_OP_FILL, .attrs = plain, .shape = &TX_SHAPE(1)};
    args.attrs.alpha = 0.0f;
    args.out[0] = tx_tensor_result(graph, TX_RESULT_GRAD_SUMSQ);
    if (args.out[0])
        tx_emit(graph, &args);
}

/* Which operand of an optimizer's op is the weights' copy of 16 bits: the one behind all states that its row has; 0: it
 * has none. */
static int32_t copy_operand(const optimizer *o)
{
    int32_t operand = (int32_t)TX_IN(adamw, m);
    for (int32_t k = 0; k < TX_MAX_OPTIMIZER_STATES && o->state[k].name; k++)
        operand++;
    return operand < tx_op_info_of(o->op)->inputs ? operand : 0;
}

/* Updates that spread over the ranks are gathered, and cast when they are. */
static bool writes_copies(const tx_model *model, const optimizer *o)
{
    return model->half != TX_F32 && copy_operand(o) && !tx_parallel_sharded(model->parallel);
}

static void add_update(tx_graph *graph, const tx_optimizer_options *o, const span *s)
{
    tx_emit_args args = {.op = optimizers[o->kind].op, .attrs = plain};
    args.attrs.beta1 = o->beta1;
    args.attrs.beta2 = o->beta2;
    args.attrs.eps = o->eps;
    args.attrs.momentum = o->momentum;
    args.attrs.weight_decay = o->weight_decay;
    /* p, g, groups, states and p, states are what all rows of optimizers.def have. */
    args.in[TX_IN(adamw, p)] = args.out[TX_OUT(adamw, p)] = range(graph, TX_ARENA_WEIGHTS, s->weights, s->count);
    args.in[TX_IN(adamw, g)] = range(graph, TX_ARENA_GRADIENTS, s->gradients, s->count);
    args.in[TX_IN(adamw, groups)] =
        tx_tensor_fixed(graph, TX_U8, TX_SHAPE(s->count / TX_PARAM_BLOCK), TX_ARENA_STATE, s->groups);
    for (size_t k = 0; k < (size_t)graph->model->optimizer_states; k++)
        args.in[TX_IN(adamw, m) + k] = args.out[TX_OUT(adamw, m) + k] = state_range(graph, s, (int32_t)k);
    const int32_t copy = copy_operand(&optimizers[o->kind]);
    if (writes_copies(graph->model, &optimizers[o->kind])) /* as output behind the states, too */
        args.in[copy] = args.out[copy - 2] =
            tx_tensor_fixed(graph, graph->model->half, TX_SHAPE(s->count), TX_ARENA_HALF,
                            tx_model_half_address(graph->model, s->weights));
    if (graph->status == TX_OK)
        tx_emit(graph, &args);
}

/* Chunk `c` of the parameters. */
static span chunk_span(const tx_model *model, const int64_t *groups, int32_t c)
{
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    int64_t address = c * weights->chunk_bytes;
    span s = {weights->used[c] / (int64_t)sizeof(float), address, address, groups[c], {0}};
    for (int32_t k = 0; k < model->optimizer_states; k++)
        s.state[k] = tx_optimizer_address(model, k, address);
    return s;
}

/* This rank's shard of a bucket; its gradients are where the stage keeps them. */
static span shard_span(const tx_model *model, const int64_t *groups, const tx_bucket *b)
{
    const tx_arena *weights = &model->arena[TX_ARENA_WEIGHTS];
    int64_t address = b->address + b->first * (int64_t)sizeof(float);
    int64_t block = address % weights->chunk_bytes / (TX_PARAM_BLOCK * (int64_t)sizeof(float));
    span s = {b->owned,
              address,
              model->parallel->options.zero_stage == 2 ? b->kept : address,
              groups[tx_arena_chunk(weights, address)] + block,
              {0}};
    memcpy(s.state, b->state, sizeof s.state);
    return s;
}

static void add_collective(tx_graph *graph, tx_op op, int32_t bucket, tx_tensor *in, tx_tensor *out)
{
    tx_emit_args args = {.op = op, .attrs = plain, .in = {in}, .out = {out}};
    args.attrs.bucket = bucket;
    if (in && out)
        tx_emit(graph, &args);
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

/* LOSS and GRAD_SUMSQ, the first two results. */
static void reduce_results(tx_graph *graph)
{
    _Static_assert(TX_RESULT_LOSS == 0 && TX_RESULT_GRAD_SUMSQ == 1, "what is summed lies together");
    tx_emit_args args = {.op = TX_OP_REDUCE_RESULTS, .attrs = plain};
    tx_tensor *x = tx_tensor_fixed(graph, TX_F32, TX_SHAPE(2), TX_ARENA_RESULT, 0);
    tx_tensor *w = tx_tensor_fixed(graph, TX_F32, TX_SHAPE(3), TX_ARENA_EXCHANGE, graph->model->parallel->results);
    args.in[TX_IN(reduce_results, x)] = args.out[TX_OUT(reduce_results, y)] = x;
    args.out[TX_OUT(reduce_results, w)] = w;
    if (x && w)
        tx_emit(graph, &args);
}

/* The norm of the gradients: of all of them, or the ranks' sums over their shards. */
static void add_norm(tx_graph *graph, const int64_t *groups)
{
    const tx_model *model = graph->model;
    const tx_parallel *p = model->parallel;
    for (int32_t i = 0; p && i < p->buckets; i++)
        if (p->options.zero_stage < 2) /* else the training plan has waited */
            wait_for_gradients(graph, i);
    clear_sumsq(graph);
    for (int32_t i = 0; p && i < p->buckets; i++) {
        const span s = shard_span(model, groups, &p->bucket[i]);
        if (s.count > 0)
            add_sumsq(graph, &s);
    }
    for (int32_t c = 0; !p && c < model->arena[TX_ARENA_WEIGHTS].chunks; c++) {
        const span s = chunk_span(model, groups, c);
        add_sumsq(graph, &s);
    }
    if (p)
        reduce_results(graph);
    tx_emit(graph, &(tx_emit_args){.op = TX_OP_CLIP_NORM, .attrs = plain});
}

/* A sharded update begins with the lowest layers, which the next forward pass needs first. */
static void add_updates(tx_graph *graph, const tx_optimizer_options *o, const int64_t *groups)
{
    const tx_model *model = graph->model;
    const tx_parallel *p = model->parallel;
    bool sharded = tx_parallel_sharded(p);
    for (int32_t i = sharded ? p->buckets - 1 : -1; i >= 0; i--) {
        const span s = shard_span(model, groups, &p->bucket[i]);
        if (s.count > 0)
            add_update(graph, o, &s);
        gather_weights(graph, i);
    }
    for (int32_t c = 0; !sharded && c < model->arena[TX_ARENA_WEIGHTS].chunks; c++) {
        const span s = chunk_span(model, groups, c);
        add_update(graph, o, &s);
    }
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
    return TX_OK;
}

tx_status tx_optimizer_create(tx_model *model, const tx_optimizer_options *options, tx_plan **plan)
{
    tx_graph *graph = NULL;
    int64_t groups[TX_MAX_CHUNKS];
    tx_status status = check_options(options);
    if (status == TX_OK && !model->has_gradients)
        status = tx_fail(TX_INVALID, "the optimizer needs a graph with gradients first (tx_backward)");
    if (status == TX_OK && model->optimizer_states > 0)
        status = tx_fail(TX_INVALID, "the model has an optimizer already");
    if (status == TX_OK)
        status = tx_model_declare_groups(model, groups);
    if (status == TX_OK)
        status = tx_graph_create(model, &graph);
    if (status != TX_OK)
        return status;
    model->optimizer_state = optimizers[options->kind].state;
    model->optimizer_states = count_states(options);
    if (tx_parallel_sharded(model->parallel))
        status = tx_parallel_states(model);
    if (status != TX_OK) {
        tx_graph_free(graph);
        return status;
    }
    graph->direction = TX_UPDATE;
    add_norm(graph, groups);
    add_updates(graph, options, groups);
    const bool writes = writes_copies(model, &optimizers[options->kind]);
    status = tx_plan_create_owned(graph, "update", plan);
    if (status == TX_OK)
        (*plan)->leaves_copies = !writes && !tx_parallel_sharded(model->parallel);
    return status;
}
