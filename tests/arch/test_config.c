/* SPDX-License-Identifier: Apache-2.0
 * GPT-2's config.json: presets, defaults, refusals by name, rewriting, mutations; and the list of parameters. */
#include "models/arch/gpt2.h"
#include "models/arch/llama_family.h"
#include "models/tx_train.h"
#include "tests/arch/config_text.h"

#define MUTATIONS 1500

/* Reads a configuration from a text. */
static void test_presets(void **state)
{
    static const struct {
        const char *name;
        int64_t params, vocab;
    } known[] = {
        {"gpt2", 124439808, 50304},
        {"gpt2-medium", 354823168, 50304},
        {"gpt2-large", 774030080, 50304},
        {"gpt2-xl", 1557611200, 50304},
        {"tinyllama-1.1b", 1100048384, 32000},
        {"bert-base", 109514298, 30592},
        /* Numbers that transformers counts with the published configurations. */
        {"Llama-3-8B", 8030261248, 128256},
        {"mistral-7b", 7248023552, 32768},
        {"qwen2.5-0.5b", 494032768, 151936},
        {"qwen2.5-1.5b", 1543714304, 151936},
        {"qwen2.5-7b", 7615616512, 152064},
        {"qwen3-0.6b", 596049920, 151936},
        {"qwen3-1.7b", 1720574976, 151936},
        {"qwen3-4b", 4022468096, 151936},
        {"qwen3-8b", 8190735360, 151936},
    };
    tx_config *config = NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_ok(tx_config_preset(known[i].name, &config));
        assert_ok(tx_config_check(config));
        assert_int_equal(tx_arch_param_count(config), known[i].params);
        assert_int_equal(tx_arch_padded_vocab(config), known[i].vocab);
        tx_config_free(config);
    }
    assert_ok(tx_config_preset("llama-3-8b", &config));
    assert_true(((const llama_config *)config)->positions.rope.theta == 5e5);
    tx_config_free(config);
    assert_refused(tx_config_preset("gpt3", &config), TX_INVALID, "the known ones are " TX_PRESETS);
    assert_refused(tx_config_preset("Qwen/Qwen3-8B", &config), TX_INVALID, "--local-dir DIR; or use the name qwen3-8b");
}

static void test_params(void **state)
{
    char name[TX_ARCH_NAME];
    tx_config *config = NULL;
    tx_param_spec spec;
    assert_ok(tx_config_preset("gpt2", &config));
    assert_int_equal(tx_arch_params(config), 148);
    assert_ok(tx_arch_param(config, 0, name, &spec));
    assert_string_equal(name, "transformer.wte.weight");
    assert_true(tx_shape_equal(&spec.shape, &TX_SHAPE(50304, 768)));
    assert_true(tx_shape_equal(&spec.logical, &TX_SHAPE(50257, 768)));
    assert_true(spec.decay && spec.init == TX_INIT_NORMAL && spec.scale == 0.02f);
    assert_ok(tx_arch_param(config, 2 + 12 * 11 + 10, name, &spec));
    assert_string_equal(name, "transformer.h.11.mlp.c_proj.weight");
    assert_true(tx_shape_equal(&spec.shape, &TX_SHAPE(3072, 768)));
    assert_true(fabsf(spec.scale - 0.02f / sqrtf(24.0f)) < 1e-9f);
    assert_ok(tx_arch_param(config, 2 + 3, name, &spec));
    assert_string_equal(name, "transformer.h.0.attn.c_attn.bias");
    assert_true(!spec.decay && spec.init == TX_INIT_ZERO && spec.logical.rank == 0);
    assert_ok(tx_arch_param(config, 146, name, &spec));
    assert_string_equal(name, "transformer.ln_f.weight");
    assert_true(spec.init == TX_INIT_ONE);
    assert_refused(tx_arch_param(config, 148, name, &spec), TX_INVALID, "148");
    assert_refused(tx_arch_param(config, -1, name, &spec), TX_INVALID, "-1");
    config->vocab_size = 257;
    assert_int_equal(tx_arch_padded_vocab(config), 384);
    tx_config_free(config);
}

