/* SPDX-License-Identifier: Apache-2.0
 * Three steps of every optimizer of optimizers.def, against numbers worked out by the formulas of PyTorch (SGD, AdamW)
 * and of the paper (Lion) in double precision.
 *   test_optimizers DEVICE */
#include "api/model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3, STEPS = 3, STATES = 2 };

static const char *device;

#define OPTIONS .size = sizeof(tx_optimizer_options), .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f

/* In the last step the momentum outweighs a gradient of the other sign; the last element has no gradient at all. */
static const float start[N] = {1.0f, -2.0f, 0.5f};
static const float gradients[STEPS][N] = {{0.5f, -1.0f, 0.0f}, {-0.2f, -1.0f, 0.0f}, {-0.02f, 0.1f, 0.0f}};

static const struct {
    tx_optimizer_options options;
    double decayed[N], other[N]; /* weights of the parameter that decays, and of the one that does not */
    const char *name[STATES];
    double state[STATES][N]; /* of that one */
} rows[TX_OPTIMIZER_KINDS] = {
    [TX_SGD] = {{OPTIONS, .kind = TX_SGD, .momentum = 0.9f},
                {0.850574, -1.442548, 0.4721895},
                {0.9045, -1.549, 0.5},
                {"exp_avg"},
                {{0.205, -1.61, 0.0}}},
    [TX_ADAMW] = {{OPTIONS, .kind = TX_ADAMW, .eps = 1e-8f},
                  {0.813598769, -1.67082702, 0.4851495},
                  {0.840963595, -1.72723902, 0.5},
                  {"exp_avg", "exp_avg_sq"},
                  {{0.0205, -0.161, 0.0}, {0.00285025, 0.019801, 0.0}}},
    [TX_LION] = {{OPTIONS, .kind = TX_LION},
                 {0.871289, -1.643588, 0.4851495},
                 {0.9, -1.7, 0.5},
                 {"exp_avg"},
                 {{0.0027205, -0.018701, 0.0}}},
};

typedef struct fixture {
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_plan *train, *update;
    tx_tensor *x;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    const tx_engine_options options = {.size = sizeof options, .device = device, .threads = 1};
    assert_non_null(f);
    assert_int_equal(tx_engine_create(&options, &f->engine), TX_OK);
    *state = f;
    return 0;
}

static void let_go(fixture *f)
{
    tx_plan_free(f->update);
    tx_plan_free(f->train);
    tx_graph_free(f->graph);
    tx_model_free(f->model);
    *f = (fixture){.engine = f->engine};
}

static int tear_down(void **state)
{
    fixture *f = *state;
    let_go(f);
    tx_engine_free(f->engine);
    free(f);
    return 0;
}

/* x times each parameter, summed: x is the gradient of both. */
static void build(fixture *f, const tx_optimizer_options *options)
{
    assert_int_equal(tx_model_create(f->engine, &f->model), TX_OK);
    assert_int_equal(tx_graph_create(f->model, &f->graph), TX_OK);
    f->x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(N));
    tx_tensor *w[2];
    for (int p = 0; p < 2; p++)
        w[p] = tx_param(f->graph, p ? "other" : "decayed", &(tx_param_spec){.shape = TX_SHAPE(N), .decay = p == 0});
    tx_tensor *sum = tx_add(tx_mul(f->x, w[0]), tx_mul(f->x, w[1]));
    assert_int_equal(tx_backward(f->graph, tx_reduce(sum, TX_REDUCE_SUM, TX_AXIS_ALL)), TX_OK);
    assert_int_equal(tx_plan_create(f->graph, "train", &f->train), TX_OK);
    assert_int_equal(tx_optimizer_create(f->model, options, &f->update), TX_OK);
}

static void expect(fixture *f, int32_t part, int32_t param, const double *wanted)
{
    float got[N];
    assert_int_equal(tx_model_read(f->model, (tx_part)part, param, got), TX_OK);
    for (int i = 0; i < N; i++)
        if (!(fabs((double)got[i] - wanted[i]) <= 5e-7))
            fail_msg("part %d of parameter %d: element %d is %.9g, not %.9g", part, param, i, (double)got[i],
                     wanted[i]);
}

static void three_steps(void **state)
{
    fixture *f = *state;
    for (int kind = 0; kind < TX_OPTIMIZER_KINDS; kind++) {
        assert_int_equal(rows[kind].options.kind, kind); /* it has a row here */
        build(f, &rows[kind].options);
        assert_int_equal(tx_model_set(f->model, TX_CONTROL_LEARNING_RATE, 0.1), TX_OK);
        for (int32_t p = 0; p < 2; p++)
            assert_int_equal(tx_model_write(f->model, TX_PART_WEIGHT, p, start), TX_OK);
        for (int step = 0; step < STEPS; step++) {
            assert_int_equal(tx_plan_write(f->train, f->x, gradients[step], sizeof gradients[step]), TX_OK);
            assert_int_equal(tx_plan_run(f->train), TX_OK);
            assert_int_equal(tx_plan_run(f->update), TX_OK);
        }
        expect(f, TX_PART_WEIGHT, 0, rows[kind].decayed);
        expect(f, TX_PART_WEIGHT, 1, rows[kind].other);
        const int32_t states = tx_model_states(f->model, 1);
        assert_int_equal(states, rows[kind].name[1] ? 2 : 1);
        for (int32_t k = 0; k < states; k++) {
            tx_state_info info;
            assert_int_equal(tx_model_state(f->model, 1, k, &info), TX_OK);
            assert_string_equal(info.name, rows[kind].name[k]);
            expect(f, TX_PART_STATE + k, 1, rows[kind].state[k]);
        }
        let_go(f);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(three_steps, set_up, tear_down)};
    int32_t index;
    device = argc > 1 ? argv[1] : "cpu";
    if (tx_device_find(device, &index) != TX_OK) {
        print_message("skipped: %s\n", tx_error());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
