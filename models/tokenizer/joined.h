/* SPDX-License-Identifier: Apache-2.0
 *
 * Model inputs of a text, a pair of texts or a list of words: their ids between the special tokens of the tokenizer,
 * truncated to a length. Training and inference use it, so both see the same ids. */
#ifndef TX_TOKENIZER_JOINED_H
#define TX_TOKENIZER_JOINED_H

#include "models/tx_text.h"

typedef struct tx_joiner {
    const tx_tokenizer *tokenizer;
    tx_encoder *encoder;
    size_t special[2];    /* number of special tokens around a text, and around a pair */
    size_t before;        /* number of them before a text */
    tx_ids part[2], word; /* scratch */
    size_t words;         /* of the current list */
    bool truncated;       /* the last text or pair was too long */
    bool spaces;          /* a space is before each word, see tx_joiner_follow */
} tx_joiner;

/* The tokenizer must outlive it. The caller closes it, also after a failure; {0} is fine. */
tx_status tx_joiner_open(const tx_tokenizer *tokenizer, tx_joiner *joiner);
void tx_joiner_close(tx_joiner *joiner);
/* Fails with TX_INVALID if `most` tokens leave no room for a text, or for a pair. */
tx_status tx_joiner_check(const tx_joiner *joiner, bool pair, int64_t most);

/* Appends the model input of one text, or of two if `second` is not NULL, to `ids` and their types to `types`. It has
 * at most `most` tokens: the longer text is truncated until both have the same length, then both (transformers'
 * longest_first). */
tx_status tx_joiner_add(tx_joiner *joiner, const char *first, size_t first_size, const char *second, size_t second_size,
                        int64_t most, tx_ids *ids, tx_ids *types);

/* Encodes words as run_ner.py does for a model type: with add_prefix_space for some types, if the tokenizer's class has
 * that option; else as the tokenizer encodes a text. */
void tx_joiner_follow(tx_joiner *joiner, const char *model_type);
/* The model input of a list of words. Each word is encoded as a text of its own. */
typedef struct tx_joined_words {
    tx_ids *ids, *types; /* receive the model input */
    tx_ids *word;        /* receives the index of each id's word, -1 for special tokens */
} tx_joined_words;
/* Begins a list of words. */
void tx_joiner_begin(tx_joiner *joiner);
/* Adds the next word, unless the words before have `most` tokens already with the special tokens. Sets `*used` to
 * whether one of its tokens is used. */
tx_status tx_joiner_word(tx_joiner *joiner, const char *text, size_t size, int64_t most, bool *used);
/* Appends the model input of the list. */
tx_status tx_joiner_end(tx_joiner *joiner, int64_t most, const tx_joined_words *to);

#endif
