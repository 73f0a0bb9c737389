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
    {ROUTER, LAYER "mlp.gate.weight", {EXPERTS, WIDTH}, .router = true},
    {EXPERTS_GATE_UP,
     LAYER "mlp.experts.*.gate_proj|up_proj.weight",
     {EXPERTS, EXPERT_GATE_UP, WIDTH},
     .split = 2,
     .experts = true},
    {EXPERTS_DOWN, LAYER "mlp.experts.*.down_proj.weight", {EXPERTS, WIDTH, EXPERT_INNER}, .split = 3, .experts = true},
    LAST_ROWS,
};

static const tx_config_key keys[] = {COMMON_KEYS, FLAG(attention_bias), {.name = NULL}};

static const llama_config defaults = {SIZES(tx_olmo2, rows, 50304, 2048, 4096, 32, 32, -1, 50279),
                                      REST(11008, 0, 1e-5, 1e4), .padding = 2, .whole_norms = true};

static const tx_config_key olmo3_keys[] = {COMMON_KEYS, WINDOW_KEY, FLAG(attention_bias), {.name = NULL}};
static const llama_config olmo3_defaults = {SIZES(tx_olmo3, rows, 50304, 2048, 4096, 32, 32, -1, 50279),
                                            REST(11008, 0, 1e-5, 5e5),
                                            .padding = 2,
                                            .whole_norms = true,
                                            .sliding_window = 4096,
                                            .use_sliding_window = true,
                                            .sliding_window_pattern = 4,
                                            .has_local_rope = true,
                                            .local_rope = {.theta = 5e5, .factor = 1, .attention = 1, .rotated = 1}};

static const tx_config_key olmoe_keys[] = {COMMON_KEYS,
                                           EXPERTS_KEYS("num_experts", "num_local_experts"),
                                           FLAG(norm_topk_prob),
                                           FLAG(attention_bias),
                                           {.name = NULL}};
static const llama_config olmoe_defaults = {SIZES(tx_olmoe, olmoe_rows, 50304, 4096, 2048, 16, 16, -1, 50279),
                                            REST(2048, 0, 1e-5, 1e4),
                                            .padding = 2,
                                            .whole_norms = true,
                                            .has_experts = true,
                                            .num_experts = 64,
                                            .num_experts_per_tok = 8,
                                            .decoder_sparse_step = 1,
                                            .router_aux_loss_coef = 0.01};

static tx_status read_olmo3(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    TX_TRY(TX_JSON_OPTIONAL(number, json, "rope_theta", 1, 1e12, &c->local_rope.theta));
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
    FAMILY("olmo2", "Olmo2", defaults, keys, tx_llama_fixed_keys, "q_proj,v_proj", tx_llama_rename, tx_llama_write),
    .read = tx_llama_read, .check = tx_llama_check};
const tx_architecture tx_olmo3 = {FAMILY("olmo3", "Olmo3", olmo3_defaults, olmo3_keys, tx_llama_fixed_keys,
                                         "q_proj,v_proj", tx_llama_rename, tx_llama_write),
                                  .read = read_olmo3, .check = tx_llama_check};
const tx_architecture tx_olmoe = {FAMILY("olmoe", "Olmoe", olmoe_defaults, olmoe_keys, tx_llama_fixed_keys,
                                         "q_proj,v_proj", tx_llama_rename, tx_llama_write),
                                  .read = read_olmoe, .check = tx_llama_check};
