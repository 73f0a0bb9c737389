/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT (Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, 2019) and RoBERTa (Liu et al., RoBERTa: A
 * Robustly Optimized BERT Pretraining Approach, 2019) as Hugging Face stores and computes them. Each has two heads:
 * ForMaskedLM and ForSequenceClassification.
 *
 * Post-norm blocks; learned positions and token types; bidirectional attention, keys from a row's length on masked;
 * projections y = x W^T + b with W [out, in]. Files store query, key and value separately. Here they are one parameter,
 * so that one matrix product computes them. The decoder of the masked head is the token embedding. The embedding of
 * padding gets no gradient. RoBERTa differs in names, heads and positions: its positions skip padding and start after
 * pad_token_id, so the first pad_token_id + 1 rows of its position table are unused. */
#include "models/arch/bert.h"
#include "models/arch/labels.h"
#include "models/arch/stack.h"
#include "models/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WORDS "embeddings.word_embeddings.weight"
#define POOLER "pooler."
#define CLASSIFIER "classifier."
#define BERT "bert."
#define BERT_HEAD "cls.predictions."
#define ROBERTA "roberta."
#define ROBERTA_HEAD "lm_head."

/* The differences between BERT and RoBERTa. */
typedef struct kind {
    bool counts_tokens; /* positions count the tokens without padding, from pad_token_id + 1 on */
    bool input_dropout; /* the classifier's head also applies dropout to its input */
    bool exact_gelu;    /* the masked head uses exact GELU instead of hidden_act */
    const tx_stack_row *masked, *classification;
    const char *prefix, *head; /* of names in files: of the model, of its masked head */
    /* Prefixes of tensors in files that no head uses; that the masked head, and that the classifier does not use. Each
     * list ends with NULL. */
    const char *const *unused, *const *unused_by_head[2];
} kind;

/* The keys of config.json under their own names. */
typedef struct bert_config {
    tx_config base;
    const kind *kind;
    int64_t max_position_embeddings; /* rows of the position table; base.positions is the limit for a text */
    int64_t intermediate_size, type_vocab_size, pad_token_id;
    int32_t hidden_act;
    double layer_norm_eps, initializer_range, hidden_dropout_prob, attention_probs_dropout_prob;
    double classifier_dropout; /* NO_DROPOUT_OF_ITS_OWN means hidden_dropout_prob (null in the file) */
} bert_config;

#define NO_DROPOUT_OF_ITS_OWN (-1.0)

static const bert_config *bert_of(const tx_config *config)
{
    return (const bert_config *)config;
}

/* ---- Configuration ----------------------------------------------------------------------------------- */

#define KEY(name) #name, offsetof(bert_config, name)
#define BASE(name, field) #name, offsetof(bert_config, base.field)

enum { ACT_GELU, ACT_GELU_NEW, ACT_GELU_TANH, ACT_SILU, ACT_SWISH, ACT_COUNT };

static const char *const activations[ACT_COUNT] = {[ACT_GELU] = "gelu",
                                                   [ACT_GELU_NEW] = "gelu_new",
                                                   [ACT_GELU_TANH] = "gelu_pytorch_tanh",
                                                   [ACT_SILU] = "silu",
                                                   [ACT_SWISH] = "swish"};

