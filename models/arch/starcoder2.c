/* SPDX-License-Identifier: Apache-2.0
 *
 * StarCoder 2 (Lozhkov et al., StarCoder 2 and The Stack v2, 2024): a Llama with layer norms, biases, an MLP without a
 * gate, and a window in all layers. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    CENTRED_OPENING_ROWS,
    PLAIN_MLP_ROWS_IF(attention.bias, LAYER "mlp.c_fc", LAYER "mlp.c_proj"),
    LAYER_NORM_ROWS(FINAL_NORM, "model.norm"),
    HEAD_ROWS,
};

static const tx_config_key keys[] = {SIZE_KEYS,
                                     KV_HEADS_KEY,
                                     EPS_KEY(norm_epsilon),
                                     HEAD_DIM_KEY,
                                     WINDOW_KEY,
                                     GELU_KEY(hidden_act),
                                     FLAG(use_bias, attention.bias),
                                     NUMBER(residual_dropout, residual.dropout, 0.999),
                                     NUMBER(embedding_dropout, embedding.dropout, 0.999),
                                     {.name = NULL}};

static const llama_config defaults = {SIZES(tx_starcoder2, rows, 49152, 4096, 3072, 30, 24, 50256, 50256),
                                      REST_OF(12288, 2, 1e-5, 0.018042, ROPE(1e4)),
                                      .attention.windowed = true,
                                      PLAIN_MLP(TX_LLAMA_GELU_TANH, TX_LLAMA_GELU_TANH),
                                      .attention.bias = true,
                                      .tie_word_embeddings = true};

const tx_architecture tx_starcoder2 = {
    USUAL_FAMILY("starcoder2", "Starcoder2"),
    CENTRED_GGUF("starcoder2", TX_GGUF_FIXED({"use_bias", true}), .gelu = "hidden_act")};
