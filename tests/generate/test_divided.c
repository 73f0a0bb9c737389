/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that is divided among devices of one process, compared with the same model on one device, for every kind of
 * architecture. Compares the scores of a text, prompts of unequal length, and steps with caches whose rows are permuted
 * as by beams. Weights are read back as written. Each device has only the weights and caches of its blocks. On cpus the
 * bits are the same.
 *
 *     test_divided DEVICE: the second of three devices, between cpus */
#include "models/generate/generate.h"
#include "tests/arch/config_text.h"
#include "tests/skip.h"

enum { ROWS = 3, LENGTH = 40, CONTEXT = 44, VOCAB = 131, DEVICES = 3, BLOCKS = 5 };

static const char *device = "cpu";

#define SIZES "\"vocab_size\": 131, "
#define LLAMA                                                                                                       \
    SIZES "\"hidden_size\": 64, \"num_hidden_layers\": 5, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, " \
          "\"intermediate_size\": 48, \"max_position_embeddings\": 64, \"initializer_range\": 0.2, "
static const struct {
    const char *name, *config;
    bool tied, generates;
} models[] = {
    {"gpt2",
     "{\"model_type\": \"gpt2\", " SIZES
     "\"n_layer\": 5, \"n_head\": 4, \"n_embd\": 32, \"n_positions\": 64, \"initializer_range\": 0.2}",
     true, true},
    {"llama", "{\"model_type\": \"llama\", " LLAMA "\"tie_word_embeddings\": false}", false, true},
    {"qwen3", "{\"model_type\": \"qwen3\", " LLAMA "\"head_dim\": 16, \"tie_word_embeddings\": true}", true, true},
    {"mixtral", "{\"model_type\": \"mixtral\", " LLAMA "\"num_local_experts\": 4}", false, true},
    {"qwen2_moe",
     "{\"model_type\": \"qwen2_moe\", " LLAMA
     "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8, "
     "\"shared_expert_intermediate_size\": 16, \"mlp_only_layers\": [1, 2]}",
     false, true},
    {"bert",
     "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], " SIZES
     "\"hidden_size\": 32, \"num_hidden_layers\": 5, \"num_attention_heads\": 4, \"intermediate_size\": 48, "
     "\"max_position_embeddings\": 64}",
     true, false},
};
enum { MODELS = sizeof models / sizeof models[0] };

/* A model and its results. */
typedef struct side {
    tx_engine *engine[DEVICES];
    tx_model *model;
    tx_forward *forward;
    tx_slots *slots; /* NULL for a model that does not generate */
    float scores[LENGTH * VOCAB], steps[4][ROWS * VOCAB];
} side;

static void open_side(side *s, const tx_config *config, bool generates, const int32_t *blocks, int32_t count,
                      tx_dtype dtype)
{
    for (int32_t d = 0; d < count; d++) {
        const tx_engine_options options = {.size = sizeof options, .device = d == 1 ? device : "cpu", .threads = 1};
        assert_ok(tx_engine_create(&options, &s->engine[d]));
    }
    assert_ok(tx_model_create(s->engine[0], &s->model));
    if (blocks)
        assert_ok(tx_model_divide(s->model, s->engine, blocks, count));
    assert_ok(tx_model_store(s->model, dtype));
    assert_ok(tx_forward_create(s->model, config, LENGTH, &s->forward));
    if (generates)
        assert_ok(tx_slots_create(s->model, config,
                                  &(tx_slots_options){ROWS, CONTEXT, 20, 2, 0, false, TX_F32, NULL, false, false},
                                  &s->slots));
    assert_ok(tx_model_init(s->model, 4));
}

static void close_side(side *s)
{
    tx_slots_free(s->slots);
    tx_forward_free(s->forward);
    tx_model_free(s->model);
    for (int32_t d = 0; d < DEVICES; d++)
        tx_engine_free(s->engine[d]);
    free(s);
}