/* The bounds keep all products of sizes within int64. */
static const tx_config_key keys[] = {
    {BASE(vocab_size, vocab_size), TX_KEY_INT, .min = 1, .max = 1 << 30},
    {KEY(max_position_embeddings), TX_KEY_INT, .min = 1, .max = 1 << 24},
    {BASE(hidden_size, width), TX_KEY_INT, .min = 1, .max = 1 << 20},
    {BASE(num_hidden_layers, layers), TX_KEY_INT, .min = 1, .max = 1 << 12},
    {BASE(num_attention_heads, heads), TX_KEY_INT, .min = 1, .max = 1 << 20},
    {KEY(intermediate_size), TX_KEY_INT, .min = 1, .max = 1 << 22},
    {KEY(type_vocab_size), TX_KEY_INT, .min = 1, .max = 1 << 20},
    {BASE(bos_token_id, bos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},
    {BASE(eos_token_id, eos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},
    {KEY(pad_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},
    {KEY(hidden_act), TX_KEY_CHOICE, .max = ACT_COUNT - 1, .words = activations},
    {KEY(layer_norm_eps), TX_KEY_NUMBER, .min = 1e-12, .max = 1},
    {KEY(initializer_range), TX_KEY_NUMBER, .max = 10},
    {KEY(hidden_dropout_prob), TX_KEY_NUMBER, .max = 0.999},
    {KEY(attention_probs_dropout_prob), TX_KEY_NUMBER, .max = 0.999},
    {.name = NULL},
};

static const tx_fixed_key fixed_keys[] = {
    {"is_decoder", false, "a decoder is not implemented"},
    {"add_cross_attention", false, "cross-attention is not implemented"},
    {"tie_word_embeddings", true, "an untied decoder is not implemented"},
    {.name = NULL},
};

static const tx_preset presets[] = {{.name = NULL}};

/* transformers' defaults. */
#define DEFAULTS(row, differs, vocab, bos, eos, pad)                                                     \
    .base = {.architecture = &(row),                                                                     \
             .vocab_size = (vocab),                                                                      \
             .width = 768,                                                                               \
             .layers = 12,                                                                               \
             .heads = 12,                                                                                \
             .labels = TX_LABELS_DEFAULT,                                                                \
             .bos_token_id = (bos),                                                                      \
             .eos_token_id = (eos)},                                                                     \
    .kind = &(differs), .max_position_embeddings = 512, .intermediate_size = 3072, .type_vocab_size = 2, \
    .pad_token_id = (pad), .hidden_act = ACT_GELU, .layer_norm_eps = 1e-12, .initializer_range = 0.02,   \
    .hidden_dropout_prob = 0.1, .attention_probs_dropout_prob = 0.1, .classifier_dropout = NO_DROPOUT_OF_ITS_OWN

static const kind bert, roberta;
static const bert_config bert_defaults = {DEFAULTS(tx_bert_masked_lm, bert, 30522, -1, -1, 0)};
static const bert_config roberta_defaults = {DEFAULTS(tx_roberta_masked_lm, roberta, 50265, 0, 2, 1)};

static tx_status read_rest(const tx_json *json, tx_config *config)
{
    bert_config *c = (bert_config *)config;
    const char *type = "absolute";
    TX_TRY(TX_JSON_OPTIONAL(string, json, "position_embedding_type", &type));
    if (strcmp(type, "absolute") != 0)
        return tx_fail(TX_UNSUPPORTED, "position_embedding_type: \"%.40s\" is not implemented, only \"absolute\"",
                       type);
    TX_TRY(TX_JSON_OPTIONAL(number, json, "classifier_dropout", 0, 0.999, &c->classifier_dropout));
    c->base.positions = c->max_position_embeddings - (c->kind->counts_tokens ? c->pad_token_id + 1 : 0);
    return tx_labels_read(json, config);
}

static tx_status write_rest(const tx_config *config, tx_json *json)
{
    const double dropout = bert_of(config)->classifier_dropout;
    return dropout < 0.0 ? tx_json_set_null(json, "classifier_dropout")
                         : tx_json_set_number(json, "classifier_dropout", dropout);
}

static tx_status check(const tx_config *config)
{
    const bert_config *c = bert_of(config);
    if (config->width % config->heads != 0)
        return tx_fail(TX_INVALID, "hidden_size: %" PRId64 " is not a multiple of num_attention_heads, %" PRId64,
                       config->width, config->heads);
    if (c->pad_token_id >= config->vocab_size)
        return tx_fail(TX_INVALID, "pad_token_id: %" PRId64 " is not in the vocabulary of %" PRId64, c->pad_token_id,
                       config->vocab_size);
    if (c->kind->counts_tokens && (c->pad_token_id < 0 || config->positions < 1))
        return tx_fail(TX_INVALID, "pad_token_id: must be below max_position_embeddings - 1 and not null, because "
                                   "positions start after it");
    return TX_OK;
}

/* ---- Parameters -------------------------------------------------------------------------------------- */

/* Symbolic sizes of dimensions. */
enum { VOCAB = TX_EXTENT_VOCAB, WIDTH = TX_EXTENT_WIDTH, POSITIONS = TX_EXTENT_OWN, TYPES, QKV, INNER, LABELS };

/* Parameter slots; a bias follows its weight. */
enum {
    WORD_TABLE,
    POSITION_TABLE,
    TYPE_TABLE,
    EMBED_NORM,
    QKV_PROJ = EMBED_NORM + 2,
    O_PROJ = QKV_PROJ + 2,
    ATTN_NORM = O_PROJ + 2,
    UP_PROJ = ATTN_NORM + 2,
    DOWN_PROJ = UP_PROJ + 2,
    MLP_NORM = DOWN_PROJ + 2,
    HEAD_DENSE = MLP_NORM + 2,
    HEAD_NORM = HEAD_DENSE + 2,
    HEAD_OUT = HEAD_NORM + 2,
    HEAD_BIAS = HEAD_OUT + 2
};

/* Names separated by bars are the tensors of the sections in files. */
#define ENCODER(prefix)                                                                                               \
    {WORD_TABLE, prefix WORDS, {VOCAB, WIDTH}, .split = 1},                                                           \
        {POSITION_TABLE, prefix "embeddings.position_embeddings.weight", {POSITIONS, WIDTH}, .draw = TX_DRAW_NORMAL}, \
        {TYPE_TABLE, prefix "embeddings.token_type_embeddings.weight", {TYPES, WIDTH}, .draw = TX_DRAW_NORMAL},       \
        NORM(EMBED_NORM, prefix "embeddings.LayerNorm."),                                                             \
        LINEAR(QKV_PROJ, prefix "encoder.layer.%d.attention.self.query|key|value.", QKV, WIDTH, 1, 1),                \
        LINEAR(O_PROJ, prefix "encoder.layer.%d.attention.output.dense.", WIDTH, WIDTH, 2, 0),                        \
        NORM(ATTN_NORM, prefix "encoder.layer.%d.attention.output.LayerNorm."),                                       \
        LINEAR(UP_PROJ, prefix "encoder.layer.%d.intermediate.dense.", INNER, WIDTH, 1, 1),                           \
        LINEAR(DOWN_PROJ, prefix "encoder.layer.%d.output.dense.", WIDTH, INNER, 2, 0),                               \
        NORM(MLP_NORM, prefix "encoder.layer.%d.output.LayerNorm.")
#define LINEAR(slot, name, out, in, of_weight, of_bias)                        \
    {slot, name "weight", {out, in}, .split = of_weight},                      \
    {                                                                          \
        (slot) + 1, name "bias", {out}, .draw = TX_DRAW_ZERO, .split = of_bias \
    }
#define NORM(slot, name)                                       \
    {slot, name "weight", {WIDTH}, .draw = TX_DRAW_ONE},       \
    {                                                          \
        (slot) + 1, name "bias", {WIDTH}, .draw = TX_DRAW_ZERO \
    }
#define MASKED(prefix, dense, norm, head)                                                        \
    {                                                                                            \
        ENCODER(prefix), LINEAR(HEAD_DENSE, dense, WIDTH, WIDTH, 0, 0), NORM(HEAD_NORM, norm),   \
            {HEAD_BIAS, head "bias", {VOCAB}, .draw = TX_DRAW_ZERO, .split = 1}, {.name = NULL}, \
    }
#define CLASSIFICATION(prefix, dense, out)                                                                          \
    {                                                                                                               \
        ENCODER(prefix), LINEAR(HEAD_DENSE, dense, WIDTH, WIDTH, 0, 0), LINEAR(HEAD_OUT, out, LABELS, WIDTH, 0, 0), \
            {.name = NULL},                                                                                         \
    }

static const tx_stack_row bert_masked[] =
    MASKED(BERT, BERT_HEAD "transform.dense.", BERT_HEAD "transform.LayerNorm.", BERT_HEAD);
static const tx_stack_row bert_classification[] = CLASSIFICATION(BERT, BERT POOLER "dense.", CLASSIFIER);
static const tx_stack_row roberta_masked[] =
    MASKED(ROBERTA, ROBERTA_HEAD "dense.", ROBERTA_HEAD "layer_norm.", ROBERTA_HEAD);
static const tx_stack_row roberta_classification[] =
    CLASSIFICATION(ROBERTA, CLASSIFIER "dense.", CLASSIFIER "out_proj.");

static int64_t extent_of(const tx_config *config, int32_t extent, int32_t dimension, tx_param_sections *sections)
{
    const bert_config *c = bert_of(config);
    if (extent == QKV)
        *sections = (tx_param_sections){3, dimension, {config->width, config->width, config->width}, 0};
    return extent == POSITIONS ? c->max_position_embeddings
           : extent == TYPES   ? c->type_vocab_size
           : extent == QKV     ? 3 * config->width
           : extent == LABELS  ? config->labels
                               : c->intermediate_size;
}

static const tx_stack_row *rows_of(const tx_config *config)
{
    const kind *k = bert_of(config)->kind;
    return config->architecture->head == TX_HEAD_MASKED_LM ? k->masked : k->classification;
}

static int32_t params(const tx_config *config)
{
    return tx_stack_params(config, rows_of(config));
}

static tx_status param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    tx_stack_param(config, rows_of(config), extent_of, bert_of(config)->initializer_range, index, name, spec);
    spec->tied = index == 0 && config->architecture->head == TX_HEAD_MASKED_LM;
    return TX_OK;
}

static int64_t embeddings(const tx_config *config)
{
    const bert_config *c = bert_of(config);
    return (config->vocab_size + c->max_position_embeddings + c->type_vocab_size) * config->width;
}

/* ---- Graph ----------------------------------------------------------------------------------------- */

static tx_tensor *layer_norm(const tx_stack *b, tx_tensor *x, int32_t slot)
{
    tx_tensor *gamma = tx_stack_weight(b, slot), *beta = tx_stack_weight(b, slot + 1);
    return tx_layer_norm(x, gamma, beta, (float)bert_of(b->config)->layer_norm_eps);
}

static tx_tensor *linear(const tx_stack *b, tx_tensor *x, int32_t slot)
{
    return tx_stack_linear(b, x, slot, slot + 1);
}

static tx_tensor *activation(int32_t act, tx_tensor *x)
{
    return act == ACT_SILU || act == ACT_SWISH ? tx_silu(x) : tx_gelu(x, act == ACT_GELU);
}

/* Without token_type_ids all tokens have type 0. */
static tx_tensor *token_types(const tx_stack *b)
{
    tx_tensor *types = tx_find_input(b->graph, "token_type_ids");
    return types ? types : tx_range(b->graph, *tx_tensor_shape(b->tokens), 0, 0);
}

/* Counted positions use the same padded lookup as tokens, so that the position of padding gets no gradient either. */
static tx_tensor *embed(tx_stack *b, tx_tensor **words)
{
    const bert_config *c = bert_of(b->config);
    b->padding = c->pad_token_id;
    *words = tx_stack_weight(b, WORD_TABLE);
    tx_tensor *position_table = tx_stack_weight(b, POSITION_TABLE), *x;
    if (c->kind->counts_tokens) {
        tx_tensor *positions = b->positions ? b->positions : tx_token_positions(b->tokens, (int32_t)b->padding);
        x = tx_stack_embed(b, *words, NULL);
        x = tx_add(x, tx_embedding_padded(positions, position_table, b->padding, NULL, NULL));
    } else {
        x = tx_stack_embed(b, *words, position_table);
    }
    x = tx_add(x, tx_embedding(token_types(b), tx_stack_weight(b, TYPE_TABLE), NULL, NULL));
    return tx_stack_dropout(b, layer_norm(b, x, EMBED_NORM), c->hidden_dropout_prob);
}

/* Selects the first position of each row, [CLS] or <s>: x [B, T, C] -> [B, C]. */
static tx_tensor *first_of(const tx_stack *b, tx_tensor *x)
{
    if (!x)
        return NULL;
    const tx_shape *shape = tx_tensor_shape(x);
    tx_tensor *first = tx_range(b->graph, TX_SHAPE(shape->dim[0]), 0, (int32_t)shape->dim[1]);
    return tx_gather(tx_reshape(x, TX_SHAPE(tx_shape_rows(shape), tx_shape_last(shape))), first);
}

/* x [B, T, C] -> [B, T, C]. A classifier reads only the first position of the last block. After its attention that
 * block therefore computes only [B, C]. */
static tx_tensor *transformer_block(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const bert_config *c = bert_of(b->config);
    const bool is_classifier = b->config->architecture->head == TX_HEAD_SEQUENCE_CLASSIFICATION;
    const int32_t heads = tx_stack_heads_per_rank(b, c->base.heads, "num_attention_heads");
    tx_attention_options options = {.heads = heads, .kv_heads = heads};
    tx_tensor *h = linear(b, x, QKV_PROJ); /* query | key | value */
    h = tx_stack_attention(b, h, layer, &options, c->attention_probs_dropout_prob);
    if (is_classifier && layer + 1 == b->config->layers) {
        h = first_of(b, h);
        x = first_of(b, x);
    }
    h = linear(b, h, O_PROJ);
    x = layer_norm(b, tx_add(tx_stack_dropout(b, h, c->hidden_dropout_prob), x), ATTN_NORM);
    h = linear(b, activation(c->hidden_act, linear(b, x, UP_PROJ)), DOWN_PROJ);
    return layer_norm(b, tx_add(tx_stack_dropout(b, h, c->hidden_dropout_prob), x), MLP_NORM);
}

static tx_tensor *masked_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    const bert_config *c = bert_of(config);
    tx_stack b;
    tx_tensor *words;
    if (tx_stack_open(graph, config, options, rows_of(config), &b))
        return NULL;
    tx_tensor *x = tx_stack_blocks(&b, embed(&b, &words), transformer_block);
    x = linear(&b, tx_stack_rows(&b, x), HEAD_DENSE);
    x = layer_norm(&b, activation(c->kind->exact_gelu ? ACT_GELU : c->hidden_act, x), HEAD_NORM);
    return tx_linear(tx_tp_input(x), words, tx_stack_weight(&b, HEAD_BIAS), true);
}

/* [B, labels] */
static tx_tensor *classification_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    const bert_config *c = bert_of(config);
    const double dropout = c->classifier_dropout < 0.0 ? c->hidden_dropout_prob : c->classifier_dropout;
    tx_stack b;
    tx_tensor *words;
    if (tx_stack_open(graph, config, options, rows_of(config), &b))
        return NULL;
    tx_tensor *x = tx_stack_blocks(&b, embed(&b, &words), transformer_block);
    if (c->kind->input_dropout)
        x = tx_stack_dropout(&b, x, dropout);
    x = tx_tanh(linear(&b, x, HEAD_DENSE));
    return linear(&b, tx_stack_dropout(&b, x, dropout), HEAD_OUT);
}

