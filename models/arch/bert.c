/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT (Devlin et al., 2019), RoBERTa (Liu et al., 2019), and the models with RoBERTa's network: XLM-RoBERTa (Conneau
 * et al., 2020) and CamemBERT (Martin et al., 2020).
 *
 * RoBERTa differs from BERT in names, heads and positions. Its positions skip padding and start after pad_token_id, so
 * the first pad_token_id + 1 rows of its position table are unused. */
#include "models/arch/bert_stack.h"
#include "models/arch/labels.h"

#define CLASSIFIER "classifier."
#define BERT "bert."
#define BERT_HEAD "cls.predictions."
#define ROBERTA "roberta."
#define ROBERTA_HEAD "lm_head."

static const tx_config_key keys[] = {TX_BERT_KEYS, {.name = NULL}};

/* ---- BERT -------------------------------------------------------------------------------------------- */

static const tx_stack_row bert_masked[] = {
    TX_BERT_ENCODER(BERT),
    TX_BERT_MASKED_HEAD(BERT_HEAD "transform.dense.", BERT_HEAD "transform.LayerNorm.", BERT_HEAD "bias")};
static const tx_stack_row bert_texts[] = {TX_BERT_ENCODER(BERT), TX_BERT_TEXT_HEAD(BERT "pooler.dense.", CLASSIFIER)};
static const tx_stack_row bert_tokens[] = {TX_BERT_ENCODER(BERT), TX_BERT_TOKEN_HEAD(CLASSIFIER)};
static const tx_stack_row bert_choices[] = {TX_BERT_ENCODER(BERT),
                                            TX_BERT_CHOICE_HEAD(BERT "pooler.dense.", CLASSIFIER)};
static const tx_stack_row bert_answers[] = {TX_BERT_ENCODER(BERT), TX_BERT_QUESTION_HEAD};
static const tx_stack_row base[] = {TX_BERT_ENCODER(""), {.name = NULL}}; /* also RoBERTa's */

static const tx_bert_kind bert = {
    .prefix = BERT,
    .heads = TX_BERT_NAMES("cls.", BERT "pooler.", CLASSIFIER, "qa_outputs."),
    TX_BERT_HEADS(bert_masked, bert_texts, bert_tokens, bert_choices, bert_answers, base),
    .ties = {{BERT_HEAD "decoder.weight", BERT TX_BERT_WORDS}, {BERT_HEAD "decoder.bias", BERT_HEAD "bias"}}};

#define DEFAULTS(name, row, kind, vocab, bos, eos, pad)                                                        \
    static const tx_bert_config name##_defaults = {                                                            \
        TX_BERT_DEFAULTS(row, kind, vocab, 768, 768, 12, 12, 3072, 2, 1e-12, bos, eos), .pad_token_id = (pad), \
        .head_act = TX_BERT_TANH, .classifier_dropout = TX_BERT_NO_DROPOUT}
DEFAULTS(bert, tx_bert_masked_lm, bert, 30522, -1, -1, 0);

/* Files have the encoder. Those of RoBERTa and its relatives lack the positions of padding, so they become a BERT. */
static const tx_gguf_family gguf = {
    .architecture = "bert", .scheme = &tx_bert_gguf, .with = TX_GGUF_TYPES, .gelu = "hidden_act"};
static const tx_gguf_family roberta_gguf = {
    .architecture = "bert", .scheme = &tx_bert_gguf, .export_only = true, .gelu = "hidden_act"};

static const tx_preset presets[] = {{"bert-base", ""}, {.name = NULL}};

#define ROW(name, type_, gguf_)                                                                                   \
    .type = type_, .defaults = &name##_defaults.base, .keys = keys, .fixed = tx_bert_fixed, .read = tx_bert_read, \
    .write = tx_bert_write, .lora_targets = "query,value", .gguf = &(gguf_)

TX_BERT_FAMILY(tx_bert, "Bert", ROW(bert, "bert", gguf), .presets = presets);

/* ---- RoBERTa ----------------------------------------------------------------------------------------- */

static const tx_stack_row roberta_masked[] = {
    TX_BERT_ENCODER(ROBERTA),
    TX_BERT_MASKED_HEAD(ROBERTA_HEAD "dense.", ROBERTA_HEAD "layer_norm.", ROBERTA_HEAD "bias")};
static const tx_stack_row roberta_texts[] = {TX_BERT_ENCODER(ROBERTA),
                                             TX_BERT_TEXT_HEAD(CLASSIFIER "dense.", CLASSIFIER "out_proj.")};
static const tx_stack_row roberta_tokens[] = {TX_BERT_ENCODER(ROBERTA), TX_BERT_TOKEN_HEAD(CLASSIFIER)};

static const tx_stack_row roberta_choices[] = {TX_BERT_ENCODER(ROBERTA),
                                               TX_BERT_CHOICE_HEAD(ROBERTA "pooler.dense.", CLASSIFIER)};
static const tx_stack_row roberta_answers[] = {TX_BERT_ENCODER(ROBERTA), TX_BERT_QUESTION_HEAD};

static const tx_bert_kind roberta = {
    .counts_tokens = true,
    .input_dropout = true,
    .exact_gelu = true,
    .prefix = ROBERTA,
    .heads = TX_BERT_NAMES(ROBERTA_HEAD, ROBERTA "pooler.", CLASSIFIER, "qa_outputs."),
    TX_BERT_HEADS(roberta_masked, roberta_texts, roberta_tokens, roberta_choices, roberta_answers, base),
    .ties = {{ROBERTA_HEAD "decoder.weight", ROBERTA TX_BERT_WORDS},
             {ROBERTA_HEAD "decoder.bias", ROBERTA_HEAD "bias"}}};

DEFAULTS(roberta, tx_roberta_masked_lm, roberta, 50265, 0, 2, 1);
DEFAULTS(xlm_roberta, tx_xlm_roberta_masked_lm, roberta, 30522, 0, 2, 1);
DEFAULTS(camembert, tx_camembert_masked_lm, roberta, 30522, 0, 2, 1);

TX_BERT_FAMILY(tx_roberta, "Roberta", ROW(roberta, "roberta", roberta_gguf));
TX_BERT_FAMILY(tx_xlm_roberta, "XLMRoberta", ROW(xlm_roberta, "xlm-roberta", roberta_gguf));
TX_BERT_FAMILY(tx_camembert, "Camembert", ROW(camembert, "camembert", roberta_gguf));
