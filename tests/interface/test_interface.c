/* SPDX-License-Identifier: Apache-2.0
 * Refusals of the public interface and their messages; casts and their gradients.
 *
 *     test_interface               tests that need no device
 *     test_interface DEVICE        tests on a device; exit status 77: there is no such device */
#include "tests/device_model.h"

static int set_up_all_threads(void **state)
{
    return set_up_threads(state, 0);
}

static tx_tensor *param(tx_graph *g, const char *name, tx_shape shape)
{
    return tx_param(g, name, &(tx_param_spec){.shape = shape, .init = TX_INIT_NORMAL, .scale = 1.0f});
}

/* ---- Ops ------------------------------------------------------------------------------------------------------- */

static void begin_graph(fixture *f)
{
    tx_graph_free(f->graph);
    assert_ok(tx_graph_create(f->model, &f->graph));
}

/* A function that adds an op returns NULL, and the graph, which is new for each case, keeps the reason. */
#define REFUSES(op, message)                                                       \
    do {                                                                           \
        tx_plan *plan_ = NULL;                                                     \
        begin_graph(f);                                                            \
        assert_null(op);                                                           \
        assert_refused(tx_plan_create(f->graph, "", &plan_), TX_INVALID, message); \
    } while (0)
#define F32(...) tx_input(f->graph, "x", TX_F32, TX_SHAPE(__VA_ARGS__))
#define BF16(...) tx_input(f->graph, "h", TX_BF16, TX_SHAPE(__VA_ARGS__))
#define I32(...) tx_input(f->graph, "i", TX_I32, TX_SHAPE(__VA_ARGS__))

static void contractions(void **state)
{
    fixture *f = *state;
    REFUSES(tx_linear(F32(2, 3), F32(4, 3), NULL, false), "inner dimensions of [2, 3] and [4, 3] differ");
    REFUSES(tx_linear(F32(2, 3), F32(3, 4), F32(3), false), "matmul: input 2 has shape [3], wanted [4]");
    REFUSES(tx_linear(F32(2, 3), BF16(3, 4), NULL, false), "matmul: input 1 is BF16, wanted F32");
    REFUSES(tx_linear(F32(2, 6), F32(2, 3, 4), NULL, false), "matmul: input 1 has shape [2, 3, 4], wanted rank 2");
    REFUSES(tx_linear(I32(2, 3), I32(3, 4), NULL, false), "matmul: input 0 is I32, wanted F32, BF16 or F16");
    REFUSES(tx_matmul(F32(3), F32(3, 4), true, false), "matmul: input 0 has shape [3], wanted rank 2 or more");
    REFUSES(tx_matmul(F32(2, 3, 4), F32(3, 4, 5), false, false), "dimensions of [2, 3, 4] and [3, 4, 5] differ");
}

