/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders an epoch so that rows of similar length follow each other, as transformers' LengthGroupedSampler does. The
 * shuffled samples are divided into groups of up to 50 batches. Each group is sorted by descending length, and the
 * longest row of all comes first. The order depends only on samples, batch, seed and epoch. */
#ifndef TX_TASK_GROUPING_H
#define TX_TASK_GROUPING_H

#include "models/task/task.h"

typedef struct tx_grouping tx_grouping;

/* A step has `batch` rows. The samples' task must have `length`. The caller frees the grouping. */
tx_status tx_grouping_create(const tx_samples *samples, int64_t batch, tx_grouping **grouping);
void tx_grouping_free(tx_grouping *grouping);
/* The sample at this position of the epoch. `order` is the shuffle. Several threads may call it at the same time. */
int64_t tx_grouping_at(tx_grouping *grouping, const tx_sample_order *order, int64_t place);

#endif
