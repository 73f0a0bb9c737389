/* SPDX-License-Identifier: Apache-2.0
 *
 * Nemotron and Minitron (Parmar et al., Nemotron-4 15B, 2024): layer norms whose weights are 1 + gamma, rotary
 * positions in a part of each head, and an MLP without a gate and with the square of ReLU. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    CENTRED_OPENING_ROWS,
    PLAIN_MLP_ROWS(LAYER "mlp.up_proj", LAYER "mlp.down_proj"),
    LAYER_NORM_ROWS(FINAL_NORM, "model.norm"),
    HEAD_ROWS,
};

static const tx_config_key keys[] = {
    SIZE_KEYS,    KV_HEADS_KEY, EPS_KEY(norm_eps), ONE_ACT_KEY(hidden_act, TX_LLAMA_RELU2),
    HEAD_DIM_KEY, BIAS_KEY,     MLP_BIAS_KEY,      {.name = NULL}};

static const llama_config defaults = {SIZES(tx_nemotron, rows, 256000, 4096, 6144, 32, 48, 2, 3),
                                      REST_OF(24576, 0, 1e-5, 0.0134, PARTIAL_ROPE(1e4, 0.5)),
                                      PLAIN_MLP(TX_LLAMA_RELU2, TX_LLAMA_RELU2), .norms.add_one = true};

const tx_architecture tx_nemotron = {
    USUAL_FAMILY("nemotron", "Nemotron"),
    CENTRED_GGUF("nemotron",
                 TX_GGUF_FIXED({"attention_bias", false}, {"tie_word_embeddings", false}, {"mlp_bias", false}))};
