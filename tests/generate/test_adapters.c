/* SPDX-License-Identifier: Apache-2.0
 * Several adapters in one batch, by the public header, with a small random Llama and GPT-2. Requests with eight
 * adapters of different ranks and modules, and without one, share a batch. They get the tokens and log-probabilities of
 * models into which each adapter was merged; those without one get the bits of a batch without adapters. Also adapters
 * that are loaded in the place of others, caches of equal prompts, memory, and refusals. tests/serve/adapters_client.py
 * compares with peft.
 *
 *     test_adapters DEVICE */
#include "models/generate/lm.h"
#include "models/lora/bank.h"
#include "models/tx_batch.h"
#include "models/tx_convert.h"
#include "tests/scratch.h"
#include "tests/skip.h"

#include <math.h>

enum { VOCAB = 257, ADAPTERS = 8, REQUESTS = 3 * (ADAPTERS + 1), NEW = 10, PROMPT = 40 };
#define SIZES                                                                                            \
    "\"vocab_size\": 257, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"bos_token_id\": 256, " \
    "\"eos_token_id\": 256, \"max_position_embeddings\": 96, \"initializer_range\": 0.25, "

/* A model and its adapters, in folders. */
typedef struct models {
    const char *config;
    const char *targets[ADAPTERS];
    const char *base;
    char *folder; /* with base, and 0, 1, .. */
} models;

static models llama = {
    "{\"model_type\": \"llama\", " SIZES
    "\"hidden_size\": 24, \"intermediate_size\": 40, \"num_key_value_heads\": 2, \"tie_word_embeddings\": true}",
    {"q_proj", "v_proj,o_proj", "all-linear", "gate_proj,down_proj", "q_proj,k_proj,v_proj,o_proj", "up_proj", "k_proj",
     ".*layers\\.1\\..*(q|gate)_proj"},
    "base",
    NULL};
#define GPT2(width)                                                     \
    "{\"model_type\": \"gpt2\", " SIZES "\"hidden_size\": " #width "}", \
        {"c_attn", "c_fc", "all-linear", "c_proj", "c_attn,c_fc", "mlp.c_proj", "attn.c_proj", "c_fc"}, "base", NULL
static models gpt2 = {GPT2(24)}, blocks = {GPT2(64)};
static const int64_t ranks[ADAPTERS] = {1, 2, 3, 4, 4, 8, 5, 16};
static const char *device = "cpu", *dtype;

static char *path_of(const models *m, const char *name)
{
    char *path = tx_path_join(m->folder, name);
    assert_non_null(path);
    return path;
}

static char *path_of_adapter(const models *m, int64_t i)
{
    char name[16];
    snprintf(name, sizeof name, "%d", (int)i);
    return path_of(m, name);
}

static tx_config *read_config(const char *text)
{
    tx_json *json;
    tx_config *config;
    assert_ok(tx_json_parse_line(text, strlen(text), "config", &json));
    assert_ok(tx_config_of_json(json, &config));
    return config;
}

/* Creates a model with random weights; B of an adapter, too. */
static void make(tx_config *config, uint64_t seed, tx_engine **engine, tx_model **model)
{
    const tx_engine_options options = {.size = sizeof options};
    tx_graph *graph;
    const char *name;
    const tx_param_spec *spec;
    assert_ok(tx_engine_create(&options, engine));
    assert_ok(tx_model_create(*engine, model));
    assert_ok(tx_graph_create(*model, &graph));
    assert_non_null(tx_input(graph, "input_ids", TX_I32, TX_SHAPE(1, 1)));
    assert_non_null(tx_arch_logits(graph, config, NULL));
    assert_ok(tx_model_init(*model, seed));
    for (int32_t p = 0; p < tx_model_param_count(*model); p++) {
        assert_ok(tx_model_param(*model, p, &name, &spec));
        const int64_t count = tx_shape_count(&spec->logical);
        float *values = strstr(name, ".lora_B") ? malloc((size_t)count * sizeof *values) : NULL;
        for (int64_t i = 0; i < count && values; i++)
            values[i] = (float)(next_random(&seed) % 2001) / 2000.0f - 0.5f;
        if (values)
            assert_ok(tx_model_write(*model, TX_PARAM_WEIGHT, p, values));
        free(values);
    }
    tx_graph_free(graph);
}

