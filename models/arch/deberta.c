/* SPDX-License-Identifier: Apache-2.0
 *
 * DeBERTa, v2 and v3 (He et al., DeBERTa: Decoding-enhanced BERT with Disentangled Attention, 2021, and DeBERTaV3,
 * 2023): BERT whose attention also compares contents with distances. Far distances share the rows of their table in v2
 * and v3. In the first version query, key and value of a head are adjacent in files, and keys have no bias. */
#include "models/arch/bert_stack.h"
#include "models/arch/labels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MODEL "deberta."
#define HEAD "cls.predictions."
#define NEW_HEAD "lm_predictions.lm_head."
#define CLASSIFIER "classifier."
#define POOLER "pooler.dense."
#define SELF "encoder.layer.%d.attention.self."

/* ---- Tensors ------------------------------------------------------------------------------------------- */

#define FLAG(field) offsetof(tx_bert_config, field)
#define TABLE(slot, name, rows, flag)                                              \
    {                                                                              \
        slot, name, {rows, TX_EXTENT_WIDTH}, .init = TX_STACK_NORMAL, .with = flag \
    }
#define VECTOR(slot, name, extent, drawn, ...)           \
    {                                                    \
        slot, name, {extent}, .init = drawn, __VA_ARGS__ \
    }
/* The rows before the blocks. */
#define OPENING(prefix)                                                                                              \
    TABLE(TX_BERT_WORD_TABLE, prefix TX_BERT_WORDS, TX_EXTENT_VOCAB, 0),                                             \
        TABLE(TX_BERT_POSITION_TABLE, prefix "embeddings.position_embeddings.weight", TX_BERT_POSITIONS,             \
              FLAG(position_biased_input)),                                                                          \
        TABLE(TX_BERT_TYPE_TABLE, prefix "embeddings.token_type_embeddings.weight", TX_BERT_TYPES, FLAG(has_types)), \
        TX_BERT_NORM(EMBED_NORM, prefix "embeddings.LayerNorm.", TX_EXTENT_WIDTH),                                   \
        TABLE(TX_BERT_DISTANCE_TABLE, prefix "encoder.rel_embeddings.weight", TX_BERT_BUCKETS, 0),                   \
        VECTOR(TX_BERT_DISTANCE_NORM, prefix "encoder.LayerNorm.weight", TX_EXTENT_WIDTH, TX_STACK_ONE,              \
               .with = FLAG(norms_distances)),                                                                       \
        VECTOR(TX_BERT_DISTANCE_NORM + 1, prefix "encoder.LayerNorm.bias", TX_EXTENT_WIDTH, TX_STACK_ZERO,           \
               .with = FLAG(norms_distances))
#define ENCODER(prefix)                                                                                              \
    OPENING(prefix),                                                                                                 \
        TX_BERT_LINEAR(QKV_PROJ, prefix SELF "query_proj|key_proj|value_proj.", TX_BERT_QKV, TX_EXTENT_WIDTH, 0, 0), \
        {TX_BERT_DISTANCE_PROJ,                                                                                      \
         prefix SELF "pos_query_proj|pos_key_proj.weight",                                                           \
         {TX_BERT_QK, TX_EXTENT_WIDTH},                                                                              \
         .without = FLAG(share_att_key)},                                                                            \
        VECTOR(TX_BERT_DISTANCE_PROJ + 1, prefix SELF "pos_query_proj|pos_key_proj.bias", TX_BERT_QK, TX_STACK_ZERO, \
               .without = FLAG(share_att_key)),                                                                      \
        TX_BERT_REST(prefix)

static const tx_stack_row legacy_masked[] = {
    ENCODER(MODEL), TX_BERT_MASKED_HEAD(HEAD "transform.dense.", HEAD "transform.LayerNorm.", HEAD "bias")};
static const tx_stack_row masked[] = {ENCODER(MODEL),
                                      TX_BERT_MASKED_HEAD(NEW_HEAD "dense.", NEW_HEAD "LayerNorm.", NEW_HEAD "bias")};
