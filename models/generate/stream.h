/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts in the making: what may be shown of one, and whether it ends with a stop string. */
#ifndef TX_GENERATE_STREAM_H
#define TX_GENERATE_STREAM_H

#include "models/tx_text.h"

/* ---- Whole characters ---------------------------------------------------------------------------- */

/* Tokens need not be whole characters: the beginning of one waits here for the rest. Begin with {0}. */
typedef struct tx_stream {
    char held[4];
    size_t count;
} tx_stream;

/* Takes the next bytes of a text. `write` is given them as soon as they make up whole UTF-8 characters; bytes that are
 * part of none pass at once. */
typedef void tx_stream_write(void *context, const char *bytes, size_t size);
void tx_stream_add(tx_stream *stream, const char *bytes, size_t size, tx_stream_write *write, void *context);
/* Gives out what waits: the text ends within a character. */
void tx_stream_end(tx_stream *stream, tx_stream_write *write, void *context);

/* ---- Stop strings --------------------------------------------------------------------------------- */

/* Strings that end a text, as transformers' stop_strings: a text ends with the token that completes one. */
typedef struct tx_stop {
    const tx_tokenizer *tokenizer;
    const char *const *word; /* not empty, without NUL */
    int32_t count;
} tx_stop;

/* Whether the last of ids[0..count-1] completes a stop string, which may begin anywhere before. */
bool tx_stop_reached(const tx_stop *stop, const int32_t *ids, int64_t count);

#endif
