/* SPDX-License-Identifier: Apache-2.0
 *
 * DistilBERT (Sanh et al., DistilBERT, a distilled version of BERT, 2019): BERT without token types, under its own
 * names, with ReLU in the head of sequence classification. */
#include "models/arch/bert_stack.h"
#include "models/arch/labels.h"

#define MODEL "distilbert."
#define LAYER "transformer.layer.%d."
#define CLASSIFIER "classifier."

static const tx_config_key keys[] = {TX_BERT_COMMON_KEYS,
                                     TX_BERT_SIZE(dim, base.width, 20),
                                     TX_BERT_SIZE(n_layers, base.layers, 12),
                                     TX_BERT_SIZE(n_heads, base.heads, 20),
                                     TX_BERT_SIZE(hidden_dim, intermediate_size, 22),
                                     TX_BERT_ACT_KEY(activation),
                                     TX_BERT_RATE(dropout, hidden_dropout_prob),
                                     TX_BERT_RATE(attention_dropout, attention_probs_dropout_prob),
                                     TX_BERT_RATE(seq_classif_dropout, classifier_dropout),
                                     TX_BERT_RATE(qa_dropout, qa_dropout),
                                     {.name = NULL}};

static const tx_fixed_key fixed[] = {
    {"sinusoidal_pos_embds", "false", "sinusoidal positions are not implemented"},
    {"tie_word_embeddings", "true", "an untied decoder is not implemented"},
    {.name = NULL},
};

#define ENCODER(prefix)                                                                                            \
    TX_BERT_TABLES(prefix), TX_BERT_NORM(EMBED_NORM, prefix "embeddings.LayerNorm.", TX_BERT_EMBEDDING),           \
        TX_BERT_LINEAR(QKV_PROJ, prefix LAYER "attention.q_lin|k_lin|v_lin.", TX_BERT_QKV, TX_EXTENT_WIDTH, 1, 1), \
        TX_BERT_LINEAR(O_PROJ, prefix LAYER "attention.out_lin.", TX_EXTENT_WIDTH, TX_EXTENT_WIDTH, 2, 0),         \
        TX_BERT_NORM(ATTN_NORM, prefix LAYER "sa_layer_norm.", TX_EXTENT_WIDTH),                                   \
        TX_BERT_LINEAR(UP_PROJ, prefix LAYER "ffn.lin1.", TX_BERT_INNER, TX_EXTENT_WIDTH, 1, 1),                   \
        TX_BERT_LINEAR(DOWN_PROJ, prefix LAYER "ffn.lin2.", TX_EXTENT_WIDTH, TX_BERT_INNER, 2, 0),                 \
        TX_BERT_NORM(MLP_NORM, prefix LAYER "output_layer_norm.", TX_EXTENT_WIDTH)

static const tx_stack_row masked[] = {
    ENCODER(MODEL), TX_BERT_MASKED_HEAD("vocab_transform.", "vocab_layer_norm.", "vocab_projector.bias")};
static const tx_stack_row texts[] = {ENCODER(MODEL), TX_BERT_TEXT_HEAD("pre_classifier.", CLASSIFIER)};
static const tx_stack_row tokens[] = {ENCODER(MODEL), TX_BERT_TOKEN_HEAD(CLASSIFIER)};
static const tx_stack_row choices[] = {ENCODER(MODEL), TX_BERT_CHOICE_HEAD("pre_classifier.", CLASSIFIER)};
static const tx_stack_row answers[] = {ENCODER(MODEL), TX_BERT_QUESTION_HEAD};
static const tx_stack_row base[] = {ENCODER(""), {.name = NULL}};

static const tx_bert_kind distilbert = {.dropout_of_texts = true,
                                        .prefix = MODEL,
                                        .heads = TX_BERT_NAMES("vocab_", "pre_classifier.", CLASSIFIER, "qa_outputs."),
                                        TX_BERT_HEADS(masked, texts, tokens, choices, answers, base),
                                        .ties = {{"vocab_projector.weight", MODEL TX_BERT_WORDS}}};

static const tx_bert_config defaults = {
    TX_BERT_DEFAULTS(tx_distilbert_masked_lm, distilbert, 30522, 768, 768, 6, 12, 3072, 0, 1e-12, -1, -1),
    .pad_token_id = 0, .head_act = TX_BERT_RELU, .classifier_dropout = 0.2, .qa_dropout = 0.1};

/* Files without token types are those of this type. */
static const tx_gguf_family gguf = {
    .architecture = "bert", .scheme = &tx_bert_gguf, .without = {TX_GGUF_TYPES}, .gelu = "activation"};

TX_BERT_FAMILY(tx_distilbert, "DistilBert", .type = "distilbert", .defaults = &defaults.base, .keys = keys,
               .fixed = fixed, .read = tx_bert_read_rest, .lora_targets = "q_lin,v_lin", .gguf = &gguf);