static const tx_stack_row texts[] = {ENCODER(MODEL), TX_BERT_TEXT_HEAD(POOLER, CLASSIFIER)};
static const tx_stack_row tokens[] = {ENCODER(MODEL), TX_BERT_TOKEN_HEAD(CLASSIFIER)};
static const tx_stack_row choices[] = {ENCODER(MODEL), TX_BERT_CHOICE_HEAD(POOLER, CLASSIFIER)};
static const tx_stack_row answers[] = {ENCODER(MODEL), TX_BERT_QUESTION_HEAD};
static const tx_stack_row base[] = {ENCODER(""), {.name = NULL}};

#define FIRST_ENCODER(prefix)                                                                                         \
    OPENING(prefix), {TX_BERT_QKV_PROJ, prefix SELF "in_proj.weight", {TX_BERT_QKV, TX_EXTENT_WIDTH}, .in = NULL},    \
        VECTOR(TX_BERT_QUERY_BIAS, prefix SELF "q_bias", TX_EXTENT_WIDTH, TX_STACK_ZERO, .in = NULL),                 \
        VECTOR(TX_BERT_VALUE_BIAS, prefix SELF "v_bias", TX_EXTENT_WIDTH, TX_STACK_ZERO, .in = NULL),                 \
        {TX_BERT_DISTANCE_PROJ, prefix SELF "pos_q_proj|pos_proj.weight", {TX_BERT_QK, TX_EXTENT_WIDTH}, .in = NULL}, \
        VECTOR(TX_BERT_DISTANCE_BIAS, prefix SELF "pos_q_proj.bias", TX_EXTENT_WIDTH, TX_STACK_ZERO, .in = NULL),     \
        TX_BERT_REST(prefix)

static const tx_stack_row first_masked[] = {
    FIRST_ENCODER(MODEL), TX_BERT_MASKED_HEAD(HEAD "transform.dense.", HEAD "transform.LayerNorm.", HEAD "bias")};
static const tx_stack_row first_texts[] = {FIRST_ENCODER(MODEL), TX_BERT_TEXT_HEAD(POOLER, CLASSIFIER)};
static const tx_stack_row first_tokens[] = {FIRST_ENCODER(MODEL), TX_BERT_TOKEN_HEAD(CLASSIFIER)};
static const tx_stack_row first_base[] = {FIRST_ENCODER(""), {.name = NULL}};

/* As make_log_bucket_position of transformers, in the same precision. It counts distances from the key. */
static int32_t bucket(const tx_config *config, int64_t distance)
{
    const tx_bert_config *c = (const tx_bert_config *)config;
    const int64_t span = c->buckets / 2, middle = c->position_buckets / 2, most = c->max_relative_positions;
    const int64_t far = distance < 0 ? -distance : distance;
    int64_t row = far;
    if (c->position_buckets > 0 && far > middle) {
        const float whole = logf((float)((double)(most - 1) / (double)middle));
        row = (int64_t)ceilf(logf((float)far / (float)middle) / whole * (float)(middle - 1)) + middle;
    }
    row = span + (distance < 0 ? row : -row);
    return (int32_t)(row < 0 ? 0 : row < 2 * span ? row : 2 * span - 1);
}

/* Adds a bias [C] to columns at, .. of x. */
static tx_tensor *add_bias(tx_stack *b, tx_tensor *x, int32_t slot, int64_t at)
{
    const int64_t width = b->config->width;
    tx_tensor *bias = tx_stack_weight(b, slot);
    if (!x || !bias)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    const int64_t all = tx_shape_last(&shape);
    bias = tx_shift_rows(tx_reshape(bias, TX_SHAPE(1, width)), all, -at, 0);
    return bias ? tx_add(x, tx_broadcast(tx_reshape(bias, TX_SHAPE(all)), shape, TX_AXIS_ROWS)) : NULL;
}

