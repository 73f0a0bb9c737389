/* SPDX-License-Identifier: Apache-2.0
 * Mixed precision: which tensors have 16 bits, which casts are made and how often. Gradients equal those of fp32 except
 * for rounding. test_autocast DEVICE */

#include "api/base/half.h"
#include "api/graph/graph.h"
#include "api/model/model.h"
#include "tests/device_model.h"
#include "tests/gradients.h"
#include "tests/graph/transformer.h"

/* ---- Types ------------------------------------------------------------------------------------------ */

/* The types of PyTorch's autocast, except that a product whose result is added to the residual stream is fp32. */
static void types_of_a_transformer(void **state)
{
    fixture *f = *state;
    const network n = build(f);
    assert_ok(tx_graph_autocast(f->graph, TX_BF16));
    assert_ok(tx_backward(f->graph, n.loss));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    const tx_tensor *const half[] = {n.normed, n.qkv, n.o, n.up, n.gelu, n.logits};
    const tx_tensor *const full[] = {n.x, n.projected, n.down, n.losses, n.loss, n.table};
    for (size_t i = 0; i < sizeof half / sizeof half[0]; i++)
        assert_int_equal(half[i]->dtype, TX_BF16);
    for (size_t i = 0; i < sizeof full / sizeof full[0]; i++)
        assert_int_equal(full[i]->dtype, TX_F32);
}

/* Each matrix has one copy, at its place among the others; gradients are written to their slices in fp32. */
static void one_copy_of_a_parameter(void **state)
{
    fixture *f = *state;
    const network n = build(f);
    int32_t copies = 0, gradients = 0;
    assert_ok(tx_graph_autocast(f->graph, TX_BF16));
    assert_ok(tx_backward(f->graph, n.loss));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    for (int32_t i = 0; i < f->graph->nodes; i++) {
        const tx_node *node = &f->graph->node[i];
        if (node->op == TX_OP_COPY_OF_PARAM) {
            assert_int_equal(node->out[0]->arena, TX_ARENA_HALF);
            assert_true(node->in[0]->param >= 0);
            assert_int_equal(node->out[0]->offset, node->in[0]->offset / 2);
            copies++;
        }
        if (node->op == TX_OP_MATMUL && tx_tensor_root(node->out[0])->arena == TX_ARENA_GRADIENTS) {
            assert_int_equal(node->in[0]->dtype, TX_BF16);
            assert_int_equal(node->out[0]->dtype, TX_F32);
            gradients++;
        }
    }
    assert_int_equal(copies, 5); /* table, qkv, out, up, down */
    assert_int_equal(gradients, 5);
}

static int32_t casts_of(const tx_graph *g, const tx_tensor *t)
{
    int32_t casts = 0;
    for (int32_t i = 0; i < g->nodes; i++)
        casts += g->node[i].op == TX_OP_CAST && g->node[i].in[0] == t;
    return casts;
}

/* Compiles the transformer. Returns the type of the gradient of its residual stream: of dx of all norms, of their
 * summands, and of the embedding's gradient. `*casts` receives the number of casts. */
static tx_dtype residual_gradient(tx_dtype dtype, bool option, int32_t *casts)
{
    void *state;
    assert_int_equal(set_up(&state), 0);
    fixture *f = state;
    const network n = build(f);
    assert_ok(tx_graph_autocast(f->graph, dtype));
    if (option)
        assert_ok(tx_graph_fp32_residual_gradient(f->graph));
    assert_ok(tx_backward(f->graph, n.loss));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    assert_int_equal(tx_graph_fp32_residual_gradient(f->graph), TX_INVALID);
    tx_dtype type = TX_DTYPE_COUNT;
    int32_t norms = 0;
    *casts = 0;
    for (int32_t i = 0; i < f->graph->nodes; i++) {
        const tx_node *node = &f->graph->node[i];
        *casts += node->op == TX_OP_CAST;
        if (node->op == TX_OP_LAYER_NORM_GRAD && norms++ == 0)
            type = node->out[0]->dtype;
        if (node->op == TX_OP_LAYER_NORM_GRAD)
            for (int k = 0; k < 3; k++) /* the sums stay fp32 */
                assert_int_equal(node->out[k]->dtype, k == 0 ? type : TX_F32);
        if (node->op == TX_OP_SCATTER_ADD)
            assert_int_equal(node->in[1]->dtype, type);
    }
    assert_int_equal(norms, 3);
    tear_down(&state);
    return type;
}

