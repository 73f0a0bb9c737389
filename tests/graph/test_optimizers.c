/* SPDX-License-Identifier: Apache-2.0
 * Every optimizer of optimizers.def. The first 20 updates of parameters of several shapes are compared with double
 * precision (optimizer_reference.c). test_optimizer_vectors compares that reference with other packages.
 *   test_optimizers DEVICE */
#include "tests/graph/optimizer_reference.h"
#include "tests/skip.h"

#include "api/base/hash.h"
#include "tests/unit.h"

static const char *device;

/* ---- Twenty updates ------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    int64_t rows, columns; /* of all experts */
    bool table;
    int32_t experts, sections; /* 0 for none; each is a tensor of its own in files */
    int64_t size[3];
} params[] = {{"table", 70, 64, .table = true},
              {"wide", 65, 96, .table = false},
              {"tall", 100, 47, .table = false},
              {"bias", 300, 0, .table = false},
              {"sections", 91, 47, false, 0, 3, {50, 20, 21}},
              {"section_bias", 301, 0, false, 0, 3, {170, 100, 31}},
              {"experts", 120, 33, false, 3, 2, {25, 15}}};
enum { PARAMS = sizeof params / sizeof params[0], OF_ROWS = 4, UPDATES = 20, TENSORS = 6 };

/* At least one case of every kind. The limits are the largest error and the mean square error, in learning rates. With
 * states of few bits, one different rounding moves a weight by a part of a step. */
static const struct {
    tx_optimizer_options options;
    double most, mean;
    int32_t states[OF_ROWS]; /* of the first parameters */
    const char *name;        /* of the first state of `wide` */
} rows[] = {
    {{OPTIONS(SGD), .weight_decay = 0.1f}, 1e-4, 2e-5, {0}, NULL},
    {{OPTIONS(SGD), .momentum = 0.9f, .weight_decay = 0.1f}, 2e-4, 4e-5, {1, 1, 1, 1}, "exp_avg"},
    {{OPTIONS(SGD), .momentum = 0.9f, .nesterov = true}, 2e-4, 4e-5, {1, 1, 1, 1}, "exp_avg"},
    {{OPTIONS(ADAMW), ADAM, .weight_decay = 0.1f}, 2e-4, 4e-5, {2, 2, 2, 2}, "exp_avg"},
    {{OPTIONS(LION), .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f}, 2e-4, 4e-5, {1, 1, 1, 1}, "exp_avg"},
    {{OPTIONS(ADAFACTOR), .weight_decay = 0.1f}, 2e-4, 4e-5, {2, 2, 2, 1}, "exp_avg_sq_row"},
    {{OPTIONS(ADAFACTOR), .relative_step = true, .scale_parameter = true}, 2e-4, 4e-5, {2, 2, 2, 1}, "exp_avg_sq_row"},
    {{OPTIONS(ADAFACTOR), .relative_step = true, .warmup_init = true}, 2e-4, 4e-5, {2, 2, 2, 1}, "exp_avg_sq_row"},
    {{OPTIONS(ADAMW_8BIT), ADAM, .weight_decay = 0.1f}, 0.2, 2e-3, {2, 3, 3, 2}, "exp_avg_8bit"},
    {{OPTIONS(ADAMW_ANYPRECISION), ADAM, .weight_decay = 0.1f}, 2e-4, 4e-5, {2, 2, 2, 2}, "exp_avg"},
    {{OPTIONS(ADAMW_ANYPRECISION), ADAM, .momentum_dtype = TX_BF16, .variance_dtype = TX_BF16},
     0.05,
     1e-3,
     {2, 2, 2, 2},
     "exp_avg"},
    {{OPTIONS(ADAMW_ANYPRECISION), ADAM, .kahan = true, .compensation_dtype = TX_BF16},
     2e-4,
     4e-5,
     {3, 3, 3, 3},
     "exp_avg"},
    {{OPTIONS(MUON), ADAM, .momentum = 0.95f, .nesterov = true, .weight_decay = 0.1f},
     2e-3,
     2e-4,
     {2, 1, 1, 2},
     "momentum_buffer"},
    {{OPTIONS(MUON), ADAM, .momentum = 0.9f, .match_rms = true}, 4e-3, 4e-4, {2, 1, 1, 2}, "momentum_buffer"},
    {{OPTIONS(LION_8BIT), .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f}, 2.1, 0.2, {1, 2, 2, 1}, "exp_avg_8bit"},
    {{OPTIONS(ADEMAMIX), ADAM, SLOW, .weight_decay = 0.1f}, 2e-4, 4e-5, {3, 3, 3, 3}, "exp_avg"},
    {{OPTIONS(ADEMAMIX), ADAM, SLOW, .slow_weight_steps = 30, .beta3_steps = 8}, 2e-4, 4e-5, {3, 3, 3, 3}, "exp_avg"},
    {{OPTIONS(STABLE_ADAMW), ADAM, .weight_decay = 0.1f}, 2e-4, 4e-5, {2, 2, 2, 2}, "exp_avg"},
    {{OPTIONS(SCHEDULE_FREE_ADAMW), ADAM, .weight_decay = 0.1f}, 2e-4, 4e-5, {3, 3, 3, 3}, "y"},
    {{OPTIONS(SCHEDULE_FREE_ADAMW), ADAM, .weight_decay = 0.1f, .warmup_steps = 12}, 2e-4, 4e-5, {3, 3, 3, 3}, "y"},
    {{OPTIONS(SCHEDULE_FREE_SGD), .momentum = 0.9f, .weight_decay = 0.1f}, 2e-4, 4e-5, {2, 2, 2, 2}, "y"},
    {{OPTIONS(SCHEDULE_FREE_SGD), .momentum = 0.8f, .warmup_steps = 30}, 2e-4, 4e-5, {2, 2, 2, 2}, "y"},
    {{OPTIONS(APOLLO), ADAM, .weight_decay = 0.1f, .rank = 8, .update_proj_gap = 7, .scale = 1},
     5e-4,
     1e-4,
     {2, 3, 3, 2},
     "exp_avg"},
    {{OPTIONS(APOLLO), ADAM, .rank = 5, .update_proj_gap = 1, .scale = 4, .scale_front = true, .disable_nl = true},
     5e-4,
     1e-4,
     {2, 3, 3, 2},
     "exp_avg"},
    {{OPTIONS(APOLLO), ADAM, .weight_decay = 0.1f, .rank = 1, .update_proj_gap = 200, .scale = 128,
      .scale_by_tensor = true},
     5e-4,
     1e-4,
     {2, 3, 3, 2},
     "exp_avg"},
};

