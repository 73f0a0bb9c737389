/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-R and Aya (Cohere, 2024): attention and MLP in parallel after one layer norm without a bias, rotary pairs of
 * adjacent elements, and scaled logits. Command-A and Command-R7B (2024, 2025): three of four layers have a window and
 * rotary positions, the others neither. Command-A+ (2026) has experts instead of most MLPs. */
#include "models/arch/llama_family.h"

#include <string.h>

static const tx_stack_row rows[] = {EMBED_ROW,
                                    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
                                    SEPARATE_QKV_ROWS,
                                    EACH_NORM_ROWS("q_norm", "k_norm", IF(norms.each)),
                                    O_ROWS,
                                    SEPARATE_MLP_ROWS,
                                    LAST_ROWS};

#define COHERE_KEYS SIZE_KEYS, KV_HEADS_KEY, EPS_KEY(layer_norm_eps), ONE_ACT_KEY(hidden_act, TX_LLAMA_SILU), BIAS_KEY
static const tx_config_key keys[] = {COHERE_KEYS, FLAG(use_qk_norm, norms.each), {.name = NULL}};
static const tx_config_key cohere2_keys[] = {
    COHERE_KEYS, WINDOW_KEY, SIZE(sliding_window_pattern, attention.window_period, TX_LLAMA_LAYERS), {.name = NULL}};
/* Keys of published files that transformers does not read. */
static const tx_fixed_key cohere2_fixed[] = {
    {"use_parallel_block", "true", "attention before the MLP is not implemented"},
    {"use_gated_activation", "true", "an MLP without a gate is not implemented"},
    {"use_qk_norm", "false", "norms of q and k of this model type are not implemented"},
    {"position_embedding_type", "rope_gptj", "other positions are not implemented"},
    {"order_of_interleaved_layers", "local_attn_first", "other orders are not implemented"},
    {.name = NULL}};

#define DEFAULTS(row, theta)                                                                  \
    SIZES(row, rows, 256000, 8192, 8192, 40, 64, 5, 255001), REST(22528, 0, 1e-5, theta),     \
        .padding = 1, .logits.divisor = 16, .residual.parallel = true, .norms.centred = true, \
        .positions.interleaved = true, .tie_word_embeddings = true
static const llama_config defaults = {DEFAULTS(tx_cohere, 5e5)};
static const llama_config cohere2_defaults = {DEFAULTS(tx_cohere2, 1e4), .attention.windowed = true,
                                              .attention.window = 4096, .attention.window_period = 4,
                                              .positions.only_windows = true};

/* The file has the inverse. */
static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    double scale = 1 / c->logits.divisor;
    TX_TRY(TX_JSON_OPTIONAL(number, json, "logit_scale", 1e-9, 1e9, &scale));
    c->logits.divisor = 1 / scale;
    return tx_llama_read(json, config);
}

static tx_status write(const tx_config *config, tx_json *json)
{
    TX_TRY(tx_json_set_number(json, "logit_scale", 1 / llama_of(config)->logits.divisor));
    return tx_llama_write(config, json);
}

static tx_status read_second(const tx_json *json, tx_config *config)
{
    TX_TRY(read(json, config));
    return tx_llama_read_layer_types(json, (llama_config *)config);
}

static tx_status check_windows(const tx_gguf_exported *e)
{
    return tx_llama_gguf_windows(e, 4);
}

#define GGUF_SCALE TX_GGUF_OWN_KEYS(TX_GGUF_NAMED("logit_scale", "logit_scale", NUMBER))
const tx_architecture tx_cohere2 = {
    FAMILY("cohere2", "Cohere2", cohere2_defaults, cohere2_keys, "q_proj,v_proj", read_second, write),
    .fixed = cohere2_fixed,
    CENTRED_GGUF("cohere2", GGUF_SCALE, TX_GGUF_FIXED({"attention_bias", false}, {"tie_word_embeddings", true}),
                 .check = check_windows)};

enum { NORMED = 64 }; /* the least number of layers of models with norms of heads */
static tx_status check_norms(const tx_gguf_exported *e)
{
    return llama_of(e->config)->norms.each == (e->config->layers >= NORMED)
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED,
                         "use_qk_norm: llama.cpp computes as if only models of at least %d layers had it", NORMED);
}

const tx_architecture tx_cohere = {FAMILY("cohere", "Cohere", defaults, keys, "q_proj,v_proj", read, write),
                                   CENTRED_GGUF("command-r", GGUF_SCALE,
                                                TX_GGUF_FIXED({"attention_bias", false}, {"tie_word_embeddings", true}),
                                                .check = check_norms)};

/* ---- Command-A+ ------------------------------------------------------------------------------------------- */

