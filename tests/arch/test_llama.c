/* SPDX-License-Identifier: Apache-2.0
 *
 * The Llama family: sizes of published models, scalings of rotary positions, keys that are kept or refused, sections
 * that files hold apart, and a trained model's text. tests/transformers/llama.py compares logits. Updates of tensors
 * that files hold apart, also of other architectures. */
#include "backends/rope.h"
#include "models/arch/families.h"
#include "models/arch/rope.h"
#include "models/generate/generate.h"
#include "models/tx_text.h"
#include "tests/arch/config_text.h"
#include "tests/arch/update_golden.h"
#include "tests/device_model.h"

static void test_sizes(void **state)
{
    static const known_size known[] = {
        {"{\"model_type\": \"llama\"}", 6738415616}, /* 7B: transformers' defaults */
        {"{\"model_type\": \"llama\", \"hidden_size\": 2048, \"intermediate_size\": 5632, \"num_hidden_layers\": 22, "
         "\"num_key_value_heads\": 4}",
         1100048384}, /* TinyLlama 1.1B */
        {"{\"model_type\": \"mistral\"}", 7241732096},
        {"{\"model_type\": \"qwen2\", \"hidden_size\": 896, \"intermediate_size\": 4864, \"num_hidden_layers\": 24, "
         "\"num_attention_heads\": 14, \"num_key_value_heads\": 2, \"tie_word_embeddings\": true}",
         494032768}, /* Qwen2-0.5B */
        {"{\"model_type\": \"qwen3\", \"hidden_size\": 1024, \"intermediate_size\": 3072, \"num_hidden_layers\": 28, "
         "\"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"tie_word_embeddings\": true}",
         596049920}, /* Qwen3-0.6B */
    };
    check_sizes(known, sizeof known / sizeof known[0]);
}

/* As transformers 5.23's ROPE_INIT_FUNCTIONS give them for heads of 128. */
static void test_frequencies(void **state)
{
    static const int32_t pairs[] = {0, 1, 20, 31, 32, 40, 63};
    static const struct {
        const char *text;
        double frequency[7], magnitude;
    } known[] = {
        {"{\"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": "
         "1.0, "
         "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}}",
         {1, 0.814617217, 0.0165604409, 0.00085675146, 0.000524846022, 3.42810235e-05, 3.06892588e-07},
         1},
        {"{\"rope_parameters\": {\"rope_theta\": 1e6, \"rope_type\": \"yarn\", \"factor\": 4.0, "
         "\"original_max_position_embeddings\": 32768}}",
         {1, 0.805842221, 0.0133352149, 0.000802959781, 0.000602941145, 4.44569851e-05, 3.10234441e-07},
         1.138629436111989},
        {"{\"rope_theta\": 1e4, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}",
         {0.400000006, 0.346385747, 0.0224936511, 0.00461912807, 0.00399999972, 0.00126491114, 4.61912787e-05},
         1},
        {"{\"rope_parameters\": {\"rope_theta\": 1e4, \"rope_type\": \"proportional\", \"factor\": 2.0, "
         "\"partial_rotary_factor\": 0.5}}",
         {0.5, 0.432982177, 0.0281170644, 0.00577391032, 0, 0, 0},
         1},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        tx_rope_config rope = {.theta = 1e4};
        tx_json *json;
        assert_ok(tx_json_parse(known[i].text, strlen(known[i].text), "test", &json));
        assert_ok(tx_rope_read(json, 131072, &rope));
        const tx_rope made = tx_rope_of(&rope, 128, 131072);
        const tx_attrs attrs = {.attention.head_size = 128, .rope = &made};
        for (size_t k = 0; k < 7; k++) {
            const double got = (double)tx_rope_frequency(&attrs, pairs[k]), want = known[i].frequency[k];
            if (!(fabs(got - want) <= 1e-6 * want))
                fail_msg("row %zu, pair %d: %.9g, transformers has %.9g", i, pairs[k], got, want);
        }
        assert_true(fabs((double)made.magnitude - known[i].magnitude) <= 1e-6);
        tx_json_free(json);
    }
}

/* The longest texts, as the recipes of published models mean them: Qwen2.5's card for yarn, Vicuna's files for linear,
 * Llama 3.1's and Phi-3's, whose max_position_embeddings is the longest text. */
