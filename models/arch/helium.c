/* SPDX-License-Identifier: Apache-2.0
 *
 * Helium (Kyutai, Helium-1, 2025): Llama whose rotary pairs are adjacent elements, without a bias of the output
 * projection. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {OPENING_ROWS, SEPARATE_MLP_ROWS, MLP_BIAS_ROWS, LAST_ROWS};

static const tx_config_key keys[] = {
    COMMON_KEYS, HEAD_DIM_KEY, FLAG(attention_bias, attention.qkv_bias), MLP_BIAS_KEY, {.name = NULL}};

static const llama_config defaults = {SIZES(tx_helium, rows, 48000, 4096, 2560, 24, 20, 1, 2),
                                      REST(7040, 20, 1e-8, 1e5), .padding = 4, .attention.head_dim = 128,
                                      .positions.interleaved = true};

const tx_architecture tx_helium = {
    FAMILY("helium", "Helium", defaults, keys, "q_proj,v_proj", tx_llama_read, tx_llama_write)};
