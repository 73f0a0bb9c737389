/* SPDX-License-Identifier: Apache-2.0
 * Weights that are stored in 16 bits: the results of products, the memory, and updates that are smaller than the
 * resolution of bf16. With stochastic rounding such updates are exact on average, with Kahan summation each of them is
 * kept. test_stored DEVICE */

#include "tests/device_model.h"

enum { COUNT = 5000 };

/* Replaces the fixture's graph by one of a model that stores weights in that type. */
static void store(fixture *f, tx_dtype dtype)
{
    tx_graph_free(f->graph);
    f->graph = NULL;
    assert_ok(tx_model_store(f->model, dtype));
    assert_ok(tx_graph_create(f->model, &f->graph));
}

static tx_tensor *vector(fixture *f, const char *name, int64_t count)
{
    return tx_param(f->graph, name, &(tx_param_spec){.shape = TX_SHAPE(count), .init = TX_INIT_ONE});
}

/* A model of one vector, whose gradient is x. */
static tx_tensor *make_product(fixture *f, int64_t count)
{
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(count));
    tx_tensor *loss = tx_reduce(tx_mul(vector(f, "p", count), x), TX_REDUCE_SUM, TX_AXIS_ALL);
    assert_ok(tx_backward(f->graph, loss));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    return x;
}

static void step(fixture *f, tx_tensor *x, const float *gradient, int64_t count, uint32_t number, double rate)
{
    assert_ok(tx_model_set(f->model, TX_CONTROL_STEP, number));
    assert_ok(tx_model_set(f->model, TX_CONTROL_LEARNING_RATE, rate));
    assert_ok(tx_plan_write(f->plan, x, gradient, (size_t)count * sizeof *gradient));
    assert_ok(tx_plan_run(f->plan));
    assert_ok(tx_plan_run(f->update));
}

/* ---- Reading ---------------------------------------------------------------------------------------- */

/* Rows of a table times a matrix, and a norm: close to fp32's results, with half the bytes. */
static void computed_as_in_fp32(void **state)
{
    fixture *f = *state;
    const int32_t tokens[6] = {3, 0, 19, 7, 7, 2};
    float wanted[6 * 48] = {0}, got[6 * 48];
    int64_t full = 0;
    for (int d = 0; d < 3; d++) {
        static const tx_dtype types[] = {TX_F32, TX_BF16, TX_F16};
        tx_memory planned, counted;
        if (d > 0) {
            tear_down(state);
            set_up(state);
            f = *state;
        }
        store(f, types[d]);
        const tx_param_spec table = {.shape = TX_SHAPE(20, 64), .init = TX_INIT_NORMAL, .scale = 1.0f},
                            matrix = {.shape = TX_SHAPE(64, 48), .init = TX_INIT_NORMAL, .scale = 0.1f};
        tx_tensor *in = tx_input(f->graph, "tokens", TX_I32, TX_SHAPE(2, 3));
        tx_tensor *x = tx_embedding(in, tx_param(f->graph, "table", &table), NULL, NULL);
        x = tx_layer_norm(x, vector(f, "gamma", 64), vector(f, "beta", 64), 1e-5f);
        tx_tensor *y = tx_output(tx_linear(x, tx_param(f->graph, "matrix", &matrix), vector(f, "bias", 48), false));
        assert_ok(tx_plan_create(f->graph, "forward", &f->plan));
        assert_ok(tx_model_init(f->model, 5));
        assert_ok(tx_plan_write(f->plan, in, tokens, sizeof tokens));
        assert_ok(tx_plan_run(f->plan));
        assert_ok(tx_plan_read(f->plan, y, d == 0 ? wanted : got, sizeof got));
        assert_ok(tx_model_memory(f->model, &planned));
        assert_ok(tx_engine_memory(f->engine, &counted));
        assert_int_equal(planned.bytes[TX_MEMORY_WEIGHTS], counted.bytes[TX_MEMORY_WEIGHTS]);
        full = d == 0 ? counted.bytes[TX_MEMORY_WEIGHTS] : full;
        assert_int_equal(counted.bytes[TX_MEMORY_WEIGHTS], d == 0 ? full : full / 2);
        const double most = types[d] == TX_BF16 ? 0.05 : 0.01;
        for (int i = 0; i < 6 * 48 && d > 0; i++)
            if (!(fabs((double)got[i] - (double)wanted[i]) <= most))
                fail_msg("number %d is %g, in fp32 %g", i, (double)got[i], (double)wanted[i]);
    }
}

/* ---- Updates ------------------------------------------------------------------------------------------ */

/* A step of 1e-4 on weights of 1, whose neighbours in bf16 are 2^-8 below and 2^-7 above. With rounding to nearest no
 * weight would ever change. 100 steps sum up to 0.01; the error of the mean of 5,000 weights is 3e-4 at four standard
 * deviations. */
