/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT, RoBERTa, DistilBERT, ELECTRA, MPNet, DeBERTa and relatives with their heads. Next to input_ids the graph may
 * have token_type_ids, I32 [B, T]; the default is 0. DistilBERT and MPNet ignore it. */
#ifndef TX_MODELS_BERT_H
#define TX_MODELS_BERT_H

#include "models/arch/arch.h"

#define TX_BERT_DECLARE(name)                                                                                 \
    extern const tx_architecture name##_masked_lm, name##_classifier, name##_token_classifier, name##_choice, \
        name##_question, name##_base
TX_BERT_DECLARE(tx_bert);
TX_BERT_DECLARE(tx_roberta);
TX_BERT_DECLARE(tx_xlm_roberta);
TX_BERT_DECLARE(tx_camembert);
TX_BERT_DECLARE(tx_distilbert);
TX_BERT_DECLARE(tx_electra);
TX_BERT_DECLARE(tx_mpnet);
TX_BERT_DECLARE(tx_deberta_v2);
TX_BERT_DECLARE(tx_modernbert);

#endif