/* In bf16 it has 16 bits, unless the option keeps it in fp32, and its producers write the type that its readers want.
 */
static void gradient_of_the_residual_stream(void **state)
{
    (void)state;
    int32_t none, some;
    assert_int_equal(residual_gradient(TX_BF16, false, &none), TX_BF16);
    assert_int_equal(residual_gradient(TX_BF16, true, &some), TX_F32);
    assert_int_equal(none, 0);
    assert_int_equal(some, 2); /* for both products whose results are added */
    assert_int_equal(residual_gradient(TX_F16, false, &some), TX_F32);
    assert_int_equal(residual_gradient(TX_F32, false, &some), TX_F32);
}

/* Where the norm comes after the sum, a product and a sum read its result. Their gradients are added in fp32. */
static void gradient_after_the_sum(void **state)
{
    fixture *f = *state;
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(ROWS, WIDTH)), *w = matrix(f, "w", WIDTH, WIDTH);
    tx_tensor *y = norm(f, tx_linear(x, w, NULL, false), "norm1"),
              *z = norm(f, tx_add(y, tx_linear(y, w, NULL, true)), "norm2");
    assert_ok(tx_graph_autocast(f->graph, TX_BF16));
    assert_ok(tx_backward(f->graph, tx_reduce(z, TX_REDUCE_MEAN, TX_AXIS_ALL)));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    int32_t norms = 0;
    for (int32_t i = 0; i < f->graph->nodes; i++) {
        const tx_node *node = &f->graph->node[i];
        if (node->op != TX_OP_LAYER_NORM_GRAD)
            continue;
        assert_int_equal(node->in[0]->dtype, TX_F32);
        assert_int_equal(node->out[0]->dtype, TX_BF16); /* only a product reads it, or a product and the sum */
        norms++;
    }
    assert_int_equal(norms, 2);
}

/* A norm whose result a product and a sum read stays fp32, and a product whose result both read does not. Each has one
 * cast, which all readers share. */
static void results_read_both_ways(void **state)
{
    fixture *f = *state;
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(ROWS, WIDTH)), *w = matrix(f, "w", WIDTH, WIDTH);
    tx_tensor *y = norm(f, x, "norm"), *p = tx_linear(y, w, NULL, false), *q = tx_linear(y, w, NULL, true);
    tx_tensor *r = tx_linear(tx_gelu(p, true), w, NULL, false);
    tx_output(tx_add(tx_add(y, p), tx_add(tx_scale(p, 2.0f), tx_add(q, r))));
    assert_ok(tx_graph_autocast(f->graph, TX_BF16));
    assert_ok(tx_plan_create(f->graph, "both", &f->plan));
    assert_int_equal(y->dtype, TX_F32);
    assert_int_equal(casts_of(f->graph, y), 1);
    assert_int_equal(p->dtype, TX_BF16);
    assert_int_equal(casts_of(f->graph, p), 1);
    assert_int_equal(q->dtype, TX_F32);
    assert_int_equal(casts_of(f->graph, q) + casts_of(f->graph, r), 0);
}

/* Outputs that the host reads keep their type. */
static void outputs_stay(void **state)
{
    fixture *f = *state;
    network n = build(f);
    tx_tensor *const shown[] = {n.normed, n.qkv, n.o, n.up, n.gelu, n.logits};
    static float value[ROWS * 4 * WIDTH];
    int32_t tokens[ROWS] = {0};
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++)
        tx_output(shown[i]);
    assert_ok(tx_graph_autocast(f->graph, TX_BF16));
    assert_ok(tx_backward(f->graph, n.loss));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    assert_ok(tx_model_init(f->model, 1));
    assert_ok(tx_plan_write(f->plan, n.tokens, tokens, sizeof tokens));
    assert_ok(tx_plan_run(f->plan));
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        const size_t bytes = (size_t)tx_shape_count(&shown[i]->shape) * sizeof(float);
        assert_int_equal(shown[i]->dtype, TX_F32);
        assert_true(bytes <= sizeof value);
        assert_ok(tx_plan_read(f->plan, shown[i], value, bytes));
        assert_true(value[1] == value[1]);
    }
}

