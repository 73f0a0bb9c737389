/* SPDX-License-Identifier: Apache-2.0
 *
 * T5 and mT5. Pre-norm blocks without biases: RMS norm, attention without scaled scores, a dense layer. The encoder and
 * the decoder each have one table of biases of distances, which the first block's files hold and all blocks share.
 * Blocks are numbered through both: the decoder's follow the encoder's. */
#include "models/arch/t5.h"

#include "models/arch/labels.h"
#include "models/gguf/gguf_family.h"
#include "models/names.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FARTHEST 128 /* the only limit of distances in llama.cpp */
#define HEAD "lm_head.weight"
#define TABLE "shared.weight"
#define BIAS_TABLE ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"

/* ---- Configuration ----------------------------------------------------------------------------------- */

static const char *const dense_names[TX_T5_DENSE_KINDS] = {
    [TX_T5_RELU] = "relu",
    [TX_T5_GELU] = "gelu",
    [TX_T5_GELU_NEW] = "gelu_new",
    [TX_T5_SILU] = "silu",
    [TX_T5_GATED_GELU] = "gated-gelu", /* with the tanh form, as published models were trained */
    [TX_T5_GATED_GELU_NEW] = "gated-gelu_new",
    [TX_T5_GATED_SILU] = "gated-silu"};

#define KEY(name, field) #name, offsetof(tx_t5_config, field)
#define SIZE(name, field, most)                                    \
    {                                                              \
        KEY(name, field), TX_KEY_INT, .min = 1, .max = 1 << (most) \
    }
#define TOKEN(name, field)                                                         \
    {                                                                              \
        KEY(name, field), TX_KEY_INT_OR_NULL, .min = 0, .max = 1 << 30, .null = -1 \
    }
#define KEYS                                                                                                          \
    SIZE(vocab_size, base.vocab_size, 30), SIZE(d_model, base.width, 20), SIZE(d_kv, d_kv, 16), SIZE(d_ff, d_ff, 22), \
        SIZE(num_layers, num_layers, 11), SIZE(num_heads, base.heads, 16),                                            \
        {KEY(num_decoder_layers, num_decoder_layers), TX_KEY_INT_OR_NULL, .min = 1, .max = 1 << 11},                  \
        {KEY(relative_attention_num_buckets, buckets), TX_KEY_INT, .min = 4, .max = 1 << 20},                         \
        {KEY(relative_attention_max_distance, farthest), TX_KEY_INT, .min = 1, .max = 1 << 24},                       \
        {KEY(feed_forward_proj, dense), TX_KEY_CHOICE, .max = TX_T5_DENSE_KINDS - 1, .words = dense_names},           \
        {KEY(dropout_rate, dropout_rate), TX_KEY_NUMBER, .max = 0.999},                                               \
        {KEY(layer_norm_epsilon, layer_norm_epsilon), TX_KEY_NUMBER, .min = 1e-12, .max = 1},                         \
        {KEY(initializer_factor, initializer_factor), TX_KEY_NUMBER, .max = 1e3},                                     \
        {KEY(tie_word_embeddings, tie_word_embeddings), TX_KEY_BOOL, .min = 0},                                       \
        TOKEN(bos_token_id, base.bos_token_id), TOKEN(eos_token_id, base.eos_token_id),                               \
        TOKEN(pad_token_id, pad_token_id), TOKEN(decoder_start_token_id, decoder_start_token_id)

static const tx_config_key t5_keys[] = {
    KEYS, {KEY(scale_decoder_outputs, scale_decoder_outputs), TX_KEY_BOOL, .min = 0}, {.name = NULL}};
static const tx_config_key mt5_keys[] = {KEYS, {.name = NULL}};
static const tx_fixed_key fixed[] = {
    {"is_encoder_decoder", "true", "an encoder without a decoder is not implemented"},
    {"is_decoder", "false", "a decoder without an encoder is not implemented"},
    {.name = NULL},
};

