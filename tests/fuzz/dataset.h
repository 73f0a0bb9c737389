/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the fuzz targets of datasets. */
#ifndef TX_TESTS_FUZZ_DATASET_H
#define TX_TESTS_FUZZ_DATASET_H

#include "models/task/causal_lm.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

enum { FUZZ_BLOCK = 4, FUZZ_VOCAB = 300, FUZZ_ROWS = 2 };

/* Opens the file with the `options` and reads all rows. Ids are in the vocabulary, and the label of a position is the
 * next token. */
static inline void tx_fuzz_dataset(const char *name, tx_dataset_options options)
{
    tx_dataset *dataset;
    int32_t tokens[FUZZ_ROWS * FUZZ_BLOCK], labels[FUZZ_ROWS * FUZZ_BLOCK];
    options.size = sizeof options;
    options.vocab = FUZZ_VOCAB;
    options.block = FUZZ_BLOCK;
    options.threads = 1;
    if (tx_fuzz_refused(tx_dataset_open(tx_fuzz_path(name), &options, &dataset), name))
        return;
    int64_t blocks = tx_dataset_blocks(dataset);
    FUZZ_CHECK(blocks > 0 && blocks <= tx_dataset_tokens(dataset) / FUZZ_BLOCK);
    FUZZ_CHECK(!options.most_blocks || blocks <= options.most_blocks);
    const tx_samples samples = tx_causal_lm_samples(dataset);
    tx_sample_order order = {.shuffle = true, .seed = 1};
    for (int64_t at = 0; at < blocks; at += FUZZ_ROWS) {
        const int64_t rows = blocks - at < FUZZ_ROWS ? blocks - at : FUZZ_ROWS;
        FUZZ_CHECK(!tx_samples_rows(&samples, &order, at, &(tx_batch){.rows = FUZZ_ROWS, .field = {tokens, labels}}));
        for (int64_t i = 0; i < rows * FUZZ_BLOCK; i++) {
            FUZZ_CHECK(tokens[i] >= 0 && tokens[i] < FUZZ_VOCAB);
            FUZZ_CHECK(labels[i] == (i % FUZZ_BLOCK == FUZZ_BLOCK - 1 ? TX_IGNORE_LABEL : tokens[i + 1]));
        }
    }
    tx_dataset_free(dataset);
}

#endif
