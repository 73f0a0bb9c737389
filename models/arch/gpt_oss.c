/* SPDX-License-Identifier: Apache-2.0
 *
 * gpt-oss (OpenAI, gpt-oss-120b & gpt-oss-20b model card, 2025): attention sinks, sliding windows in every second
 * layer, YaRN, and experts with biases and a clamped SwiGLU. Published weights are MXFP4 (files/mxfp4.h). */
#include "models/arch/llama_family.h"

#define EXPERT_WEIGHTS .experts = true, .in = is_sparse
#define EXPERT_BIASES .experts = true, .in = is_sparse, .other_decay = true

static const tx_stack_row rows[] = {
    OPENING_ROWS_WITH({SINKS, LAYER "self_attn.sinks", {QUERY_HEADS}, .split = 1, .other_decay = true}),
    {ROUTER, LAYER "mlp.router.weight", {EXPERTS, WIDTH}, .router = true},
    {ROUTER_BIAS, LAYER "mlp.router.bias", {EXPERTS}, ZEROS},
    {EXPERTS_GATE_UP, LAYER "mlp.experts.gate_up_proj", {EXPERTS, WIDTH, EXPERT_PAIR}, EXPERT_WEIGHTS},
    {EXPERTS_GATE_UP_BIAS, LAYER "mlp.experts.gate_up_proj_bias", {EXPERTS, EXPERT_PAIR}, ZEROS, EXPERT_BIASES},
    {EXPERTS_DOWN, LAYER "mlp.experts.down_proj", {EXPERTS, EXPERT_INNER, WIDTH}, EXPERT_WEIGHTS},
    {EXPERTS_DOWN_BIAS, LAYER "mlp.experts.down_proj_bias", {EXPERTS, WIDTH}, ZEROS, EXPERT_BIASES},
    LAST_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS,
                                     HEAD_DIM_KEY,
                                     WINDOW_KEY,
                                     BIAS_KEY,
                                     EXPERTS_KEYS(num_local_experts, "num_experts"),
                                     NUMBER(swiglu_alpha, experts.alpha, 1e3),
                                     SETTING(swiglu_limit, experts.limit, 1e-3, 1e6),
                                     {.name = NULL}};

static const llama_config defaults = {
    SIZES(tx_gpt_oss, rows, 201088, 131072, 2880, 36, 64, -1, -1),
    REST_OF(2880, 8, 1e-5, 0.02,
            {.theta = 150000,
             .type = TX_ROPE_YARN,
             .factor = 32,
             .original = 4096,
             .low = 1,
             .high = 32,
             .attention = 1.3465735902799727,
             .rotated = 1}), /* 0.1 ln 32 + 1 */
    .attention.head_dim = 64,
    .attention.window = 128,
    .attention.windowed = true,
    .attention.window_period = 2,
    .attention.bias = true,
    EXPERTS_DEFAULTS(128, 4, 0.001),
    .experts.normalise = true,
    .experts.alpha = 1.702,
    .experts.limit = 7,
};

/* llama.cpp derives the activation from the type. */
static tx_status check_activation(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    if (c->experts.alpha != 1.702 || c->experts.limit != 7)
        return tx_fail(TX_UNSUPPORTED, "swiglu_alpha, swiglu_limit: llama.cpp computes as if they were 1.702 and 7");
    return tx_llama_gguf_windows(e, 2);
}

/* Without settings the rotary positions of this type are those of "yarn". Experts in MXFP4 are noted as in a folder. */
static tx_status read_settings(const tx_gguf_file *file, tx_json *json)
{
    const int32_t experts = tx_gguf_find(file, "blk.0.ffn_down_exps.weight");
    if (experts >= 0 && tx_gguf_tensor_at(file, experts)->dtype == TX_GGUF_MXFP4)
        TX_TRY(tx_json_set(json, "quantization_config", tx_json_pack("{s:s}", "quant_method", "mxfp4")));
    return tx_json_has(json, "rope_scaling")
               ? TX_OK
               : tx_json_set(json, "rope_scaling", tx_json_pack("{s:s}", "rope_type", "default"));
}

const tx_architecture tx_gpt_oss = {
    FAMILY("gpt_oss", "GptOss", defaults, keys, "q_proj,v_proj", tx_llama_read_windows, tx_llama_write),
    GGUF(
        "gpt-oss", .whole_ramp = true, TX_GGUF_OWN_NAMES(TX_GGUF_NAME(POST_NORM, "blk.%d.post_attention_norm.weight")),
        TX_GGUF_OWN_KEYS(TX_GGUF_MEMBER("expert_feed_forward_length", offsetof(llama_config, mlp.inner), INT, NOTHING)),
        TX_GGUF_FIXED({"attention_bias", true}, {"tie_word_embeddings", false}), .check = check_activation,
        .read = read_settings)};