static void small_steps_arrive(void **state)
{
    static const tx_optimizer_options rows[] = {
        {.size = sizeof rows[0], .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f},
        {.size = sizeof rows[0],
         .kind = TX_ADAMW_ANYPRECISION,
         .beta1 = 0.9f,
         .beta2 = 0.999f,
         .eps = 1e-8f,
         .compensation_dtype = TX_BF16,
         .kahan = true}};
    static float gradient[COUNT], first[COUNT], weight[COUNT], rest[COUNT];
    for (int r = 0; r < 2; r++) {
        fixture *f = *state;
        if (r > 0) {
            tear_down(state);
            set_up(state);
            f = *state;
        }
        store(f, TX_BF16);
        for (int i = 0; i < COUNT; i++)
            gradient[i] = i % 2 ? 1.0f : -1.0f;
        tx_tensor *x = make_product(f, COUNT);
        assert_ok(tx_optimizer_create(f->model, &rows[r], &f->update));
        for (int run = 0; run < 2; run++) { /* the same bits again */
            assert_ok(tx_model_restore(f->model, &(tx_results){{0}}));
            assert_ok(tx_model_init(f->model, 1));
            memset(first, 0, sizeof first);
            for (int32_t k = 0; k < tx_model_states(f->model, 0); k++)
                assert_ok(tx_model_write(f->model, (tx_param_role)(TX_PARAM_STATE + k), 0, first));
            assert_ok(tx_model_set_seed(f->model, 3));
            memcpy(first, weight, sizeof first);
            for (uint32_t t = 0; t < 100; t++)
                step(f, x, gradient, COUNT, t, 1e-4);
            assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, 0, weight));
        }
        assert_memory_equal(first, weight, sizeof weight);
        if (rows[r].kahan) /* the part of the updates that the weight does not hold yet */
            assert_ok(tx_model_read(f->model, (tx_param_role)(TX_PARAM_STATE + 2), 0, rest));
        double up = 0.0, down = 0.0;
        for (int i = 0; i < COUNT; i++)
            *(i % 2 ? &down : &up) += (double)weight[i] - 1.0 + (double)rest[i];
        up /= COUNT / 2;
        down /= COUNT / 2;
        print_message("%s: on average %+.5f and %+.5f\n", r ? "Kahan" : "by chance", up, down);
        assert_true(fabs(up - 0.01) <= 3.5e-4 && fabs(down + 0.01) <= 3.5e-4);
    }
}

/* Four numbers of bf16 after three updates with Kahan's sum, and the first one's remainder, by torchdistx. */
static void kahan_is_theirs(void **state)
{
    static const float start[4] = {1.0f, -0.5f, 0.25f, 2.0f}, end[4] = {0.99609375f, -0.5f, 0.249023438f, 2.0f};
    static const float g[3][4] = {{0.1f, -0.2f, 0.3f, -0.4f}, {0.3f, 0.1f, -0.2f, 0.05f}, {-0.25f, 0.5f, 0.1f, 0.2f}};
    const tx_optimizer_options options = {.size = sizeof options,
                                          .kind = TX_ADAMW_ANYPRECISION,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.999f,
                                          .eps = 1e-8f,
                                          .compensation_dtype = TX_BF16,
                                          .kahan = true};
    fixture *f = *state;
    float p[4], c[4];
    store(f, TX_BF16);
    tx_tensor *x = make_product(f, 4);
    assert_ok(tx_optimizer_create(f->model, &options, &f->update));
    assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, 0, start));
    for (uint32_t t = 0; t < 3; t++)
        step(f, x, g[t], 4, t, 1e-3);
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, 0, p));
    assert_ok(tx_model_read(f->model, (tx_param_role)(TX_PARAM_STATE + 2), 0, c));
    for (int i = 0; i < 4; i++)
        if (!(fabsf(p[i] - end[i]) == 0.0f))
            fail_msg("number %d is %.9g, theirs %.9g", i, (double)p[i], (double)end[i]);
    assert_true(fabs((double)c[0] - 0.00183105469) <= 1e-5);
}

/* ---- Refusals ------------------------------------------------------------------------------------------- */

static void refused(void **state)
{
    fixture *f = *state;
    const tx_optimizer_options lion = {.size = sizeof lion, .kind = TX_LION, .beta1 = 0.9f, .beta2 = 0.99f};
    assert_refused(tx_model_store(f->model, TX_I32), TX_INVALID, "BF16");
    store(f, TX_BF16);
    assert_refused(tx_graph_autocast(f->graph, TX_F16), TX_INVALID, "BF16");
    make_product(f, 4);
    assert_refused(tx_model_store(f->model, TX_F32), TX_INVALID, "before");
    assert_refused(tx_optimizer_create(f->model, &lion, &f->update), TX_UNSUPPORTED, "AdamW");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(computed_as_in_fp32, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(small_steps_arrive, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(kahan_is_theirs, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(refused, set_up, tear_down)};
    device = tx_test_device(argc > 1 ? argv[1] : device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
