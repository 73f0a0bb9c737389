/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter that the ranks of a tensor group, an expert group or both divide: which elements of the whole a rank has.
 * It has the same run of each section of the split dimension, and its own array holds them in the order of the whole.
 * Of a section of fewer units than ranks neighbours have the same run, replicas. */
#ifndef TX_API_SPLIT_H
#define TX_API_SPLIT_H

#include "api/model/model.h"

/* The whole as rows of `row` elements, of each of which the rank has `runs` runs. */
typedef struct tx_param_split {
    int64_t row;
    int32_t runs;
    int64_t first[TX_MAX_SECTIONS], count[TX_MAX_SECTIONS]; /* elements */
    int64_t begin, end;                                     /* of the whole: none before or behind is the rank's */
    int32_t replicas[TX_MAX_SECTIONS],
        replica[TX_MAX_SECTIONS]; /* ranks that have the run, this one's number of them */
} tx_param_split;

/* Of a rank's own elements some that lie together, which as many ranks have. */
typedef struct tx_param_stretch {
    int64_t first, count;
    int32_t replicas, replica;
} tx_param_stretch;

/* `whole` has a dimension that can be divided among `parts` ranks. */
tx_param_split tx_param_split_of(const tx_param_spec *whole, int32_t dimension, int32_t part, int32_t parts);
/* What this rank has of a parameter: of its experts its part. */
tx_param_split tx_param_own(const tx_param_record *param);
/* How many of the elements before number `end` of the whole are the rank's. */
int64_t tx_param_split_before(const tx_param_split *split, int64_t end);
/* Of elements first .. first + count - 1 of the whole those of the rank, side by side: from `whole`, or to it, where
 * of replicas the first alone puts them. */
void tx_param_split_take(const tx_param_split *split, int64_t first, int64_t count, const float *whole, float *own);
void tx_param_split_put(const tx_param_split *split, int64_t first, int64_t count, const float *own, float *whole);
/* What this rank has of a parameter, stretch by stretch: the one that begins with run *run, at first 0. False: there is
 * none. */
bool tx_param_stretch_at(const tx_param_record *param, int32_t *run, tx_param_stretch *stretch);

#endif