/* transformers writes tie_word_embeddings as true, whatever the model has. A T5 whose outputs are not scaled, and each
 * mT5, has an output head of its own, unless its files lack it (settle). */
static tx_status read_rest(const tx_json *json, tx_config *config)
{
    tx_t5_config *c = (tx_t5_config *)config;
    if (tx_json_find(json, "tie_word_embeddings") && !tx_json_find(json, "scale_decoder_outputs"))
        c->scale_decoder_outputs = c->tie_word_embeddings && !c->never_scales;
    c->untied = !c->scale_decoder_outputs || !c->tie_word_embeddings;
    c->gated = c->dense >= TX_T5_GATED_GELU;
    config->layers = c->num_layers + (c->num_decoder_layers ? c->num_decoder_layers : c->num_layers);
    return TX_OK;
}

static tx_status check(const tx_config *config)
{
    const tx_t5_config *c = tx_t5_of(config);
    if (c->farthest <= c->buckets / 2)
        return tx_fail(TX_INVALID,
                       "relative_attention_max_distance: %" PRId64
                       " must be more than half of relative_attention_num_buckets, %" PRId64,
                       c->farthest, c->buckets);
    return tx_t5_begin(config) < config->vocab_size
               ? TX_OK
               : tx_fail(TX_INVALID, "decoder_start_token_id: %" PRId64 " is not in the vocabulary of %" PRId64,
                         tx_t5_begin(config), config->vocab_size);
}

int64_t tx_t5_begin(const tx_config *config)
{
    const tx_t5_config *c = tx_t5_of(config);
    return c->decoder_start_token_id >= 0 ? c->decoder_start_token_id : c->pad_token_id >= 0 ? c->pad_token_id : 0;
}

/* ---- Parameters -------------------------------------------------------------------------------------- */

enum { VOCAB = TX_EXTENT_VOCAB, WIDTH = TX_EXTENT_WIDTH, INNER = TX_EXTENT_OWN, TWO_INNER, FF, TWO_FF, BUCKETS, HEADS };
static bool in_encoder(const tx_config *config, int64_t block)
{
    return block < tx_t5_of(config)->num_layers;
}

#define ENCODER "encoder.block.%d.layer."
#define DECODER "decoder.block.%d.layer."
#define IN_ENCODER .in = in_encoder
#define IN_DECODER .first = offsetof(tx_t5_config, num_layers)
#define ATTENTION_ROWS(slot, norm, name, ...)                                     \
    {slot, norm "layer_norm.weight", {WIDTH}, .init = TX_STACK_ONE, __VA_ARGS__}, \
        {slot + 1, norm name "q.weight", {INNER, WIDTH}, __VA_ARGS__},            \
        {slot + 2, norm name "k|v.weight", {TWO_INNER, WIDTH}, __VA_ARGS__},      \
    {                                                                             \
        slot + 3, norm name "o.weight", {WIDTH, INNER}, __VA_ARGS__               \
    }
#define DENSE_ROWS(name, ...)                                                              \
    {TX_T5_FF_NORM, name "layer_norm.weight", {WIDTH}, .init = TX_STACK_ONE, __VA_ARGS__}, \
        {TX_T5_FF_IN,                                                                      \
         name "DenseReluDense.wi.weight",                                                  \
         {FF, WIDTH},                                                                      \
         .without = offsetof(tx_t5_config, gated),                                         \
         __VA_ARGS__},                                                                     \
        {TX_T5_FF_IN,                                                                      \
         name "DenseReluDense.wi_0|wi_1.weight",                                           \
         {TWO_FF, WIDTH},                                                                  \
         .with = offsetof(tx_t5_config, gated),                                            \
         __VA_ARGS__},                                                                     \
    {                                                                                      \
        TX_T5_FF_OUT, name "DenseReluDense.wo.weight", {WIDTH, FF}, __VA_ARGS__            \
    }
#define BIAS_ROW(slot, side)                                         \
    {                                                                \
        slot, side BIAS_TABLE, {BUCKETS, HEADS}, .other_decay = true \
    }

