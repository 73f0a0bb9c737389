/* SPDX-License-Identifier: Apache-2.0
 * Blocks, labels, padding, order and errors of the dataset. */
#include "models/text/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/tx_dataset_XXXXXX";

static void write_text(const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static tx_dataset *read_text(const void *bytes, size_t count, int64_t block)
{
    write_text(bytes, count);
    tx_dataset *dataset = NULL;
    assert_int_equal(tx_dataset_read_bytes(path, block, &dataset), TX_OK);
    return dataset;
}

static void blocks_and_labels(void **state)
{
    (void)state;
    tx_dataset *dataset = read_text("abcd\xff\0ghij", 10, 4);
    assert_int_equal(tx_dataset_tokens(dataset), 10);
    assert_int_equal(tx_dataset_blocks(dataset), 2);
    tx_order order = {0};
    int32_t tokens[12], labels[12];
    assert_int_equal(tx_dataset_rows(dataset, &order, 0, 3, tokens, labels), 2);
    const int32_t want_tokens[12] = {'a', 'b', 'c', 'd', 255, 0, 'g', 'h', 0, 0, 0, 0};
    const int32_t want_labels[12] = {'b', 'c', 'd', -100, 0, 'g', 'h', -100, -100, -100, -100, -100};
    assert_memory_equal(tokens, want_tokens, sizeof tokens);
    assert_memory_equal(labels, want_labels, sizeof labels);
    tx_dataset_free(dataset);
}

static void large_file(void **state)
{
    (void)state;
    size_t count = 300001;
    uint8_t *bytes = malloc(count);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(i * 7 % 251);
    tx_dataset *dataset = read_text(bytes, count, 1000);
    assert_int_equal(tx_dataset_blocks(dataset), 300);
    int32_t *tokens = malloc(1000 * sizeof *tokens), *labels = malloc(1000 * sizeof *labels);
    tx_order order = {0};
    assert_int_equal(tx_dataset_rows(dataset, &order, 299, 1, tokens, labels), 1);
    for (size_t t = 0; t < 1000; t++)
        assert_int_equal(tokens[t], bytes[299000 + t]);
    free(tokens);
    free(labels);
    free(bytes);
    tx_dataset_free(dataset);
}

static void order_is_a_permutation(void **state)
{
    (void)state;
    enum { MOST = 1031 };
    const int64_t counts[] = {1, 2, 3, 4, 5, 16, 17, 255, 257, MOST};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            tx_order order = {.shuffle = true, .seed = 42, .epoch = epoch};
            bool seen[MOST] = {false};
            for (int64_t place = 0; place < counts[c]; place++) {
                int64_t at = tx_order_at(&order, counts[c], place);
                assert_true(at >= 0 && at < counts[c] && !seen[at]);
                seen[at] = true;
            }
        }
}

/* A shuffled order hardly keeps neighbours, places, or the order of another seed or epoch. */
static void order_depends_on_seed_and_epoch(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    tx_order a = {.shuffle = true, .seed = 1}, b = {.shuffle = true, .seed = 2};
    tx_order c = {.shuffle = true, .seed = 1, .epoch = 1};
    int same_place = 0, neighbours = 0, as_b = 0, as_c = 0, again = 0;
    for (int64_t p = 0; p < COUNT; p++) {
        int64_t at = tx_order_at(&a, COUNT, p);
        same_place += at == p;
        neighbours += p > 0 && at == tx_order_at(&a, COUNT, p - 1) + 1;
        as_b += at == tx_order_at(&b, COUNT, p);
        as_c += at == tx_order_at(&c, COUNT, p);
        again += at == tx_order_at(&a, COUNT, p);
    }
    assert_in_range(same_place, 0, 9);
    assert_in_range(neighbours, 0, 9);
    assert_in_range(as_b, 0, 9);
    assert_in_range(as_c, 0, 9);
    assert_int_equal(again, COUNT);
}

static void expect_error(const void *bytes, size_t count, int64_t block, const char *part)
{
    write_text(bytes, count);
    tx_dataset *dataset = NULL;
    assert_int_not_equal(tx_dataset_read_bytes(path, block, &dataset), TX_OK);
    assert_null(dataset);
    assert_non_null(strstr(tx_error(), part));
    assert_non_null(strstr(tx_error(), path));
}

static void errors_say_what_is_wrong(void **state)
{
    (void)state;
    expect_error("", 0, 4, "empty");
    expect_error("abc", 3, 4, "3 tokens do not fill one block of 4");
    expect_error("abc", 3, 1, "2 or more");
    tx_dataset *dataset = NULL;
    assert_int_equal(tx_dataset_read_bytes("/nonexistent/text", 4, &dataset), TX_NOT_FOUND);
    assert_int_not_equal(tx_dataset_read_bytes("/", 4, &dataset), TX_OK);
}

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_and_labels),        cmocka_unit_test(large_file),
        cmocka_unit_test(order_is_a_permutation),   cmocka_unit_test(order_depends_on_seed_and_epoch),
        cmocka_unit_test(errors_say_what_is_wrong),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
