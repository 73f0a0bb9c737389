/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of messages: what may be shown of names that come from elsewhere, and lists. */
#ifndef TX_API_MESSAGE_H
#define TX_API_MESSAGE_H

#include "tx.h"

#include <stdarg.h>

/* Writes `text` as one line without effect on a terminal: control characters as \n, \x1b and so on, a tab
 * as a blank. What does not fit `size` bytes (6 at least) is cut off. Messages of tx_fail are so already. */
void tx_escape(const char *text, char *safe, size_t size);
/* Adds an entry to the list that `list` is, of `size` bytes; `between` goes before all but the first. What does not fit
 * is cut off. */
void tx_list_add(char *list, size_t size, const char *between, const char *format, ...) TX_PRINTF(4, 5);
void tx_list_vadd(char *list, size_t size, const char *between, const char *format, va_list args);

/* The end of a noun after its number: "1 step", "2 steps". */
static inline const char *tx_s(int64_t count)
{
    return count == 1 ? "" : "s";
}

#endif
