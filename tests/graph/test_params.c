/* SPDX-License-Identifier: Apache-2.0
 * Parameters that are frozen, stored in 16 bits, read through casts, or made of sections.
 *   test_params DEVICE */
#include "api/base/half.h"
#include "api/graph/graph.h"
#include "tx.h"

#include "tests/device_model.h"

enum { ROWS = 5, IN = 24, OUT = 40, WEIGHTS = IN * OUT };

static tx_tensor *param(fixture *f, const char *name, tx_shape shape, bool frozen, tx_dtype dtype)
{
    return tx_param(
        f->graph, name,
        &(tx_param_spec){
            .shape = shape, .init = TX_INIT_UNIFORM, .scale = 0.5f, .decay = true, .frozen = frozen, .dtype = dtype});
}

static tx_tensor *half(tx_tensor *x)
{
    return tx_cast(x, TX_BF16);
}

static tx_tensor *sum_of_squares(tx_tensor *x)
{
    return tx_reduce(x->dtype == TX_F32 ? x : tx_cast(x, TX_F32), TX_REDUCE_SUMSQ, TX_AXIS_ALL);
}

/* y = half(x W) B, in which W is trained and B has the given type; the loss is the sum of squares of y. */
static void build(fixture *f, bool frozen)
{
    tx_tensor *x = tx_fill(f->graph, TX_SHAPE(ROWS, IN), 0.125f);
    tx_tensor *h = half(tx_linear(x, param(f, "w", TX_SHAPE(IN, OUT), false, TX_F32), NULL, false));
    tx_tensor *b = param(f, "b", TX_SHAPE(OUT, IN), frozen, frozen ? TX_BF16 : TX_F32);
    assert_ok(tx_backward(f->graph, sum_of_squares(tx_linear(h, frozen ? b : half(b), NULL, false))));
    if (tx_plan_create(f->graph, "train", &f->plan))
        fail_msg("%s", tx_error());
}

/* A step of AdamW; the gradient and the weights of W, and the weights of B. */
static void step(fixture *f, float *gradient, float *w, float *b)
{
    const tx_optimizer_options adamw = {
        .size = sizeof adamw, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f};
    assert_ok(tx_optimizer_create(f->model, &adamw, &f->update));
    assert_ok(tx_model_init(f->model, 4));
    assert_ok(tx_model_set(f->model, TX_CONTROL_LEARNING_RATE, 0.01));
    assert_ok(tx_plan_run(f->plan));
    assert_ok(tx_model_read(f->model, TX_PARAM_GRADIENT, 0, gradient));
    assert_ok(tx_plan_run(f->update));
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, 0, w));
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, 1, b));
}

static int64_t held(const fixture *f, tx_memory_kind kind)
{
    tx_memory planned, counted;
    assert_ok(tx_model_memory(f->model, &planned));
    assert_ok(tx_engine_memory(f->engine, &counted));
    assert_true(tx_memory_total(&planned) == tx_memory_total(&counted));
    return counted.bytes[kind];
}

/* With a frozen parameter in bf16 the other gradients equal those with one in fp32 that is read through a cast. The
 * frozen parameter does not change, and has neither gradient nor states. */
static void frozen_in_16_bits(void **state)
{
    fixture *f = *state, *trained;
    float gradient[2][WEIGHTS], w[2][WEIGHTS], b[2][WEIGHTS], before[WEIGHTS];
    assert_int_equal(set_up((void **)&trained), 0);
    build(f, true);
    build(trained, false);
    step(f, gradient[0], w[0], b[0]);
    step(trained, gradient[1], w[1], b[1]);
    assert_memory_equal(gradient[0], gradient[1], sizeof gradient[0]);
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    assert_memory_not_equal(b[0], b[1], sizeof b[0]);
    assert_ok(tx_model_init(f->model, 4));
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, 1, before));
    assert_memory_equal(before, b[0], sizeof before);
    assert_int_equal(tx_model_read(f->model, TX_PARAM_GRADIENT, 1, before), TX_NOT_FOUND);
    assert_non_null(strstr(tx_error(), "parameter b is frozen"));
    assert_int_equal(tx_model_read(f->model, TX_PARAM_STATE, 1, before), TX_NOT_FOUND);
    const int64_t whole = TX_PARAM_BLOCK * 4 * ((WEIGHTS + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK);
    assert_true(held(trained, TX_MEMORY_GRADIENTS) == 2 * whole && held(f, TX_MEMORY_GRADIENTS) == whole);
    assert_true(held(trained, TX_MEMORY_OPTIMIZER) == 4 * whole && held(f, TX_MEMORY_OPTIMIZER) == 2 * whole);
    assert_true(held(trained, TX_MEMORY_WEIGHTS) == 2 * whole && held(f, TX_MEMORY_WEIGHTS) == whole + whole / 2);
    tear_down((void **)&trained);
}