/* ---- Files ------------------------------------------------------------------------------------------- */

static bool begins_with_one(const char *name, const char *const *prefixes)
{
    while (*prefixes && !tx_begins_with(name, *prefixes))
        prefixes++;
    return *prefixes;
}

/* Returns true for tensors of published files that this head does not use. */
static bool is_left_out(const tx_config *config, const char *name)
{
    const kind *k = bert_of(config)->kind;
    return tx_ends_with(name, "embeddings.position_ids") || begins_with_one(name, k->unused) ||
           begins_with_one(name, k->unused_by_head[config->architecture->head != TX_HEAD_MASKED_LM]);
}

/* Maps names in files. Files of the bare model lack the prefix. Files from TensorFlow call a norm's weight gamma and
 * its bias beta. */
static void rename_tensor(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const bool bare =
        tx_begins_with(tensor, "embeddings.") || tx_begins_with(tensor, "encoder.") || tx_begins_with(tensor, POOLER);
    const char *last = tx_ends_with(tensor, "LayerNorm.gamma")  ? "weight"
                       : tx_ends_with(tensor, "LayerNorm.beta") ? "bias"
                                                                : NULL;
    const size_t kept = last ? (size_t)(strrchr(tensor, '.') + 1 - tensor) : strlen(tensor);
    param[0] = '\0';
    if (!is_left_out(config, tensor))
        snprintf(param, TX_WEIGHTS_NAME, "%s%.*s%s", bare ? bert_of(config)->kind->prefix : "", (int)kept, tensor,
                 last ? last : "");
}

