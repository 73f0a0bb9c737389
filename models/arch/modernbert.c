/* SPDX-License-Identifier: Apache-2.0
 *
 * ModernBERT (Warner et al., Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder, 2024): pre-norm blocks
 * without biases, rotary positions, gated feed-forward layers, and layers that see only near positions between layers
 * that see all. */
#include "models/arch/bert_stack.h"
#include "models/arch/labels.h"

#include <inttypes.h>
#include <string.h>

#define MODEL "model."
#define LAYER "layers.%d."

static const tx_bert_config *of(const tx_config *config)
{
    return (const tx_bert_config *)config;
}

/* ---- Configuration ------------------------------------------------------------------------------------- */

static const char *const poolings[] = {"cls", "mean"};

#define THETA(name)                                                                        \
    {                                                                                      \
        TX_BERT_KEY(name##_rope_theta, name##_theta), TX_KEY_NUMBER, .min = 1, .max = 1e12 \
    }
static const tx_config_key keys[] = {
    TX_BERT_COMMON_KEYS,
    TX_BERT_SIZE(hidden_size, base.width, 20),
    TX_BERT_SIZE(intermediate_size, intermediate_size, 22),
    TX_BERT_SIZE(num_hidden_layers, base.layers, 12),
    TX_BERT_SIZE(num_attention_heads, base.heads, 20),
    TX_BERT_SIZE(local_attention, local, 24),
    TX_BERT_SIZE(global_attn_every_n_layers, every, 12),
    TX_BERT_ACT_KEY(hidden_activation),
    {TX_BERT_KEY(classifier_activation, head_act), TX_KEY_CHOICE, .max = TX_BERT_ACTS - 1, .words = tx_bert_acts},
    THETA(global),
    THETA(local),
    {TX_BERT_KEY(norm_eps, layer_norm_eps), TX_KEY_NUMBER, .min = 1e-12, .max = 1},
    {TX_BERT_KEY(classifier_pooling, pooling), TX_KEY_CHOICE, .max = 1, .words = poolings},
    TX_BERT_RATE(embedding_dropout, hidden_dropout_prob),
    TX_BERT_RATE(attention_dropout, attention_probs_dropout_prob),
    TX_BERT_RATE(mlp_dropout, mlp_dropout),
    TX_BERT_RATE(classifier_dropout, classifier_dropout),
    {.name = NULL}};

static const tx_fixed_key fixed[] = {
    {"attention_bias", "false", "biases of attention are not implemented"},
    {"mlp_bias", "false", "biases of feed-forward layers are not implemented"},
    {"norm_bias", "false", "biases of norms are not implemented"},
    {"classifier_bias", "false", "a bias of the head's dense layer is not implemented"},
    {"decoder_bias", "true", "a decoder without bias is not implemented"},
    {"tie_word_embeddings", "true", "an untied decoder is not implemented"},
    {.name = NULL}};

/* Reads rope_parameters of transformers 5 for one type of layers. */
static tx_status read_rope(const tx_json *json, const char *type, double *theta)
{
    const char *kind = "default";
    const tx_json *both = tx_json_find(json, "rope_parameters"), *one = both ? tx_json_find(both, type) : NULL;
    if (!one)
        return TX_OK;
    TX_TRY(TX_JSON_OPTIONAL(string, one, "rope_type", &kind));
    if (strcmp(kind, "default") != 0)
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: rope_type: \"%.40s\" is not implemented", kind);
    return TX_JSON_OPTIONAL(number, one, "rope_theta", 1, 1e12, theta);
}

