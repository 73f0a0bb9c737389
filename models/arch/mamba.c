/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of Mamba-2 layers and a few with attention. Bamba (IBM and others, 2024); Granite 4 (IBM, 2025), which has
 * Granite's multipliers and usually no rotary positions, and in some models experts next to its MLP. Falcon-H1 (TII,
 * 2025) adds the results of Mamba-2 and attention in every layer, with multipliers of many parts. */
#include "models/arch/mamba.h"

#include "models/arch/llama_family.h"
#include "models/arch/mixer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAMBA LAYER "mamba."

/* The rows of Llama up to the second norm, with Mamba layers. */
#define MIXED_ROWS                                                                                               \
    EMBED_ROW, {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},                                      \
        {QKV_PROJ, LAYER "self_attn.q_proj|k_proj|v_proj.weight", {QKV, WIDTH}, .in = is_attending, .split = 1}, \
        {QKV_BIAS,                                                                                               \
         LAYER "self_attn.q_proj|k_proj|v_proj.bias",                                                            \
         {QKV},                                                                                                  \
         ZEROS,                                                                                                  \
         IF(attention.qkv_bias),                                                                                 \
         .in = is_attending,                                                                                     \
         .split = 1},                                                                                            \
        {O_PROJ, LAYER "self_attn.o_proj.weight", {WIDTH, HEADS}, .in = is_attending, .split = 2},               \
        {O_BIAS, LAYER "self_attn.o_proj.bias", {WIDTH}, ZEROS, IF(attention.bias), .in = is_attending},         \
        MAMBA_ROWS(MAMBA, TX_STACK_NORMAL, TX_STACK_ONE)

static const tx_stack_row granite_rows[] = {
    MIXED_ROWS,
    {POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    SOME_EXPERT_ROWS(LAYER "block_sparse_moe.router.layer.weight", LAYER "block_sparse_moe.input_linear.weight",
                     LAYER "block_sparse_moe.output_linear.weight"),
    SHARED_ROWS(LAYER "shared_mlp.input_linear.weight", LAYER "shared_mlp.output_linear.weight"),
    {GATE_UP_PROJ, LAYER "shared_mlp.input_linear.weight", {SHARED_GATE_UP, WIDTH}, .in = is_dense, .split = 1},
    {DOWN_PROJ, LAYER "shared_mlp.output_linear.weight", {WIDTH, SHARED_INNER}, .in = is_dense, .split = 2},
    LAST_ROWS,
};

static const tx_stack_row bamba_rows[] = {
    MIXED_ROWS,
    {POST_NORM, LAYER "pre_ff_layernorm.weight", {WIDTH}, ONES},
    {GATE_UP_PROJ, LAYER "feed_forward.gate_proj|up_proj.weight", {GATE_UP, WIDTH}, .split = 1},
    {DOWN_PROJ, LAYER "feed_forward.down_proj.weight", {WIDTH, INNER}, .split = 2},
    {FINAL_NORM, "model.final_layernorm.weight", {WIDTH}, ONES},
    HEAD_ROWS,
};

#define MAMBA_KEYS                                                                                                \
    BIAS_KEY, SIZE(mamba_d_conv, mixer.taps, TX_MIXER_TAPS), SIZE(mamba_n_groups, mixer.k_heads, TX_MIXER_HEADS), \
        SIZE(mamba_n_heads, mixer.v_heads, TX_MIXER_HEADS), SIZE(mamba_d_state, mixer.k_size, TX_MIXER_SIZE),     \
        FLAG(mamba_conv_bias, mixer.conv_bias)
static const tx_config_key granite_keys[] = {
    NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads),
    SIZE(intermediate_size, mlp.inner, 1 << 22),
    SIZE(shared_intermediate_size, experts.shared_inner, 1 << 22),
    WHOLE(num_local_experts, experts.count, 0, 1 << 12),
    WHOLE(num_experts_per_tok, experts.chosen, 0, 1 << 12),
    FLAG(output_router_logits, experts.balance),
    NUMBER(router_aux_loss_coef, experts.balance_factor, 1e6),
    NUMBER(initializer_range, initializer_range, 10),
    NUMBER(attention_dropout, attention.dropout, 0.999),
    KV_HEADS_KEY,
    EPS_KEY(rms_norm_eps),
    ONE_ACT_KEY(hidden_act, TX_LLAMA_SILU),
    GRANITE_KEYS,
    MAMBA_KEYS,
    {.name = NULL}};
