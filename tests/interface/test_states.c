/* SPDX-License-Identifier: Apache-2.0
 * States of graphs: in a model whose memory grows, and in the memory of activations and gradients.
 *
 *     test_states               tests that need no device
 *     test_states DEVICE        tests on a device; exit status 77: there is no such device */
#include "tests/device_model.h"

#include <sys/resource.h>

static int set_up_all_threads(void **state)
{
    return set_up_threads(state, 0);
}

enum { CACHE = 4, WIDTH = 2 };

/* One query over caches of its own. */
typedef struct decoder {
    tx_graph *graph;
    tx_tensor *qkv, *positions, *output;
    tx_plan *plan;
} decoder;

static decoder decoder_of(tx_model *model, const char *keys, const char *values, int64_t rows)
{
    decoder d = {0};
    tx_attention_options o = {.size = sizeof o, .heads = 1, .kv_heads = 1};
    assert_ok(tx_graph_create(model, &d.graph));
    d.qkv = tx_input(d.graph, "qkv", TX_F32, TX_SHAPE(1, 1, 3 * WIDTH));
    d.positions = tx_input(d.graph, "positions", TX_I32, TX_SHAPE(1));
    tx_tensor *k = tx_state(d.graph, keys, TX_F32, TX_SHAPE(1, rows, WIDTH));
    tx_tensor *v = tx_state(d.graph, values, TX_F32, TX_SHAPE(1, rows, WIDTH));
    d.output = tx_output(tx_attention_cached(d.qkv, k, v, d.positions, NULL, NULL, &o));
    assert_ok(tx_plan_create(d.graph, keys, &d.plan));
    return d;
}

/* Queries and keys are zero, so that the output is the mean of the values so far. */
static void decode(decoder *d, int32_t position, float value, float wanted)
{
    const float qkv[3 * WIDTH] = {0, 0, 0, 0, value, 2.0f * value};
    float got[WIDTH];
    assert_ok(tx_plan_write(d->plan, d->qkv, qkv, sizeof qkv));
    assert_ok(tx_plan_write(d->plan, d->positions, &position, sizeof position));
    assert_ok(tx_plan_run(d->plan));
    assert_ok(tx_plan_read(d->plan, d->output, got, sizeof got));
    if (!(fabsf(got[0] - wanted) <= 1e-6f && fabsf(got[1] - 2.0f * wanted) <= 1e-6f))
        fail_msg("position %d gives %g and %g, not %g and twice that", position, (double)got[0], (double)got[1],
                 (double)wanted);
}