/* Runs prompts of several chunks, and steps in which the second row continues the first. */
static void generate(side *s)
{
    static const int64_t counts[ROWS] = {7, LENGTH, 22};
    static const int32_t sources[ROWS] = {0, 0, 2};
    static const int32_t slot[] = {0, 2}, next[] = {5, 90};
    int32_t ids[ROWS][LENGTH];
    tx_prompt prompts[ROWS];
    for (int r = 0; r < ROWS; r++) {
        for (int t = 0; t < LENGTH; t++)
            ids[r][t] = (t * t * 7 + 31 * r + t) % VOCAB;
        prompts[r] = (tx_prompt){ids[r], counts[r]};
    }
    assert_ok(tx_forward_run(s->forward, ids[0], s->scores));
    if (!s->slots)
        return;
    assert_ok(tx_slots_start(s->slots, prompts, ROWS));
    for (int step = 0; step < 4; step++) {
        for (int r = 0; r < ROWS; r++)
            memcpy(s->steps[step] + r * VOCAB, tx_slots_logits(s->slots, r), VOCAB * sizeof(float));
        assert_ok(tx_slots_step(s->slots, slot, next, 2, step == 1 ? sources : NULL));
    }
}

/* The largest difference, over 1 and the greater magnitude. */
static double difference(const float *a, const float *b, size_t count)
{
    double worst = 0.0;
    for (size_t i = 0; i < count; i++) {
        const double error = fabs((double)a[i] - (double)b[i]) / (1.0 + fabs((double)b[i]));
        worst = error <= worst ? worst : error;
    }
    return worst;
}

static void compare(const char *name, const side *one, const side *many, double tolerance)
{
    const double scores = difference(many->scores, one->scores, sizeof one->scores / sizeof one->scores[0]),
                 steps = difference(many->steps[0], one->steps[0], sizeof one->steps / sizeof(float));
    print_message("%s: scores differ by %.2g, those of steps by %.2g\n", name, scores, steps);
    assert_true(difference(one->scores, one->scores + VOCAB, VOCAB) > 0.01); /* it says something */
    if (!(scores <= tolerance && steps <= tolerance))
        fail_msg("%s: more than %g", name, tolerance);
}

static int64_t bytes_on(const side *s, int32_t d, tx_memory_kind kind)
{
    tx_memory memory;
    assert_ok(tx_model_memory_on(s->model, d, &memory));
    return memory.bytes[kind];
}

/* The devices' weights are those of one device plus replicas of tied weights; caches are divided. */
static void check_memory(const side *one, const side *many, bool tied)
{
    int64_t weights = 0, caches = 0;
    for (int32_t d = 0; d < DEVICES; d++) {
        tx_memory counted;
        assert_ok(tx_engine_memory(many->engine[d], &counted));
        assert_int_equal(counted.bytes[TX_MEMORY_WEIGHTS], bytes_on(many, d, TX_MEMORY_WEIGHTS));
        assert_int_equal(counted.bytes[TX_MEMORY_CACHE], bytes_on(many, d, TX_MEMORY_CACHE));
        weights += counted.bytes[TX_MEMORY_WEIGHTS];
        caches += counted.bytes[TX_MEMORY_CACHE];
    }
    const tx_param_spec *spec;
    const char *name;
    assert_ok(tx_model_param(many->model, 0, &name, &spec));
    const int64_t table = tx_shape_count(&spec->shape) * (int64_t)sizeof(float);
    assert_int_equal(weights, bytes_on(one, 0, TX_MEMORY_WEIGHTS) + (tied ? table : 0));
    assert_int_equal(caches, bytes_on(one, 0, TX_MEMORY_CACHE));
}

