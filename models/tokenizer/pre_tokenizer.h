/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenizers, the member "pre_tokenizer" of tokenizer.json: each step may add a mark before a text, and splits it
 * by a regular expression. */
#ifndef TX_TOKENIZER_PRE_TOKENIZER_H
#define TX_TOKENIZER_PRE_TOKENIZER_H

#include "models/tokenizer/steps.h"

/* Reads a pre-tokenizer. If `json` is NULL there are no steps and a text is one word. `*bytes` receives true if a
 * step is ByteLevel, so that words are bytes. It is true before if the normalizer ends with ByteLevel. */
tx_status tx_pre_tokenizer_read(tx_tokenizer_steps *steps, const tx_json *json, bool *bytes);
/* Adds GPT-2's only step. With `prefix` a space is added before texts that do not begin with one. */
tx_status tx_pre_tokenizer_gpt2(tx_tokenizer_steps *steps, bool prefix);

/* Receives a word: whole characters, or one invalid byte. Steps after ByteLevel may split characters. */
typedef tx_status (*tx_word_sink)(void *context, const char *word, size_t size);

/* The per-thread state of splitting texts into words. */
typedef struct tx_cutter tx_cutter;

/* The steps must outlive it. */
tx_status tx_cutter_create(const tx_tokenizer_steps *steps, tx_word_sink sink, void *context, tx_cutter **cutter);
void tx_cutter_free(tx_cutter *cutter);
/* The cutter's matcher. Call tx_matcher_begin for each whole text. */
tx_matcher *tx_cutter_matcher(tx_cutter *cutter);
/* Passes the words of a text, or of a part of it, to the sink in order. Set `first` at the beginning of the text. */
tx_status tx_cutter_run(tx_cutter *cutter, const char *text, size_t size, bool first);

#endif