static void save_adapter(const models *m, const char *text, const tx_lora *lora, uint64_t seed, const char *name)
{
    char *folder = path_of(m, name);
    tx_config *config = read_config(text);
    tx_engine *engine;
    tx_model *model;
    assert_ok(tx_lora_copy(lora, &config->lora));
    make(config, seed, &engine, &model);
    assert_ok(tx_lora_save(model, config, folder));
    tx_model_free(model);
    tx_engine_free(engine);
    tx_config_free(config);
    free(folder);
}

static void set_up(models *m)
{
    tx_engine *engine;
    tx_model *model;
    m->folder = make_scratch();
    char *base = path_of(m, "base"), name[16];
    tx_config *config = read_config(m->config);
    make(config, 3, &engine, &model);
    assert_ok(tx_arch_save(model, config, base));
    tx_model_free(model);
    tx_engine_free(engine);
    tx_config_free(config);
    for (int i = 0; i < ADAPTERS; i++) {
        tx_lora lora = {.rank = ranks[i],
                        .alpha = 2 + 3 * i,
                        .rank_stabilised = i % 3 == 1,
                        .targets = (char *)(uintptr_t)m->targets[i],
                        .base = base};
        const char *rules = "{\"rank_pattern\": {\"q_proj\": 2, \"c_attn\": 1}, \"alpha_pattern\": {\"v_proj\": 3}}";
        if (i == 4)
            assert_ok(tx_json_parse_line(rules, strlen(rules), "rules", &lora.rules));
        snprintf(name, sizeof name, "%d", i);
        save_adapter(m, m->config, &lora, 10 + (uint64_t)i, name);
        tx_json_free(lora.rules);
    }
    free(base);
}

static tx_lm *open_lm(const models *m, int64_t merged)
{
    char *base = path_of(m, m->base), *adapter = merged < 0 ? NULL : path_of_adapter(m, merged);
    const tx_lm_options options = {
        .size = sizeof options, .model = base, .device = device, .dtype = dtype, .adapter = adapter};
    tx_lm *lm = NULL;
    assert_ok(tx_lm_open(&options, &lm));
    free(base);
    free(adapter);
    return lm;
}

static tx_adapter *read_adapter(const models *m, const tx_lm *lm, int64_t i)
{
    char *folder = path_of_adapter(m, i);
    tx_adapter *adapter = NULL;
    assert_ok(tx_adapter_read(lm, folder, &adapter));
    free(folder);
    return adapter;
}

/* Opens the model with all adapters, whose numbers it writes from number[1] on. */
static tx_lm *open_all(const models *m, int64_t slots, tx_batch **batch, int64_t number[ADAPTERS + 1])
{
    tx_lm *lm = open_lm(m, -1);
    tx_adapter *adapter[ADAPTERS];
    for (int i = 0; i < ADAPTERS; i++)
        adapter[i] = read_adapter(m, lm, i);
    const tx_adapters_options options = {.size = sizeof options, .adapters = adapter, .count = ADAPTERS};
    assert_ok(tx_lm_reserve_adapters(lm, &options));
    assert_ok(tx_batch_create(lm, slots, 0, batch));
    number[0] = 0;
    for (int i = 0; i < ADAPTERS; i++) {
        assert_ok(tx_batch_load(*batch, adapter[i], &number[i + 1]));
        tx_adapter_free(adapter[i]);
    }
    return lm;
}

/* The answer to a request. */
typedef struct answer {
    int32_t ids[NEW];
    double logprob[PROMPT + NEW];
    int64_t count, reported;
    bool failed;
} answer;

static bool token(void *context, const tx_batch_token *t)
{
    answer *a = context;
    a->logprob[a->reported++] = t->prompt && isnan(t->logprob) ? 0.0 : t->logprob;
    if (!t->prompt)
        a->ids[a->count++] = t->id;
    return true;
}

static void end(void *context, tx_batch_end how)
{
    ((answer *)context)->failed = how == TX_BATCH_FAILED;
}

