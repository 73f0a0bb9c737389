/* SPDX-License-Identifier: Apache-2.0
 *
 * ModernBERT (Warner et al., Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder, 2024): pre-norm blocks
 * without biases, rotary positions, gated feed-forward layers, and layers that see only near positions between layers
 * that see all. */
#include "models/arch/modernbert.h"

#include "models/arch/bert_stack.h"
#include "models/arch/labels.h"
#include "models/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MODEL "model."

typedef struct modernbert_config {
    tx_config base;
    int64_t intermediate_size, pad_token_id;
    int64_t every, local; /* each `every`-th layer sees all positions; the others see `local` / 2 on each side */
    int32_t activation, classifier_activation, pooling;
    double global_theta, local_theta, norm_eps, initializer_range;
    double embedding_dropout, attention_dropout, mlp_dropout, classifier_dropout;
} modernbert_config;

static const modernbert_config *of(const tx_config *config)
{
    return (const modernbert_config *)config;
}

/* ---- Configuration ------------------------------------------------------------------------------------- */

static const char *const poolings[] = {"cls", "mean"};

#define KEY(name, field) #name, offsetof(modernbert_config, field)
#define SIZE(name, field, most)                                    \
    {                                                              \
        KEY(name, field), TX_KEY_INT, .min = 1, .max = 1 << (most) \
    }
#define ID(name, field)                                                  \
    {                                                                    \
        KEY(name, field), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1 \
    }
#define RATE(name, field)                             \
    {                                                 \
        KEY(name, field), TX_KEY_NUMBER, .max = 0.999 \
    }
#define ACT(name, field)                                                                \
    {                                                                                   \
        KEY(name, field), TX_KEY_CHOICE, .max = TX_BERT_ACTS - 1, .words = tx_bert_acts \
    }
static const tx_config_key keys[] = {SIZE(vocab_size, base.vocab_size, 30),
                                     SIZE(hidden_size, base.width, 20),
                                     SIZE(intermediate_size, intermediate_size, 22),
                                     SIZE(num_hidden_layers, base.layers, 12),
                                     SIZE(num_attention_heads, base.heads, 20),
                                     SIZE(max_position_embeddings, base.positions, 24),
                                     SIZE(local_attention, local, 24),
                                     SIZE(global_attn_every_n_layers, every, 12),
                                     ID(bos_token_id, base.bos_token_id),
                                     ID(eos_token_id, base.eos_token_id),
                                     ID(pad_token_id, pad_token_id),
                                     ACT(hidden_activation, activation),
                                     ACT(classifier_activation, classifier_activation),
                                     {KEY(global_rope_theta, global_theta), TX_KEY_NUMBER, .min = 1, .max = 1e12},
                                     {KEY(local_rope_theta, local_theta), TX_KEY_NUMBER, .min = 1, .max = 1e12},
                                     {KEY(norm_eps, norm_eps), TX_KEY_NUMBER, .min = 1e-12, .max = 1},
                                     {KEY(initializer_range, initializer_range), TX_KEY_NUMBER, .max = 10},
                                     {KEY(classifier_pooling, pooling), TX_KEY_CHOICE, .max = 1, .words = poolings},
                                     RATE(embedding_dropout, embedding_dropout),
                                     RATE(attention_dropout, attention_dropout),
                                     RATE(mlp_dropout, mlp_dropout),
                                     RATE(classifier_dropout, classifier_dropout),
                                     {.name = NULL}};

static const tx_fixed_key fixed[] = {{"attention_bias", false, "biases of attention are not implemented"},
                                     {"mlp_bias", false, "biases of feed-forward layers are not implemented"},
                                     {"norm_bias", false, "biases of norms are not implemented"},
                                     {"classifier_bias", false, "a bias of the head's dense layer is not implemented"},
                                     {"decoder_bias", true, "a decoder without bias is not implemented"},
                                     {"tie_word_embeddings", true, "an untied decoder is not implemented"},
                                     {.name = NULL}};

