/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter that the ranks of a tensor group or an expert group divide: which elements of the whole a rank has. It
 * has the same run of each section of the split dimension, and its own array holds them in the order of the whole. */
#ifndef TX_API_SPLIT_H
#define TX_API_SPLIT_H

#include "tx.h"

/* The whole as rows of `row` elements, of each of which the rank has `runs` runs. */
typedef struct tx_param_split {
    int64_t row;
    int32_t runs;
    int64_t first[TX_MAX_SECTIONS], count[TX_MAX_SECTIONS]; /* elements */
} tx_param_split;

/* `whole` has a dimension that can be divided among `parts` ranks. */
tx_param_split tx_param_split_of(const tx_param_spec *whole, int32_t dimension, int32_t part, int32_t parts);
/* How many of the elements before number `end` of the whole are the rank's. */
int64_t tx_param_split_before(const tx_param_split *split, int64_t end);
/* Of elements first .. first + count - 1 of the whole those of the rank, side by side: from `whole`, or to it. */
void tx_param_split_take(const tx_param_split *split, int64_t first, int64_t count, const float *whole, float *own);
void tx_param_split_put(const tx_param_split *split, int64_t first, int64_t count, const float *own, float *whole);

#endif