/* Reads layer_types of transformers 5, which must repeat as global_attn_every_n_layers does. */
static tx_status read_types(const tx_json *json, tx_bert_config *c)
{
    tx_json *list;
    const int64_t layers = c->base.layers;
    if (!tx_json_has(json, "layer_types"))
        return TX_OK;
    TX_TRY(tx_json_get(json, "layer_types", TX_JSON_ARRAY, &list));
    if ((int64_t)tx_json_size(list) != layers)
        return tx_fail(TX_INVALID, "layer_types: %zu types for %" PRId64 " layers", tx_json_size(list), layers);
    c->every = layers;
    for (int64_t i = 0; i < layers; i++) {
        const char *type;
        TX_TRY(tx_json_as_string(tx_json_at(list, (size_t)i), "layer_types", &type));
        const bool all = strcmp(type, "full_attention") == 0;
        if (all && i > 0 && c->every == layers)
            c->every = i;
        if (all != (i % c->every == 0) || (!all && strcmp(type, "sliding_attention") != 0))
            return tx_fail(TX_UNSUPPORTED, "layer_types: only full_attention in every n-th layer is implemented");
    }
    return TX_OK;
}

static tx_status read_rest(const tx_json *json, tx_config *config)
{
    tx_bert_config *c = (tx_bert_config *)config;
    c->qa_dropout = c->classifier_dropout;
    TX_TRY(read_types(json, c));
    TX_TRY(read_rope(json, "full_attention", &c->global_theta));
    TX_TRY(read_rope(json, "sliding_attention", &c->local_theta));
    if (config->width % (2 * config->heads) != 0 || config->width / config->heads > TX_MAX_ROTARY)
        return tx_fail(TX_INVALID,
                       "hidden_size: %" PRId64 " does not divide into %" PRId64 " heads of an even size up to %d",
                       config->width, config->heads, TX_MAX_ROTARY);
    return tx_bert_read_rest(json, config);
}

/* ---- Parameters ---------------------------------------------------------------------------------------- */

static bool is_later(const tx_config *config, int64_t block)
{
    (void)config;
    return block > 0;
}

#define MATRIX(slot, name, out, in_)                                        \
    {                                                                       \
        TX_BERT_##slot, name ".weight", {out, in_}, .init = TX_STACK_NORMAL \
    }
#define NORM(slot, name, ...)                                                                \
    {                                                                                        \
        TX_BERT_##slot, name ".weight", {TX_EXTENT_WIDTH}, .init = TX_STACK_ONE, __VA_ARGS__ \
    }
#define ENCODER(prefix)                                                                       \
    MATRIX(WORD_TABLE, prefix "embeddings.tok_embeddings", TX_EXTENT_VOCAB, TX_EXTENT_WIDTH), \
        NORM(EMBED_NORM, prefix "embeddings.norm", .in = NULL),                               \
        NORM(ATTN_NORM, prefix LAYER "attn_norm", .in = is_later),                            \
        MATRIX(QKV_PROJ, prefix LAYER "attn.Wqkv", TX_BERT_QKV, TX_EXTENT_WIDTH),             \
        MATRIX(O_PROJ, prefix LAYER "attn.Wo", TX_EXTENT_WIDTH, TX_EXTENT_WIDTH),             \
        NORM(MLP_NORM, prefix LAYER "mlp_norm", .in = NULL),                                  \
        MATRIX(UP_PROJ, prefix LAYER "mlp.Wi", TX_BERT_GATED, TX_EXTENT_WIDTH),               \
        MATRIX(DOWN_PROJ, prefix LAYER "mlp.Wo", TX_EXTENT_WIDTH, TX_BERT_INNER),             \
        NORM(FINAL_NORM, prefix "final_norm", .in = NULL)
#define HEAD \
    MATRIX(HEAD_DENSE, "head.dense", TX_EXTENT_WIDTH, TX_EXTENT_WIDTH), NORM(HEAD_NORM, "head.norm", .in = NULL)
#define CLASSIFIER(count)                                                                            \
    {                                                                                                \
        ENCODER(MODEL), HEAD, TX_BERT_LINEAR(HEAD_OUT, "classifier.", count, TX_EXTENT_WIDTH, 0, 0), \
        {                                                                                            \
            .name = NULL                                                                             \
        }                                                                                            \
    }

static const tx_stack_row masked[] = {ENCODER(MODEL),
                                      HEAD,
                                      {TX_BERT_HEAD_BIAS, "decoder.bias", {TX_EXTENT_VOCAB}, .init = TX_STACK_ZERO},
                                      {.name = NULL}};