static void test_defaults(void **state)
{
    tx_config *config = NULL, *preset = NULL;
    assert_ok(tx_config_preset("gpt2", &preset));
    assert_ok(read_text("{}", &config));
    assert_non_null(config->source);
    assert_int_equal(config->width, preset->width);
    assert_int_equal(config->eos_token_id, 50256);
    assert_true(tx_gpt2_of(config)->layer_norm_epsilon == 1e-5 && tx_gpt2_of(config)->attn_pdrop == 0.1);
    tx_config_free(config);
    tx_config_free(preset);
    static const char small[] = "{\"vocab_size\": 257, \"n_inner\": null, \"bos_token_id\": null}";
    assert_ok(read_text(small, &config));
    assert_int_equal(config->eos_token_id, -1);
    assert_int_equal(config->bos_token_id, -1);
    assert_int_equal(tx_gpt2_of(config)->n_inner, 0);
    tx_config_free(config);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text;
        tx_status status;
        const char *message;
    } bad[] = {
        {"[]", TX_FORMAT, "not a JSON object"},
        {"{\"n_embd\": \"768\"}", TX_FORMAT, "n_embd: expected an integer from 1 to 1048576, found \"768\""},
        {"{\"n_embd\": null}", TX_FORMAT, "n_embd: expected"},
        {"{\"n_layer\": 12.0}", TX_FORMAT, "n_layer: expected an integer"},
        {"{\"n_layer\": -1}", TX_FORMAT, "n_layer: expected an integer from 1"},
        {"{\"vocab_size\": 99999999999}", TX_FORMAT, "vocab_size: expected"},
        {"{\"n_positions\": 0}", TX_FORMAT, "n_positions: expected"},
        {"{\"n_inner\": -3}", TX_FORMAT, "n_inner: expected"},
        {"{\"n_inner\": 0}", TX_FORMAT, "n_inner: expected"},
        {"{\"n_head\": 5}", TX_FORMAT, "n_embd: 768 is not a multiple of n_head, 5"},
        {"{\"attn_pdrop\": 1}", TX_FORMAT, "attn_pdrop: expected a number from 0 to 0.999, found 1"},
        {"{\"layer_norm_epsilon\": 0}", TX_FORMAT, "layer_norm_epsilon: expected"},
        {"{\"scale_attn_weights\": 1}", TX_FORMAT, "scale_attn_weights: expected true or false, found 1"},
        {"{\"activation_function\": \"relu\"}", TX_UNSUPPORTED, "\"relu\" is not one of gelu_new, gelu_pytorch_tanh"},
        {"{\"activation_function\": 3}", TX_FORMAT, "activation_function: expected a string"},
        {"{\"model_type\": \"rwkv\"}", TX_UNSUPPORTED,
         "model_type: \"rwkv\": TX has no such type; docs/reference/features.md lists all"},
        {"{\"model_type\": \"bart\"}", TX_UNSUPPORTED, "no such type, but \"bert\"; docs"},
        {"{\"model_type\": \"qwen3_nexd\"}", TX_UNSUPPORTED, "no such type, but \"qwen3\""},
        {"{\"model_type\": \"gemma4_text\", \"use_bidirectional_attention\": \"all\"}", TX_UNSUPPORTED,
         "use_bidirectional_attention: \"all\" is not"},
        {"{\"model_type\": \"gemma4_text\", \"vocab_size_per_layer_input\": 300}", TX_UNSUPPORTED,
         "vocab_size_per_layer_input: 300 is not vocab_size"},
        {"{\"model_type\": \"gemma4_text\", \"per_layer_config\": {\"5\": {\"head_dim\": 64}}}", TX_UNSUPPORTED,
         "per_layer_config: layer 11"},
        {"{\"model_type\": \"gemma4_text\", \"per_layer_config\": {\"5\": {\"sliding_window\": 64}}}", TX_UNSUPPORTED,
         "per_layer_config: sliding_window"},
        {"{\"model_type\": \"gemma4_text\", \"num_kv_shared_layers\": 25}", TX_FORMAT, "no layer before layer 5"},
        {"{\"model_type\": \"gemma4_text\", \"global_head_dim\": 515}", TX_FORMAT, "8 of 515 elements"},
        {"{\"model_type\": \"gemma4_text\", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}}",
         TX_UNSUPPORTED, "512 rotating elements of a head of 512"},
        {"{\"model_type\": \"gemma4_text\", \"enable_moe_block\": true}", TX_FORMAT,
         "enable_moe_block: needs num_experts"},
        {"{\"model_type\": \"gemma4\", \"text_config\": {\"num_kv_shared_layers\": 30}}", TX_FORMAT,
         "no layer before layer 0"},
        {"{\"model_type\": \"gemma3n_text\", \"altup_num_inputs\": 3}", TX_UNSUPPORTED,
         "altup_num_inputs: 3, altup_active_idx: 0: only 4 and 0 are"},
        {"{\"model_type\": \"gemma3n_text\", \"altup_active_idx\": 1}", TX_UNSUPPORTED,
         "altup_num_inputs: 4, altup_active_idx: 1: only 4 and 0 are"},
        {"{\"model_type\": \"gemma3n_text\", \"altup_correct_scale\": false}", TX_UNSUPPORTED,
         "altup_correct_scale: expected true"},
        {"{\"model_type\": \"gemma3n_text\", \"altup_coef_clip\": 0}", TX_FORMAT, "altup_coef_clip: expected"},
        {"{\"model_type\": \"gemma3n_text\", \"num_hidden_layers\": 129}", TX_UNSUPPORTED,
         "num_hidden_layers: 129 is more than 128"},
        {"{\"model_type\": \"gemma3n_text\", \"num_kv_shared_layers\": 31}", TX_FORMAT, "no layer before layer 4"},
        {"{\"model_type\": \"gemma3n_text\", \"intermediate_size\": [64, 64]}", TX_FORMAT,
         "intermediate_size: 2 numbers, but num_hidden_layers is 35"},
        {"{\"model_type\": \"gemma3n_text\", \"intermediate_size\": null}", TX_FORMAT,
         "intermediate_size: expected a number or a list"},
        {"{\"model_type\": \"gemma3n_text\", \"activation_sparsity_pattern\": [0.95]}", TX_FORMAT,
         "activation_sparsity_pattern: 1 numbers, but"},
        {"{\"model_type\": \"gemma3n_text\", \"activation_sparsity_pattern\": 0.95}", TX_FORMAT,
         "activation_sparsity_pattern: expected"},
        {"{\"model_type\": \"gemma3n_text\", \"vocab_size\": 1000}", TX_UNSUPPORTED,
         "vocab_size_per_layer_input: 262144 is more than vocab_size"},
        {"{\"model_type\": \"longcat_flash_text\"}", TX_UNSUPPORTED,
         "no such type, because it lacks two attentions in a layer, and experts that copy their input"},
        {"{\"model_type\": \"llama4_text\", \"layer_types\": [\"chunked_attention\"], \"num_hidden_layers\": 1, "
         "\"attention_chunk_size\": null}",
         TX_FORMAT, "layer_types: \"chunked_attention\" needs attention_chunk_size"},
        {"{\"model_type\": \"llama4_text\", \"layer_types\": [\"sliding_attention\"], \"num_hidden_layers\": 1}",
         TX_UNSUPPORTED, "layer_types: \"sliding_attention\" is not one of full_attention, chunked_attention"},
        {"{\"model_type\": \"llama4_text\", \"num_experts_per_tok\": 17}", TX_FORMAT,
         "num_experts_per_tok: 17 is not from 1"},
        {"{\"architectures\": [\"BartForCausalLM\"]}", TX_UNSUPPORTED,
         "model_type is missing, and TX does not know the class BartForCausalLM"},
        {"{\"intermediate_size\": 64}", TX_FORMAT, "model_type is missing"},
        {"{\"model_type\": \"olmo2\", \"architectures\": [\"Olmo2ForSequenceClassification\"]}", TX_UNSUPPORTED,
         "Olmo2ForSequenceClassification: TX has no classifiers of model type olmo2, only of gpt2, llama"},
        {"{\"add_cross_attention\": true}", TX_UNSUPPORTED, "add_cross_attention: expected false"},
        {"{\"tie_word_embeddings\": false}", TX_UNSUPPORTED, "tie_word_embeddings: expected true"},
        {"{\"tie_word_embeddings\": \"no\"}", TX_FORMAT, "tie_word_embeddings: expected true or false"},
        {"{\"pruned_heads\": {\"0\": [1]}}", TX_UNSUPPORTED, "pruned_heads"},
        {"{\"quantization_config\": {\"bits\": 4}}", TX_UNSUPPORTED, "quantization_config"},
    };
    tx_config *config = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refused(read_text(bad[i].text, &config), bad[i].status, bad[i].message);
        assert_non_null(strstr(tx_error(), "config.json"));
    }
    assert_ok(tx_config_preset("gpt2", &config));
    ((tx_gpt2_config *)config)->resid_pdrop = NAN;
    assert_refused(tx_config_check(config), TX_INVALID, "resid_pdrop");
    tx_config_free(config);
}

