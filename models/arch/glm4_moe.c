/* SPDX-License-Identifier: Apache-2.0
 *
 * GLM-4.5 (Zeng et al., GLM-4.5, 2025) and dots.llm1 (Huo et al., dots.llm1, 2025): attention as in Qwen3, and experts
 * that are chosen as in DeepSeek-V3 (2024, section 2.1.2), with dense layers before them. */
#include "models/arch/llama_family.h"

static const tx_stack_row glm_rows[] = {
    EMBED_ROW,
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
    SEPARATE_QKV_ROWS,
    HEAD_NORM_ROW("q_norm|k_norm.weight", QK_HEAD, ONES, IF(norms.heads)),
    {O_PROJ, LAYER "self_attn.o_proj.weight", {WIDTH, HEADS}, .split = 2},
    {POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    DEEPSEEK_MLP_ROWS,
    LAST_ROWS,
};

static const tx_config_key glm_keys[] = {COMMON_KEYS,   HEAD_DIM_KEY, FLAG(attention_bias, attention.qkv_bias),
                                         DEEPSEEK_KEYS, MTP_KEY,      FLAG(use_qk_norm, norms.heads),
                                         {.name = NULL}};

static const llama_config glm_defaults = {SIZES(tx_glm4_moe, glm_rows, 151552, 131072, 4096, 46, 96, -1, -1),
                                          REST_OF(10944, 8, 1e-5, 0.02, PARTIAL_ROPE(1e4, 0.5)), .mtp_layers = 1,
                                          DEEPSEEK_DEFAULTS(128, 8, 1, 1, 1408, 1, 1, 1), .experts.normalise = true};

const tx_architecture tx_glm4_moe = {
    FAMILY("glm4_moe", "Glm4Moe", glm_defaults, glm_keys, "q_proj,v_proj", tx_llama_read_sized, tx_llama_write),
    GGUF("glm4moe", TX_GGUF_OWN_NAMES(TX_GGUF_NAME(POST_NORM, "blk.%d.post_attention_norm.weight")),
         TX_GGUF_OWN_KEYS(GGUF_ROUTING(GGUF_SIGMOID)), .check = tx_llama_gguf_check_experts,
         .read = tx_llama_gguf_read_experts)};

/* ---- dots.llm1 ------------------------------------------------------------------------------------------- */

static const tx_stack_row dots_rows[] = {
    OPENING_ROWS_WITH(HEAD_NORM_ROW("q_norm|k_norm.weight", QK_HEAD, ONES)),
    DEEPSEEK_MLP_ROWS,
    LAST_ROWS,
};

static const tx_config_key dots_keys[] = {COMMON_KEYS,   HEAD_DIM_KEY,
                                          WINDOW_KEY,    BIAS_KEY,
                                          DEEPSEEK_KEYS, WHOLE(max_window_layers, attention.first_window, 0, 1 << 12),
                                          {.name = NULL}};

static const llama_config dots_defaults = {SIZES(tx_dots1, dots_rows, 152064, 2048, 4608, 62, 32, -1, -1),
                                           REST(10944, 32, 1e-6, 1e4),
                                           .attention.window = 4096,
                                           .attention.windowed = true,
                                           .attention.first_window = 62,
                                           DEEPSEEK_DEFAULTS(128, 6, 2, 0, 1408, 1, 1, 1)};

/* llama.cpp has no window, and as many heads of keys as of queries. */
static tx_status check_dots(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    for (int64_t i = 0; i < c->base.layers; i++)
        if (window_of(c, i) > 0)
            return tx_fail(TX_UNSUPPORTED, "sliding_window: llama.cpp computes as if there were none");
    TX_TRY(tx_llama_gguf_check_heads(e));
    return tx_llama_gguf_check_experts(e);
}

static tx_status read_dots(const tx_gguf_file *file, tx_json *json)
{
    TX_TRY(tx_json_set_null(json, "sliding_window"));
    return tx_llama_gguf_read_experts(file, json);
}

const tx_architecture tx_dots1 = {
    FAMILY("dots1", "Dots1", dots_defaults, dots_keys, "q_proj,v_proj", tx_llama_read_sized, tx_llama_write),
    GGUF("dots1", TX_GGUF_OWN_KEYS(GGUF_ROUTING(GGUF_SIGMOID)),
         TX_GGUF_FIXED({"attention_bias", false}, {"tie_word_embeddings", false}), .check = check_dots,
         .read = read_dots)};
