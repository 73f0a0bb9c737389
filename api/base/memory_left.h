/* SPDX-License-Identifier: Apache-2.0
 *
 * Available memory. The system does not refuse an allocation beyond it but kills the process later. */
#ifndef TX_API_MEMORY_LEFT_H
#define TX_API_MEMORY_LEFT_H

#include "tx.h"

/* Returns the bytes that this host and the control groups of this process still have, including memory of file caches,
 * or INT64_MAX if neither is known. `owner` receives the name of the one with the least. `root` is the folder of proc/
 * and sys/: "", or a test's. */
int64_t tx_memory_left(const char *root, char *owner, size_t room);

#endif
