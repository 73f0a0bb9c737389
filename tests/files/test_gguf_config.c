/* SPDX-License-Identifier: Apache-2.0
 * Configurations in GGUF files that list numbers for each layer. */
#include "models/gguf/gguf.h"
#include "tests/scratch.h"

#define LAYERS 3

static void put_list(tx_gguf_writer *w, const char *key, int32_t first, int32_t last)
{
    tx_gguf_put_array(w, key, TX_GGUF_VALUE_I32, LAYERS);
    for (int i = 0; i < LAYERS; i++)
        tx_gguf_add_i32(w, i + 1 < LAYERS ? first : last);
}

/* Reads the configuration of a Llama whose last layer has `last` key heads. */
static tx_status read_config(const char *path, int32_t last, tx_config **config)
{
    static const float zeros[4 * 32];
    const tx_gguf_tensor embedding = {"token_embd.weight", TX_GGUF_F32, 2, {4, 32}};
    tx_gguf_writer *w;
    assert_ok(tx_gguf_create(&w));
    tx_gguf_put_string(w, "general.architecture", "llama", 5);
    tx_gguf_put_int(w, "llama.context_length", 64);
    tx_gguf_put_int(w, "llama.embedding_length", 32);
    tx_gguf_put_int(w, "llama.block_count", LAYERS);
    put_list(w, "llama.feed_forward_length", 48, 48);
    put_list(w, "llama.attention.head_count", 4, 4);
    put_list(w, "llama.attention.head_count_kv", 2, last);
    tx_gguf_put_number(w, "llama.attention.layer_norm_rms_epsilon", 1e-5);
    assert_ok(tx_gguf_begin(w, path, &embedding, 1));
    assert_ok(tx_gguf_append(w, zeros, sizeof zeros));
    assert_ok(tx_gguf_commit(w));
    return tx_config_of_gguf(path, config);
}

static void test_lists(void **state)
{
    const char *path = TX_PATH(*state, "model.gguf");
    tx_config *config;
    tx_json *json;
    int64_t heads, inner;
    assert_ok(read_config(path, 2, &config));
    assert_int_equal(config->heads, 4);
    assert_ok(tx_config_json(config, &json));
    assert_ok(tx_json_get_int(json, "num_key_value_heads", 0, 100, &heads));
    assert_ok(tx_json_get_int(json, "intermediate_size", 0, 100, &inner));
    assert_int_equal(heads, 2);
    assert_int_equal(inner, 48);
    tx_json_free(json);
    tx_config_free(config);
    assert_refused(read_config(path, 1, &config), TX_UNSUPPORTED,
                   "head_count_kv: layer 2 has 1, layer 0 2: a llama has");
}

/* Reads the configuration of a hybrid model: with a key `extra`, or a list in which layer 1 has heads of keys. */
static tx_status read_hybrid(const char *path, const char *architecture, const char *extra, int32_t layers,
                             tx_config **config)
{
    static const float zeros[4 * 32];
    const tx_gguf_tensor embedding = {"token_embd.weight", TX_GGUF_F32, 2, {4, 32}};
    static const char *const sizes[] = {"context_length",       "embedding_length",  "feed_forward_length",
                                        "attention.head_count", "shortconv.l_cache", "ssm.inner_size",
                                        "ssm.time_step_rank",   "ssm.state_size",    "ssm.group_count"};
    char key[TX_GGUF_KEY_ROOM];
    tx_gguf_writer *w;
    assert_ok(tx_gguf_create(&w));
    tx_gguf_put_string(w, "general.architecture", architecture, strlen(architecture));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        tx_gguf_put_int(w, tx_gguf_key_of(key, architecture, sizes[i]), i == 1 ? 32 : 4);
    tx_gguf_put_int(w, tx_gguf_key_of(key, architecture, "block_count"), LAYERS);
    if (extra)
        tx_gguf_put_int(w, tx_gguf_key_of(key, architecture, extra), 1);
    else
        tx_gguf_put_array(w, tx_gguf_key_of(key, architecture, "attention.head_count_kv"), TX_GGUF_VALUE_I32, layers);
    for (int i = 0; i < layers && !extra; i++)
        tx_gguf_add_i32(w, i == 1 ? 2 : 0);
    assert_ok(tx_gguf_begin(w, path, &embedding, 1));
    assert_ok(tx_gguf_append(w, zeros, sizeof zeros));
    assert_ok(tx_gguf_commit(w));
    return tx_config_of_gguf(path, config);
}

static void test_hybrids(void **state)
{
    const char *path = TX_PATH(*state, "model.gguf"), *kind;
    tx_config *config;
    tx_json *json, *list;
    int64_t heads;
    assert_ok(read_hybrid(path, "lfm2", NULL, LAYERS, &config));
    assert_true(tx_arch_recurs(config));
    assert_ok(tx_config_json(config, &json));
    assert_ok(tx_json_get_int(json, "num_key_value_heads", 0, 100, &heads));
    assert_int_equal(heads, 2);
    assert_ok(tx_json_get(json, "layer_types", TX_JSON_ARRAY, &list));
    for (size_t i = 0; i < LAYERS; i++) {
        assert_ok(tx_json_as_string(tx_json_at(list, i), "", &kind));
        assert_string_equal(kind, i == 1 ? "full_attention" : "conv");
    }
    tx_json_free(json);
    tx_config_free(config);
    assert_refused(read_hybrid(path, "lfm2", NULL, LAYERS + 1, &config), TX_FORMAT,
                   "head_count_kv: 4 layers instead of 3");
    assert_refused(read_hybrid(path, "qwen35", "nextn_predict_layers", LAYERS, &config), TX_UNSUPPORTED,
                   "qwen35.nextn_predict_layers: layers of multi-token prediction");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_lists, open_scratch, close_scratch),
                                       cmocka_unit_test_setup_teardown(test_hybrids, open_scratch, close_scratch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
