/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the generation methods: batches of texts and beam search. */
#ifndef TX_GENERATE_RUN_H
#define TX_GENERATE_RUN_H

#include "models/generate/generate.h"
#include "models/generate/sample.h"
#include "models/generate/speculate.h"
#include "models/tx_batch.h"

struct tx_generator {
    tx_batch *texts; /* without beams; it owns the slots. Else NULL */
    tx_slots *slots; /* of the batch or of the beams */
    tx_comm *comm;   /* see tx_generator_options */
    int64_t batch, beams, context;
    tx_choice choice;
    int32_t *ids;                     /* [batch * beams, context]: prompts and new tokens */
    int32_t *slot, *tokens, *sources; /* [batch * beams]: inputs of a step */
};

/* A run of a generator. */
typedef struct tx_run {
    tx_generator *g;
    const tx_prompt *prompts;
    int64_t count;
    const tx_generation *how;
    const tx_sink *sink;
    uint64_t sample; /* number of the first text */
    int64_t row;     /* of the first text, for the sink */
} tx_run;

/* Maximum number of new tokens of text `row`. */
static inline int64_t tx_run_limit(const tx_run *run, int64_t row)
{
    return tx_generation_limit(run->how, run->prompts[row].count);
}

/* tx_slots_step, together with the ranks of the communicator, which may be NULL. */
tx_status tx_run_step(tx_slots *slots, tx_comm *comm, const int32_t *slot, const int32_t *tokens, int64_t count,
                      const int32_t *sources);
/* Computes steps whose results nobody reads until the texts of all these ranks have ended. */
tx_status tx_run_wait(tx_slots *slots, tx_comm *comm);

/* The language model that a batch occupies. */
typedef struct tx_batch_owner {
    tx_lm *lm;
    /* Opens the tokenizer and other parts that the settings of a request need, and completes these. */
    tx_status (*prepare)(tx_lm *lm, tx_generation *how);
    void (*release)(tx_lm *lm); /* when the batch is freed */
} tx_batch_owner;

/* Creates a batch over slots, which it owns from then on, also if this fails. Without an owner, pass NULL; then
 * requests have no stop strings. */
tx_status tx_batch_over(tx_slots *slots, const tx_generator_options *sizes, const tx_batch_owner *owner,
                        tx_batch **batch);
/* Forgets prompts of earlier requests, before the weights are others. No request may be left. */
void tx_batch_forget(tx_batch *batch);
const tx_speculator *tx_batch_speculator(const tx_batch *batch);
/* Whether a request that has not ended uses an adapter. */
bool tx_batch_uses(const tx_batch *batch, int64_t adapter);
tx_lm *tx_batch_lm(const tx_batch *batch); /* the owner's, or NULL */
tx_slots *tx_batch_slots(const tx_batch *batch);
/* Beam search (beam.c): finds the most likely text of each of at most `batch` prompts, and emits it. */
tx_status tx_run_beams(const tx_run *run);

#endif