/* Reads rope_parameters of transformers 5 for one type of layers. */
static tx_status read_rope(const tx_json *json, const char *type, double *theta)
{
    tx_json *both, *one;
    const char *kind = "default";
    if (!tx_json_has(json, "rope_parameters"))
        return TX_OK;
    TX_TRY(tx_json_get(json, "rope_parameters", TX_JSON_OBJECT, &both));
    if (!tx_json_has(both, type))
        return TX_OK;
    TX_TRY(tx_json_get(both, type, TX_JSON_OBJECT, &one));
    TX_TRY(TX_JSON_OPTIONAL(string, one, "rope_type", &kind));
    if (strcmp(kind, "default") != 0)
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: rope_type: \"%.40s\" is not implemented", kind);
    return TX_JSON_OPTIONAL(number, one, "rope_theta", 1, 1e12, theta);
}

/* Reads layer_types of transformers 5, which must repeat as global_attn_every_n_layers does. */
static tx_status read_types(const tx_json *json, modernbert_config *c)
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
    modernbert_config *c = (modernbert_config *)config;
    TX_TRY(read_types(json, c));
    TX_TRY(read_rope(json, "full_attention", &c->global_theta));
    TX_TRY(read_rope(json, "sliding_attention", &c->local_theta));
    return tx_labels_read(json, config);
}

static tx_status check(const tx_config *config)
{
    if (config->width % (2 * config->heads) != 0 || config->width / config->heads > TX_MAX_ROTARY)
        return tx_fail(TX_INVALID,
                       "hidden_size: %" PRId64 " does not divide into %" PRId64 " heads of an even size up to %d",
                       config->width, config->heads, TX_MAX_ROTARY);
    return of(config)->pad_token_id < config->vocab_size
               ? TX_OK
               : tx_fail(TX_INVALID, "pad_token_id: %" PRId64 " is not in the vocabulary of %" PRId64,
                         of(config)->pad_token_id, config->vocab_size);
}

/* ---- Parameters ---------------------------------------------------------------------------------------- */

enum { QKV = TX_EXTENT_OWN, INNER, GATED, LABELS };
enum {
    WORDS,
    EMBED_NORM,
    ATTN_NORM,
    QKV_PROJ,
    O_PROJ,
    MLP_NORM,
    UP_PROJ,
    DOWN_PROJ,
    FINAL_NORM,
    HEAD_DENSE,
    HEAD_NORM,
    HEAD_OUT,
    HEAD_BIAS,
    NO_BIAS
};

static bool is_later(const tx_config *config, int64_t block)
{
    (void)config;
    return block > 0;
}

#define MATRIX(slot, name, out, in_)                             \
    {                                                            \
        slot, name ".weight", {out, in_}, .draw = TX_DRAW_NORMAL \
    }
#define NORM(slot, name, ...)                                                     \
    {                                                                             \
        slot, name ".weight", {TX_EXTENT_WIDTH}, .draw = TX_DRAW_ONE, __VA_ARGS__ \
    }
#define LAYER "layers.%d."
#define ENCODER(prefix)                                                                  \
    MATRIX(WORDS, prefix "embeddings.tok_embeddings", TX_EXTENT_VOCAB, TX_EXTENT_WIDTH), \
        NORM(EMBED_NORM, prefix "embeddings.norm", .in = NULL),                          \
        NORM(ATTN_NORM, prefix LAYER "attn_norm", .in = is_later),                       \
        MATRIX(QKV_PROJ, prefix LAYER "attn.Wqkv", QKV, TX_EXTENT_WIDTH),                \
        MATRIX(O_PROJ, prefix LAYER "attn.Wo", TX_EXTENT_WIDTH, TX_EXTENT_WIDTH),        \
        NORM(MLP_NORM, prefix LAYER "mlp_norm", .in = NULL),                             \
        MATRIX(UP_PROJ, prefix LAYER "mlp.Wi", GATED, TX_EXTENT_WIDTH),                  \
        MATRIX(DOWN_PROJ, prefix LAYER "mlp.Wo", TX_EXTENT_WIDTH, INNER),                \
        NORM(FINAL_NORM, prefix "final_norm", .in = NULL)
