/* SPDX-License-Identifier: Apache-2.0
 *
 * DeepSeek-V2 (2024) and DeepSeek-V3 (2024), with multi-head latent attention and experts of which some are shared;
 * Kimi K2 (2025), which is a DeepSeek-V3; and GLM-4.7-Flash (glm4_moe_lite, 2026), which has other sizes. Mistral 4
 * (2026) chooses experts by a softmax; its queries grow with their position as in Ministral 3. In DeepSeek-V3.2 (2025)
 * and GLM-5 (2026) an index chooses the positions that each one sees. Rows are at most as long as the number of these,
 * so that it chooses all. */
#include "models/arch/llama_family.h"
#include "models/gguf/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define OPENING EMBED_ROW, {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES}, LATENT_ROWS
#define POST_NORM_ROW                                                     \
    {                                                                     \
        POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES \
    }

static const tx_stack_row v2_rows[] = {
    OPENING, POST_NORM_ROW, MLP_EXPERT_ROWS("mlp.gate.weight"), SHARED_EXPERTS_ROWS, DENSE_ROWS, LAST_ROWS,
};
static const tx_stack_row v3_rows[] = {OPENING, POST_NORM_ROW, DEEPSEEK_MLP_ROWS, LAST_ROWS};

/* Files have the experts of a layer in two tensors. */
static const tx_stack_row mistral4_rows[] = {
    OPENING,
    POST_NORM_ROW,
    SOME_EXPERT_ROWS(LAYER "mlp.gate.weight", LAYER "mlp.experts.gate_up_proj", LAYER "mlp.experts.down_proj"),
    SHARED_EXPERTS_ROWS,
    DENSE_ROWS,
    LAST_ROWS,
};

/* The index of DeepSeek-V3.2 is not trained, because all of its choices are the same. */
#define INDEX LAYER "self_attn.indexer."
#define INDEX_ROW(slot, name, ...)                                                       \
    {                                                                                    \
        slot, INDEX name, {__VA_ARGS__}, .in = has_index, .router = true, .frozen = true \
    }
static bool has_index(const tx_config *config, int64_t layer)
{
    return !has_layer(&llama_of(config)->latent.index_shared, layer);
}

static const tx_stack_row v32_rows[] = {
    OPENING,
    INDEX_ROW(INDEX_QUERY, "wq_b.weight", INDEX_QUERIES, LATENT_QUERY),
    INDEX_ROW(INDEX_KEY, "wk.weight", INDEX_SIZE, WIDTH),
    {INDEX_NORM, INDEX "k_norm.weight", {INDEX_SIZE}, ONES, .in = has_index, .frozen = true},
    {INDEX_NORM_BIAS, INDEX "k_norm.bias", {INDEX_SIZE}, ZEROS, .in = has_index, .frozen = true},
    INDEX_ROW(INDEX_WEIGHTS, "weights_proj.weight", INDEX_HEADS, WIDTH),
    POST_NORM_ROW,
    DEEPSEEK_MLP_ROWS,
    LAST_ROWS,
};

static const char *const groupings[] = {"greedy", "group_limited_greedy"};
static const tx_config_key v2_keys[] = {
    COMMON_KEYS,
    BIAS_KEY,
    LATENT_KEYS,
    SIZE_OR_NULL(n_group, experts.groups, TX_EXPERT_GROUPS),
    SIZE_OR_NULL(topk_group, experts.kept, TX_EXPERT_GROUPS),
    {KEY(topk_method, experts.grouping), TX_KEY_CHOICE, .max = 1, .words = groupings},
    SETTING(routed_scaling_factor, experts.scale, 1e-6, 1e6),
    WHOLE(first_k_dense_replace, experts.first, 0, TX_LLAMA_LAYERS),
    SIZE(num_experts_per_tok, experts.chosen, 1 << 12),
    SIZE(moe_intermediate_size, experts.inner, 1 << 22),
    SIZE_OF(n_routed_experts, "num_experts", experts.count, 1 << 12),
    WHOLE(n_shared_experts, experts.shared, 0, 1 << 12),
    {.name = NULL},
};
static const tx_config_key v3_keys[] = {
    COMMON_KEYS, BIAS_KEY, LATENT_KEYS, DEEPSEEK_KEYS, MTP_KEY, FLAG(rope_interleave, latent.pairs), {.name = NULL}};

