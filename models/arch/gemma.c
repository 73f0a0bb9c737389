/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma, Gemma 2 and Gemma 3 for text (Gemma team, Gemma, 2024; Gemma 2, 2024; Gemma 3 technical report, 2025): norms
 * whose weights are 1 + gamma, GeGLU, embeddings times sqrt(hidden_size). Gemma 2 and 3 have norms before and after
 * attention and MLP, and sliding windows by layer. Gemma 2 caps scores and logits. Gemma 3 normalises the heads of q
 * and k, and its layers with a window have their own rotary base. */
#include "models/arch/llama_family.h"

#include <inttypes.h>

#define GEMMA2_LARGEST 46 /* the layers of the model of 27 billion parameters, whose scores have another scale */
#define GEMMA3_LARGEST 62

static const tx_stack_row rows[] = {
    EMBED_ROW,
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ZEROS},
    SEPARATE_QKV_ROWS,
    {HEAD_NORM, LAYER "self_attn.q_norm|k_norm.weight", {QK_HEAD}, ZEROS, IF(norms.heads)},
    O_ROWS,
    {ATTENTION_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ZEROS},
    {POST_NORM, LAYER "pre_feedforward_layernorm.weight", {WIDTH}, ZEROS},
    SEPARATE_MLP_ROWS,
    {MLP_NORM, LAYER "post_feedforward_layernorm.weight", {WIDTH}, ZEROS},
    {FINAL_NORM, "model.norm.weight", {WIDTH}, ZEROS},
    HEAD_ROWS,
};

#define GEMMA_KEYS                                                                      \
    SIZE_KEYS, KV_HEADS_KEY, EPS_KEY(rms_norm_eps), HEAD_DIM_KEY, WINDOW_KEY, BIAS_KEY, \
        SIZE(query_pre_attn_scalar, attention.query_scalar, 1 << 30),                   \
        ONE_ACT_KEY(hidden_activation, TX_LLAMA_GELU_TANH)

static const tx_stack_row gemma_rows[] = {
    EMBED_ROW,
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ZEROS},
    SEPARATE_QKV_ROWS,
    O_ROWS,
    {POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ZEROS},
    SEPARATE_MLP_ROWS,
    {FINAL_NORM, "model.norm.weight", {WIDTH}, ZEROS},
    HEAD_ROWS,
};

/* "gelu" in published files means the tanh form. */
static const tx_config_key gemma_keys[] = {
    SIZE_KEYS,     KV_HEADS_KEY, EPS_KEY(rms_norm_eps),
    HEAD_DIM_KEY,  BIAS_KEY,     ACTS_KEY(hidden_act, TX_LLAMA_GELU_TANH, TX_LLAMA_GELU),
    {.name = NULL}};
static const tx_config_key gemma2_keys[] = {GEMMA_KEYS, {.name = NULL}};
static const tx_config_key keys[] = {GEMMA_KEYS,
                                     SIZE(sliding_window_pattern, attention.window_period, TX_LLAMA_LAYERS),
                                     SETTING(rope_local_base_freq, positions.local.theta, 1, 1e12),
                                     {.name = NULL}};

#define GEMMA_DEFAULTS                                                                                    \
    .padding = 1, .attention.head_dim = 256, .mlp.activation = TX_LLAMA_GELU_TANH, .norms.add_one = true, \
    .embedding.by_root_of_width = true, .tie_word_embeddings = true
#define WINDOW_DEFAULTS .attention.query_scalar = 256, .attention.window = 4096, .attention.windowed = true

static const llama_config gemma_defaults = {SIZES(tx_gemma, gemma_rows, 256000, 8192, 3072, 28, 16, 2, 1),
                                            REST(24576, 16, 1e-6, 1e4), GEMMA_DEFAULTS};

static const llama_config gemma2_defaults = {SIZES(tx_gemma2, rows, 256000, 8192, 2304, 26, 8, 2, 1),
                                             REST(9216, 4, 1e-6, 1e4),
                                             WINDOW_DEFAULTS,
                                             .attention.window_period = 2,
                                             .attention.cap = 50,
                                             .logits.cap = 30,
                                             GEMMA_DEFAULTS};

static const llama_config defaults = {SIZES(tx_gemma3_text, rows, 262208, 131072, 2304, 26, 8, 2, 1),
                                      REST(9216, 4, 1e-6, 1e6),
                                      WINDOW_DEFAULTS,
                                      .attention.window_period = 6,
                                      .norms.heads = true,
                                      .positions.has_local = true,
                                      .positions.local = ROPE(1e4),
                                      GEMMA_DEFAULTS};

