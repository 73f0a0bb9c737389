/* SPDX-License-Identifier: Apache-2.0
 * Aligns tokens with the bytes of their text. */
#include "models/tokenizer/offsets.h"

#include "models/tokenizer/bpe.h"
#include "models/tokenizer/buffer.h"
#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

/* A normalized byte, and the character of the text that it comes from. */
typedef struct place {
    size_t begin, end;
    char byte;
    bool begins; /* the first byte after white space */
} place;

struct tx_aligner {
    const tx_tokenizer *tokenizer;
    tx_matcher *matcher;
    tx_buffer normal[2];
    place *at;
    size_t count, room;
};

tx_status tx_aligner_create(const tx_tokenizer *tokenizer, tx_aligner **aligner)
{
    tx_aligner *created = calloc(1, sizeof *created);
    tx_status status = created ? TX_OK : tx_fail(TX_MEMORY, "no memory for an alignment");
    if (created)
        created->tokenizer = tokenizer;
    TX_THEN(status, tx_matcher_create(&created->matcher));
    return TX_RETURN(status, created, aligner, tx_aligner_free);
}

void tx_aligner_free(tx_aligner *aligner)
{
    if (!aligner)
        return;
    tx_matcher_free(aligner->matcher);
    free(aligner->normal[0].data);
    free(aligner->normal[1].data);
    free(aligner->at);
    free(aligner);
}

/* White space, or the mark that stands for it in tokens. */
static bool is_space(uint32_t code)
{
    return code == 0x2581 || tx_unicode_is_space(code);
}

/* Adds a normalized character without its white space. */
static tx_status add_character(tx_aligner *a, const char *text, size_t size, size_t begin, size_t end, bool *begins)
{
    for (size_t i = 0; i < size;) {
        uint32_t code;
        const size_t length = tx_utf8_read(text + i, size - i, &code);
        if (!length)
            return tx_fail(TX_INTERNAL, "normalized text is not UTF-8");
        if (is_space(code)) {
            *begins = true;
            i += length;
            continue;
        }
        TX_TRY(tx_array_reserve(&a->at, &a->room, a->count + length, sizeof *a->at, "bytes of a text"));
        for (size_t k = 0; k < length; k++, *begins = false)
            a->at[a->count++] = (place){begin, end, text[i + k], *begins};
        i += length;
    }
    return TX_OK;
}

static tx_status normalize(tx_aligner *a, const char *text, size_t size)
{
    bool begins = true;
    a->count = 0;
    for (size_t i = 0; i < size;) {
        uint32_t code;
        size_t length = tx_utf8_read(text + i, size - i, &code);
        length = length ? length : 1;
        const char *one = text + i;
        size_t bytes = length;
        if (is_space(code)) {
            begins = true;
        } else {
            tx_matcher_begin(a->matcher, bytes);
            TX_TRY(tx_normalizer_run(&a->tokenizer->normalizer, a->matcher, a->normal, &one, &bytes, NULL));
            TX_TRY(add_character(a, one, bytes, i, i + length, &begins));
        }
        i += length;
    }
    return TX_OK;
}

/* Leaves out white space at both ends of a token's bytes. */
static void trim(const char **bytes, size_t *size)
{
    static const char mark[] = "\xE2\x96\x81";
    for (bool more = true; more && *size;) {
        const size_t skip = **bytes == ' ' ? 1 : *size >= 3 && memcmp(*bytes, mark, 3) == 0 ? 3 : 0;
        more = skip > 0;
        *bytes += skip;
        *size -= skip;
    }
    while (*size && (*bytes)[*size - 1] == ' ')
        --*size;
}

static bool agrees(const tx_aligner *a, size_t at, const char *bytes, size_t size)
{
    if (size > a->count - at)
        return false;
    for (size_t i = 0; i < size; i++)
        if (a->at[at + i].byte != bytes[i])
            return false;
    return true;
}

/* The end of a token whose bytes do not agree: the place of the next token that agrees, or the end of the word. */
static size_t end_of_unknown(const tx_aligner *a, size_t at, const char *next, size_t size)
{
    size_t end = at < a->count ? at + 1 : at;
    while (end < a->count && !a->at[end].begins && !(size && agrees(a, end, next, size)))
        end++;
    return end;
}

/* A token's bytes without white space, and without what BPE adds to characters. */
static tx_status bytes_of(const tx_aligner *a, int32_t id, const char **bytes, size_t *size)
{
    const tx_tokenizer *t = a->tokenizer;
    TX_TRY(tx_tokenizer_piece(t, id, false, bytes, size));
    trim(bytes, size);
    if (!tx_bpe_has_affix(t))
        return TX_OK;
    const size_t prefix = strlen(t->prefix), suffix = strlen(t->suffix);
    if (*size > prefix && memcmp(*bytes, t->prefix, prefix) == 0) {
        *bytes += prefix;
        *size -= prefix;
    }
    if (*size > suffix && memcmp(*bytes + *size - suffix, t->suffix, suffix) == 0)
        *size -= suffix;
    return TX_OK;
}

tx_status tx_aligner_run(tx_aligner *aligner, const char *text, size_t size, const int32_t *ids, size_t count,
                         tx_offset *offsets)
{
    tx_aligner *a = aligner;
    size_t at = 0;
    TX_TRY(normalize(a, text, size));
    for (size_t i = 0; i < count; i++) {
        const char *bytes, *next = NULL;
        size_t length, next_length = 0, end;
        TX_TRY(bytes_of(a, ids[i], &bytes, &length));
        end = at + length;
        if (!agrees(a, at, bytes, length)) {
            if (i + 1 < count)
                TX_TRY(bytes_of(a, ids[i + 1], &next, &next_length));
            end = end_of_unknown(a, at, next, next_length);
        }
        const size_t begin = at < a->count ? a->at[at].begin : size;
        offsets[i] = end > at ? (tx_offset){begin, a->at[end - 1].end} : (tx_offset){begin, begin};
        at = end;
    }
    return TX_OK;
}
