/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the tests of datasets: files with given contents, options, captured reports, all tokens of a dataset.
 * Include after cmocka.h. */
#ifndef TX_TESTS_TEXTS_H
#define TX_TESTS_TEXTS_H

#include "models/task/causal_lm.h"
#include "tests/scratch.h"

/* Reports of the library: the last line, and their number. */
typedef struct reported {
    int count;
    char last[1200];
} reported;

static inline void report_line(void *context, const char *message)
{
    reported *r = context;
    r->count++;
    snprintf(r->last, sizeof r->last, "%s", message);
}

/* The whole file, in blocks of `block`, by the byte vocabulary on one thread. */
static inline tx_dataset_options plain_options(const tx_tokenizer *tokenizer, int64_t block, reported *r)
{
    return (tx_dataset_options){
        .size = sizeof(tx_dataset_options),
        .tokenizer = tokenizer,
        .vocab = TX_BYTES_VOCAB,
        .block = block,
        .to = 100.0,
        .threads = 1,
        .report = {.warn = r ? report_line : NULL, .context = r},
    };
}

/* Writes folder/name; returns its path, allocated. */
static inline char *put(const char *folder, const char *name, const void *data, size_t size)
{
    char *path = tx_path_join(folder, name);
    FILE *file = path ? fopen(path, "wb") : NULL;
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
    return path;
}

#define put_text(folder, name, text) put(folder, name, text, sizeof(text) - 1)

/* The rows of causal language modelling at places first, first + 1, ... of the order. */
static inline tx_status read_rows(const tx_dataset *dataset, const tx_sample_order *order, int64_t first, int64_t rows,
                                  int32_t *tokens, int32_t *labels)
{
    const tx_samples samples = tx_causal_lm_samples(dataset);
    return tx_samples_rows(&samples, order, first, &(tx_batch){.rows = rows, .field = {tokens, labels}});
}

/* All tokens of the blocks, in their order; allocated. */
static inline int32_t *all_tokens(const tx_dataset *dataset)
{
    const int64_t blocks = tx_dataset_blocks(dataset), block = tx_dataset_block(dataset);
    int32_t *tokens = malloc((size_t)(blocks * block) * sizeof *tokens);
    if (!tokens)
        abort();
    for (int64_t b = 0; b < blocks; b++)
        if (tx_dataset_read(dataset, b, tokens + b * block))
            abort();
    return tokens;
}

#endif
