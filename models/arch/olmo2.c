/* SPDX-License-Identifier: Apache-2.0
 *
 * OLMo (Groeneveld et al., OLMo, 2024): a Llama whose layer norms have no weights. OLMo 2 (Walsh et al., 2 OLMo 2
 * Furious, 2024): a Llama that normalises the outputs of attention and MLP instead of their inputs, and q and k over
 * all heads. OLMo 3 (2025) adds windows by layer; only layers without one have scaled rotary positions. OLMoE
 * (Muennighoff et al., OLMoE, 2024) normalises inputs, and has experts. FlexOlmo (Shi et al., FlexOlmo, 2025) is OLMo 2
 * with experts. */
#include "models/arch/llama_family.h"

#include <inttypes.h>

static const tx_stack_row rows[] = {
    EMBED_ROW,
    SEPARATE_QKV_ROWS,
    HEAD_NORM_ROW("q_norm|k_norm.weight", QK_WIDTH, ONES),
    O_ROWS,
    {ATTENTION_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    SEPARATE_MLP_ROWS,
    {MLP_NORM, LAYER "post_feedforward_layernorm.weight", {WIDTH}, ONES},
    LAST_ROWS,
};

static const tx_stack_row olmoe_rows[] = {
    OPENING_ROWS_WITH(HEAD_NORM_ROW("q_norm|k_norm.weight", QK_WIDTH, ONES)),
    EXPERT_ROWS(LAYER "mlp.gate.weight", LAYER "mlp.experts.*.gate_proj|up_proj.weight",
                LAYER "mlp.experts.*.down_proj.weight"),
    LAST_ROWS,
};

static const tx_stack_row olmo_rows[] = {EMBED_ROW, SEPARATE_QKV_ROWS, O_ROWS, SEPARATE_MLP_ROWS, HEAD_ROWS};

static const tx_config_key olmo_keys[] = {
    SIZE_KEYS, KV_HEADS_KEY, ONE_ACT_KEY(hidden_act, TX_LLAMA_SILU), BIAS_KEY, {.name = NULL}};
static const llama_config olmo_defaults = {SIZES(tx_olmo, olmo_rows, 50304, 2048, 4096, 32, 32, -1, 50279),
                                           REST(11008, 0, 1e-5, 1e4), .padding = 2, .norms.bare = true,
                                           .norms.centred = true};

static const tx_stack_row flex_rows[] = {
    EMBED_ROW,
    SEPARATE_QKV_ROWS,
    HEAD_NORM_ROW("q_norm|k_norm.weight", QK_WIDTH, ONES),
    O_ROWS,
    {ATTENTION_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    MLP_EXPERT_ROWS("mlp.gate.weight"),
    {MLP_NORM, LAYER "post_feedforward_layernorm.weight", {WIDTH}, ONES},
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
                                            REST(2048, 0, 1e-5, 1e4),
                                            .padding = 2,
                                            .norms.whole = true,
                                            .attention.clips_norms = true,
                                            EXPERTS_DEFAULTS(64, 8, 0.01)};

static const llama_config flex_defaults = {SIZES(tx_flex_olmo, flex_rows, 100352, 4096, 4096, 32, 32, -1, 100257),
                                           REST(11008, 0, 1e-6, 5e5), .padding = 100278, .norms.whole = true,
                                           EXPERTS_DEFAULTS(7, 5, 0.01)};

static tx_status read_olmo3(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    TX_TRY(TX_JSON_OPTIONAL(number, json, "rope_theta", 1, 1e12, &c->positions.local.theta));
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(tx_llama_read_ropes(json, config));
    return tx_llama_read_layer_types(json, c);
}

/* null means no limit. */
static tx_status read_clip(const tx_json *json, tx_config *config)
{
    TX_TRY(TX_JSON_OPTIONAL(number, json, "clip_qkv", 1e-9, 1e9, &((llama_config *)config)->attention.clip));
    return tx_llama_read(json, config);
}

static tx_status write_clip(const tx_config *config, tx_json *json)
{
    const double limit = llama_of(config)->attention.clip;
    TX_TRY(limit > 0 ? tx_json_set_number(json, "clip_qkv", limit) : tx_json_set_null(json, "clip_qkv"));
    return tx_llama_write(config, json);
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

#define WINDOWS "olmo2." TX_GGUF_WINDOWS

/* llama.cpp has one base, and scales only layers without a window. */
static tx_status check_ropes(const tx_gguf_exported *e)
{
    const llama_config *c = llama_of(e->config);
    if (c->positions.local.theta != c->positions.rope.theta || c->positions.local.type != TX_ROPE_DEFAULT)
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: sliding_attention: llama.cpp computes rope_type default with "
                                       "the rope_theta of full_attention");
    return TX_OK;
}

/* Writes the rotary base of layers with a window, and which layers have one. */
static void put_windows(const tx_config *config, tx_gguf_writer *writer)
{
    tx_gguf_put_number(writer, "olmo2.rope.freq_base_swa", llama_of(config)->positions.local.theta);
    tx_gguf_put_array(writer, WINDOWS, TX_GGUF_VALUE_BOOL, config->layers);
    for (int64_t i = 0; i < config->layers; i++)
        tx_gguf_add_bytes(writer, window_of(llama_of(config), i) > 0 ? "\1" : "\0", 1);
}

/* OLMo 3 has settings for each kind of layers. llama.cpp scales only layers without a window. */
static tx_status set_ropes(tx_json *json)
{
    double theta;
    TX_TRY(tx_json_get_number(json, "rope_theta", 0, 1e12, &theta));
    tx_json *full = tx_json_has(json, "rope_scaling") ? tx_json_copy(tx_json_find(json, "rope_scaling"))
                                                      : tx_json_pack("{s:s}", "rope_type", "default");
    TX_TRY(tx_json_set(json, "rope_parameters",
                       tx_json_pack("{s:o,s:{s:s,s:f}}", "full_attention", full, "sliding_attention", "rope_type",
                                    "default", "rope_theta", theta)));
    TX_TRY(tx_json_set_number(full, "rope_theta", theta));
    return tx_json_set_null(json, "rope_scaling");
}

/* Files list the layers with a window. */
static tx_status set_windows(const tx_gguf_file *file, tx_json *json)
{
    int64_t layers;
    tx_gguf_array slides = {0};
    if (!tx_gguf_has(file, WINDOWS))
        return TX_OK;
    TX_TRY(tx_json_get_int(json, "num_hidden_layers", 1, TX_LLAMA_LAYERS, &layers));
    TX_TRY(tx_gguf_get_array(file, WINDOWS, false, &slides));
    const tx_status status =
        slides.count == layers
            ? tx_llama_gguf_set_windows(json, layers, slides.number)
            : tx_fail(TX_FORMAT, WINDOWS ": %" PRId64 " layers instead of %" PRId64, slides.count, layers);
    tx_gguf_array_free(&slides);
    return status;
}

static tx_status read_gguf3(const tx_gguf_file *file, tx_json *json)
{
    TX_TRY(set_ropes(json));
    return set_windows(file, json);
}

const tx_architecture tx_olmo = {
    FAMILY("olmo", "Olmo", olmo_defaults, olmo_keys, "q_proj,v_proj", read_clip, write_clip),
    CENTRED_GGUF("olmo", .pairs = true, TX_GGUF_OWN_KEYS(TX_GGUF_NAMED("attention.clamp_kqv", "clip_qkv", NUMBER)),
                 TX_GGUF_FIXED({"attention_bias", false}))};

const tx_architecture tx_olmo2 = {USUAL_FAMILY("olmo2", "Olmo2"),
                                  GGUF("olmo2", .without = {TX_GGUF_WINDOW},
                                       TX_GGUF_FIXED({"attention_bias", false}, {"tie_word_embeddings", false}))};

const tx_architecture tx_olmo3 = {
    FAMILY("olmo3", "Olmo3", olmo3_defaults, olmo3_keys, "q_proj,v_proj", read_olmo3, tx_llama_write),
    GGUF("olmo2", .with = TX_GGUF_WINDOW, TX_GGUF_FIXED({"attention_bias", false}, {"tie_word_embeddings", false}),
         .check = check_ropes, .put = put_windows, .read = read_gguf3)};

const tx_architecture tx_olmoe = {
    FAMILY("olmoe", "Olmoe", olmoe_defaults, olmoe_keys, "q_proj,v_proj", read_clip, write_clip),
    GGUF("olmoe", TX_GGUF_FIXED({"norm_topk_prob", false}, {"tie_word_embeddings", false}, {"attention_bias", false}),
         .check = tx_llama_gguf_check_heads)};

const tx_architecture tx_flex_olmo = {
    FAMILY("flex_olmo", "FlexOlmo", flex_defaults, olmoe_keys, "q_proj,v_proj", tx_llama_read, tx_llama_write)};
