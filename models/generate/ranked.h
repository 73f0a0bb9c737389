/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens ordered by a number, without sorting all of them: sums of weights in buckets find the bucket of a token, and
 * only that is sorted. */
#ifndef TX_GENERATE_RANKED_H
#define TX_GENERATE_RANKED_H

#include "models/generate/generate.h"

/* One for each value of the upper half of a float. */
#define TX_BUCKETS 65536

typedef struct tx_scored {
    float score;
    int32_t id;
} tx_scored;

/* Sorts by ascending score, equal scores by descending id. If `ordered`, the ids descend already. Returns the array
 * with the result, `items` or `spare`. */
tx_scored *tx_scored_sort(tx_scored *items, tx_scored *spare, int64_t count, bool ordered);

/* The tokens 0..count-1 by descending score, equal scores by ascending id. */
typedef struct tx_ranked {
    const float *scores;   /* [count] */
    const double *weights; /* [count], not negative */
    int64_t count;
    double least;             /* tokens with less weight are left out */
    double *sums;             /* [TX_BUCKETS]: scratch, as the next two */
    tx_scored *items, *spare; /* [count] */
} tx_ranked;

/* A token, and the sum of the weights up to it, in this order. */
typedef struct tx_ranked_place {
    int32_t id;
    double sum;
} tx_ranked_place;

/* Adds the weights to the sums of their buckets. Returns the sum of all. */
double tx_ranked_sum(const tx_ranked *ranked);
/* After that finds the first token up to which the sum exceeds `wanted`; with `ties` the last one of equal score.
 * Returns false if there is none, or if an error of `margin` in a sum may change it. */
bool tx_ranked_find(const tx_ranked *ranked, double wanted, double margin, bool ties, tx_ranked_place *place);

#endif
