/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a text that its tokens stand for. The tokens' bytes are aligned with the normalized characters of the
 * text. White space is left out. */
#ifndef TX_TOKENIZER_OFFSETS_H
#define TX_TOKENIZER_OFFSETS_H

#include "models/tx_text.h"

typedef struct tx_offset {
    size_t begin, end; /* bytes of the text, without white space; equal if the token has none */
} tx_offset;

/* The scratch memory of alignments. */
typedef struct tx_aligner tx_aligner;

/* The tokenizer must outlive it. The caller frees. */
tx_status tx_aligner_create(const tx_tokenizer *tokenizer, tx_aligner **aligner);
void tx_aligner_free(tx_aligner *aligner); /* NULL is fine */
/* Writes the offsets of `count` ids, those of the whole text without special tokens. A token whose bytes differ from
 * the text's, such as the unknown token, gets the bytes up to the next token that agrees, at most those of its word. */
tx_status tx_aligner_run(tx_aligner *aligner, const char *text, size_t size, const int32_t *ids, size_t count,
                         tx_offset *offsets);

#endif
