/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen3.5 for text (Qwen team, 2026) and Qwen3-Next (2025): three of four layers are gated DeltaNets. The other layers
 * have attention with a gate for each head's output, norms of q and k, and rotary positions in a part of each head.
 * Norms have weights 1 + gamma, except those of DeltaNets. Qwen3-Next and some of Qwen3.5 have experts as Qwen2. */
#include "models/arch/llama_family.h"
#include "models/arch/mixer.h"

#include <stdlib.h>

#define NET LAYER "linear_attn."

#define MLP LAYER "mlp."
#define SHARED MLP "shared_expert"

/* The rows up to the input projections of DeltaNets, and those up to the MLP. */
#define ATTENTION_ROWS                                                                                                 \
    EMBED_ROW, {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ZEROS},                                           \
        {QKV_PROJ, LAYER "self_attn.q_proj|k_proj|v_proj.weight", {GATED_QKV, WIDTH}, .in = is_attending, .split = 1}, \
        {HEAD_NORM, LAYER "self_attn.q_norm|k_norm.weight", {QK_HEAD}, ZEROS, .in = is_attending},                     \
    {                                                                                                                  \
        O_PROJ, LAYER "self_attn.o_proj.weight", {WIDTH, HEADS}, .in = is_attending, .split = 2                        \
    }
#define NET_ROWS                                                                                                 \
    {MIXER_CONV, NET "conv1d.weight", {MIXER_CHANNELS, ONE, MIXER_TAPS}, .in = is_recurrent, .split = 1},        \
        {MIXER_A_LOG, NET "A_log", {MIXER_HEADS}, .init = TX_STACK_LOG_UNIFORM, .in = is_recurrent, .split = 1}, \
        {MIXER_DT_BIAS, NET "dt_bias", {MIXER_HEADS}, ONES, .in = is_recurrent, .split = 1},                     \
        {MIXER_NORM, NET "norm.weight", {MIXER_VALUE}, ONES, .in = is_recurrent},                                \
        {MIXER_OUT, NET "out_proj.weight", {WIDTH, MIXER_VALUES}, .in = is_recurrent, .split = 2},               \
    {                                                                                                            \
        POST_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ZEROS                                       \
    }
#define END_ROWS {FINAL_NORM, "model.norm.weight", {WIDTH}, ZEROS}, HEAD_ROWS

#define INPUT_ROWS                                                                                              \
    {MIXER_IN, NET "in_proj_qkv.weight", {MIXER_INPUTS, WIDTH}, .in = is_recurrent, .split = 1},                \
        {MIXER_GATE, NET "in_proj_z.weight", {MIXER_VALUES, WIDTH}, .in = is_recurrent, .split = 1},            \
    {                                                                                                           \
        MIXER_RATES, NET "in_proj_b|in_proj_a.weight", {MIXER_TWO_HEADS, WIDTH}, .in = is_recurrent, .split = 1 \
    }
#define MIXTURE_ROWS                                                                                                 \
    MLP_EXPERT_ROWS("mlp.gate.weight"), SHARED_ROWS(SHARED ".gate_proj|up_proj.weight", SHARED ".down_proj.weight"), \
    {                                                                                                                \
        SHARED_GATE, SHARED "_gate.weight", {ONE, WIDTH}, .in = is_sparse                                            \
    }

static const tx_stack_row rows[] = {ATTENTION_ROWS, INPUT_ROWS, NET_ROWS, SEPARATE_MLP_ROWS, END_ROWS};
static const tx_stack_row moe_rows[] = {ATTENTION_ROWS, INPUT_ROWS, NET_ROWS, MIXTURE_ROWS, END_ROWS};

static const tx_stack_row next_rows[] = {
    ATTENTION_ROWS,
    {MIXER_IN, NET "in_proj_qkvz.weight", {MIXER_INPUTS, WIDTH}, .in = is_recurrent, .split = 1},
    {MIXER_RATES, NET "in_proj_ba.weight", {MIXER_TWO_HEADS, WIDTH}, .in = is_recurrent, .split = 1},
    NET_ROWS,
    MIXTURE_ROWS,
    DENSE_ROWS,
    END_ROWS,
};

#define NET_KEYS                                                                                               \
    NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads),             \
        NUMBER(initializer_range, initializer_range, 10), NUMBER(attention_dropout, attention.dropout, 0.999), \
        KV_HEADS_KEY, EPS_KEY(rms_norm_eps), ONE_ACT_KEY(hidden_act, TX_LLAMA_SILU), HEAD_DIM_KEY,             \
        SIZE(linear_conv_kernel_dim, mixer.taps, TX_MIXER_TAPS),                                               \
        SIZE(linear_num_key_heads, mixer.k_heads, TX_MIXER_HEADS),                                             \
        SIZE(linear_num_value_heads, mixer.v_heads, TX_MIXER_HEADS),                                           \
        SIZE(linear_key_head_dim, mixer.k_size, TX_MIXER_SIZE),                                                \
        SIZE(linear_value_head_dim, mixer.v_size, TX_MIXER_SIZE)
