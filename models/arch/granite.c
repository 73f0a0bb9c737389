/* SPDX-License-Identifier: Apache-2.0
 *
 * Granite 3 (IBM, 2024): a Llama with multipliers of the embeddings, the scores, what blocks add, and the logits (Yang
 * et al., Tensor Programs V, 2022). */
#include "models/arch/llama_family.h"

#define MULTIPLIER(name)                                  \
    {                                                     \
        KEY(name), TX_KEY_NUMBER, .min = 1e-9, .max = 1e9 \
    }

static const tx_config_key keys[] = {COMMON_KEYS,
                                     FLAG(attention_bias),
                                     FLAG(mlp_bias),
                                     MULTIPLIER(embedding_multiplier),
                                     MULTIPLIER(attention_multiplier),
                                     MULTIPLIER(residual_multiplier),
                                     MULTIPLIER(logits_scaling),
                                     {.name = NULL}};

static const llama_config defaults = {SIZES(tx_granite, tx_llama_rows, 32000, 2048, 4096, 32, 32, 1, 2),
                                      REST(11008, 0, 1e-6, 1e4),
                                      .embedding_multiplier = 1,
                                      .attention_multiplier = 1,
                                      .residual_multiplier = 1,
                                      .logits_scaling = 1};

const tx_architecture tx_granite = {
    FAMILY("granite", "Granite", defaults, keys, tx_llama_fixed_keys, "q_proj,v_proj", tx_llama_rename, tx_llama_write),
    .read = tx_llama_read, .check = tx_llama_check};
