/* SPDX-License-Identifier: Apache-2.0
 *
 * Phi-3, Phi-3.5 and Phi-4 (Abdin et al., Phi-3 technical report, 2024): a Llama whose files store q, k and v as one
 * tensor, and gate and up. Phi-4-mini rotates a part of each head. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    EMBED_ROW,
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
    {QKV_PROJ, LAYER "self_attn.qkv_proj.weight", {QKV, WIDTH}, .split = 1},
    O_ROWS,
    {POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    JOINED_MLP_ROWS,
    LAST_ROWS,
};

static const tx_config_key keys[] = {
    COMMON_KEYS, WINDOW_KEY, NUMBER(resid_pdrop, residual.dropout, 0.999), {.name = NULL}};

static const llama_config defaults = {SIZES(tx_phi3, rows, 32064, 4096, 3072, 32, 32, 1, 32000), .padding = 32001,
                                      REST_OF(8192, 0, 1e-5, 0.02, PARTIAL_ROPE(1e4, 1)), .attention.windowed = true};

/* Early files of Phi-3-mini-128k name the scaling "yarn", but it is LongRoPE. */
static tx_status read(const tx_json *json, tx_config *config)
{
    TX_TRY(tx_llama_read(json, config));
    const tx_rope_type type = llama_of(config)->positions.rope.type;
    return type == TX_ROPE_DEFAULT || type == TX_ROPE_LONGROPE
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "rope_scaling: Phi-3 has only \"longrope\" and \"default\"");
}

const tx_architecture tx_phi3 = {FAMILY("phi3", "Phi3", defaults, keys, "qkv_proj", read, tx_llama_write),
                                 .restarts = true, GGUF("phi3")};
