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

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

static int64_t key_size(const tx_config *config)
{
    return head_size(llama_of(config));
}

static int64_t value_size(const tx_config *config)
{
    return llama_of(config)->latent.value;
}

static bool equal(double x, double y)
{
    return fabs(x - y) < 1e-9 * y;
}

static tx_status check_gguf(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    if (!equal(c->embedding.multiplier, 12) || !equal(c->logits.divisor, (double)c->base.width / 256) ||
        !equal(c->residual.multiplier, 1.4 / sqrt((double)c->base.layers)))
        return tx_fail(TX_UNSUPPORTED, "scale_emb, scale_depth, dim_model_base: llama.cpp computes as if they were 12, "
                                       "1.4 and 256");
    if (c->latent.query_rank < 1)
        return tx_fail(TX_UNSUPPORTED, "q_lora_rank: llama.cpp reads only files with one");
    if (c->norms.eps != 1e-6)
        tx_reporter_print(e->report, "rms_norm_eps: llama.cpp uses it for norms of latents, too, so its logits differ");
    return TX_OK;
}

static tx_status read_gguf(const tx_gguf_file *file, tx_json *json)
{
    return tx_llama_gguf_read_latent(file, "attention.key_length", json);
}

/* peft has no default. */
const tx_architecture tx_minicpm3 = {
    FAMILY("minicpm3", "MiniCPM3", defaults, keys, ".*\\.(q_proj|q_a_proj|q_b_proj|kv_b_proj)", read, tx_llama_write),
    .fixed = fixed,
    GGUF("minicpm3", .latent = true, TX_GGUF_OWN_NAMES(TX_GGUF_NAME(KV_UP, "blk.%d.attn_kv_b.weight")),
         TX_GGUF_OWN_KEYS(
             {.key = "attention.key_length", .value = key_size},
             {.key = "attention.value_length", .name = "v_head_dim", .value = value_size},
             TX_GGUF_MEMBER("attention.kv_lora_rank", offsetof(llama_config, latent.rank), INT, NOTHING),
             TX_GGUF_MEMBER("attention.q_lora_rank", offsetof(llama_config, latent.query_rank), INT, NOTHING)),
         TX_GGUF_FIXED({"attention_bias", false}), .check = check_gguf, .read = read_gguf)};
