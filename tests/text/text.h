/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the tests of tokenizers. Include after cmocka.h. */
#ifndef TX_TESTS_TEXT_H
#define TX_TESTS_TEXT_H

#include "models/tx_text.h"
#include "tests/scratch.h"
#include "tx_json.h"

/* Makes a scratch folder with copies of test data, each given as {file of the data, name}. The list ends with NULL.
 * Skips the test if a file is missing. */
static inline char *folder_of(const char *const (*files)[2])
{
    for (int i = 0; files[i][0]; i++)
        free(test_data(files[i][0])); /* first, since it may skip the test, and no folder may be left then */
    char *folder = make_scratch();
    for (int i = 0; files[i][0]; i++) {
        char *from = test_data(files[i][0]), *to = TX_PATH(folder, files[i][1]), *text;
        size_t size;
        assert_ok(tx_file_read(from, 1 << 27, &text, &size));
        assert_ok(tx_file_write(to, text, size));
        free(text);
        free(from);
    }
    return folder;
}

/* GPT-2's two forms. */
static const char *const gpt2_pair[][2] = {
    {"tokenizers/gpt2-encoder.json", "vocab.json"}, {"tokenizers/gpt2-vocab.bpe", "merges.txt"}, {NULL, NULL}};
static const char *const gpt2_one[][2] = {{"tokenizers/gpt2-tokenizer.json", "tokenizer.json"}, {NULL, NULL}};

static inline tx_tokenizer *open_tokenizer(const char *path)
{
    tx_tokenizer *made;
    assert_ok(tx_tokenizer_open(path, &made));
    return made;
}

/* Ids of a text; the caller frees ids->id. */
static inline void encode(const tx_tokenizer *tokenizer, const char *text, size_t size, bool special, tx_ids *ids)
{
    tx_encoder *encoder;
    *ids = (tx_ids){0};
    assert_ok(tx_encoder_create(tokenizer, &encoder));
    assert_ok(tx_encoder_run(encoder, text, size, special, ids));
    tx_encoder_free(encoder);
}

/* The ids of a text are those; `wanted` ends with -1. */
static inline void expect_ids(const tx_tokenizer *tokenizer, const char *text, bool special, const int32_t *wanted)
{
    tx_ids ids;
    size_t count = 0;
    encode(tokenizer, text, strlen(text), special, &ids);
    while (wanted[count] >= 0)
        count++;
    if (ids.count != count || (count && memcmp(ids.id, wanted, count * sizeof *wanted) != 0)) {
        for (size_t i = 0; i < ids.count; i++)
            print_message("%d ", ids.id[i]);
        fail_msg("%zu ids of \"%s\", expected %zu", ids.count, text, count);
    }
    free(ids.id);
}

#define EXPECT_IDS(tokenizer, text, special, ...) \
    expect_ids(tokenizer, text, special, (const int32_t[]){__VA_ARGS__, -1})

#endif
