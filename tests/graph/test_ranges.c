/* SPDX-License-Identifier: Apache-2.0
 * A plan with range checks: the first number that is not finite ends the run. The message names the node, its
 * parameter, its inputs, and their ranges in the last finite run. test_ranges DEVICE */

#include "tests/device_model.h"

enum { ROWS = 3, WIDTH = 64 };

/* All lines of the report. */
static char told[1 << 16];

static void append_line(void *context, const char *line)
{
    assert_null(strchr(line, '\n'));
    snprintf(told + strlen(told), sizeof told - strlen(told), "%s\n", line);
}

static const tx_reporter report = {.warn = append_line};

static tx_tensor *layer(fixture *f, tx_tensor *x, const char *name)
{
    const tx_param_spec spec = {.shape = TX_SHAPE(WIDTH, WIDTH), .init = TX_INIT_NORMAL, .scale = 0.1f};
    return tx_linear(x, tx_param(f->graph, name, &spec), NULL, false);
}

/* Two layers; their mean is the loss. */
static tx_tensor *make_layers(fixture *f, tx_dtype dtype)
{
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(ROWS, WIDTH));
    tx_graph_block(f->graph, 1);
    tx_tensor *y = tx_gelu(layer(f, x, "first.weight"), false);
    tx_graph_block(f->graph, 2);
    tx_tensor *loss = tx_reduce(layer(f, y, "second.weight"), TX_REDUCE_MEAN, TX_AXIS_ALL);
    assert_ok(tx_graph_autocast(f->graph, dtype));
    assert_ok(tx_backward(f->graph, loss));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    assert_ok(tx_model_init(f->model, 4));
    return x;
}

static void write_input(fixture *f, tx_tensor *x, float value)
{
    float data[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++)
        data[i] = value;
    assert_ok(tx_plan_write(f->plan, x, data, sizeof data));
}

static void expect(const char *text)
{
    if (!strstr(told, text))
        fail_msg("nothing is told of \"%s\" in\n%s", text, told);
}

/* An input so large that the first layer's output overflows its type. */
static void overflow_in(fixture *f, tx_dtype dtype, float large)
{
    tx_tensor *x = make_layers(f, dtype);
    *told = '\0';
    assert_ok(tx_plan_watch(f->plan, &report));
    write_input(f, x, 0.5f);
    assert_ok(tx_plan_run(f->plan));
    assert_string_equal(told, "");
    write_input(f, x, large);
    assert_refused(tx_plan_run(f->plan), TX_INVALID, "block 1 matmul forward");
    assert_non_null(strstr(tx_error(), "first.weight"));
    expect("not finite in step 1");
    expect("block 1 matmul forward");
    expect("input b");
    expect("infinite");
    /* The same node in the run before: what x was then. */
    const char *before = strstr(told, "in the last finite run");
    assert_non_null(before);
    assert_non_null(strstr(before, "5.00e-01 5.00e-01 input a"));
    assert_null(strstr(before, "infinite"));
    /* The later nodes were not reached. */
    assert_null(strstr(told, "second.weight"));
    assert_ok(tx_plan_watch(f->plan, NULL));
    *told = '\0';
    assert_ok(tx_plan_run(f->plan));
    assert_string_equal(told, "");
}

static void overflow_in_fp32(void **state)
{
    overflow_in(*state, TX_F32, 3e38f);
}

static void overflow_in_fp16(void **state)
{
    overflow_in(*state, TX_F16, 65504.0f);
}

static void nan_in_a_weight(void **state)
{
    fixture *f = *state;
    tx_tensor *x = make_layers(f, TX_F32);
    float weight[WIDTH * WIDTH] = {0};
    weight[77] = NAN;
    *told = '\0';
    assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, 1, weight));
    assert_ok(tx_plan_watch(f->plan, &report));
    write_input(f, x, 1.0f);
    assert_refused(tx_plan_run(f->plan), TX_INVALID, "second.weight");
    expect("NaN");
}

/* An overflow of a gradient only lowers the loss scale if that is dynamic; otherwise it is an error. */
static void gradients(void **state)
{
    fixture *f = *state;
    tx_tensor *x = make_layers(f, TX_F16);
    tx_results begin = {{0}};
    begin.value[TX_RESULT_LOSS_SCALE] = 1e38f;
    *told = '\0';
    assert_ok(tx_model_restore(f->model, &begin));
    assert_ok(tx_plan_watch(f->plan, &report));
    assert_ok(tx_model_set(f->model, TX_CONTROL_GROWTH_INTERVAL, 2000));
    write_input(f, x, 1.0f);
    assert_ok(tx_plan_run(f->plan));
    assert_ok(tx_model_set(f->model, TX_CONTROL_GROWTH_INTERVAL, 0));
    assert_refused(tx_plan_run(f->plan), TX_INVALID, "backward");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(overflow_in_fp32, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(overflow_in_fp16, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(nan_in_a_weight, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(gradients, set_up, tear_down)};
    device = tx_test_device(argc > 1 ? argv[1] : device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
