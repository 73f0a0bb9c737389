/* SPDX-License-Identifier: Apache-2.0
 * Gradients of graphs that use a parameter, or name a loss, more than once; with accumulation, too.
 *   test_backward DEVICE */

#include "tests/device_model.h"

enum { N = 3 };

static tx_tensor *param(fixture *f, const char *name, tx_shape shape)
{
    return tx_param(f->graph, name, &(tx_param_spec){.shape = shape, .init = TX_INIT_ZERO});
}

static tx_tensor *sum(tx_tensor *x)
{
    return tx_reduce(x, TX_REDUCE_SUM, TX_AXIS_ALL);
}

/* Runs the plan of two micro-batches on the weights of parameter 0, and reads its gradient and the loss. */
static float run(fixture *f, const float *weights, float *gradient)
{
    if (tx_plan_create(f->graph, "train", &f->plan))
        fail_msg("%s", tx_error());
    assert_int_equal(tx_model_init(f->model, 1), TX_OK);
    assert_int_equal(tx_model_write(f->model, TX_PARAM_WEIGHT, 0, weights), TX_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tx_model_set(f->model, TX_CONTROL_ACCUMULATE, i), TX_OK);
        assert_int_equal(tx_plan_run(f->plan), TX_OK);
    }
    assert_int_equal(tx_model_read(f->model, TX_PARAM_GRADIENT, 0, gradient), TX_OK);
    tx_results results;
    assert_int_equal(tx_model_fetch(f->model), TX_OK);
    assert_int_equal(tx_model_results(f->model, &results), TX_OK);
    return results.value[TX_RESULT_LOSS];
}

/* d sum(W W) / dW[i][j] = sum of row j of W + sum of column i of W. */
static void both_factors(void **state)
{
    fixture *f = *state;
    const float w[N * N] = {1, 2, 3, 4, 5, 6, 7, 8, 10};
    float gradient[N * N];
    tx_tensor *p = param(f, "w", TX_SHAPE(N, N));
    assert_int_equal(tx_backward(f->graph, sum(tx_matmul(p, p, false, false))), TX_OK);
    run(f, w, gradient);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            const float row = w[j * N] + w[j * N + 1] + w[j * N + 2], column = w[i] + w[N + i] + w[2 * N + i];
            assert_true(gradient[i * N + j] == 2 * (row + column));
        }
}

/* gamma and beta of a norm are one parameter: a node writes both gradients. */
static void both_outputs_of_a_node(void **state)
{
    fixture *f = *state;
    const float w[4] = {1, 1, 1, 1};
    float gradient[4];
    tx_tensor *g = param(f, "g", TX_SHAPE(4)), *x = tx_fill(f->graph, TX_SHAPE(2, 4), 1.0f);
    assert_int_equal(tx_backward(f->graph, sum(tx_layer_norm(x, g, g, 1e-5f))), TX_OK);
    run(f, w, gradient);
    for (int i = 0; i < 4; i++) /* x - mean is zero, so that the whole result is beta's, from two rows */
        assert_true(gradient[i] == 2 * 2.0f);
}

/* 5 sum(w) and 3 sum(w) together: 8 for each, and a loss of both. */
static void two_losses(void **state)
{
    fixture *f = *state;
    const float w[N] = {1, 2, 4};
    float gradient[N];
    tx_tensor *p = param(f, "w", TX_SHAPE(N));
    assert_int_equal(tx_backward(f->graph, tx_scale(sum(p), 5.0f)), TX_OK);
    assert_int_equal(tx_backward(f->graph, tx_scale(sum(p), 3.0f)), TX_OK);
    assert_true(run(f, w, gradient) == 2 * (5 * 7 + 3 * 7));
    for (int i = 0; i < N; i++)
        assert_true(gradient[i] == 2 * 8.0f);
}

/* The same loss twice, and one that another is made of. */
static void a_loss_that_is_read(void **state)
{
    fixture *f = *state;
    const float w[N] = {1, 2, 4};
    float gradient[N];
    tx_tensor *inner = sum(param(f, "w", TX_SHAPE(N)));
    assert_int_equal(tx_backward(f->graph, inner), TX_OK);
    assert_int_equal(tx_backward(f->graph, inner), TX_OK);
    assert_int_equal(tx_backward(f->graph, tx_scale(inner, 4.0f)), TX_OK);
    assert_true(run(f, w, gradient) == 2 * (7 + 7 + 28));
    for (int i = 0; i < N; i++)
        assert_true(gradient[i] == 2 * 6.0f);
}

/* A plan's inputs keep their values until it runs, even if a larger plan is made in between. */
static void inputs_outlast_larger_plans(void **state)
{
    fixture *f = *state;
    const float w[N] = {1, 2, 4}, given[N] = {1, 10, 100};
    float gradient[N];
    tx_graph *other = NULL;
    tx_plan *larger = NULL;
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(N));
    assert_int_equal(tx_backward(f->graph, sum(tx_mul(param(f, "w", TX_SHAPE(N)), x))), TX_OK);
    assert_int_equal(tx_plan_create(f->graph, "train", &f->plan), TX_OK);
    assert_int_equal(tx_plan_write(f->plan, x, given, sizeof given), TX_OK);
    assert_int_equal(tx_graph_create(f->model, &other), TX_OK);
    tx_output(tx_gelu(tx_fill(other, TX_SHAPE(512, 512), 1.0f), false));
    assert_int_equal(tx_plan_create(other, "larger", &larger), TX_OK);
    assert_int_equal(tx_model_write(f->model, TX_PARAM_WEIGHT, 0, w), TX_OK);
    assert_int_equal(tx_plan_run(f->plan), TX_OK);
    assert_int_equal(tx_model_read(f->model, TX_PARAM_GRADIENT, 0, gradient), TX_OK);
    assert_memory_equal(gradient, given, sizeof given);
    tx_plan_free(larger);
    tx_graph_free(other);
}

/* A bias in fp32 after a product of 16-bit operands. */
static void a_bias_of_a_16_bit_product(void **state)
{
    fixture *f = *state;
    const float b[N] = {1, 2, 4};
    float gradient[N];
    tx_tensor *bias = param(f, "b", TX_SHAPE(N));
    tx_tensor *x = tx_cast(tx_fill(f->graph, TX_SHAPE(5, 8), 0.5f), TX_BF16);
    tx_tensor *w = tx_cast(tx_fill(f->graph, TX_SHAPE(8, N), 0.25f), TX_BF16);
    assert_int_equal(tx_backward(f->graph, sum(tx_cast(tx_linear(x, w, bias, false), TX_F32))), TX_OK);
    assert_true(run(f, b, gradient) == 2 * 5 * (3 * 1.0f + 7.0f));
    for (int i = 0; i < N; i++)
        assert_true(gradient[i] == 2 * 5.0f);
}

static void not_behind_a_plan(void **state)
{
    fixture *f = *state;
    tx_tensor *loss = sum(param(f, "w", TX_SHAPE(N)));
    assert_int_equal(tx_backward(f->graph, loss), TX_OK);
    assert_int_equal(tx_plan_create(f->graph, "train", &f->plan), TX_OK);
    assert_int_equal(tx_backward(f->graph, loss), TX_INVALID);
    assert_non_null(strstr(tx_error(), "the graph has a plan"));
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
#define BACKWARD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        BACKWARD(both_factors),
        BACKWARD(both_outputs_of_a_node),
        BACKWARD(two_losses),
        BACKWARD(a_loss_that_is_read),
        BACKWARD(a_bias_of_a_16_bit_product),
        BACKWARD(not_behind_a_plan),
        BACKWARD(inputs_outlast_larger_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
