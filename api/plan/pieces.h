/* SPDX-License-Identifier: Apache-2.0
 *
 * The pieces of the arenas that an optimizer's nodes work on. */
#ifndef TX_API_PIECES_H
#define TX_API_PIECES_H

#include "api/model/model.h"

/* Cuts what this rank updates into pieces and places their states in arena OPTIMIZER; groups[c] is the address of the
 * group bytes of chunk c of the weights. */
tx_status tx_optimizer_cut(tx_model *model, const int64_t *groups, tx_optimizer *optimizer);

/* Numbers first .. first + count - 1 of state `k` of a parameter. */
typedef struct tx_state_range {
    int32_t param, k;
    int64_t first, count;
} tx_state_range;

/* Those of a range that a piece holds. */
typedef struct tx_state_part {
    int64_t at, count; /* numbers from the begin of the range */
    tx_dtype dtype;
    int64_t address; /* in OPTIMIZER */
} tx_state_part;
/* False: the piece holds none. */
bool tx_optimizer_part_of(const tx_model *model, const tx_optimizer_piece *piece, const tx_state_range *range,
                          tx_state_part *part);

#endif