static void test_positions(void **state)
{
    static const struct {
        const char *rest;
        int64_t positions;
    } known[] = {
        {"32768, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 32768}",
         131072},
        {"131072, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 32768}",
         131072},
        {"32768, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2.5}", 81920},
        {"4096, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}", 16384},
        {"16384, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4, \"original_max_position_embeddings\": 4096}",
         16384},
        {"512, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4, \"original_max_position_embeddings\": 256}",
         2048},
        {"131072, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}",
         131072},
        {"64, \"head_dim\": 4, \"original_max_position_embeddings\": 16, \"rope_scaling\": {\"type\": \"longrope\", "
         "\"short_factor\": [1, 1], \"long_factor\": [1, 2]}",
         64},
        {"16, \"head_dim\": 4, \"rope_scaling\": {\"type\": \"longrope\", \"factor\": 4, \"short_factor\": [1, 1], "
         "\"long_factor\": [1, 2]}",
         64},
        {"512, \"rope_scaling\": {\"rope_type\": \"default\", \"factor\": 4}", 512},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char text[512];
        tx_config *config = NULL;
        snprintf(text, sizeof text, "{\"model_type\": \"llama\", \"max_position_embeddings\": %s}", known[i].rest);
        assert_ok(read_text(text, &config));
        if (config->positions != known[i].positions)
            fail_msg("row %zu: %d positions", i, (int)config->positions);
        tx_config_free(config);
    }
}

/* Settings that a family does not have, or that TX does not implement for it. */
static void test_family_keys(void **state)
{
    (void)state;
    tx_config *config = NULL;
    static const struct {
        const char *text;
        tx_status status;
        const char *words;
    } families[] = {
        {"{'model_type': 'phi3', 'rope_scaling': {'type': 'yarn', 'factor': 4}}", TX_UNSUPPORTED, "longrope"},
        {"{'model_type': 'phi3', 'partial_rotary_factor': 1.5}", TX_FORMAT, "partial_rotary_factor: 1.5"},
        {"{'model_type': 'stablelm', 'partial_rotary_factor': 0.01}", TX_FORMAT, "partial_rotary_factor: 0 of the 80"},
        {"{'model_type': 'llama', 'rope_scaling': {'type': 'default', 'partial_rotary_factor': 0.5}}", TX_UNSUPPORTED,
         "partial_rotary_factor: 0.5"},
        {"{'model_type': 'smollm3', 'num_hidden_layers': 2, 'no_rope_layers': [1]}", TX_FORMAT, "no_rope_layers"},
        {"{'model_type': 'smollm3', 'num_hidden_layers': 1, 'no_rope_layers': [2]}", TX_FORMAT, "no_rope_layers"},
        {"{'model_type': 'smollm3', 'use_sliding_window': true}", TX_UNSUPPORTED, "layer_types"},
        {"{'model_type': 'granite', 'logits_scaling': 0}", TX_FORMAT, "logits_scaling"},
        {"{'model_type': 'gemma3_text', 'attn_logit_softcapping': 50.0}", TX_UNSUPPORTED, "attn_logit_softcapping"},
        {"{'model_type': 'gemma3_text', 'hidden_activation': 'silu'}", TX_UNSUPPORTED, "hidden_activation"},
        {"{'model_type': 'gpt_neox', 'hidden_dropout': 0.1}", TX_FORMAT, "hidden_dropout"},
        {"{'model_type': 'gemma3_text', 'use_bidirectional_attention': true}", TX_UNSUPPORTED, "only for embeddings"},
        {"{'model_type': 'ministral3', 'rope_parameters': {'llama_4_scaling_beta': -1}}", TX_FORMAT,
         "llama_4_scaling_beta"},
        {"{'model_type': 'nomic_bert', 'rotary_scaling_factor': 2}", TX_UNSUPPORTED, "rotary_scaling_factor: 2"},
        {"{'model_type': 'nomic_bert', 'activation_function': 'gelu'}", TX_UNSUPPORTED, "swiglu"},
        {"{'model_type': 'qwen3_vl', 'architectures': ['Qwen3VLForSequenceClassification'], 'text_config': {}}",
         TX_UNSUPPORTED, "not of a Qwen3VLForSequenceClassification"},
        {"{'model_type': 'llava', 'text_config': {'model_type': 'mpt2'}}", TX_UNSUPPORTED, "\"mpt2\""},
        {"{'model_type': 'gemma3', 'text_config': []}", TX_FORMAT, "text_config"},
        {"{'model_type': 'opt', 'activation_function': 'gelu'}", TX_UNSUPPORTED, "activation_function"},
        {"{'model_type': 'gpt_neo', 'attention_types': [[['global'], 3]]}", TX_FORMAT,
         "3 layers, but num_layers is 24"},
        {"{'model_type': 'gpt_neo', 'attention_types': [[['local'], 4096]]}", TX_FORMAT, "more layers than num_layers"},
        {"{'model_type': 'gpt_neo', 'attention_types': [[['sparse'], 24]]}", TX_UNSUPPORTED, "sparse"},
        {"{'model_type': 'gpt_neo', 'attention_types': [3]}", TX_FORMAT, "attention_types"},
        {"{'model_type': 'gptj', 'rotary_dim': 3}", TX_FORMAT, "3 of the 256"},
        {"{'model_type': 'falcon', 'alibi': true}", TX_UNSUPPORTED, "alibi"},
        {"{'model_type': 'falcon', 'new_decoder_architecture': true, 'multi_query': false, 'alibi': true}",
         TX_UNSUPPORTED, "alibi"},
        {"{'model_type': 'glm4', 'rope_scaling': {'type': 'yarn', 'factor': 4, 'partial_rotary_factor': 0.5}}",
         TX_UNSUPPORTED, "yarn"},
    };
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        char text_of[160];
        snprintf(text_of, sizeof text_of, "%s", families[i].text);
        for (char *at = text_of; *at; at++)
            *at = *at == '\'' ? '"' : *at;
        assert_refused(read_text(text_of, &config), families[i].status, families[i].words);
    }
}

