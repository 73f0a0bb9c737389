/* SPDX-License-Identifier: Apache-2.0
 * Bytes of arenas, as they are stored, between the host and where they lie: in one piece, or of WEIGHTS and FROZEN of
 * which ranks have shards (ZeRO's stage 3) in these. */
#ifndef TX_API_STORED_H
#define TX_API_STORED_H

#include "api/model/model.h"
#include "comm/comm.h"

/* Writes bytes of one parameter, or state; of what ranks have shards of what lies in this rank's. As tx_model_write_at.
 */
tx_status tx_stored_write(tx_model *model, tx_arena_id arena, int64_t address, const void *data, int64_t bytes);
/* Reads them, which of shards all ranks do together; `data` has room for whole words of 4 bytes. */
tx_status tx_stored_read(tx_model *model, tx_arena_id arena, int64_t address, void *data, int64_t bytes);

/* What the ranks have read of their parts, put together as words: the others' zeros change no bit. One that has failed
 * takes part all the same. */
tx_status tx_stored_add_up(tx_comm *comm, void *to, int64_t words, tx_status status);

#endif