/* The first version's query | key | value, whose heads have them adjacent. */
static tx_tensor *project(tx_stack *b, tx_tensor *x)
{
    const int64_t heads = b->config->heads, size = b->config->width / heads;
    tx_tensor *h = tx_bert_linear(b, x, TX_BERT_QKV_PROJ);
    if (!h)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(h);
    h = tx_reshape(tx_transpose(tx_reshape(h, TX_SHAPE(tx_shape_rows(&shape), heads, 3, size))), shape);
    h = add_bias(b, h, TX_BERT_QUERY_BIAS, 0);
    return add_bias(b, h, TX_BERT_VALUE_BIAS, 2 * b->config->width);
}

static tx_tensor *project_distances(tx_stack *b, tx_tensor *x)
{
    return add_bias(b, tx_bert_linear(b, x, TX_BERT_DISTANCE_PROJ), TX_BERT_DISTANCE_BIAS, 0);
}

#define KIND(name, masked_rows, ...)                                                                                \
    static const tx_bert_kind name = {.dropout_of_texts = true,                                                     \
                                      .disentangled = true,                                                         \
                                      .bucket = bucket,                                                             \
                                      .prefix = MODEL,                                                              \
                                      .heads = TX_BERT_NAMES("cls.", "lm_predictions.", "mask_predictions.",        \
                                                             "pooler.", MODEL "pooler.", CLASSIFIER, "qa_outputs.", \
                                                             MODEL "embeddings.position_embeddings."),              \
                                      .rows = {[TX_HEAD_MASKED_LM] = masked_rows,                                   \
                                               [TX_HEAD_SEQUENCE_CLASSIFICATION] = texts,                           \
                                               [TX_HEAD_TOKEN_CLASSIFICATION] = tokens,                             \
                                               [TX_HEAD_MULTIPLE_CHOICE] = choices,                                 \
                                               [TX_HEAD_QUESTION_ANSWERING] = answers,                              \
                                               [TX_HEAD_STATES] = base},                                            \
                                      .ties = {__VA_ARGS__}}
KIND(with_legacy, legacy_masked, {HEAD "decoder.weight", MODEL TX_BERT_WORDS}, {HEAD "decoder.bias", HEAD "bias"});
KIND(without_legacy, masked, {.copy = NULL});
static const tx_bert_kind first_version = {
    .dropout_of_texts = true,
    .disentangled = true,
    .bucket = bucket,
    .project = project,
    .project_distances = project_distances,
    .prefix = MODEL,
    .heads = TX_BERT_NAMES("cls.", "lm_predictions.", "pooler.", MODEL "pooler.", CLASSIFIER, "qa_outputs.",
                           MODEL "embeddings.position_embeddings."),
    TX_BERT_HEADS(first_masked, first_texts, first_tokens, NULL, NULL, first_base),
    .ties = {{HEAD "decoder.weight", MODEL TX_BERT_WORDS}, {HEAD "decoder.bias", HEAD "bias"}}};

/* ---- Configuration ------------------------------------------------------------------------------------- */

#define COUNT(name)                                                    \
    {                                                                  \
        TX_BERT_KEY(name, name), TX_KEY_INT, .min = -1, .max = 1 << 20 \
    }
#define SWITCH(name)                                 \
    {                                                \
        TX_BERT_KEY(name, name), .kind = TX_KEY_BOOL \
    }