const tx_stack_row tx_t5_rows[] = {
    {TX_T5_EMBED, TABLE, {VOCAB, WIDTH}, .init = TX_STACK_NORMAL},
    BIAS_ROW(TX_T5_ENCODER_BIAS, "encoder"),
    BIAS_ROW(TX_T5_DECODER_BIAS, "decoder"),
    ATTENTION_ROWS(TX_T5_SELF_NORM, ENCODER "0.", "SelfAttention.", IN_ENCODER),
    DENSE_ROWS(ENCODER "1.", IN_ENCODER),
    ATTENTION_ROWS(TX_T5_SELF_NORM, DECODER "0.", "SelfAttention.", IN_DECODER),
    ATTENTION_ROWS(TX_T5_CROSS_NORM, DECODER "1.", "EncDecAttention.", IN_DECODER),
    DENSE_ROWS(DECODER "2.", IN_DECODER),
    {TX_T5_ENCODER_NORM, "encoder.final_layer_norm.weight", {WIDTH}, .init = TX_STACK_ONE},
    {TX_T5_DECODER_NORM, "decoder.final_layer_norm.weight", {WIDTH}, .init = TX_STACK_ONE},
    {TX_T5_LM_HEAD, HEAD, {VOCAB, WIDTH}, .with = offsetof(tx_t5_config, untied)},
    {.name = NULL},
};

static int64_t extent_of(const tx_config *config, int64_t block, int32_t extent, int32_t dimension,
                         tx_param_sections *sections)
{
    (void)block;
    const tx_t5_config *c = tx_t5_of(config);
    const int64_t inner = config->heads * c->d_kv, half = extent == TWO_FF ? c->d_ff : inner;
    if (extent == TWO_INNER || extent == TWO_FF)
        *sections = (tx_param_sections){2, dimension, {half, half}, {0}};
    return extent == INNER     ? inner
           : extent == FF      ? c->d_ff
           : extent == BUCKETS ? c->buckets
           : extent == HEADS   ? config->heads
                               : 2 * half;
}

static int32_t params(const tx_config *config)
{
    return tx_stack_params(config, tx_t5_rows);
}

/* Matrices are initialized as in transformers, for products without a scale: by the number of their inputs. Tables of
 * tokens use only the factor. */
static tx_status param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    const tx_t5_config *c = tx_t5_of(config);
    tx_stack_param(config, tx_t5_rows, extent_of, c->initializer_factor, index, name, spec);
    spec->tied = index == 0 && !c->untied;
    if (spec->shape.rank == 2 && !spec->logical.rank)
        spec->scale /= sqrtf((float)(spec->block > 0 ? spec->shape.dim[1] : config->width));
    if (tx_ends_with(name, ".q.weight"))
        spec->scale /= sqrtf((float)c->d_kv);
    return TX_OK;
}

/* As transformers counts them: the tables, without the output head. */
static int64_t embeddings(const tx_config *config)
{
    return config->vocab_size * config->width + 2 * tx_t5_of(config)->buckets * config->heads;
}

/* ---- Files ------------------------------------------------------------------------------------------- */

/* Files may repeat the table of tokens, and old ones have a table of biases that is not used. */
static void rename_tensor(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const bool unused = tx_ends_with(tensor, ".embed_tokens.weight") ||
                        tx_ends_with(tensor, "EncDecAttention.relative_attention_bias.weight") ||
                        (strcmp(tensor, HEAD) == 0 && !tx_t5_of(config)->untied);
    snprintf(param, TX_WEIGHTS_NAME, "%s", unused ? "" : tensor);
}

static void settle(tx_config *config, const tx_weights *weights)
{
    tx_t5_config *c = (tx_t5_config *)config;
    c->untied = c->untied && (!c->tie_word_embeddings || tx_weights_find(weights, NULL, HEAD) >= 0);
}