static const tx_stack_row labels[] = CLASSIFIER(TX_BERT_LABELS);
static const tx_stack_row choices[] = CLASSIFIER(TX_BERT_ONE);
static const tx_stack_row answers[] = CLASSIFIER(TX_BERT_TWO);
static const tx_stack_row base[] = {ENCODER(""), {.name = NULL}};

/* ---- Graph --------------------------------------------------------------------------------------------- */

/* Masks positions that a local layer does not see. */
static int32_t near_row(const tx_config *config, int64_t distance)
{
    const int64_t most = of(config)->local / 2;
    return distance > most || distance < -most ? -1 : 0;
}

/* The table of local layers, or NULL if all positions are near. */
static tx_tensor *local_table(tx_stack *s)
{
    if (tx_tensor_shape(s->tokens)->dim[1] <= of(s->config)->local / 2 + 1)
        return NULL;
    return tx_fill(s->graph, TX_SHAPE(1, s->config->heads), 0.0f);
}

static tx_tensor *attention(tx_stack *s, tx_tensor *x, int64_t layer)
{
    const tx_bert_config *c = of(s->config);
    const bool local = layer % c->every != 0;
    const int32_t heads = (int32_t)c->base.heads;
    const double dropout = c->attention_probs_dropout_prob;
    const tx_rope rope = TX_ROPE((float)(local ? c->local_theta : c->global_theta));
    tx_attention_options options = {.heads = heads, .kv_heads = heads};
    x = tx_bert_linear(s, x, TX_BERT_QKV_PROJ);
    x = tx_rotary(x, 2 * heads, (int32_t)(c->base.width / heads), &rope, NULL, NULL);
    const tx_relative_options relative = {.heads = heads, .scores = s->scores, .dropout = dropout};
    x = local && s->scores ? tx_relative_attention(s, x, NULL, NULL, &relative)
                           : tx_stack_attention(s, x, layer, &options, dropout);
    return tx_stack_dropout(s, tx_bert_linear(s, x, TX_BERT_O_PROJ), dropout);
}

/* activation(first half) * second half, of x [B, T, 2 F]. */
static tx_tensor *gated(const tx_stack *s, tx_tensor *x)
{
    if (!x)
        return NULL;
    const tx_shape *shape = tx_tensor_shape(x);
    const int64_t rows = shape->dim[0] * shape->dim[1], inner = shape->dim[2] / 2;
    const tx_shape half = TX_SHAPE(shape->dim[0], shape->dim[1], inner);
    x = tx_reshape(tx_transpose(tx_reshape(x, TX_SHAPE(rows, 2, inner))), TX_SHAPE(2, rows * inner));
    tx_tensor *in = tx_gather(x, tx_range(s->graph, TX_SHAPE(1), 0, 1)),
              *gate = tx_gather(x, tx_range(s->graph, TX_SHAPE(1), 1, 1));
    return tx_mul(tx_bert_activate(of(s->config)->hidden_act, tx_reshape(in, half)), tx_reshape(gate, half));
}

static tx_tensor *block(tx_stack *s, tx_tensor *x, int64_t layer)
{
    tx_tensor *h = tx_stack_has(s, TX_BERT_ATTN_NORM) ? tx_bert_norm(s, x, TX_BERT_ATTN_NORM) : x;
    x = tx_add(x, attention(s, h, layer));
    h = gated(s, tx_bert_linear(s, tx_bert_norm(s, x, TX_BERT_MLP_NORM), TX_BERT_UP_PROJ));
    return tx_add(x, tx_bert_linear(s, tx_stack_dropout(s, h, of(s->config)->mlp_dropout), TX_BERT_DOWN_PROJ));
}

