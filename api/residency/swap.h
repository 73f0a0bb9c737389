/* SPDX-License-Identifier: Apache-2.0
 *
 * An unnamed file to which memory is offloaded. Background threads transfer the data. Disk space is reserved before it
 * is used. The system deletes the file when the process ends in any way. */
#ifndef TX_API_SWAP_H
#define TX_API_SWAP_H

#include "api/model/arena.h"

typedef struct tx_swap tx_swap;

/* Opens an empty file in `folder`. Fails with TX_IO or TX_NOT_FOUND. Bypasses the page cache if the file system
 * supports it. */
tx_status tx_swap_create(const char *folder, tx_swap **swap);
/* Reserves `bytes` of zeros after the end of the file and returns their offset, a multiple of TX_FILE_BLOCK. Fails with
 * TX_IO if the disk is full. */
tx_status tx_swap_reserve(tx_swap *swap, int64_t bytes, int64_t *at);
/* Waits for all transfers, then closes the file. `swap` may be NULL. */
void tx_swap_free(tx_swap *swap);

/* Starts to copy `bytes` from memory to offset `at` of the file (`out`), or back. First it waits for earlier transfers
 * of the same memory, and for transfers that conflict in the file. The caller must not use the memory until
 * tx_swap_wait. Other transfers have no order. */
tx_status tx_swap_begin(tx_swap *swap, bool out, int64_t at, void *memory, int64_t bytes);
/* Waits for transfers of that memory. Fails with TX_IO if any transfer so far failed or was incomplete; then all later
 * calls fail too. */
tx_status tx_swap_wait(tx_swap *swap, const void *memory, int64_t bytes);

#endif
