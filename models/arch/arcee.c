/* SPDX-License-Identifier: Apache-2.0
 *
 * Arcee Foundation Models (Arcee AI, AFM-4.5B, 2025): Llama with an MLP without a gate and the square of ReLU. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {OPENING_ROWS, PLAIN_MLP_ROWS(LAYER "mlp.up_proj", LAYER "mlp.down_proj"),
                                    LAST_ROWS};

static const tx_config_key keys[] = {
    SIZE_KEYS,    KV_HEADS_KEY, EPS_KEY(rms_norm_eps), ONE_ACT_KEY(hidden_act, TX_LLAMA_RELU2),
    HEAD_DIM_KEY, BIAS_KEY,     MLP_BIAS_KEY,          {.name = NULL}};

static const llama_config defaults = {SIZES(tx_arcee, rows, 32000, 4096, 2560, 32, 32, 128000, 128001),
                                      REST(18432, 0, 1e-5, 1e4), PLAIN_MLP(TX_LLAMA_RELU2, TX_LLAMA_RELU2)};

const tx_architecture tx_arcee = {
    USUAL_FAMILY("arcee", "Arcee"),
    GGUF("arcee", .pairs = true, .rope_factors = true, TX_GGUF_FIXED({"attention_bias", false}, {"mlp_bias", false}))};