static const char example[] =
    "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_head\": 4, \"n_layer\": 2, \"vocab_size\": 257,"
    "\"n_positions\": 128, \"layer_norm_epsilon\": 1e-05, \"pruned_heads\": {},"
    "\"architectures\": [\"GPT2LMHeadModel\"], \"task_specific_params\": {\"a\": [1, 2.5]},"
    "\"activation_function\": \"gelu\", \"add_cross_attention\": false}";

static void test_rewriting(void **state)
{
    char *folder = make_scratch(), *path = tx_path_join(folder, "config.json"), *text;
    size_t size;
    tx_config *config = NULL, *back = NULL;
    assert_ok(read_text(example, &config));
    config->positions = 64;
    ((tx_gpt2_config *)config)->n_inner = 100;
    assert_ok(tx_config_write(config, TX_F32, path));
    assert_ok(tx_file_read(path, 4096, &text, &size));
    assert_non_null(strstr(text, "\"task_specific_params\": {\n    \"a\": [\n      1,\n      2.5\n    ]\n  }"));
    assert_non_null(strstr(text, "\"eos_token_id\": null"));
    assert_non_null(strstr(text, "\"torch_dtype\": \"float32\""));
    free(text);
    assert_ok(tx_config_read(path, &back));
    assert_int_equal(back->positions, 64);
    assert_int_equal(tx_gpt2_of(back)->n_inner, 100);
    assert_int_equal(tx_gpt2_of(back)->activation_function, TX_GPT2_GELU);
    assert_true(tx_gpt2_of(back)->layer_norm_epsilon == 1e-5);
    tx_config_free(back);
    config->heads = 3;
    assert_refused(tx_config_write(config, TX_F32, path), TX_INVALID, "n_head");
    tx_config_free(config);
    assert_ok(tx_config_preset("gpt2", &config));
    assert_ok(tx_config_write(config, TX_F32, path));
    tx_config_free(config);
    assert_ok(tx_config_read(path, &back));
    assert_int_equal(back->bos_token_id, 50256);
    tx_config_free(back);
    free(path);
    remove_scratch(folder);
}

