/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen2 and Qwen3 with experts in all layers, or in some. Qwen2 has an expert with a gate that all tokens use. */
#include "models/arch/llama_family.h"

#define MLP LAYER "mlp."
#define SHARED MLP "shared_expert"

static const tx_stack_row qwen2_rows[] = {
    OPENING_ROWS,
    MLP_EXPERT_ROWS("mlp.gate.weight"),
    SHARED_ROWS(SHARED ".gate_proj|up_proj.weight", SHARED ".down_proj.weight"),
    {SHARED_GATE, SHARED "_gate.weight", {ONE, WIDTH}, .in = is_sparse},
    DENSE_ROWS,
    LAST_ROWS,
};

static const tx_stack_row qwen3_rows[] = {
    OPENING_ROWS_WITH(HEAD_NORM_ROW("q_norm|k_norm.weight", QK_HEAD, ONES)),
    MLP_EXPERT_ROWS("mlp.gate.weight"),
    DENSE_ROWS,
    LAST_ROWS,
};

/* Without experts all layers have an MLP. */
#define MOE_KEYS                                                                                                  \
    COMMON_KEYS, EXPERTS_KEYS_FROM(0, num_experts, "num_local_experts"), FLAG(norm_topk_prob, experts.normalise), \
        SIZE(decoder_sparse_step, experts.period, TX_LLAMA_LAYERS),                                               \
        SIZE(moe_intermediate_size, experts.inner, 1 << 22)
static const tx_config_key qwen2_keys[] = {MOE_KEYS,
                                           SIZE(shared_expert_intermediate_size, experts.shared_inner, 1 << 22),
                                           FLAG(qkv_bias, attention.qkv_bias),
                                           {.name = NULL}};
static const tx_config_key qwen3_keys[] = {MOE_KEYS, HEAD_DIM_KEY, BIAS_KEY, {.name = NULL}};

#define MODEL(row, table, heads) SIZES(row, table, 151936, 32768, 2048, 24, heads, -1, -1)

static const llama_config qwen2_defaults = {MODEL(tx_qwen2_moe, qwen2_rows, 16), REST(5632, 16, 1e-6, 1e4),
                                            EXPERTS_DEFAULTS(60, 4, 0.001),      .experts.inner = 1408,
                                            .experts.shared_inner = 5632,        .attention.qkv_bias = true};
static const llama_config qwen3_defaults = {MODEL(tx_qwen3_moe, qwen3_rows, 32), REST(6144, 4, 1e-6, 1e4),
                                            EXPERTS_DEFAULTS(128, 8, 0.001), .experts.inner = 768};

/* transformers applies the window to other layers than these models' configurations say. */
static const tx_fixed_key fixed_keys[] = {
    {"use_sliding_window", "false", "sliding windows of this model type are not implemented"}, {.name = NULL}};

static tx_status read(const tx_json *json, tx_config *config)
{
    TX_TRY(tx_llama_read_sized(json, config));
    return tx_llama_read_layers(json, "mlp_only_layers", &((llama_config *)config)->experts.dense);
}

/* llama.cpp computes experts in all layers. */
static tx_status check_layers(const tx_gguf_exported *e)
{
    for (int64_t i = 0; i < e->config->layers; i++)
        if (!is_sparse(e->config, i))
            return tx_fail(TX_UNSUPPORTED, "mlp_only_layers, decoder_sparse_step: llama.cpp computes as if all layers "
                                           "had experts");
    return TX_OK;
}

/* llama.cpp has this for Qwen3. */
static tx_status read_normalised(const tx_gguf_file *file, tx_json *json)
{
    (void)file;
    return tx_json_set_bool(json, "norm_topk_prob", true);
}

const tx_architecture tx_qwen2_moe = {
    FAMILY("qwen2_moe", "Qwen2Moe", qwen2_defaults, qwen2_keys, "q_proj,v_proj", read, tx_llama_write),
    .fixed = fixed_keys,
    GGUF("qwen2moe",
         TX_GGUF_FIXED({"norm_topk_prob", false}, {"tie_word_embeddings", false}, {"use_sliding_window", false}),
         .check = check_layers)};

const tx_architecture tx_qwen3_moe = {
    FAMILY("qwen3_moe", "Qwen3Moe", qwen3_defaults, qwen3_keys, "q_proj,v_proj", read, tx_llama_write),
    .fixed = fixed_keys,
    GGUF("qwen3moe", TX_GGUF_FIXED({"norm_topk_prob", true}, {"attention_bias", false}, {"use_sliding_window", false}),
         .check = check_layers, .read = read_normalised)};
