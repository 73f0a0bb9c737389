/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-NeoX and Pythia (Black et al., GPT-NeoX-20B, 2022; Biderman et al., Pythia, 2023): layer norms, attention and MLP
 * in parallel, and rotary positions in a part of each head. Files store q, k and v of a head together. */
#include "models/arch/llama_family.h"

#define NEOX "gpt_neox.layers.%d."

static const tx_stack_row rows[] = {
    {EMBED, "gpt_neox.embed_in.weight", {VOCAB, WIDTH}, .split = 1},
    {INPUT_NORM, NEOX "input_layernorm.weight", {WIDTH}, ONES},
    {INPUT_NORM_BIAS, NEOX "input_layernorm.bias", {WIDTH}, ZEROS},
    {QKV_PROJ, NEOX "attention.query_key_value.weight", {QKV, WIDTH}, .split = 1},
    {QKV_BIAS, NEOX "attention.query_key_value.bias", {QKV}, ZEROS, IF(attention.bias), .split = 1},
    {O_PROJ, NEOX "attention.dense.weight", {WIDTH, HEADS}, .split = 2},
    {O_BIAS, NEOX "attention.dense.bias", {WIDTH}, ZEROS, IF(attention.bias)},
    {POST_NORM, NEOX "post_attention_layernorm.weight", {WIDTH}, ONES},
    {POST_NORM_BIAS, NEOX "post_attention_layernorm.bias", {WIDTH}, ZEROS},
    PLAIN_MLP_ROWS(NEOX "mlp.dense_h_to_4h", NEOX "mlp.dense_4h_to_h"),
    {FINAL_NORM, "gpt_neox.final_layer_norm.weight", {WIDTH}, ONES},
    {FINAL_NORM_BIAS, "gpt_neox.final_layer_norm.bias", {WIDTH}, ZEROS},
    {LM_HEAD, "embed_out.weight", {VOCAB, WIDTH}, UNLESS(tie_word_embeddings), .split = 1},
    {.name = NULL},
};

static const tx_config_key keys[] = {SIZE_KEYS,
                                     EPS_KEY(layer_norm_eps),
                                     GELU_KEY(hidden_act),
                                     BIAS_KEY,
                                     FLAG(use_parallel_residual, residual.parallel),
                                     NUMBER(hidden_dropout, residual.hidden_dropout, 0),
                                     NUMBER(rotary_pct, positions.rope.rotated, 1),
                                     SETTING(rotary_emb_base, positions.rope.theta, 1, 1e12),
                                     {.name = NULL}};

static const llama_config defaults = {
    SIZES(tx_gpt_neox, rows, 50432, 2048, 6144, 44, 64, 0, 2),
    REST_OF(24576, 0, 1e-5, 0.02, PARTIAL_ROPE(1e4, 0.25)),
    PLAIN_MLP(TX_LLAMA_GELU_TANH, TX_LLAMA_GELU),
    .attention.bias = true,
    .residual.parallel = true,
    .attention.by_head = true,
    .mlp.bias = true,
};

/* The keys have the base, unless version 5 of transformers stores it in "rope_parameters". */
static tx_status write(const tx_config *config, tx_json *json)
{
    return tx_json_has(json, "rope_parameters") ? tx_llama_write(config, json) : TX_OK;
}

/* The keys of rotary positions have names of their own. */
static tx_status read_rotary(const tx_gguf_file *file, tx_json *json)
{
    double theta, part = 1;
    (void)file;
    TX_TRY(tx_json_get_number(json, "rope_theta", 0, 1e12, &theta));
    TX_TRY(tx_json_set_number(json, "rotary_emb_base", theta));
    TX_TRY(TX_JSON_OPTIONAL(number, json, "partial_rotary_factor", 0, 1, &part));
    return tx_json_set_number(json, "rotary_pct", part);
}

const tx_architecture tx_gpt_neox = {
    FAMILY("gpt_neox", "GPTNeoX", defaults, keys, "query_key_value", tx_llama_read_unpadded, write),
    CENTRED_GGUF("gptneox",
                 TX_GGUF_OWN_KEYS(
                     TX_GGUF_MEMBER("use_parallel_residual", offsetof(llama_config, residual.parallel), BOOL, NOTHING)),
                 TX_GGUF_FIXED({"attention_bias", true}, {"tie_word_embeddings", false}), .gelu = "hidden_act",
                 .read = read_rotary)};
