/* SPDX-License-Identifier: Apache-2.0
 *
 * ALBERT (Lan et al., ALBERT: A Lite BERT for Self-supervised Learning of Language Representations, 2020): BERT whose
 * layers share their weights, with embeddings of another size than the blocks. */
#include "models/arch/bert_stack.h"
#include "models/arch/labels.h"

#define MODEL "albert."
#define HEAD "predictions."
#define CLASSIFIER "classifier."
#define POOLER MODEL "pooler."
#define LAYER "encoder.albert_layer_groups.0.albert_layers.0."

/* The names of the layer lack the number of the block, so all blocks have the same parameters. */
#define ENCODER(prefix)                                                                                               \
    TX_BERT_TABLES(prefix),                                                                                           \
        TX_BERT_TABLE(TYPE_TABLE, prefix "embeddings.token_type_embeddings.weight", TX_BERT_TYPES),                   \
        TX_BERT_NORM(EMBED_NORM, prefix "embeddings.LayerNorm.", TX_BERT_EMBEDDING),                                  \
        TX_BERT_LINEAR(PROJECT, prefix "encoder.embedding_hidden_mapping_in.", TX_EXTENT_WIDTH, TX_BERT_EMBEDDING, 0, \
                       0),                                                                                            \
        TX_BERT_LINEAR(QKV_PROJ, prefix LAYER "attention.query|key|value.", TX_BERT_QKV, TX_EXTENT_WIDTH, 1, 1),      \
        TX_BERT_LINEAR(O_PROJ, prefix LAYER "attention.dense.", TX_EXTENT_WIDTH, TX_EXTENT_WIDTH, 2, 0),              \
        TX_BERT_NORM(ATTN_NORM, prefix LAYER "attention.LayerNorm.", TX_EXTENT_WIDTH),                                \
        TX_BERT_LINEAR(UP_PROJ, prefix LAYER "ffn.", TX_BERT_INNER, TX_EXTENT_WIDTH, 1, 1),                           \
        TX_BERT_LINEAR(DOWN_PROJ, prefix LAYER "ffn_output.", TX_EXTENT_WIDTH, TX_BERT_INNER, 2, 0),                  \
        TX_BERT_NORM(MLP_NORM, prefix LAYER "full_layer_layer_norm.", TX_EXTENT_WIDTH)

static const tx_stack_row masked[] = {ENCODER(MODEL),
                                      TX_BERT_MASKED_HEAD(HEAD "dense.", HEAD "LayerNorm.", HEAD "bias")};
static const tx_stack_row texts[] = {ENCODER(MODEL), TX_BERT_TEXT_HEAD(POOLER, CLASSIFIER)};
static const tx_stack_row tokens[] = {ENCODER(MODEL), TX_BERT_TOKEN_HEAD(CLASSIFIER)};
static const tx_stack_row choices[] = {ENCODER(MODEL), TX_BERT_CHOICE_HEAD(POOLER, CLASSIFIER)};
static const tx_stack_row answers[] = {ENCODER(MODEL), TX_BERT_QUESTION_HEAD};
static const tx_stack_row base[] = {ENCODER(""), {.name = NULL}};

static const tx_bert_kind albert = {
    .has_embedding_size = true,
    .undropped = true,
    .prefix = MODEL,
    .heads = TX_BERT_NAMES(HEAD, POOLER, "sop_classifier.", CLASSIFIER, "qa_outputs."),
    TX_BERT_HEADS(masked, texts, tokens, choices, answers, base),
    .ties = {{HEAD "decoder.weight", MODEL TX_BERT_WORDS}, {HEAD "decoder.bias", HEAD "bias"}}};

static const tx_config_key keys[] = {TX_BERT_KEYS,
                                     TX_BERT_SIZE(embedding_size, embedding_size, 20),
                                     TX_BERT_RATE(classifier_dropout_prob, classifier_dropout),
                                     {.name = NULL}};

/* One group of one layer is the only form of published models. */
static tx_status read(const tx_json *json, tx_config *config)
{
    int64_t one = 1;
    TX_TRY(TX_JSON_OPTIONAL(int, json, "num_hidden_groups", 1, 1, &one));
    TX_TRY(TX_JSON_OPTIONAL(int, json, "inner_group_num", 1, 1, &one));
    TX_TRY(tx_bert_read_rest(json, config));
    ((tx_bert_config *)config)->projects = true; /* also to the same size */
    return TX_OK;
}

static const tx_bert_config defaults = {
    TX_BERT_SIZES(tx_albert_masked_lm, albert, 30000, 128, 4096, 12, 64, 16384, 2, 1e-12, 2, 3),
    .max_position_embeddings = 512,
    .pad_token_id = 0,
    .projects = true,
    .hidden_act = TX_BERT_GELU_NEW,
    .head_act = TX_BERT_TANH,
    .classifier_dropout = 0.1};

/* peft has no default. */
TX_BERT_FAMILY(tx_albert, "Albert", .type = "albert", .defaults = &defaults.base, .keys = keys, .fixed = tx_bert_fixed,
               .read = read, .lora_targets = "query,value");
