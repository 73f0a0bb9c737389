/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama 4 for text (Meta, 2025): layers without rotary positions, whose queries grow with their position, between
 * layers whose positions see only their own chunk; a shared expert, and others whose inputs are scaled. */
#include "models/arch/llama_family.h"

#include <inttypes.h>

#define FEED LAYER "feed_forward."

static const tx_stack_row rows[] = {
    OPENING_ROWS,
    {ROUTER, FEED "router.weight", {EXPERTS, WIDTH}, .router = true, .in = is_sparse},
    {EXPERTS_GATE_UP, FEED "experts.gate_up_proj", {EXPERTS, WIDTH, EXPERT_PAIR}, .experts = true, .in = is_sparse},
    {EXPERTS_DOWN, FEED "experts.down_proj", {EXPERTS, EXPERT_INNER, WIDTH}, .experts = true, .in = is_sparse},
    SHARED_ROWS(FEED "shared_expert.gate_proj|up_proj.weight", FEED "shared_expert.down_proj.weight"),
    {GATE_UP_PROJ, FEED "gate_proj|up_proj.weight", {GATE_UP, WIDTH}, .in = is_dense, .split = 1},
    {DOWN_PROJ, FEED "down_proj.weight", {WIDTH, INNER}, .in = is_dense, .split = 2},
    LAST_ROWS,
};

static const tx_config_key keys[] = {
    NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads),
    SIZE(intermediate_size, experts.inner, 1 << 22),
    SIZE(intermediate_size_mlp, mlp.inner, 1 << 22),
    NUMBER(initializer_range, initializer_range, 10),
    NUMBER(attention_dropout, attention.dropout, 0.999),
    KV_HEADS_KEY,
    EPS_KEY(rms_norm_eps),
    ONE_ACT_KEY(hidden_act, TX_LLAMA_SILU),
    HEAD_DIM_KEY,
    BIAS_KEY,
    SIZE(num_local_experts, experts.count, 1 << 12),
    SIZE(num_experts_per_tok, experts.chosen, 1 << 12),
    SIZE(interleave_moe_layer_step, experts.period, TX_LLAMA_LAYERS),
    FLAG(use_qk_norm, norms.bare_heads),
    SIZE(no_rope_layer_interval, positions.none_period, TX_LLAMA_LAYERS),
    SIZE_OR_NULL(attention_chunk_size, attention.window, 1 << 24),
    SIZE(floor_scale, attention.scale_step, 1 << 24),
    {.name = NULL}};

static const llama_config defaults = {SIZES(tx_llama4_text, rows, 202048, 131072, 5120, 48, 40, 1, 2),
                                      REST(16384, 8, 1e-5, 5e5),
                                      .attention.head_dim = 128,
                                      .attention.window = 8192,
                                      .attention.windowed = true,
                                      .attention.windows.listed = true,
                                      .attention.chunked = true,
                                      .attention.scale_growth = 0.1,
                                      .attention.scale_step = 8192,
                                      .norms.bare_heads = true,
                                      .norms.after_rope = true,
                                      .positions.interleaved = true,
                                      .positions.none_period = 4,
                                      EXPERTS_DEFAULTS(16, 1, 0),
                                      .experts.inner = 8192,
                                      .experts.shared = 1,
                                      .experts.sigmoid = true,
                                      .experts.scales_inputs = true};

/* The growth of queries, which another key switches off. In early files this is a number. */
static tx_status read_growth(const tx_json *json, llama_config *c)
{
    static const char key[] = "attn_temperature_tuning";
    bool grows = true;
    int64_t number;
    TX_TRY(TX_JSON_OPTIONAL(number, json, "attn_scale", 0, 1e3, &c->attention.scale_growth));
    if (tx_json_has(json, key) && tx_json_get_bool(json, key, &grows)) {
        TX_TRY(tx_json_get_int(json, key, 0, 1 << 24, &number));
        grows = number > 0;
    }
    if (!grows)
        c->attention.scale_growth = 0;
    return TX_OK;
}

