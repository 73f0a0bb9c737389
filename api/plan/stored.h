/* SPDX-License-Identifier: Apache-2.0
 * Bytes of this rank's own array of a parameter, or of a state of it, between the host and the holdings (own.h). */
#ifndef TX_API_STORED_H
#define TX_API_STORED_H

#include "api/model/model.h"
#include "comm/comm.h"

/* The ranks that have shards of a part; NULL if this rank has all of it. */
tx_comm *tx_stored_sharers(const tx_model *model, tx_part part, int32_t index);
/* Writes the bytes that this rank holds, as tx_model_write_at. */
tx_status tx_stored_write(tx_model *model, tx_part part, int32_t index, int64_t at, const void *data, int64_t bytes);
/* Reads bytes; all ranks that have shards of the part do it together. `data` has room for whole words of 4 bytes. */
tx_status tx_stored_read(tx_model *model, tx_part part, int32_t index, int64_t at, void *data, int64_t bytes);

/* Sums words over the ranks, each of which only one rank has read: the zeros of the others change no bit. A rank that
 * has failed takes part all the same. */
tx_status tx_stored_add_up(tx_comm *comm, void *to, int64_t words, tx_status status);

#endif
