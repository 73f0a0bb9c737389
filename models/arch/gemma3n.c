/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma 3n for text (Gemma team, 2025): a Gemma whose norms have plain weights, with several residual streams and
 * sparse gates (altup.c), an embedding for each layer (layer_inputs.c), and layers that share keys and values
 * (layer_attention.c). */
#include "models/arch/llama_family.h"

#include <inttypes.h>
#include <string.h>

#define SPARSE_LAYERS 10 /* the first ones, in models of more layers whose file does not say it */

#define ALTUP LAYER "altup."
#define LAUREL LAYER "laurel."
#define UNEMBED(i) "model.altup_unembed_projections." #i ".weight"

static const tx_stack_row rows[] = {
    EMBED_ROW,
    LAYER_TABLE_ROWS,
    {STREAMS_IN, "model.altup_projections.0|1|2.weight", {OTHER_STREAMS, WIDTH}, .init = TX_STACK_NORMAL},
    {STREAM_NORM, ALTUP "router_norm.weight", {WIDTH}, ONES},
    {STREAM_ROUTER, ALTUP "modality_router.weight", {STREAMS, WIDTH}, .router = true},
    {STREAM_PREDICTION, ALTUP "prediction_coefs.weight", {STREAM_PAIRS, STREAMS}, .router = true},
    {INPUT_NORM, LAYER "input_layernorm.weight", {WIDTH}, ONES},
    LAYER_ATTENTION_ROWS,
    {ATTENTION_NORM, LAYER "post_attention_layernorm.weight", {WIDTH}, ONES},
    {LOW_RANK_IN, LAUREL "linear_left.weight", {LOW_RANK, WIDTH}, .init = TX_STACK_NORMAL},
    {LOW_RANK_OUT, LAUREL "linear_right.weight", {WIDTH, LOW_RANK}, .init = TX_STACK_NORMAL},
    {LOW_RANK_NORM, LAUREL "post_laurel_norm.weight", {WIDTH}, ONES},
    {POST_NORM, LAYER "pre_feedforward_layernorm.weight", {WIDTH}, ONES},
    SEPARATE_MLP_ROWS,
    {MLP_NORM, LAYER "post_feedforward_layernorm.weight", {WIDTH}, ONES},
    {STREAM_CORRECTION, ALTUP "correction_coefs.weight", {STREAMS, STREAMS}, .router = true},
    {STREAM_SCALE, ALTUP "correct_output_scale", {WIDTH}, ZEROS, .other_decay = true},
    LAYER_INPUT_ROWS,
    {STREAM_OUT, UNEMBED(0), {WIDTH, WIDTH}, .init = TX_STACK_NORMAL},
    {STREAM_OUT_2, UNEMBED(1), {WIDTH, WIDTH}, .init = TX_STACK_NORMAL},
    {STREAM_OUT_3, UNEMBED(2), {WIDTH, WIDTH}, .init = TX_STACK_NORMAL},
    LAST_ROWS,
};

static const tx_config_key keys[] = {
    NAMED_SIZE_KEYS(max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads),
    SIZE_OR_NULL(intermediate_size, mlp.inner, 1 << 22), /* or a list */
    NUMBER(initializer_range, initializer_range, 10),
    NUMBER(attention_dropout, attention.dropout, 0.999),
    KV_HEADS_KEY,
    EPS_KEY(rms_norm_eps),
    HEAD_DIM_KEY,
    WINDOW_KEY,
    BIAS_KEY,
    ONE_ACT_KEY(hidden_activation, TX_LLAMA_GELU_TANH),
    SETTING(rope_local_base_freq, positions.local.theta, 1, 1e12),
    WHOLE(num_kv_shared_layers, attention.borrowing, 0, TX_LLAMA_LISTED),
    SIZE(hidden_size_per_layer_input, embedding.layer_width, 1 << 16),
    SIZE(vocab_size_per_layer_input, embedding.layer_vocab, 1 << 30),
    SIZE(laurel_rank, streams.low_rank, 1 << 16),
    {.name = NULL}};

static const tx_fixed_key fixed[] = {
    {"altup_correct_scale", "true", "embeddings of layers without a scale of the stream are not implemented"},
    {.name = NULL}};

static const llama_config defaults = {SIZES(tx_gemma3n_text, rows, 262400, 32768, 2048, 35, 8, 2, 1),
                                      REST_OF(16384, 2, 1e-6, 0.02, ROPE(1e6)),
                                      .padding = 1,
                                      .tie_word_embeddings = true,
                                      .embedding.by_root_of_width = true,
                                      .embedding.layer_width = 256,
                                      .embedding.layer_vocab = 262144,
                                      .attention.differs = true,
                                      .attention.head_dim = 256,
                                      .attention.multiplier = 1,
                                      .attention.windowed = true,
                                      .attention.window = 512,
                                      .attention.window_period = 5,
                                      .attention.borrowing = 15,
                                      .attention.lending = 20,
                                      .positions.has_local = true,
                                      .positions.local = ROPE(1e4),
                                      .mlp.activation = TX_LLAMA_GELU_TANH,
                                      .streams.alternate = true,
                                      .streams.low_rank = 64,
                                      .streams.limit = 120,
                                      .logits.cap = 30};

