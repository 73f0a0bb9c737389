/* SPDX-License-Identifier: Apache-2.0
 * Whole characters, stop strings. */
#include "models/generate/stream.h"

#include <string.h>

/* ---- Whole characters ---------------------------------------------------------------------------- */

/* Length of the character that begins with this byte; 0: none does. */
static size_t length_of(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF)
        return 3;
    return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

/* Whether `next` can be byte `at` (from 1) of a character that begins with `lead` (Unicode, table 3-7). */
static bool may_follow(unsigned char lead, size_t at, unsigned char next)
{
    unsigned char least = 0x80, most = 0xBF;
    if (at == 1 && lead == 0xE0)
        least = 0xA0;
    if (at == 1 && lead == 0xF0)
        least = 0x90;
    if (at == 1 && lead == 0xED)
        most = 0x9F;
    if (at == 1 && lead == 0xF4)
        most = 0x8F;
    return next >= least && next <= most;
}

void tx_stream_add(tx_stream *stream, const char *bytes, size_t size, tx_stream_write *write, void *context)
{
    for (size_t i = 0; i < size; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        if (stream->count > 0 && !may_follow((unsigned char)stream->held[0], stream->count, byte))
            tx_stream_end(stream, write, context);
        stream->held[stream->count++] = bytes[i];
        if (stream->count >= length_of((unsigned char)stream->held[0]))
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

/* The text read backwards, over the pieces of tokens. */
typedef struct cursor {
    const tx_tokenizer *tokenizer;
    const int32_t *ids;
    int64_t at; /* token of the piece */
    const char *bytes;
    size_t left; /* bytes of it not read */
} cursor;

/* Steps to the piece before, past empty ones; false at the beginning of the text. */
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

/* Whether `word` ends where `c` stands. */
static bool ends_here(cursor c, const char *word)
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
        return false;                  /* the last token adds nothing */
    for (; last.left > 0; last.left--) /* anywhere in the last token */
        for (int32_t i = 0; i < stop->count; i++)
            if (ends_here(last, stop->word[i]))
                return true;
    return false;
}