static const tx_config_key mistral4_keys[] = {
    COMMON_KEYS, BIAS_KEY, LATENT_KEYS, DEEPSEEK_KEYS, FLAG(rope_interleave, latent.pairs), {.name = NULL}};

static const tx_config_key v32_keys[] = {COMMON_KEYS,
                                         BIAS_KEY,
                                         LATENT_KEYS,
                                         DEEPSEEK_KEYS,
                                         MTP_KEY,
                                         SIZE(index_topk, latent.index_most, 1 << 24),
                                         SIZE(index_n_heads, latent.index_heads, 1 << 12),
                                         SIZE(index_head_dim, latent.index_size, 1 << 12),
                                         {.name = NULL}};

#define OTHERS "others are not implemented, nor in transformers"
static const tx_fixed_key v2_fixed[] = {
    {"norm_topk_prob", "false", "transformers does not normalise the weights of this model type"},
    {"mlp_bias", "false", "biases of MLPs of this model type are not implemented"},
    {"scoring_func", "softmax", OTHERS},
    {.name = NULL}};
static const tx_fixed_key v3_fixed[] = {
    {"scoring_func", "sigmoid", OTHERS}, {"topk_method", "noaux_tc", OTHERS}, {.name = NULL}};

static const tx_fixed_key v32_fixed[] = {{"scoring_func", "sigmoid", OTHERS},
                                         {"topk_method", "noaux_tc", OTHERS},
                                         {"rope_interleave", "true", OTHERS},
                                         {"mlp_bias", "false", "biases of MLPs of this model type are not implemented"},
                                         {.name = NULL}};

static const llama_config v2_defaults = {SIZES(tx_deepseek_v2, v2_rows, 102400, 2048, 4096, 32, 32, 1, 2),
                                         REST(11008, 0, 1e-6, 1e4),
                                         LATENT_DEFAULTS(512, 1536, 128, 64, 128),
                                         EXPERTS_DEFAULTS(64, 6, 0),
                                         .experts.inner = 1407,
                                         .experts.shared = 2,
                                         .experts.best = 1,
                                         .experts.scale = 1};
#define V3_DEFAULTS(row)                                                                                             \
    SIZES(row, v3_rows, 129280, 4096, 7168, 61, 128, 0, 1), REST(18432, 0, 1e-6, 1e4),                               \
        .mtp_layers = 1, LATENT_DEFAULTS(512, 1536, 128, 64, 128), DEEPSEEK_DEFAULTS(256, 8, 1, 3, 2048, 8, 4, 2.5), \
        .experts.normalise = true
static const llama_config v3_defaults = {V3_DEFAULTS(tx_deepseek_v3)};
static const llama_config kimi_defaults = {V3_DEFAULTS(tx_kimi_k2)};
static const llama_config lite_defaults = {SIZES(tx_glm4_moe_lite, v3_rows, 154880, 202752, 2048, 47, 20, 0, 1),
                                           REST(10240, 0, 1e-5, 1e4),
                                           .mtp_layers = 1,
                                           LATENT_DEFAULTS(512, 768, 192, 64, 256),
                                           DEEPSEEK_DEFAULTS(64, 4, 1, 1, 1536, 1, 1, 1.8),
                                           .experts.normalise = true};

#define INDEX_DEFAULTS(heads_) .latent.index_most = 2048, .latent.index_heads = (heads_), .latent.index_size = 128
static const llama_config v32_defaults = {SIZES(tx_deepseek_v32, v32_rows, 129280, 163840, 7168, 61, 128, 0, 1),
                                          REST(18432, 128, 1e-6, 1e4),
                                          .mtp_layers = 1,
                                          LATENT_DEFAULTS(512, 1536, 128, 64, 128),
                                          INDEX_DEFAULTS(64),
                                          DEEPSEEK_DEFAULTS(256, 8, 1, 3, 2048, 8, 4, 2.5),
                                          .experts.normalise = true};
