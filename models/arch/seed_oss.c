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
                                     MLP_BIAS_KEY,
                                     FLAG(attention_bias, attention.qkv_bias),
                                     FLAG(attention_out_bias, attention.bias),
                                     NUMBER(residual_dropout, residual.dropout, 0.999),
                                     {.name = NULL}};

static const llama_config defaults = {SIZES(tx_seed_oss, rows, 155136, 524288, 4096, 64, 80, 0, 2),
                                      REST(27648, 8, 1e-6, 1e4),
                                      .padding = 2,
                                      .attention.head_dim = 128,
                                      .attention.qkv_bias = true,
                                      .attention.dropout = 0.1,
                                      .residual.dropout = 0.1};

const tx_architecture tx_seed_oss = {
    USUAL_FAMILY("seed_oss", "SeedOss"),
    GGUF("seed_oss", TX_GGUF_OWN_NAMES(TX_GGUF_NAME(POST_NORM, "blk.%d.post_attention_norm.weight")),
         TX_GGUF_FIXED({"attention_out_bias", false}, {"mlp_bias", false}))};
