/* SPDX-License-Identifier: Apache-2.0
 *
 * The ids of all samples of a task, one after the other. More than TX_STORE_MEMORY of them are written to a file
 * without a name and read from there, so that data may be larger than memory. */
#ifndef TX_TASK_STORE_H
#define TX_TASK_STORE_H

#include "models/files/digest.h"
#include "models/task/task.h"
#include "models/tokenizer/bpe.h"

/* Ids in memory, at most. */
#define TX_STORE_MEMORY ((size_t)1 << 20)

/* Begin with {.folder}, in which the file is made. With NULL, or if the file cannot be made, all ids are in memory. */
typedef struct tx_store {
    const char *folder; /* not owned; used only by tx_store_add */
    const tx_reporter *report;
    int64_t count; /* of all ids */
    tx_ids held;   /* those after the ids in the file */
    int descriptor;
    int64_t written; /* ids in the file; 0 if there is none */
    bool refused;    /* the file could not be made */
} tx_store;

tx_status tx_store_add(tx_store *store, const int32_t *ids, size_t count);
/* Reads the ids first .. first + count - 1. Several threads may read at the same time. */
tx_status tx_store_read(const tx_store *store, int64_t first, int64_t count, int32_t *ids);
/* Adds all ids to a digest. */
tx_status tx_store_digest(const tx_store *store, tx_digest *digest);
void tx_store_free(tx_store *store);

#endif
