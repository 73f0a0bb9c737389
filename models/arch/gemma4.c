/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma 4 for text (Gemma team, 2026): a Gemma 3 whose norms have plain weights, whose layers without a window have
 * heads of their own (layer_attention.c), and whose blocks are scaled. The small models have an embedding for each
 * layer (layer_inputs.c), and layers that share keys and values. The model of 26 billion parameters has experts next to
 * the MLP of each layer. */
#include "models/arch/llama_family.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WIDEST 1024 /* head */
#define PERIOD 6    /* of layers without a window */

static const tx_stack_row rows[] = {
    EMBED_ROW,
    LAYER_TABLE_ROWS,
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
    LAYER_ATTENTION_ROWS,
    {ATTENTION_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    {POST_NORM, LAYER "pre_feedforward_layernorm.weight", {WIDTH}, ONES},
    {EXPERTS_NORM, LAYER "pre_feedforward_layernorm_2.weight", {WIDTH}, ONES, .in = is_sparse},
    {ROUTER_SCALE, LAYER "router.scale", {WIDTH}, ONES, .in = is_sparse, .other_decay = true},
    {EXPERT_SCALE, LAYER "router.per_expert_scale", {EXPERTS}, ONES, .in = is_sparse, .other_decay = true},
    SOME_EXPERT_ROWS(LAYER "router.proj.weight", LAYER "experts.gate_up_proj", LAYER "experts.down_proj"),
    {EXPERTS_OUT_NORM, LAYER "post_feedforward_layernorm_2.weight", {WIDTH}, ONES, .in = is_sparse},
    SEPARATE_MLP_ROWS,
    {MLP_OWN_NORM, LAYER "post_feedforward_layernorm_1.weight", {WIDTH}, ONES, .in = is_sparse},
    {MLP_NORM, LAYER "post_feedforward_layernorm.weight", {WIDTH}, ONES},
    LAYER_INPUT_ROWS,
    {LAYER_SCALE, LAYER "layer_scalar", {ONE}, ONES, .frozen = true},
    LAST_ROWS,
};

#define GEMMA_KEYS                                                                                            \
    SIZE_KEYS, KV_HEADS_KEY, EPS_KEY(rms_norm_eps), HEAD_DIM_KEY, WINDOW_KEY, BIAS_KEY,                       \
        ONE_ACT_KEY(hidden_activation, TX_LLAMA_GELU_TANH), FLAG(attention_k_eq_v, attention.keys_as_values), \
        WHOLE(num_kv_shared_layers, attention.borrowing, 0, TX_LLAMA_LAYERS),                                 \
        FLAG(use_double_wide_mlp, mlp.wide_if_borrowing)
static const tx_config_key keys[] = {GEMMA_KEYS,
                                     WHOLE(hidden_size_per_layer_input, embedding.layer_width, 0, 1 << 16),
                                     SIZE(vocab_size_per_layer_input, embedding.layer_vocab, 1 << 30),
                                     FLAG(enable_moe_block, experts.with_mlp),
                                     SIZE_OR_NULL(num_experts, experts.count, 1 << 12),
                                     SIZE_OR_NULL(top_k_experts, experts.chosen, 1 << 12),
                                     SIZE_OR_NULL(moe_intermediate_size, experts.inner, 1 << 22),
                                     {.name = NULL}};
static const tx_config_key unified_keys[] = {GEMMA_KEYS, {.name = NULL}};

#define FULL_ROPE                                                                                \
    {                                                                                            \
        .theta = 1e6, .type = TX_ROPE_PROPORTIONAL, .factor = 1, .attention = 1, .rotated = 0.25 \
    }
#define GEMMA_DEFAULTS                                                                                            \
    REST_OF(9216, 4, 1e-6, 0.02, FULL_ROPE), EXPERTS_DEFAULTS(0, 0, 0),                                           \
        .experts.normalise = true, .padding = 1, .tie_word_embeddings = true, .embedding.by_root_of_width = true, \
        .attention.differs = true, .attention.head_dim = 256, .attention.full_head_dim = 512,                     \
        .attention.multiplier = 1, .attention.windowed = true, .attention.window_period = PERIOD,                 \
        .positions.has_local = true, .positions.local = ROPE(1e4), .mlp.activation = TX_LLAMA_GELU_TANH
static const llama_config defaults = {SIZES(tx_gemma4_text, rows, 262144, 131072, 2304, 30, 8, 2, 1), GEMMA_DEFAULTS,
                                      .attention.window = 512, .embedding.layer_width = 256,
                                      .embedding.layer_vocab = 262144};
static const llama_config unified_defaults = {SIZES(tx_gemma4_unified_text, rows, 262144, 262144, 2304, 30, 8, 2, 1),
                                              GEMMA_DEFAULTS, .attention.window = 1024};

/* ---- Configuration ------------------------------------------------------------------------------------- */

/* The last layer has no window, whatever the list says. */
static tx_status read_windows(const tx_json *json, llama_config *c)
{
    tx_layer_set *windows = &c->attention.windows;
    *windows = (tx_layer_set){.listed = true};
    for (int64_t i = 0; i < c->base.layers; i++)
        if ((i + 1) % PERIOD != 0)
            add_layer(windows, i);
    TX_TRY(tx_llama_read_layer_types(json, c));
    remove_layer(windows, c->base.layers - 1);
    return TX_OK;
}

/* The heads of a layer, from "per_layer_config", or from keys of the whole. */
static tx_status read_heads(const tx_json *json, const llama_config *c, int64_t layer, int64_t *size, int64_t *of_kv)
{
    tx_json *layers, *own;
    char number[24];
    *size = c->attention.head_dim;
    *of_kv = kv_heads(c);
    if (!tx_json_has(json, "per_layer_config")) {
        if (slides(c, layer))
            return TX_OK;
        *size = 512;
        TX_TRY(TX_JSON_OPTIONAL(int, json, "global_head_dim", 2, WIDEST, size));
        return c->attention.keys_as_values
                   ? TX_JSON_OPTIONAL(int, json, "num_global_key_value_heads", 1, 1 << 16, of_kv)
                   : TX_OK;
    }
    TX_TRY(tx_json_get(json, "per_layer_config", TX_JSON_OBJECT, &layers));
    snprintf(number, sizeof number, "%" PRId64, layer);
    if (!tx_json_has(layers, number))
        return TX_OK;
    TX_TRY(tx_json_get(layers, number, TX_JSON_OBJECT, &own));
    for (void *i = tx_json_first(own); i; i = tx_json_next(own, i))
        if (strcmp(tx_json_key(i), "head_dim") != 0 && strcmp(tx_json_key(i), "num_key_value_heads") != 0)
            return tx_fail(TX_UNSUPPORTED, "per_layer_config: %.40s of single layers is not implemented",
                           tx_json_key(i));
    TX_TRY(TX_JSON_OPTIONAL(int, own, "head_dim", 2, WIDEST, size));
    return TX_JSON_OPTIONAL(int, own, "num_key_value_heads", 1, 1 << 16, of_kv);
}

static tx_status read_all_heads(const tx_json *json, llama_config *c)
{
    c->attention.head_dim = head_size(c);
    c->attention.full_head_dim = c->attention.full_kv_heads = 0;
    for (int64_t i = 0; i < c->base.layers; i++) {
        int64_t size, of_kv;
        TX_TRY(read_heads(json, c, i, &size, &of_kv));
        if (!slides(c, i) && !c->attention.full_head_dim) {
            c->attention.full_head_dim = size;
            c->attention.full_kv_heads = of_kv;
        }
        if (size != head_size_of(c, i) || of_kv != kv_heads_of(c, i))
            return tx_fail(TX_UNSUPPORTED,
                           "per_layer_config: layer %" PRId64 " has heads of other sizes or another number than layers "
                           "of its type, which is not implemented",
                           i);
    }
    return TX_OK;
}

static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    const char *both = "";
    TX_TRY(TX_JSON_OPTIONAL(string, json, "use_bidirectional_attention", &both));
    if (strcmp(both, "all") == 0)
        return tx_fail(TX_UNSUPPORTED, "use_bidirectional_attention: \"all\" is not implemented for this model type");
    if (c->embedding.layer_width > 0 && c->embedding.layer_vocab != config->vocab_size && !config->grown_from)
        return tx_fail(TX_UNSUPPORTED,
                       "vocab_size_per_layer_input: %" PRId64 " is not vocab_size, %" PRId64
                       ": another vocabulary is not implemented",
                       c->embedding.layer_vocab, config->vocab_size);
    TX_TRY(tx_llama_read_cap(json, "final_logit_softcapping", &c->logits.cap));
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(tx_llama_read_ropes(json, config));
    TX_TRY(read_windows(json, c));
    c->attention.lending = config->layers - c->attention.borrowing;
    if (!c->experts.with_mlp)
        c->experts.count = 0;
    return read_all_heads(json, c);
}

