/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoders, tokenizer.json's part of that name: from the texts of tokens to a text. */
#ifndef TX_TEXT_DECODER_H
#define TX_TEXT_DECODER_H

#include "models/text/steps.h"

/* Texts one after the other. Begin with {0}. */
typedef struct tx_texts {
    tx_buffer bytes, ends; /* ends: a size_t each */
    size_t count;
} tx_texts;

/* Texts of tokens on their way through the steps. Begin with {.whole, .size}, end with tx_spelling_free. */
struct tx_spelling {
    tx_texts in, out;    /* of a step */
    tx_matcher *matcher; /* NULL: none was needed yet */
    size_t size;         /* bytes of all tokens that are yet to come; 0: those of one run */
    bool whole;          /* all tokens of a text; otherwise one from its middle */
    bool fused;          /* what follows would see the whole text */
};

/* Without steps (`json` may be NULL) there is a space between tokens. `bytes`: ByteLevel is among the steps, for which
 * there is nothing to do where tokens are bytes. */
tx_status tx_decoder_read(tx_steps *steps, const tx_json *json, bool *bytes);

/* Adds the text of a token; what fails there, tx_spelling_run tells. */
void tx_spelling_add(tx_spelling *spelling, const char *text, size_t size);
/* Appends what the steps make of the tokens, and begins anew. */
tx_status tx_spelling_run(tx_spelling *spelling, const tx_steps *steps, tx_buffer *out);
void tx_spelling_free(tx_spelling *spelling);

#endif
