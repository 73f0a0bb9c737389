/* SPDX-License-Identifier: Apache-2.0
 * Gradient checkpointing: the same bits with less memory, the choice of recomputed nodes, and refusals.
 *   test_checkpointing DEVICE */

#include "api/graph/graph.h"
#include "api/model/model.h"
#include "models/arch/arch.h"
#include "models/task/causal_lm.h"
#include "tests/device_model.h"
#include "tests/gradients.h"

enum { BATCH = 2, LENGTH = 64, ROWS = BATCH * LENGTH, LAYERS = 4, WIDTH = 64, VOCAB = 257, WEIGHTS = 1 << 18 };

#define ALL INT32_MAX

static tx_checkpointing checkpointing(int32_t segments, int32_t whole, int32_t cheap)
{
    return (tx_checkpointing){sizeof(tx_checkpointing), segments, whole, cheap};
}

static tx_config *small_gpt2(void)
{
    tx_config *config = NULL;
    assert_ok(tx_config_preset("gpt2", &config));
    config->vocab_size = VOCAB;
    config->positions = LENGTH;
    config->width = WIDTH;
    config->layers = config->heads = LAYERS;
    return config;
}

/* The training plan of a GPT-2 with all its dropouts, for `config`. */
static void compile_model(fixture *f, tx_config *config, int64_t batch, int64_t length, tx_dtype dtype,
                          const tx_checkpointing *options, bool away)
{
    const tx_arch_options train = {.size = sizeof train, .train = true};
    tx_input(f->graph, "input_ids", TX_I32, TX_SHAPE(batch, length));
    tx_input(f->graph, "labels", TX_I32, TX_SHAPE(batch, length));
    assert_ok(tx_graph_autocast(f->graph, dtype));
    assert_ok(tx_graph_checkpointing(f->graph, options));
    if (away)
        assert_ok(tx_graph_offload_activations(f->graph));
    tx_tensor *logits = tx_arch_logits(f->graph, config, &train);
    assert_ok(tx_backward(f->graph, tx_label_loss(f->graph, config, logits, 0.0f)));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    tx_config_free(config);
}

static void compile(fixture *f, tx_dtype dtype, tx_checkpointing options, bool away)
{
    compile_model(f, small_gpt2(), BATCH, LENGTH, dtype, &options, away);
}

typedef struct outcome {
    float loss, gradient[WEIGHTS];
} outcome;

/* Two micro-batches. */
static void run(fixture *f, outcome *out)
{
    int32_t tokens[ROWS];
    memset(out, 0, sizeof *out);
    assert_ok(tx_model_init(f->model, 1));
    assert_ok(tx_model_set_seed(f->model, 5));
    assert_ok(tx_model_set(f->model, TX_CONTROL_INVERSE_LABELS, 0.5 / ROWS));
    for (int i = 0; i < 2; i++) {
        for (int t = 0; t < ROWS; t++)
            tokens[t] = (t * t * 7 + i * 31) % VOCAB;
        assert_ok(tx_model_set(f->model, TX_CONTROL_ACCUMULATE, i));
        assert_ok(tx_model_set(f->model, TX_CONTROL_SAMPLE, i * BATCH));
        assert_ok(tx_plan_write(f->plan, tx_find_input(f->graph, "input_ids"), tokens, sizeof tokens));
        assert_ok(tx_plan_write(f->plan, tx_find_input(f->graph, "labels"), tokens, sizeof tokens));
        assert_ok(tx_plan_run(f->plan));
    }
    assert_ok(read_gradients(f->model, &out->loss, out->gradient));
}

/* Returns the size of the planned arena and, in `kept`, of the part that is saved for the backward pass. */
static int64_t planned(const fixture *f, int64_t *kept)
{
    tx_memory memory;
    assert_ok(tx_model_memory(f->model, &memory));
    *kept = memory.bytes[TX_MEMORY_ACTIVATIONS];
    return memory.bytes[TX_MEMORY_ACTIVATIONS] + memory.bytes[TX_MEMORY_TEMPORARY];
}

static int32_t computed_again(const fixture *f, tx_op op)
{
    int32_t count = 0;
    for (int32_t i = 0; i < f->graph->nodes; i++)
        count += f->graph->node[i].direction == TX_RECOMPUTE && f->graph->node[i].op == op;
    return count;
}

static bool reads(const tx_node *n, const tx_tensor *t)
{
    bool any = false;
    for (int k = 0; k < TX_MAX_IN; k++)
        any = any || (n->in[k] && tx_tensor_root(n->in[k]) == t);
    return any;
}

