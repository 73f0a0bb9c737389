/* SPDX-License-Identifier: Apache-2.0
 *
 * What may be shown of names and texts that come from elsewhere. */
#ifndef TX_API_MESSAGE_H
#define TX_API_MESSAGE_H

#include "tx.h"

/* Writes `text` as one line without effect on a terminal: control characters as \n, \x1b and so on, a tab
 * as a blank. What does not fit `size` bytes (6 at least) is cut off. Messages of tx_fail are so already. */
void tx_escape(const char *text, char *safe, size_t size);

#endif
