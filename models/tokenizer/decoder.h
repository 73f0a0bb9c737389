/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoders, the member "decoder" of tokenizer.json: they convert the texts of tokens to a text. */
#ifndef TX_TOKENIZER_DECODER_H
#define TX_TOKENIZER_DECODER_H

#include "models/tokenizer/steps.h"

/* A list of texts. Begin with {0}. */
typedef struct tx_texts {
    tx_buffer bytes, ends; /* `ends` has the end of each text as a size_t */
    size_t count;
} tx_texts;

/* The texts of tokens while steps are applied. Begin with {.whole, .size}, end with tx_spelling_free. */
struct tx_spelling {
    tx_texts in, out;    /* of the current step */
    tx_matcher *matcher; /* NULL until it is needed */
    size_t size;         /* total bytes of the tokens of all runs, if there are several; 0 if there is one run */
    bool whole;          /* these are all tokens of a text, otherwise one from its middle */
    bool fused;          /* later steps see the whole text as one */
};

/* Reads a decoder; `json` may be NULL, then tokens are separated by spaces. `*bytes` receives true if ByteLevel is
 * one of the steps; it has no effect if tokens are bytes. */
tx_status tx_decoder_read(tx_tokenizer_steps *steps, const tx_json *json, bool *bytes);

/* Adds the text of a token. tx_spelling_run returns a failure. */
void tx_spelling_add(tx_spelling *spelling, const char *text, size_t size);
/* Appends the decoded text of the tokens, and clears them. */
tx_status tx_spelling_run(tx_spelling *spelling, const tx_tokenizer_steps *steps, tx_buffer *out);
void tx_spelling_free(tx_spelling *spelling);

#endif
