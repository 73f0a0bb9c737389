/* SPDX-License-Identifier: Apache-2.0
 * Files of tokens: llm.c's and nanoGPT's, good and bad. */

#include "models/task/loader.h"
#include "tests/data/texts.h"

#define VOCAB 50257

static char *folder;

static int begin(void **state)
{
    folder = make_scratch();
    return 0;
}

static int end(void **state)
{
    remove_scratch(folder);
    return 0;
}

/* A file with a header of llm.c and `count` tokens i * 37 % VOCAB. */
typedef struct file {
    int32_t header[256];
    uint32_t wide[500];
} file;

static size_t make_file(file *f, int32_t magic, int32_t version, int32_t count)
{
    *f = (file){.header = {magic, version, count}};
    bool narrow = magic == 20240520;
    for (int32_t i = 0; i < count; i++)
        if (narrow)
            ((uint16_t *)f->wide)[i] = (uint16_t)(i * 37 % VOCAB);
        else
            f->wide[i] = (uint32_t)(i * 37 % VOCAB);
    return sizeof f->header + (size_t)count * (narrow ? 2 : 4);
}

static tx_status open_file(const void *data, size_t size, const tx_dataset_options *options, tx_dataset **dataset)
{
    char *path = put(folder, "a.bin", data, size);
    tx_status status = tx_dataset_open(path, options, dataset);
    free(path);
    return status;
}

static tx_dataset_options options_of(int64_t block, reported *r)
{
    tx_dataset_options options = plain_options(NULL, block, r);
    options.vocab = VOCAB;
    return options;
}

static void expect_ramp(const void *data, size_t size, const tx_dataset_options *options, int64_t count, int64_t first)
{
    tx_dataset *dataset = NULL;
    assert_ok(open_file(data, size, options, &dataset));
    assert_int_equal(tx_dataset_tokens(dataset), count);
    assert_int_equal(tx_dataset_blocks(dataset), count / options->block);
    int32_t *tokens = all_tokens(dataset);
    for (int64_t i = 0; i < count / options->block * options->block; i++)
        assert_int_equal(tokens[i], (first + i) * 37 % VOCAB);
    free(tokens);
    tx_dataset_free(dataset);
}

static void good_files(void **state)
{
    file f;
    tx_dataset_options options = options_of(7, NULL);
    expect_ramp(&f, make_file(&f, 20240520, 1, 300), &options, 300, 0);
    size_t size = make_file(&f, 20240520, 1, 300) - sizeof f.header;
    expect_ramp(f.wide, size, &options, 300, 0);
    expect_ramp(&f, make_file(&f, 20240801, 7, 300), &options, 300, 0);
    options.group = 3; /* of texts, which there are none of */
    expect_ramp(&f, make_file(&f, 20240520, 1, 300), &options, 300, 0);
    options.from = 10.0;
    options.to = 90.5;
    expect_ramp(&f, make_file(&f, 20240520, 1, 301), &options, 272 - 30, 30);
}

static void wide_ids(void **state)
{
    file f;
    size_t size = make_file(&f, 20240801, 7, 4);
    tx_dataset_options options = options_of(2, NULL);
    tx_dataset *dataset = NULL;
    f.wide[2] = 128255;
    options.vocab = 128256;
    assert_ok(open_file(&f, size, &options, &dataset));
    int32_t *tokens = all_tokens(dataset);
    assert_int_equal(tokens[2], 128255);
    free(tokens);
    tx_dataset_free(dataset);
    options.vocab--;
    assert_refused(open_file(&f, size, &options, &dataset), TX_FORMAT,
                   "token 2 (byte 1032) is 128255, outside the vocabulary");
    f.wide[1] = UINT32_MAX;
    assert_refused(open_file(&f, size, &options, &dataset), TX_FORMAT, "token 1 (byte 1028) is 4294967295");
}

static void expect_bad(const void *data, size_t size, const char *text)
{
    tx_dataset_options options = options_of(7, NULL);
    tx_dataset *dataset = NULL;
    assert_refused(open_file(data, size, &options, &dataset), TX_FORMAT, text);
    assert_non_null(strstr(tx_error(), "a.bin: "));
    assert_null(dataset);
}

