/* SPDX-License-Identifier: Apache-2.0
 * Converts bytes to GiB for messages. */
#ifndef TX_OPTIONS_BYTES_H
#define TX_OPTIONS_BYTES_H

#include "tx.h"

static inline double tx_gib(int64_t bytes)
{
    return (double)bytes / 1073741824.0;
}

#endif
