/* SPDX-License-Identifier: Apache-2.0
 * Reads, writes and checks config.json of the Llama family. */
#include "models/arch/llama_family.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const tx_llama_activations[] = {
    [TX_LLAMA_SILU] = "silu",           [TX_LLAMA_GELU_TANH] = "gelu_pytorch_tanh",
    [TX_LLAMA_GELU] = "gelu",           [TX_LLAMA_GELU_NEW] = "gelu_new",
    [TX_LLAMA_GELU_FAST] = "gelu_fast", [TX_LLAMA_RELU2] = "relu2",
    [TX_LLAMA_RELU] = "relu",           [TX_LLAMA_XIELU] = "xielu"};

/* Reads one word of a list: its layer joins the set of that word. */
static tx_status read_word(const char *word, const char *key, int64_t layer, const tx_layer_word *words)
{
    char known[160] = "";
    size_t used = 0;
    for (const tx_layer_word *w = words; w->word; w++) {
        if (strcmp(word, w->word) == 0) {
            if (w->layers)
                add_layer(w->layers, layer);
            return TX_OK;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", w->word);
    }
    return tx_fail(TX_UNSUPPORTED, "%s: \"%.40s\" is not one of %s", key, word, known);
}

tx_status tx_llama_read_words(const tx_json *json, const char *key, int64_t layers, const tx_layer_word *words)
{
    tx_json *list;
    const char *word;
    TX_TRY(tx_json_get(json, key, TX_JSON_ARRAY, &list));
    if (tx_json_size(list) > TX_LLAMA_LAYERS || tx_json_size(list) < (size_t)layers)
        return tx_fail(TX_INVALID, "%s: %zu types, but num_hidden_layers is %" PRId64, key, tx_json_size(list), layers);
    for (const tx_layer_word *w = words; w->word; w++)
        if (w->layers)
            *w->layers = (tx_layer_set){.listed = true};
    for (size_t i = 0; i < tx_json_size(list); i++) {
        TX_TRY(tx_json_as_string(tx_json_at(list, i), key, &word));
        TX_TRY(read_word(word, key, (int64_t)i, words));
    }
    return TX_OK;
}

tx_status tx_llama_read_layer_types(const tx_json *json, llama_config *c)
{
    if (!tx_json_has(json, "layer_types"))
        return TX_OK;
    const tx_layer_word words[] = {
        {"full_attention", NULL}, {"sliding_attention", &c->attention.windows}, {NULL, NULL}};
    TX_TRY(tx_llama_read_words(json, "layer_types", c->base.layers, words));
    for (int64_t i = 0; i < TX_LLAMA_LAYERS; i++)
        if (has_layer(&c->attention.windows, i) && !(c->attention.windowed && c->attention.window))
            return tx_fail(TX_UNSUPPORTED,
                           "layer_types: layer %" PRId64 " has \"sliding_attention\", but use_sliding_window or "
                           "sliding_window says that there is no window",
                           i);
    return TX_OK;
}

tx_status tx_llama_read_layers(const tx_json *json, const char *key, tx_layer_set *set)
{
    tx_json *list;
    int64_t layer;
    *set = (tx_layer_set){.listed = true};
    if (!tx_json_has(json, key))
        return TX_OK;
    TX_TRY(tx_json_get(json, key, TX_JSON_ARRAY, &list));
    for (size_t i = 0; i < tx_json_size(list); i++) {
        TX_TRY(tx_json_as_int(tx_json_at(list, i), key, 0, TX_LLAMA_LAYERS - 1, &layer));
        add_layer(set, layer);
    }
    return TX_OK;
}

/* "no_rope_layers" has a 1 for each layer with rotary positions, and a 0 for each without. */
tx_status tx_llama_read_no_rope(const tx_json *json, llama_config *c)
{
    tx_json *list;
    int64_t has;
    if (!tx_json_has(json, "no_rope_layers"))
        return TX_OK;
    TX_TRY(tx_json_get(json, "no_rope_layers", TX_JSON_ARRAY, &list));
    const size_t size = tx_json_size(list);
    if (size == 0)
        return TX_OK;
    if (size < (size_t)c->base.layers || size > TX_LLAMA_LAYERS)
        return tx_fail(TX_INVALID, "no_rope_layers: %zu numbers for %d layers", size, (int)c->base.layers);
    c->positions.none = (tx_layer_set){.listed = true};
    for (size_t i = 0; i < size; i++) {
        TX_TRY(tx_json_as_int(tx_json_at(list, i), "no_rope_layers", 0, 1, &has));
        if (!has)
            add_layer(&c->positions.none, (int64_t)i);
    }
    return TX_OK;
}

tx_status tx_llama_read_mlp_types(const tx_json *json, llama_config *c)
{
    const tx_layer_word words[] = {{"dense", &c->experts.dense}, {"sparse", NULL}, {NULL, NULL}};
    if (!tx_json_has(json, "mlp_layer_types"))
        return TX_OK;
    c->experts.first = 0;
    return tx_llama_read_words(json, "mlp_layer_types", c->base.layers, words);
}

tx_status tx_llama_read_cap(const tx_json *json, const char *key, double *cap)
{
    if (tx_json_find(json, key) && !tx_json_has(json, key))
        *cap = 0;
    return TX_JSON_OPTIONAL(number, json, key, 0, 1e9, cap);
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

tx_status tx_llama_read_growth(const tx_json *json, llama_config *c)
{
    const char *key = tx_json_has(json, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    tx_json *rope;
    if (!tx_json_has(json, key))
        return TX_OK;
    TX_TRY(tx_json_get(json, key, TX_JSON_OBJECT, &rope));
    c->attention.scale_growth = 0;
    TX_TRY(TX_JSON_OPTIONAL(number, rope, "llama_4_scaling_beta", 0, 1e3, &c->attention.scale_growth));
    return c->attention.scale_growth > 0 && c->positions.rope.original < 1
               ? tx_fail(TX_INVALID, "%s: llama_4_scaling_beta needs original_max_position_embeddings", key)
               : TX_OK;
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

tx_status tx_llama_read_sized(const tx_json *json, tx_config *config)
{
    TX_TRY(tx_llama_read_windows(json, config));
    ((llama_config *)config)->attention.head_dim = head_size(llama_of(config));
    return TX_OK;
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

tx_status tx_llama_check_layer_attention(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    bool own[2] = {false, false};
    for (int64_t i = 0; i < config->layers; i++) {
        if (!has_keys(config, i) && !own[slides(c, i)])
            return tx_fail(TX_INVALID,
                           "num_kv_shared_layers: %" PRId64 ": no layer before layer %" PRId64
                           " has keys and values of its type",
                           c->attention.borrowing, i);
        own[slides(c, i)] = true;
    }
    if (c->positions.rope.type == TX_ROPE_DYNAMIC || c->positions.rope.type == TX_ROPE_LONGROPE)
        return tx_fail(TX_UNSUPPORTED, "full_attention: rope_type dynamic and longrope are not implemented for this "
                                       "model type");
    return TX_OK;
}

/* Multi-head latent attention. */
static tx_status check_latent(const llama_config *c)
{
    if (c->latent.value > head_size(c))
        return tx_fail(TX_UNSUPPORTED,
                       "v_head_dim: %" PRId64 " is more than qk_nope_head_dim + qk_rope_head_dim, %" PRId64,
                       c->latent.value, head_size(c));
    if (kv_heads(c) != c->base.heads)
        return tx_fail(TX_UNSUPPORTED, "num_key_value_heads: %" PRId64 " is not num_attention_heads, %" PRId64,
                       kv_heads(c), c->base.heads);
    return tx_rope_check(&c->positions.rope, c->latent.rotated);
}

static tx_status check_experts(const llama_config *c)
{
    const int64_t count = c->experts.count, groups = c->experts.groups, kept = c->experts.kept;
    if (count > 0 && c->base.layers > TX_LLAMA_EXPERT_LAYERS)
        return tx_fail(TX_UNSUPPORTED,
                       "num_hidden_layers: %" PRId64 " is more than %d, the limit for models with experts",
                       c->base.layers, TX_LLAMA_EXPERT_LAYERS);
    if (count > 0 && (c->experts.chosen < 1 || c->experts.chosen > count))
        return tx_fail(TX_INVALID, "num_experts_per_tok: %" PRId64 " is not from 1 to the number of experts, %" PRId64,
                       c->experts.chosen, count);
    if (groups > 1 && (count % groups != 0 || count / groups < c->experts.best || kept < 1 || kept > groups ||
                       c->experts.chosen > count / groups * kept))
        return tx_fail(TX_INVALID,
                       "n_group, topk_group: %" PRId64 " of %" PRId64 " experts cannot be those of %" PRId64
                       " of %" PRId64 " groups",
                       c->experts.chosen, count, kept, groups);
    if (c->experts.jitter > 0)
        return tx_fail(TX_UNSUPPORTED, "router_jitter_noise: %g is not implemented, only 0", c->experts.jitter);
    return TX_OK;
}

tx_status tx_llama_check(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    TX_TRY(check_experts(c));
    if (c->latent.rank)
        return check_latent(c);
    if (!c->attention.head_dim && config->width % config->heads != 0)
        return tx_fail(TX_INVALID, "hidden_size: %" PRId64 " is not a multiple of num_attention_heads, %" PRId64,
                       config->width, config->heads);
    if (config->heads % kv_heads(c) != 0)
        return tx_fail(TX_INVALID,
                       "num_attention_heads: %" PRId64 " is not a multiple of num_key_value_heads, %" PRId64,
                       config->heads, kv_heads(c));
    if (head_size(c) % 2 != 0 || head_size(c) > TX_MAX_ROTARY)
        return tx_fail(TX_INVALID, "head_dim: %" PRId64 " must be even and at most %d", head_size(c), TX_MAX_ROTARY);
    if (c->positions.interleaved && c->positions.rope.partial && c->positions.rope.rotated < 1 &&
        c->positions.rope.attention != 1)
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: yarn and longrope in a part of each head are not implemented "
                                       "for this model type");
    if (c->positions.has_local &&
        (c->positions.local.type == TX_ROPE_DYNAMIC || c->positions.local.type == TX_ROPE_LONGROPE))
        return tx_fail(TX_UNSUPPORTED, "sliding_attention: rope_type dynamic and longrope are not implemented");
    if (c->positions.has_local)
        TX_TRY(tx_rope_check(&c->positions.local, head_size(c)));
    return tx_rope_check(&c->positions.rope, full_head_size(c));
}
