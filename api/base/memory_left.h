/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory there is to take: the system kills a process that takes more, instead of refusing it. */
#ifndef TX_API_MEMORY_LEFT_H
#define TX_API_MEMORY_LEFT_H

#include "tx.h"

/* Bytes that this host and the control groups of this process still have, memory of file caches included; INT64_MAX
 * where neither is known. `owner` gets a word for what has the least. `root` is the folder of proc/ and sys/: "", or a
 * test's. */
int64_t tx_memory_left(const char *root, char *owner, size_t room);

#endif