#define HEAD \
    MATRIX(HEAD_DENSE, "head.dense", TX_EXTENT_WIDTH, TX_EXTENT_WIDTH), NORM(HEAD_NORM, "head.norm", .in = NULL)

static const tx_stack_row masked[] = {
    ENCODER(MODEL), HEAD, {HEAD_BIAS, "decoder.bias", {TX_EXTENT_VOCAB}, .draw = TX_DRAW_ZERO}, {.name = NULL}};
static const tx_stack_row labels[] = {ENCODER(MODEL),
                                      HEAD,
                                      MATRIX(HEAD_OUT, "classifier", LABELS, TX_EXTENT_WIDTH),
                                      {HEAD_BIAS, "classifier.bias", {LABELS}, .draw = TX_DRAW_ZERO},
                                      {.name = NULL}};
static const tx_stack_row base[] = {ENCODER(""), {.name = NULL}};

static const tx_stack_row *rows_of(const tx_config *config)
{
    const tx_head head = config->architecture->head;
    return head == TX_HEAD_MASKED_LM ? masked : head == TX_HEAD_STATES ? base : labels;
}

static int64_t extent_of(const tx_config *config, int32_t extent, int32_t dimension, tx_param_sections *sections)
{
    const int64_t inner = of(config)->intermediate_size;
    (void)dimension;
    (void)sections;
    return extent == QKV ? 3 * config->width : extent == INNER ? inner : extent == GATED ? 2 * inner : config->labels;
}

static int32_t params(const tx_config *config)
{
    return tx_stack_params(config, rows_of(config));
}

static tx_status param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    tx_stack_param(config, rows_of(config), extent_of, of(config)->initializer_range, index, name, spec);
    spec->tied = index == 0 && config->architecture->head == TX_HEAD_MASKED_LM;
    return TX_OK;
}

static int64_t embeddings(const tx_config *config)
{
    return config->vocab_size * config->width;
}

/* ---- Graph --------------------------------------------------------------------------------------------- */

static tx_tensor *norm(const tx_stack *s, tx_tensor *x, int32_t slot)
{
    tx_tensor *none = tx_fill(s->graph, TX_SHAPE(s->config->width), 0.0f);
    return tx_layer_norm(x, tx_stack_weight(s, slot), none, (float)of(s->config)->norm_eps);
}

static tx_tensor *linear(const tx_stack *s, tx_tensor *x, int32_t slot)
{
    return tx_stack_linear(s, x, slot, NO_BIAS);
}

/* Row 1 for positions that a local layer does not see. */
static int32_t is_far(const tx_config *config, int64_t distance)
{
    const int64_t most = of(config)->local / 2;
    return distance > most || distance < -most;
}

/* The mask of local layers, or NULL if all positions are near. */
static tx_tensor *local_scores(const tx_stack *s)
{
    if (tx_tensor_shape(s->tokens)->dim[1] <= of(s->config)->local / 2 + 1)
        return NULL;
    const int64_t heads = s->config->heads;
    /* Gathers by the indices -1 and 0; a negative index gives 0. */
    tx_tensor *table =
        tx_gather(tx_fill(s->graph, TX_SHAPE(1, heads), TX_RELATIVE_MASKED), tx_range(s->graph, TX_SHAPE(2), -1, 1));
    return tx_relative_scores(s, heads, tx_tensor_shape(s->tokens)->dim[1], tx_relative_bias(s, table, is_far),
                              tx_relative_mask(s));
}

