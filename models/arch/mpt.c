/* SPDX-License-Identifier: Apache-2.0
 *
 * MPT (MosaicML, 2023): ALiBi, layer norms and linear layers without biases. */
#include "models/arch/llama_family.h"

#include <string.h>

#define BLOCK "transformer.blocks.%d."

static const tx_stack_row rows[] = {
    {EMBED, "transformer.wte.weight", {VOCAB, WIDTH}, .split = 1},
    {INPUT_NORM, BLOCK "norm_1.weight", {WIDTH}, ONES},
    {QKV_PROJ, BLOCK "attn.Wqkv.weight", {QKV, WIDTH}, .split = 1},
    {O_PROJ, BLOCK "attn.out_proj.weight", {WIDTH, HEADS}, .split = 2},
    {POST_NORM, BLOCK "norm_2.weight", {WIDTH}, ONES},
    PLAIN_MLP_ROWS(BLOCK "ffn.up_proj", BLOCK "ffn.down_proj"),
    {FINAL_NORM, "transformer.norm_f.weight", {WIDTH}, ONES},
    HEAD_ROWS,
};

static const tx_config_key keys[] = {NAMED_SIZE_KEYS(max_seq_len, d_model, n_layers, n_heads),
                                     EPS_KEY(layer_norm_epsilon),
                                     NUMBER(initializer_range, initializer_range, 10),
                                     {.name = NULL}};

static const tx_fixed_key fixed_keys[] = {{"no_bias", "true", "biases are not implemented, nor in transformers"},
                                          {.name = NULL}};

/* Refuses a key of attn_config that has another value than that of its only variant. */
static tx_status need(const tx_json *attention, const char *name, bool only)
{
    bool value = only;
    TX_TRY(TX_JSON_OPTIONAL(bool, attention, name, &value));
    return value == only ? TX_OK : tx_fail(TX_UNSUPPORTED, "%s: only %s is implemented", name, only ? "true" : "false");
}

/* The settings of the attention are an object. attn_pdrop is also the dropout of a block's additions. */
static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    const tx_json *attention = tx_json_find(json, "attn_config");
    const char *type = "multihead_attention";
    double largest = 8;
    TX_TRY(tx_llama_read_unpadded(json, config));
    if (tx_json_type_of(attention) == TX_JSON_NULL)
        return TX_OK;
    if (tx_json_type_of(attention) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "attn_config: expected an object");
    TX_TRY(TX_JSON_OPTIONAL(number, attention, "attn_pdrop", 0, 0.999, &c->attention.dropout));
    TX_TRY(TX_JSON_OPTIONAL(number, attention, "alibi_bias_max", 0, 1e6, &largest));
    TX_TRY(TX_JSON_OPTIONAL(number, attention, "softmax_scale", 1e-6, 1e6, &c->attention.multiplier));
    TX_TRY(TX_JSON_OPTIONAL(number, attention, "clip_qkv", 0, 1e6, &c->attention.clip));
    TX_TRY(TX_JSON_OPTIONAL(string, attention, "attn_type", &type));
    c->residual.dropout = c->attention.dropout;
    if (strcmp(type, "multihead_attention") != 0)
        return tx_fail(TX_UNSUPPORTED, "attn_type: \"%.40s\" is not implemented, nor in transformers", type);
    if (largest != 8)
        return tx_fail(TX_UNSUPPORTED, "alibi_bias_max: only 8 is implemented, as in transformers");
    TX_TRY(need(attention, "alibi", true));
    TX_TRY(need(attention, "qk_ln", false));
    return need(attention, "prefix_lm", false);
}

static const llama_config defaults = {SIZES(tx_mpt, rows, 50368, 2048, 2048, 24, 16, -1, -1),
                                      REST(0, 0, 1e-5, 1e4),
                                      PLAIN_MLP(TX_LLAMA_GELU, TX_LLAMA_GELU),
                                      .positions.alibi = true,
                                      .norms.centred = true,
                                      .tie_word_embeddings = true};

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

#define CLIP "mpt.attention.clamp_kqv" /* attn_config.clip_qkv */

/* llama.cpp has no setting for the scale of scores, and computes the tanh form of GELU. */
static tx_status check_attention(const tx_gguf_exported *e)
{
    if (llama_of(e->config)->attention.multiplier != 0)
        return tx_fail(TX_UNSUPPORTED, "softmax_scale: llama.cpp computes as if it were null");
    tx_reporter_print(e->report, "MPT has the exact form of GELU" TX_GGUF_TANH_WARNING);
    return TX_OK;
}

static void put_clip(const tx_config *config, tx_gguf_writer *writer)
{
    if (llama_of(config)->attention.clip > 0)
        tx_gguf_put_number(writer, CLIP, llama_of(config)->attention.clip);
}

static tx_status read_clip(const tx_gguf_file *file, tx_json *json)
{
    double clip;
    if (!tx_gguf_has(file, CLIP))
        return TX_OK;
    TX_TRY(tx_gguf_get_number(file, CLIP, &clip));
    return tx_json_set(json, "attn_config", tx_json_pack("{s:f}", "clip_qkv", clip));
}

const tx_architecture tx_mpt = {
    FAMILY("mpt", "Mpt", defaults, keys, "Wqkv", read, tx_llama_write), .fixed = fixed_keys,
    CENTRED_GGUF(
        "mpt",
        TX_GGUF_OWN_KEYS(
            {.key = "attention.max_alibi_bias", .kind = TX_GGUF_NUMBER, .otherwise = TX_GGUF_CONSTANT, .constant = 8}),
        .check = check_attention, .put = put_clip, .read = read_clip)};
