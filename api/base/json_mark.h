/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of JSON in which numbers that jansson refuses are replaced. */
#ifndef TX_BASE_JSON_MARK_H
#define TX_BASE_JSON_MARK_H

#include <stdbool.h>
#include <stddef.h>

/* Gives integers beyond int64 an exponent, which makes them numbers. With `words`, Infinity, -Infinity and NaN, which
 * Python writes, become {"__float__": "Infinity"} and the like, as in transformers 5. `*size` becomes the size of the
 * copy. Returns NULL if memory runs out. */
char *tx_json_mark(const char *text, bool words, size_t *size);

#endif