static void attention(void **state)
{
    fixture *f = *state;
    tx_attention_options o = {.size = sizeof o, .heads = 2, .kv_heads = 2};
    REFUSES(tx_attention(F32(2, 5, 24), NULL, NULL, &(tx_attention_options){.heads = 2}),
            "attention options: size is 0");
    REFUSES(tx_attention(F32(2, 24), NULL, NULL, &o), "attention: input 0 has shape [2, 24], wanted rank 3");
    REFUSES(tx_attention(F32(2, 5, 25), NULL, NULL, &o),
            "the last dimension of [2, 5, 25] is not a multiple of 6 heads");
    REFUSES(tx_attention(F32(2, 5, 24), I32(3), NULL, &o), "attention: input 1 has shape [3], wanted [2]");
    REFUSES(tx_attention(F32(2, 5, 24), F32(2), NULL, &o), "attention: input 1 is F32, wanted I32");
    o.kv_heads = 3;
    REFUSES(tx_attention(F32(2, 5, 24), NULL, NULL, &o), "2 heads cannot share 3 key heads");
    o.kv_heads = -1;
    REFUSES(tx_attention(F32(2, 5, 24), NULL, NULL, &o), "2 heads cannot share -1 key heads");
    o.kv_heads = 2;
    o.dropout = 1.0f;
    REFUSES(tx_attention(F32(2, 5, 24), NULL, NULL, &o), "attention: dropout 1 is not in [0, 1)");
    o.dropout = 0.0f;
    REFUSES(tx_attention(F32(2, 5, 24), NULL, I32(2, 5), &o), "attention: a window or starts need causal");
    o.causal = true;
    REFUSES(tx_attention(F32(2, 5, 24), NULL, I32(2), &o), "attention: input 2 has shape [2], wanted [2, 5]");
    REFUSES(tx_attention(F32(2, 5, 24), NULL, F32(2, 5), &o), "attention: input 2 is F32, wanted I32");
    o.window = -1;
    REFUSES(tx_attention(F32(2, 5, 24), NULL, NULL, &o), "attention: window -1 is negative");
    o.causal = false;
    o.window = 3;
    REFUSES(tx_attention(F32(2, 5, 24), NULL, NULL, &o), "attention: a window or starts need causal");
    o.window = 0;
    REFUSES(tx_attention_cached(F32(2, 5, 24), F32(2, 4, 8), F32(2, 4, 8), I32(2), NULL, NULL, &o),
            "the cache [2, 4, 8] does not fit [2, 5, 24]");
    REFUSES(tx_attention_cached(F32(2, 5, 24), F32(2, 9, 8), F32(2, 8, 8), I32(2), NULL, NULL, &o),
            "input 2 has shape [2, 8, 8], wanted [2, 9, 8]");
    REFUSES(tx_attention_cached(F32(2, 5, 24), F32(2, 9, 8), F32(2, 9, 8), I32(3), NULL, NULL, &o),
            "input 3 has shape [3], wanted [2]");
}

static void normalization(void **state)
{
    fixture *f = *state;
    REFUSES(tx_layer_norm(F32(2, 7), F32(6), F32(7), 1e-5f), "layer_norm: input 1 has shape [6], wanted [7]");
    REFUSES(tx_rms_norm(F32(2, 7), F32(6), 1e-5f), "rms_norm: input 1 has shape [6], wanted [7]");
    REFUSES(tx_head_norm(F32(2, 22), F32(12), 2, 1, 1e-5f), "2 heads and 1 key-value heads do not divide [2, 22]");
    REFUSES(tx_head_norm(F32(2, 24), F32(6), 2, 1, 1e-5f), "rms_norm: input 1 has shape [6], wanted [12]");
    REFUSES(tx_softmax(I32(2, 7)), "softmax: input 0 is I32, wanted F32");
    REFUSES(tx_cross_entropy(F32(2, 7), I32(3), 7), "cross_entropy: input 1 has shape [3], wanted [2]");
    REFUSES(tx_cross_entropy(F32(2, 7), I32(2), 8), "a vocabulary of 8 does not fit logits [2, 7]");
    REFUSES(tx_cross_entropy(F32(2, 7), I32(2), 0), "a vocabulary of 0 does not fit");
    tx_tensor *statistics[TX_TOKEN_STATISTICS];
    REFUSES((tx_token_statistics(F32(2), I32(2), statistics), NULL), "the losses are not those of cross_entropy");
    REFUSES((tx_token_statistics(tx_cross_entropy(F32(2, 7), I32(2), 7), I32(3), statistics), NULL),
            "token_statistics: input 1 has shape [3], wanted [2]");
}