static void test_keys(void **state)
{
    char *folder = make_scratch(), *path = tx_path_join(folder, "config.json"), *text;
    size_t size;
    tx_config *config = NULL;
    assert_ok(read_text("{\"model_type\": \"llama\", \"eos_token_id\": [128001, 128008], \"vocab_size\": 128256, "
                        "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 3e5}}",
                        &config));
    assert_int_equal(config->eos_token_id, 128001);
    assert_ok(tx_config_override(config, "num_hidden_layers=2"));
    assert_ok(tx_config_write(config, TX_F32, path));
    assert_ok(tx_file_read(path, 4096, &text, &size));
    assert_non_null(strstr(text, "128008"));
    assert_non_null(strstr(text, "300000.0"));
    assert_null(strstr(text, "10000.0"));
    free(text);
    tx_config_free(config);
    assert_ok(read_text("{\"model_type\": \"llama\", \"max_position_embeddings\": 512, \"rope_scaling\": {\"type\": "
                        "\"dynamic\", \"factor\": 4}}",
                        &config));
    assert_int_equal(config->positions, 2048);
    assert_ok(tx_config_override(config, "max_position_embeddings=300"));
    assert_int_equal(config->positions, 1200);
    assert_ok(tx_config_write(config, TX_F32, path));
    assert_ok(tx_file_read(path, 4096, &text, &size));
    assert_non_null(strstr(text, "\"max_position_embeddings\": 300"));
    free(text);
    tx_config_free(config);
    assert_refused(read_text("{\"model_type\": \"llama\", \"hidden_act\": \"gelu\"}", &config), TX_UNSUPPORTED,
                   "hidden_act");
    assert_refused(read_text("{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": "
                             "[1, 1], \"long_factor\": [1, 2]}}",
                             &config),
                   TX_FORMAT, "2 factors, but 128 rotated elements");
    assert_refused(read_text("{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": "
                             "[1, 1], \"long_factor\": [1]}}",
                             &config),
                   TX_FORMAT, "long_factor");
    assert_refused(read_text("{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": "
                             "[0, 1], \"long_factor\": [1, 2]}}",
                             &config),
                   TX_FORMAT, "short_factor");
    assert_refused(read_text("{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"ntk\"}}", &config),
                   TX_UNSUPPORTED, "longrope");
    assert_refused(read_text("{\"model_type\": \"llama\", \"num_key_value_heads\": 5}", &config), TX_FORMAT,
                   "num_key_value_heads, 5");
    assert_refused(read_text("{\"model_type\": \"qwen2\", \"num_hidden_layers\": 1, \"layer_types\": "
                             "[\"sliding_attention\"]}",
                             &config),
                   TX_UNSUPPORTED, "layer_types: layer 0");
    assert_refused(read_text("{\"model_type\": \"llama\", \"head_dim\": 7}", &config), TX_FORMAT, "head_dim: 7");
    assert_refused(read_text("{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"ntk\"}}", &config),
                   TX_UNSUPPORTED, "rope_scaling: rope_type: \"ntk\"");
    assert_refused(
        read_text("{\"model_type\": \"qwen2\", \"rope_scaling\": {\"type\": \"yarn\", \"beta_slow\": 40}}", &config),
        TX_FORMAT, "high factor");
    free(path);
    remove_scratch(folder);
}

