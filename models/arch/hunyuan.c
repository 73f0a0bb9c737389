/* SPDX-License-Identifier: Apache-2.0
 *
 * Hunyuan, dense (Tencent, 2025): a Llama that normalises the heads of q and k after their rotation. A fixed "alpha" of
 * its dynamic scaling stretches the rotary base. */
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

static tx_status read(const tx_json *json, tx_config *config)
{
    TX_TRY(tx_llama_read(json, config));
    ((llama_config *)config)->attention.head_dim =
        head_size(llama_of(config)); /* transformers does not accept null here */
    return TX_OK;
}

const tx_architecture tx_hunyuan_v1_dense = {
    FAMILY("hunyuan_v1_dense", "HunYuanDenseV1", defaults, keys, "q_proj,v_proj", read, tx_llama_write),
    GGUF("hunyuan-dense", TX_GGUF_FIXED({"attention_bias", false}))};
