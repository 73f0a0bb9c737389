/* SPDX-License-Identifier: Apache-2.0
 *
 * OLMo 2 (Walsh et al., 2 OLMo 2 Furious, 2024): a Llama that normalises the outputs of attention and MLP instead of
 * their inputs, and q and k over all heads. OLMo 3 (2025) adds windows by layer; only layers without one have scaled
 * rotary positions. OLMoE (Muennighoff et al., OLMoE, 2024) normalises inputs, and has experts. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {
    EMBED_ROW,
    SEPARATE_QKV_ROWS,
    {HEAD_NORM, LAYER "self_attn.q_norm|k_norm.weight", {QK_WIDTH}, ONES},
    O_ROWS,
    {ATTENTION_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    SEPARATE_MLP_ROWS,
    {MLP_NORM, LAYER "post_feedforward_layernorm.weight", {WIDTH}, ONES},
    LAST_ROWS,
};

static const tx_stack_row olmoe_rows[] = {
    EMBED_ROW,
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
    SEPARATE_QKV_ROWS,
    {HEAD_NORM, LAYER "self_attn.q_norm|k_norm.weight", {QK_WIDTH}, ONES},
    O_ROWS,
    {POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    EXPERT_ROWS(LAYER "mlp.gate.weight", LAYER "mlp.experts.*.gate_proj|up_proj.weight",
                LAYER "mlp.experts.*.down_proj.weight"),
    LAST_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS, BIAS_KEY, {.name = NULL}};

static const llama_config defaults = {SIZES(tx_olmo2, rows, 50304, 2048, 4096, 32, 32, -1, 50279),
                                      REST(11008, 0, 1e-5, 1e4), .padding = 2, .norms.whole = true};

static const tx_config_key olmo3_keys[] = {COMMON_KEYS, WINDOW_KEY, BIAS_KEY, {.name = NULL}};
static const llama_config olmo3_defaults = {SIZES(tx_olmo3, rows, 50304, 2048, 4096, 32, 32, -1, 50279),
                                            REST(11008, 0, 1e-5, 5e5),
                                            .padding = 2,
                                            .norms.whole = true,
                                            .attention.window = 4096,
                                            .attention.windowed = true,
                                            .attention.window_period = 4,
                                            .positions.has_local = true,
                                            .positions.local = ROPE(5e5)};

static const tx_config_key olmoe_keys[] = {COMMON_KEYS,
                                           EXPERTS_KEYS(num_experts, "num_local_experts"),
                                           FLAG(norm_topk_prob, experts.normalise),
                                           BIAS_KEY,
                                           {.name = NULL}};
static const llama_config olmoe_defaults = {SIZES(tx_olmoe, olmoe_rows, 50304, 4096, 2048, 16, 16, -1, 50279),
                                            REST(2048, 0, 1e-5, 1e4), .padding = 2, .norms.whole = true,
                                            EXPERTS_DEFAULTS(64, 8, 0.01)};

static tx_status read_olmo3(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    TX_TRY(TX_JSON_OPTIONAL(number, json, "rope_theta", 1, 1e12, &c->positions.local.theta));
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(tx_llama_read_ropes(json, config));
    return tx_llama_read_layer_types(json, c);
}

static tx_status read_olmoe(const tx_json *json, tx_config *config)
{
    if (tx_json_has(json, "clip_qkv"))
        return tx_fail(TX_UNSUPPORTED, "clip_qkv: only null is implemented");
    return tx_llama_read(json, config);
}

const tx_architecture tx_olmo2 = {
    FAMILY("olmo2", "Olmo2", defaults, keys, "q_proj,v_proj", tx_llama_read, tx_llama_write)};
const tx_architecture tx_olmo3 = {
    FAMILY("olmo3", "Olmo3", olmo3_defaults, olmo3_keys, "q_proj,v_proj", read_olmo3, tx_llama_write)};
const tx_architecture tx_olmoe = {
    FAMILY("olmoe", "Olmoe", olmoe_defaults, olmoe_keys, "q_proj,v_proj", read_olmoe, tx_llama_write)};
