/* SPDX-License-Identifier: Apache-2.0
 * Functions that the files of this extension share. */
#ifndef TX_API_EXPERTS_H
#define TX_API_EXPERTS_H

#include "api/graph/graph.h"

/* Moves rows to experts of other ranks, or back (op EP_DISPATCH or EP_COLLECT): x [.., C] -> [rows, C]. */
tx_tensor *tx_move_rows(tx_op op, tx_tensor *x, tx_tensor *counts, int64_t rows);

#endif
