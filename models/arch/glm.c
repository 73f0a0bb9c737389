/* SPDX-License-Identifier: Apache-2.0
 *
 * GLM-4 (GLM team, ChatGLM, 2024) as types glm and glm4: a Llama with rotary positions in a part of each head, whose
 * pairs are adjacent, and one tensor for gate and up. The type glm4 also has norms after attention and MLP. */
#include "models/arch/llama_family.h"

#define OPENING                                                                                \
    EMBED_ROW, {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES}, SEPARATE_QKV_ROWS, \
    {                                                                                          \
        O_PROJ, LAYER "self_attn.o_proj.weight", {WIDTH, HEADS}, .split = 2                    \
    }
#define REST_OF_BLOCK                                                                  \
    {POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},               \
        {GATE_UP_PROJ, LAYER "mlp.gate_up_proj.weight", {GATE_UP, WIDTH}, .split = 1}, \
    {                                                                                  \
        DOWN_PROJ, LAYER "mlp.down_proj.weight", {WIDTH, INNER}, .split = 2            \
    }

static const tx_stack_row rows[] = {OPENING, REST_OF_BLOCK, LAST_ROWS};
static const tx_stack_row rows_4[] = {
    OPENING,       {ATTENTION_NORM, LAYER "post_self_attn_layernorm.weight", {WIDTH}, ONES},
    REST_OF_BLOCK, {MLP_NORM, LAYER "post_mlp_layernorm.weight", {WIDTH}, ONES},
    LAST_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS, HEAD_DIM_KEY, FLAG(attention_bias), {.name = NULL}};

#define DEFAULTS(row, table)                                                                                        \
    SIZES(row, table, 151552, 131072, 4096, 40, 32, -1, 151329),                                                    \
        .padding = 151330, .intermediate_size = 13696, .num_key_value_heads = 2, .head_dim = 128,                   \
        .rms_norm_eps = 0.00000015625, .initializer_range = 0.02, .attention_bias = true, .interleaved_rope = true, \
        .rope = {.theta = 1e4, .factor = 1, .attention = 1, .rotated = 0.5, .partial = true}

static const llama_config defaults = {DEFAULTS(tx_glm, rows)};
static const llama_config defaults_4 = {DEFAULTS(tx_glm4, rows_4)};

const tx_architecture tx_glm = {
    FAMILY("glm", "Glm", defaults, keys, tx_llama_fixed_keys, "q_proj,v_proj", tx_llama_rename, tx_llama_write),
    .read = tx_llama_read, .check = tx_llama_check};
const tx_architecture tx_glm4 = {
    FAMILY("glm4", "Glm4", defaults_4, keys, tx_llama_fixed_keys, "q_proj,v_proj", tx_llama_rename, tx_llama_write),
    .read = tx_llama_read, .check = tx_llama_check};
