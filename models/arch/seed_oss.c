/* SPDX-License-Identifier: Apache-2.0
 *
 * Seed-OSS (ByteDance, 2025): a Llama whose q, k and v have biases, with dropout of the parts of a block. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    OPENING_ROWS,
    SEPARATE_MLP_ROWS,
    MLP_BIAS_ROWS,
    LAST_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS,
                                     HEAD_DIM_KEY,
                                     FLAG(mlp_bias),
                                     NAMED_FLAG(attention_bias, qkv_bias),
                                     NAMED_FLAG(attention_out_bias, attention_bias),
                                     NAMED_NUMBER(residual_dropout, resid_pdrop, 0.999),
                                     {.name = NULL}};

static const llama_config defaults = {SIZES(tx_seed_oss, rows, 155136, 524288, 4096, 64, 80, 0, 2),
                                      REST(27648, 8, 1e-6, 1e4),
                                      .padding = 2,
                                      .head_dim = 128,
                                      .qkv_bias = true,
                                      .attention_dropout = 0.1,
                                      .resid_pdrop = 0.1};

const tx_architecture tx_seed_oss = {FAMILY("seed_oss", "SeedOss", defaults, keys, tx_llama_fixed_keys, "q_proj,v_proj",
                                            tx_llama_rename, tx_llama_write),
                                     .read = tx_llama_read, .check = tx_llama_check};
