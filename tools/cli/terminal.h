/* SPDX-License-Identifier: Apache-2.0
 *
 * The width and the colours of terminals. */
#ifndef TX_TOOLS_TERMINAL_H
#define TX_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

#define TX_STANDARD_WIDTH 80
#define TX_LEAST_WIDTH 40 /* narrower terminals count as TX_STANDARD_WIDTH */

/* Columns of a line: COLUMNS of the environment, or those of the terminal that `descriptor` is, or else 80. */
size_t tx_terminal_width(int descriptor);
/* True for a terminal that shows colours, unless NO_COLOR is set (https://no-color.org). */
bool tx_terminal_has_colors(int descriptor);
/* Prints `length` bytes of text on stdout from `column` on, in lines of at most `width` columns that break between
 * words or after a |. All lines but the first begin at `indent`. Returns the last column. */
size_t tx_print_filled(const char *text, size_t length, size_t width, size_t column, size_t indent);

#endif
