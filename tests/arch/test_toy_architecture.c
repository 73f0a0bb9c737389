/* SPDX-License-Identifier: Apache-2.0
 *
 * An architecture of an application: a row of the table and its functions, nothing else. It is trained, saved, found by
 * its config.json, loaded, and generates.
 *
 * The model predicts the next token only from the current one: logits = W2 gelu(W1 e + b1) + b2. Here e is
 * the token's embedding. */

#include "models/arch/gpt2.h"
#include "models/generate/generate.h"
#include "models/task/causal_lm.h"
#include "models/train/trainer.h"
#include "tests/scratch.h"

enum { VOCAB = 16, BLOCK = 12, BATCH = 4, STEPS = 60, NEW = 8 };

/* ---- The architecture ---------------------------------------------------------------------------------- */

typedef struct toy_config {
    tx_config base;
    double initializer_range;
} toy_config;

static const tx_architecture toy;
static const toy_config defaults = {{&toy, .vocab_size = VOCAB, .positions = 64, .width = 32, .layers = 1, .heads = 1,
                                     .bos_token_id = -1, .eos_token_id = -1},
                                    0.3};

static const tx_config_key keys[] = {
    {"vocab_size", offsetof(toy_config, base.vocab_size), TX_KEY_INT, .min = 1, .max = 1 << 20},
    {"context", offsetof(toy_config, base.positions), TX_KEY_INT, .min = 1, .max = 1 << 20},
    {"width", offsetof(toy_config, base.width), TX_KEY_INT, .min = 1, .max = 1 << 16},
    {"initializer_range", offsetof(toy_config, initializer_range), TX_KEY_NUMBER, .max = 10},
    {.name = NULL},
};
static const tx_fixed_key fixed[] = {{.name = NULL}};
static const tx_preset presets[] = {{"toy", ""}, {.name = NULL}};

static tx_status check(const tx_config *config)
{
    return TX_OK;
}

static const char *const names[] = {"table", "inner.weight", "inner.bias", "outer.weight", "outer.bias"};

static int32_t params(const tx_config *config)
{
    return sizeof names / sizeof names[0];
}

static tx_status param(const tx_config *c, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    const int64_t padded = tx_arch_padded_vocab(c), inner = 4 * c->width;
    const tx_shape shape[] = {TX_SHAPE(padded, c->width), TX_SHAPE(c->width, inner), TX_SHAPE(inner),
                              TX_SHAPE(padded, inner), TX_SHAPE(padded)};
    snprintf(name, TX_ARCH_NAME, "%s", names[index]);
    *spec = (tx_param_spec){.shape = shape[index], .decay = shape[index].rank > 1};
    spec->logical = spec->shape;
    if (spec->shape.dim[0] == padded)
        spec->logical.dim[0] = c->vocab_size;
    if (spec->shape.rank > 1) {
        spec->init = TX_INIT_NORMAL;
        spec->scale = (float)((const toy_config *)c)->initializer_range;
    }
    return TX_OK;
}

static tx_tensor *declare_param(tx_graph *graph, const tx_config *config, int32_t index)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    return param(config, index, name, &spec) ? NULL : tx_param(graph, name, &spec);
}

static tx_tensor *logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    tx_tensor *w[5], *rows = tx_find_input(graph, "rows");
    (void)options;
    for (int32_t i = 0; i < 5; i++)
        w[i] = declare_param(graph, config, i);
    tx_tensor *x = tx_embedding(tx_find_input(graph, "input_ids"), w[0], NULL, NULL);
    if (rows && x)
        x = tx_gather(tx_reshape(x, TX_SHAPE(tx_shape_rows(tx_tensor_shape(x)), config->width)), rows);
    return tx_linear(tx_gelu(tx_linear(x, w[1], w[2], false), true), w[3], w[4], true);
}

static void same_name(const tx_config *config, const char *tensor, char name[TX_WEIGHTS_NAME])
{
    snprintf(name, TX_WEIGHTS_NAME, "%s", tensor);
}