static tx_tensor *attention(tx_stack *s, tx_tensor *x, int64_t layer)
{
    const modernbert_config *c = of(s->config);
    const bool local = layer % c->every != 0;
    const int32_t heads = (int32_t)c->base.heads;
    const tx_rope rope = TX_ROPE((float)(local ? c->local_theta : c->global_theta));
    tx_attention_options options = {.heads = heads, .kv_heads = heads};
    x = tx_rotary(linear(s, x, QKV_PROJ), 2 * heads, (int32_t)(c->base.width / heads), &rope, NULL, NULL);
    const tx_relative_options relative = {.heads = heads, .scores = s->scores, .dropout = dropout};
    x = local && s->scores ? tx_relative_attention(s, x, NULL, NULL, &relative)
                           : tx_stack_attention(s, x, layer, &options, c->attention_dropout);
    return tx_stack_dropout(s, linear(s, x, O_PROJ), c->attention_dropout);
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
    return tx_mul(tx_bert_activate(of(s->config)->activation, tx_reshape(in, half)), tx_reshape(gate, half));
}

static tx_tensor *block(tx_stack *s, tx_tensor *x, int64_t layer)
{
    x = tx_add(x, attention(s, tx_stack_has(s, ATTN_NORM) ? norm(s, x, ATTN_NORM) : x, layer));
    tx_tensor *h = gated(s, linear(s, norm(s, x, MLP_NORM), UP_PROJ));
    return tx_add(x, linear(s, tx_stack_dropout(s, h, of(s->config)->mlp_dropout), DOWN_PROJ));
}

static tx_tensor *encode(tx_graph *graph, const tx_config *config, const tx_arch_options *options, tx_stack *s)
{
    if (tx_stack_open(graph, config, options, rows_of(config), s))
        return NULL;
    if (s->parts > 1)
        tx_graph_fail(graph, tx_fail(TX_UNSUPPORTED, "modernbert: tensor parallelism is not implemented"));
    s->padding = of(config)->pad_token_id;
    tx_tensor *x = norm(s, tx_stack_embed(s, tx_stack_weight(s, WORDS), NULL), EMBED_NORM);
    x = tx_stack_dropout(s, x, of(config)->embedding_dropout);
    s->scores = local_scores(s);
    x = tx_stack_blocks(s, x, block);
    return x ? norm(s, x, FINAL_NORM) : NULL;
}

static tx_tensor *head_of(const tx_stack *s, tx_tensor *x)
{
    x = tx_bert_activate(of(s->config)->classifier_activation, linear(s, x, HEAD_DENSE));
    return norm(s, x, HEAD_NORM);
}

static tx_tensor *masked_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    tx_stack s;
    tx_tensor *x = encode(graph, config, options, &s);
    if (!x)
        return NULL;
    return tx_linear(head_of(&s, tx_stack_rows(&s, x)), tx_stack_weight(&s, WORDS), tx_stack_weight(&s, HEAD_BIAS),
                     true);
}

/* The first position or the mean of a row's positions: x [B, T, C] -> [B, C]. */
static tx_tensor *pool(const tx_stack *s, tx_tensor *x)
{
    const tx_shape *shape = tx_tensor_shape(x);
    const int64_t rows = shape->dim[0], t = shape->dim[1], width = shape->dim[2];
    if (of(s->config)->pooling == 0)
        return tx_gather(tx_reshape(x, TX_SHAPE(rows * t, width)), tx_range(s->graph, TX_SHAPE(rows), 0, (int32_t)t));
    tx_tensor *used = tx_relative_used(s), *count = tx_reduce(used, TX_REDUCE_SUM, TX_AXIS_LAST);
    tx_tensor *sum =
        tx_reshape(tx_matmul(tx_reshape(used, TX_SHAPE(rows, 1, t)), x, false, false), TX_SHAPE(rows, width));
    tx_tensor *one = tx_rsqrt(count); /* 1 / count = (1 / sqrt(count))^2 */
    return tx_mul(sum, tx_broadcast(tx_mul(one, one), TX_SHAPE(rows, width), TX_AXIS_LAST));
}