/* The alternative names of keys, and the type of the weights under both names: a written file is consistent. */
static void test_second_names(void **state)
{
    static const char second[] = "{\"hidden_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 2,"
                                 "\"max_position_embeddings\": 128, \"n_layer\": 2, \"n_ctx\": 7,"
                                 "\"torch_dtype\": \"float16\", \"dtype\": \"bfloat16\"}";
    static const char differs[] = "{\"hidden_size\": 64, \"n_embd\": 768}";
    static const char wrong[] = "{\"num_hidden_layers\": \"2\"}";
    char *folder = make_scratch(), *path = tx_path_join(folder, "config.json"), *text;
    size_t size;
    tx_config *config = NULL;
    assert_ok(read_text(second, &config));
    assert_true(config->width == 64 && config->heads == 4 && config->layers == 2 && config->positions == 128);
    config->layers = 3;
    assert_ok(tx_config_write(config, TX_F32, path));
    tx_config_free(config);
    assert_ok(tx_file_read(path, 4096, &text, &size));
    assert_non_null(strstr(text, "\"n_layer\": 3"));
    assert_non_null(strstr(text, "\"num_hidden_layers\": 3"));
    assert_non_null(strstr(text, "\"torch_dtype\": \"float32\""));
    assert_non_null(strstr(text, "\"dtype\": \"float32\""));
    free(text);
    assert_ok(tx_config_read(path, &config));
    assert_int_equal(config->layers, 3);
    tx_config_free(config);
    assert_refused(read_text(differs, &config), TX_FORMAT, "hidden_size: 64 differs from n_embd, 768");
    assert_refused(read_text(wrong, &config), TX_FORMAT, "num_hidden_layers: expected an integer");
    free(path);
    remove_scratch(folder);
}

/* Any change of the text gives an error with a message, or a configuration that passes its checks. */
static void test_mutations(void **state)
{
    uint64_t random = 7;
    char text[4 * sizeof example];
    int accepted = 0;
    for (int i = 0; i < MUTATIONS; i++) {
        tx_config *config;
        memcpy(text, example, sizeof example);
        if (read_bytes(text, mutate(text, sizeof example - 1, &random), &config)) {
            assert_non_null(strstr(tx_error(), "config.json"));
            continue;
        }
        assert_ok(tx_config_check(config));
        assert_true(tx_arch_param_count(config) > 0);
        tx_config_free(config);
        accepted++;
    }
    assert_in_range(accepted, 1, MUTATIONS - 1);
}

