/* SPDX-License-Identifier: Apache-2.0
 *
 * ELECTRA (Clark et al., ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators, 2020): BERT with
 * embeddings of another size than the blocks. The masked head belongs to the generator; the discriminator is the one
 * that is fine-tuned for classification. */
#include "models/arch/bert_stack.h"
#include "models/arch/labels.h"

#define MODEL "electra."
#define CLASSIFIER "classifier."
#define GENERATOR "generator_predictions."

static const tx_config_key keys[] = {TX_BERT_KEYS, TX_BERT_SIZE(embedding_size, embedding_size, 20), {.name = NULL}};

static const tx_stack_row masked[] = {
    TX_BERT_ENCODER(MODEL), TX_BERT_MASKED_HEAD(GENERATOR "dense.", GENERATOR "LayerNorm.", "generator_lm_head.bias")};
static const tx_stack_row texts[] = {TX_BERT_ENCODER(MODEL),
                                     TX_BERT_TEXT_HEAD(CLASSIFIER "dense.", CLASSIFIER "out_proj.")};
static const tx_stack_row tokens[] = {TX_BERT_ENCODER(MODEL), TX_BERT_TOKEN_HEAD(CLASSIFIER)};
static const tx_stack_row choices[] = {TX_BERT_ENCODER(MODEL),
                                       TX_BERT_CHOICE_HEAD("sequence_summary.summary.", CLASSIFIER)};
static const tx_stack_row answers[] = {TX_BERT_ENCODER(MODEL), TX_BERT_QUESTION_HEAD};
static const tx_stack_row base[] = {TX_BERT_ENCODER(""), {.name = NULL}};

static const tx_bert_kind electra = {
    .has_embedding_size = true,
    .input_dropout = true,
    .exact_gelu = true,
    .prefix = MODEL,
    .heads = TX_BERT_NAMES("generator_", "discriminator_predictions.", CLASSIFIER, "qa_outputs.", "sequence_summary."),
    TX_BERT_HEADS(masked, texts, tokens, choices, answers, base),
    .ties = {{"generator_lm_head.weight", MODEL TX_BERT_WORDS}}};

static const tx_bert_config defaults = {
    TX_BERT_DEFAULTS(tx_electra_masked_lm, electra, 30522, 128, 256, 12, 4, 1024, 2, 1e-12, -1, -1), .pad_token_id = 0,
    .projects = true, .head_act = TX_BERT_GELU, .classifier_dropout = TX_BERT_NO_DROPOUT};

TX_BERT_FAMILY(tx_electra, "Electra", .type = "electra", .defaults = &defaults.base, .keys = keys,
               .fixed = tx_bert_fixed, .read = tx_bert_read, .write = tx_bert_write, .lora_targets = "query,value");