static const char small[] =
    "{\"model_type\": \"qwen2\", \"vocab_size\": 40, \"hidden_size\": 12, \"intermediate_size\": 10, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"max_position_embeddings\": "
    "16}";

static void build(fixture *f, const tx_config *config)
{
    tx_input(f->graph, "input_ids", TX_I32, TX_SHAPE(1, 4));
    assert_non_null(tx_output(tx_arch_logits(f->graph, config, NULL)));
    assert_ok(tx_plan_create(f->graph, "logits", &f->plan));
}

/* Files have separate q, k, v, gate and up, in one file and in shards. They are read back to the bit. */
static void test_pieces(void **state)
{
    fixture *f = *state;
    char *folder = make_scratch();
    tx_config *config;
    tx_weights *weights;
    float before[3][20 * 12], after[20 * 12];
    const char *const names[] = {"model.layers.1.self_attn.q_proj|k_proj|v_proj.weight",
                                 "model.layers.0.self_attn.q_proj|k_proj|v_proj.bias",
                                 "model.layers.1.mlp.gate_proj|up_proj.weight"};
    int32_t index;
    assert_ok(read_text(small, &config));
    build(f, config);
    for (int64_t shard = TX_WEIGHTS_SHARD; shard > 0; shard = shard > 1000 ? 1000 : 0) {
        assert_ok(tx_model_init(f->model, 7));
        for (int i = 0; i < 3; i++) {
            assert_ok(tx_model_find(f->model, names[i], &index));
            assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, index, before[i]));
        }
        assert_ok(tx_arch_save(f->model, config, folder));
        assert_ok(tx_weights_save(f->model, folder, shard));
        assert_ok(tx_arch_check(config, folder));
        assert_ok(tx_weights_open(folder, &weights));
        assert_int_equal(tx_weights_count(weights), 1 + 2 * 12 + 2);
        for (int32_t i = 0; i < tx_weights_count(weights); i++)
            assert_null(strchr(tx_weights_tensor_at(weights, i)->name, '|'));
        tx_weights_close(weights);
        assert_ok(tx_model_init(f->model, 8));
        assert_ok(tx_arch_load(f->model, config, folder, NULL));
        for (int i = 0; i < 3; i++) {
            assert_ok(tx_model_find(f->model, names[i], &index));
            assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, index, after));
            assert_memory_equal(after, before[i], (i == 1 ? 20 : 20 * 12) * sizeof(float));
        }
    }
    tx_config_free(config);
    remove_scratch(folder);
}

/* ---- Updates ------------------------------------------------------------------------------------------- */

enum { BATCH = 2, BLOCK = 7, MOST_TENSORS = 40, MOST_ELEMENTS = 600 };

#define FAMILY(type)                                                                                      \
    "{\"model_type\": \"" type "\", \"vocab_size\": 23, \"hidden_size\": 16, \"intermediate_size\": 18, " \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "                  \
    "\"max_position_embeddings\": 9"
#define GOLDEN(model) updates_##model, sizeof updates_##model / sizeof updates_##model[0]
static const struct {
    const char *config;
    const double (*rows)[4];
    size_t count;
    int updates;
} updated[] = {
    {FAMILY("llama") "}", GOLDEN(llama), 3},
    {FAMILY("qwen2") ", \"tie_word_embeddings\": true}", GOLDEN(qwen2), 3},
    {FAMILY("qwen3") ", \"head_dim\": 6}", GOLDEN(qwen3), 3},
    {"{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], \"vocab_size\": 23, \"hidden_size\": 15, "
     "\"num_hidden_layers\": 1, \"num_attention_heads\": 3, \"intermediate_size\": 19, "
     "\"max_position_embeddings\": 9}",
     GOLDEN(bert), 3},
    {"{\"model_type\": \"gpt2\", \"vocab_size\": 23, \"n_positions\": 9, \"n_embd\": 12, \"n_layer\": 1, "
     "\"n_head\": 2}",
     GOLDEN(gpt2), 1},
    {FAMILY("mixtral") ", \"num_local_experts\": 3, \"num_experts_per_tok\": 2}", GOLDEN(mixtral), 3},
    {FAMILY("qwen2_moe") ", \"num_experts\": 3, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 10, "
                         "\"shared_expert_intermediate_size\": 14}",
     GOLDEN(qwen2_moe), 3},
};