/* Published configurations of models that also read images: the parameters of the text, as transformers counts them. */
static void test_wrappers(void **state)
{
    static const known_size known[] = {
        /* Gemma 3 4B has only sizes that differ from its class's. */
        {"{\"model_type\": \"gemma3\", \"eos_token_id\": [1, 106], \"text_config\": {\"hidden_size\": 2560, "
         "\"intermediate_size\": 10240, \"model_type\": \"gemma3_text\", \"num_hidden_layers\": 34, \"rope_scaling\": "
         "{\"factor\": 8.0, \"rope_type\": \"linear\"}, \"sliding_window\": 1024}}",
         3880263168},
        /* The early form of Qwen2.5-VL 3B, whose text has no object of its own. */
        {"{\"model_type\": \"qwen2_5_vl\", \"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], "
         "\"hidden_size\": 2048, \"intermediate_size\": 11008, \"max_window_layers\": 70, \"num_attention_heads\": 16, "
         "\"num_hidden_layers\": 36, \"num_key_value_heads\": 2, \"tie_word_embeddings\": true, \"vocab_size\": "
         "151936, "
         "\"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [16, 24, 24]}, \"vision_config\": {\"depth\": "
         "32}}",
         3085938688},
        {"{\"model_type\": \"qwen3_vl\", \"tie_word_embeddings\": true, \"text_config\": {\"hidden_size\": 2048, "
         "\"intermediate_size\": 6144, \"model_type\": \"qwen3_vl_text\", \"num_attention_heads\": 16, "
         "\"num_hidden_layers\": 28, \"num_key_value_heads\": 8, \"rope_scaling\": {\"mrope_interleaved\": true, "
         "\"mrope_section\": [24, 20, 20], \"rope_type\": \"default\"}, \"rope_theta\": 5000000}}",
         1720574976},
        {"{\"model_type\": \"llava\", \"text_config\": {\"architectures\": [\"LlamaForCausalLM\"], "
         "\"rms_norm_eps\": 1e-05, \"vocab_size\": 32064}}",
         6738939904},
        /* Defaults of the class, and keys of the published models. Buffers of layers count, too. */
        {"{\"model_type\": \"gemma4\", \"text_config\": {}}", 5077177856 + 30},
        {"{\"model_type\": \"gemma4\", \"text_config\": {\"num_kv_shared_layers\": 10, \"use_double_wide_mlp\": true}}",
         5657561600 + 30},
        {"{\"model_type\": \"gemma4\", \"text_config\": {\"hidden_size_per_layer_input\": 0, \"attention_k_eq_v\": "
         "true, \"num_global_key_value_heads\": 2, \"enable_moe_block\": true, \"num_experts\": 16, \"top_k_experts\": "
         "4, \"moe_intermediate_size\": 704}}",
         5312454880 + 30},
        {"{\"model_type\": \"gemma4_unified\", \"text_config\": {}}", 3010758400 + 30},
        {"{\"model_type\": \"gemma3n\", \"text_config\": {}}", 6835235568},
        {"{\"model_type\": \"gemma3n\", \"text_config\": {\"num_hidden_layers\": 30, \"intermediate_size\": 8192, "
         "\"num_kv_shared_layers\": 10}}",
         4435182688},
        {"{\"model_type\": \"llama4\", \"text_config\": {\"no_rope_layers\": [], \"attn_temperature_tuning\": 4}}",
         107769861120},
        {"{\"model_type\": \"llama4\", \"text_config\": {\"interleave_moe_layer_step\": 2, \"num_local_experts\": "
         "128}}",
         400711848960},
        /* The published file names a type that transformers does not have. */
        {"{\"model_type\": \"kimi_k25\", \"text_config\": {\"model_type\": \"kimi_k2\", \"tie_word_embeddings\": "
         "false}, \"tie_word_embeddings\": false}",
         671026404352 + 14848},
    };
    tx_config *config;
    tx_json *json;
    char *folder = make_scratch(), *path = tx_path_join(folder, "config.json");
    check_sizes(known, sizeof known / sizeof known[0]);
    assert_ok(read_text(known[1].text, &config)); /* without weights the text alone is saved */
    assert_ok(tx_config_write(config, TX_F32, path));
    assert_ok(tx_json_read(path, 1 << 20, &json));
    assert_true(!tx_json_find(json, "vision_config") &&
                !tx_json_find(tx_json_find(json, "rope_scaling"), "mrope_section"));
    tx_json_free(json);
    tx_config_free(config);
    free(path);
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),   cmocka_unit_test(test_params),    cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_rewriting), cmocka_unit_test(test_second_names),
        cmocka_unit_test(test_mutations), cmocka_unit_test(test_wrappers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
