/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses a token from logits as transformers' processors and warpers do, in their order: repetition_penalty and
 * min_new_tokens or min_length; for sampling also temperature, top_k, top_p, min_p and typical_p. OpenAI's penalties,
 * DRY and biases follow the repetition penalty, and XTC comes last. */
#ifndef TX_GENERATE_SAMPLE_H
#define TX_GENERATE_SAMPLE_H

#include "models/generate/ranked.h"
#include "models/grammar/constraint.h"

/* The tokens before the one that is chosen. */
typedef struct tx_history {
    const int32_t *ids; /* prompt and new tokens */
    int64_t count;
    int64_t generated;         /* number of new tokens among them */
    uint64_t sample;           /* number of the text; random numbers depend only on seed, sample and `generated` */
    const tx_allowed *allowed; /* tokens; NULL allows all */
} tx_history;

/* Scratch memory for choosing a token. Begin with {0}. */
typedef struct tx_choice {
    int64_t vocab;
    float *largest;           /* of each block of scores */
    float *scores, *nearness; /* adjusted scores; nearness to the mean information, for typical_p */
    tx_scored *items, *spare;
    double *weights; /* by id, of the tokens that may be drawn */
    double *sums;    /* of tx_ranked; NULL for a small vocabulary */
} tx_choice;

tx_status tx_choice_create(int64_t vocab, tx_choice *choice);
void tx_choice_free(tx_choice *choice);

/* Fails if one of the logits [vocab] is not finite. */
tx_status tx_scores_check(const float *logits, int64_t vocab);
/* Copies the scores of allowed tokens to scores [vocab], and applies the penalties, the biases and the smallest length.
 */
tx_status tx_scores_adjust(const tx_generation *how, const tx_history *history, const float *from, int64_t vocab,
                           float *scores);
/* Chooses a token from logits [vocab]. TX_UNSUPPORTED if none is allowed. */
tx_status tx_sample(const tx_generation *how, const tx_history *history, const float *logits, tx_choice *choice,
                    int32_t *id);
/* log of the sum of exp(logits). */
double tx_log_sum(const float *logits, int64_t vocab);

#endif
