/* SPDX-License-Identifier: Apache-2.0
 * Amounts of memory as users write them. */
#ifndef TX_OPTIONS_BYTES_H
#define TX_OPTIONS_BYTES_H

#include "tx.h"

/* Reads "8GiB", "1.5 GB" or "65536": a number above 0 of bytes, or of a unit, KiB to TiB in steps of 1024 or KB to TB
 * in steps of 1000, in any case. INVALID, with the text, else. */
tx_status tx_read_bytes(const char *text, int64_t *bytes);

static inline double tx_gib(int64_t bytes)
{
    return (double)bytes / 1073741824.0;
}

#endif
