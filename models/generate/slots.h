/* SPDX-License-Identifier: Apache-2.0
 *
 * The plans of continuous batching: KV caches with a slot for each sequence, prefill plans that compute a piece of one
 * prompt, and decode plans that compute one token for each of some slots. */
#ifndef TX_GENERATE_SLOTS_H
#define TX_GENERATE_SLOTS_H

#include "models/arch/arch.h"

typedef struct tx_slots tx_slots;

/* Creates `count` slots of `context` tokens each. Building the graphs declares the parameters, so create it before the
 * weights are loaded, and free it before the model. */
tx_status tx_slots_create(tx_model *model, const tx_config *config, int64_t count, int64_t context, tx_slots **slots);
void tx_slots_free(tx_slots *slots);
/* Finds the decode plans whose logits equal those of the largest plan to the bit, and keeps only them. So a sequence
 * gets the same logits whatever the other slots do. Call it once, after the weights are loaded. */
tx_status tx_slots_prove(tx_slots *slots);

/* Computes the next piece of a prompt into a slot, from ids[first] on, and adds the piece's length to `*first`. The
 * slot's logits are valid when `*first` reaches count. `all` receives the logits of the piece's tokens, row by row with
 * *stride elements, until the next call; pass NULL if only the last are needed. */
tx_status tx_slots_prefill(tx_slots *slots, int64_t slot, const int32_t *ids, int64_t count, int64_t *first,
                           const float **all, int64_t *stride);
/* Appends tokens[i] to slots[i], `count` different slots with computed prompts. Other slots that have a prompt keep it.
 */
tx_status tx_slots_step(tx_slots *slots, const int32_t *slot, const int32_t *tokens, int64_t count);
/* Empties a slot. */
void tx_slots_clear(tx_slots *slots, int64_t slot);
/* Logits [vocab_size] for the token after the last one of a slot. They live until the slot's next token. */
const float *tx_slots_logits(const tx_slots *slots, int64_t slot);
int64_t tx_slots_vocab(const tx_slots *slots);
/* Tokens that a slot can hold. */
int64_t tx_slots_context(const tx_slots *slots);

#endif