#define MLP_KEY SIZE(intermediate_size, mlp.inner, 1 << 22)
#define MIXTURE_KEYS(least)                                                                                          \
    EXPERTS_KEYS_FROM(least, num_experts, "num_local_experts"), SIZE(moe_intermediate_size, experts.inner, 1 << 22), \
        SIZE(shared_expert_intermediate_size, experts.shared_inner, 1 << 22)
static const tx_config_key keys[] = {NET_KEYS, MLP_KEY, {.name = NULL}};
static const tx_config_key moe_keys[] = {NET_KEYS, MIXTURE_KEYS(1), {.name = NULL}};
static const tx_config_key next_keys[] = {NET_KEYS,
                                          MLP_KEY,
                                          MIXTURE_KEYS(0), /* without experts all layers have an MLP */
                                          FLAG(norm_topk_prob, experts.normalise),
                                          SIZE(decoder_sparse_step, experts.period, TX_LLAMA_LAYERS),
                                          {.name = NULL}};

static const tx_fixed_key fixed[] = {
    {"attention_bias", "false", "biases of gated attention are not implemented"},
    {"attn_output_gate", "true", "attention without gates is not implemented"},
    {"output_gate_type", "swish", "other gates of DeltaNets are not implemented"},
    {"use_sliding_window", "false", "sliding windows of this model type are not implemented"},
    {.name = NULL}};

#define NET_DEFAULTS                                                                                         \
    .attention.head_dim = 256, .attention.gated = true, .norms.add_one = true, .mixer.kind = TX_MIXER_DELTA, \
    .mixer.taps = 4, .mixer.k_heads = 16, .mixer.v_heads = 32, .mixer.k_size = 128, .mixer.v_size = 128
static const llama_config defaults = {SIZES(tx_qwen3_5_text, rows, 248320, 32768, 4096, 32, 16, -1, -1),
                                      REST_OF(12288, 4, 1e-6, 0.02, PARTIAL_ROPE(1e4, 0.25)), NET_DEFAULTS};
#define MIXTURE_DEFAULTS(all, chosen) \
    EXPERTS_DEFAULTS(all, chosen, 0.001), .experts.normalise = true, .experts.inner = 512, .experts.shared_inner = 512
static const llama_config moe_defaults = {SIZES(tx_qwen3_5_moe_text, moe_rows, 248320, 32768, 2048, 40, 16, -1, -1),
                                          REST_OF(512, 2, 1e-6, 0.02, PARTIAL_ROPE(1e4, 0.25)), NET_DEFAULTS,
                                          MIXTURE_DEFAULTS(256, 8)};
static const llama_config next_defaults = {SIZES(tx_qwen3_next, next_rows, 151936, 32768, 2048, 48, 16, -1, -1),
                                           REST_OF(5632, 2, 1e-6, 0.02, PARTIAL_ROPE(1e4, 0.25)), NET_DEFAULTS,
                                           .mixer.joined = true, MIXTURE_DEFAULTS(512, 10)};

static tx_status read(const tx_json *json, tx_config *config)
{
    int64_t interval = 4;
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(TX_JSON_OPTIONAL(int, json, "full_attention_interval", 1, TX_LLAMA_LAYERS, &interval));
    return tx_mixer_read(json, (llama_config *)config, interval);
}

