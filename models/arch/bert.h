/* SPDX-License-Identifier: Apache-2.0
 * BERT and RoBERTa with their heads. Next to input_ids the graph may have token_type_ids, I32 [B, T]; the default is 0.
 */
#ifndef TX_MODELS_BERT_H
#define TX_MODELS_BERT_H

#include "models/arch/arch.h"

extern const tx_architecture tx_bert_masked_lm, tx_bert_classifier;
extern const tx_architecture tx_roberta_masked_lm, tx_roberta_classifier;

#endif