/* The layers with experts, from a list, or else every one of a period. */
static tx_status read_experts(const tx_json *json, llama_config *c)
{
    tx_layer_set sparse;
    if (!tx_json_has(json, "moe_layers"))
        return TX_OK;
    TX_TRY(tx_llama_read_layers(json, "moe_layers", &sparse));
    c->experts.period = 1;
    c->experts.dense = (tx_layer_set){.listed = true};
    for (int64_t i = 0; i < c->base.layers; i++)
        if (!has_layer(&sparse, i))
            add_layer(&c->experts.dense, i);
    return TX_OK;
}

/* The layers with chunks, from a list, or else those with rotary positions. */
static tx_status read_chunks(const tx_json *json, llama_config *c)
{
    tx_layer_set *layers = &c->attention.windows;
    const tx_layer_word words[] = {{"full_attention", NULL}, {"chunked_attention", layers}, {NULL, NULL}};
    const bool listed = tx_json_has(json, "layer_types");
    if (listed)
        TX_TRY(tx_llama_read_words(json, "layer_types", c->base.layers, words));
    for (int64_t i = 0; i < c->base.layers; i++) {
        if (!listed && has_rope(c, i))
            add_layer(layers, i);
        if (listed && has_layer(layers, i) && !c->attention.window)
            return tx_fail(TX_INVALID, "layer_types: \"chunked_attention\" needs attention_chunk_size");
    }
    return TX_OK;
}

static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(tx_llama_read_no_rope(json, c));
    TX_TRY(read_growth(json, c));
    TX_TRY(read_experts(json, c));
    return read_chunks(json, c);
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

/* What llama.cpp does not read from files. */
enum { CHUNK = 8192, PERIOD = 4, WITHOUT_NORMS = 128 /* experts */ };
#define GROWTH 0.1
#define STEP "interleave_moe_layer_step"

static int64_t period_of(const tx_config *config)
{
    return tx_llama_gguf_dense(config) + 1;
}

static tx_status check_gguf(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    if (c->attention.window != CHUNK || c->attention.scale_step != CHUNK || c->attention.scale_growth != GROWTH)
        return tx_fail(
            TX_UNSUPPORTED,
            "attention_chunk_size, floor_scale, attn_scale: llama.cpp computes as if they were %d, %d and %g", CHUNK,
            CHUNK, GROWTH);
    if (c->norms.bare_heads != (c->experts.count != WITHOUT_NORMS))
        return tx_fail(TX_UNSUPPORTED, "use_qk_norm: llama.cpp computes as if only models of %d experts had none",
                       WITHOUT_NORMS);
    for (int64_t i = 0; i < c->base.layers; i++) {
        const bool rotates = (i + 1) % PERIOD != 0, sparse = (i + 1) % period_of(e->config) == 0;
        if (has_rope(c, i) != rotates || (window_of(c, i) > 0) != rotates)
            return tx_fail(TX_UNSUPPORTED,
                           "no_rope_layers, layer_types: llama.cpp computes as if only each %dth layer had no chunks "
                           "and no rotary positions",
                           PERIOD);
        if (is_sparse(e->config, i) != sparse)
            return tx_fail(TX_UNSUPPORTED, "moe_layers: llama.cpp reads only " STEP);
    }
    return TX_OK;
}

static tx_status read_gguf(const tx_gguf_file *file, tx_json *json)
{
    int64_t experts;
    (void)file;
    TX_TRY(tx_json_get_int(json, "num_local_experts", 1, INT32_MAX, &experts));
    return tx_json_set_bool(json, "use_qk_norm", experts != WITHOUT_NORMS);
}

const tx_architecture tx_llama4_text = {
    FAMILY("llama4_text", "Llama4", defaults, keys, "q_proj,v_proj", read, tx_llama_write),
    GGUF("llama4", .rope_factors = true, TX_GGUF_OWN_KEYS({.key = STEP, .name = STEP, .value = period_of}),
         TX_GGUF_FIXED({"attention_bias", false}), .check = check_gguf, .read = read_gguf)};
