/* SPDX-License-Identifier: Apache-2.0
 *
 * Phi-3.5-MoE (Abdin et al., Phi-3, 2024; Liu et al., GRIN, 2024): a Mixtral with layer norms, biases, and weights of
 * two experts by SparseMixer. In training, too, experts are chosen as in inference, without noise. */
#include "models/arch/llama_family.h"

#define MOE LAYER "block_sparse_moe."

static const tx_stack_row rows[] = {
    CENTRED_OPENING_ROWS,
    EXPERT_ROWS(MOE "gate.weight", MOE "experts.*.w1|w3.weight", MOE "experts.*.w2.weight"),
    LAYER_NORM_ROWS(FINAL_NORM, "model.norm"),
    {LM_HEAD_BIAS, "lm_head.bias", {VOCAB}, ZEROS, IF(logits.bias)},
    HEAD_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS,
                                     WINDOW_KEY,
                                     BIAS_KEY,
                                     NUMBER(hidden_dropout, residual.hidden_dropout, 0),
                                     FLAG(lm_head_bias, logits.bias),
                                     EXPERTS_KEYS(num_local_experts, "num_experts"),
                                     SETTING(router_jitter_noise, experts.mixer, 1e-9, 1),
                                     {.name = NULL}};

static const llama_config defaults = {SIZES(tx_phimoe, rows, 32064, 131072, 4096, 32, 32, 1, 2),
                                      REST(6400, 8, 1e-5, 1e6), EXPERTS_DEFAULTS(16, 2, 0.001), .experts.mixer = 0.01,
                                      .attention.windowed = true};

/* The factor of sines and cosines of short and of long texts. */
static tx_status read_factor(const tx_json *json, tx_rope_config *rope)
{
    const char *key = tx_json_has(json, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    tx_json *settings;
    double of_long = 0;
    if (rope->type == TX_ROPE_DEFAULT)
        return TX_OK;
    TX_TRY(tx_json_get(json, key, TX_JSON_OBJECT, &settings));
    TX_TRY(tx_json_get_number(settings, "short_mscale", 1e-3, 1e3, &rope->attention));
    TX_TRY(tx_json_get_number(settings, "long_mscale", 1e-3, 1e3, &of_long));
    if (rope->type != TX_ROPE_LONGROPE || of_long != rope->attention)
        return tx_fail(TX_UNSUPPORTED,
                       "%s: expected \"longrope\" with equal short_mscale and long_mscale: others are "
                       "not implemented for this model type",
                       key);
    return TX_OK;
}

static tx_status read(const tx_json *json, tx_config *config)
{
    TX_TRY(tx_llama_read(json, config));
    return read_factor(json, &((llama_config *)config)->positions.rope);
}

static tx_status check(const tx_config *config)
{
    const int64_t chosen = llama_of(config)->experts.chosen;
    return chosen == 2 ? tx_llama_check(config)
                       : tx_fail(TX_UNSUPPORTED, "num_experts_per_tok: %d: the routers of this model type choose 2",
                                 (int)chosen);
}

const tx_architecture tx_phimoe = {
    FAMILY_CHECKED("phimoe", "PhimoeForCausalLM", defaults, keys, "q_proj,v_proj", read, tx_llama_write, check),
    .restarts = true,
    GGUF("phimoe", .never = "llama.cpp computes RMS norms instead of layer norms, and other weights of experts")};