/* The first position or the mean of a row's positions: x [B, T, C] -> [B, C]. */
static tx_tensor *pool(tx_stack *s, tx_tensor *x)
{
    const tx_shape *shape = tx_tensor_shape(x);
    const int64_t rows = shape->dim[0], t = shape->dim[1], width = shape->dim[2];
    if (of(s->config)->pooling == 0)
        return tx_bert_first_of(s, x);
    tx_tensor *used = tx_relative_used(s), *count = tx_reduce(used, TX_REDUCE_SUM, TX_AXIS_LAST);
    tx_tensor *sum =
        tx_reshape(tx_matmul(tx_reshape(used, TX_SHAPE(rows, 1, t)), x, false, false), TX_SHAPE(rows, width));
    tx_tensor *one = tx_rsqrt(count); /* 1 / count = (1 / sqrt(count))^2 */
    return tx_mul(sum, tx_broadcast(tx_mul(one, one), TX_SHAPE(rows, width), TX_AXIS_LAST));
}

/* ---- The architectures --------------------------------------------------------------------------------- */

static const tx_bert_kind modernbert = {.same_head = true,
                                        .bucket = near_row,
                                        .table = local_table,
                                        .block = block,
                                        .pool = pool,
                                        .prefix = MODEL,
                                        .heads = TX_BERT_NAMES("head.", "decoder.", "classifier."),
                                        TX_BERT_HEADS(masked, labels, labels, choices, answers, base),
                                        .ties = {{"decoder.weight", MODEL "embeddings.tok_embeddings.weight"}}};

static const tx_bert_config defaults = {
    TX_BERT_SIZES(tx_modernbert_masked_lm, modernbert, 50368, 768, 768, 22, 12, 1152, 0, 1e-5, 50281, 50282),
    .max_position_embeddings = 8192,
    .pad_token_id = 50283,
    .every = 3,
    .local = 128,
    .global_theta = 160000,
    .local_theta = 10000};

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

#define TENSOR(slot, name) TX_GGUF_NAME(TX_BERT_##slot, name ".weight")
static const tx_gguf_name gguf_names[] = {
    TENSOR(WORD_TABLE, "token_embd"),      TENSOR(EMBED_NORM, "token_embd_norm"),
    TENSOR(ATTN_NORM, "blk.%d.attn_norm"), TENSOR(QKV_PROJ, "blk.%d.attn_qkv"),
    TENSOR(O_PROJ, "blk.%d.attn_output"),  TENSOR(MLP_NORM, "blk.%d.ffn_norm"),
    TENSOR(UP_PROJ, "blk.%d.ffn_up"),      TENSOR(DOWN_PROJ, "blk.%d.ffn_down"),
    TENSOR(FINAL_NORM, "output_norm"),     {.name = NULL},
};
static const tx_gguf_key gguf_keys[] = {
    TX_BERT_GGUF_KEYS,
    TX_BERT_GGUF_KEY(TX_GGUF_WINDOW, local, INT),
    TX_BERT_GGUF_KEY(TX_GGUF_WINDOWS, every, INT),
    TX_BERT_GGUF_KEY("rope.freq_base", global_theta, NUMBER),
    TX_BERT_GGUF_KEY("rope.freq_base_swa", local_theta, NUMBER),
    TX_GGUF_NAMED("hidden_activation", "hidden_activation", WORD),
    {.key = NULL},
};
static const tx_gguf_scheme scheme = {.rows = tx_bert_rows, .names = gguf_names, .keys = gguf_keys, .encoder = true};

/* Only the activation and the period of layers without a window have the same defaults in llama.cpp and config.json. */
static tx_status check_complete(const tx_gguf_file *file, tx_json *json)
{
    static const char *const needed[] = {"attention.layer_norm_epsilon", TX_GGUF_WINDOW, "rope.freq_base",
                                         "rope.freq_base_swa"};
    char key[TX_GGUF_KEY_ROOM];
    (void)json;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (!tx_gguf_has(file, tx_gguf_key_of(key, "modern-bert", needed[i])))
            return tx_fail(TX_FORMAT, "has no %s", key);
    return TX_OK;
}

static const tx_gguf_family gguf = {
    .architecture = "modern-bert", .scheme = &scheme, .gelu = "hidden_activation", .read = check_complete};

TX_BERT_FAMILY_OF(tx_modernbert, "ModernBert", "classifier", .type = "modernbert", .defaults = &defaults.base,
                  .keys = keys, .fixed = fixed, .read = read_rest, .gguf = &gguf);
