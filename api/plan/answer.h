/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading what is spread over the ranks, while rank 0 asks and the others answer (tx_model_ask). */
#ifndef TX_API_ANSWER_H
#define TX_API_ANSWER_H

#include "tx_model.h"

/* tx_model_read_range of the rank that asks, of a part whose shards all ranks have. */
tx_status tx_answered_read(tx_model *model, tx_part part, int32_t param, int64_t first, int64_t count, float *data);

#endif