/* Adds a request with prompt `p`. Some prompts are reported, too, and computed by other plans. */
static void add(tx_batch *batch, const tx_lm *lm, int64_t p, int64_t adapter, answer *to)
{
    int32_t ids[PROMPT];
    tx_generation how = *tx_lm_generation(lm);
    const int64_t count = 1 + p * 13 % PROMPT;
    how.max_new_tokens = NEW;
    how.eos_count = 0;
    for (int64_t t = 0; t < count; t++)
        ids[t] = (int32_t)((p * 7 + t * t + 3 * t) % (VOCAB - 1));
    const tx_batch_request r = {.size = sizeof r,
                                .ids = ids,
                                .count = count,
                                .how = &how,
                                .logprobs = true,
                                .echo = p % 4 == 1,
                                .adapter = adapter,
                                .context = to,
                                .token = token,
                                .end = end};
    *to = (answer){.count = 0};
    assert_ok(tx_batch_add(batch, &r));
}

static void finish(tx_batch *batch)
{
    for (bool running = true; running;)
        assert_ok(tx_batch_step(batch, &running));
}

/* Answers request i with adapter number[i % (ADAPTERS + 1)], or only those of adapter `only`, which is merged. */
static void answer_all(tx_batch *batch, const tx_lm *lm, const int64_t *number, int64_t only, answer *answers)
{
    bool running = true;
    for (int64_t i = 0; running || i < REQUESTS;) {
        for (; i < REQUESTS && tx_batch_free_slots(batch) > 0; i++)
            if (only < 0 || i % (ADAPTERS + 1) == only)
                add(batch, lm, i / (ADAPTERS + 1), only < 0 ? number[i % (ADAPTERS + 1)] : 0, &answers[i]);
        assert_ok(tx_batch_step(batch, &running));
    }
}

static double distance(const answer *a, const answer *b, bool of_prompt)
{
    double most = 0.0;
    assert_false(a->failed || b->failed);
    assert_int_equal(a->reported, b->reported);
    for (int64_t t = 0; t < a->reported - (of_prompt ? a->count : 0); t++)
        most = fmax(most, fabs(a->logprob[t] - b->logprob[t]));
    return most;
}

static void assert_same(const answer *a, const answer *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
    assert_memory_equal(a->logprob, b->logprob, sizeof a->logprob);
}

/* Compares answers of a full batch with those in an empty one, and of 0 (the base) to `last` adapters with those of the
 * merged models. */
static void compare(const models *m, int64_t last)
{
    static answer crowd[REQUESTS], alone[REQUESTS], one;
    int64_t number[ADAPTERS + 1];
    tx_batch *batch, *merged;
    tx_lm *lm = open_all(m, 7, &batch, number);
    const bool rounds = m == &blocks; /* so that tokens may differ */
    answer_all(batch, lm, number, -1, crowd);
    for (int64_t i = 0; i < REQUESTS; i++) { /* the same batch, but nothing else in it */
        add(batch, lm, i / (ADAPTERS + 1), number[i % (ADAPTERS + 1)], &one);
        finish(batch);
        assert_same(&crowd[i], &one);
    }
    tx_batch_free(batch);
    tx_lm_free(lm);
    for (int64_t only = 0; only <= last; only++) {
        double most = 0.0, changed = 0.0;
        lm = open_lm(m, only - 1);
        assert_ok(tx_batch_create(lm, 7, 0, &merged));
        answer_all(merged, lm, number, only, alone);
        for (int64_t i = only; i < REQUESTS; i += ADAPTERS + 1) {
            assert_true(rounds || memcmp(crowd[i].ids, alone[i].ids, sizeof crowd[i].ids) == 0);
            most = fmax(most, distance(&crowd[i], &alone[i], rounds));
            changed = fmax(changed, distance(&crowd[i], &crowd[i - only], rounds));
            if (!only)
                assert_same(&crowd[i], &alone[i]);
        }
        print_message("adapter %d: %.1e from the merged model, %.2g from the base\n", (int)only, most, changed);
        assert_true(most <= (rounds ? 0.1 * changed : 2e-5) && (!only || changed > 1e-2));
        tx_batch_free(merged);
        tx_lm_free(lm);
    }
}

static void test_llama(void **state)
{
    (void)state;
    compare(&llama, ADAPTERS);
}

static void test_gpt2(void **state)
{
    (void)state;
    compare(&gpt2, ADAPTERS);
}

