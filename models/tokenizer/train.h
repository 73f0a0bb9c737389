/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by counting words and learning merges. */
#ifndef TX_TOKENIZER_TRAIN_H
#define TX_TOKENIZER_TRAIN_H

#include "models/tokenizer/bpe.h"

/* A word with `count` occurrences: `size` bytes (later ids) from offset `at` on. */
typedef struct tx_counted {
    size_t at, size;
    int64_t count;
} tx_counted;

/* All words with their counts. */
typedef struct tx_counts {
    tx_counted *word;
    size_t count, room;
    tx_buffer bytes;
    tx_index index; /* of the words */
} tx_counts;

/* Learns merges until the vocabulary, which has all bytes, has `size` tokens, or no pair occurs at least `least` times.
 */
tx_status tx_learn_merges(const tx_counts *counts, int64_t size, int64_t least, tx_vocab *vocab, tx_merges *merges);

#endif
