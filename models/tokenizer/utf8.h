/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 (RFC 3629). Overlong forms, surrogates and codes above U+10FFFF are invalid. */
#ifndef TX_TOKENIZER_UTF8_H
#define TX_TOKENIZER_UTF8_H

#include "models/tx_text.h"

#define TX_UTF8_MAX 4 /* bytes of a character */

/* Length of the character at the beginning of the text, or 0 if there is none. `code` may be NULL. */
size_t tx_utf8_read(const char *text, size_t size, uint32_t *code);
/* Length of the character at the end of the text, or 0 if there is none. `code` may be NULL. */
size_t tx_utf8_read_last(const char *text, size_t size, uint32_t *code);
/* Returns the length of the longest prefix that could be a character or a part of one, and 0 if the first byte is
 * invalid.
 * `*length` receives the length of the character that the first byte announces, or 1. `size` must be at least 1. */
size_t tx_utf8_part(const char *text, size_t size, size_t *length);
/* Length of the longest prefix of whole characters. */
size_t tx_utf8_prefix(const char *text, size_t size);
/* Writes a character, without a NUL; returns its bytes. */
size_t tx_utf8_write(uint32_t code, char text[TX_UTF8_MAX]);

#endif