static const llama_config dsa_defaults = {SIZES(tx_glm_moe_dsa, v32_rows, 154880, 202752, 6144, 78, 64, 0, 1),
                                          REST(12288, 64, 1e-5, 1e4),
                                          .mtp_layers = 1,
                                          LATENT_DEFAULTS(512, 2048, 192, 64, 256),
                                          INDEX_DEFAULTS(32),
                                          DEEPSEEK_DEFAULTS(256, 8, 1, 3, 2048, 1, 1, 2.5),
                                          .experts.normalise = true};

/* Files without rope_parameters have those of the published model. */
static const llama_config mistral4_defaults = {SIZES(tx_mistral4, mistral4_rows, 131072, 1048576, 4096, 36, 32, 1, 2),
                                               REST_OF(12288, 32, 1e-6, 0.02, YARN_ROPE(1e4, 128, 8192)),
                                               .padding = 12,
                                               .attention.scale_growth = 0.1,
                                               LATENT_DEFAULTS(256, 1024, 64, 64, 128),
                                               EXPERTS_DEFAULTS(128, 4, 0),
                                               .experts.shared = 1,
                                               .experts.inner = 2048,
                                               .experts.grouping = 1,
                                               .experts.groups = 1,
                                               .experts.kept = 1,
                                               .experts.best = 2,
                                               .experts.least = 1e-20,
                                               .experts.scale = 1,
                                               .experts.normalise = true};

/* The scores are multiplied by the square of YaRN's temperature for "mscale_all_dim". */
static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    const char *key = tx_json_has(json, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    tx_json *settings;
    int64_t period = 1; /* of layers with experts */
    double all = 0;
    TX_TRY(TX_JSON_OPTIONAL(int, json, "moe_layer_freq", 1, 1, &period));
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(tx_llama_read_mlp_types(json, c));
    if (!tx_json_has(json, key) || c->positions.rope.type != TX_ROPE_YARN)
        return TX_OK;
    TX_TRY(tx_json_get(json, key, TX_JSON_OBJECT, &settings));
    TX_TRY(TX_JSON_OPTIONAL(number, settings, "mscale_all_dim", 0, 1e6, &all));
    const double temperature = c->positions.rope.factor > 1 ? 1 + 0.1 * all * log(c->positions.rope.factor) : 1;
    c->latent.sharpness = temperature * temperature;
    return TX_OK;
}

static tx_status read_v32(const tx_json *json, tx_config *config)
{
    const llama_config *c = llama_of(config);
    TX_TRY(read(json, config));
    if (c->latent.query_rank < 1)
        return tx_fail(TX_UNSUPPORTED, "q_lora_rank: queries without a latent are not implemented for this model type");
    if (config->positions > c->latent.index_most) {
        config->positions = c->latent.index_most;
        config->bound = "index_topk: attention to chosen positions is not implemented";
    }
    return TX_OK;
}

/* The layers with an index of their own: from a list, else from a text of F and S, else each `freq`-th. */
static tx_status read_dsa(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    const tx_layer_word words[] = {{"full", NULL}, {"shared", &c->latent.index_shared}, {NULL, NULL}};
    const char *pattern = "";
    int64_t period = 1, offset = 2;
    TX_TRY(read_v32(json, config));
    TX_TRY(TX_JSON_OPTIONAL(string, json, "index_topk_pattern", &pattern));
    TX_TRY(TX_JSON_OPTIONAL(int, json, "index_topk_freq", 1, TX_LLAMA_LAYERS, &period));
    TX_TRY(TX_JSON_OPTIONAL(int, json, "index_skip_topk_offset", 0, TX_LLAMA_LAYERS, &offset));
    if (tx_json_has(json, "indexer_types"))
        return tx_llama_read_words(json, "indexer_types", config->layers, words);
    if (pattern[0] && strlen(pattern) < (size_t)config->layers)
        return tx_fail(TX_INVALID, "index_topk_pattern: %zu layers, expected num_hidden_layers, %" PRId64,
                       strlen(pattern), config->layers);
    for (int64_t i = 0; i < config->layers; i++) {
        const int64_t after = i - offset + 1 > 0 ? i - offset + 1 : 0;
        if (pattern[0] ? pattern[i] == 'S' : after % period != 0)
            add_layer(&c->latent.index_shared, i);
    }
    return TX_OK;
}