static const tx_config_key bamba_keys[] = {COMMON_KEYS, MAMBA_KEYS, {.name = NULL}};
static const tx_config_key falcon_keys[] = {COMMON_KEYS,
                                            HEAD_DIM_KEY,
                                            MAMBA_KEYS,
                                            FLAG(mamba_rms_norm, mixer.norm),
                                            FLAG(mamba_norm_before_gate, mixer.norm_first),
                                            MULTIPLIER(embedding_multiplier, embedding.multiplier),
                                            MULTIPLIER(lm_head_multiplier, logits.multiplier),
                                            MULTIPLIER(key_multiplier, attention.key_multiplier),
                                            MULTIPLIER(attention_in_multiplier, attention.in),
                                            MULTIPLIER(attention_out_multiplier, attention.out),
                                            MULTIPLIER(ssm_in_multiplier, mixer.in),
                                            MULTIPLIER(ssm_out_multiplier, mixer.out),
                                            {.name = NULL}};

static const tx_fixed_key fixed[] = {{"mamba_proj_bias", "false", "biases of Mamba's projections are not implemented"},
                                     {"mlp_bias", "false", "biases of this type's MLPs are not implemented"},
                                     {"projectors_bias", "false", "biases of Mamba's projections are not implemented"},
                                     {.name = NULL}};

#define MAMBA_DEFAULTS                                                                                             \
    .mixer.kind = TX_MIXER_MAMBA2, .mixer.taps = 4, .mixer.k_heads = 1, .mixer.v_heads = 128, .mixer.k_size = 256, \
    .mixer.conv_bias = true
static const llama_config granite_defaults = {SIZES(tx_granitemoehybrid, granite_rows, 32000, 2048, 4096, 32, 32, 1, 2),
                                              REST(11008, 0, 1e-6, 1e4),
                                              GRANITE_DEFAULTS,
                                              MAMBA_DEFAULTS,
                                              EXPERTS_DEFAULTS(8, 2, 0.001),
                                              .mixer.norm = true,
                                              .experts.normalise = true,
                                              .experts.shared_inner = 1024};
static const llama_config bamba_defaults = {SIZES(tx_bamba, bamba_rows, 128000, 262144, 4096, 32, 32, 1, 2),
                                            REST_OF(14336, 8, 1e-5, 0.02, PARTIAL_ROPE(1e4, 0.5)), .padding = 1,
                                            MAMBA_DEFAULTS, .mixer.norm = true};
static const llama_config falcon_defaults = {SIZES(tx_falcon_h1, bamba_rows, 128000, 8192, 4096, 32, 32, 1, 2),
                                             REST(14336, 8, 1e-5, 1e4),
                                             .padding = 1,
                                             MAMBA_DEFAULTS,
                                             .mixer.norm_first = true,
                                             .mixer.parallel = true,
                                             .mixer.in = 1,
                                             .mixer.out = 1,
                                             .embedding.multiplier = 1,
                                             .logits.multiplier = 1,
                                             .attention.key_multiplier = 1,
                                             .attention.in = 1,
                                             .attention.out = 1};

/* Divides the inner size of Mamba layers into heads. The key `size` names it. */
static tx_status set_heads(int64_t inner, const char *size, llama_config *c)
{
    c->mixer.v_size = inner / c->mixer.v_heads;
    if (c->mixer.v_size * c->mixer.v_heads != inner || c->mixer.v_size < 1 || c->mixer.v_size > TX_MIXER_SIZE)
        return tx_fail(TX_INVALID,
                       "mamba_n_heads: %" PRId64 " heads do not divide %s, %" PRId64
                       ", into heads of at most %d elements",
                       c->mixer.v_heads, size, inner, TX_MIXER_SIZE);
    return TX_OK;
}

static tx_status read_heads(const tx_json *json, llama_config *c)
{
    int64_t expand = 2;
    TX_TRY(TX_JSON_OPTIONAL(int, json, "mamba_expand", 1, 64, &expand));
    return set_heads(expand * c->base.width, "mamba_expand times hidden_size", c);
}