/* Values are written and read as fp32, rounded to the storage type. Those of the host's memory can be written there. */
static void values_in_16_bits(void **state)
{
    fixture *f = *state;
    void *memory;
    const float given[3] = {1.0f + 0x1p-9f, -3.0f, 0x1p-20f};
    const float kept[2][3] = {{1.0f, -3.0f, 0x1p-20f}, {1.0f + 0x1p-9f, -3.0f, 0x1p-20f}};
    float back[3];
    param(f, "bf16", TX_SHAPE(3), true, TX_BF16);
    param(f, "f16", TX_SHAPE(3), true, TX_F16);
    for (int i = 0; i < 2; i++) {
        assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, i, given));
        assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, i, back));
        assert_memory_equal(back, kept[i], sizeof back);
        assert_ok(tx_model_write_range(f->model, TX_PARAM_WEIGHT, i, 1, 1, given + 2));
        assert_ok(tx_model_read_range(f->model, TX_PARAM_WEIGHT, i, 1, 2, back));
        assert_true(back[0] == given[2] && back[1] == given[2]);
        assert_ok(tx_model_map(f->model, i, &memory));
        assert_int_equal(memory != NULL, strcmp(device, "cpu") == 0);
        if (memory)
            tx_from_f32(i ? TX_F16 : TX_BF16, given + 1, 1, memory);
        assert_ok(tx_model_read_range(f->model, TX_PARAM_WEIGHT, i, 0, 1, back));
        assert_true(back[0] == (memory ? given[1] : kept[i][0]));
    }
    assert_null(param(f, "trained", TX_SHAPE(3), false, TX_BF16));
    assert_non_null(strstr(tx_error(), "only a frozen one can be stored in BF16"));
}

/* The gradient of a weight that is read through a cast is the fp32 result of the product: nothing casts or copies it. A
 * weight that is read twice in 16 bits gets the sum in fp32. */
static void gradients_of_casts(void **state)
{
    fixture *f = *state;
    tx_tensor *w = param(f, "w", TX_SHAPE(IN, IN), false, TX_F32);
    tx_tensor *h = tx_linear(tx_fill(f->graph, TX_SHAPE(ROWS, IN), 0.125f), w, NULL, false), *h16 = half(h);
    tx_tensor *y = tx_linear(h16, half(w), NULL, false), *z = tx_linear(h16, half(w), NULL, true);
    assert_ok(tx_backward(f->graph, tx_add(sum_of_squares(y), sum_of_squares(z))));
    if (tx_plan_create(f->graph, "train", &f->plan))
        fail_msg("%s", tx_error());
    int to_slice = 0;
    for (int32_t i = 0; i < f->graph->nodes; i++) {
        const tx_node *n = &f->graph->node[i];
        const tx_tensor *root = n->out[0] ? tx_tensor_root(n->out[0]) : NULL;
        if (!root || root->arena != TX_ARENA_GRADIENTS)
            continue;
        assert_int_equal(n->op, TX_OP_MATMUL);
        assert_int_equal(root->dtype, TX_F32);
        to_slice++;
    }
    assert_int_equal(to_slice, 3);
    assert_ok(tx_plan_run(f->plan));
}

static void sections_that_are_none(void **state)
{
    fixture *f = *state;
    const tx_param_spec bad[] = {
        {.shape = TX_SHAPE(2, 6), .sections = {3, 1, {3, 1, 1}, {0}}},
        {.shape = TX_SHAPE(2, 6), .sections = {2, 2, {3, 3}, {0}}},
        {.shape = TX_SHAPE(2, 6), .sections = {2, 1, {7, -1}, {0}}},
        {.shape = TX_SHAPE(8, 2), .logical = TX_SHAPE(6, 2), .sections = {2, 0, {4, 4}, {0}}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tx_graph_free(f->graph);
        assert_ok(tx_graph_create(f->model, &f->graph));
        assert_null(tx_param(f->graph, "bad", &bad[i]));
        assert_non_null(strstr(tx_error(), "its sections do not add up"));
    }
    const tx_param_spec columns = {.shape = TX_SHAPE(2, 6), .sections = {2, 1, {3, 3}, {0}}, .apart = true};
    tx_graph_free(f->graph);
    assert_ok(tx_graph_create(f->model, &f->graph));
    assert_null(tx_param(f->graph, "bad", &columns));
    assert_non_null(strstr(tx_error(), "only sections of rows can be separate tensors"));
}

static void experts_that_are_none(void **state)
{
    fixture *f = *state;
    const tx_param_spec bad[] = {
        {.shape = TX_SHAPE(2, 6), .experts = true, .alternating = 4},
        {.shape = TX_SHAPE(2, 6), .experts = true, .alternating = -3},
        {.shape = TX_SHAPE(2, 6), .alternating = 3},
        {.shape = TX_SHAPE(2, 6), .experts = true, .alternating = 3, .split = 2},
        {.shape = TX_SHAPE(2, 6), .experts = true, .split = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tx_graph_free(f->graph);
        assert_ok(tx_graph_create(f->model, &f->graph));
        assert_null(tx_param(f->graph, "bad", &bad[i]));
        assert_non_null(
            strstr(tx_error(), i < 3 ? "its columns are not of" : "cannot divide the dimension of experts"));
    }
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
#define PARAMS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PARAMS(frozen_in_16_bits),      PARAMS(values_in_16_bits),     PARAMS(gradients_of_casts),
        PARAMS(sections_that_are_none), PARAMS(experts_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
