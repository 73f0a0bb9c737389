/* SPDX-License-Identifier: Apache-2.0
 *
 * MPNet (Song et al., MPNet: Masked and Permuted Pre-training for Language Understanding, 2020): RoBERTa without token
 * types, with a bias of the distance of two positions that all layers share (Raffel et al., T5, 2020). */
#include "models/arch/bert_stack.h"
#include "models/arch/labels.h"

#define MODEL "mpnet."
#define HEAD "lm_head."
#define CLASSIFIER "classifier."
#define LAYER "encoder.layer.%d."

static const tx_config_key keys[] = {
    TX_BERT_COMMON_KEYS,
    TX_BERT_SIZE(hidden_size, base.width, 20),
    TX_BERT_SIZE(num_hidden_layers, base.layers, 12),
    TX_BERT_SIZE(num_attention_heads, base.heads, 20),
    TX_BERT_SIZE(intermediate_size, intermediate_size, 22),
    TX_BERT_ACT_KEY(hidden_act),
    {TX_BERT_KEY(layer_norm_eps, layer_norm_eps), TX_KEY_NUMBER, .min = 1e-12, .max = 1},
    TX_BERT_RATE(hidden_dropout_prob, hidden_dropout_prob),
    TX_BERT_RATE(attention_probs_dropout_prob, attention_probs_dropout_prob),
    {TX_BERT_KEY(relative_attention_num_buckets, buckets), TX_KEY_INT, .min = 32, .max = 1 << 20},
    {.name = NULL}};

#define ENCODER(prefix)                                                                                     \
    TX_BERT_TABLES(prefix), TX_BERT_NORM(EMBED_NORM, prefix "embeddings.LayerNorm.", TX_BERT_EMBEDDING),    \
        {TX_BERT_DISTANCE_TABLE,                                                                            \
         prefix "encoder.relative_attention_bias.weight",                                                   \
         {TX_BERT_BUCKETS, TX_BERT_HEADS},                                                                  \
         .init = TX_STACK_NORMAL,                                                                           \
         .other_decay = true},                                                                              \
        TX_BERT_LINEAR(QKV_PROJ, prefix LAYER "attention.attn.q|k|v.", TX_BERT_QKV, TX_EXTENT_WIDTH, 1, 1), \
        TX_BERT_LINEAR(O_PROJ, prefix LAYER "attention.attn.o.", TX_EXTENT_WIDTH, TX_EXTENT_WIDTH, 2, 0),   \
        TX_BERT_NORM(ATTN_NORM, prefix LAYER "attention.LayerNorm.", TX_EXTENT_WIDTH),                      \
        TX_BERT_LINEAR(UP_PROJ, prefix LAYER "intermediate.dense.", TX_BERT_INNER, TX_EXTENT_WIDTH, 1, 1),  \
        TX_BERT_LINEAR(DOWN_PROJ, prefix LAYER "output.dense.", TX_EXTENT_WIDTH, TX_BERT_INNER, 2, 0),      \
        TX_BERT_NORM(MLP_NORM, prefix LAYER "output.LayerNorm.", TX_EXTENT_WIDTH)

static const tx_stack_row masked[] = {ENCODER(MODEL),
                                      TX_BERT_MASKED_HEAD(HEAD "dense.", HEAD "layer_norm.", HEAD "bias")};
static const tx_stack_row texts[] = {ENCODER(MODEL), TX_BERT_TEXT_HEAD(CLASSIFIER "dense.", CLASSIFIER "out_proj.")};
static const tx_stack_row tokens[] = {ENCODER(MODEL), TX_BERT_TOKEN_HEAD(CLASSIFIER)};
static const tx_stack_row choices[] = {ENCODER(MODEL), TX_BERT_CHOICE_HEAD(MODEL "pooler.dense.", CLASSIFIER)};
static const tx_stack_row answers[] = {ENCODER(MODEL), TX_BERT_QUESTION_HEAD};
static const tx_stack_row base[] = {ENCODER(""), {.name = NULL}};

/* As relative_position_bucket of transformers, whose number of rows no key changes. */
static int32_t bucket(const tx_config *config, int64_t distance)
{
    enum { ROWS = 32, FAR = 128 };
    (void)config;
    return tx_relative_row(distance, true, ROWS, FAR);
}

static const tx_bert_kind mpnet = {
    .counts_tokens = true,
    .input_dropout = true,
    .exact_gelu = true,
    .bucket = bucket,
    .prefix = MODEL,
    .heads = TX_BERT_NAMES(HEAD, MODEL "pooler.", CLASSIFIER, "qa_outputs."),
    TX_BERT_HEADS(masked, texts, tokens, choices, answers, base),
    .ties = {{HEAD "decoder.weight", MODEL TX_BERT_WORDS}, {HEAD "decoder.bias", HEAD "bias"}}};

static const tx_bert_config defaults = {
    TX_BERT_DEFAULTS(tx_mpnet_masked_lm, mpnet, 30527, 768, 768, 12, 12, 3072, 0, 1e-12, 0, 2), .pad_token_id = 1,
    .head_act = TX_BERT_TANH, .classifier_dropout = TX_BERT_NO_DROPOUT, .buckets = 32};

TX_BERT_FAMILY(tx_mpnet, "MPNet", .type = "mpnet", .defaults = &defaults.base, .keys = keys, .fixed = tx_bert_fixed,
               .read = tx_bert_read_rest, .lora_targets = "q,v");