static void check_values(const side *one, const side *many)
{
    for (int32_t i = 0; i < tx_model_param_count(one->model); i++) {
        const char *name;
        const tx_param_spec *spec;
        assert_ok(tx_model_param(one->model, i, &name, &spec));
        const size_t bytes = (size_t)tx_shape_count(&spec->logical) * sizeof(float);
        float *a = malloc(bytes), *b = malloc(bytes);
        assert_non_null(a);
        assert_non_null(b);
        assert_ok(tx_model_read(one->model, TX_PARAM_WEIGHT, i, a));
        assert_ok(tx_model_read(many->model, TX_PARAM_WEIGHT, i, b));
        assert_memory_equal(a, b, bytes);
        free(a);
        free(b);
    }
}

static void beside_one_device(tx_dtype dtype, double tolerance)
{
    static const int32_t blocks[DEVICES] = {1, 3, 1};
    for (size_t m = 0; m < MODELS; m++) {
        tx_config *config;
        side *one = calloc(1, sizeof *one), *many = calloc(1, sizeof *many);
        assert_non_null(one);
        assert_non_null(many);
        assert_ok(read_text(models[m].config, &config));
        open_side(one, config, models[m].generates, NULL, 1, dtype);
        open_side(many, config, models[m].generates, blocks, DEVICES, dtype);
        generate(one);
        generate(many);
        compare(models[m].name, one, many, tolerance);
        if (dtype == TX_F32)
            check_memory(one, many, models[m].tied);
        check_values(one, many);
        close_side(one);
        close_side(many);
        tx_config_free(config);
    }
}

static void same_scores(void **state)
{
    beside_one_device(TX_F32, strcmp(device, "cpu") == 0 ? 0.0 : 1e-4);
}

/* OpenCL keeps other sums in 16 bits than the cpu. */
static void same_scores_of_16_bits(void **state)
{
    beside_one_device(TX_BF16, strcmp(device, "cpu") == 0 ? 0.0 : 0.2);
}

static void misuse_is_refused(void **state)
{
    static const int32_t none[DEVICES] = {5, 0, 0}, few[DEVICES] = {5, 1, 1};
    tx_config *config;
    side *s = calloc(1, sizeof *s);
    tx_graph *graph;
    tx_plan *plan;
    tx_memory memory;
    assert_non_null(s);
    assert_ok(read_text(models[0].config, &config));
    const tx_engine_options options = {.size = sizeof options, .threads = 1};
    for (int d = 0; d < DEVICES; d++)
        assert_ok(tx_engine_create(&options, &s->engine[d]));
    assert_ok(tx_model_create(s->engine[0], &s->model));
    tx_engine *const turned[DEVICES] = {s->engine[1], s->engine[0], s->engine[2]};
    assert_refused(tx_model_divide(s->model, turned, few, DEVICES), TX_INVALID, "the first of 3 devices");
    assert_refused(tx_model_divide(s->model, s->engine, none, DEVICES), TX_INVALID, "device 2 of 3 has 0 blocks");
    assert_ok(tx_model_divide(s->model, s->engine, few, DEVICES));
    assert_refused(tx_model_divide(s->model, s->engine, few, DEVICES), TX_INVALID, "divided already");
    assert_refused(tx_model_offload_weights(s->model), TX_UNSUPPORTED, "divided among devices");
    assert_refused(tx_model_memory_on(s->model, DEVICES, &memory), TX_NOT_FOUND, "no device number 3");
    assert_refused(tx_forward_create(s->model, config, LENGTH, &s->forward), TX_UNSUPPORTED, "a stage has no block");
    assert_ok(tx_graph_create(s->model, &graph));
    assert_non_null(tx_input(graph, "input_ids", TX_I32, TX_SHAPE(1, 8)));
    tx_tensor *logits = tx_arch_logits(graph, config, NULL);
    assert_refused(tx_backward(graph, tx_reduce(logits, TX_REDUCE_SUM, TX_AXIS_ALL)), TX_UNSUPPORTED, "not trained");
    assert_refused(tx_plan_create(graph, "train", &plan), TX_UNSUPPORTED, "not trained");
    tx_graph_free(graph);
    close_side(s);
    tx_config_free(config);
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_scores),
        cmocka_unit_test(same_scores_of_16_bits),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