/* Reads a list of `count` multipliers, if there is one. */
static tx_status read_multipliers(const tx_json *json, const char *key, size_t count, double *multipliers)
{
    tx_json *list;
    if (!tx_json_has(json, key))
        return TX_OK;
    TX_TRY(tx_json_get(json, key, TX_JSON_ARRAY, &list));
    if (tx_json_size(list) != count)
        return tx_fail(TX_INVALID, "%s: %zu numbers, expected %zu", key, tx_json_size(list), count);
    for (size_t i = 0; i < count; i++)
        TX_TRY(tx_json_as_number(tx_json_at(list, i), key, 1e-9, 1e9, &multipliers[i]));
    return TX_OK;
}

static tx_status read_granite(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    const char *positions = "nope";
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(TX_JSON_OPTIONAL(string, json, "position_embedding_type", &positions));
    c->positions.none = (tx_layer_set){.listed = strcmp(positions, "rope") != 0};
    for (int64_t i = 0; i < config->layers && c->positions.none.listed; i++)
        add_layer(&c->positions.none, i);
    TX_TRY(tx_mixer_read_limits(json, "time_step_limit", c));
    TX_TRY(tx_mixer_read(json, c, 0));
    return read_heads(json, c);
}

static tx_status read_bamba(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(tx_mixer_read_limits(json, "time_step_limit", c));
    TX_TRY(tx_mixer_read(json, c, 0));
    if (!tx_json_has(json, "layer_types") && tx_json_has(json, "attn_layer_indices"))
        TX_TRY(tx_mixer_read_attending(json, "attn_layer_indices", c));
    return read_heads(json, c);
}

/* All layers have Mamba-2 and attention. */
static tx_status read_falcon(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    int64_t inner = 1024, size = 0;
    TX_TRY(tx_llama_read(json, config));
    c->attention.head_dim = head_size(c); /* transformers does not load null */
    for (int64_t i = 0; i < config->layers; i++)
        add_layer(&c->mixer.layers, i);
    TX_TRY(tx_mixer_read_limits(json, "time_step_limit", c));
    TX_TRY(read_multipliers(json, "mlp_multipliers", 2, c->mlp.multipliers));
    TX_TRY(read_multipliers(json, "ssm_multipliers", TX_LLAMA_MULTIPLIERS, c->mixer.multipliers));
    TX_TRY(TX_JSON_OPTIONAL(int, json, "mamba_d_ssm", 1, 1 << 22, &inner));
    const bool expands = tx_json_find(json, "mamba_d_ssm") && !tx_json_has(json, "mamba_d_ssm"); /* null */
    TX_TRY(expands ? read_heads(json, c) : set_heads(inner, "mamba_d_ssm", c));
    const tx_json *given = tx_json_find(json, "mamba_d_head"); /* or "auto" */
    if (!given || tx_json_type_of(given) == TX_JSON_STRING)
        return TX_OK;
    TX_TRY(tx_json_as_int(given, "mamba_d_head", 1, TX_MIXER_SIZE, &size));
    return size == c->mixer.v_size ? TX_OK
                                   : tx_fail(TX_INVALID,
                                             "mamba_d_head: %" PRId64 " differs from the inner size divided "
                                             "by mamba_n_heads, %" PRId64,
                                             size, c->mixer.v_size);
}

const tx_architecture tx_falcon_h1 = {
    MIXED_FAMILY("falcon_h1", "FalconH1ForCausalLM", falcon_defaults, falcon_keys, read_falcon), .fixed = fixed,
    .gguf = &tx_falcon_h1_gguf};
const tx_architecture tx_granitemoehybrid = {
    MIXED_FAMILY("granitemoehybrid", "GraniteMoeHybridForCausalLM", granite_defaults, granite_keys, read_granite),
    .fixed = fixed, .gguf = &tx_granitehybrid_gguf};
const tx_architecture tx_bamba = {MIXED_FAMILY("bamba", "BambaForCausalLM", bamba_defaults, bamba_keys, read_bamba),
                                  .fixed = fixed, .gguf = &tx_bamba_gguf};
