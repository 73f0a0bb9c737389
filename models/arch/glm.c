/* SPDX-License-Identifier: Apache-2.0
 *
 * GLM-4 (GLM team, ChatGLM, 2024) as types glm and glm4: a Llama with rotary positions in a part of each head, whose
 * pairs are adjacent, and one tensor for gate and up. The type glm4 also has norms after attention and MLP. */
#include "models/arch/llama_family.h"

#include <inttypes.h>

#define OPENING                                                                                \
    EMBED_ROW, {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES}, SEPARATE_QKV_ROWS, \
    {                                                                                          \
        O_PROJ, LAYER "self_attn.o_proj.weight", {WIDTH, HEADS}, .split = 2                    \
    }
#define REST_OF_BLOCK {POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES}, JOINED_MLP_ROWS

static const tx_stack_row rows[] = {OPENING, REST_OF_BLOCK, LAST_ROWS};
static const tx_stack_row rows_4[] = {
    OPENING,       {ATTENTION_NORM, LAYER "post_self_attn_layernorm.weight", {WIDTH}, ONES},
    REST_OF_BLOCK, {MLP_NORM, LAYER "post_mlp_layernorm.weight", {WIDTH}, ONES},
    LAST_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS, HEAD_DIM_KEY, BIAS_KEY, {.name = NULL}};

#define DEFAULTS(row, table)                                                                                          \
    SIZES(row, table, 151552, 131072, 4096, 40, 32, -1, 151329),                                                      \
        .padding = 151330, .mlp.inner = 13696, .attention.kv_heads = 2, .attention.head_dim = 128,                    \
        .norms.eps = 0.00000015625, .initializer_range = 0.02, .attention.bias = true, .positions.interleaved = true, \
        .positions.rope = PARTIAL_ROPE(1e4, 0.5)

static const llama_config defaults = {DEFAULTS(tx_glm, rows)};
static const llama_config defaults_4 = {DEFAULTS(tx_glm4, rows_4)};

static tx_status check_heads(const tx_gguf_exported *e)
{
    const int64_t size = e->config->width / e->config->heads;
    return head_size(llama_of(e->config)) == size
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "head_dim: llama.cpp computes as if it were %" PRId64, size);
}

const tx_architecture tx_glm = {USUAL_FAMILY("glm", "Glm"), GGUF("chatglm", .check = check_heads)};

const tx_architecture tx_glm4 = {
    FAMILY("glm4", "Glm4", defaults_4, keys, "q_proj,v_proj", tx_llama_read, tx_llama_write), GGUF("glm4")};