static tx_status check_ties(const tx_config *config, const tx_weights *weights)
{
    TX_TRY(tx_arch_check_tied(weights, "encoder.embed_tokens.weight", TABLE));
    TX_TRY(tx_arch_check_tied(weights, "decoder.embed_tokens.weight", TABLE));
    return tx_t5_of(config)->untied ? TX_OK : tx_arch_check_tied(weights, HEAD, TABLE);
}

#define DEFAULTS(row, vocab, inner, depth, count, kind)                                                  \
    .base = {.architecture = &(row),                                                                     \
             .vocab_size = (vocab),                                                                      \
             .positions = 1 << 24,                                                                       \
             .width = 512,                                                                               \
             .layers = 2 * (depth),                                                                      \
             .heads = (count),                                                                           \
             .labels = TX_LABELS_DEFAULT,                                                                \
             .bos_token_id = -1,                                                                         \
             .eos_token_id = 1},                                                                         \
    .d_kv = 64, .d_ff = (inner), .num_layers = (depth), .buckets = 32, .farthest = 128, .dense = (kind), \
    .dropout_rate = 0.1, .layer_norm_epsilon = 1e-6, .initializer_factor = 1, .tie_word_embeddings = true
static const tx_t5_config t5 = {DEFAULTS(tx_t5, 32128, 2048, 6, 8, TX_T5_RELU), .scale_decoder_outputs = true};
static const tx_t5_config mt5 = {DEFAULTS(tx_mt5, 250112, 1024, 8, 6, TX_T5_GATED_GELU), .never_scales = true,
                                 .untied = true, .gated = true};

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

static const tx_stack_row *rows_of(const tx_config *config)
{
    (void)config;
    return tx_t5_rows;
}

#define NAME(row_slot, text, ...)                               \
    {                                                           \
        .slot = (row_slot), .name = text ".weight", __VA_ARGS__ \
    }
#define SELF_NAMES(side, ...)                                                                                     \
    NAME(TX_T5_SELF_NORM, side "attn_norm", __VA_ARGS__), NAME(TX_T5_SELF_NORM + 1, side "attn_q", __VA_ARGS__),  \
        NAME(TX_T5_SELF_NORM + 2, side "attn_k|attn_v", __VA_ARGS__),                                             \
        NAME(TX_T5_SELF_NORM + 3, side "attn_o", __VA_ARGS__), NAME(TX_T5_FF_NORM, side "ffn_norm", __VA_ARGS__), \
        NAME(TX_T5_FF_IN, side "ffn_up", __VA_ARGS__), NAME(TX_T5_FF_IN, side "ffn_gate|ffn_up", __VA_ARGS__),    \
        NAME(TX_T5_FF_OUT, side "ffn_down", __VA_ARGS__)
#define CROSS "dec.blk.%d.cross_attn_"
static const tx_gguf_name gguf_names[] = {
    NAME(TX_T5_EMBED, "token_embd", .first = 0),
    NAME(TX_T5_ENCODER_NORM, "enc.output_norm", .first = 0),
    NAME(TX_T5_DECODER_NORM, "dec.output_norm", .first = 0),
    NAME(TX_T5_LM_HEAD, "output", .first = 0),
    NAME(TX_T5_ENCODER_BIAS, "enc.blk.0.attn_rel_b", .first = 0),
    NAME(TX_T5_DECODER_BIAS, "dec.blk.0.attn_rel_b", .first = 0),
    SELF_NAMES("enc.blk.%d.", .first = 0),
    SELF_NAMES("dec.blk.%d.", IN_DECODER),
    NAME(TX_T5_CROSS_NORM, CROSS "norm", IN_DECODER),
    NAME(TX_T5_CROSS_NORM + 1, CROSS "q", IN_DECODER),
    NAME(TX_T5_CROSS_NORM + 2, "dec.blk.%d.cross_attn_k|cross_attn_v", IN_DECODER),
    NAME(TX_T5_CROSS_NORM + 3, CROSS "o", IN_DECODER),
    {.name = NULL},
};
#define COUNT(key, field) TX_GGUF_MEMBER(key, offsetof(tx_t5_config, field), INT, NOTHING)
#define EPSILON(key) TX_GGUF_MEMBER(key, offsetof(tx_t5_config, layer_norm_epsilon), NUMBER, NOTHING)
static const tx_gguf_key gguf_keys[] = {
    {.key = "context_length", .name = "n_positions", .otherwise = TX_GGUF_CONSTANT, .constant = 512},
    COUNT("embedding_length", base.width),
    COUNT("block_count", num_layers),
    COUNT("decoder_block_count", num_decoder_layers),
    COUNT("feed_forward_length", d_ff),
    COUNT(TX_GGUF_HEAD_COUNT, base.heads),
    COUNT("attention.key_length", d_kv),
    COUNT("attention.value_length", d_kv),
    EPSILON("attention.layer_norm_epsilon"),
    EPSILON("attention.layer_norm_rms_epsilon"),
    COUNT("attention.relative_buckets_count", buckets),
    COUNT("decoder_start_token_id", decoder_start_token_id),
    {.key = NULL},
};
static const tx_gguf_scheme scheme = {.rows = rows_of, .names = gguf_names, .keys = gguf_keys};