#define KEYS_OF_ALL                                                                                                   \
    TX_BERT_COMMON_KEYS, TX_BERT_SIZE(hidden_size, base.width, 20), TX_BERT_SIZE(num_hidden_layers, base.layers, 12), \
        TX_BERT_SIZE(num_attention_heads, base.heads, 20), TX_BERT_SIZE(intermediate_size, intermediate_size, 22),    \
        {TX_BERT_KEY(type_vocab_size, type_vocab_size), TX_KEY_INT, .max = 1 << 20}, TX_BERT_ACT_KEY(hidden_act),     \
        {TX_BERT_KEY(pooler_hidden_act, head_act), TX_KEY_CHOICE, .max = TX_BERT_ACTS - 1, .words = tx_bert_acts},    \
        {TX_BERT_KEY(layer_norm_eps, layer_norm_eps), TX_KEY_NUMBER, .min = 1e-12, .max = 1},                         \
        TX_BERT_RATE(hidden_dropout_prob, hidden_dropout_prob),                                                       \
        TX_BERT_RATE(attention_probs_dropout_prob, attention_probs_dropout_prob),                                     \
        TX_BERT_RATE(pooler_dropout, pooler_dropout), COUNT(max_relative_positions), SWITCH(relative_attention),      \
        SWITCH(position_biased_input), SWITCH(legacy)
static const tx_config_key keys[] = {KEYS_OF_ALL, COUNT(position_buckets), SWITCH(share_att_key), {.name = NULL}};
static const tx_config_key first_keys[] = {KEYS_OF_ALL, {.name = NULL}};

static const tx_fixed_key fixed[] = {{"tie_word_embeddings", "true", "an untied decoder is not implemented"},
                                     {.name = NULL}};

/* Sets `has` if the key, a list or a text of names between bars, has the name. */
static tx_status read_names(const tx_json *json, const char *key, const char *name, bool *has)
{
    const tx_json *list = tx_json_find(json, key);
    const bool listed = list && tx_json_type_of(list) == TX_JSON_ARRAY;
    const char *text = "";
    *has = *has && !list;
    for (size_t i = 0; listed && i < tx_json_size(list); i++) {
        TX_TRY(tx_json_as_string(tx_json_at(list, i), key, &text));
        *has = *has || strcmp(text, name) == 0;
    }
    if (!listed)
        TX_TRY(TX_JSON_OPTIONAL(string, json, key, &text));
    *has = *has || strstr(text, name);
    return TX_OK;
}

/* Keys that must have the value which follows from others. */
static tx_status check_sizes(const tx_json *json, const tx_config *config)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"conv_kernel_size", 0},
                 {"embedding_size", config->width},
                 {"pooler_hidden_size", config->width},
                 {"attention_head_size", config->width / config->heads}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t value = sizes[i].value;
        TX_TRY(TX_JSON_OPTIONAL(int, json, sizes[i].key, 0, INT32_MAX, &value));
        if (value != sizes[i].value)
            return tx_fail(TX_UNSUPPORTED, "%s: %" PRId64 " is not implemented, only %" PRId64, sizes[i].key, value,
                           sizes[i].value);
    }
    return TX_OK;
}

static tx_status check_distances(const tx_bert_config *c, bool c2p, bool p2c)
{
    if (!c->relative_attention || !c2p || !p2c)
        return tx_fail(TX_UNSUPPORTED,
                       "relative_attention and pos_att_type: only true with \"c2p|p2c\" is implemented");
    if (c->position_buckets == 1 || c->max_relative_positions - 1 <= c->position_buckets / 2)
        return tx_fail(TX_INVALID, "position_buckets: %" PRId64 " does not fit max_relative_positions, %" PRId64,
                       c->position_buckets, c->max_relative_positions);
    return TX_OK;
}

static tx_status read_distances(const tx_json *json, tx_config *config)
{
    tx_bert_config *c = (tx_bert_config *)config;
    bool c2p = c->buckets > 0, p2c = c2p; /* the defaults have no buckets, and no pos_att_type */
    c->has_types = c->type_vocab_size > 0;
    TX_TRY(check_sizes(json, config));
    TX_TRY(read_names(json, "pos_att_type", "c2p", &c2p));
    TX_TRY(read_names(json, "pos_att_type", "p2c", &p2c));
    TX_TRY(TX_JSON_OPTIONAL(number, json, "cls_dropout", 0, 0.999, &c->classifier_dropout));
    if (c->max_relative_positions < 1)
        c->max_relative_positions = c->max_position_embeddings;
    TX_TRY(check_distances(c, c2p, p2c));
    c->buckets = 2 * (c->position_buckets > 0 ? c->position_buckets : c->max_relative_positions);
    return tx_bert_read_rest(json, config);
}

