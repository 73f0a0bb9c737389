/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that holds the weights and states of a checkpoint while a thread writes them to disk. They then do not pass
 * through the page cache. The memory is kept for the next checkpoint, since new pages cost time. */
#ifndef TX_FILES_STAGE_H
#define TX_FILES_STAGE_H

#include "tx.h"

typedef struct tx_stage tx_stage;

/* If not NULL, safetensors files that this thread writes are placed there, for tx_checkpoint_commit. */
extern _Thread_local tx_stage *tx_stage_used;

tx_status tx_stage_create(tx_stage **stage);
void tx_stage_free(tx_stage *stage); /* NULL is fine */

/* Returns memory for a file of `bytes` bytes, which the caller fills; it is aligned to pages. Returns NULL if the
 * system has not twice as much memory left: then write the file itself. */
char *tx_stage_place(tx_stage *stage, const char *path, int64_t bytes);
/* Creates the files that were placed, and writes them past the page cache if the file system can. */
tx_status tx_stage_write(const tx_stage *stage);
/* Returns the contents of a file that was placed, or NULL. */
const char *tx_stage_data(const tx_stage *stage, const char *path);
/* Forgets the files. */
void tx_stage_clear(tx_stage *stage);

#endif
