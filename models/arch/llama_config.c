/* SPDX-License-Identifier: Apache-2.0
 * Reads, writes and checks config.json of the Llama family. */
#include "models/arch/llama_family.h"

#include <inttypes.h>
#include <string.h>

/* ---- Keys and defaults ----------------------------------------------------------------------------------- */

const char *const tx_llama_activations[] = {
    [TX_LLAMA_SILU] = "silu",         [TX_LLAMA_GELU_TANH] = "gelu_pytorch_tanh", [TX_LLAMA_GELU] = "gelu",
    [TX_LLAMA_GELU_NEW] = "gelu_new", [TX_LLAMA_GELU_FAST] = "gelu_fast",         [TX_LLAMA_RELU2] = "relu2",
    [TX_LLAMA_RELU] = "relu"};

#define QWEN_WINDOW_KEYS                                   \
    WINDOW_KEY, FLAG(use_sliding_window),                  \
    {                                                      \
        KEY(max_window_layers), TX_KEY_INT, .max = 1 << 12 \
    }

const tx_config_key tx_llama_keys[] = {
    COMMON_KEYS, HEAD_DIM_KEY, FLAG(attention_bias), FLAG(mlp_bias), {.name = NULL},
};
const tx_config_key tx_mistral_keys[] = {COMMON_KEYS, HEAD_DIM_KEY, WINDOW_KEY, {.name = NULL}};
const tx_config_key tx_qwen2_keys[] = {
    COMMON_KEYS,
    QWEN_WINDOW_KEYS,
    {.name = NULL},
};

const tx_config_key tx_qwen3_keys[] = {
    COMMON_KEYS, HEAD_DIM_KEY, QWEN_WINDOW_KEYS, FLAG(attention_bias), {.name = NULL},
};

#define QWEN_EXPERTS_KEYS                                                         \
    EXPERTS_KEYS("num_experts", "num_local_experts"), FLAG(norm_topk_prob),       \
        {KEY(decoder_sparse_step), TX_KEY_INT, .min = 1, .max = TX_LLAMA_LAYERS}, \
    {                                                                             \
        KEY(moe_intermediate_size), TX_KEY_INT, .min = 1, .max = 1 << 22          \
    }
const tx_config_key tx_mixtral_keys[] = {
    COMMON_KEYS,
    HEAD_DIM_KEY,
    WINDOW_KEY,
    EXPERTS_KEYS("num_local_experts", "num_experts"),
    NUMBER(router_jitter_noise, 1),
    {.name = NULL},
};
const tx_config_key tx_qwen2_moe_keys[] = {
    COMMON_KEYS,    QWEN_EXPERTS_KEYS, {KEY(shared_expert_intermediate_size), TX_KEY_INT, .min = 1, .max = 1 << 22},
    FLAG(qkv_bias), {.name = NULL},
};
const tx_config_key tx_qwen3_moe_keys[] = {
    COMMON_KEYS, HEAD_DIM_KEY, QWEN_EXPERTS_KEYS, FLAG(attention_bias), {.name = NULL},
};

/* transformers' defaults. */
#define DEFAULTS(row, vocab, positions, inner, heads_of_kv, bos, eos) \
    SIZES(row, tx_llama_rows, vocab, positions, 4096, 32, 32, bos, eos), REST(inner, heads_of_kv, 1e-6, 1e4)

const llama_config tx_llama_defaults = {DEFAULTS(tx_llama, 32000, 2048, 11008, 0, 1, 2)};
const llama_config tx_mistral_defaults = {DEFAULTS(tx_mistral, 32000, 131072, 14336, 8, 1, 2),
                                          .use_sliding_window = true, .sliding_window = 4096};
const llama_config tx_qwen2_defaults = {DEFAULTS(tx_qwen2, 151936, 32768, 22016, 32, -1, -1), .qkv_bias = true,
                                        .sliding_window = 4096, .max_window_layers = 28};

const llama_config tx_qwen3_defaults = {DEFAULTS(tx_qwen3, 151936, 32768, 22016, 32, -1, -1), .head_dim = 128,
                                        .sliding_window = 4096, .max_window_layers = 28, .head_norms = true};

const llama_config tx_mixtral_defaults = {SIZES(tx_mixtral, tx_llama_rows, 32000, 131072, 4096, 32, 32, 1, 2),
                                          REST(14336, 8, 1e-5, 1e6),
                                          .use_sliding_window = true,
                                          EXPERTS_DEFAULTS(8, 2),
                                          .norm_topk_prob = true,
                                          .mixtral_names = true};
#define QWEN_MOE_DEFAULTS(row, heads, inner, heads_of_kv)                                                   \
    SIZES(row, tx_llama_rows, 151936, 32768, 2048, 24, heads, -1, -1), REST(inner, heads_of_kv, 1e-6, 1e4), \
        .qwen_names = true
const llama_config tx_qwen2_moe_defaults = {
    QWEN_MOE_DEFAULTS(tx_qwen2_moe, 16, 5632, 16), EXPERTS_DEFAULTS(60, 4), .moe_intermediate_size = 1408,
    .shared_expert_intermediate_size = 5632,       .shared_expert = true,   .qkv_bias = true};
const llama_config tx_qwen3_moe_defaults = {QWEN_MOE_DEFAULTS(tx_qwen3_moe, 32, 6144, 4), EXPERTS_DEFAULTS(128, 8),
                                            .moe_intermediate_size = 768, .head_norms = true};

