/* SPDX-License-Identifier: Apache-2.0
 *
 * From scores to a token, as transformers' processors and warpers do it and in their order: repetition_penalty,
 * min_new_tokens; then, where tokens are drawn, temperature, top_k, top_p. */
#ifndef TX_GENERATE_SAMPLE_H
#define TX_GENERATE_SAMPLE_H

#include "models/generate/generate.h"

/* What was there before the token that is chosen. */
typedef struct tx_history {
    const int32_t *ids; /* prompt and new tokens */
    int64_t count;
    int64_t generated; /* how many of them are new */
    uint64_t sample;   /* number of the text; draws depend on seed, sample and `generated` alone */
} tx_history;

typedef struct tx_scored {
    float score;
    int32_t id;
} tx_scored;

/* Scratch memory of one choice, over a vocabulary. Begin with {0}. */
typedef struct tx_choice {
    int64_t vocab;
    float *scores;
    tx_scored *heap;
} tx_choice;

tx_status tx_choice_create(int64_t vocab, tx_choice *choice);
void tx_choice_free(tx_choice *choice);

/* Refuses logits [vocab] that are no numbers. */
tx_status tx_scores_check(const float *logits, int64_t vocab);
/* scores [vocab]: `from` with the penalty on what is there, and -inf for ends that come too early. */
void tx_scores_adjust(const tx_generation *how, const tx_history *history, const float *from, int64_t vocab,
                      float *scores);
/* Chooses a token by logits [vocab]. */
tx_status tx_sample(const tx_generation *how, const tx_history *history, const float *logits, tx_choice *choice,
                    int32_t *id);

#endif
