/* SPDX-License-Identifier: Apache-2.0
 *
 * The causal form of ModernBERT (Weller et al., Ettin, 2025): layer norms without biases, GELU with gates, and layers
 * with a window. The embeddings have a norm instead of the first attention, and the head has a dense layer before it.
 */
#include "models/arch/llama_family.h"

#define BLOCK "model.layers.%d."

static bool is_later(const tx_config *config, int64_t layer)
{
    (void)config;
    return layer > 0;
}

static const tx_stack_row rows[] = {
    {EMBED, "model.embeddings.tok_embeddings.weight", {VOCAB, WIDTH}, .split = 1},
    {EMBED_NORM, "model.embeddings.norm.weight", {WIDTH}, ONES},
    {INPUT_NORM, BLOCK "attn_norm.weight", {WIDTH}, ONES, .in = is_later},
    {QKV_PROJ, BLOCK "attn.q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .split = 1},
    {O_PROJ, BLOCK "attn.Wo.weight", {WIDTH, HEADS}, .split = 2},
    {POST_NORM, BLOCK "mlp_norm.weight", {WIDTH}, ONES},
    {GATE_UP_PROJ, BLOCK "mlp.Wi.weight", {GATE_UP, WIDTH}, .split = 1},
    {DOWN_PROJ, BLOCK "mlp.Wo.weight", {WIDTH, INNER}, .split = 2},
    {FINAL_NORM, "model.final_norm.weight", {WIDTH}, ONES},
    {HEAD_DENSE, "lm_head.dense.weight", {WIDTH, WIDTH}, .init = TX_STACK_NORMAL},
    {HEAD_DENSE_NORM, "lm_head.norm.weight", {WIDTH}, ONES},
    {LM_HEAD, "decoder.weight", {VOCAB, WIDTH}, UNLESS(tie_word_embeddings), .split = 1},
    {LM_HEAD_BIAS, "decoder.bias", {VOCAB}, ZEROS},
    {.name = NULL},
};

static const tx_config_key keys[] = {
    NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads),
    SIZE(intermediate_size, mlp.inner, 1 << 22),
    NUMBER(initializer_range, initializer_range, 10),
    EPS_KEY(norm_eps),
    ONE_ACT_KEY(hidden_activation, TX_LLAMA_GELU),
    SETTING(global_rope_theta, positions.rope.theta, 1, 1e12),
    SETTING(local_rope_theta, positions.local.theta, 1, 1e12),
    NUMBER(attention_dropout, residual.hidden_dropout, 0),
    NUMBER(embedding_dropout, residual.hidden_dropout, 0),
    NUMBER(mlp_dropout, residual.hidden_dropout, 0),
    {.name = NULL}};

static const tx_fixed_key fixed[] = {
    {"attention_bias", "false", "biases of attention are not implemented"},
    {"mlp_bias", "false", "biases of feed-forward layers are not implemented"},
    {"norm_bias", "false", "biases of norms are not implemented"},
    {"classifier_bias", "false", "a bias of the head's dense layer is not implemented"},
    {"classifier_activation", "gelu", "another activation of the head is not implemented"},
    {"decoder_bias", "true", "a head without bias is not implemented"},
    {.name = NULL}};

/* The window is half of "local_attention". Without a list, each n-th layer from the first on has none. */
static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    int64_t near = 128, period = 3;
    TX_TRY(tx_json_find(json, "local_attention") ? tx_json_get_int(json, "local_attention", 2, 1 << 24, &near) : TX_OK);
    TX_TRY(TX_JSON_OPTIONAL(int, json, "global_attn_every_n_layers", 1, TX_LLAMA_LAYERS, &period));
    c->attention.window = near / 2;
    c->attention.windows = (tx_layer_set){.listed = true};
    for (int64_t i = 0; i < config->layers; i++)
        if (i % period != 0)
            add_layer(&c->attention.windows, i);
    TX_TRY(tx_llama_read_windows(json, config));
    return tx_llama_read_ropes(json, config);
}

static tx_status write(const tx_config *config, tx_json *json)
{
    return tx_json_has(json, "rope_parameters") ? tx_llama_write(config, json) : TX_OK;
}

static const llama_config defaults = {SIZES(tx_modernbert_decoder, rows, 50368, 8192, 768, 22, 12, 50281, 50282),
                                      REST(1152, 0, 1e-5, 160000),
                                      .padding = 50284,
                                      .tie_word_embeddings = true,
                                      .norms.centred = true,
                                      .mlp.activation = TX_LLAMA_GELU,
                                      .attention.windowed = true,
                                      .positions.has_local = true,
                                      .positions.local = ROPE(1e4)};

/* peft has no default. */
const tx_architecture tx_modernbert_decoder = {
    FAMILY("modernbert-decoder", "ModernBertDecoder", defaults, keys, "q_proj,v_proj", read, write), .fixed = fixed};
