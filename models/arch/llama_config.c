/* SPDX-License-Identifier: Apache-2.0
 * Reads, writes and checks config.json of the Llama family. */
#include "models/arch/llama_family.h"

#include <inttypes.h>
#include <string.h>

const char *const tx_llama_activations[] = {
    [TX_LLAMA_SILU] = "silu",         [TX_LLAMA_GELU_TANH] = "gelu_pytorch_tanh", [TX_LLAMA_GELU] = "gelu",
    [TX_LLAMA_GELU_NEW] = "gelu_new", [TX_LLAMA_GELU_FAST] = "gelu_fast",         [TX_LLAMA_RELU2] = "relu2",
    [TX_LLAMA_RELU] = "relu"};

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
    c->attention.windows = (tx_layer_set){.listed = true};
    for (size_t i = 0; i < tx_json_size(types); i++) {
        TX_TRY(tx_json_as_string(tx_json_at(types, i), "layer_types", &type));
        const bool slides = strcmp(type, "sliding_attention") == 0;
        if (!slides && strcmp(type, "full_attention") != 0)
            return tx_fail(TX_UNSUPPORTED, "layer_types: \"%.40s\" is not one of full_attention, sliding_attention",
                           type);
        if (slides && !(c->attention.windowed && c->attention.window))
            return tx_fail(TX_UNSUPPORTED,
                           "layer_types: layer %zu has \"sliding_attention\", but use_sliding_window or sliding_window "
                           "says that there is no window",
                           i);
        if (slides)
            add_layer(&c->attention.windows, (int64_t)i);
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
    TX_TRY(read_rope_of(ropes, "full_attention", json, c->max_position_embeddings, &c->positions.rope));
    TX_TRY(read_rope_of(ropes, "sliding_attention", json, c->max_position_embeddings, &c->positions.local));
    config->positions = tx_rope_positions(&c->positions.rope, c->max_position_embeddings);
    return TX_OK;
}

tx_status tx_llama_read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    if (!tx_config_key_at(config->architecture, offsetof(llama_config, attention.qkv_bias)))
        c->attention.qkv_bias = c->attention.bias || llama_of(config->architecture->defaults)->attention.qkv_bias;
    TX_TRY(read_padding(json, c));
    TX_TRY(tx_rope_read(json, c->max_position_embeddings, &c->positions.rope));
    config->positions = tx_rope_positions(&c->positions.rope, c->max_position_embeddings);
    return tx_arch_classifies(config) ? tx_labels_read(json, config) : TX_OK;
}

tx_status tx_llama_read_windows(const tx_json *json, tx_config *config)
{
    TX_TRY(tx_llama_read(json, config));
    return tx_llama_read_layer_types(json, (llama_config *)config);
}

tx_status tx_llama_read_unpadded(const tx_json *json, tx_config *config)
{
    TX_TRY(tx_llama_read(json, config));
    ((llama_config *)config)->padding = 0;
    return TX_OK;
}

tx_status tx_llama_write(const tx_config *config, tx_json *json)
{
    const llama_config *c = llama_of(config);
    return c->positions.learned || c->positions.alibi ? TX_OK : tx_rope_write(&c->positions.rope, json);
}

tx_status tx_llama_check(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    if (!c->attention.head_dim && config->width % config->heads != 0)
        return tx_fail(TX_INVALID, "hidden_size: %" PRId64 " is not a multiple of num_attention_heads, %" PRId64,
                       config->width, config->heads);
    if (config->heads % kv_heads(c) != 0)
        return tx_fail(TX_INVALID,
                       "num_attention_heads: %" PRId64 " is not a multiple of num_key_value_heads, %" PRId64,
                       config->heads, kv_heads(c));
    if (head_size(c) % 2 != 0 || head_size(c) > TX_MAX_ROTARY)
        return tx_fail(TX_INVALID, "head_dim: %" PRId64 " must be even and at most %d", head_size(c), TX_MAX_ROTARY);
    if (c->experts.count > 0 && config->layers > TX_LLAMA_EXPERT_LAYERS)
        return tx_fail(TX_UNSUPPORTED,
                       "num_hidden_layers: %" PRId64 " is more than %d, the limit for models with experts",
                       config->layers, TX_LLAMA_EXPERT_LAYERS);
    if (c->experts.chosen > c->experts.count)
        return tx_fail(TX_INVALID, "num_experts_per_tok: %" PRId64 " is more than the number of experts, %" PRId64,
                       c->experts.chosen, c->experts.count);
    if (c->experts.jitter > 0)
        return tx_fail(TX_UNSUPPORTED, "router_jitter_noise: %g is not implemented, only 0", c->experts.jitter);
    if (c->positions.interleaved && c->positions.rope.partial && c->positions.rope.rotated < 1 &&
        c->positions.rope.attention != 1)
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: yarn and longrope in a part of each head are not implemented "
                                       "for this model type");
    if (c->positions.has_local &&
        (c->positions.local.type == TX_ROPE_DYNAMIC || c->positions.local.type == TX_ROPE_LONGROPE))
        return tx_fail(TX_UNSUPPORTED, "sliding_attention: rope_type dynamic and longrope are not implemented");
    if (c->positions.has_local)
        TX_TRY(tx_rope_check(&c->positions.local, head_size(c)));
    return tx_rope_check(&c->positions.rope, head_size(c));
}
