/* SPDX-License-Identifier: Apache-2.0
 *
 * A file without a name that memory is moved to and from, by threads beside the caller's: what lies in it is reserved
 * on the disk before, and it is gone with the process, however that ends. */
#ifndef TX_API_SWAP_H
#define TX_API_SWAP_H

#include "api/model/arena.h"

typedef struct tx_swap tx_swap;

/* Opens an empty file in `folder`; TX_IO, or TX_NOT_FOUND, where that cannot be. The page cache is passed over where
 * the file system can do that. */
tx_status tx_swap_create(const char *folder, tx_swap **swap);
/* Reserves `bytes` of zeros behind what the file has, at a multiple of TX_FILE_BLOCK, which it tells. TX_IO where the
 * folder has no room. */
tx_status tx_swap_reserve(tx_swap *swap, int64_t bytes, int64_t *at);
/* Waits for what moves. NULL is fine. */
void tx_swap_free(tx_swap *swap);

/* Begins to move `bytes` from memory to byte `at` of the file (`out`), or back, when what was begun before with that
 * memory has ended, and what writes to those bytes of the file, or reads what is now written. The memory is the
 * transfer's until tx_swap_wait. Other transfers are in no order. */
tx_status tx_swap_begin(tx_swap *swap, bool out, int64_t at, void *memory, int64_t bytes);
/* Waits for what moves to or from that memory. TX_IO where any transfer so far failed, or moved less than it was to:
 * then all that follow fail too. */
tx_status tx_swap_wait(tx_swap *swap, const void *memory, int64_t bytes);

#endif
