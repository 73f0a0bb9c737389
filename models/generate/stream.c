/* SPDX-License-Identifier: Apache-2.0
 * Whole characters in a growing text, and stop strings. */
#include "models/generate/stream.h"

#include "models/tokenizer/utf8.h"

#include <string.h>

/* ---- Whole characters ---------------------------------------------------------------------------- */

void tx_stream_add(tx_stream *stream, const char *bytes, size_t size, tx_stream_write *write, void *context)
{
    for (size_t i = 0; i < size; i++) {
        size_t length;
        stream->held[stream->count] = bytes[i];
        if (tx_utf8_part(stream->held, stream->count + 1, &length) <=
            stream->count) /* the byte does not belong to the held character */
            tx_stream_end(stream, write, context);
        stream->held[stream->count++] = bytes[i];
        tx_utf8_part(stream->held, stream->count, &length);
        if (stream->count >= length)
            tx_stream_end(stream, write, context);
    }
}

void tx_stream_end(tx_stream *stream, tx_stream_write *write, void *context)
{
    if (stream->count > 0)
        write(context, stream->held, stream->count);
    stream->count = 0;
}

/* ---- Stop strings --------------------------------------------------------------------------------- */

/* A cursor that reads a text backwards through the pieces of its tokens. */
typedef struct cursor {
    const tx_tokenizer *tokenizer;
    const int32_t *ids;
    int64_t at; /* index of the token */
    const char *bytes;
    size_t left; /* bytes of its piece that are not yet read */
} cursor;

/* Moves to the previous piece that is not empty if the current one is used up. False at the beginning of the text. */
static bool step_back(cursor *c)
{
    while (c->left == 0) {
        if (c->at == 0)
            return false;
        c->at--;
        if (tx_tokenizer_piece(c->tokenizer, c->ids[c->at], false, &c->bytes, &c->left) != TX_OK)
            c->left = 0;
    }
    return true;
}

/* Returns true if `word` ends at the cursor. */
static bool is_at_end(cursor c, const char *word)
{
    for (size_t i = strlen(word); i > 0; i--) {
        if (!step_back(&c) || c.bytes[c.left - 1] != word[i - 1])
            return false;
        c.left--;
    }
    return true;
}

bool tx_stop_reached(const tx_stop *stop, const int32_t *ids, int64_t count)
{
    cursor last = {.tokenizer = stop->tokenizer, .ids = ids, .at = count};
    if (count < 1 || stop->count < 1 || !step_back(&last) || last.at != count - 1)
        return false;                  /* the last token has no bytes */
    for (; last.left > 0; last.left--) /* anywhere in the last token */
        for (int32_t i = 0; i < stop->count; i++)
            if (is_at_end(last, stop->word[i]))
                return true;
    return false;
}