static tx_tensor *label_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    tx_stack s;
    tx_tensor *x = encode(graph, config, options, &s);
    if (x && config->architecture->head == TX_HEAD_SEQUENCE_CLASSIFICATION)
        x = pool(&s, x);
    if (!x)
        return NULL;
    return tx_stack_linear(&s, tx_stack_dropout(&s, head_of(&s, x), of(config)->classifier_dropout), HEAD_OUT,
                           HEAD_BIAS);
}

static tx_tensor *states(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    tx_stack s;
    return encode(graph, config, options, &s);
}

/* ---- Files --------------------------------------------------------------------------------------------- */

static bool is_of_head(const char *name)
{
    return tx_begins_with(name, "head.") || tx_begins_with(name, "decoder.") || tx_begins_with(name, "classifier.");
}

static void rename_tensor(const tx_config *config, const char *tensor, char name[TX_WEIGHTS_NAME])
{
    const tx_stack_row *row = rows_of(config);
    const bool bare = config->architecture->head == TX_HEAD_STATES, prefixed = tx_begins_with(tensor, MODEL);
    while (row->name && strcmp(row->name, tensor) != 0)
        row++;
    if (is_of_head(tensor))
        snprintf(name, TX_WEIGHTS_NAME, "%s", row->name ? tensor : ""); /* files have tensors of other heads */
    else if (bare)
        snprintf(name, TX_WEIGHTS_NAME, "%s", tensor + (prefixed ? strlen(MODEL) : 0));
    else
        snprintf(name, TX_WEIGHTS_NAME, "%s%s", prefixed ? "" : MODEL, tensor);
}

static tx_status check_ties(const tx_config *config, const tx_weights *weights)
{
    (void)config;
    return tx_arch_check_tied(weights, "decoder.weight", MODEL "embeddings.tok_embeddings.weight");
}

/* ---- The architectures --------------------------------------------------------------------------------- */

static const tx_preset presets[] = {{.name = NULL}};
static const modernbert_config defaults = {.base = {.architecture = &tx_modernbert_masked_lm,
                                                    .vocab_size = 50368,
                                                    .positions = 8192,
                                                    .width = 768,
                                                    .layers = 22,
                                                    .heads = 12,
                                                    .labels = TX_LABELS_DEFAULT,
                                                    .bos_token_id = 50281,
                                                    .eos_token_id = 50282},
                                           .intermediate_size = 1152,
                                           .pad_token_id = 50283,
                                           .every = 3,
                                           .local = 128,
                                           .global_theta = 160000,
                                           .local_theta = 10000,
                                           .norm_eps = 1e-5,
                                           .initializer_range = 0.02};

#define ROW(name, class, HEAD_, build, ...)                                  \
    const tx_architecture name = {.type = "modernbert",                      \
                                  .class_name = "ModernBert" class,          \
                                  .head = TX_HEAD_##HEAD_,                   \
                                  .config_bytes = sizeof(modernbert_config), \
                                  .defaults = &defaults.base,                \
                                  .keys = keys,                              \
                                  .fixed = fixed,                            \
                                  .presets = presets,                        \
                                  .read = read_rest,                         \
                                  .check = check,                            \
                                  .params = params,                          \
                                  .param = param,                            \
                                  .embeddings = embeddings,                  \
                                  .logits = build,                           \
                                  .rename = rename_tensor,                   \
                                  .is_of_head = is_of_head,                  \
                                  __VA_ARGS__}
ROW(tx_modernbert_masked_lm, "ForMaskedLM", MASKED_LM, masked_logits, .check_weights = check_ties);
ROW(tx_modernbert_classifier, "ForSequenceClassification", SEQUENCE_CLASSIFICATION, label_logits,
    .lora_saved = "classifier");
ROW(tx_modernbert_token_classifier, "ForTokenClassification", TOKEN_CLASSIFICATION, label_logits,
    .lora_saved = "classifier");
ROW(tx_modernbert_base, "Model", STATES, states, .lora_saved = NULL);
