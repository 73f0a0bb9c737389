/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-J (Wang and Komatsuzaki, GPT-J-6B, 2021): one layer norm for parallel attention and MLP, and rotary positions in
 * the first rotary_dim elements of each head, whose pairs are adjacent. */
#include "models/arch/llama_family.h"

#define BLOCK "transformer.h.%d."

static const tx_stack_row rows[] = {
    {EMBED, "transformer.wte.weight", {VOCAB, WIDTH}, .split = 1},
    LAYER_NORM_ROWS(INPUT_NORM, BLOCK "ln_1"),
    {QKV_PROJ, BLOCK "attn.q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .split = 1},
    {O_PROJ, BLOCK "attn.out_proj.weight", {WIDTH, HEADS}, .split = 2},
    PLAIN_MLP_ROWS(BLOCK "mlp.fc_in", BLOCK "mlp.fc_out"),
    LAYER_NORM_ROWS(FINAL_NORM, "transformer.ln_f"),
    {LM_HEAD_BIAS, "lm_head.bias", {VOCAB}, ZEROS},
    HEAD_ROWS,
};

static const tx_config_key keys[] = {GPT_KEYS, {.name = NULL}};

static const llama_config defaults = {
    SIZES(tx_gptj, rows, 50400, 2048, 4096, 28, 16, 50256, 50256),
    REST_OF(0, 0, 1e-5, 0.02, PARTIAL_ROPE(1e4, 1)),
    .positions.interleaved = true,
    PLAIN_MLP(TX_LLAMA_GELU_TANH, TX_LLAMA_GELU_NEW),
    .residual.parallel = true,
    .mlp.bias = true,
};

/* null means whole heads. */
static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    int64_t rotated = tx_json_find(json, "rotary_dim") ? head_size(c) : 64;
    TX_TRY(tx_llama_read_unpadded(json, config));
    TX_TRY(TX_JSON_OPTIONAL(int, json, "rotary_dim", 2, TX_MAX_ROTARY, &rotated));
    c->positions.rope.rotated = (double)rotated / (double)head_size(c);
    return TX_OK;
}

const tx_architecture tx_gptj = {FAMILY("gptj", "GPTJ", defaults, keys, "q_proj,v_proj", read, NULL)};
