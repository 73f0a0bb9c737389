/* SPDX-License-Identifier: Apache-2.0
 *
 * Arcee Foundation Models (Arcee AI, AFM-4.5B, 2025): Llama with an MLP without a gate and the square of ReLU. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {OPENING_ROWS, PLAIN_MLP_ROWS(LAYER "mlp.up_proj", LAYER "mlp.down_proj"),
                                    LAST_ROWS};

static const tx_config_key keys[] = {
    SIZE_KEYS,    KV_HEADS_KEY,         EPS_KEY(rms_norm_eps), ONE_ACT_KEY(hidden_act, TX_LLAMA_RELU2),
    HEAD_DIM_KEY, FLAG(attention_bias), FLAG(mlp_bias),        {.name = NULL}};

static const llama_config defaults = {SIZES(tx_arcee, rows, 32000, 4096, 2560, 32, 32, 128000, 128001),
                                      REST(18432, 0, 1e-5, 1e4), .activation = TX_LLAMA_RELU2, .plain_mlp = true};

const tx_architecture tx_arcee = {
    FAMILY("arcee", "Arcee", defaults, keys, tx_llama_fixed_keys, "q_proj,v_proj", tx_llama_rename, tx_llama_write),
    .read = tx_llama_read, .check = tx_llama_check};
