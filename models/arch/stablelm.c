/* SPDX-License-Identifier: Apache-2.0
 *
 * StableLM 2 (Bellagamba et al., Stable LM 2 1.6B technical report, 2024): a Llama with layer norms that rotates a part
 * of each head. Attention and MLP may be parallel. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    EMBED_ROW,
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
    {INPUT_NORM_BIAS, LAYER "input_layernorm.bias", {WIDTH}, ZEROS},
    SEPARATE_QKV_ROWS,
    EACH_NORM_ROWS("q_layernorm.norms.*", "k_layernorm.norms.*", IF(norms.each)),
    O_ROWS,
    {POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES, UNLESS(residual.parallel)},
    {POST_NORM_BIAS, LAYER "post_attention_layernorm.bias", {WIDTH}, ZEROS, UNLESS(residual.parallel)},
    SEPARATE_MLP_ROWS,
    {FINAL_NORM, "model.norm.weight", {WIDTH}, ONES},
    {FINAL_NORM_BIAS, "model.norm.bias", {WIDTH}, ZEROS},
    HEAD_ROWS,
};

static const tx_config_key keys[] = {SIZE_KEYS,
                                     KV_HEADS_KEY,
                                     EPS_KEY(layer_norm_eps),
                                     ONE_ACT_KEY(hidden_act, TX_LLAMA_SILU),
                                     FLAG(use_qkv_bias, attention.qkv_bias),
                                     FLAG(use_parallel_residual, residual.parallel),
                                     FLAG(qk_layernorm, norms.each),
                                     NUMBER(hidden_dropout, residual.hidden_dropout, 0),
                                     {.name = NULL}};

static const llama_config defaults = {SIZES(tx_stablelm, rows, 50304, 4096, 2560, 32, 32, 0, 0),
                                      REST_OF(6912, 32, 1e-5, 0.02, PARTIAL_ROPE(1e4, 0.25))};

const tx_architecture tx_stablelm = {
    USUAL_FAMILY("stablelm", "StableLm"),
    CENTRED_GGUF("stablelm",
                 TX_GGUF_OWN_KEYS(
                     TX_GGUF_MEMBER("use_parallel_residual", offsetof(llama_config, residual.parallel), BOOL, NOTHING)),
                 TX_GGUF_FIXED({"tie_word_embeddings", false}))};