static tx_status write(const tx_config *config, tx_json *json)
{
    TX_TRY(tx_llama_write(config, json));
    if (!has_layer_inputs(config, 0))
        return TX_OK;
    return tx_json_set_int(json, "vocab_size_per_layer_input", config->vocab_size);
}

static tx_status check(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    TX_TRY(tx_llama_check_layer_attention(config));
    if (config->heads % kv_heads_of(c, config->layers - 1) != 0 || full_head_size(c) % 2 != 0)
        return tx_fail(TX_INVALID,
                       "heads without a window: %" PRId64 " of %" PRId64 " elements (expected an even number) cannot "
                       "share %" PRId64 " of keys and values",
                       config->heads, full_head_size(c), kv_heads_of(c, config->layers - 1));
    if (c->experts.with_mlp && (c->experts.count < 1 || c->experts.inner < 1))
        return tx_fail(TX_INVALID, "enable_moe_block: needs num_experts, top_k_experts and moe_intermediate_size");
    return tx_llama_check(config);
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

static int64_t full_size(const tx_config *config)
{
    return full_head_size(llama_of(config));
}

static int64_t window_size(const tx_config *config)
{
    return head_size(llama_of(config));
}

static int64_t keys_of(const tx_config *config, int64_t layer)
{
    return kv_heads_of(llama_of(config), layer);
}

static int64_t inner_of(const tx_config *config, int64_t layer)
{
    return mlp_size_of(llama_of(config), layer);
}

#define WINDOWS "gemma4." TX_GGUF_WINDOWS
#define WINDOW_BASE "gemma4.rope.freq_base_swa"

static void put(const tx_config *config, tx_gguf_writer *writer)
{
    const llama_config *c = llama_of(config);
    tx_gguf_put_number(writer, WINDOW_BASE, c->positions.local.theta);
    tx_gguf_put_array(writer, WINDOWS, TX_GGUF_VALUE_BOOL, config->layers);
    for (int64_t i = 0; i < config->layers; i++)
        tx_gguf_add_bytes(writer, window_of(c, i) > 0 ? "\1" : "\0", 1);
}

/* llama.cpp takes shared keys and values from the last two layers that have any: one with a window, and one without. */
static tx_status check_gguf(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    const int64_t last = c->attention.lending - 1;
    if (c->attention.borrowing > 0 && (last < 1 || slides(c, last) || !slides(c, last - 1)))
        return tx_fail(TX_UNSUPPORTED, "num_kv_shared_layers: llama.cpp computes as if the last layers with keys and "
                                       "values were one with a window and one without");
    if (c->positions.local.type != TX_ROPE_DEFAULT || !c->attention.windowed || c->attention.window < 1)
        return tx_fail(TX_UNSUPPORTED, "sliding_window, sliding_attention: llama.cpp computes windows and rope_type "
                                       "default");
    return TX_OK;
}

/* The numbers of layers with a window, or without: the first one's of a list, or that of the whole. */
static tx_status read_number(const tx_gguf_file *file, const char *key, const double *windows, int64_t layers,
                             bool window, int64_t *number)
{
    tx_gguf_array list;
    if (tx_gguf_get_array(file, key, false, &list))
        return tx_gguf_get_int(file, key, 1, 1 << 24, number);
    tx_status status = list.count == layers ? TX_OK : tx_fail(TX_FORMAT, "%s: not %" PRId64 " layers", key, layers);
    for (int64_t i = layers - 1; !status && i >= 0; i--)
        if ((windows[i] != 0) == window)
            *number = (int64_t)list.number[i];
    tx_gguf_array_free(&list);
    return status;
}

/* Whether layers without a window have keys instead of values, and whether the last MLPs are wider. */
static tx_status read_forms(const tx_gguf_file *file, const double *windows, int64_t layers, tx_json *json)
{
    tx_gguf_array sizes;
    char name[TX_ARCH_NAME];
    int64_t number = 1;
    bool wide = false;
    TX_TRY(read_number(file, "gemma4.attention.head_count_kv", windows, layers, true, &number));
    TX_TRY(tx_json_set_int(json, "num_key_value_heads", number));
    TX_TRY(read_number(file, "gemma4.attention.head_count_kv", windows, layers, false, &number));
    TX_TRY(tx_json_set_int(json, "num_global_key_value_heads", number));
    for (int64_t i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "blk.%" PRId64 ".attn_k.weight", i);
        const bool attends = tx_gguf_find(file, name) >= 0;
        snprintf(name, sizeof name, "blk.%" PRId64 ".attn_v.weight", i);
        if (windows[i] == 0 && attends)
            TX_TRY(tx_json_set_bool(json, "attention_k_eq_v", tx_gguf_find(file, name) < 0));
    }
    if (tx_gguf_get_array(file, "gemma4.feed_forward_length", false, &sizes)) {
        TX_TRY(tx_gguf_get_int(file, "gemma4.feed_forward_length", 1, 1 << 22, &number));
        return tx_json_set_int(json, "intermediate_size", number);
    }
    for (int64_t i = 0; i < sizes.count; i++)
        wide = wide || sizes.number[i] != sizes.number[0];
    number = sizes.count > 0 ? (int64_t)sizes.number[0] : 0;
    tx_gguf_array_free(&sizes);
    TX_TRY(tx_json_set_bool(json, "use_double_wide_mlp", wide));
    return tx_json_set_int(json, "intermediate_size", number);
}

