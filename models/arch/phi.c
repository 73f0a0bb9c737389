/* SPDX-License-Identifier: Apache-2.0
 *
 * Phi-1, Phi-1.5 and Phi-2 (Gunasekar et al., Textbooks are all you need, 2023): one layer norm for parallel attention
 * and MLP, biases everywhere, and rotary positions in a part of each head. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    EMBED_ROW,
    LAYER_NORM_ROWS(INPUT_NORM, LAYER "input_layernorm"),
    SEPARATE_QKV_ROWS,
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
                                     NUMBER(resid_pdrop, 0.999),
                                     NUMBER(embd_pdrop, 0.999),
                                     {.name = NULL}};

static const tx_fixed_key fixed_keys[] = {{"qk_layernorm", false, "norms of the heads are not implemented"},
                                          {.name = NULL}};

static const llama_config defaults = {
    SIZES(tx_phi, rows, 51200, 2048, 2048, 24, 32, 1, 2),
    .intermediate_size = 8192,
    .rms_norm_eps = 1e-5,
    .initializer_range = 0.02,
    .rope = {.theta = 1e4, .factor = 1, .attention = 1, .rotated = 0.5, .partial = true},
    .activation = TX_LLAMA_GELU_TANH,
    .hidden_act = TX_LLAMA_GELU_NEW - TX_LLAMA_GELU_TANH,
    .attention_bias = true,
    .mlp_bias = true,
    .use_parallel_residual = true,
    .plain_mlp = true,
};

const tx_architecture tx_phi = {
    FAMILY("phi", "Phi", defaults, keys, fixed_keys, "q_proj,v_proj", tx_llama_rename, tx_llama_write),
    .read = tx_llama_read, .check = tx_llama_check};
