/* SPDX-License-Identifier: Apache-2.0
 *
 * Granite 3 (IBM, 2024): a Llama with multipliers of the embeddings, the scores, what blocks add, and the logits (Yang
 * et al., Tensor Programs V, 2022), and Granite 3 with experts, some of which all tokens use (granitemoeshared). */
#include "models/arch/granite.h"

#include "models/arch/llama_family.h"

static const tx_config_key keys[] = {COMMON_KEYS, BIAS_KEY, MLP_BIAS_KEY, GRANITE_KEYS, {.name = NULL}};

static const llama_config defaults = {SIZES(tx_granite, tx_llama_rows, 32000, 2048, 4096, 32, 32, 1, 2),
                                      REST(11008, 0, 1e-6, 1e4), GRANITE_DEFAULTS};

#define MOE LAYER "block_sparse_moe."

static const tx_stack_row moe_rows[] = {
    OPENING_ROWS,
    EXPERT_ROWS(MOE "router.layer.weight", MOE "input_linear.weight", MOE "output_linear.weight"),
    LAST_ROWS,
};

static const tx_config_key moe_keys[] = {
    COMMON_KEYS, BIAS_KEY, GRANITE_KEYS, EXPERTS_KEYS(num_local_experts, "num_experts"), {.name = NULL}};

static const llama_config moe_defaults = {SIZES(tx_granitemoe, moe_rows, 32000, 2048, 4096, 32, 32, 1, 2),
                                          REST(11008, 0, 1e-6, 1e4), EXPERTS_DEFAULTS(8, 2, 0.001),
                                          .experts.normalise = true, GRANITE_DEFAULTS};

static const tx_stack_row shared_rows[] = {
    OPENING_ROWS,
    EXPERT_ROWS(MOE "router.layer.weight", MOE "input_linear.weight", MOE "output_linear.weight"),
    SHARED_ROWS(LAYER "shared_mlp.input_linear.weight", LAYER "shared_mlp.output_linear.weight"),
    LAST_ROWS,
};

static const tx_config_key shared_keys[] = {COMMON_KEYS,
                                            BIAS_KEY,
                                            GRANITE_KEYS,
                                            EXPERTS_KEYS(num_local_experts, "num_experts"),
                                            WHOLE(shared_intermediate_size, experts.shared_inner, 0, 1 << 22),
                                            {.name = NULL}};

static const llama_config shared_defaults = {SIZES(tx_granitemoeshared, shared_rows, 32000, 2048, 4096, 32, 32, 1, 2),
                                             REST(11008, 0, 1e-6, 1e4), EXPERTS_DEFAULTS(8, 2, 0.001),
                                             .experts.normalise = true, GRANITE_DEFAULTS};

#define SHARED_SIZE "expert_shared_feed_forward_length"
#define GGUF_SCALES TX_GGUF_OWN_KEYS(GRANITE_GGUF_SCALES)
const tx_architecture tx_granitemoe = {
    FAMILY("granitemoe", "GraniteMoe", moe_defaults, moe_keys, "q_proj,v_proj", tx_llama_read, tx_llama_write),
    GGUF("granitemoe", .pairs = true, .rope_factors = true, GGUF_SCALES, .without = {SHARED_SIZE})};

/* llama.cpp has one type for both; a file with the size of shared experts is of this type. */
const tx_architecture tx_granitemoeshared = {
    FAMILY("granitemoeshared", "GraniteMoeShared", shared_defaults, shared_keys, "q_proj,v_proj", tx_llama_read,
           tx_llama_write),
    GGUF("granitemoe", .pairs = true, .halves = true, .rope_factors = true, GGUF_SCALES,
         TX_GGUF_OWN_NAMES(TX_GGUF_NAME(SHARED_GATE_UP_PROJ, "blk.%d.ffn_gate_shexp.weight")), .with = SHARED_SIZE)};

const tx_architecture tx_granite = {USUAL_FAMILY("granite", "Granite"),
                                    GGUF("granite", .pairs = true, .rope_factors = true, GGUF_SCALES)};