static void elementwise(void **state)
{
    fixture *f = *state;
    REFUSES(tx_swiglu(F32(2, 7)), "swiglu: input 0 has shape [2, 7], wanted an even last dimension");
    REFUSES(tx_mul(F32(2, 7), F32(7, 2)), "mul: shapes [2, 7] and [7, 2] differ");
    REFUSES(tx_dropout(I32(2, 7), 0.5f, 0), "dropout: input 0 is I32");
    REFUSES(tx_add(F32(2, 7), BF16(2, 7)), "add: input 1 is BF16, wanted F32");
    REFUSES(tx_dropout(F32(2, 7), 1.0f, 0), "dropout: 1 is not in [0, 1)");
    REFUSES(tx_noise(F32(2, 7), NAN, 0), "noise: scale nan must be");
    REFUSES(tx_cross_entropy_smoothed(F32(2, 7), I32(2), 7, 1.0f), "smoothing 1 must be");
    REFUSES(tx_distillation(F32(2, 7), F32(2, 8), I32(2), 7, 1.0f, 0.5f), "input 1 has shape [2, 8], wanted [2, 7]");
    REFUSES(tx_distillation(F32(2, 7), F32(2, 7), I32(2), 7, 0.0f, 0.5f), "temperature 0 must be above 0");
    REFUSES(tx_distillation(F32(2, 7), F32(2, 7), I32(2), 7, 1.0f, 1.5f), "alpha 1.5 from 0 to 1");
    REFUSES(tx_dropout(F32(2, 7), NAN, 0), "dropout: nan is not in [0, 1)");
    REFUSES(tx_rotary(F32(2, 5, 24), 2, 7, &(tx_rope)TX_ROPE(1e4f), NULL, NULL),
            "rotary: 2 heads of size 7 (even) with theta 10000 do not fit");
    REFUSES(tx_rotary(F32(2, 5, 24), 4, 8, &(tx_rope)TX_ROPE(1e4f), NULL, NULL), "rotary: 4 heads of size 8");
    REFUSES(tx_rotary(F32(2, 5, 24), 2, 8, &(tx_rope)TX_ROPE(0.0f), NULL, NULL), "with theta 0 do not fit [2, 5, 24]");
    REFUSES(tx_rotary(F32(2, 5, 24), 2, 8, &(tx_rope)TX_ROPE(1e4f), NULL, F32(1, 4)),
            "rotary: input 2 has shape [1, 4], wanted [2, 4]");
    REFUSES(tx_rotary(F32(2, 5, 24), 2, 8, &(tx_rope)TX_ROPE(1e4f), I32(5), NULL),
            "rotary: input 1 has shape [5], wanted [2]");
}

static void movement(void **state)
{
    fixture *f = *state;
    REFUSES(tx_embedding(F32(2, 5), F32(9, 4), NULL, NULL), "embedding: input 0 is F32, wanted I32");
    REFUSES(tx_embedding(I32(2, 5), F32(9, 4), F32(5, 3), NULL), "positions [5, 3] do not fit tokens [2, 5]");
    REFUSES(tx_embedding(I32(2, 5), F32(9, 4), F32(4, 4), NULL), "positions [4, 4] do not fit tokens [2, 5]");
    REFUSES(tx_gather(F32(9, 4, 2), I32(2)), "gather: input 0 has shape [9, 4, 2], wanted rank 2");
    REFUSES(tx_gather(F32(9, 4), I32(1, 2, 1, 2, 1)), "input 1 has shape [1, 2, 1, 2, 1], wanted a smaller rank");
    REFUSES(tx_embedding_padded(I32(2, 5), F32(9, 4), 9, NULL, NULL), "padding row 9 is not in the table [9, 4]");
    REFUSES(tx_token_positions(F32(2, 5), 1), "token_positions: input 0 is F32, wanted I32");
    REFUSES(tx_token_positions(I32(2, 5), -1), "from -1 on do not fit 32 bits");
    REFUSES(tx_scatter_add(I32(3), F32(2, 4), 9), "scatter_add: indices [3] do not fit [2, 4]");
    REFUSES(tx_scatter_add(I32(2), F32(2, 4), 0), "scatter_add: the result has no rows");
    REFUSES(tx_cast(F32(2, 7), TX_I32), "cast: F32 cannot become I32");
    REFUSES(tx_cast(I32(2, 7), TX_F32), "cast: input 0 is I32, wanted F32, BF16 or F16");
    REFUSES(tx_reshape(F32(2, 7), TX_SHAPE(3, 5)), "reshape: [2, 7] and [3, 5] have different counts");
    REFUSES(tx_fill(f->graph, TX_SHAPE(0), 1.0f), "fill: output 0 has an impossible shape [0]");
    REFUSES(tx_fill(f->graph, (tx_shape){.rank = 9}, 1.0f), "fill: output 0 has an impossible shape [of rank 9]");
    REFUSES(tx_reshape(F32(2, 7), TX_SHAPE(INT64_MAX / 2, 4)), "reshape: output 0 has an impossible shape");
    REFUSES(tx_reshape(F32(2, 7), (tx_shape){.rank = 9}), "reshape: output 0 has an impossible shape [of rank 9]");
}