static tx_status read_next(const tx_json *json, tx_config *config)
{
    TX_TRY(read(json, config));
    return tx_llama_read_layers(json, "mlp_only_layers", &((llama_config *)config)->experts.dense);
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

/* The period of layers with attention, or 0 if there is none. */
static int64_t period_of(const tx_config *config)
{
    for (int64_t period = 1, i; period <= config->layers; period++) {
        for (i = 0; i < config->layers && is_recurrent(config, i) == ((i + 1) % period != 0); i++)
            ;
        if (i == config->layers)
            return period;
    }
    return 0;
}

/* llama.cpp's keys of a list of recurrent layers, and of the period of others. */
#define RECURRENT "attention.recurrent_layers"
#define INTERVAL "full_attention_interval"
#define MOST_EPS 1e-5

static void put_layers(const tx_config *config, tx_gguf_writer *writer)
{
    char key[TX_GGUF_KEY_ROOM];
    const char *architecture = tx_gguf_family_of(config)->architecture;
    const int64_t period = period_of(config);
    if (period > 0) /* for older versions */
        tx_gguf_put_int(writer, tx_gguf_key_of(key, architecture, INTERVAL), period);
    tx_gguf_put_array(writer, tx_gguf_key_of(key, architecture, RECURRENT), TX_GGUF_VALUE_BOOL, config->layers);
    for (int64_t i = 0; i < config->layers; i++)
        tx_gguf_add_bytes(writer, is_recurrent(config, i) ? "\1" : "\0", 1);
}

static tx_status read_layers(const tx_gguf_file *file, const char *architecture, tx_json *json)
{
    char key[TX_GGUF_KEY_ROOM];
    int64_t layers, period = 4, inner, heads;
    double *recurrent = NULL;
    TX_TRY(tx_mixer_gguf_check_mtp(file, architecture));
    TX_TRY(tx_gguf_get_int(file, tx_gguf_key_of(key, architecture, "ssm.inner_size"), 1, 1 << 26, &inner));
    TX_TRY(tx_gguf_get_int(file, tx_gguf_key_of(key, architecture, "ssm.time_step_rank"), 1, TX_MIXER_HEADS, &heads));
    TX_TRY(tx_json_set_int(json, "linear_value_head_dim", inner / heads));
    TX_TRY(tx_json_get_int(json, "num_hidden_layers", 1, TX_LLAMA_LAYERS, &layers));
    TX_TRY(TX_GGUF_OPTIONAL(int, file, tx_gguf_key_of(key, architecture, INTERVAL), 1, TX_LLAMA_LAYERS, &period));
    if (tx_gguf_has(file, tx_gguf_key_of(key, architecture, RECURRENT)))
        TX_TRY(tx_mixer_gguf_list(file, key, layers, &recurrent));
    tx_json *list = tx_json_array(); /* `json` owns it before it is filled, so a failure leaks nothing */
    tx_status status = tx_json_set(json, "layer_types", list);
    for (int64_t i = 0; i < layers; i++) {
        const bool attends = recurrent ? recurrent[i] == 0 : (i + 1) % period == 0;
        TX_THEN(status, tx_json_append_string(list, attends ? "full_attention" : "linear_attention"));
    }
    free(recurrent);
    return status;
}

static tx_status check_heads(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    if (c->mixer.k_size != c->mixer.v_size)
        return tx_fail(TX_UNSUPPORTED, "linear_value_head_dim: llama.cpp computes as if it were linear_key_head_dim");
    if (c->norms.eps > MOST_EPS)
        return tx_fail(TX_UNSUPPORTED, "rms_norm_eps: llama.cpp also adds it in DeltaNets' norms of queries and keys");
    return TX_OK;
}

static tx_status check_next(const tx_gguf_exported *e)
{
    for (int64_t i = 0; i < e->config->layers; i++)
        if (!is_sparse(e->config, i))
            return tx_fail(TX_UNSUPPORTED, "mlp_only_layers, decoder_sparse_step: llama.cpp computes as if all layers "
                                           "had experts");
    return check_heads(e);
}

/* llama.cpp divides the pairs that rotate among positions in time, height and width, which are equal in texts. */
static void put_sections(const tx_config *config, tx_gguf_writer *writer)
{
    char key[TX_GGUF_KEY_ROOM];
    const llama_config *c = llama_of(config);
    const int32_t pairs = (int32_t)(c->positions.rope.rotated * (double)head_size(c)) / 2;
    const int32_t sections[] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
    put_layers(config, writer);
    tx_gguf_key_of(key, tx_gguf_family_of(config)->architecture, "rope.dimension_sections");
    tx_gguf_put_array(writer, key, TX_GGUF_VALUE_I32, sizeof sections / sizeof sections[0]);
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        tx_gguf_add_i32(writer, sections[i]);
}

static tx_status read_next_gguf(const tx_gguf_file *file, tx_json *json)
{
    return read_layers(file, "qwen3next", json);
}

static tx_status read_dense_gguf(const tx_gguf_file *file, tx_json *json)
{
    return read_layers(file, "qwen35", json);
}

static tx_status read_moe_gguf(const tx_gguf_file *file, tx_json *json)
{
    return read_layers(file, "qwen35moe", json);
}

#define GGUF_NET(type, keys_, ...)                                                       \
    GGUF(type,                                                                           \
         TX_GGUF_OWN_NAMES(TX_GGUF_NAME(POST_NORM, "blk.%d.post_attention_norm.weight"), \
                           TX_GGUF_NAME(MIXER_IN, "blk.%d.attn_qkv.weight")),            \
         TX_GGUF_OWN_KEYS keys_, .lay = tx_mixer_gguf_lay, __VA_ARGS__)
/* Some files with experts have the size of an MLP, which they lack. */
#define NO_MLP MIXER_GGUF_VALUE("feed_forward_length", NULL, tx_mixer_gguf_none)

const tx_architecture tx_qwen3_5_moe_text = {
    MIXED_FAMILY("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", moe_defaults, moe_keys, read), .fixed = fixed,
    GGUF_NET("qwen35moe", (MIXER_GGUF_KEYS, NO_MLP), .check = check_heads, .put = put_sections, .read = read_moe_gguf)};
const tx_architecture tx_qwen3_next = {
    MIXED_FAMILY("qwen3_next", "Qwen3NextForCausalLM", next_defaults, next_keys, read_next), .fixed = fixed,
    GGUF_NET("qwen3next", (MIXER_GGUF_KEYS), TX_GGUF_FIXED({"norm_topk_prob", true}), .check = check_next,
             .put = put_layers, .read = read_next_gguf)};
const tx_architecture tx_qwen3_5_text = {
    MIXED_FAMILY("qwen3_5_text", "Qwen3_5ForCausalLM", defaults, keys, read), .fixed = fixed,
    GGUF_NET("qwen35", (MIXER_GGUF_KEYS), .check = check_heads, .put = put_sections, .read = read_dense_gguf)};
