/* SPDX-License-Identifier: Apache-2.0
 *
 * The work output of Adafactor's ops, for all backends.
 */
#ifndef TX_BACKENDS_ADAFACTOR_H
#define TX_BACKENDS_ADAFACTOR_H

#include "backends/backend.h"

/* Elements of ADAFACTOR's work output: partial column sums for each block of rows, sums of squares of u and p for
 * each row, and a few scalars. A tensor that is not a matrix has blocks of TX_REDUCE_BLOCK elements instead of
 * rows. */
#define TX_ADAFACTOR_NUMBERS 4
static inline int64_t tx_adafactor_lines(const tx_shape *p)
{
    return p->rank == 2 ? p->dim[0] : tx_blocks(tx_shape_count(p), TX_REDUCE_BLOCK);
}
static inline int64_t tx_adafactor_work(const tx_shape *p)
{
    const int64_t sums = p->rank == 2 ? tx_row_blocks(p->dim[0]) * p->dim[1] : 0;
    return sums + 2 * tx_adafactor_lines(p) + TX_ADAFACTOR_NUMBERS;
}

#endif
