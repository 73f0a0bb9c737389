/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma 3 for text (Gemma team, Gemma 3 technical report, 2025): norms before and after attention and MLP whose weights
 * are 1 + gamma, GeGLU, embeddings times sqrt(hidden_size), and layers with a sliding window that have their own rotary
 * base. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    EMBED_ROW,
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ZEROS},
    SEPARATE_QKV_ROWS,
    {HEAD_NORM, LAYER "self_attn.q_norm|k_norm.weight", {QK_HEAD}, ZEROS},
    O_ROWS,
    {ATTENTION_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ZEROS},
    {POST_NORM, LAYER "pre_feedforward_layernorm.weight", {WIDTH}, ZEROS},
    SEPARATE_MLP_ROWS,
    {MLP_NORM, LAYER "post_feedforward_layernorm.weight", {WIDTH}, ZEROS},
    {FINAL_NORM, "model.norm.weight", {WIDTH}, ZEROS},
    HEAD_ROWS,
};

static const tx_config_key keys[] = {
    SIZE_KEYS,
    KV_HEADS_KEY,
    EPS_KEY(rms_norm_eps),
    HEAD_DIM_KEY,
    WINDOW_KEY,
    FLAG(attention_bias),
    {KEY(query_pre_attn_scalar), TX_KEY_INT, .min = 1, .max = 1 << 30},
    {KEY(sliding_window_pattern), TX_KEY_INT, .min = 1, .max = TX_LLAMA_LAYERS},
    {"rope_local_base_freq", offsetof(llama_config, local_rope.theta), TX_KEY_NUMBER, .min = 1, .max = 1e12},
    {"hidden_activation", offsetof(llama_config, hidden_act), TX_KEY_CHOICE,
     .words = &tx_llama_activations[TX_LLAMA_GELU_TANH]},
    {.name = NULL}};

static const llama_config defaults = {
    SIZES(tx_gemma3_text, rows, 262208, 131072, 2304, 26, 8, 2, 1),
    REST(9216, 4, 1e-6, 1e6),
    .padding = 1,
    .head_dim = 256,
    .query_pre_attn_scalar = 256,
    .sliding_window = 4096,
    .use_sliding_window = true,
    .sliding_window_pattern = 6,
    .has_local_rope = true,
    .local_rope = {.theta = 1e4, .factor = 1, .attention = 1, .rotated = 1},
    .activation = TX_LLAMA_GELU_TANH,
    .gemma = true,
    .tie_word_embeddings = true,
};

/* Version 5 of transformers stores the settings of both kinds of layers in "rope_parameters". */
static tx_status read_ropes(const tx_json *json, llama_config *c)
{
    tx_json *ropes, *of_kind;
    const int64_t positions = c->max_position_embeddings;
    if (!tx_json_has(json, "rope_parameters"))
        return TX_OK;
    TX_TRY(tx_json_get(json, "rope_parameters", TX_JSON_OBJECT, &ropes));
    if (tx_json_has(ropes, "full_attention")) {
        TX_TRY(tx_json_get(ropes, "full_attention", TX_JSON_OBJECT, &of_kind));
        TX_TRY(tx_fail_in(tx_rope_read_settings(of_kind, json, positions, &c->rope), "full_attention"));
    }
    if (tx_json_has(ropes, "sliding_attention")) {
        TX_TRY(tx_json_get(ropes, "sliding_attention", TX_JSON_OBJECT, &of_kind));
        TX_TRY(tx_fail_in(tx_rope_read_settings(of_kind, json, positions, &c->local_rope), "sliding_attention"));
    }
    return TX_OK;
}

/* Mathematics that TX does not have. */
static tx_status refuse_others(const tx_json *json)
{
    bool both = false;
    double cap = 0;
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "use_bidirectional_attention", &both));
    TX_TRY(TX_JSON_OPTIONAL(number, json, "attn_logit_softcapping", 0, 1e9, &cap));
    if (both)
        return tx_fail(TX_UNSUPPORTED, "use_bidirectional_attention: true is not implemented");
    return cap > 0 ? tx_fail(TX_UNSUPPORTED, "attn_logit_softcapping: %g: caps of scores are not implemented", cap)
                   : TX_OK;
}

static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    TX_TRY(refuse_others(json));
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(tx_fail_in(read_ropes(json, c), "rope_parameters"));
    config->positions = tx_rope_positions(&c->rope, c->max_position_embeddings);
    TX_TRY(TX_JSON_OPTIONAL(number, json, "final_logit_softcapping", 0, 1e9, &c->final_logit_softcapping));
    return tx_llama_read_layer_types(json, c);
}

static tx_status check(const tx_config *config)
{
    TX_TRY(tx_llama_check(config));
    if (llama_of(config)->local_rope.type == TX_ROPE_DYNAMIC || llama_of(config)->local_rope.type == TX_ROPE_LONGROPE)
        return tx_fail(TX_UNSUPPORTED, "sliding_attention: rope_type dynamic and longrope are not implemented");
    return tx_rope_check(&llama_of(config)->local_rope, head_size(llama_of(config)));
}

const tx_architecture tx_gemma3_text = {FAMILY("gemma3_text", "Gemma3", defaults, keys, tx_llama_fixed_keys,
                                               "q_proj,v_proj", tx_llama_rename, tx_llama_write),
                                        .read = read, .check = check};
