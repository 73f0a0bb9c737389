/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 (RFC 3629): what is a character and what is not. Overlong forms, surrogates and codes above U+10FFFF are
 * none. */
#ifndef TX_TEXT_UTF8_H
#define TX_TEXT_UTF8_H

#include "models/tx_text.h"

#define TX_UTF8_MAX 4 /* bytes of a character */

/* Bytes of the character that the `size` bytes begin with, 0 where they begin with none. `code` may be NULL. */
size_t tx_utf8_read(const char *text, size_t size, uint32_t *code);
/* Bytes of the character that the `size` bytes end with, 0 where they end with none. */
size_t tx_utf8_read_last(const char *text, size_t size, uint32_t *code);
/* How many bytes at the beginning could be (part of) a character, at most `*length`, which receives the bytes that the
 * first one announces; 0 where it cannot be the first of any, which then is 1. `size` is at least 1. */
size_t tx_utf8_part(const char *text, size_t size, size_t *length);
/* How many bytes at the beginning are whole characters. */
size_t tx_utf8_prefix(const char *text, size_t size);
/* Writes a character, without a NUL; returns its bytes. */
size_t tx_utf8_write(uint32_t code, char text[TX_UTF8_MAX]);

#endif
