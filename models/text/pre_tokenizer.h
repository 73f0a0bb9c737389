/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenizers, tokenizer.json's part of that name: each step may put a mark before a text, and cuts it by a regular
 * expression. */
#ifndef TX_TEXT_PRE_TOKENIZER_H
#define TX_TEXT_PRE_TOKENIZER_H

#include "models/text/steps.h"

/* `json` may be NULL: no steps, a text is one word. `bytes`: the last step is ByteLevel, so that words are bytes. */
tx_status tx_pre_tokenizer_read(tx_steps *steps, const tx_json *json, bool *bytes);
/* GPT-2's only step; with `prefix` a space is put before texts that begin with none. */
tx_status tx_pre_tokenizer_gpt2(tx_steps *steps, bool prefix);

/* Takes a word: whole characters, or one byte that is no part of one. */
typedef tx_status (*tx_word_sink)(void *context, const char *word, size_t size);

/* What one thread needs to cut texts into words. */
typedef struct tx_cutter tx_cutter;

/* The steps must outlive it. */
tx_status tx_cutter_create(const tx_steps *steps, tx_word_sink sink, void *context, tx_cutter **cutter);
void tx_cutter_free(tx_cutter *cutter);
/* What it matches with; to be begun for each whole text. */
tx_matcher *tx_cutter_matcher(tx_cutter *cutter);
/* Hands the words of a text, or of a part of it, to the sink, in order. `first`: nothing is before it. */
tx_status tx_cutter_run(tx_cutter *cutter, const char *text, size_t size, bool first);

#endif