/* The keys of both types. */
static tx_status read_common(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    if (tx_json_has(json, "use_bidirectional_attention"))
        TX_TRY(tx_json_get_bool(json, "use_bidirectional_attention", &c->attention.both));
    if (c->attention.both && (config->architecture->head != TX_HEAD_STATES || c->attention.dropout > 0))
        return tx_fail(TX_UNSUPPORTED,
                       "use_bidirectional_attention: implemented only for embeddings (%s without a "
                       "head), without dropout",
                       config->architecture->type);
    TX_TRY(tx_llama_read_cap(json, "attn_logit_softcapping", &c->attention.cap));
    TX_TRY(tx_llama_read_cap(json, "final_logit_softcapping", &c->logits.cap));
    TX_TRY(tx_llama_read(json, config));
    return c->attention.window_period ? tx_llama_read_layer_types(json, c) : TX_OK;
}

static tx_status read(const tx_json *json, tx_config *config)
{
    TX_TRY(read_common(json, config));
    if (llama_of(config)->attention.cap > 0) /* transformers ignores it */
        return tx_fail(TX_UNSUPPORTED, "attn_logit_softcapping: this model type has no caps of scores");
    return tx_llama_read_ropes(json, config);
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

/* llama.cpp derives the scale of scores and the base of layers with a window from the type. */
static int64_t score_scalar(int64_t width, int64_t heads, int64_t size, bool largest)
{
    return largest ? width / heads : size;
}

static tx_status check_settings(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    const bool third = c->positions.has_local;
    const int64_t scalar = score_scalar(c->base.width, c->base.heads, head_size(c),
                                        c->base.layers == (third ? GEMMA3_LARGEST : GEMMA2_LARGEST));
    if (c->attention.query_scalar != scalar)
        return tx_fail(TX_UNSUPPORTED, "query_pre_attn_scalar: llama.cpp computes as if it were %" PRId64, scalar);
    TX_TRY(tx_llama_gguf_windows(e, third ? 6 : 2));
    if (third && (c->positions.local.theta != 1e4 || c->positions.local.type != TX_ROPE_DEFAULT))
        return tx_fail(TX_UNSUPPORTED, "rope_local_base_freq: llama.cpp computes as if it were 10000");
    return TX_OK;
}

static tx_status derive_scalar(tx_json *json, int64_t largest)
{
    int64_t layers, width, heads, size;
    TX_TRY(tx_json_get_int(json, "num_hidden_layers", 1, 1 << 24, &layers));
    TX_TRY(tx_json_get_int(json, "hidden_size", 1, 1 << 24, &width));
    TX_TRY(tx_json_get_int(json, "num_attention_heads", 1, 1 << 24, &heads));
    TX_TRY(tx_json_get_int(json, "head_dim", 1, 1 << 24, &size));
    return tx_json_set_int(json, "query_pre_attn_scalar", score_scalar(width, heads, size, layers == largest));
}

static tx_status derive_second(const tx_gguf_file *file, tx_json *json)
{
    (void)file;
    return derive_scalar(json, GEMMA2_LARGEST);
}

static tx_status derive_third(const tx_gguf_file *file, tx_json *json)
{
    (void)file;
    TX_TRY(derive_scalar(json, GEMMA3_LARGEST));
    return tx_json_set_number(json, "rope_local_base_freq", 1e4);
}

#define GGUF_CAPS                                                                               \
    TX_GGUF_OWN_KEYS(TX_GGUF_NAMED("attn_logit_softcapping", "attn_logit_softcapping", NUMBER), \
                     TX_GGUF_NAMED("final_logit_softcapping", "final_logit_softcapping", NUMBER))
const tx_architecture tx_gemma = {
    FAMILY("gemma", "Gemma", gemma_defaults, gemma_keys, "q_proj,v_proj", read_common, tx_llama_write),
    GGUF("gemma", TX_GGUF_FIXED({"attention_bias", false}, {"tie_word_embeddings", true}))};

const tx_architecture tx_gemma2 = {
    FAMILY("gemma2", "Gemma2", gemma2_defaults, gemma2_keys, "q_proj,v_proj", read_common, tx_llama_write),
    GGUF("gemma2", GGUF_CAPS, TX_GGUF_FIXED({"attention_bias", false}, {"tie_word_embeddings", true}),
         .check = check_settings, .read = derive_second)};

#define GEMMA3_GGUF \
    GGUF("gemma3", GGUF_CAPS, TX_GGUF_FIXED({"attention_bias", false}), .check = check_settings, .read = derive_third)
const tx_architecture tx_gemma3_text = {
    FAMILY("gemma3_text", "Gemma3", defaults, keys, "q_proj,v_proj", read, tx_llama_write), GEMMA3_GGUF};
WITHOUT_HEAD(tx_gemma3_text, "gemma3_text", "Gemma3TextModel", defaults, keys, read, GEMMA3_GGUF);
