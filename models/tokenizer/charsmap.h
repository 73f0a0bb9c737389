/* SPDX-License-Identifier: Apache-2.0
 *
 * The normalizer of SentencePiece as its models store it: a trie of texts and their replacements. */
#ifndef TX_TOKENIZER_CHARSMAP_H
#define TX_TOKENIZER_CHARSMAP_H

#include "models/tokenizer/buffer.h"

typedef struct tx_charsmap {
    char *data;        /* the bytes of the file */
    size_t size;       /* in bytes */
    uint32_t units;    /* of the trie, which begin at byte 4 */
    bool changed[128]; /* ASCII characters that have a replacement */
} tx_charsmap;

/* Writes the bytes of base64, at most 3 for each 4 characters, and their number. */
tx_status tx_base64_read(const char *text, size_t size, char *bytes, size_t *result);
/* Reads a map from base64. */
tx_status tx_charsmap_read(const char *text, size_t size, tx_charsmap **map);
/* Makes base64 of the bytes of a map. The caller frees. */
tx_status tx_charsmap_text(const char *data, size_t size, char **text);
void tx_charsmap_free(tx_charsmap *map);
/* Appends a text of whole characters with the replacements of its grapheme clusters or characters. */
void tx_charsmap_run(const tx_charsmap *map, const char *text, size_t size, tx_buffer *out);

#endif