tx_status tx_llama_read_layer_types(const tx_json *json, llama_config *c)
{
    tx_json *types;
    const char *type;
    if (!tx_json_has(json, "layer_types"))
        return TX_OK;
    TX_TRY(tx_json_get(json, "layer_types", TX_JSON_ARRAY, &types));
    if (tx_json_size(types) > TX_LLAMA_LAYERS || tx_json_size(types) < (size_t)c->base.layers)
        return tx_fail(TX_INVALID, "layer_types: %zu types, but num_hidden_layers is %" PRId64, tx_json_size(types),
                       c->base.layers);
    c->layer_types = (tx_layer_set){.listed = true};
    for (size_t i = 0; i < tx_json_size(types); i++) {
        TX_TRY(tx_json_as_string(tx_json_at(types, i), "layer_types", &type));
        const bool slides = strcmp(type, "sliding_attention") == 0;
        if (!slides && strcmp(type, "full_attention") != 0)
            return tx_fail(TX_UNSUPPORTED, "layer_types: \"%.40s\" is not one of full_attention, sliding_attention",
                           type);
        if (slides && !(c->use_sliding_window && c->sliding_window))
            return tx_fail(TX_UNSUPPORTED,
                           "layer_types: layer %zu has \"sliding_attention\", but use_sliding_window or sliding_window "
                           "says that there is no window",
                           i);
        if (slides)
            add_layer(&c->layer_types, (int64_t)i);
    }
    return TX_OK;
}

/* null means an empty list. */
static tx_status read_dense_layers(const tx_json *json, llama_config *c)
{
    tx_json *list;
    int64_t layer;
    c->dense = (tx_layer_set){.listed = true};
    if (!tx_json_has(json, "mlp_only_layers"))
        return TX_OK;
    TX_TRY(tx_json_get(json, "mlp_only_layers", TX_JSON_ARRAY, &list));
    for (size_t i = 0; i < tx_json_size(list); i++) {
        TX_TRY(tx_json_as_int(tx_json_at(list, i), "mlp_only_layers", 0, TX_LLAMA_LAYERS - 1, &layer));
        add_layer(&c->dense, layer);
    }
    return TX_OK;
}

/* null and -1 mean that there is none. */
static tx_status read_padding(const tx_json *json, llama_config *c)
{
    int64_t id = -1;
    if (!tx_json_find(json, "pad_token_id"))
        return TX_OK;
    TX_TRY(TX_JSON_OPTIONAL(int, json, "pad_token_id", -1, 1 << 30, &id));
    c->padding = id + 1;
    return TX_OK;
}

/* Reads the settings of one kind of layers, if there are any. */
static tx_status read_rope_of(const tx_json *ropes, const char *kind, const tx_json *json, int64_t positions,
                              tx_rope_config *rope)
{
    tx_json *settings;
    if (!tx_json_has(ropes, kind))
        return TX_OK;
    TX_TRY(tx_json_get(ropes, kind, TX_JSON_OBJECT, &settings));
    return tx_fail_in(tx_rope_read_settings(settings, json, positions, rope), "rope_parameters: %s", kind);
}

tx_status tx_llama_read_ropes(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    tx_json *ropes;
    if (!tx_json_has(json, "rope_parameters"))
        return TX_OK;
    TX_TRY(tx_json_get(json, "rope_parameters", TX_JSON_OBJECT, &ropes));
    TX_TRY(read_rope_of(ropes, "full_attention", json, c->max_position_embeddings, &c->rope));
    TX_TRY(read_rope_of(ropes, "sliding_attention", json, c->max_position_embeddings, &c->local_rope));
    config->positions = tx_rope_positions(&c->rope, c->max_position_embeddings);
    return TX_OK;
}

static bool has_key(const tx_config *config, size_t offset)
{
    const tx_config_key *key = config->architecture->keys;
    while (key->name && key->offset != offset)
        key++;
    return key->name;
}

tx_status tx_llama_read(const tx_json *json, tx_config *config)
{
    const tx_config *row = config->architecture->defaults; /* of all heads of a type */
    llama_config *c = (llama_config *)config;
    if (!has_key(config, offsetof(llama_config, qkv_bias)))
        c->qkv_bias = c->attention_bias || row == tx_qwen2.defaults;
    TX_TRY(read_padding(json, c));
    TX_TRY(tx_rope_read(json, c->max_position_embeddings, &c->rope));
    config->positions = tx_rope_positions(&c->rope, c->max_position_embeddings);
    if (c->qwen_names)
        TX_TRY(read_dense_layers(json, c));
    if (tx_arch_classifies(config))
        TX_TRY(tx_labels_read(json, config));
    return row == tx_qwen2.defaults || row == tx_qwen3.defaults || c->qwen_names ? tx_llama_read_layer_types(json, c)
                                                                                 : TX_OK;
}

tx_status tx_llama_read_unpadded(const tx_json *json, tx_config *config)
{
    TX_TRY(tx_llama_read(json, config));
    ((llama_config *)config)->padding = 0;
    return TX_OK;
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
    if (c->interleaved_rope && c->rope.partial && c->rope.rotated < 1 && c->rope.attention != 1)
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: yarn and longrope in a part of each head are not implemented "
                                       "for this model type");
    if (c->has_local_rope && (c->local_rope.type == TX_ROPE_DYNAMIC || c->local_rope.type == TX_ROPE_LONGROPE))
        return tx_fail(TX_UNSUPPORTED, "sliding_attention: rope_type dynamic and longrope are not implemented");
    if (c->has_local_rope)
        TX_TRY(tx_rope_check(&c->local_rope, head_size(c)));
    return tx_rope_check(&c->rope, head_size(c));
}
