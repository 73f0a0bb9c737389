/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-Neo (Black et al., GPT-Neo, 2021): learned positions, layer norms before attention and MLP, scores without a
 * scale, and a window in the layers that attention_types calls local. */
#include "models/arch/llama_family.h"

#include <inttypes.h>
#include <string.h>

#define NEO "transformer.h.%d."

static const tx_stack_row rows[] = {
    {EMBED, "transformer.wte.weight", {VOCAB, WIDTH}, .split = 1},
    {POSITION_TABLE, "transformer.wpe.weight", {POSITIONS, WIDTH}, .init = TX_STACK_NORMAL},
    LAYER_NORM_ROWS(INPUT_NORM, NEO "ln_1"),
    {QKV_PROJ, NEO "attn.attention.q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .split = 1},
    {O_PROJ, NEO "attn.attention.out_proj.weight", {WIDTH, HEADS}, .split = 2},
    {O_BIAS, NEO "attn.attention.out_proj.bias", {WIDTH}, ZEROS},
    LAYER_NORM_ROWS(POST_NORM, NEO "ln_2"),
    PLAIN_MLP_ROWS(NEO "mlp.c_fc", NEO "mlp.c_proj"),
    LAYER_NORM_ROWS(FINAL_NORM, "transformer.ln_f"),
    HEAD_ROWS,
};

static const tx_config_key keys[] = {NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_layers, num_heads),
                                     INNER_KEY(intermediate_size),
                                     SIZE(window_size, attention.window, 1 << 24),
                                     EPS_KEY(layer_norm_epsilon),
                                     GELU_KEY(activation_function),
                                     NUMBER(resid_dropout, residual.dropout, 0.999),
                                     NUMBER(embed_dropout, embedding.dropout, 0.999),
                                     NUMBER(attention_dropout, attention.dropout, 0.999),
                                     NUMBER(initializer_range, initializer_range, 10),
                                     {.name = NULL}};

static const llama_config defaults = {SIZES(tx_gpt_neo, rows, 50257, 2048, 2048, 24, 16, 50256, 50256),
                                      REST(0, 0, 1e-5, 1e4),
                                      .positions.learned = true,
                                      .attention.windowed = true,
                                      .attention.window = 256,
                                      .attention.multiplier = 1,
                                      PLAIN_MLP(TX_LLAMA_GELU_TANH, TX_LLAMA_GELU_NEW),
                                      .mlp.bias = true,
                                      .tie_word_embeddings = true};

/* Appends the layers of one item of attention_types: the kinds of some layers, and how often they repeat. */
static tx_status add_layers(const tx_json *item, llama_config *c, int64_t *layers)
{
    const tx_json *kinds = tx_json_at(item, 0);
    int64_t times = 0;
    const char *kind;
    if (tx_json_size(item) != 2 || tx_json_size(kinds) == 0)
        return tx_fail(TX_INVALID, "attention_types: each item must be a list of kinds and how often they repeat");
    TX_TRY(tx_json_as_int(tx_json_at(item, 1), "attention_types", 1, TX_LLAMA_LAYERS, &times));
    for (int64_t i = 0; i < times * (int64_t)tx_json_size(kinds); i++, ++*layers) {
        TX_TRY(tx_json_as_string(tx_json_at(kinds, (size_t)i % tx_json_size(kinds)), "attention_types", &kind));
        const bool local = strcmp(kind, "local") == 0;
        if (!local && strcmp(kind, "global") != 0)
            return tx_fail(TX_UNSUPPORTED, "attention_types: \"%.40s\" is not one of global, local", kind);
        if (*layers == c->base.layers)
            return tx_fail(TX_INVALID, "attention_types: more layers than num_layers, %" PRId64, *layers);
        if (local)
            add_layer(&c->attention.windows, *layers);
    }
    return TX_OK;
}

/* Without attention_types every second layer is local. */
static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    tx_json *types;
    int64_t layers = 0;
    TX_TRY(tx_llama_read_unpadded(json, config));
    c->attention.windows = (tx_layer_set){.listed = true};
    for (; !tx_json_has(json, "attention_types") && layers < config->layers; layers++)
        if (layers % 2 == 1)
            add_layer(&c->attention.windows, layers);
    if (layers > 0)
        return TX_OK;
    TX_TRY(tx_json_get(json, "attention_types", TX_JSON_ARRAY, &types));
    for (size_t i = 0; i < tx_json_size(types); i++)
        TX_TRY(add_layers(tx_json_at(types, i), c, &layers));
    return layers == config->layers
               ? TX_OK
               : tx_fail(TX_INVALID, "attention_types: %" PRId64 " layers, but num_layers is %" PRId64, layers,
                         config->layers);
}

const tx_architecture tx_gpt_neo = {FAMILY("gpt_neo", "GPTNeo", defaults, keys, "q_proj,v_proj", read, tx_llama_write)};