static void graphs(void **state)
{
    fixture *f = *state;
    tx_graph *other = NULL;
    tx_plan *plan = NULL;
    assert_ok(tx_graph_create(f->model, &other));
    tx_tensor *foreign = tx_input(other, "x", TX_F32, TX_SHAPE(2, 7));
    REFUSES(tx_add(F32(2, 7), foreign), "add: input 1 belongs to another graph");
    begin_graph(f);
    assert_null(tx_param(f->graph, "nobody", NULL));
    assert_refused(tx_plan_create(f->graph, "", &plan), TX_NOT_FOUND, "nobody was not declared");
    begin_graph(f);
    assert_non_null(tx_state(f->graph, "cache", TX_F32, TX_SHAPE(4, 4)));
    REFUSES(tx_state(f->graph, "cache", TX_F32, TX_SHAPE(4, 5)), "state cache was declared differently before");
    REFUSES(tx_state(f->graph, "s", TX_F32, (tx_shape){.rank = -1}), "state s has an impossible shape [of rank -1]");
    REFUSES(tx_input(f->graph, "x", (tx_dtype)77, TX_SHAPE(1)), "input x: there is no data type number 77");
    REFUSES(param(f->graph, "w", TX_SHAPE(INT64_MAX, 2)), "parameter w has an impossible shape");
    tx_tensor *x = tx_input(other, "y", TX_F32, TX_SHAPE(2, 7));
    assert_refused(tx_backward(other, tx_add(x, foreign)), TX_INVALID, "the loss must be one F32 value");
    tx_graph_free(other);
    assert_ok(tx_graph_create(f->model, &other));
    tx_tensor *most = tx_reduce(param(other, "w", TX_SHAPE(2, 7)), TX_REDUCE_MAX, TX_AXIS_ALL);
    assert_ok(tx_backward(other, most));
    assert_refused(tx_plan_create(other, "", &plan), TX_UNSUPPORTED, "the gradient of the maximum is not implemented");
    tx_graph_free(other);
}

/* ---- Engines, models, plans --------------------------------------------------------------------------------- */

