/* SPDX-License-Identifier: Apache-2.0
 * Declares the rows of all model types. */
#ifndef TX_MODELS_FAMILIES_H
#define TX_MODELS_FAMILIES_H

#include "models/arch/arch.h"

/* X(suffix of a row): the rows of a type. */
#define TX_ROWS_ONE(X, name) X(name)
#define TX_ROWS_LM(X, name) X(name) X(name##_classifier)
#define TX_ROWS_STATES(X, name) X(name) X(name##_base)
#define TX_ROWS_ALL(X, name) X(name) X(name##_classifier) X(name##_base)
#define TX_ROWS_TEXTS(X, name) X(name##_masked_lm) X(name##_classifier) X(name##_token_classifier) X(name##_base)
#define TX_ROWS_ENCODER(X, name) \
    X(name##_masked_lm)          \
    X(name##_classifier) X(name##_token_classifier) X(name##_choice) X(name##_question) X(name##_base)

#define DECLARE(name) extern const tx_architecture tx_##name;
#define X(file, name, heads) TX_ROWS_##heads(DECLARE, name)
#include "models/arch/families.def"
#undef X
#undef DECLARE

#endif