/* Casts of the graph itself are not changed. */
static void own_casts_stay(void **state)
{
    fixture *f = *state;
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(ROWS, WIDTH));
    tx_tensor *h = tx_cast(x, TX_F16), *w = tx_cast(matrix(f, "w", WIDTH, WIDTH), TX_F16);
    tx_tensor *y = tx_linear(h, w, NULL, false);
    tx_output(tx_cast(y, TX_F32));
    assert_ok(tx_graph_autocast(f->graph, TX_BF16));
    assert_ok(tx_plan_create(f->graph, "own", &f->plan));
    assert_int_equal(h->dtype, TX_F16);
    assert_int_equal(y->dtype, TX_F16);
    assert_int_equal(casts_of(f->graph, h) + casts_of(f->graph, w), 0);
}

static void refused(void **state)
{
    fixture *f = *state;
    const network n = build(f);
    assert_int_equal(tx_graph_autocast(f->graph, TX_I32), TX_INVALID);
    tx_output(n.loss);
    assert_ok(tx_plan_create(f->graph, "evaluate", &f->plan));
    assert_int_equal(tx_graph_autocast(f->graph, TX_BF16), TX_INVALID);
}

/* ---- Copies ----------------------------------------------------------------------------------------- */

static float loss_of(const network *n, tx_plan *plan)
{
    int32_t tokens[ROWS], labels[ROWS];
    float loss = 0.0f;
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = i * 7 % VOCAB;
        labels[i] = i * 11 % VOCAB;
    }
    assert_ok(tx_plan_write(plan, n->tokens, tokens, sizeof tokens));
    assert_ok(tx_plan_write(plan, n->labels, labels, sizeof labels));
    assert_ok(tx_plan_run(plan));
    if (tx_tensor_root(n->loss)->is_output)
        assert_ok(tx_plan_read(plan, n->loss, &loss, sizeof loss));
    return loss;
}

/* Every weight's copy is its rounding. */
static void expect_copies(tx_model *model)
{
    static float full[WEIGHTS];
    static uint16_t half[WEIGHTS];
    for (int32_t i = 0; i < model->params; i++) {
        const int64_t count = tx_shape_count(&model->param[i].spec.shape), at = model->param[i].offset;
        assert_ok(tx_model_read_at(model, TX_ARENA_WEIGHTS, at, full, count * 4));
        assert_ok(tx_model_read_at(model, TX_ARENA_HALF, tx_model_half_address(model, at), half, count * 2));
        for (int64_t k = 0; k < count; k++)
            assert_int_equal(half[k], tx_f32_to_bf16(full[k]));
    }
}

/* The copies follow writes to the weights and updates. If the copies existed before the update was compiled, its
 * program updates them. An evaluation reads them too, in a plan that may be compiled last. */
static void copies_follow(bool before, tx_optimizer_kind kind)
{
    static float other[PADDED * WIDTH];
    const tx_optimizer_options options = {
        sizeof options, kind, 0.9f, 0.99f, 1e-8f, .weight_decay = 0.1f, .rank = 2, .update_proj_gap = 1, .scale = 1};
    tx_plan *update, *evaluate;
    tx_graph *graph;
    void *state;
    assert_int_equal(set_up(&state), 0);
    fixture *f = state;
    const network n = build(f);
    assert_ok(tx_graph_autocast(f->graph, before ? TX_BF16 : TX_F32));
    assert_ok(tx_backward(f->graph, n.loss));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    assert_ok(tx_optimizer_create(f->model, &options, &update));
    assert_ok(tx_model_init(f->model, 1));
    assert_ok(tx_model_set(f->model, TX_CONTROL_LEARNING_RATE, 0.05));
    loss_of(&n, f->plan);
    tx_graph *const train = f->graph;
    assert_ok(tx_graph_create(f->model, &graph));
    f->graph = graph;
    const network e = build(f);
    f->graph = train;
    assert_ok(tx_graph_autocast(graph, TX_BF16));
    tx_output(e.loss);
    assert_ok(tx_plan_create(graph, "evaluate", &evaluate));
    const float first = loss_of(&e, evaluate);
    expect_copies(f->model);
    assert_ok(tx_plan_run(update));
    if (before &&
        (kind == TX_ADAMW || kind == TX_SGD || kind == TX_LION)) /* these write them, the others' are cast later */
        expect_copies(f->model);
    assert_true(loss_of(&e, evaluate) != first);
    expect_copies(f->model);
    const float second = loss_of(&e, evaluate);
    assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, 0, other));
    assert_true(loss_of(&e, evaluate) != second);
    expect_copies(f->model);
    tx_plan_free(evaluate);
    tx_plan_free(update);
    tx_graph_free(graph);
    tear_down(&state);
}

