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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_lists, open_scratch, close_scratch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
