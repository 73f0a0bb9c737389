/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing texts: the part that can be shown, and whether a stop string ends them. */
#ifndef TX_GENERATE_STREAM_H
#define TX_GENERATE_STREAM_H

#include "models/tx_text.h"

/* ---- Whole characters ---------------------------------------------------------------------------- */

/* Tokens may end within a character. The first bytes of a character are held until it is complete. Begin with {0}. */
typedef struct tx_stream {
    char held[4];
    size_t count;
} tx_stream;

/* Adds bytes of a text. `write` receives them as soon as they are whole UTF-8 characters; invalid bytes are passed on
 * at once. */
typedef void tx_stream_write(void *context, const char *bytes, size_t size);
void tx_stream_add(tx_stream *stream, const char *bytes, size_t size, tx_stream_write *write, void *context);
/* Writes the held bytes, at the end of the text. */
void tx_stream_end(tx_stream *stream, tx_stream_write *write, void *context);

/* ---- Stop strings --------------------------------------------------------------------------------- */

/* Strings that end a text, as transformers' stop_strings: a text ends with the token that completes one. */
typedef struct tx_stop {
    const tx_tokenizer *tokenizer;
    const char *const *word; /* not empty, without NUL */
    int32_t count;
} tx_stop;

/* Returns true if the last of ids[0..count-1] completes a stop string, which may begin anywhere before. */
bool tx_stop_reached(const tx_stop *stop, const int32_t *ids, int64_t count);

#endif
