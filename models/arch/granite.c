/* SPDX-License-Identifier: Apache-2.0
 *
 * Granite 3 (IBM, 2024): a Llama with multipliers of the embeddings, the scores, what blocks add, and the logits (Yang
 * et al., Tensor Programs V, 2022), and Granite 3 with experts. */
#include "models/arch/llama_family.h"

#define MULTIPLIER(name)                                  \
    {                                                     \
        KEY(name), TX_KEY_NUMBER, .min = 1e-9, .max = 1e9 \
    }

#define GRANITE_KEYS                                                                                     \
    MULTIPLIER(embedding_multiplier), MULTIPLIER(attention_multiplier), MULTIPLIER(residual_multiplier), \
        MULTIPLIER(logits_scaling)

static const tx_config_key keys[] = {COMMON_KEYS, FLAG(attention_bias), FLAG(mlp_bias), GRANITE_KEYS, {.name = NULL}};

static const llama_config defaults = {SIZES(tx_granite, tx_llama_rows, 32000, 2048, 4096, 32, 32, 1, 2),
                                      REST(11008, 0, 1e-6, 1e4),
                                      .embedding_multiplier = 1,
                                      .attention_multiplier = 1,
                                      .residual_multiplier = 1,
                                      .logits_scaling = 1};

static const tx_stack_row moe_rows[] = {
    OPENING_ROWS,
    {ROUTER, LAYER "block_sparse_moe.router.layer.weight", {EXPERTS, WIDTH}, .router = true},
    {EXPERTS_GATE_UP,
     LAYER "block_sparse_moe.input_linear.weight",
     {EXPERTS, EXPERT_GATE_UP, WIDTH},
     .split = 2,
     .experts = true},
    {EXPERTS_DOWN,
     LAYER "block_sparse_moe.output_linear.weight",
     {EXPERTS, WIDTH, EXPERT_INNER},
     .split = 3,
     .experts = true},
    LAST_ROWS,
};

static const tx_config_key moe_keys[] = {
    COMMON_KEYS, FLAG(attention_bias), GRANITE_KEYS, EXPERTS_KEYS("num_local_experts", "num_experts"), {.name = NULL}};

static const llama_config moe_defaults = {SIZES(tx_granitemoe, moe_rows, 32000, 2048, 4096, 32, 32, 1, 2),
                                          REST(11008, 0, 1e-6, 1e4),
                                          EXPERTS_DEFAULTS(8, 2),
                                          .norm_topk_prob = true,
                                          .embedding_multiplier = 1,
                                          .attention_multiplier = 1,
                                          .residual_multiplier = 1,
                                          .logits_scaling = 1};

const tx_architecture tx_granitemoe = {FAMILY("granitemoe", "GraniteMoe", moe_defaults, moe_keys, tx_llama_fixed_keys,
                                              "q_proj,v_proj", tx_llama_rename, tx_llama_write),
                                       .read = tx_llama_read, .check = tx_llama_check};
const tx_architecture tx_granite = {
    FAMILY("granite", "Granite", defaults, keys, tx_llama_fixed_keys, "q_proj,v_proj", tx_llama_rename, tx_llama_write),
    .read = tx_llama_read, .check = tx_llama_check};