/* Layers with and without a window have positions of their own. */
static tx_status read_positions(const tx_gguf_file *file, tx_json *json)
{
    double theta, local = 1e4;
    TX_TRY(tx_json_get_number(json, "rope_theta", 0, 1e12, &theta));
    TX_TRY(TX_GGUF_OPTIONAL(number, file, WINDOW_BASE, &local));
    tx_json *full = tx_json_copy(tx_json_find(json, "rope_scaling"));
    TX_TRY(tx_json_set(json, "rope_parameters",
                       tx_json_pack("{s:o,s:{s:s,s:f}}", "full_attention", full, "sliding_attention", "rope_type",
                                    "default", "rope_theta", local)));
    tx_json_unset(json, "rope_scaling");
    return tx_json_set_number(full, "rope_theta", theta);
}

static tx_status read_gguf(const tx_gguf_file *file, tx_json *json)
{
    int64_t layers, vocabulary;
    tx_gguf_array windows;
    if (!tx_json_has(json, "rope_scaling"))
        return tx_fail(TX_FORMAT, "has no tensor rope_freqs.weight");
    TX_TRY(read_positions(file, json));
    TX_TRY(tx_json_get_int(json, "vocab_size", 1, 1 << 30, &vocabulary));
    TX_TRY(tx_json_set_int(json, "vocab_size_per_layer_input", vocabulary));
    TX_TRY(tx_json_set_bool(json, "enable_moe_block", tx_json_has(json, "num_experts")));
    TX_TRY(tx_json_get_int(json, "num_hidden_layers", 1, TX_LLAMA_LAYERS, &layers));
    TX_TRY(tx_gguf_get_array(file, WINDOWS, false, &windows));
    tx_status status = windows.count == layers ? TX_OK : tx_fail(TX_FORMAT, WINDOWS ": not %" PRId64 " layers", layers);
    TX_THEN(status, tx_llama_gguf_set_windows(json, layers, windows.number));
    TX_THEN(status, read_forms(file, windows.number, layers, json));
    tx_gguf_array_free(&windows);
    return status;
}

