/* SPDX-License-Identifier: Apache-2.0
 *
 * Work that may crash its process: reading broken files, and drivers. */
#ifndef TX_API_REHEARSE_H
#define TX_API_REHEARSE_H

#include "tx.h"

/* Runs `work` in a child process, because broken input may crash it. If it succeeds there, the caller runs it
 * again. Returns FORMAT if the child crashes or hangs; `what` is the beginning of the message. */
tx_status tx_rehearse(const char *what, tx_status (*work)(const void *), const void *data);

#endif
