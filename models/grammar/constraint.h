/* SPDX-License-Identifier: Apache-2.0
 *
 * A text that follows a grammar. */
#ifndef TX_GRAMMAR_CONSTRAINT_H
#define TX_GRAMMAR_CONSTRAINT_H

#include "models/tx_grammar.h"

/* Only one thread at a time may use it. */
typedef struct tx_constraint tx_constraint;

/* The tokens that may follow: bit id % 32 of word id / 32 for the ids below `count`, the tokenizer's. */
typedef struct tx_allowed {
    const uint32_t *bits; /* valid until the next call */
    int64_t count;
    bool ends; /* the text may end here */
} tx_allowed;

/* Begins a text. The grammar must outlive it. The caller frees. */
tx_status tx_constraint_create(const tx_grammar *grammar, tx_constraint **constraint);
void tx_constraint_free(tx_constraint *constraint); /* NULL is fine */
/* TX_UNSUPPORTED if the grammar is too ambiguous to follow. */
tx_status tx_constraint_allowed(tx_constraint *constraint, tx_allowed *allowed);
/* Adds a token to the text. TX_INVALID if it may not follow. `*complete` is true if no other may follow. */
tx_status tx_constraint_add(tx_constraint *constraint, int32_t id, bool *complete);
/* Fails as tx_constraint_allowed would, if the ambiguity shows early. */
tx_status tx_constraint_probe(const tx_grammar *grammar);

#endif