static void options(void **state)
{
    fixture *f = *state;
    tx_engine *engine = NULL;
    tx_plan *plan = NULL;
    tx_comm *comm = NULL;
    tx_device_info info;
    tx_tune_options tune = {.size = 3};
    assert_refused(tx_engine_create(&(tx_engine_options){.size = 1}, &engine), TX_INVALID, "engine options: size is 1");
    tx_engine_options e = {.size = sizeof e, .tune = &tune};
    assert_refused(tx_engine_create(&e, &engine), TX_INVALID, "tune options: size is 3");
    e = (tx_engine_options){.size = sizeof e, .device = "abacus"};
    assert_refused(tx_engine_create(&e, &engine), TX_NOT_FOUND, "abacus");
    assert_refused(tx_device_get(-1, &info), TX_NOT_FOUND, "there is no device number -1");
    assert_refused(tx_engine_choose(f->engine, "product = abacus"), TX_UNSUPPORTED,
                   "earlier run used product = abacus");
    assert_ok(tx_comm_open(NULL, NULL, &comm));
    assert_refused(tx_model_parallel(f->model, comm, &(tx_parallel_options){.size = 1}), TX_INVALID, "size field is 1");
    tx_parallel_options p = {.size = sizeof p, .zero_stage = 4};
    assert_refused(tx_model_parallel(f->model, comm, &p), TX_INVALID, "zero_stage 4 must be 0, 1, 2 or 3");
    p.zero_stage = 0;
    p.wire = TX_I32;
    assert_refused(tx_model_parallel(f->model, comm, &p), TX_INVALID, "wire is I32");
    p.wire = TX_F32;
    p.shards = p.replicate = comm;
    assert_refused(tx_model_parallel(f->model, comm, &p), TX_INVALID, "hybrid sharding needs");
    p.shards = p.replicate = NULL;
    param(f->graph, "w", TX_SHAPE(2, 7));
    assert_refused(tx_model_parallel(f->model, comm, &p), TX_INVALID, "the model has parameters");
    tx_comm_close(comm);
    tx_optimizer_options o = {.size = sizeof o, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
    assert_refused(tx_optimizer_create(f->model, &o, &plan), TX_INVALID, "needs a graph with gradients first");
    o.beta2 = NAN;
    assert_refused(tx_optimizer_create(f->model, &o, &plan), TX_INVALID, "betas must be in [0, 1)");
    o.beta2 = 0.999f;
    o.weight_decay = -1.0f;
    assert_refused(tx_optimizer_create(f->model, &o, &plan), TX_INVALID, "weight decay must not be negative");
    o.weight_decay = 0.0f;
    o.kind = TX_OPTIMIZER_KINDS;
    assert_refused(tx_optimizer_create(f->model, &o, &plan), TX_INVALID, "there is no kind");
    o.size = 7;
    assert_refused(tx_optimizer_create(f->model, &o, &plan), TX_INVALID, "optimizer options: size is 7");
}

static void values(void **state)
{
    fixture *f = *state;
    tx_plan *plan = NULL;
    tx_results results;
    tx_profile_entry entry;
    const char *name;
    const tx_param_spec *spec;
    float data[14] = {0};
    int32_t index = 0;
    tx_tensor *x = F32(2, 7), *inner = tx_scale(x, 2.0f);
    tx_tensor *y = tx_output(tx_mul(inner, param(f->graph, "w", TX_SHAPE(2, 7))));
    assert_ok(tx_plan_create(f->graph, "p", &plan));
    assert_refused(tx_plan_write(plan, y, data, sizeof data), TX_INVALID, "plan p: not an input of its graph");
    assert_refused(tx_plan_write(plan, x, data, 4), TX_INVALID, "plan p: 4 bytes given for an input of 56");
    assert_refused(tx_plan_read(plan, inner, data, sizeof data), TX_INVALID, "not an output (see tx_output)");
    assert_refused(tx_plan_read(plan, NULL, data, sizeof data), TX_INVALID, "not an output (see tx_output)");
    assert_refused(tx_plan_profile(plan, true), TX_INVALID, "was not opened for profiling");
    assert_refused(tx_plan_profile_entry(plan, 99, &entry), TX_INVALID, "plan p has no operation 99");
    assert_refused(tx_model_set(f->model, TX_CONTROL_STEP, 0.5), TX_INVALID, "must be a whole number");
    assert_refused(tx_model_set(f->model, TX_CONTROL_STEP, -1.0), TX_INVALID, "must be a whole number");
    assert_refused(tx_model_set(f->model, TX_CONTROL_STEP, NAN), TX_INVALID, "must be a whole number");
    assert_refused(tx_model_set(f->model, TX_CONTROL_COUNT, 1.0), TX_INVALID, "no control number");
    assert_refused(tx_model_results(f->model, &results), TX_INVALID, "no copy of the results is outstanding");
    for (int i = 0; i < TX_RESULTS_PENDING; i++)
        assert_ok(tx_model_fetch(f->model));
    assert_refused(tx_model_fetch(f->model), TX_INVALID, "4 copies of the results are outstanding");
    assert_refused(tx_model_param(f->model, 1, &name, &spec), TX_NOT_FOUND, "no parameter number 1");
    assert_refused(tx_model_find(f->model, "v", &index), TX_NOT_FOUND, "no parameter v");
    assert_refused(tx_model_read(f->model, TX_PARAM_WEIGHT, -1, data), TX_NOT_FOUND, "no parameter number -1");
    assert_refused(tx_model_read(f->model, TX_PARAM_GRADIENT, 0, data), TX_NOT_FOUND, "has no gradients");
    assert_refused(tx_model_read(f->model, TX_PARAM_STATE, 0, data), TX_NOT_FOUND, "no state number 0");
    assert_int_equal(tx_model_states(f->model, 0), 0);
    tx_state_info info;
    assert_refused(tx_model_state(f->model, 0, 0, &info), TX_NOT_FOUND, "no state number 0");
    assert_refused(tx_model_write_range(f->model, TX_PARAM_WEIGHT, 0, 13, 2, data), TX_INVALID,
                   "parameter w has 14 elements, not 2 from 13 on");
    assert_refused(tx_model_read_range(f->model, TX_PARAM_WEIGHT, 0, INT64_MAX, INT64_MAX, data), TX_INVALID,
                   "parameter w has 14 elements");
    assert_null(tx_gelu(y, false));
    tx_graph *late = NULL;
    assert_ok(tx_graph_create(f->model, &late));
    assert_null(param(late, "v", TX_SHAPE(3)));
    tx_plan *never = NULL;
    assert_refused(tx_plan_create(late, "", &never), TX_INVALID, "parameter v is declared too late");
    tx_graph_free(late);
    tx_plan_free(plan);
}

/* ---- Devices ---------------------------------------------------------------------------------------------------- */

/* A device is found by its backend, its id, or a part of its name in any case. */
static void names_of_devices(void **state)
{
    int32_t index = -1, found = -1;
    tx_device_info info;
    char name[sizeof info.name + 16];
    assert_ok(tx_device_find(device, &index));
    assert_ok(tx_device_get(index, &info));
    assert_ok(tx_device_find(info.id, &found));
    assert_int_equal(found, index);
    snprintf(name, sizeof name, "%s:%s", device, info.name);
    for (char *c = name + strlen(device); *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    assert_ok(tx_device_find(name, &found));
    assert_int_equal(found, index);
    name[strlen(device) + 4] = '\0'; /* three letters */
    assert_ok(tx_device_find(name, &found));
    snprintf(name, sizeof name, "%s:abacus", device);
    assert_refused(tx_device_find(name, &found), TX_NOT_FOUND, name);
    snprintf(name, sizeof name, "%s:99", device);
    assert_refused(tx_device_find(name, &found), TX_NOT_FOUND, name);
    snprintf(name, sizeof name, "%s:", device);
    assert_refused(tx_device_find(name, &found), TX_NOT_FOUND, name);
    if (tx_device_find("gpu", &found))
        assert_non_null(strstr(tx_error(), "gpu"));
    else {
        assert_ok(tx_device_get(found, &info));
        assert_int_equal(info.type, TX_DEVICE_GPU);
    }
}

/* ---- Casts ------------------------------------------------------------------------------------------------------ */

/* The gradient of a cast has the type of the cast's input, and is rounded to the cast's type on the way. */
static void gradient_of_cast(void **state)
{
    fixture *f = *state;
    tx_plan *plan = NULL;
    float x[] = {1.0f, -2.0f, 0x1.01p0f, 3.0f}, w[] = {0x1.02p0f, 0x1.01p1f, -0x1.0101p-3f, 0x1.03p0f}, y[4], dx[4];
    const float rounded[] = {1.0f, -2.0f, 1.0f, 3.0f};
    const float slope[] = {0x1.02p0f, 0x1p1f, -0x1.02p-3f, 0x1.04p0f}; /* of bf16's neighbours the even one */
    tx_tensor *weights = F32(4);
    tx_tensor *cast = tx_output(tx_cast(tx_cast(param(f->graph, "x", TX_SHAPE(4)), TX_BF16), TX_F32));
    assert_ok(tx_backward(f->graph, tx_reduce(tx_mul(cast, weights), TX_REDUCE_SUM, TX_AXIS_ALL)));
    assert_ok(tx_plan_create(f->graph, "cast", &plan));
    assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, 0, x));
    assert_ok(tx_plan_write(plan, weights, w, sizeof w));
    assert_ok(tx_plan_run(plan));
    assert_ok(tx_plan_read(plan, cast, y, sizeof y));
    assert_ok(tx_model_read(f->model, TX_PARAM_GRADIENT, 0, dx));
    assert_memory_equal(y, rounded, sizeof y);
    assert_memory_equal(dx, slope, sizeof dx);
    tx_plan_free(plan);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up_all_threads, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest of_all[] = {
        TEST(contractions), TEST(attention), TEST(normalization), TEST(elementwise),
        TEST(movement),     TEST(graphs),    TEST(options),       TEST(values),
    };
    const struct CMUnitTest of_device[] = {TEST(names_of_devices), TEST(gradient_of_cast)};
    int32_t index = 0;
    if (argc < 2)
        return cmocka_run_group_tests(of_all, NULL, NULL);
    device = argv[1];
    if (tx_device_find(device, &index))
        return printf("%s\n", tx_error()), 77;
    return cmocka_run_group_tests(of_device, NULL, NULL);
}