/* The file's share of rotated elements is that of qk_rope_head_dim. */
static tx_status read_mistral4(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    c->positions.rope.partial = true;
    TX_TRY(read(json, config));
    c->positions.rope.partial = false;
    TX_TRY(tx_llama_read_growth(json, c));
    if (!tx_json_has(json, "rope_parameters"))
        c->latent.sharpness = pow(1 + 0.1 * log(c->positions.rope.factor), 2);
    return TX_OK;
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

/* llama.cpp's heads have the size of the cache: the latent and the part that rotates. All share one head of keys. */
static int64_t cached_key(const tx_config *config)
{
    return llama_of(config)->latent.rank + llama_of(config)->latent.rotated;
}

static int64_t cached_value(const tx_config *config)
{
    return llama_of(config)->latent.rank;
}

static int64_t key_size(const tx_config *config)
{
    return head_size(llama_of(config));
}

static int64_t value_size(const tx_config *config)
{
    return llama_of(config)->latent.value;
}

/* A file without a latent of queries has the name of plain ones. */
static void lay(const tx_config *config, const tx_stack_row *row, int32_t section, tx_gguf_layout *layout)
{
    const llama_config *c = llama_of(config);
    (void)section;
    if (row->slot == QUERY_UP && !c->latent.query_rank)
        memmove(strstr(layout->name, "_b."), ".weight", sizeof ".weight");
    if (row->slot != KV_UP)
        return;
    layout->form = TX_GGUF_LATENTS;
    layout->heads = config->heads;
    layout->keys = c->latent.plain;
    layout->values = c->latent.value;
    layout->shape = TX_SHAPE(config->heads, c->latent.rank, c->latent.plain);
}

#define YARN_MULTIPLIER "deepseek2.rope.scaling.yarn_log_multiplier" /* 0.1 times mscale_all_dim */
static void put(const tx_config *config, tx_gguf_writer *writer)
{
    const llama_config *c = llama_of(config);
    if (c->positions.rope.type == TX_ROPE_YARN)
        tx_gguf_put_number(writer, YARN_MULTIPLIER, (sqrt(c->latent.sharpness) - 1) / log(c->positions.rope.factor));
}

/* llama.cpp takes a model without a latent of queries for one of these sizes. */
static bool is_lite(const tx_config *config)
{
    return config->layers == 26 || config->layers == 27 || (config->layers == 48 && config->vocab_size == 128256);
}

static tx_status check(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    if ((c->latent.query_rank == 0) != is_lite(e->config))
        return tx_fail(TX_UNSUPPORTED,
                       "q_lora_rank: llama.cpp computes as if only models of 26 or 27 layers, or of 48 with 128256 "
                       "tokens, had none");
    if (c->positions.rope.type == TX_ROPE_YARN && !(c->latent.sharpness > 1))
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: llama.cpp computes as if yarn had mscale_all_dim");
    if (c->experts.shared < 1)
        return tx_fail(TX_UNSUPPORTED, "n_shared_experts: llama.cpp computes as if there were some");
    if (c->norms.eps != 1e-6)
        tx_reporter_print(e->report, "rms_norm_eps: llama.cpp uses it for norms of latents, too, so its logits differ");
    return tx_llama_gguf_check_experts(e);
}

/* Scores of yarn are multiplied as those of the rotary positions, so that both have one setting. */
static tx_status read_yarn(const tx_gguf_file *file, tx_json *json)
{
    tx_json *scaling;
    double multiplier;
    if (!tx_json_has(json, "rope_scaling") || !tx_gguf_has(file, YARN_MULTIPLIER))
        return TX_OK;
    TX_TRY(tx_gguf_get_number(file, YARN_MULTIPLIER, &multiplier));
    TX_TRY(tx_json_get(json, "rope_scaling", TX_JSON_OBJECT, &scaling));
    multiplier = round(multiplier * 1e7) / 1e6;
    TX_TRY(tx_json_set_number(scaling, "mscale", multiplier));
    return tx_json_set_number(scaling, "mscale_all_dim", multiplier);
}

static tx_status read_gguf(const tx_gguf_file *file, tx_json *json)
{
    int64_t heads;
    TX_TRY(tx_llama_gguf_read_experts(file, json));
    TX_TRY(read_yarn(file, json));
    TX_TRY(tx_json_get_int(json, "num_attention_heads", 1, 1 << 16, &heads));
    TX_TRY(tx_json_set_int(json, "num_key_value_heads", heads));
    TX_TRY(tx_llama_gguf_read_latent(file, "attention.key_length_mla", json));
    return tx_json_has(json, "q_lora_rank") ? TX_OK : tx_json_set_null(json, "q_lora_rank");
}

static tx_status read_v2_gguf(const tx_gguf_file *file, tx_json *json)
{
    int64_t groups = 1;
    TX_TRY(read_gguf(file, json));
    TX_TRY(TX_GGUF_OPTIONAL(int, file, "deepseek2.expert_group_count", 1, TX_EXPERT_GROUPS, &groups));
    return tx_json_set_string(json, "topk_method", groupings[groups > 1]);
}

#define CHOICE "exp_probs_b.bias" /* only DeepSeek-V3 has it */

#define DEEPSEEK_GGUF(function, ...)                                                                                  \
    GGUF("deepseek2", .latent = true,                                                                                 \
         TX_GGUF_OWN_KEYS(                                                                                            \
             {.key = "attention.head_count_kv", .kind = TX_GGUF_INT, .otherwise = TX_GGUF_CONSTANT, .constant = 1},   \
             {.key = "attention.key_length", .value = cached_key},                                                    \
             {.key = "attention.value_length", .value = cached_value},                                                \
             {.key = "attention.key_length_mla", .value = key_size},                                                  \
             {.key = "attention.value_length_mla", .name = "v_head_dim", .value = value_size},                        \
             TX_GGUF_MEMBER("attention.kv_lora_rank", offsetof(llama_config, latent.rank), INT, NOTHING),             \
             TX_GGUF_MEMBER("attention.q_lora_rank", offsetof(llama_config, latent.query_rank), INT, NOTHING),        \
             GGUF_ROUTING(function)),                                                                                 \
         TX_GGUF_FIXED({"attention_bias", false}, {"rope_interleave", true}), .check = check, .put = put, .lay = lay, \
         __VA_ARGS__)

/* peft has no default. Queries come from a latent or not. */
#define TARGETS ".*\\.(q_proj|q_a_proj|q_b_proj|kv_b_proj)"
#define DEEPSEEK(TYPE, CLASS, name) \
    FAMILY(TYPE, CLASS, name##_defaults, v3_keys, TARGETS, read, tx_llama_write), .fixed = v3_fixed

const tx_architecture tx_deepseek_v2 = {
    FAMILY("deepseek_v2", "DeepseekV2", v2_defaults, v2_keys, TARGETS, read, tx_llama_write), .fixed = v2_fixed,
    DEEPSEEK_GGUF(GGUF_SOFTMAX, .read = read_v2_gguf, .without = {CHOICE})};
const tx_architecture tx_deepseek_v3 = {DEEPSEEK("deepseek_v3", "DeepseekV3", v3),
                                        DEEPSEEK_GGUF(GGUF_SIGMOID, .read = read_gguf, .with = CHOICE)};
const tx_architecture tx_kimi_k2 = {DEEPSEEK("kimi_k2", "DeepseekV3", kimi),
                                    DEEPSEEK_GGUF(GGUF_SIGMOID, .export_only = true)};
const tx_architecture tx_glm4_moe_lite = {DEEPSEEK("glm4_moe_lite", "Glm4MoeLite", lite),
                                          DEEPSEEK_GGUF(GGUF_SIGMOID, .export_only = true)};
#define INDEXED(TYPE, CLASS, name, READ) \
    FAMILY(TYPE, CLASS, name##_defaults, v32_keys, TARGETS, READ, tx_llama_write), .fixed = v32_fixed
const tx_architecture tx_deepseek_v32 = {INDEXED("deepseek_v32", "DeepseekV32", v32, read_v32)};
const tx_architecture tx_glm_moe_dsa = {INDEXED("glm_moe_dsa", "GlmMoeDsa", dsa, read_dsa)};
const tx_architecture tx_mistral4 = {
    FAMILY("mistral4", "Mistral4", mistral4_defaults, mistral4_keys, TARGETS, read_mistral4, tx_llama_write)};