/* A GPT-2 in blocks of a GGUF file, which has the transposes of its matrices. Merged models are fp32. */
static void test_blocks(void **state)
{
    (void)state;
    const char *from = TX_PATH(blocks.folder, "base"), *to = TX_PATH(blocks.folder, "base.gguf");
    tx_tokenizer *tokenizer;
    assert_ok(tx_tokenizer_bytes(&tokenizer));
    assert_ok(tx_tokenizer_save(tokenizer, from, 96));
    tx_tokenizer_free(tokenizer);
    assert_ok(tx_convert(from, to, TX_CONVERT_Q8_0, NULL, NULL));
    blocks.base = "base.gguf";
    compare(&blocks, ADAPTERS);
}

/* Rounding to 16 bits hides the differences from merged models, but not those from a batch without adapters. */
static void test_half(void **state)
{
    (void)state;
    dtype = "bfloat16";
    compare(&llama, 0);
    compare(&gpt2, 0);
    dtype = "float16";
    if (strcmp(device, "cpu") == 0) /* elsewhere it mostly compiles kernels */
        compare(&llama, 0);
    dtype = NULL;
}

/* Prompts that are equal have caches of their own for each adapter, also if one is loaded in the place of another. */
static void test_caches(void **state)
{
    answer want[ADAPTERS + 1], got[6];
    int64_t number[ADAPTERS + 1];
    tx_batch *batch;
    (void)state;
    tx_lm *lm = open_all(&llama, 3, &batch, number);
    for (int i = 0; i <= ADAPTERS; i++) {
        add(batch, lm, 2, number[i], &want[i]);
        finish(batch);
        assert_true(i == 0 || distance(&want[i], &want[i - 1], false) > 1e-2);
    }
    for (int i = 0; i < 3; i++)
        add(batch, lm, 2, number[i], &got[i]);
    finish(batch);
    for (int i = 2; i >= 0; i--)
        add(batch, lm, 2, number[i], &got[3 + i]);
    finish(batch);
    for (int i = 0; i < 6; i++)
        assert_same(&got[i], &want[i % 3]);
    assert_ok(tx_batch_unload(batch, number[1]));
    tx_adapter *adapter = read_adapter(&llama, lm, 2);
    int64_t again = 0;
    assert_ok(tx_batch_load(batch, adapter, &again));
    assert_true(again > number[ADAPTERS]);
    for (int i = 0; i < 3; i++)
        add(batch, lm, 2, again, &got[i]);
    finish(batch);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(got[i].ids, want[3].ids, sizeof want[3].ids);
        assert_true(distance(&got[i], &want[3], false) <= 2e-5); /* its place is another */
    }
    tx_adapter_free(adapter);
    tx_batch_free(batch);
    tx_lm_free(lm);
}

static int64_t counted(const tx_lm *lm)
{
    tx_memory memory;
    assert_ok(tx_engine_memory(lm->engine[0], &memory));
    return tx_memory_total(&memory);
}

/* The places are part of the planned memory, and loading takes no more. Answers of others go on. */
static void test_memory(void **state)
{
    answer want, got;
    int64_t number[ADAPTERS + 1], other = 0;
    tx_batch *batch;
    tx_lm_usage usage;
    (void)state;
    tx_lm *lm = open_all(&llama, 3, &batch, number);
    tx_adapter *adapter = read_adapter(&llama, lm, 4);
    add(batch, lm, 3, number[3], &want);
    finish(batch);
    assert_ok(tx_lm_measure(lm, &usage));
    const int64_t before = counted(lm);
    assert_int_equal(usage.memory, before);
    assert_ok(tx_batch_unload(batch, number[1]));
    add(batch, lm, 3, number[3], &got);
    bool running = true;
    for (int i = 0; i < 200; i++) {
        assert_ok(tx_batch_load(batch, adapter, &other));
        assert_ok(tx_batch_step(batch, &running));
        assert_ok(tx_batch_unload(batch, other));
    }
    assert_false(running);
    assert_same(&got, &want);
    assert_int_equal(counted(lm), before);
    tx_adapter_free(adapter);
    tx_batch_free(batch);
    tx_lm_free(lm);
}