typedef struct fixture {
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_plan *train, *update, *average;
    tx_tensor *x[PARAMS];
    tx_reference reference[PARAMS][TENSORS];
} fixture;

static int64_t count_of(int p)
{
    return params[p].rows * (params[p].columns ? params[p].columns : 1);
}

static int tensors_of(int p)
{
    return (params[p].experts ? params[p].experts : 1) * (params[p].sections ? params[p].sections : 1);
}

/* Rows of a tensor, and the number of its first element. */
static int64_t rows_of(int p, int tensor, int64_t *first)
{
    const int sections = params[p].sections ? params[p].sections : 1;
    int64_t before = tensor / sections * (params[p].experts ? params[p].rows / params[p].experts : 0);
    for (int i = 0; i < tensor % sections; i++)
        before += params[p].size[i];
    *first = before * (params[p].columns ? params[p].columns : 1);
    return params[p].sections ? params[p].size[tensor % sections] : params[p].rows;
}

static tx_param_spec spec_of(int p)
{
    const int64_t columns = params[p].columns, experts = params[p].experts;
    const tx_shape matrix = columns ? TX_SHAPE(params[p].rows, columns) : TX_SHAPE(params[p].rows);
    tx_param_spec spec = {.shape = experts ? TX_SHAPE(experts, params[p].rows / experts, columns) : matrix,
                          .decay = columns > 0,
                          .table = params[p].table,
                          .experts = experts > 0,
                          .sections = {.count = params[p].sections, .dimension = experts > 0},
                          .apart = params[p].sections > 0};
    memcpy(spec.sections.size, params[p].size, sizeof params[p].size);
    return spec;
}

/* Numbers in -1 .. 1. */
static void draw(uint64_t *seed, double scale, float *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        numbers[i] = (float)(scale * ((double)(*seed >> 40) / (double)(1 << 23) - 1.0));
    }
}

static void widen(const float *from, double *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (double)from[i];
}

/* The key of a tensor's random numbers. */
static uint32_t site_of(const char *name, int32_t tensor)
{
    const uint64_t hash = tx_hash(tx_hash(TX_HASH_START, name, strlen(name)), &tensor, sizeof tensor);
    return (uint32_t)(hash ^ hash >> 32);
}

