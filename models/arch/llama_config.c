/* SPDX-License-Identifier: Apache-2.0
 * Reads, writes and checks config.json of the Llama family. */
#include "models/arch/llama_config.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* ---- Keys and defaults ----------------------------------------------------------------------------------- */

#define KEY(name) #name, offsetof(llama_config, name)
#define BASE(name, field) #name, offsetof(llama_config, base.field)

static const char *const activations[] = {"silu"};

/* Keys that all types have. The bounds keep all products of sizes within int64. */
#define COMMON_KEYS                                                                                                \
    {BASE(vocab_size, vocab_size), TX_KEY_INT, .min = 1, .max = 1 << 30},                                          \
        {KEY(max_position_embeddings), TX_KEY_INT, .min = 1, .max = 1 << 24},                                      \
        {BASE(hidden_size, width), TX_KEY_INT, .min = 1, .max = 1 << 20},                                          \
        {BASE(num_hidden_layers, layers), TX_KEY_INT, .min = 1, .max = TX_LLAMA_LAYERS},                           \
        {BASE(num_attention_heads, heads), TX_KEY_INT, .min = 1, .max = 1 << 16},                                  \
        {KEY(num_key_value_heads), TX_KEY_INT_OR_NULL, .min = 1, .max = 1 << 16},                                  \
        {KEY(intermediate_size), TX_KEY_INT, .min = 1, .max = 1 << 22},                                            \
        {BASE(bos_token_id, bos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},                        \
        {BASE(eos_token_id, eos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},                        \
        {KEY(hidden_act), TX_KEY_CHOICE, .words = activations},                                                    \
        {KEY(rms_norm_eps), TX_KEY_NUMBER, .min = 1e-12, .max = 1},                                                \
        {KEY(initializer_range), TX_KEY_NUMBER, .max = 10}, {KEY(attention_dropout), TX_KEY_NUMBER, .max = 0.999}, \
    {                                                                                                              \
        KEY(tie_word_embeddings), TX_KEY_BOOL, .min = 0                                                            \
    }
#define HEAD_DIM_KEY                                                      \
    {                                                                     \
        KEY(head_dim), TX_KEY_INT_OR_NULL, .min = 2, .max = TX_MAX_ROTARY \
    }
#define WINDOW_KEY                                                        \
    {                                                                     \
        KEY(sliding_window), TX_KEY_INT_OR_NULL, .min = 1, .max = 1 << 24 \
    }

#define QWEN_WINDOW_KEYS                                          \
    WINDOW_KEY, {KEY(use_sliding_window), TX_KEY_BOOL, .min = 0}, \
    {                                                             \
        KEY(max_window_layers), TX_KEY_INT, .max = 1 << 12        \
    }

const tx_config_key tx_llama_keys[] = {
    COMMON_KEYS,    HEAD_DIM_KEY, {KEY(attention_bias), TX_KEY_BOOL, .min = 0}, {KEY(mlp_bias), TX_KEY_BOOL, .min = 0},
    {.name = NULL},
};
const tx_config_key tx_mistral_keys[] = {COMMON_KEYS, HEAD_DIM_KEY, WINDOW_KEY, {.name = NULL}};
const tx_config_key tx_qwen2_keys[] = {
    COMMON_KEYS,
    QWEN_WINDOW_KEYS,
    {.name = NULL},
};

const tx_config_key tx_qwen3_keys[] = {
    COMMON_KEYS, HEAD_DIM_KEY, QWEN_WINDOW_KEYS, {KEY(attention_bias), TX_KEY_BOOL, .min = 0}, {.name = NULL},
};

/* The keys use the names in files; the number of experts has two names. */
#define EXPERTS_KEYS(name_of_count, second_name)                                                                       \
    {name_of_count, offsetof(llama_config, num_experts), TX_KEY_INT, .min = 1, .max = 1 << 12, .second = second_name}, \
        {KEY(num_experts_per_tok), TX_KEY_INT, .min = 1, .max = 1 << 12},                                              \
        {KEY(output_router_logits), TX_KEY_BOOL, .min = 0},                                                            \
    {                                                                                                                  \
        KEY(router_aux_loss_coef), TX_KEY_NUMBER, .max = 1e6                                                           \
    }
#define QWEN_EXPERTS_KEYS                                                                           \
    EXPERTS_KEYS("num_experts", "num_local_experts"), {KEY(norm_topk_prob), TX_KEY_BOOL, .min = 0}, \
        {KEY(decoder_sparse_step), TX_KEY_INT, .min = 1, .max = TX_LLAMA_LAYERS},                   \
    {                                                                                               \
        KEY(moe_intermediate_size), TX_KEY_INT, .min = 1, .max = 1 << 22                            \
    }
const tx_config_key tx_mixtral_keys[] = {
    COMMON_KEYS,
    HEAD_DIM_KEY,
    WINDOW_KEY,
    EXPERTS_KEYS("num_local_experts", "num_experts"),
    {KEY(router_jitter_noise), TX_KEY_NUMBER, .max = 1},
    {.name = NULL},
};
const tx_config_key tx_qwen2_moe_keys[] = {
    COMMON_KEYS,
    QWEN_EXPERTS_KEYS,
    {KEY(shared_expert_intermediate_size), TX_KEY_INT, .min = 1, .max = 1 << 22},
    {KEY(qkv_bias), TX_KEY_BOOL, .min = 0},
    {.name = NULL},
};
const tx_config_key tx_qwen3_moe_keys[] = {
    COMMON_KEYS, HEAD_DIM_KEY, QWEN_EXPERTS_KEYS, {KEY(attention_bias), TX_KEY_BOOL, .min = 0}, {.name = NULL},
};

/* transformers' defaults. */
#define SIZES(row, vocab, positions_, width_, layers_, heads_, bos, eos) \
    .base = {.architecture = &(row),                                     \
             .vocab_size = (vocab),                                      \
             .width = (width_),                                          \
             .layers = (layers_),                                        \
             .heads = (heads_),                                          \
             .bos_token_id = (bos),                                      \
             .eos_token_id = (eos)},                                     \
    .max_position_embeddings = (positions_)
#define REST(inner, heads_of_kv, eps, theta_)                                                  \
    .intermediate_size = (inner), .num_key_value_heads = (heads_of_kv), .rms_norm_eps = (eps), \
    .initializer_range = 0.02, .rope = {.theta = (theta_), .factor = 1, .attention = 1}
#define DEFAULTS(row, vocab, positions, inner, heads_of_kv, bos, eos) \
    SIZES(row, vocab, positions, 4096, 32, 32, bos, eos), REST(inner, heads_of_kv, 1e-6, 1e4)

const llama_config tx_llama_defaults = {DEFAULTS(tx_llama, 32000, 2048, 11008, 0, 1, 2)};
const llama_config tx_mistral_defaults = {DEFAULTS(tx_mistral, 32000, 131072, 14336, 8, 1, 2),
                                          .use_sliding_window = true, .sliding_window = 4096};
const llama_config tx_qwen2_defaults = {DEFAULTS(tx_qwen2, 151936, 32768, 22016, 32, -1, -1), .qkv_bias = true,
                                        .sliding_window = 4096, .max_window_layers = 28};

const llama_config tx_qwen3_defaults = {DEFAULTS(tx_qwen3, 151936, 32768, 22016, 32, -1, -1), .head_dim = 128,
                                        .sliding_window = 4096, .max_window_layers = 28, .head_norms = true};

#define EXPERTS_DEFAULTS(all, chosen)                                                                     \
    .has_experts = true, .num_experts = (all), .num_experts_per_tok = (chosen), .decoder_sparse_step = 1, \
    .router_aux_loss_coef = 0.001

const llama_config tx_mixtral_defaults = {SIZES(tx_mixtral, 32000, 131072, 4096, 32, 32, 1, 2),
                                          REST(14336, 8, 1e-5, 1e6),
                                          .use_sliding_window = true,
                                          EXPERTS_DEFAULTS(8, 2),
                                          .norm_topk_prob = true,
                                          .mixtral_names = true};
#define QWEN_MOE_DEFAULTS(row, heads, inner, heads_of_kv) \
    SIZES(row, 151936, 32768, 2048, 24, heads, -1, -1), REST(inner, heads_of_kv, 1e-6, 1e4), .qwen_names = true
const llama_config tx_qwen2_moe_defaults = {
    QWEN_MOE_DEFAULTS(tx_qwen2_moe, 16, 5632, 16), EXPERTS_DEFAULTS(60, 4), .moe_intermediate_size = 1408,
    .shared_expert_intermediate_size = 5632,       .shared_expert = true,   .qkv_bias = true};
const llama_config tx_qwen3_moe_defaults = {QWEN_MOE_DEFAULTS(tx_qwen3_moe, 32, 6144, 4), EXPERTS_DEFAULTS(128, 8),
                                            .moe_intermediate_size = 768, .head_norms = true};

/* transformers derives "layer_types" from the other keys. A list that contradicts them is refused, because TX would
 * ignore it. */
static tx_status check_layer_types(const tx_json *json, const llama_config *c)
{
    tx_json *types;
    const char *type;
    if (!tx_json_has(json, "layer_types"))
        return TX_OK;
    TX_TRY(tx_json_get(json, "layer_types", TX_JSON_ARRAY, &types));
    for (size_t i = 0; i < tx_json_size(types); i++) {
        TX_TRY(tx_json_as_string(tx_json_at(types, i), "layer_types", &type));
        if (strcmp(type, window_of(c, (int64_t)i) ? "sliding_attention" : "full_attention") != 0)
            return tx_fail(TX_UNSUPPORTED,
                           "layer_types: \"%.40s\" of layer %zu contradicts use_sliding_window, sliding_window and "
                           "max_window_layers; other lists are not implemented",
                           type, i);
    }
    return TX_OK;
}

/* null means an empty list. */
static tx_status read_dense_layers(const tx_json *json, llama_config *c)
{
    tx_json *list;
    int64_t layer;
    memset(c->dense, 0, sizeof c->dense);
    if (!tx_json_has(json, "mlp_only_layers"))
        return TX_OK;
    TX_TRY(tx_json_get(json, "mlp_only_layers", TX_JSON_ARRAY, &list));
    for (size_t i = 0; i < tx_json_size(list); i++) {
        TX_TRY(tx_json_as_int(tx_json_at(list, i), "mlp_only_layers", 0, TX_LLAMA_LAYERS - 1, &layer));
        c->dense[layer / 64] |= UINT64_C(1) << layer % 64;
    }
    return TX_OK;
}

tx_status tx_llama_read(const tx_json *json, tx_config *config)
{
    const tx_architecture *row = config->architecture;
    llama_config *c = (llama_config *)config;
    if (row != &tx_qwen2_moe)
        c->qkv_bias = c->attention_bias || row == &tx_qwen2;
    TX_TRY(tx_rope_read(json, c->max_position_embeddings, &c->rope));
    config->positions = tx_rope_positions(&c->rope, c->max_position_embeddings);
    if (c->qwen_names)
        TX_TRY(read_dense_layers(json, c));
    return row == &tx_qwen2 || row == &tx_qwen3 || c->qwen_names ? check_layer_types(json, c) : TX_OK;
}

tx_status tx_llama_write(const tx_config *config, tx_json *json)
{
    return tx_rope_write(&llama_of(config)->rope, json);
}

tx_status tx_llama_check(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    if (!c->head_dim && config->width % config->heads != 0)
        return tx_fail(TX_INVALID, "hidden_size: %" PRId64 " is not a multiple of num_attention_heads, %" PRId64,
                       config->width, config->heads);
    if (config->heads % kv_heads(c) != 0)
        return tx_fail(TX_INVALID,
                       "num_attention_heads: %" PRId64 " is not a multiple of num_key_value_heads, %" PRId64,
                       config->heads, kv_heads(c));
    if (head_size(c) % 2 != 0 || head_size(c) > TX_MAX_ROTARY)
        return tx_fail(TX_INVALID, "head_dim: %" PRId64 " must be even and at most %d", head_size(c), TX_MAX_ROTARY);
    if (c->has_experts && config->layers > TX_LLAMA_EXPERT_LAYERS)
        return tx_fail(TX_UNSUPPORTED,
                       "num_hidden_layers: %" PRId64 " is more than %d, the limit for models with experts",
                       config->layers, TX_LLAMA_EXPERT_LAYERS);
    if (c->num_experts_per_tok > c->num_experts)
        return tx_fail(TX_INVALID, "num_experts_per_tok: %" PRId64 " is more than the number of experts, %" PRId64,
                       c->num_experts_per_tok, c->num_experts);
    if (c->router_jitter_noise > 0)
        return tx_fail(TX_UNSUPPORTED, "router_jitter_noise: %g is not implemented, only 0", c->router_jitter_noise);
    return tx_rope_check(&c->rope, head_size(c));
}
