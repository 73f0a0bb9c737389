/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts text to UTF-8, piece by piece. prepare.c converts whole files. */
#ifndef TX_DATA_ENCODING_H
#define TX_DATA_ENCODING_H

#include "models/tokenizer/buffer.h"

typedef struct tx_encoding tx_encoding;

/* Opens an encoding by its name in iconv or Python. TX_INVALID if it is unknown. The caller closes it. */
tx_status tx_encoding_open(const char *name, tx_encoding **encoding);
void tx_encoding_close(tx_encoding *encoding); /* NULL is fine */
/* Appends the converted text. A character may continue in the next piece. TX_FORMAT names the first byte that is
 * invalid in the encoding. */
tx_status tx_encoding_add(tx_encoding *encoding, const char *text, size_t size, tx_buffer *to);
/* TX_FORMAT if the text ended within a character. */
tx_status tx_encoding_end(const tx_encoding *encoding);

#endif
