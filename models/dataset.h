/* SPDX-License-Identifier: Apache-2.0
 *
 * A text as training blocks: its tokens are laid end to end and cut into blocks of equal length, what is left
 * over is dropped. The label of position t is the token at t + 1; the last position of a block has none. */
#ifndef TX_MODELS_DATASET_H
#define TX_MODELS_DATASET_H

#include "tx.h"

typedef struct tx_dataset tx_dataset;

/* Reads a file whose bytes are the tokens (ids 0..255) and cuts it into blocks of `block` tokens (at least 2).
 * Fails where the file cannot be read, is empty or does not fill one block. The caller frees. */
tx_status tx_dataset_read_bytes(const char *path, int64_t block, tx_dataset **dataset);
void tx_dataset_free(tx_dataset *dataset);

int64_t tx_dataset_block(const tx_dataset *dataset);  /* tokens in a block */
int64_t tx_dataset_blocks(const tx_dataset *dataset); /* number of blocks */
int64_t tx_dataset_tokens(const tx_dataset *dataset); /* of the file, before cutting */

/* The order in which an epoch visits the blocks. It depends on (seed, epoch, number of blocks) alone and is
 * computed place by place, so that any rank and any resumed run sees the same one. */
typedef struct tx_order {
    bool shuffle; /* false: as in the file */
    uint64_t seed;
    uint64_t epoch;
} tx_order;

/* Which of `count` items stands at `place` (0 <= place < count): a bijection. */
int64_t tx_order_at(const tx_order *order, int64_t count, int64_t place);

/* Writes the blocks at places first..first+rows-1 of the order to tokens and labels [rows, block]. Rows beyond
 * the last block are padding: token 0, every label TX_IGNORE_LABEL. Returns the number of real rows. */
int64_t tx_dataset_rows(const tx_dataset *dataset, const tx_order *order, int64_t first, int64_t rows, int32_t *tokens,
                        int32_t *labels);

#endif