/* Nodes wait for fetched tensors that they read, and memory is kept until an evicted tensor is copied. Copies are so
 * fast here that wrong results would not reveal an error. */
static void copies_are_waited_for(const fixture *f)
{
    const tx_graph *g = f->graph;
    int32_t fetched = 0, put = 0;
    for (int32_t i = 0; i < g->nodes; i++) {
        const tx_op op = g->node[i].op;
        if (op != TX_OP_FETCH && op != TX_OP_PUT_BACK)
            continue;
        const tx_tensor *t = tx_tensor_root(op == TX_OP_FETCH ? g->node[i].out[0] : g->node[i].in[0]);
        int32_t n = i + 1;
        while (n < g->nodes && g->node[n].op != TX_OP_WAIT_COPIES && !reads(&g->node[n], t))
            n++;
        assert_true(op == TX_OP_PUT_BACK || (n < g->nodes && g->node[n].op == TX_OP_WAIT_COPIES));
        while (n < g->nodes && op == TX_OP_PUT_BACK && !(g->node[n].op == TX_OP_WAIT_COPIES && reads(&g->node[n], t)))
            n++;
        assert_true(n < g->nodes);
        fetched += op == TX_OP_FETCH;
        put += op == TX_OP_PUT_BACK;
    }
    assert_true(put > 0 && put == fetched);
}

/* ---- The same bits ------------------------------------------------------------------------------------ */

static void train(tx_dtype dtype, tx_checkpointing options, bool away, outcome *out, int64_t *all, int64_t *kept)
{
    fixture *f;
    set_up_threads((void **)&f, 2);
    compile(f, dtype, options, away);
    *all = planned(f, kept);
    if (away)
        copies_are_waited_for(f);
    run(f, out);
    void *state = f;
    tear_down(&state);
}

static void same_bits(void **state)
{
    static outcome without, with;
    const tx_checkpointing ways[] = {checkpointing(0, ALL, 0), checkpointing(2, ALL, 0),    checkpointing(3, 2, 3),
                                     checkpointing(0, 0, ALL), checkpointing(0, 1, LAYERS), checkpointing(1, 1, 0)};
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const tx_dtype dtype = bf16 ? TX_BF16 : TX_F32;
        int64_t all, kept, less, kept_less;
        train(dtype, checkpointing(0, 0, 0), false, &without, &all, &kept);
        assert_true(without.loss > 1.0f && without.loss < 10.0f);
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            train(dtype, ways[i], false, &with, &less, &kept_less);
            if (memcmp(&with, &without, sizeof with) != 0)
                fail_msg("%s, way %zu: other bits, relative distance %g", tx_dtype_name(dtype), i,
                         relative_distance(with.gradient, without.gradient, WEIGHTS));
            if (!(kept_less < kept) || !(less <= all))
                fail_msg("%s, way %zu: %lld of %lld bytes are kept, %lld of %lld planned", tx_dtype_name(dtype), i,
                         (long long)kept_less, (long long)kept, (long long)less, (long long)all);
        }
    }
}

/* Saved activations of blocks are offloaded to host memory: those of three of the four blocks are not on the device
 * between the passes. */
static void put_away(void **state)
{
    static outcome without, with;
    for (int way = 0; way < 4; way++) {
        const tx_dtype dtype = way & 1 ? TX_BF16 : TX_F32;
        const tx_checkpointing again = checkpointing(0, way & 2 ? ALL : 0, 0);
        int64_t all, kept, less, kept_less;
        train(dtype, again, false, &without, &all, &kept);
        train(dtype, again, true, &with, &less, &kept_less);
        if (memcmp(&with, &without, sizeof with) != 0)
            fail_msg("way %d: other bits, relative distance %g", way,
                     relative_distance(with.gradient, without.gradient, WEIGHTS));
        if (!(kept_less <= (way & 2 ? kept : kept / 2)) || !(less < all))
            fail_msg("way %d: %lld of %lld bytes are kept, %lld of %lld planned", way, (long long)kept_less,
                     (long long)kept, (long long)less, (long long)all);
    }
}

/* ---- Choice of recomputed nodes --------------------------------------------------------------------------- */

