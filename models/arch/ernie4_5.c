/* SPDX-License-Identifier: Apache-2.0
 *
 * Ernie 4.5 (Baidu, ERNIE 4.5 technical report, 2025): a Llama that rotates adjacent elements of a head; dense, and
 * with experts in some layers. */
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

/* ---- With experts -------------------------------------------------------------------------------------- */

static const tx_stack_row moe_rows[] = {
    OPENING_ROWS,
    MLP_EXPERT_ROWS("mlp.gate.weight"),
    CHOICE_BIAS_ROW(is_sparse, LAYER "mlp.moe_statics.e_score_correction_bias", ONE, EXPERTS),
    SHARED_EXPERTS_ROWS,
    DENSE_ROWS,
    LAST_ROWS,
};

static const tx_config_key moe_keys[] = {COMMON_KEYS,
                                         HEAD_DIM_KEY,
                                         SIZE(moe_num_experts, experts.count, 1 << 12),
                                         SIZE(moe_k, experts.chosen, 1 << 12),
                                         WHOLE(moe_num_shared_experts, experts.shared, 0, 1 << 12),
                                         SIZE(moe_intermediate_size, experts.inner, 1 << 22),
                                         WHOLE(moe_layer_start_index, experts.first, 0, TX_LLAMA_LAYERS),
                                         WHOLE(moe_layer_end_index, experts.last, -1, TX_LLAMA_LAYERS),
                                         SIZE(moe_layer_interval, experts.period, TX_LLAMA_LAYERS),
                                         SETTING(moe_norm_min, experts.least, 1e-30, 1),
                                         FLAG(output_router_logits, experts.balance),
                                         NUMBER(router_aux_loss_coef, experts.balance_factor, 1e6),
                                         {.name = NULL}};

static const llama_config moe_defaults = {SIZES(tx_ernie4_5_moe, moe_rows, 103424, 131072, 2560, 28, 20, 1, 2),
                                          REST(12288, 4, 1e-5, 5e5),
                                          .padding = 1,
                                          .positions.interleaved = true,
                                          .tie_word_embeddings = true,
                                          EXPERTS_DEFAULTS(64, 6, 0.001),
                                          .experts.inner = 1536,
                                          .experts.shared = 2,
                                          .experts.first = 1,
                                          .experts.normalise = true,
                                          .experts.least = 1e-12};

static const tx_fixed_key moe_fixed[] = {{"use_bias", "false", "biases of this model type are not implemented"},
                                         {.name = NULL}};

const tx_architecture tx_ernie4_5_moe = {
    FAMILY("ernie4_5_moe", "Ernie4_5_Moe", moe_defaults, moe_keys, "q_proj,v_proj", tx_llama_read_sized,
           tx_llama_write),
    .fixed = moe_fixed,
    GGUF("ernie4_5-moe",
         TX_GGUF_OWN_KEYS(
             TX_GGUF_MEMBER("interleave_moe_layer_step", offsetof(llama_config, experts.period), INT, NOTHING),
             {.key = "leading_dense_block_count",
              .name = "moe_layer_start_index",
              .value = tx_llama_gguf_dense,
              .otherwise = TX_GGUF_CONSTANT}, /* also 0, which is not the default */
             TX_GGUF_MEMBER("expert_shared_count", offsetof(llama_config, experts.shared), INT, NOTHING),
             {.key = "expert_shared_feed_forward_length", .value = tx_llama_gguf_shared}),
         .check = tx_llama_gguf_check_experts)};