static tx_status read_rest(const tx_json *json, tx_config *config)
{
    tx_bert_config *c = (tx_bert_config *)config;
    c->kind = c->legacy ? &with_legacy : &without_legacy;
    TX_TRY(read_names(json, "norm_rel_ebd", "layer_norm", &c->norms_distances));
    return read_distances(json, config);
}

/* Published files of the first version lack "legacy", and have no other head. */
static tx_status read_first(const tx_json *json, tx_config *config)
{
    bool talks = false;
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "talking_head", &talks));
    if (talks || !((tx_bert_config *)config)->legacy)
        return tx_fail(TX_UNSUPPORTED, "%s is not implemented for this model type",
                       talks ? "talking_head" : "legacy: false");
    return read_distances(json, config);
}

static tx_status write_distances(const tx_config *config, tx_json *json)
{
    const tx_bert_config *c = (const tx_bert_config *)config;
    TX_TRY(tx_json_set_string(json, "pos_att_type", "p2c|c2p"));
    return c->classifier_dropout < 0.0 ? tx_json_set_null(json, "cls_dropout")
                                       : tx_json_set_number(json, "cls_dropout", c->classifier_dropout);
}

static tx_status write_rest(const tx_config *config, tx_json *json)
{
    const bool norms = ((const tx_bert_config *)config)->norms_distances;
    TX_TRY(tx_json_set_string(json, "norm_rel_ebd", norms ? "layer_norm" : "none"));
    return write_distances(config, json);
}

/* The defaults of both versions. */
#define OTHER_DEFAULTS                                                                                             \
    .pad_token_id = 0, .head_act = TX_BERT_GELU, .classifier_dropout = TX_BERT_NO_DROPOUT, .position_buckets = -1, \
    .max_relative_positions = -1, .position_biased_input = true, .legacy = true

static const tx_bert_config defaults = {
    TX_BERT_DEFAULTS(tx_deberta_v2_masked_lm, with_legacy, 128100, 1536, 1536, 24, 24, 6144, 0, 1e-7, -1, -1),
    OTHER_DEFAULTS};

TX_BERT_FAMILY(tx_deberta_v2, "DebertaV2", .type = "deberta-v2", .defaults = &defaults.base, .keys = keys,
               .fixed = fixed, .read = read_rest, .write = write_rest, .lora_targets = "query_proj,value_proj");

/* ---- The first version ----------------------------------------------------------------------------------- */

static const tx_bert_config first_defaults = {
    TX_BERT_DEFAULTS(tx_deberta_masked_lm, first_version, 50265, 768, 768, 12, 12, 3072, 0, 1e-7, -1, -1),
    OTHER_DEFAULTS};

#define ROW(name, CLASS, head, logits, ...)                                                                            \
    TX_BERT_ROW(tx_deberta_##name, "Deberta" CLASS, head, logits, .type = "deberta", .defaults = &first_defaults.base, \
                .keys = first_keys, .fixed = fixed, .read = read_first, .write = write_distances,                      \
                .lora_targets = "in_proj", __VA_ARGS__)
ROW(masked_lm, "ForMaskedLM", MASKED_LM, tx_bert_masked_logits, .check_weights = tx_bert_check_ties);
ROW(classifier, "ForSequenceClassification", SEQUENCE_CLASSIFICATION, tx_bert_label_logits, .lora_saved = "classifier");
ROW(token_classifier, "ForTokenClassification", TOKEN_CLASSIFICATION, tx_bert_label_logits, .lora_saved = "classifier");
ROW(base, "Model", STATES, tx_bert_states, .reads_last = false);
