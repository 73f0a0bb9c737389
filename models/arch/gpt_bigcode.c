/* SPDX-License-Identifier: Apache-2.0
 *
 * StarCoder and SantaCoder (Li et al., StarCoder, 2023): GPT-2 whose query heads share one head of keys and values. */
#include "models/arch/llama_family.h"

#define BLOCK "transformer.h.%d."

static const tx_stack_row rows[] = {
    {EMBED, "transformer.wte.weight", {VOCAB, WIDTH}, .split = 1},
    {POSITION_TABLE, "transformer.wpe.weight", {POSITIONS, WIDTH}, .init = TX_STACK_NORMAL},
    LAYER_NORM_ROWS(INPUT_NORM, BLOCK "ln_1"),
    {QKV_PROJ, BLOCK "attn.c_attn.weight", {QKV, WIDTH}, .split = 1},
    {QKV_BIAS, BLOCK "attn.c_attn.bias", {QKV}, ZEROS, .split = 1},
    {O_PROJ, BLOCK "attn.c_proj.weight", {WIDTH, HEADS}, .split = 2},
    {O_BIAS, BLOCK "attn.c_proj.bias", {WIDTH}, ZEROS},
    LAYER_NORM_ROWS(POST_NORM, BLOCK "ln_2"),
    PLAIN_MLP_ROWS(BLOCK "mlp.c_fc", BLOCK "mlp.c_proj"),
    LAYER_NORM_ROWS(FINAL_NORM, "transformer.ln_f"),
    HEAD_ROWS,
};

static const tx_config_key keys[] = {GPT_KEYS, FLAG(multi_query, attention.multi_query), {.name = NULL}};

static const tx_fixed_key fixed_keys[] = {{"scale_attn_weights", "true", "scores without a scale are not implemented"},
                                          {"add_cross_attention", "false", "cross-attention is not implemented"},
                                          {.name = NULL}};

static const llama_config defaults = {SIZES(tx_gpt_bigcode, rows, 50257, 1024, 768, 12, 12, 50256, 50256),
                                      REST(0, 1, 1e-5, 1e4),
                                      .positions.learned = true,
                                      .residual.dropout = 0.1,
                                      .embedding.dropout = 0.1,
                                      .attention.dropout = 0.1,
                                      .attention.multi_query = true,
                                      PLAIN_MLP(TX_LLAMA_GELU_TANH, TX_LLAMA_GELU_TANH),
                                      .mlp.bias = true,
                                      .tie_word_embeddings = true};

static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    c->attention.kv_heads = c->attention.multi_query;
    c->attention.by_head = !c->attention.multi_query;
    return tx_llama_read_unpadded(json, config);
}

const tx_architecture tx_gpt_bigcode = {
    FAMILY("gpt_bigcode", "GPTBigCode", defaults, keys, "c_attn", read, tx_llama_write), .fixed = fixed_keys,
    CENTRED_GGUF("starcoder", TX_GGUF_FIXED({"multi_query", true}), .gelu = "activation_function")};
