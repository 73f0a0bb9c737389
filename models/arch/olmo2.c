/* SPDX-License-Identifier: Apache-2.0
 *
 * OLMo 2 (Walsh et al., 2 OLMo 2 Furious, 2024): a Llama that normalises the outputs of attention and MLP instead of
 * their inputs, and q and k over all heads. */
#include "models/arch/llama_family.h"

#include <inttypes.h>

static const tx_stack_row rows[] = {
    EMBED_ROW,
    SEPARATE_QKV_ROWS,
    {HEAD_NORM, LAYER "self_attn.q_norm|k_norm.weight", {QK_WIDTH}, ONES},
    O_ROWS,
    {ATTENTION_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    SEPARATE_MLP_ROWS,
    {MLP_NORM, LAYER "post_feedforward_layernorm.weight", {WIDTH}, ONES},
    LAST_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS, FLAG(attention_bias), {.name = NULL}};

static const llama_config defaults = {SIZES(tx_olmo2, rows, 50304, 2048, 4096, 32, 32, -1, 50279),
                                      REST(11008, 0, 1e-5, 1e4), .padding = 2, .whole_norms = true};

static tx_status check(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    TX_TRY(tx_llama_check(config));
    if (kv_heads(c) != config->heads)
        return tx_fail(TX_UNSUPPORTED,
                       "num_key_value_heads: %" PRId64 ": for OLMo 2 only as many as num_attention_heads, %" PRId64
                       ", are implemented",
                       kv_heads(c), config->heads);
    return TX_OK;
}

const tx_architecture tx_olmo2 = {
    FAMILY("olmo2", "Olmo2", defaults, keys, tx_llama_fixed_keys, "q_proj,v_proj", tx_llama_rename, tx_llama_write),
    .read = tx_llama_read, .check = check};
