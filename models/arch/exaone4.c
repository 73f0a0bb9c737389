/* SPDX-License-Identifier: Apache-2.0
 *
 * EXAONE 4 (LG AI Research, EXAONE 4.0, 2025): norms after attention and MLP instead of before, norms of the heads of q
 * and k, and sliding windows. If there is a window, only its layers have rotary positions. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    EMBED_ROW,
    SEPARATE_QKV_ROWS,
    HEAD_NORM_ROW("q_norm|k_norm.weight", QK_HEAD, ONES),
    O_ROWS,
    {ATTENTION_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    SEPARATE_MLP_ROWS,
    {MLP_NORM, LAYER "post_feedforward_layernorm.weight", {WIDTH}, ONES},
    LAST_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS, HEAD_DIM_KEY, WINDOW_KEY, {.name = NULL}};

static const llama_config defaults = {SIZES(tx_exaone4, rows, 102400, 2048, 4096, 32, 32, 0, 2),
                                      REST(16384, 32, 1e-5, 1e4),
                                      .attention.window = 4096,
                                      .attention.windowed = true,
                                      .attention.window_period = 4,
                                      .positions.only_windows = true};

/* The pattern in published files ("LLLG") has the same layers as their "layer_types". */
static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    if (!tx_json_has(json, "layer_types"))
        TX_TRY(TX_JSON_OPTIONAL(int, json, "sliding_window_pattern", 1, TX_LLAMA_LAYERS, &c->attention.window_period));
    return tx_llama_read_sized(json, config);
}

/* llama.cpp computes windows only in the model of this size, and in three of four layers. */
#define WINDOW_LAYERS 64

static tx_status check_layers(const tx_gguf_exported *e)
{
    const bool windows = e->config->layers == WINDOW_LAYERS;
    if ((llama_of(e->config)->attention.window > 0) != windows)
        return tx_fail(TX_UNSUPPORTED, "sliding_window: llama.cpp computes windows if and only if there are %d layers",
                       WINDOW_LAYERS);
    return windows ? tx_llama_gguf_windows(e, 4) : TX_OK;
}

static tx_status derive_layers(const tx_gguf_file *file, tx_json *json)
{
    int64_t layers;
    (void)file;
    TX_TRY(tx_json_get_int(json, "num_hidden_layers", 1, TX_LLAMA_LAYERS, &layers));
    if (layers == WINDOW_LAYERS)
        return TX_OK;
    TX_TRY(tx_json_set_null(json, "sliding_window"));
    return tx_llama_gguf_set_windows(json, layers, NULL);
}

const tx_architecture tx_exaone4 = {
    FAMILY("exaone4", "Exaone4", defaults, keys, "q_proj,v_proj", read, tx_llama_write),
    GGUF("exaone4", .rope_factors = true, .check = check_layers, .read = derive_layers)};

/* ---- K-EXAONE: norms before attention and MLP, and experts ------------------------------------------------- */

static const tx_stack_row moe_rows[] = {
    OPENING_ROWS_WITH(HEAD_NORM_ROW("q_norm|k_norm.weight", QK_HEAD, ONES)),
    MLP_EXPERT_ROWS("mlp.gate.weight"),
    CHOICE_BIAS_ROW(is_sparse, LAYER "mlp.e_score_correction_bias", EXPERTS),
    SHARED_EXPERTS_ROWS,
    DENSE_ROWS,
    LAST_ROWS,
};

static const tx_config_key moe_keys[] = {COMMON_KEYS,
                                         HEAD_DIM_KEY,
                                         WINDOW_KEY,
                                         CHOICE_KEYS,
                                         SIZE_OF(num_experts, "num_local_experts", experts.count, 1 << 12),
                                         WHOLE(num_shared_experts, experts.shared, 0, 1 << 12),
                                         {.name = NULL}};

static const llama_config moe_defaults = {SIZES(tx_exaone_moe, moe_rows, 102400, 2048, 4096, 32, 32, 1, 53),
                                          REST(16384, 32, 1e-5, 1e4),
                                          .padding = 1,
                                          .attention.window = 4096,
                                          .attention.windowed = true,
                                          .attention.window_period = 4,
                                          .positions.only_windows = true,
                                          DEEPSEEK_DEFAULTS(64, 8, 1, 1, 1024, 1, 1, 2.5),
                                          .experts.normalise = true};

static tx_status read_moe(const tx_json *json, tx_config *config)
{
    TX_TRY(read(json, config));
    return tx_llama_read_mlp_types(json, (llama_config *)config);
}

static tx_status check_moe(const tx_gguf_exported *e)
{
    TX_TRY(tx_llama_gguf_windows(e, 4));
    return tx_llama_gguf_check_experts(e);
}

const tx_architecture tx_exaone_moe = {
    FAMILY("exaone_moe", "ExaoneMoe", moe_defaults, moe_keys, "q_proj,v_proj", read_moe, tx_llama_write),
    GGUF("exaone-moe",
         TX_GGUF_OWN_KEYS(GGUF_ROUTING(GGUF_SIGMOID),
                          {.key = "expert_shared_feed_forward_length", .value = tx_llama_gguf_shared}),
         TX_GGUF_FIXED({"tie_word_embeddings", false}), .check = check_moe, .read = tx_llama_gguf_read_experts)};
