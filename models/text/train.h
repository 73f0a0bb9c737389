/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning merges: what counts words and what merges them share. */
#ifndef TX_TEXT_TRAIN_H
#define TX_TEXT_TRAIN_H

#include "models/text/bpe.h"

/* A word that was met `count` times: `size` bytes (later ids) from `at` on. */
typedef struct tx_counted {
    size_t at, size;
    int64_t count;
} tx_counted;

/* Words and how often each was met. */
typedef struct tx_counts {
    tx_counted *word;
    size_t count, room;
    tx_buffer bytes;
    tx_index index; /* of the words */
} tx_counts;

/* Learns merges until the vocabulary, whose bytes have ids, has `size` tokens, or no pair occurs `least` times. */
tx_status tx_learn_merges(const tx_counts *counts, int64_t size, int64_t least, tx_vocab *vocab, tx_merges *merges);

#endif