#if !defined(__SANITIZE_ADDRESS__) /* it has terabytes of its own */
/* The address space that this process may take from now on: so much more than now. */
static void limit_memory(rlim_t more)
{
    struct rlimit limit;
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = more == RLIM_INFINITY ? limit.rlim_max : (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}
#endif

static void decoder_free(decoder *d)
{
    tx_plan_free(d->plan);
    tx_graph_free(d->graph);
}

/* A second plan, with larger states of its own, comes after the first has run: the first's keep their values. */
static void states_survive_growth(void **state)
{
    fixture *f = *state;
    tx_memory planned, counted;
    decoder first = decoder_of(f->model, "k", "v", CACHE);
    decode(&first, 0, 1.0f, 1.0f);
    decoder second = decoder_of(f->model, "k2", "v2", 10000 * CACHE);
    decode(&second, 0, 8.0f, 8.0f);
    decode(&first, 1, 3.0f, 2.0f);
    decode(&second, 1, 4.0f, 6.0f);
    assert_ok(tx_model_memory(f->model, &planned));
    assert_ok(tx_engine_memory(f->engine, &counted));
    assert_int_equal(tx_memory_total(&planned), tx_memory_total(&counted));
    decoder_free(&first);
    decoder_free(&second);
}

/* States in the memory of activations: two plans share them, a third one writes NaN there. */
static void states_share_activations(void **state)
{
    enum { COUNT = 1 << 16 };
    fixture *f = *state;
    static float x[COUNT];
    tx_memory planned, counted;
    tx_plan *plan;
    for (int i = 0; i < COUNT; i++)
        x[i] = NAN;
    tx_tensor *in = tx_input(f->graph, "x", TX_F32, TX_SHAPE(COUNT)), *y = tx_output(tx_add(tx_exponential(in), in));
    assert_ok(tx_plan_create(f->graph, "others", &plan));
    assert_ok(tx_model_memory(f->model, &planned));
    const int64_t alone = planned.bytes[TX_MEMORY_ACTIVATIONS] + planned.bytes[TX_MEMORY_TEMPORARY];
    assert_ok(tx_model_share_states(f->model));
    decoder one = decoder_of(f->model, "k", "v", COUNT / 8), other = decoder_of(f->model, "k", "v", COUNT / 8);
    for (int i = 0; i < 2; i++) {
        assert_ok(tx_model_clear_states(f->model));
        decode(&one, 0, 1.0f, 1.0f);
        decode(&other, 1, 3.0f, 2.0f);
        assert_ok(tx_plan_write(plan, in, x, sizeof x));
        assert_ok(tx_plan_run(plan));
        assert_ok(tx_plan_read(plan, y, x, sizeof x));
    }
    assert_ok(tx_model_memory(f->model, &planned));
    assert_ok(tx_engine_memory(f->engine, &counted));
    assert_int_equal(tx_memory_total(&planned), tx_memory_total(&counted));
    assert_int_equal(planned.bytes[TX_MEMORY_CACHE], 0);
    /* The states are smaller than the activations. */
    assert_int_equal(planned.bytes[TX_MEMORY_ACTIVATIONS] + planned.bytes[TX_MEMORY_TEMPORARY], alone);
    tx_plan_free(plan);
    tx_graph_free(f->graph);
    assert_ok(tx_graph_create(f->model, &f->graph));
    assert_null(tx_state(f->graph, "late", TX_F32, TX_SHAPE(4)));
    assert_refused(tx_plan_create(f->graph, "", &plan), TX_INVALID,
                   "state late: a plan was made with the other states");
    decoder_free(&one);
    decoder_free(&other);
}

static int count_of(float value, const float *x, int count)
{
    int found = 0;
    for (int i = 0; i < count; i++)
        found += x[i] == value;
    return found;
}

/* The same in the memory of gradients, which are 0 again after that. */
static void states_borrow_gradients(void **state)
{
    enum { COUNT = 4096 };
    fixture *f = *state;
    tx_memory before, planned;
    tx_plan *plan = NULL, *update = NULL;
    const tx_optimizer_options o = {.size = sizeof o, .kind = TX_SGD};
    tx_tensor *x = tx_param(f->graph, "x", &(tx_param_spec){.shape = TX_SHAPE(COUNT), .init = TX_INIT_ONE});
    float gradient[COUNT];
    assert_ok(tx_backward(f->graph, tx_reduce(x, TX_REDUCE_SUM, TX_AXIS_ALL)));
    assert_ok(tx_plan_create(f->graph, "train", &plan));
    assert_ok(tx_optimizer_create(f->model, &o, &update));
    assert_ok(tx_model_memory(f->model, &before));
    assert_ok(tx_model_share_states(f->model));
    decoder d = decoder_of(f->model, "k", "v", CACHE);
    assert_ok(tx_plan_run(plan));
    assert_ok(tx_model_clear_states(f->model));
    decode(&d, 0, 1.0f, 1.0f);
    decode(&d, 1, 3.0f, 2.0f);
    assert_ok(tx_model_read(f->model, TX_PARAM_GRADIENT, 0, gradient));
    assert_int_equal(count_of(6.0f, gradient, COUNT), 1); /* the second value's second element */
    assert_ok(tx_model_return_states(f->model));
    assert_ok(tx_model_read(f->model, TX_PARAM_GRADIENT, 0, gradient));
    const int zeros = count_of(0.0f, gradient, COUNT);
    assert_true(zeros >= 2 * CACHE * WIDTH);
    assert_int_equal(zeros + count_of(1.0f, gradient, COUNT), COUNT); /* the rest is still the plan's */
    assert_ok(tx_model_memory(f->model, &planned));
    assert_int_equal(planned.bytes[TX_MEMORY_CACHE], before.bytes[TX_MEMORY_CACHE]);
    decoder_free(&d);
    tx_plan_free(update);
    tx_plan_free(plan);
}

/* The same if memory is missing at first: nothing is lost, and the plan runs as soon as memory is available. */
static void states_survive_lack_of_memory(void **state)
{
#if defined(__SANITIZE_ADDRESS__)
    skip();
#else
    fixture *f = *state;
    const int32_t position = 0;
    decoder first = decoder_of(f->model, "k", "v", CACHE);
    decode(&first, 0, 1.0f, 1.0f);
    decoder second = decoder_of(f->model, "k2", "v2", 1 << 25);
    limit_memory(1 << 24);
    for (int i = 0; i < 2; i++)
        assert_refused(tx_plan_write(second.plan, second.positions, &position, sizeof position), TX_MEMORY, "");
    limit_memory(RLIM_INFINITY);
    decode(&second, 0, 8.0f, 8.0f);
    decode(&first, 1, 3.0f, 2.0f);
    decoder_free(&first);
    decoder_free(&second);
#endif
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up_all_threads, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest of_all[] = {TEST(states_survive_lack_of_memory)};
    const struct CMUnitTest of_device[] = {TEST(states_survive_growth), TEST(states_share_activations),
                                           TEST(states_borrow_gradients)};
    int32_t index = 0;
    if (argc < 2)
        return cmocka_run_group_tests(of_all, NULL, NULL);
    device = argv[1];
    if (tx_device_find(device, &index))
        return printf("%s\n", tx_error()), 77;
    return cmocka_run_group_tests(of_device, NULL, NULL);
}
