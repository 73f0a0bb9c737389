/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-R and Aya (Cohere, 2024): attention and MLP in parallel after one layer norm without a bias, rotary pairs of
 * adjacent elements, and scaled logits. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {EMBED_ROW,         {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
                                    SEPARATE_QKV_ROWS, O_ROWS,
                                    SEPARATE_MLP_ROWS, LAST_ROWS};

static const tx_config_key keys[] = {
    SIZE_KEYS, KV_HEADS_KEY, EPS_KEY(layer_norm_eps), ONE_ACT_KEY(hidden_act, TX_LLAMA_SILU), BIAS_KEY, {.name = NULL}};

static const tx_fixed_key fixed_keys[] = {{"use_qk_norm", false, "norms of the heads are not implemented"},
                                          {.name = NULL}};

static const llama_config defaults = {SIZES(tx_cohere, rows, 256000, 8192, 8192, 40, 64, 5, 255001),
                                      REST(22528, 0, 1e-5, 5e5),
                                      .padding = 1,
                                      .logits.divisor = 16,
                                      .residual.parallel = true,
                                      .norms.centred = true,
                                      .positions.interleaved = true,
                                      .tie_word_embeddings = true};

/* The file has the inverse. */
static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    double scale = 1 / c->logits.divisor;
    TX_TRY(TX_JSON_OPTIONAL(number, json, "logit_scale", 1e-9, 1e9, &scale));
    c->logits.divisor = 1 / scale;
    return tx_llama_read(json, config);
}

static tx_status write(const tx_config *config, tx_json *json)
{
    TX_TRY(tx_json_set_number(json, "logit_scale", 1 / llama_of(config)->logits.divisor));
    return tx_llama_write(config, json);
}

const tx_architecture tx_cohere = {
    FAMILY("cohere", "Cohere", defaults, keys, "q_proj,v_proj", read, write), .fixed = fixed_keys,
    CENTRED_GGUF("command-r", TX_GGUF_OWN_KEYS(TX_GGUF_NAMED("logit_scale", "logit_scale", NUMBER)),
                 TX_GGUF_FIXED({"use_qk_norm", false}, {"attention_bias", false}, {"tie_word_embeddings", true}))};