static bool is_of_head(const char *param)
{
    static const char *const heads[] = {BERT POOLER, CLASSIFIER, BERT_HEAD, ROBERTA_HEAD, NULL};
    return begins_with_one(param, heads);
}

static tx_status check_masked(const tx_config *config, const tx_weights *weights)
{
    const kind *k = bert_of(config)->kind;
    char name[2][TX_WEIGHTS_NAME];
    for (int i = 0; i < 2; i++) {
        snprintf(name[0], sizeof name[0], "%sdecoder.%s", k->head, i ? "weight" : "bias");
        snprintf(name[1], sizeof name[1], "%s%s", i ? k->prefix : k->head, i ? WORDS : "bias");
        TX_TRY(tx_arch_check_tied(weights, name[0], name[1]));
    }
    return TX_OK;
}

/* ---- The architectures ------------------------------------------------------------------------------------ */

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static const kind bert = {.masked = bert_masked,
                          .classification = bert_classification,
                          .prefix = BERT,
                          .head = BERT_HEAD,
                          .unused = NAMES("cls.seq_relationship.", BERT_HEAD "decoder."),
                          .unused_by_head = {NAMES(BERT POOLER, POOLER, CLASSIFIER), NAMES("cls.")}};
static const kind roberta = {.counts_tokens = true,
                             .input_dropout = true,
                             .exact_gelu = true,
                             .masked = roberta_masked,
                             .classification = roberta_classification,
                             .prefix = ROBERTA,
                             .head = ROBERTA_HEAD,
                             .unused = NAMES(ROBERTA POOLER, POOLER, ROBERTA_HEAD "decoder."),
                             .unused_by_head = {NAMES(CLASSIFIER), NAMES(ROBERTA_HEAD)}};