static const tx_architecture toy = {.type = "toy",
                                    .class_name = "ToyForCausalLM",
                                    .config_bytes = sizeof(toy_config),
                                    .defaults = &defaults.base,
                                    .keys = keys,
                                    .fixed = fixed,
                                    .presets = presets,
                                    .check = check,
                                    .params = params,
                                    .param = param,
                                    .logits = logits,
                                    .rename = same_name};

const tx_architecture *const tx_architectures[] = {&tx_gpt2, &toy, NULL};

/* ---- The test ------------------------------------------------------------------------------------------- */

/* Returns the token after this one in the training text. */
static int32_t next(int32_t token)
{
    return (5 * token + 3) % VOCAB;
}

static double train(tx_model *model, const tx_config *config)
{
    const tx_trainer_options options = {
        .size = sizeof options,
        .task = &tx_causal_lm,
        .batch = BATCH,
        .block = BLOCK,
        .accumulation = 1,
        .optimizer = {sizeof(tx_optimizer_options), TX_ADAMW, 0.9f, 0.999f, 1e-8f, .weight_decay = 0.0f}};
    tx_trainer *trainer;
    tx_results results;
    int32_t tokens[BATCH][BLOCK], labels[BATCH][BLOCK];
    const tx_batch batch = {.rows = BATCH, .field = {tokens, labels}};
    assert_ok(tx_trainer_create(model, config, &options, &trainer));
    assert_ok(tx_model_init(model, 3));
    for (int step = 0; step < STEPS; step++) {
        for (int b = 0; b < BATCH; b++)
            for (int32_t t = 0, token = (7 * step + 3 * b) % VOCAB; t < BLOCK; t++, token = next(token)) {
                tokens[b][t] = token;
                labels[b][t] = next(token);
            }
        assert_ok(tx_trainer_step(trainer, &batch, BATCH * BLOCK, 0.01));
        assert_ok(tx_trainer_results(trainer, &results));
    }
    tx_trainer_free(trainer);
    return (double)results.value[TX_RESULT_LOSS];
}

typedef struct written {
    int32_t id[NEW];
    int count;
} written;

static bool emit(void *context, int64_t row, int32_t id)
{
    written *w = context;
    w->id[w->count++] = id;
    return true;
}

static void generate(tx_model *model, const tx_config *config)
{
    const tx_generator_options options = {.size = sizeof options, .batch = 1, .beams = 1, .prompt = 2, .context = 32};
    const int32_t prompt[] = {1, 8};
    const tx_prompt prompts = {.ids = prompt, .count = 2};
    tx_generator *generator;
    written w = {.count = 0};
    tx_generation how = tx_generation_defaults(-1); /* greedy */
    how.max_new_tokens = NEW;
    assert_ok(tx_generator_create(model, config, &options, &generator));
    assert_ok(tx_generator_run(generator, &prompts, 1, 0, &how, &(tx_sink){.emit = emit, .context = &w}));
    assert_int_equal(w.count, NEW);
    for (int i = 0; i < NEW; i++)
        assert_int_equal(w.id[i], next(i ? w.id[i - 1] : prompt[1]));
    tx_generator_free(generator);
}

static void test_toy(void **state)
{
    char *folder = make_scratch();
    char *path = tx_path_join(folder, "config.json");
    const tx_engine_options on = {.size = sizeof on, .threads = 1};
    tx_engine *engine;
    tx_model *model;
    tx_config *config = NULL, *found = NULL;
    assert_ok(tx_engine_create(&on, &engine));
    assert_ok(tx_model_create(engine, &model));
    assert_ok(tx_config_preset("toy", &config));
    assert_true(train(model, config) < 0.1);
    assert_ok(tx_arch_save(model, config, folder));
    tx_model_free(model);
    assert_ok(tx_config_read(path, &found));
    assert_ptr_equal(found->architecture, &toy);
    assert_int_equal(found->width, 32);
    assert_ok(tx_model_create(engine, &model));
    tx_forward *forward;
    assert_ok(tx_forward_create(model, found, 4, &forward)); /* declares the parameters */
    assert_ok(tx_arch_load(model, found, folder, NULL));
    assert_ok(tx_arch_check(found, folder));
    generate(model, found);
    tx_forward_free(forward);
    tx_model_free(model);
    tx_engine_free(engine);
    tx_config_free(config);
    tx_config_free(found);
    free(path);
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_toy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