static void bad_files(void **state)
{
    file f;
    size_t size = make_file(&f, 20240520, 1, 300);
    expect_bad(&f, size - 1, "300 tokens of 2 bytes, the file has 599");
    expect_bad(&f, size - 2, "cut off");
    expect_bad(&f, size + 2, "602 bytes");
    expect_bad(&f, 1020, "less than the header of 1024");
    expect_bad(&f, 6, "less than the header");
    expect_bad(f.wide, 599, "odd");
    expect_bad("", 0, "empty");
    expect_bad("a", 1, "odd");
    expect_bad("ab", 2, "1 tokens do not fill");
    f.header[2] = -1;
    expect_bad(&f, size, "says -1 tokens");
    f.header[2] = INT32_MAX;
    expect_bad(&f, size, "says 2147483647 tokens");
    make_file(&f, 20240520, 2, 300);
    expect_bad(&f, size, "version 2 of magic 20240520; TX supports version 1");
    expect_bad(&f, make_file(&f, 20240801, 1, 300), "version 1 of magic 20240801; TX supports version 7");
    expect_bad(&f, make_file(&f, 20240801, 7, 300) - 4, "300 tokens of 4 bytes, the file has 1196");
    make_file(&f, 20240520, 1, 300);
    f.header[0] = 20240521;
    expect_bad(&f, size, "whose magic is 20240521");
    f.header[0] = 0;
    expect_bad(&f, size, "whose magic is 0");
    static const int32_t others[] = {20240522, 20240326, 20240328, 20240527};
    static const char *const names[] = {"evaluation", "weights", "tokenizer", "state"};
    for (size_t i = 0; i < 4; i++)
        expect_bad(&f, make_file(&f, others[i], 1, 30), names[i]);
    make_file(&f, 20240520, 1, 300);
    ((uint16_t *)f.wide)[299] = VOCAB;
    expect_bad(&f, size, "token 299 (byte 1622) is 50257");
    expect_bad(f.wide, 600, "token 299 (byte 598) is 50257");
}

/* Every length of a file, and every byte of its header changed: refused, or read as it says. */
static void cut_and_changed(void **state)
{
    file f;
    tx_dataset_options options = options_of(2, NULL);
    size_t size = make_file(&f, 20240520, 1, 20);
    for (size_t length = 0; length < size; length++) {
        tx_dataset *dataset = NULL;
        assert_int_not_equal(open_file(&f, length, &options, &dataset), TX_OK);
        assert_null(dataset);
    }
    for (size_t at = 0; at < 12; at++)
        for (int bit = 0; bit < 8; bit++) {
            tx_dataset *dataset = NULL;
            ((uint8_t *)&f)[at] ^= (uint8_t)(1 << bit);
            assert_int_not_equal(open_file(&f, size, &options, &dataset), TX_OK);
            assert_null(dataset);
            ((uint8_t *)&f)[at] ^= (uint8_t)(1 << bit);
        }
    tx_dataset *dataset = NULL;
    assert_ok(open_file(&f, size, &options, &dataset));
    tx_dataset_free(dataset);
}

/* The row of a block, and the row by way of a loader. */
static void expect_no_row(const tx_dataset *dataset, int64_t block, tx_status status, const char *text,
                          const char *of_loader)
{
    int32_t tokens[7], labels[7];
    const tx_samples samples = tx_causal_lm_samples(dataset);
    tx_sample_order order = {0};
    assert_refused(read_rows(dataset, &order, block, 1, tokens, labels), status, text);
    for (int32_t workers = 0; workers < 4; workers++) {
        const tx_job_settings set = {.workers = workers};
        tx_loader_options options = {
            .size = sizeof options, .set = &set, .step_rows = tx_dataset_blocks(dataset), .batch = 2};
        tx_loader *loader = NULL;
        const tx_step_batch *batch = NULL;
        assert_ok(tx_loader_create(&samples, &options, 0, &loader));
        for (int again = 0; again < 2; again++) {
            assert_refused(tx_loader_next(loader, &batch), status, of_loader);
            assert_non_null(strstr(tx_error(), "a.bin: "));
            assert_null(batch);
        }
        tx_loader_free(loader);
    }
}

/* Changes of a file while a dataset of it is open. */
static void shortened_and_changed(void **state)
{
    file f;
    size_t size = make_file(&f, 20240520, 1, 300);
    char *path = TX_PATH(folder, "a.bin");
    tx_dataset_options options = options_of(7, NULL);
    tx_dataset *dataset = NULL;
    assert_ok(open_file(&f, size, &options, &dataset));
    int32_t tokens[14], labels[14];
    tx_sample_order order = {0};
    assert_int_equal(truncate(path, 1024 + 41), 0);
    assert_ok(read_rows(dataset, &order, 0, 2, tokens, labels));
    assert_int_equal(tokens[13], 13 * 37);
    expect_no_row(dataset, 2, TX_IO, "has 1065 bytes, 1066 are needed: it was truncated", "has 1065 bytes");
    ((uint16_t *)f.wide)[12] = VOCAB;
    FILE *again = fopen(path, "r+b"); /* the same file, with other contents */
    assert_int_equal(fwrite(&f, 1, size, again), size);
    assert_int_equal(fclose(again), 0);
    expect_no_row(dataset, 1, TX_FORMAT, "token 12 is 50257 now, outside the vocabulary of 50257", "token 12");
    ((uint16_t *)f.wide)[12] = 1;
    free(put(folder, "b", &f, size));
    assert_int_equal(rename(TX_PATH(folder, "b"), path), 0); /* another file of that name */
    assert_refused(read_rows(dataset, &order, 1, 1, tokens, labels), TX_FORMAT, "token 12");
    tx_dataset_free(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files),
        cmocka_unit_test(wide_ids),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(cut_and_changed),
        cmocka_unit_test(shortened_and_changed),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