/* Elements of a tensor as update_golden.py has them; how many. */
static int64_t begin_tensor(const tx_weights_piece *piece, float values[MOST_ELEMENTS])
{
    const int64_t count = tx_shape_count(&piece->shape);
    const bool norm = strstr(piece->name, "norm") || strstr(piece->name, "Norm") || strstr(piece->name, "ln_");
    int sum = 0;
    for (const char *c = piece->name; *c; c++)
        sum += *c;
    assert_true(count <= MOST_ELEMENTS);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(0.2 * sin(0.7 * (double)i + sum) + (norm && strstr(piece->name, "weight") ? 1.0 : 0.0));
    return count;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tx_weights_piece *)a)->name, ((const tx_weights_piece *)b)->name);
}

/* The tensors of files in the order of their names; how many. */
static size_t list_tensors(tx_model *model, tx_weights_piece *list)
{
    int32_t count = 0;
    for (int32_t p = 0; p < tx_model_param_count(model); p++) {
        const char *name;
        const tx_param_spec *spec;
        assert_ok(tx_model_param(model, p, &name, &spec));
        count += tx_weights_pieces(name, spec, p, MOST_TENSORS - count, list + count);
    }
    qsort(list, (size_t)count, sizeof *list, by_name);
    return (size_t)count;
}

static void update(fixture *f, const tx_config *config, const tx_optimizer_options *options, int updates)
{
    int32_t ids[BATCH * BLOCK], labels[BATCH * BLOCK];
    for (int32_t i = 0; i < BATCH * BLOCK; i++) {
        ids[i] = 1 + i * 5 % 22;
        labels[i] = (i * 7 + 3) % 23;
    }
    tx_tensor *of_ids = tx_input(f->graph, "input_ids", TX_I32, TX_SHAPE(BATCH, BLOCK));
    tx_tensor *of_labels = tx_input(f->graph, "labels", TX_I32, TX_SHAPE(BATCH, BLOCK));
    tx_tensor *loss = tx_cross_entropy(tx_arch_logits(f->graph, config, NULL), of_labels, tx_arch_columns(config));
    tx_weights_piece list[MOST_TENSORS];
    float values[MOST_ELEMENTS];
    assert_ok(tx_backward(f->graph, tx_mean_loss(loss)));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    assert_ok(tx_optimizer_create(f->model, options, &f->update));
    assert_ok(tx_model_init(f->model, 1));
    for (size_t i = list_tensors(f->model, list); i-- > 0;) {
        const int64_t count = begin_tensor(&list[i], values);
        assert_ok(tx_model_write_range(f->model, TX_PARAM_WEIGHT, list[i].param, list[i].first, count, values));
    }
    assert_ok(tx_model_set(f->model, TX_CONTROL_INVERSE_LABELS, 1.0 / (BATCH * BLOCK)));
    assert_ok(tx_model_set(f->model, TX_CONTROL_LEARNING_RATE, 0.02));
    assert_ok(tx_plan_write(f->plan, of_ids, ids, sizeof ids));
    assert_ok(tx_plan_write(f->plan, of_labels, labels, sizeof labels));
    for (int i = 0; i < updates; i++) {
        assert_ok(tx_plan_run(f->plan));
        assert_ok(tx_plan_run(f->update));
    }
}

static void compare_tensor(tx_model *model, const tx_weights_piece *piece, const double wanted[2])
{
    float before[MOST_ELEMENTS], after[MOST_ELEMENTS];
    double squares = 0.0, product = 0.0;
    const int64_t count = begin_tensor(piece, before);
    assert_ok(tx_model_read_range(model, TX_PARAM_WEIGHT, piece->param, piece->first, count, after));
    for (int64_t i = 0; i < count; i++) {
        const double change = (double)after[i] - (double)before[i];
        squares += change * change;
        product += change * cos(1.3 * (double)i);
    }
    const double error = fmax(fabs(sqrt(squares) - wanted[0]), fabs(product - wanted[1])) / wanted[0];
    if (!(error <= 2e-4))
        fail_msg("%s: change %.9g, %.9g, the others' is %.9g, %.9g", piece->name, sqrt(squares), product, wanted[0],
                 wanted[1]);
}

