/* SPDX-License-Identifier: Apache-2.0
 *
 * Ernie 4.5, dense (Baidu, ERNIE 4.5 technical report, 2025): a Llama that rotates adjacent elements of a head. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    OPENING_ROWS,
    SEPARATE_MLP_ROWS,
    MLP_BIAS_ROWS_IF(attention.bias),
    LAST_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS, HEAD_DIM_KEY, FLAG(use_bias, attention.bias), {.name = NULL}};

static const llama_config defaults = {SIZES(tx_ernie4_5, rows, 103424, 131072, 1024, 18, 16, 1, 2),
                                      REST(3072, 2, 1e-5, 5e5),
                                      .padding = 1,
                                      .attention.head_dim = 128,
                                      .positions.interleaved = true,
                                      .tie_word_embeddings = true};

const tx_architecture tx_ernie4_5 = {USUAL_FAMILY("ernie4_5", "Ernie4_5"),
                                     GGUF("ernie4_5", TX_GGUF_FIXED({"use_bias", false}))};