/* ---- Configuration ------------------------------------------------------------------------------------- */

static tx_status read_streams(const tx_json *json, llama_config *c)
{
    int64_t count = TX_LLAMA_STREAMS, first = 0;
    TX_TRY(TX_JSON_OPTIONAL(int, json, "altup_num_inputs", 1, 1 << 10, &count));
    TX_TRY(TX_JSON_OPTIONAL(int, json, "altup_active_idx", 0, 1 << 10, &first));
    if (count != TX_LLAMA_STREAMS || first != 0)
        return tx_fail(TX_UNSUPPORTED,
                       "altup_num_inputs: %" PRId64 ", altup_active_idx: %" PRId64 ": only %d and 0 are implemented",
                       count, first, TX_LLAMA_STREAMS);
    if (tx_json_find(json, "altup_coef_clip") && !tx_json_has(json, "altup_coef_clip"))
        c->streams.limit = 0;
    return TX_JSON_OPTIONAL(number, json, "altup_coef_clip", 1e-6, 1e6, &c->streams.limit);
}

/* A list with a number for each layer. */
static tx_status read_list(const tx_json *json, const char *key, const llama_config *c, tx_json **list)
{
    TX_TRY(tx_json_get(json, key, TX_JSON_ARRAY, list));
    return tx_json_size(*list) == (size_t)c->base.layers
               ? TX_OK
               : tx_fail(TX_INVALID, "%s: %zu numbers, but num_hidden_layers is %" PRId64, key, tx_json_size(*list),
                         c->base.layers);
}

/* The inner widths of MLPs: a number, which is read already, or a list. */
static tx_status read_sizes(const tx_json *json, llama_config *c)
{
    static const char key[] = "intermediate_size";
    tx_json *list;
    int64_t size;
    memset(c->mlp.sizes, 0, sizeof c->mlp.sizes);
    if (tx_json_find(json, key) && !tx_json_has(json, key))
        return tx_fail(TX_INVALID, "%s: expected a number or a list, found null", key);
    if (!tx_json_has(json, key) || tx_json_get(json, key, TX_JSON_ARRAY, &list))
        return TX_OK;
    TX_TRY(read_list(json, key, c, &list));
    for (int64_t i = 0; i < c->base.layers; i++) {
        TX_TRY(tx_json_as_int(tx_json_at(list, (size_t)i), key, 1, 1 << 22, &size));
        c->mlp.sizes[i] = (int32_t)size;
    }
    return TX_OK;
}

static tx_status read_sparsity(const tx_json *json, llama_config *c)
{
    static const char key[] = "activation_sparsity_pattern";
    tx_json *list;
    double part;
    for (int64_t i = 0; i < c->base.layers; i++)
        c->mlp.sparsity[i] = c->base.layers > SPARSE_LAYERS && i < SPARSE_LAYERS ? 0.95f : 0;
    if (!tx_json_has(json, key))
        return TX_OK;
    TX_TRY(read_list(json, key, c, &list));
    for (int64_t i = 0; i < c->base.layers; i++) {
        TX_TRY(tx_json_as_number(tx_json_at(list, (size_t)i), key, 0, 0.999999, &part));
        c->mlp.sparsity[i] = (float)part;
    }
    return TX_OK;
}

static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    if (config->layers > TX_LLAMA_LISTED)
        return tx_fail(TX_UNSUPPORTED, "num_hidden_layers: %" PRId64 " is more than %d, the limit for this model type",
                       config->layers, TX_LLAMA_LISTED);
    TX_TRY(tx_llama_read_cap(json, "final_logit_softcapping", &c->logits.cap));
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(tx_llama_read_ropes(json, config));
    TX_TRY(tx_llama_read_layer_types(json, c));
    TX_TRY(read_streams(json, c));
    TX_TRY(read_sizes(json, c));
    TX_TRY(read_sparsity(json, c));
    c->attention.lending = config->layers - c->attention.borrowing;
    if (!config->grown_from)
        c->embedding.layerless = config->vocab_size - c->embedding.layer_vocab;
    return TX_OK;
}

static tx_status write(const tx_config *config, tx_json *json)
{
    TX_TRY(tx_llama_write(config, json));
    return tx_json_set_int(json, "vocab_size_per_layer_input", layer_rows(llama_of(config)));
}

static tx_status check(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    const int64_t known = c->embedding.layer_vocab, layerless = c->embedding.layerless;
    if (layerless < 0)
        return tx_fail(TX_UNSUPPORTED,
                       "vocab_size_per_layer_input: %" PRId64 " is more than vocab_size, which is not implemented",
                       known);
    if (layerless > 0 && known + layerless != config->vocab_size)
        return tx_fail(TX_UNSUPPORTED,
                       "vocab_size_per_layer_input: %" PRId64 ": a vocabulary that has more tokens than this cannot be "
                       "enlarged",
                       known);
    TX_TRY(tx_llama_check_layer_attention(config));
    return tx_llama_check(config);
}

const tx_architecture tx_gemma3n_text = {
    FAMILY_CHECKED("gemma3n_text", "Gemma3nForCausalLM", defaults, keys, "q_proj,v_proj", read, write, check),
    .fixed = fixed};