static const tx_stack_row moe_rows[] = {EMBED_ROW,
                                        {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
                                        SEPARATE_QKV_ROWS,
                                        O_ROWS,
                                        MLP_EXPERT_ROWS("mlp.gate.weight"),
                                        SHARED_EXPERTS_ROWS,
                                        DENSE_ROWS,
                                        LAST_ROWS};

/* intermediate_size is that of an expert. */
static const tx_config_key moe_keys[] = {
    NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads),
    SIZE(intermediate_size, experts.inner, 1 << 22),
    SIZE_OR_NULL(prefix_dense_intermediate_size, mlp.inner, 1 << 22),
    NUMBER(initializer_range, initializer_range, 10),
    NUMBER(attention_dropout, attention.dropout, 0.999),
    KV_HEADS_KEY,
    HEAD_DIM_KEY,
    ONE_ACT_KEY(hidden_act, TX_LLAMA_SILU),
    BIAS_KEY,
    WINDOW_KEY,
    SIZE(num_experts, experts.count, 1 << 12),
    SIZE(num_experts_per_tok, experts.chosen, 1 << 12),
    WHOLE(num_shared_experts, experts.shared, 0, 1 << 12),
    FLAG(norm_topk_prob, experts.normalise),
    {.name = NULL}};

static const llama_config moe_defaults = {
    SIZES(tx_cohere2_moe, moe_rows, 256000, 8192, 8192, 40, 64, 5, 255001),
    REST(0, 0, 1e-5, 1e4),
    EXPERTS_DEFAULTS(8, 2, 0),
    .padding = 1,
    .tie_word_embeddings = true,
    .logits.divisor = 16,
    .residual.parallel = true,
    .positions.interleaved = true,
    .attention.head_dim = 128,
    .attention.windowed = true,
    .attention.window = 4096,
    .experts.inner = 22528,
    .experts.least = 1e-20,
    .experts.normalise = true,
};

/* Reads one of two words as a flag, which is set for the second. */
static tx_status read_flag(const tx_json *json, const char *key, const char *first, const char *second, bool *flag)
{
    const char *word = *flag ? second : first;
    TX_TRY(TX_JSON_OPTIONAL(string, json, key, &word));
    *flag = strcmp(word, second) == 0;
    return *flag || strcmp(word, first) == 0
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "%s: \"%.40s\" is not one of %s, %s", key, word, first, second);
}

/* Layers with the window: all but each n-th of the first, dense layers, and of the others. */
static tx_status read_moe_windows(const tx_json *json, int64_t dense, int64_t period, llama_config *c)
{
    int64_t others = 4;
    TX_TRY(TX_JSON_OPTIONAL(int, json, "sliding_window_pattern", 1, TX_LLAMA_LAYERS, &others));
    c->attention.windows = (tx_layer_set){.listed = true};
    for (int64_t i = 0; i < c->base.layers; i++)
        if (i < dense ? (i + 1) % period != 0 : (i - dense + 1) % others != 0)
            add_layer(&c->attention.windows, i);
    return tx_llama_read_layer_types(json, c);
}

/* Dense layers without the window have rotary positions only if this is so in all dense layers. */
static tx_status read_moe_layers(const tx_json *json, llama_config *c)
{
    int64_t dense = 0, period = 1;
    TX_TRY(TX_JSON_OPTIONAL(int, json, "first_k_dense_replace", 0, c->base.layers, &dense));
    TX_TRY(TX_JSON_OPTIONAL(int, json, "prefix_dense_sliding_window_pattern", 1, TX_LLAMA_LAYERS, &period));
    c->experts.first = dense;
    TX_TRY(read_moe_windows(json, dense, period, c));
    TX_TRY(tx_llama_read_mlp_types(json, c));
    c->positions.none = (tx_layer_set){.listed = true};
    for (int64_t i = 0; i < c->base.layers; i++)
        if (window_of(c, i) == 0 && !(period == 1 && is_dense(&c->base, i)))
            add_layer(&c->positions.none, i);
    return TX_OK;
}

static tx_status read_moe(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    const bool rms = tx_json_has(json, "rms_norm_eps");
    bool sum = false;
    TX_TRY(read(json, config));
    TX_TRY(TX_JSON_OPTIONAL(number, json, rms ? "rms_norm_eps" : "layer_norm_eps", 1e-12, 1, &c->norms.eps));
    TX_TRY(read_flag(json, "expert_selection_fn", "softmax", "sigmoid", &c->experts.sigmoid));
    TX_TRY(read_flag(json, "shared_expert_combination_strategy", "average", "sum", &sum));
    c->experts.averaged = !sum;
    c->norms.centred = !rms;
    c->experts.normalise = c->experts.normalise || !c->experts.sigmoid;
    if (!c->mlp.inner)
        c->mlp.inner = c->experts.inner;
    return read_moe_layers(json, c);
}

const tx_architecture tx_cohere2_moe = {
    FAMILY("cohere2_moe", "Cohere2Moe", moe_defaults, moe_keys, "q_proj,v_proj", read_moe, write)};