#define ROW(name)                                                                                                      \
    .type = #name, .config_bytes = sizeof(bert_config), .defaults = &name##_defaults.base, .keys = keys,               \
    .fixed = fixed_keys, .presets = presets, .read = read_rest, .write = write_rest, .check = check, .params = params, \
    .param = param, .embeddings = embeddings, .lora_targets = "query,value", .rename = rename_tensor,                  \
    .is_of_head = is_of_head
#define MASKED_LM(CLASS) \
    .class_name = CLASS "ForMaskedLM", .head = TX_HEAD_MASKED_LM, .logits = masked_logits, .check_weights = check_masked
#define CLASSIFIES(CLASS)                                                                     \
    .class_name = CLASS "ForSequenceClassification", .head = TX_HEAD_SEQUENCE_CLASSIFICATION, \
    .logits = classification_logits, .lora_saved = "classifier"

const tx_architecture tx_bert_masked_lm = {ROW(bert), MASKED_LM("Bert")};
const tx_architecture tx_bert_classifier = {ROW(bert), CLASSIFIES("Bert")};
const tx_architecture tx_roberta_masked_lm = {ROW(roberta), MASKED_LM("Roberta")};
const tx_architecture tx_roberta_classifier = {ROW(roberta), CLASSIFIES("Roberta")};
