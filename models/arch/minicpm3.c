/* SPDX-License-Identifier: Apache-2.0
 *
 * MiniCPM3 (OpenBMB, 2024): a Llama with multi-head latent attention, whose embeddings, residual branches and logits
 * are scaled (Hu et al., MiniCPM, 2024, section 3). */
#include "models/arch/llama_family.h"

#include <math.h>

static const tx_stack_row rows[] = {
    EMBED_ROW,         {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
    LATENT_ROWS,       {POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    SEPARATE_MLP_ROWS, LAST_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS,
                                     BIAS_KEY,
                                     LATENT_KEY_SIZES,
                                     SIZE_OR_NULL(v_head_dim, latent.value, TX_MAX_ROTARY),
                                     MULTIPLIER(scale_emb, embedding.multiplier),
                                     {.name = NULL}};

static const tx_fixed_key fixed[] = {{"mlp_bias", "false", "biases of MLPs of this model type are not implemented"},
                                     {.name = NULL}};

/* Files keep these keys as they are. null of each means no scale. */
static tx_status read_scales(const tx_json *json, llama_config *c)
{
    const double root = sqrt((double)c->base.layers), width = (double)c->base.width;
    double depth = tx_json_find(json, "scale_depth") ? root : 1.4;
    double base = tx_json_find(json, "dim_model_base") ? width : 256;
    TX_TRY(TX_JSON_OPTIONAL(number, json, "scale_depth", 1e-9, 1e9, &depth));
    TX_TRY(TX_JSON_OPTIONAL(number, json, "dim_model_base", 1, 1e9, &base));
    c->residual.multiplier = depth / root;
    c->logits.divisor = width / base;
    return TX_OK;
}

static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    if (!c->latent.value)
        c->latent.value = config->width / config->heads;
    TX_TRY(read_scales(json, c));
    return tx_llama_read(json, config);
}

static const llama_config defaults = {
    SIZES(tx_minicpm3, rows, 73448, 32768, 2560, 62, 40, 1, 2), REST_OF(6400, 40, 1e-5, 0.1, ROPE(1e4)),
    .latent = {.rank = 256, .query_rank = 768, .plain = 64, .rotated = 32, .sharpness = 1}, .embedding.multiplier = 12,
    .tie_word_embeddings = true};

/* peft has no default. */
const tx_architecture tx_minicpm3 = {
    FAMILY("minicpm3", "MiniCPM3", defaults, keys, ".*\\.(q_proj|q_a_proj|q_b_proj|kv_b_proj)", read, tx_llama_write),
    .fixed = fixed};
