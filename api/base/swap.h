/* SPDX-License-Identifier: Apache-2.0
 *
 * A file without a name that memory is moved to and from, by threads beside the caller's: it is reserved on the disk
 * when it is made, and gone with the process, however that ends. */
#ifndef TX_API_SWAP_H
#define TX_API_SWAP_H

#include "tx.h"

/* Transfers whose place and length are multiples of this are the fastest: disks move such blocks. */
#define TX_SWAP_BLOCK 4096

typedef struct tx_swap tx_swap;

/* Reserves `bytes` of zeros in `folder`. TX_IO, or TX_NOT_FOUND, where the folder has no room, or is none. The page
 * cache is passed over where the file system can do that. */
tx_status tx_swap_create(const char *folder, int64_t bytes, tx_swap **swap);
/* Waits for what moves. NULL is fine. */
void tx_swap_free(tx_swap *swap);

/* Begins to move `bytes` from memory to byte `at` of the file (`out`), or back, when what was begun before with that
 * memory has ended. The memory is the transfer's until tx_swap_wait. Transfers of other memory are in no order, and two
 * that move at a time are not to write to the same block. */
tx_status tx_swap_begin(tx_swap *swap, bool out, int64_t at, void *memory, int64_t bytes);
/* Waits for what moves to or from that memory. TX_IO where any transfer so far failed, or moved less than it was to:
 * then all that follow fail too. */
tx_status tx_swap_wait(tx_swap *swap, const void *memory, int64_t bytes);

#endif