static void copies_follow_weights(void **state)
{
    for (int kind = 0; kind < TX_OPTIMIZER_KINDS; kind++)
        for (int before = 0; before < 2; before++)
            copies_follow(before, (tx_optimizer_kind)kind);
}

/* ---- Numbers ---------------------------------------------------------------------------------------- */

/* Results of two micro-batches. */
typedef struct outcome {
    float loss, gradient[WEIGHTS];
    tx_memory memory;
} outcome;

static void run(fixture *f, const network *n, int number)
{
    int32_t tokens[ROWS], labels[ROWS];
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (i * 7 + number * 13) % VOCAB;
        labels[i] = i % 9 == 4 ? TX_IGNORE_LABEL : (i * 11 + number * 3) % VOCAB;
    }
    assert_ok(tx_model_set(f->model, TX_CONTROL_ACCUMULATE, number > 0));
    assert_ok(tx_plan_write(f->plan, n->tokens, tokens, sizeof tokens));
    assert_ok(tx_plan_write(f->plan, n->labels, labels, sizeof labels));
    assert_ok(tx_plan_run(f->plan));
}

/* Gradients are those of the loss, for any loss scale. */
static void train(tx_dtype dtype, float scale, outcome *out)
{
    const tx_results begin = {.value = {[TX_RESULT_LOSS_SCALE] = scale}};
    void *state;
    tx_memory counted;
    assert_int_equal(set_up(&state), 0);
    fixture *f = state;
    memset(out, 0, sizeof *out);
    const network n = build(f);
    assert_ok(tx_graph_autocast(f->graph, dtype));
    assert_ok(tx_backward(f->graph, n.loss));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    assert_ok(tx_model_init(f->model, 1));
    assert_ok(tx_model_set(f->model, TX_CONTROL_INVERSE_LABELS, 1.0 / ROWS));
    assert_ok(tx_model_restore(f->model, &begin));
    run(f, &n, 0);
    run(f, &n, 1);
    assert_ok(read_gradients(f->model, &out->loss, out->gradient));
    for (int i = 0; i < WEIGHTS; i++)
        out->gradient[i] /= scale;
    assert_ok(tx_model_memory(f->model, &out->memory));
    assert_ok(tx_engine_memory(f->engine, &counted));
    assert_true(tx_memory_total(&out->memory) == tx_memory_total(&counted));
    tear_down(&state);
}

/* Gradients differ within the precision of 8 or 11 bits of mantissa. Weights take 6 bytes a parameter, and activations
 * less than before. */
static void compare_gradients(tx_dtype dtype, float scale, double most)
{
    static outcome full, half, again;
    train(TX_F32, 1.0f, &full);
    train(dtype, scale, &half);
    train(dtype, scale, &again);
    const double off = relative_distance(half.gradient, full.gradient, WEIGHTS);
    assert_true(off > 0.0 && off < most);
    assert_true(fabs((double)half.loss - (double)full.loss) < 0.1 * most * fabs((double)full.loss));
    assert_memory_equal(&half, &again, sizeof half);
    assert_true(half.memory.bytes[TX_MEMORY_WEIGHTS] == full.memory.bytes[TX_MEMORY_WEIGHTS]);
    assert_true(2 * half.memory.bytes[TX_MEMORY_COPIES] == full.memory.bytes[TX_MEMORY_WEIGHTS]);
    assert_true(half.memory.bytes[TX_MEMORY_ACTIVATIONS] < full.memory.bytes[TX_MEMORY_ACTIVATIONS] * 7 / 10);
}

static void gradients_of_bf16(void **state)
{
    compare_gradients(TX_BF16, 1.0f, 0.02);
}

static void gradients_of_fp16(void **state)
{
    compare_gradients(TX_F16, 1024.0f, 0.003);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(types_of_a_transformer),
        TEST(one_copy_of_a_parameter),
        cmocka_unit_test(gradient_of_the_residual_stream),
        TEST(gradient_after_the_sum),
        TEST(results_read_both_ways),
        TEST(outputs_stay),
        TEST(own_casts_stay),
        TEST(refused),
        cmocka_unit_test(copies_follow_weights),
        cmocka_unit_test(gradients_of_bf16),
        cmocka_unit_test(gradients_of_fp16),
    };
    device = tx_test_device(argc > 1 ? argv[1] : device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