/* The whole block except its last product, whose result no gradient reads. */
static void whole_blocks(void **state)
{
    fixture *f = *state;
    int64_t kept;
    compile(f, TX_F32, checkpointing(0, ALL, 0), false);
    assert_int_equal(computed_again(f, TX_OP_MATMUL), 3 * LAYERS);
    assert_int_equal(computed_again(f, TX_OP_ATTENTION), LAYERS);
    assert_int_equal(computed_again(f, TX_OP_LAYER_NORM), 2 * LAYERS);
    assert_int_equal(computed_again(f, TX_OP_DROPOUT), 0); /* they are parts of norms */
    planned(f, &kept);
    /* The inputs of the blocks, input and output of the last norm, and a few numbers for each row. */
    const int64_t least = (LAYERS + 2) * WIDTH * ROWS * 4, rows = 16 * ROWS * 4;
    if (kept < least || kept > least + rows)
        fail_msg("%lld bytes are kept, expected %lld and a little", (long long)kept, (long long)least);
}

/* Within a segment only the last block need not be computed to its end. */
static void long_segments(void **state)
{
    fixture *f = *state;
    compile(f, TX_F32, checkpointing(2, ALL, 0), false);
    assert_int_equal(computed_again(f, TX_OP_MATMUL), 4 * LAYERS - 2);
}

static void cheap_ops(void **state)
{
    fixture *f = *state;
    compile(f, TX_F32, checkpointing(0, 0, ALL), false);
    assert_int_equal(computed_again(f, TX_OP_MATMUL) + computed_again(f, TX_OP_ATTENTION), 0);
    assert_int_equal(computed_again(f, TX_OP_LAYER_NORM), 2 * LAYERS);
    assert_int_equal(computed_again(f, TX_OP_GELU), LAYERS);
    assert_int_equal(computed_again(f, TX_OP_DROPOUT), 0);
}

/* A third of the planned activations of GPT-2 124M at 4 rows of 1024 tokens would do. */
static void gpt2_124m(void **state)
{
    int64_t all[2], kept[2];
    for (int with = 0; with < 2; with++) {
        fixture *f;
        tx_config *config = NULL;
        const tx_checkpointing options = checkpointing(0, with ? ALL : 0, 0);
        set_up((void **)&f);
        assert_ok(tx_config_preset("gpt2", &config));
        compile_model(f, config, 4, 1024, TX_F32, &options, false);
        all[with] = planned(f, &kept[with]);
        void *made = f;
        tear_down(&made);
    }
    print_message("kept %lld, checkpointed %lld bytes; planned arena %lld, checkpointed %lld bytes\n",
                  (long long)kept[0], (long long)kept[1], (long long)all[0], (long long)all[1]);
    assert_true(kept[1] > 0 && kept[1] * 3 <= kept[0] && all[1] * 3 <= all[0]);
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

/* The memory that the backend allocates equals the plan, category by category. */
static void planned_is_counted(void **state)
{
    fixture *f = *state;
    static outcome out;
    tx_memory plan, counted;
    compile(f, TX_BF16, checkpointing(0, 2, ALL), false);
    run(f, &out);
    assert_ok(tx_model_memory(f->model, &plan));
    assert_ok(tx_engine_memory(f->engine, &counted));
    plan.bytes[TX_MEMORY_ACTIVATIONS] += plan.bytes[TX_MEMORY_TEMPORARY];
    plan.bytes[TX_MEMORY_TEMPORARY] = 0;
    assert_true(plan.bytes[TX_MEMORY_COPIES] > 0);
    for (int k = 0; k < TX_MEMORY_COUNT; k++)
        assert_true(plan.bytes[k] == counted.bytes[k]);
}

/* The tensors and their lifetimes explain the planned memory. */
static void anatomy(void **state)
{
    fixture *f = *state;
    tx_plan_tensor t;
    tx_plan_node n;
    int64_t kept, saved = 0, most = 0;
    compile(f, TX_F32, checkpointing(0, ALL, 0), false);
    const int64_t all = planned(f, &kept);
    const int32_t nodes = tx_plan_node_count(f->plan), tensors = tx_plan_tensor_count(f->plan);
    for (int32_t i = 0; i < tensors; i++) {
        assert_ok(tx_plan_tensor_at(f->plan, i, &t));
        assert_true(t.first >= 0 && t.first <= t.last && t.last <= nodes && t.node < nodes && t.bytes > 0);
        saved += t.kind == TX_MEMORY_ACTIVATIONS ? t.bytes : 0;
    }
    assert_true(saved == kept);
    for (int32_t at = 0; at < nodes; at++) {
        int64_t alive = 0;
        for (int32_t i = 0; i < tensors; i++) {
            assert_ok(tx_plan_tensor_at(f->plan, i, &t));
            alive += t.first <= at && at <= t.last ? t.bytes : 0;
        }
        most = alive > most ? alive : most;
    }
    assert_true(most > kept / 2 && most <= all);
    assert_ok(tx_plan_node_at(f->plan, 0, &n));
    assert_true(n.direction == TX_FORWARD && n.block == 0);
    assert_refused(tx_plan_node_at(f->plan, nodes, &n), TX_INVALID, "no node");
    assert_refused(tx_plan_tensor_at(f->plan, tensors, &t), TX_INVALID, "no tensor");
}

/* A model that is only planned reports the same memory except for scratch, and refuses everything else. */
static void only_plans(void **state)
{
    fixture *f = *state;
    tx_memory real, foreseen;
    tx_model *model = NULL;
    compile(f, TX_BF16, checkpointing(0, ALL, 0), false);
    assert_ok(tx_model_memory(f->model, &real));
    assert_ok(tx_model_create(f->engine, &model));
    tx_model_only_plan(model);
    fixture planned = {.engine = f->engine, .model = model};
    assert_ok(tx_graph_create(model, &planned.graph));
    compile(&planned, TX_BF16, checkpointing(0, ALL, 0), false);
    assert_ok(tx_model_memory(model, &foreseen));
    assert_int_equal(foreseen.bytes[TX_MEMORY_SCRATCH], 0);
    for (int k = 0; k < TX_MEMORY_COUNT; k++)
        assert_true(k == TX_MEMORY_SCRATCH || foreseen.bytes[k] == real.bytes[k]);
    assert_true(tx_plan_flops(planned.plan, TX_RECOMPUTE) > 0);
    assert_refused(tx_plan_run(planned.plan), TX_INVALID, "is a dry run");
    assert_refused(tx_model_allocate(model), TX_INVALID, "is a dry run");
    tx_plan_free(planned.plan);
    tx_graph_free(planned.graph);
    tx_model_free(model);
}

/* ---- Limits ------------------------------------------------------------------------------------------------ */

static tx_tensor *layer(fixture *f, tx_tensor *x, const char *name)
{
    const tx_param_spec spec = {.shape = TX_SHAPE(WIDTH, WIDTH), .init = TX_INIT_NORMAL, .scale = 0.1f};
    return tx_linear(tx_gelu(x, true), tx_param(f->graph, name, &spec), NULL, false);
}

/* Tensors that the host or a later block reads are saved: they are not recomputed. */
static void what_others_read(void **state)
{
    fixture *f = *state;
    const tx_checkpointing options = checkpointing(0, ALL, 0);
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(ROWS, WIDTH));
    tx_graph_block(f->graph, 1);
    tx_tensor *shown = tx_output(layer(f, x, "a")), *passed = tx_silu(layer(f, shown, "b"));
    tx_graph_block(f->graph, 2);
    tx_tensor *y = tx_add(layer(f, layer(f, passed, "c"), "d"), shown);
    tx_graph_block(f->graph, 0);
    assert_ok(tx_graph_checkpointing(f->graph, &options));
    assert_ok(tx_backward(f->graph, tx_reduce(y, TX_REDUCE_SUM, TX_AXIS_ALL)));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    assert_int_equal(computed_again(f, TX_OP_MATMUL), 2); /* of b, for the gradient of the activation; of c */
    assert_int_equal(computed_again(f, TX_OP_SILU), 0);
}

