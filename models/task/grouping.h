/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of an epoch in which rows of similar length follow each other, as in transformers' LengthGroupedSampler:
 * the shuffled samples are cut into groups of up to 50 batches, each group is sorted from its longest row to its
 * shortest, and the longest row of all comes first. It depends on the samples, the batch, the seed and the epoch only.
 */
#ifndef TX_TASK_GROUPING_H
#define TX_TASK_GROUPING_H

#include "models/task/task.h"

typedef struct tx_grouping tx_grouping;

/* `batch`: rows of a step. The samples' task must have `length`. The caller frees the grouping. */
tx_status tx_grouping_create(const tx_samples *samples, int64_t batch, tx_grouping **grouping);
void tx_grouping_free(tx_grouping *grouping);
/* The sample at this place of the epoch; `order` is the shuffle. Several threads may call it at once. */
int64_t tx_grouping_at(tx_grouping *grouping, const tx_sample_order *order, int64_t place);

#endif