/* The gradients of the biases of BERT's and GPT-2's keys are 0 except for roundings. */
static bool is_rounding(const char *name)
{
    return strstr(name, "key.bias") || strstr(name, "c_attn.bias");
}

/* Optimizers update each tensor of the file by itself: q, k and v are three, GPT-2's c_attn is one, an expert has its
 * own. */
static void test_updates(void **state)
{
    static const tx_optimizer_options options[] = {
        {.size = sizeof *options, .kind = TX_ADAFACTOR, .weight_decay = 0.1f},
        {sizeof *options, TX_MUON, 0.9f, 0.999f, 1e-8f, .momentum = 0.95f, .nesterov = true, .weight_decay = 0.1f},
    };
    for (size_t m = 0; m < sizeof updated / sizeof updated[0]; m++)
        for (int o = 0; o < 2; o++) {
            tx_config *config;
            void *made;
            tx_weights_piece list[MOST_TENSORS];
            assert_ok(read_text(updated[m].config, &config));
            assert_int_equal(set_up(&made), 0);
            fixture *f = made;
            update(f, config, &options[o], updated[m].updates);
            size_t row = 0;
            const size_t count = list_tensors(f->model, list);
            for (size_t i = 0; i < count; i++)
                if (!is_rounding(list[i].name))
                    compare_tensor(f->model, &list[i], updated[m].rows[row++] + 2 * o);
            assert_int_equal(row, updated[m].count);
            tear_down(&made);
            tx_config_free(config);
        }
}

/* ---- Texts --------------------------------------------------------------------------------------------- */

/* Greedy ids of a trained model, as transformers' generate gives them. */
static bool emit(void *context, int64_t row, int32_t id)
{
    int32_t **next = context;
    assert_int_equal(id, *(*next)++);
    return true;
}

static void test_text(void **state)
{
    fixture *f = *state;
    char *folder = test_data("models/stories260K"), *path = tx_path_join(folder, "config.json");
    int32_t ids[] = {1,   403, 407, 261, 378, 432, 383, 286, 261, 376, 298, 315, 421, 395, 317,
                     426, 338, 401, 396, 267, 337, 410, 408, 419, 292, 411, 322, 265, 282},
            *next = ids + 5;
    const tx_generator_options options = {.size = sizeof options, .batch = 1, .beams = 1, .prompt = 5, .context = 64};
    const tx_prompt prompt = {.ids = ids, .count = 5};
    tx_generation how = tx_generation_defaults(2);
    tx_config *config;
    tx_generator *generator;
    how.max_new_tokens = 24;
    assert_ok(tx_config_read(path, &config));
    assert_ok(tx_generator_create(f->model, config, &options, &generator));
    assert_ok(tx_arch_load(f->model, config, folder, NULL));
    assert_ok(tx_generator_run(generator, &prompt, 1, 0, &how, &(tx_sink){.emit = emit, .context = &next}));
    assert_ptr_equal(next, ids + sizeof ids / sizeof ids[0]);
    tx_generator_free(generator);
    tx_config_free(config);
    free(path);
    free(folder);
}

/* Texts begin with the token that the model was trained to see there. */
static void test_begin(void **state)
{
    char *folder = test_data("models/stories260K");
    tx_tokenizer *tokenizer;
    tx_encoder *encoder;
    tx_ids bare = {0}, given = {0};
    assert_ok(tx_tokenizer_open(folder, &tokenizer));
    assert_ok(tx_encoder_create(tokenizer, &encoder));
    assert_ok(tx_encoder_run(encoder, "Once", 4, true, &bare));
    assert_ok(tx_encoder_text(encoder, "Once", 4, &given));
    assert_int_equal(given.count, bare.count + 1);
    assert_int_equal(given.id[0], 1);
    assert_memory_equal(given.id + 1, bare.id, bare.count * sizeof *bare.id);
    free(bare.id);
    free(given.id);
    tx_encoder_free(encoder);
    tx_tokenizer_free(tokenizer);
    free(folder);
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_family_keys),
        cmocka_unit_test(test_begin),
        cmocka_unit_test_setup_teardown(test_pieces, set_up, tear_down),
        cmocka_unit_test(test_updates),
        cmocka_unit_test_setup_teardown(test_text, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