static void refused(void **state)
{
    fixture *f = *state;
    tx_checkpointing options = checkpointing(0, ALL, 0);
    tx_tensor *y = layer(f, tx_input(f->graph, "x", TX_F32, TX_SHAPE(ROWS, WIDTH)), "a");
    options.size = 1;
    assert_refused(tx_graph_checkpointing(f->graph, &options), TX_INVALID, "size");
    options = checkpointing(0, -1, 0);
    assert_refused(tx_graph_checkpointing(f->graph, &options), TX_INVALID, "-1");
    options = checkpointing(0, ALL, 0);
    assert_ok(tx_graph_checkpointing(f->graph, &options));
    assert_ok(tx_backward(f->graph, tx_reduce(y, TX_REDUCE_SUM, TX_AXIS_ALL)));
    assert_refused(tx_plan_create(f->graph, "train", &f->plan), TX_UNSUPPORTED, "blocks");
    assert_refused(tx_graph_checkpointing(f->graph, &options), TX_INVALID, "has a plan");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits),
                                       cmocka_unit_test(put_away),
                                       TEST(whole_blocks),
                                       TEST(long_segments),
                                       TEST(cheap_ops),
                                       cmocka_unit_test(gpt2_124m),
                                       TEST(what_others_read),
                                       TEST(planned_is_counted),
                                       TEST(anatomy),
                                       TEST(only_plans),
                                       TEST(refused)};
    device = tx_test_device(argc > 1 ? argv[1] : device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
