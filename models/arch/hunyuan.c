/* SPDX-License-Identifier: Apache-2.0
 *
 * Hunyuan (Tencent, 2025): a Llama that normalises the heads of q and k after their rotation; dense, and with experts.
 * A fixed "alpha" of its dynamic scaling stretches the rotary base. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    OPENING_ROWS_WITH(HEAD_NORM_ROW("query_layernorm|key_layernorm.weight", QK_HEAD, ONES)),
    SEPARATE_MLP_ROWS,
    LAST_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS, HEAD_DIM_KEY, BIAS_KEY, {.name = NULL}};

static const llama_config defaults = {
    SIZES(tx_hunyuan_v1_dense, rows, 290943, 2048, 4096, 32, 32, 1, 2),
    REST_OF(11008, 0, 1e-5, 0.02, {.theta = 1e4, .factor = 1, .attention = 1, .rotated = 1, .alpha = 1}), .padding = 1,
    .norms.after_rope = true};

const tx_architecture tx_hunyuan_v1_dense = {
    FAMILY("hunyuan_v1_dense", "HunYuanDenseV1", defaults, keys, "q_proj,v_proj", tx_llama_read_sized, tx_llama_write),
    GGUF("hunyuan-dense", TX_GGUF_FIXED({"attention_bias", false}))};

/* ---- With experts -------------------------------------------------------------------------------------- */

static const tx_stack_row moe_rows[] = {
    OPENING_ROWS_WITH(HEAD_NORM_ROW("query_layernorm|key_layernorm.weight", QK_HEAD, ONES)),
    MLP_EXPERT_ROWS("mlp.gate.wg.weight"),
    SHARED_ROWS(LAYER "mlp.shared_mlp.gate_proj|up_proj.weight", LAYER "mlp.shared_mlp.down_proj.weight"),
    LAST_ROWS,
};

static const tx_config_key moe_keys[] = {COMMON_KEYS,
                                         HEAD_DIM_KEY,
                                         BIAS_KEY,
                                         SIZE_OR_NULL(num_experts, experts.count, 1 << 12),
                                         SIZE_OR_NULL(moe_topk, experts.chosen, 1 << 12),
                                         {.name = NULL}};

static const llama_config moe_defaults = {
    SIZES(tx_hunyuan_v1_moe, moe_rows, 290943, 2048, 4096, 32, 32, 1, 2),
    REST_OF(11008, 0, 1e-5, 0.02, {.theta = 1e4, .factor = 1, .attention = 1, .rotated = 1, .alpha = 1}),
    .padding = 1,
    .norms.after_rope = true,
    EXPERTS_DEFAULTS(1, 1, 0),
    .experts.shared = 1,
    .experts.normalise = true};

/* Lists with a number for each layer are read as their first item; all must be equal. */
static tx_status check_list(const tx_json *json, const char *key, int64_t number)
{
    tx_json *list;
    int64_t item;
    if (!tx_json_has(json, key) || tx_json_get(json, key, TX_JSON_ARRAY, &list))
        return TX_OK;
    for (size_t i = 0; i < tx_json_size(list); i++) {
        TX_TRY(tx_json_as_int(tx_json_at(list, i), key, 1, 1 << 12, &item));
        if (item != number)
            return tx_fail(TX_UNSUPPORTED, "%s: layers with different numbers are not implemented", key);
    }
    return TX_OK;
}

static tx_status read_moe(const tx_json *json, tx_config *config)
{
    TX_TRY(check_list(json, "num_experts", llama_of(config)->experts.count));
    TX_TRY(check_list(json, "moe_topk", llama_of(config)->experts.chosen));
    return tx_llama_read_sized(json, config);
}

static int64_t size_of(const tx_config *config)
{
    return expert_size(llama_of(config));
}

const tx_architecture tx_hunyuan_v1_moe = {
    FAMILY("hunyuan_v1_moe", "HunYuanMoEV1", moe_defaults, moe_keys, "q_proj,v_proj", read_moe, tx_llama_write),
    GGUF("hunyuan-moe",
         TX_GGUF_OWN_KEYS({.key = "expert_feed_forward_length", .value = size_of},
                          {.key = "expert_shared_feed_forward_length", .value = size_of}),
         TX_GGUF_FIXED({"attention_bias", false}))};
