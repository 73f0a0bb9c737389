/* SPDX-License-Identifier: Apache-2.0
 *
 * Draft tokens: likely next tokens of a text, which a batch then computes in one pass. */
#ifndef TX_GENERATE_SPECULATE_H
#define TX_GENERATE_SPECULATE_H

#include "models/generate/sample.h"
#include "models/generate/slots.h"

typedef struct tx_speculator {
    tx_slots *draft; /* slots of a smaller model, whose first slot is used; NULL copies earlier tokens */
    int64_t vocab;
    tx_choice choice;
    int64_t drafted, accepted; /* of all texts */
} tx_speculator;

/* Fails unless all tokens of a smaller model have the same ids as in the larger one. */
tx_status tx_speculator_check(const tx_tokenizer *draft, const tx_tokenizer *tokenizer);
/* `vocab` is that of the model that computes the draft tokens. The caller calls tx_speculator_close, also after a
 * failure.
 */
tx_status tx_speculator_open(tx_speculator *speculator, tx_slots *draft, int64_t vocab);
void tx_speculator_close(tx_speculator *speculator);
/* Proposes up to `*count` tokens after those of `at`, writes them after at.ids, which is `ids`, and sets `*count` to
 * their number. A smaller model chooses as tx_sample does for the larger one, with the same random numbers. */
tx_status tx_speculate(tx_speculator *speculator, const tx_generation *how, tx_history at, int32_t *ids,
                       int64_t *count);

#endif