#define AT(member) offsetof(llama_config, member)
#define NAME(slot, name) TX_GGUF_NAME(slot, "blk.%d." name)
#define GEMMA_GGUF(...)                                                                                        \
    GGUF("gemma4", .some_pairs = true,                                                                         \
         TX_GGUF_OWN_NAMES(                                                                                    \
             NAME(QKV_PROJ, "attn_q|attn_k.weight"), NAME(QKV_PROJ, "attn_q.weight"),                          \
             NAME(EXPERTS_NORM, "pre_ffw_norm_2.weight"), NAME(EXPERTS_OUT_NORM, "post_ffw_norm_2.weight"),    \
             NAME(MLP_OWN_NORM, "post_ffw_norm_1.weight"), NAME(ROUTER_SCALE, "ffn_gate_inp.scale"),           \
             NAME(EXPERT_SCALE, "ffn_down_exps.scale"), NAME(EXPERTS_GATE_UP, "ffn_gate_up_exps.weight"),      \
             NAME(LAYER_SCALE, "layer_output_scale.weight"), NAME(INPUT_GATE, "inp_gate.weight"),              \
             NAME(INPUT_PROJ, "proj.weight"), NAME(ADDED_NORM, "post_norm.weight"),                            \
             TX_GGUF_NAME(INPUTS_TABLE, "per_layer_token_embd.weight"),                                        \
             TX_GGUF_NAME(INPUTS_PROJ, "per_layer_model_proj.weight"),                                         \
             TX_GGUF_NAME(INPUTS_NORM, "per_layer_proj_norm.weight")),                                         \
         TX_GGUF_OWN_KEYS({.key = "attention.head_count_kv", .of_layer = keys_of},                             \
                          {.key = "feed_forward_length", .of_layer = inner_of},                                \
                          {.key = "attention.key_length", .name = "global_head_dim", .value = full_size},      \
                          {.key = "attention.value_length", .name = "global_head_dim", .value = full_size},    \
                          TX_GGUF_MEMBER("attention.key_length_swa", AT(attention.head_dim), INT, NOTHING),    \
                          TX_GGUF_MEMBER("attention.value_length_swa", AT(attention.head_dim), INT, NOTHING),  \
                          {.key = "rope.dimension_count_swa", .value = window_size},                           \
                          TX_GGUF_MEMBER("attention.shared_kv_layers", AT(attention.borrowing), INT, NOTHING), \
                          {.key = "embedding_length_per_layer_input",                                          \
                           .member = AT(embedding.layer_width),                                                \
                           .kind = TX_GGUF_INT,                                                                \
                           .otherwise = TX_GGUF_CONSTANT},                                                     \
                          TX_GGUF_NAMED("final_logit_softcapping", "final_logit_softcapping", NUMBER)),        \
         TX_GGUF_FIXED({"attention_bias", false}), .check = check_gguf, .put = put, __VA_ARGS__)

const tx_architecture tx_gemma4_text = {
    FAMILY_CHECKED("gemma4_text", "Gemma4ForCausalLM", defaults, keys, "q_proj,v_proj", read, write, check),
    GEMMA_GGUF(.read = read_gguf)};
/* The model of 12 billion parameters, whose images and sounds have no towers. */
const tx_architecture tx_gemma4_unified_text = {FAMILY_CHECKED("gemma4_unified_text", "Gemma4UnifiedForCausalLM",
                                                               unified_defaults, unified_keys, "q_proj,v_proj", read,
                                                               write, check),
                                                GEMMA_GGUF(.export_only = true)};