/* Saves an adapter of one module, and reads it for `lm`. */
static tx_status read_other(const tx_lm *lm, const char *text, tx_lora lora)
{
    char *folder = path_of(&llama, "other");
    tx_adapter *adapter = NULL;
    lora.targets = lora.targets ? lora.targets : (char[]){"q_proj"};
    lora.rank = lora.rank ? lora.rank : 2;
    lora.alpha = 1;
    save_adapter(&llama, text, &lora, 5, "other");
    const tx_status status = tx_adapter_read(lm, folder, &adapter);
    tx_adapter_free(adapter);
    free(folder);
    return status;
}

static void test_refusals(void **state)
{
    static const char larger[] = "{\"model_type\": \"llama\", " SIZES "\"hidden_size\": 32, "
                                 "\"intermediate_size\": 40, \"num_key_value_heads\": 2}";
    tx_lm *lm = open_lm(&llama, -1), *merged = open_lm(&llama, 1);
    tx_adapter *one = read_adapter(&llama, lm, 0), *wide = read_adapter(&llama, lm, 7),
               *more = read_adapter(&llama, lm, 1), *none = NULL;
    tx_adapters_options o = {.size = sizeof o, .adapters = &one, .count = 1, .rank = 4};
    tx_batch *batch;
    answer a;
    int64_t number = 0, second = 0;
    (void)state;
    assert_refused(tx_adapter_read(lm, "/nowhere", &none), TX_NOT_FOUND, "holds no adapter");
    assert_refused(read_other(lm, llama.config, (tx_lora){.dora = true}), TX_UNSUPPORTED, "use_dora");
    assert_refused(read_other(lm, llama.config, (tx_lora){.saved = (char[]){"norm"}}), TX_UNSUPPORTED,
                   "modules_to_save");
    assert_refused(read_other(lm, llama.config, (tx_lora){.init = (char[]){"pissa"}}), TX_UNSUPPORTED,
                   "init_lora_weights");
    assert_refused(read_other(lm, larger, (tx_lora){.rank = 2}), TX_FORMAT, "shape");
    assert_refused(tx_adapter_read(merged, llama.folder, &none), TX_UNSUPPORTED, "merged adapter");
    assert_refused(tx_lm_reserve_adapters(lm, &(tx_adapters_options){.size = sizeof o}), TX_INVALID, "0 places");
    o.modules = "z_proj";
    assert_refused(tx_lm_reserve_adapters(lm, &o), TX_INVALID, "z_proj");
    o.modules = NULL;
    assert_ok(tx_lm_reserve_adapters(lm, &o));
    assert_ok(tx_batch_create(lm, 2, 0, &batch));
    assert_refused(tx_lm_reserve_adapters(lm, &o), TX_INVALID, "in use");
    assert_refused(tx_batch_load(batch, wide, &number), TX_INVALID, "max_lora_rank");
    assert_refused(tx_batch_load(batch, more, &number), TX_INVALID, "v_proj");
    assert_ok(tx_batch_load(batch, one, &number));
    assert_refused(tx_batch_load(batch, one, &second), TX_INVALID, "all 1 places");
    add(batch, lm, 1, number, &a);
    assert_refused(tx_batch_unload(batch, number), TX_INVALID, "a request uses it");
    finish(batch);
    assert_ok(tx_batch_unload(batch, number));
    assert_refused(tx_batch_unload(batch, number), TX_NOT_FOUND, "not loaded");
    const tx_batch_request r = {.size = sizeof r,
                                .ids = a.ids,
                                .count = 1,
                                .how = tx_lm_generation(lm),
                                .adapter = number,
                                .context = &a,
                                .token = token,
                                .end = end};
    assert_refused(tx_batch_add(batch, &r), TX_NOT_FOUND, "not loaded");
    tx_adapter_free(one);
    tx_adapter_free(wide);
    tx_adapter_free(more);
    tx_batch_free(batch);
    tx_lm_free(merged);
    tx_lm_free(lm);
}

static int open_models(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        set_up((models *[]){&llama, &gpt2, &blocks}[i]);
    return 0;
}

static int close_models(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        remove_scratch((models *[]){&llama, &gpt2, &blocks}[i]->folder);
    return 0;
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_llama),  cmocka_unit_test(test_gpt2),
                                       cmocka_unit_test(test_half),   cmocka_unit_test(test_caches),
                                       cmocka_unit_test(test_memory), cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_blocks)};
    return cmocka_run_group_tests(tests, open_models, close_models);
}