/* x times each parameter, summed: x is the gradient. */
static void build(fixture *f, const tx_optimizer_options *options, uint64_t *seed)
{
    tx_tensor *sum = NULL;
    assert_int_equal(tx_model_create(f->engine, &f->model), TX_OK);
    assert_int_equal(tx_graph_create(f->model, &f->graph), TX_OK);
    for (int p = 0; p < PARAMS; p++) {
        const tx_param_spec spec = spec_of(p);
        f->x[p] = tx_input(f->graph, params[p].name, TX_F32, spec.shape);
        tx_tensor *one =
            tx_reduce(tx_mul(f->x[p], tx_param(f->graph, params[p].name, &spec)), TX_REDUCE_SUM, TX_AXIS_ALL);
        sum = sum ? tx_add(sum, one) : one;
    }
    assert_int_equal(tx_backward(f->graph, sum), TX_OK);
    assert_int_equal(tx_plan_create(f->graph, "train", &f->train), TX_OK);
    assert_int_equal(tx_optimizer_average(f->model, &f->average), TX_INVALID);
    assert_int_equal(tx_optimizer_create(f->model, options, &f->update), TX_OK);
    assert_int_equal(tx_optimizer_average(f->model, &f->average), TX_OK);
    for (int p = 0; p < PARAMS; p++) {
        float start[100 * 96];
        double wide[100 * 96];
        draw(seed, 0.5, start, count_of(p));
        widen(start, wide, count_of(p));
        assert_int_equal(tx_model_write(f->model, TX_PARAM_WEIGHT, p, start), TX_OK);
        for (int k = 0; k < tensors_of(p); k++) {
            int64_t first;
            tx_reference *r = &f->reference[p][k];
            const int64_t rows_there = rows_of(p, k, &first);
            assert_true(tx_reference_create(r, rows_there, params[p].columns, wide + first));
            r->decays = params[p].columns > 0;
            r->table = params[p].table;
            r->site = site_of(params[p].name, k);
        }
    }
}

