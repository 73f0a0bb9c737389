/* SPDX-License-Identifier: Apache-2.0
 *
 * ModernBERT with its heads. It has no token types. */
#ifndef TX_MODELS_MODERNBERT_H
#define TX_MODELS_MODERNBERT_H

#include "models/arch/arch.h"

extern const tx_architecture tx_modernbert_masked_lm, tx_modernbert_classifier, tx_modernbert_token_classifier,
    tx_modernbert_base;

#endif