/* llama.cpp derives the activation from the tensors, and does not scale the states before a tied output head. */
static tx_status check_settings(const tx_gguf_exported *e)
{
    const tx_t5_config *c = tx_t5_of(e->config);
    if (c->dense != TX_T5_RELU && c->dense != TX_T5_GATED_GELU && c->dense != TX_T5_GATED_GELU_NEW)
        return tx_fail(TX_UNSUPPORTED, "feed_forward_proj: llama.cpp computes only relu and gated-gelu");
    if (c->farthest != FARTHEST)
        return tx_fail(TX_UNSUPPORTED, "relative_attention_max_distance: llama.cpp computes as if it were %d",
                       FARTHEST);
    if (c->num_decoder_layers > c->num_layers)
        return tx_fail(TX_UNSUPPORTED, "num_decoder_layers: llama.cpp reads at most as many as num_layers, %" PRId64,
                       c->num_layers);
    if (c->scale_decoder_outputs != !c->untied)
        return tx_fail(TX_UNSUPPORTED, "scale_decoder_outputs: must be true if and only if tie_word_embeddings is");
    if (!c->untied)
        tx_reporter_print(e->report, "tie_word_embeddings: llama.cpp's logits are %g times as large",
                          sqrt((double)e->config->width));
    return TX_OK;
}

/* T5 with ReLU, or T5 1.1 and later. */
static tx_status read_dense(const tx_gguf_file *file, tx_json *json)
{
    const bool gated = tx_gguf_find(file, "enc.blk.0.ffn_gate.weight") >= 0;
    return tx_json_set_string(json, "feed_forward_proj", gated ? "gated-gelu" : "relu");
}

static const tx_gguf_family t5_gguf = {
    .architecture = "t5", .scheme = &scheme, .check = check_settings, .read = read_dense};
static const tx_gguf_family mt5_gguf = {
    .architecture = "t5", .scheme = &scheme, .export_only = true, .check = check_settings};

#define ROW(name, CLASS, start, list)                                                  \
    const tx_architecture tx_##name = {.type = #name,                                  \
                                       .class_name = CLASS "ForConditionalGeneration", \
                                       .head = TX_HEAD_SEQ2SEQ,                        \
                                       .config_bytes = sizeof(tx_t5_config),           \
                                       .defaults = &(start).base,                      \
                                       .keys = (list),                                 \
                                       .fixed = fixed,                                 \
                                       .read = read_rest,                              \
                                       .check = check,                                 \
                                       .params = params,                               \
                                       .param = param,                                 \
                                       .embeddings = embeddings,                       \
                                       .logits = tx_t5_logits,                         \
                                       .lora_targets = "q,v",                          \
                                       .rename = rename_tensor,                        \
                                       .settle = settle,                               \
                                       .gguf = &name##_gguf,                           \
                                       .check_weights = check_ties}
ROW(t5, "T5", t5, t5_keys);
ROW(mt5, "MT5", mt5, mt5_keys);
