/* SPDX-License-Identifier: Apache-2.0
 * Mixtral (Jiang et al., Mixtral of Experts, 2024): a Mistral with experts in every layer. */
#include "models/arch/llama_family.h"

#define MOE LAYER "block_sparse_moe."

static const tx_stack_row rows[] = {
    OPENING_ROWS,
    EXPERT_ROWS(MOE "gate.weight", MOE "experts.*.w1|w3.weight", MOE "experts.*.w2.weight"),
    LAST_ROWS,
};

static const tx_config_key keys[] = {
    COMMON_KEYS,
    HEAD_DIM_KEY,
    WINDOW_KEY,
    EXPERTS_KEYS(num_local_experts, "num_experts"),
    NUMBER(router_jitter_noise, experts.jitter, 1),
    {.name = NULL},
};

static const llama_config defaults = {SIZES(tx_mixtral, rows, 32000, 131072, 4096, 32, 32, 1, 2),
                                      REST(14336, 8, 1e-5, 1e6), .attention.windowed = true,
                                      EXPERTS_DEFAULTS(8, 2, 0.001), .experts.normalise = true};

const tx_architecture tx_mixtral = {USUAL_FAMILY("mixtral", "Mixtral"),
                                    GGUF("llama", .pairs = true, .rope_factors = true, .with = TX_GGUF_EXPERTS)};
