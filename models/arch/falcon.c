/* SPDX-License-Identifier: Apache-2.0
 *
 * Falcon 7B (Almazrouei et al., The Falcon series, 2023): one layer norm for parallel attention and MLP, and query
 * heads that share one head of keys and values. Falcon-RW: ALiBi, and the MLP after the attention. Larger models group
 * their heads. */
#include "models/arch/llama_family.h"
#include "models/gguf/gguf.h"

#include <string.h>

#define BLOCK "transformer.h.%d."

static const tx_stack_row rows[] = {
    {EMBED, "transformer.word_embeddings.weight", {VOCAB, WIDTH}, .split = 1},
    {INPUT_NORM, BLOCK "input_layernorm.weight", {WIDTH}, ONES, UNLESS(residual.two_norms)},
    {INPUT_NORM_BIAS, BLOCK "input_layernorm.bias", {WIDTH}, ZEROS, UNLESS(residual.two_norms)},
    {INPUT_NORM, BLOCK "ln_attn.weight", {WIDTH}, ONES, IF(residual.two_norms)},
    {INPUT_NORM_BIAS, BLOCK "ln_attn.bias", {WIDTH}, ZEROS, IF(residual.two_norms)},
    {POST_NORM, BLOCK "ln_mlp.weight", {WIDTH}, ONES, IF(residual.two_norms)},
    {POST_NORM_BIAS, BLOCK "ln_mlp.bias", {WIDTH}, ZEROS, IF(residual.two_norms)},
    {QKV_PROJ, BLOCK "self_attention.query_key_value.weight", {QKV, WIDTH}, .split = 1},
    {QKV_BIAS, BLOCK "self_attention.query_key_value.bias", {QKV}, ZEROS, IF(attention.qkv_bias), .split = 1},
    {O_PROJ, BLOCK "self_attention.dense.weight", {WIDTH, HEADS}, .split = 2},
    {O_BIAS, BLOCK "self_attention.dense.bias", {WIDTH}, ZEROS, IF(attention.bias)},
    {POST_NORM, BLOCK "post_attention_layernorm.weight", {WIDTH}, ONES, UNLESS(residual.parallel)},
    {POST_NORM_BIAS, BLOCK "post_attention_layernorm.bias", {WIDTH}, ZEROS, UNLESS(residual.parallel)},
    PLAIN_MLP_ROWS_IF(attention.bias, BLOCK "mlp.dense_h_to_4h", BLOCK "mlp.dense_4h_to_h"),
    LAYER_NORM_ROWS(FINAL_NORM, "transformer.ln_f"),
    HEAD_ROWS,
};

static const tx_config_key keys[] = {
    NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads),
    INNER_KEY(ffn_hidden_size),
    EPS_KEY(layer_norm_epsilon),
    GELU_KEY(activation),
    FLAG(bias, attention.bias),
    FLAG(multi_query, attention.multi_query),
    FLAG(new_decoder_architecture, attention.by_group),
    FLAG(parallel_attn, residual.parallel),
    FLAG(alibi, positions.alibi),
    NUMBER(hidden_dropout, residual.hidden_dropout, 0),
    NUMBER(attention_dropout, attention.dropout, 0.999),
    NUMBER(initializer_range, initializer_range, 10),
    {.name = NULL}};

/* Falcon 40B and later: groups of heads, and a norm for each of attention and MLP unless the file says 1. */
static tx_status read_groups(const tx_json *json, llama_config *c)
{
    int64_t norms = 2;
    c->attention.kv_heads = c->base.heads;
    TX_TRY(TX_JSON_OPTIONAL(int, json, "num_kv_heads", 1, 1 << 16, &c->attention.kv_heads));
    TX_TRY(TX_JSON_OPTIONAL(int, json, "num_ln_in_parallel_attn", 1, 2, &norms));
    c->residual.two_norms = norms == 2;
    c->residual.parallel = true;
    return TX_OK;
}

static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    c->attention.kv_heads = c->attention.multi_query;
    c->attention.by_head = !c->attention.multi_query && !c->attention.by_group;
    if (c->attention.by_group)
        TX_TRY(read_groups(json, c));
    if (c->positions.alibi && (c->attention.multi_query || c->attention.by_group))
        return tx_fail(TX_UNSUPPORTED, "alibi: with multi_query or new_decoder_architecture it is not implemented");
    if (!c->residual.parallel && c->attention.dropout > 0)
        return tx_fail(TX_UNSUPPORTED, "attention_dropout: without parallel_attn only 0 is implemented");
    return tx_llama_read_unpadded(json, config);
}

static const llama_config defaults = {SIZES(tx_falcon, rows, 65024, 2048, 4544, 32, 71, 11, 11),
                                      REST(0, 1, 1e-5, 1e4),
                                      PLAIN_MLP(TX_LLAMA_GELU_TANH, TX_LLAMA_GELU),
                                      .residual.parallel = true,
                                      .positions.rounded_alibi = true,
                                      .attention.multi_query = true,
                                      .tie_word_embeddings = true};

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

static int64_t count_of_kv(const tx_config *config)
{
    return kv_heads(llama_of(config));
}

/* Of two norms, "attn_norm_2" is that of the attention. */
static void lay(const tx_config *config, const tx_stack_row *row, int32_t section, tx_gguf_layout *layout)
{
    const llama_config *c = llama_of(config);
    char *end = strrchr(layout->name, '.');
    (void)section;
    if (c->attention.by_group && row->slot == QKV_PROJ) {
        layout->form = TX_GGUF_BY_HEAD;
        layout->heads = kv_heads(c);
        layout->values = config->heads / kv_heads(c);
    }
    if (c->residual.two_norms && (row->slot == INPUT_NORM || row->slot == INPUT_NORM_BIAS)) {
        memmove(end + 2, end, strlen(end) + 1);
        memcpy(end, "_2", 2);
    }
}

static tx_status read_gguf(const tx_gguf_file *file, tx_json *json)
{
    const bool two = tx_gguf_find(file, "blk.0.attn_norm_2.weight") >= 0;
    int64_t of_kv = 1;
    TX_TRY(TX_GGUF_OPTIONAL(int, file, "falcon.attention.head_count_kv", 1, 1 << 16, &of_kv));
    if (of_kv == 1 && !two)
        return TX_OK;
    TX_TRY(tx_json_set_bool(json, "new_decoder_architecture", true));
    TX_TRY(tx_json_set_int(json, "num_kv_heads", of_kv));
    return tx_json_set_int(json, "num_ln_in_parallel_attn", two ? 2 : 1);
}

const tx_architecture tx_falcon = {
    FAMILY("falcon", "Falcon", defaults, keys, "query_key_value", read, tx_llama_write),
    CENTRED_GGUF("falcon",
                 TX_GGUF_OWN_NAMES(TX_GGUF_NAME(POST_NORM, "blk.%d.attn_norm.weight"),
                                   TX_GGUF_NAME(POST_NORM_BIAS, "blk.%d.attn_norm.bias")),
                 TX_GGUF_OWN_KEYS({.key = "attention.head_count_kv", .value = count_of_kv}),
                 TX_GGUF_FIXED({"alibi", false}, {"bias", false}, {"multi_query", true}, {"parallel_attn", true}),
                 .gelu = "activation", .lay = lay, .read = read_gguf)};
