/* SPDX-License-Identifier: Apache-2.0
 *
 * BLOOM (BigScience, 2022): GPT-2 with ALiBi and a layer norm of the embeddings. Files store q, k and v of a head
 * together. */
#include "models/arch/llama_family.h"

#define MODEL "transformer."
#define BLOCK MODEL "h.%d."

static const tx_stack_row rows[] = {
    {EMBED, MODEL "word_embeddings.weight", {VOCAB, WIDTH}, .split = 1},
    LAYER_NORM_ROWS(EMBED_NORM, MODEL "word_embeddings_layernorm"),
    LAYER_NORM_ROWS(INPUT_NORM, BLOCK "input_layernorm"),
    {QKV_PROJ, BLOCK "self_attention.query_key_value.weight", {QKV, WIDTH}, .split = 1},
    {QKV_BIAS, BLOCK "self_attention.query_key_value.bias", {QKV}, ZEROS, .split = 1},
    {O_PROJ, BLOCK "self_attention.dense.weight", {WIDTH, HEADS}, .split = 2},
    {O_BIAS, BLOCK "self_attention.dense.bias", {WIDTH}, ZEROS},
    LAYER_NORM_ROWS(POST_NORM, BLOCK "post_attention_layernorm"),
    PLAIN_MLP_ROWS(BLOCK "mlp.dense_h_to_4h", BLOCK "mlp.dense_4h_to_h"),
    LAYER_NORM_ROWS(FINAL_NORM, MODEL "ln_f"),
    HEAD_ROWS,
};

/* Published files have the second names. transformers has no limit of positions; the published files name the length of
 * training. */
static const tx_config_key keys[] = {SIZE(vocab_size, base.vocab_size, 1 << 30),
                                     SIZE(seq_length, max_position_embeddings, 1 << 24),
                                     SIZE_OF(hidden_size, "n_embed", base.width, 1 << 20),
                                     SIZE_OF(n_layer, "num_hidden_layers", base.layers, TX_LLAMA_LAYERS),
                                     SIZE_OF(n_head, "num_attention_heads", base.heads, 1 << 16),
                                     TOKEN(bos_token_id),
                                     TOKEN(eos_token_id),
                                     FLAG(tie_word_embeddings, tie_word_embeddings),
                                     EPS_KEY(layer_norm_epsilon),
                                     NUMBER(hidden_dropout, residual.dropout, 0.999),
                                     NUMBER(attention_dropout, attention.dropout, 0.999),
                                     NUMBER(initializer_range, initializer_range, 10),
                                     {.name = NULL}};

static const tx_fixed_key fixed_keys[] = {
    {"apply_residual_connection_post_layernorm", "false", "additions to the result of a norm are not implemented"},
    {.name = NULL}};

static const llama_config defaults = {SIZES(tx_bloom, rows, 250880, 2048, 64, 2, 8, 1, 2),
                                      REST(0, 0, 1e-5, 1e4),
                                      PLAIN_MLP(TX_LLAMA_GELU_TANH, TX_LLAMA_GELU_TANH),
                                      .positions.alibi = true,
                                      .attention.by_head = true,
                                      .mlp.bias = true,
                                      .tie_word_embeddings = true};

const tx_architecture tx_bloom = {
    FAMILY("bloom", "Bloom", defaults, keys, "query_key_value", tx_llama_read_unpadded, tx_llama_write),
    .fixed = fixed_keys, CENTRED_GGUF("bloom")};
