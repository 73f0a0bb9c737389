/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the tests that use the interface of datasets: a scratch folder, the byte vocabulary, files that are opened
 * or refused. Include after cmocka.h. */
#ifndef TX_TESTS_DATASETS_H
#define TX_TESTS_DATASETS_H

#include "tests/data/texts.h"

static char *folder;
static tx_tokenizer *bytes;

static inline int begin(void **state)
{
    folder = make_scratch();
    return tx_tokenizer_bytes(&bytes);
}

static inline int end(void **state)
{
    remove_scratch(folder);
    tx_tokenizer_free(bytes);
    return 0;
}

/* Opens a file of these contents; the caller frees. */
static inline tx_dataset *open_text(const char *name, const void *data, size_t size, const tx_dataset_options *options)
{
    char *path = put(folder, name, data, size);
    tx_dataset *dataset = NULL;
    assert_ok(tx_dataset_open(path, options, &dataset));
    free(path);
    return dataset;
}

/* That a file of these contents is refused with a message that holds its path and the text. */
static inline void expect_refused(const char *name, const void *data, size_t size, const tx_dataset_options *options,
                                  tx_status status, const char *text)
{
    char *path = put(folder, name, data, size);
    tx_dataset *dataset = NULL;
    assert_refused(tx_dataset_open(path, options, &dataset), status, text);
    assert_non_null(strstr(tx_error(), path));
    assert_null(strchr(tx_error(), '\n'));
    assert_null(dataset);
    free(path);
}

#endif
