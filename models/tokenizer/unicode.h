/* SPDX-License-Identifier: Apache-2.0
 *
 * Unicode properties, case and normal forms of characters. */
#ifndef TX_TOKENIZER_UNICODE_H
#define TX_TOKENIZER_UNICODE_H

#include "models/tokenizer/buffer.h"

typedef enum tx_unicode_form { TX_NFC, TX_NFD, TX_NFKC, TX_NFKD } tx_unicode_form;

/* The version of Unicode, such as "15.0.0". */
const char *tx_unicode_version(void);
/* Appends a text of whole characters in a normal form. */
void tx_unicode_normalize(tx_unicode_form form, const char *text, size_t size, tx_buffer *out);
/* Appends a character in lower case, regardless of its context. */
void tx_unicode_lower(uint32_t code, tx_buffer *out);
void tx_unicode_upper(uint32_t code, tx_buffer *out); /* the same in upper case */

/* White_Space. */
bool tx_unicode_is_space(uint32_t code);
/* Marks (M); nonspacing marks (Mn). */
bool tx_unicode_is_mark(uint32_t code);
bool tx_unicode_is_accent(uint32_t code);
/* Controls, formats, private use (Cc, Cf, Co). */
bool tx_unicode_is_control(uint32_t code);
/* Letters (L), upper case (Lu), lower case (Ll); numbers (N). */
bool tx_unicode_is_letter(uint32_t code);
bool tx_unicode_is_upper(uint32_t code);
bool tx_unicode_is_lower(uint32_t code);
bool tx_unicode_is_number(uint32_t code);

#endif
