/* SPDX-License-Identifier: Apache-2.0
 *
 * OPT (Zhang et al., OPT, 2022): learned positions, whose table begins with two unused rows, layer norms before
 * attention and MLP, biases, ReLU. The model of 350 million parameters has norms after these, and embeddings of another
 * width. */
#include "models/arch/llama_family.h"

#define DECODER "model.decoder."
#define OPT DECODER "layers.%d."

static const tx_stack_row rows[] = {
    {EMBED, DECODER "embed_tokens.weight", {VOCAB, EMBED_WIDTH}, .split = 1},
    {POSITION_TABLE, DECODER "embed_positions.weight", {POSITIONS, WIDTH}, .init = TX_STACK_NORMAL},
    {PROJECT_IN, DECODER "project_in.weight", {WIDTH, EMBED_WIDTH}, IF(embedding.projected)},
    LAYER_NORM_ROWS(INPUT_NORM, OPT "self_attn_layer_norm"),
    {QKV_PROJ, OPT "self_attn.q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .split = 1},
    {QKV_BIAS, OPT "self_attn.q_proj|k_proj|v_proj.bias", {QKV}, ZEROS, .split = 1},
    {O_PROJ, OPT "self_attn.out_proj.weight", {WIDTH, HEADS}, .split = 2},
    {O_BIAS, OPT "self_attn.out_proj.bias", {WIDTH}, ZEROS},
    LAYER_NORM_ROWS(POST_NORM, OPT "final_layer_norm"),
    PLAIN_MLP_ROWS(OPT "fc1", OPT "fc2"),
    {FINAL_NORM, DECODER "final_layer_norm.weight", {WIDTH}, ONES, UNLESS(norms.after_sum)},
    {FINAL_NORM_BIAS, DECODER "final_layer_norm.bias", {WIDTH}, ZEROS, UNLESS(norms.after_sum)},
    {PROJECT_OUT, DECODER "project_out.weight", {EMBED_WIDTH, WIDTH}, IF(embedding.projected)},
    {LM_HEAD, "lm_head.weight", {VOCAB, EMBED_WIDTH}, UNLESS(tie_word_embeddings), .split = 1},
    {.name = NULL},
};

static const tx_config_key keys[] = {
    NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads),
    INNER_KEY(ffn_dim),
    ONE_ACT_KEY(activation_function, TX_LLAMA_RELU),
    NUMBER(dropout, residual.dropout, 0.999),
    NUMBER(attention_dropout, attention.dropout, 0.999),
    NUMBER(layerdrop, residual.hidden_dropout, 0),
    NUMBER(init_std, initializer_range, 10),
    {.name = NULL}};

static const tx_fixed_key fixed_keys[] = {
    {"_remove_final_layer_norm", "false", "models without a last norm are not implemented"},
    {"enable_bias", "true", "layers without biases are not implemented"},
    {"layer_norm_elementwise_affine", "true", "norms without weights are not implemented"},
    {.name = NULL}};

static const llama_config defaults = {SIZES(tx_opt, rows, 50272, 2048, 768, 12, 12, 2, 2),
                                      REST(3072, 0, 1e-5, 1e4),
                                      .padding = 2,
                                      .positions.learned = true,
                                      .positions.first = 2,
                                      .residual.dropout = 0.1,
                                      PLAIN_MLP(TX_LLAMA_RELU, TX_LLAMA_RELU),
                                      .mlp.bias = true,
                                      .tie_word_embeddings = true};

static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    bool before = !c->norms.after_sum;
    int64_t width = c->embedding.width ? c->embedding.width : config->width;
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "do_layer_norm_before", &before));
    TX_TRY(TX_JSON_OPTIONAL(int, json, "word_embed_proj_dim", 1, 1 << 20, &width));
    c->norms.after_sum = !before;
    c->embedding.projected = width != config->width;
    c->embedding.width = c->embedding.projected ? width : 0;
    return TX_OK;
}

static tx_status write(const tx_config *config, tx_json *json)
{
    const llama_config *c = llama_of(config);
    TX_TRY(tx_json_set_bool(json, "do_layer_norm_before", !c->norms.after_sum));
    TX_TRY(tx_json_set_int(json, "word_embed_proj_dim", c->embedding.projected ? c->embedding.width : config->width));
    return tx_llama_write(config, json);
}

const tx_architecture tx_opt = {FAMILY("opt", "OPT", defaults, keys, "q_proj,v_proj", read, write),
                                .fixed = fixed_keys};
