/* SPDX-License-Identifier: Apache-2.0
 *
 * From the rows of a batch to the inputs of a plan, whose rows are shorter or belong to several ranks. */
#ifndef TX_TRAIN_NARROW_H
#define TX_TRAIN_NARROW_H

#include "models/task/task.h"

typedef struct tx_narrowing {
    const tx_task *task;
    int64_t block, positions; /* of a row of the batch, and of the plan */
    int64_t chunk, chunks;    /* this rank has chunks `chunk` and 2 `chunks` - 1 - `chunk` of each row's 2 `chunks` */
    int32_t *room;            /* for the values of a field; both types of fields have 4 bytes */
} tx_narrowing;

/* The values of a field for an input of this shape: the beginnings of the rows, or the two chunks of each. Places
 * become those in all rows of the plan. Returns `values` if they stay as they are, else n->room. */
const void *tx_narrow_rows(const tx_narrowing *n, int32_t field, const tx_shape *shape, const void *values);

#endif
