/* SPDX-License-Identifier: Apache-2.0
 *
 * Phi-1, Phi-1.5 and Phi-2 (Gunasekar et al., Textbooks are all you need, 2023): one layer norm for parallel attention
 * and MLP, biases everywhere, and rotary positions in a part of each head. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    EMBED_ROW,
    LAYER_NORM_ROWS(INPUT_NORM, LAYER "input_layernorm"),
    SEPARATE_QKV_ROWS,
    {Q_NORM, LAYER "self_attn.q_layernorm.weight", {HEAD_SIZE}, ONES, IF(norms.each)},
    {Q_NORM_BIAS, LAYER "self_attn.q_layernorm.bias", {HEAD_SIZE}, ZEROS, IF(norms.each)},
    {K_NORM, LAYER "self_attn.k_layernorm.weight", {HEAD_SIZE}, ONES, IF(norms.each)},
    {K_NORM_BIAS, LAYER "self_attn.k_layernorm.bias", {HEAD_SIZE}, ZEROS, IF(norms.each)},
    {O_PROJ, LAYER "self_attn.dense.weight", {WIDTH, HEADS}, .split = 2},
    {O_BIAS, LAYER "self_attn.dense.bias", {WIDTH}, ZEROS},
    PLAIN_MLP_ROWS(LAYER "mlp.fc1", LAYER "mlp.fc2"),
    LAYER_NORM_ROWS(FINAL_NORM, "model.final_layernorm"),
    {LM_HEAD_BIAS, "lm_head.bias", {VOCAB}, ZEROS},
    HEAD_ROWS,
};

static const tx_config_key keys[] = {SIZE_KEYS,
                                     KV_HEADS_KEY,
                                     EPS_KEY(layer_norm_eps),
                                     GELU_KEY(hidden_act),
                                     NUMBER(resid_pdrop, residual.dropout, 0.999),
                                     NUMBER(embd_pdrop, embedding.dropout, 0.999),
                                     FLAG(qk_layernorm, norms.each),
                                     {.name = NULL}};

static const llama_config defaults = {
    SIZES(tx_phi, rows, 51200, 2048, 2048, 24, 32, 1, 2),
    REST_OF(8192, 0, 1e-5, 0.02, PARTIAL_ROPE(1e4, 0.5)),
    PLAIN_MLP(TX_LLAMA_GELU_TANH, TX_LLAMA_GELU_NEW),
    .attention.bias = true,
    .mlp.bias = true,
    .residual.parallel = true,
};

const tx_architecture tx_phi = {
    FAMILY("phi", "Phi", defaults, keys, "q_proj,v_proj,fc1,fc2", tx_llama_read, tx_llama_write),
    CENTRED_GGUF("phi2", TX_GGUF_FIXED({"tie_word_embeddings", false}, {"qk_layernorm", false}), .gelu = "hidden_act")};