static void let_go(fixture *f)
{
    for (int p = 0; p < PARAMS; p++)
        for (int k = 0; k < tensors_of(p); k++)
            tx_reference_free(&f->reference[p][k]);
    tx_plan_free(f->average);
    tx_plan_free(f->update);
    tx_plan_free(f->train);
    tx_graph_free(f->graph);
    tx_model_free(f->model);
    *f = (fixture){.engine = f->engine};
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    const tx_engine_options options = {.size = sizeof options, .device = device, .threads = 1};
    assert_non_null(f);
    assert_int_equal(tx_engine_create(&options, &f->engine), TX_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    let_go(f);
    tx_engine_free(f->engine);
    free(f);
    return 0;
}

/* Gradients of some size by parameter, some of which have no sign that lasts. */
static void step(fixture *f, const tx_optimizer_options *o, double rate, int64_t t, uint64_t *seed)
{
    for (int p = 0; p < PARAMS; p++) {
        float g[100 * 96];
        double wide[100 * 96];
        draw(seed, 0.01 * (p + 1), g, count_of(p));
        for (int64_t i = 0; i < count_of(p); i += 3)
            g[i] = (float)(0.002 * sin((double)i)) + 0.1f * g[i];
        widen(g, wide, count_of(p));
        assert_int_equal(tx_plan_write(f->train, f->x[p], g, (size_t)count_of(p) * sizeof *g), TX_OK);
        for (int k = 0; k < tensors_of(p); k++) {
            int64_t first;
            rows_of(p, k, &first);
            tx_reference_update(&f->reference[p][k], o, rate, t, wide + first, 4096);
        }
    }
    assert_int_equal(tx_plan_run(f->train), TX_OK);
    assert_int_equal(tx_plan_run(f->update), TX_OK);
}

/* Compares the weights, or their average, which is in place of the weights. */
static void compare(fixture *f, size_t row, double rate, bool averaged)
{
    for (int p = 0; p < PARAMS; p++) {
        float got[100 * 96];
        double most = 0.0, squares = 0.0;
        assert_int_equal(tx_model_read(f->model, TX_PARAM_WEIGHT, p, got), TX_OK);
        for (int k = 0; k < tensors_of(p); k++) {
            int64_t first;
            const int64_t count = rows_of(p, k, &first) * (params[p].columns ? params[p].columns : 1);
            const tx_reference *r = &f->reference[p][k];
            for (int64_t i = 0; i < count; i++) {
                const double error = fabs((double)got[first + i] - (averaged ? r->c : r->p)[i]) / rate;
                most = error <= most ? most : error; /* NaN stays */
                squares += error * error;
            }
        }
        const double mean = sqrt(squares / (double)count_of(p));
        if (!(most <= rows[row].most && mean <= rows[row].mean))
            fail_msg("row %zu, %s: errors of up to %.3g steps, mean %.3g", row, params[p].name, most, mean);
    }
}

/* Numbers of rows, or columns, that Adafactor keeps of each tensor. */
static void compare_sums(fixture *f, int p, int state, tx_shape shape)
{
    float got[200];
    tx_state_info info;
    int64_t at = 0;
    assert_int_equal(tx_model_state(f->model, p, state, &info), TX_OK);
    assert_true(tx_shape_equal(&info.shape, &shape));
    assert_int_equal(tx_model_read(f->model, (tx_param_role)(TX_PARAM_STATE + state), p, got), TX_OK);
    for (int k = 0; k < tensors_of(p); k++) {
        const tx_reference *r = &f->reference[p][k];
        const double *wanted = state ? r->c : r->v;
        for (int64_t i = 0; i < (state ? r->columns : r->rows); i++, at++)
            if (!(fabs((double)got[at] / wanted[i] - 1.0) <= 1e-5))
                fail_msg("%s: number %d of state %d is %g, not %g", params[p].name, (int)at, state, (double)got[at],
                         wanted[i]);
    }
    assert_int_equal(at, tx_shape_count(&shape));
}

static void check_states(fixture *f, size_t row)
{
    tx_state_info info;
    for (int p = 0; p < OF_ROWS; p++)
        assert_int_equal(tx_model_states(f->model, p), rows[row].states[p]);
    for (int p = OF_ROWS; p < PARAMS; p++) { /* no tensor of these is large enough for 8 bits */
        const bool large = rows[row].options.kind == TX_ADAMW_8BIT || rows[row].options.kind == TX_LION_8BIT;
        assert_int_equal(tx_model_states(f->model, p), rows[row].states[params[p].columns && !large ? 1 : 3]);
    }
    if (!rows[row].name)
        return;
    assert_int_equal(tx_model_state(f->model, 1, 0, &info), TX_OK);
    assert_string_equal(info.name, rows[row].name);
}

/* APOLLO's moments have rows for the longer side of each tensor: 50, 47 and 47 of the sections. */
static void check_shapes(fixture *f, int32_t rank)
{
    tx_state_info info;
    const tx_shape sections = rank > 1 ? TX_SHAPE(50 + 47 + 47, rank) : TX_SHAPE(50 + 47 + 47);
    assert_int_equal(tx_model_state(f->model, 4, 1, &info), TX_OK);
    assert_true(tx_shape_equal(&info.shape, &sections));
    assert_int_equal(tx_model_state(f->model, 4, 2, &info), TX_OK);
    assert_true(tx_shape_equal(&info.shape, &TX_SHAPE(3)));
}

static bool is_free(const tx_optimizer_options *o)
{
    return o->kind == TX_SCHEDULE_FREE_ADAMW || o->kind == TX_SCHEDULE_FREE_SGD;
}

static double rate_at(const tx_optimizer_options *o, double rate, int64_t t)
{
    return is_free(o) && (float)t < o->warmup_steps ? rate * (double)t / (double)o->warmup_steps : rate;
}

/* The exchange shows the average. A second one restores every bit. Before the first update it changes nothing. */
static void exchange(fixture *f, size_t row, double rate, bool updated)
{
    static float before[PARAMS][100 * 96], after[100 * 96];
    assert_true(is_free(&rows[row].options) == (f->average != NULL));
    if (!f->average)
        return;
    for (int p = 0; p < PARAMS; p++)
        assert_int_equal(tx_model_read(f->model, TX_PARAM_WEIGHT, p, before[p]), TX_OK);
    assert_int_equal(tx_plan_run(f->average), TX_OK);
    if (updated)
        compare(f, row, rate, true);
    assert_int_equal(tx_plan_run(f->average), TX_OK);
    for (int p = 0; p < PARAMS; p++) {
        assert_int_equal(tx_model_read(f->model, TX_PARAM_WEIGHT, p, after), TX_OK);
        assert_memory_equal(before[p], after, (size_t)count_of(p) * sizeof *after);
    }
}

static void twenty_updates(void **state)
{
    fixture *f = *state;
    uint32_t seen = 0;
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        const tx_optimizer_options *o = &rows[row].options;
        const double rate = o->relative_step ? 1e-2 : (double)0.02f;
        uint64_t seed = row;
        seen |= 1u << o->kind;
        build(f, o, &seed);
        check_states(f, row);
        exchange(f, row, rate, false);
        for (int64_t t = 1; t <= UPDATES; t++) {
            assert_int_equal(tx_model_set(f->model, TX_CONTROL_LEARNING_RATE, rate_at(o, rate, t)), TX_OK);
            step(f, o, rate, t, &seed);
        }
        compare(f, row, rate, false);
        exchange(f, row, rate, true);
        if (o->kind == TX_APOLLO)
            check_shapes(f, o->rank);
        if (o->kind == TX_ADAFACTOR) {
            compare_sums(f, 4, 0, TX_SHAPE(91));
            compare_sums(f, 4, 1, TX_SHAPE(3, 47));
            compare_sums(f, 6, 0, TX_SHAPE(120));
            compare_sums(f, 6, 1, TX_SHAPE(6, 33));
        }
        let_go(f);
    }
    assert_int_equal(seen, (1u << TX_OPTIMIZER_KINDS) - 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(twenty_updates, set_up, tear_down)};
    device = tx_test_device(argc > 1 ? argv[1] : "cpu");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
