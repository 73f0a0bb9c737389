/* SPDX-License-Identifier: Apache-2.0
 *
 * The pieces of the arenas that an optimizer's nodes work on. */
#ifndef TX_API_PIECES_H
#define TX_API_PIECES_H

#include "api/model/model.h"

/* Cuts the weights that this rank updates into pieces, places their states in arena OPTIMIZER, and adds holdings of the
 * states; groups[c] is the address of the group bytes of chunk c of the weights. */
tx_status tx_optimizer_cut(tx_model *model, const int64_t *groups, tx_optimizer *optimizer);

#endif
