/* SPDX-License-Identifier: Apache-2.0
 * Importance matrices in both forms of llama-imatrix, and damaged ones. */
#include "models/gguf/gguf_importance.h"
#include "tests/scratch.h"

/* Two experts of three columns, of which one expert got no token; and a matrix of two columns, one never active. */
static void write_gguf(const char *path, float first, int64_t counts)
{
    const float sums[] = {first, 8, 6, 1, 2, 3}, tokens[] = {2, 0}, small[] = {0, 4}, four[] = {4};
    const tx_gguf_tensor tensors[] = {{"blk.0.a.weight.in_sum2", TX_GGUF_F32, 2, {2, 3}},
                                      {"blk.0.a.weight.counts", TX_GGUF_F32, 2, {counts, 1}},
                                      {"blk.0.b.weight.in_sum2", TX_GGUF_F32, 2, {1, 2}},
                                      {"blk.0.b.weight.counts", TX_GGUF_F32, 2, {1, 1}}};
    tx_gguf_writer *w;
    assert_ok(tx_gguf_create(&w));
    tx_gguf_put_int(w, "imatrix.chunk_count", 5);
    assert_ok(tx_gguf_begin(w, path, tensors, 4));
    assert_ok(tx_gguf_append(w, sums, sizeof sums));
    assert_ok(tx_gguf_append(w, tokens, (size_t)counts * sizeof tokens[0]));
    assert_ok(tx_gguf_append(w, small, sizeof small));
    assert_ok(tx_gguf_append(w, four, sizeof four));
    assert_ok(tx_gguf_commit(w));
}

static void test_gguf(void **state)
{
    const char *path = TX_PATH(*state, "im.gguf");
    static const float wanted[] = {2, 4, 3, 1, 1, 1};
    tx_importance *m;
    const float *columns;
    write_gguf(path, 4, 2);
    assert_ok(tx_importance_open(path, &m));
    assert_int_equal(tx_importance_count(m), 2);
    assert_ok(tx_importance_of(m, "blk.0.a.weight", 3, 2, &columns));
    assert_memory_equal(columns, wanted, sizeof wanted);
    assert_ok(tx_importance_of(m, "blk.0.b.weight", 2, 1, &columns));
    assert_true(columns[0] > 0.0f && columns[0] < 1e-5f && columns[1] == 1.0f);
    assert_ok(tx_importance_of(m, "blk.1.b.weight", 2, 1, &columns));
    assert_null(columns);
    assert_refused(tx_importance_of(m, "blk.0.a.weight", 4, 2, &columns), TX_FORMAT, "has 6 columns, not 8");
    tx_importance_close(m);
    write_gguf(path, -1, 2);
    assert_refused(tx_importance_open(path, &m), TX_FORMAT, "importance of column 0 is -0.5");
    write_gguf(path, NAN, 2);
    assert_refused(tx_importance_open(path, &m), TX_FORMAT, "importance of column 0 is");
    write_gguf(path, 4, 1);
    assert_refused(tx_importance_open(path, &m), TX_FORMAT, "blk.0.a.weight.counts");
}

/* The same numbers without a file. */
static void test_made(void **state)
{
    static const float sums[] = {4, 8, 6, 1, 2, 3}, tokens[] = {2, 0}, wanted[] = {2, 4, 3, 1, 1, 1}, bad[] = {1, -1};
    const char *path = TX_PATH(*state, "made.gguf");
    tx_importance *m;
    const float *columns;
    char *text;
    tx_gguf_file *file;
    tx_gguf_writer *w;
    assert_ok(tx_importance_create("im.gguf", "a text", 5, &m));
    assert_ok(tx_importance_add(m, "blk.0.a.weight", 3, 2, sums, tokens));
    assert_refused(tx_importance_add(m, "blk.0.b.weight", 2, 1, bad, tokens), TX_FORMAT, "column 1 is -0.5");
    assert_ok(tx_importance_of(m, "blk.0.a.weight", 3, 2, &columns));
    assert_memory_equal(columns, wanted, sizeof wanted);
    assert_ok(tx_gguf_create(&w));
    tx_importance_put(m, w);
    assert_ok(tx_gguf_begin(w, path, NULL, 0));
    assert_ok(tx_gguf_commit(w));
    tx_importance_close(m);
    assert_ok(tx_gguf_open(path, &file));
    assert_ok(tx_gguf_get_string(file, "quantize.imatrix.dataset", &text, NULL));
    assert_string_equal(text, "a text");
    free(text);
    tx_gguf_close(file);
}

static void test_older(void **state)
{
    static const int32_t head[] = {1, 4}, sizes[] = {3, 2};
    static const float values[] = {6, 9};
    const char *path = TX_PATH(*state, "im.dat");
    unsigned char file[64];
    tx_importance *m;
    const float *columns;
    memcpy(file, head, 8);
    memcpy(file + 8, "name", 4);
    memcpy(file + 12, sizes, 8);
    memcpy(file + 20, values, 8);
    memcpy(file + 28, (int32_t[]){7, 2}, 8);
    memcpy(file + 36, "of", 2);
    for (size_t size = 0; size <= 38; size++) {
        assert_ok(tx_file_write(path, file, size));
        if (size != 28 && size != 38) {
            assert_refused(tx_importance_open(path, &m), TX_FORMAT, "im.dat");
            continue;
        }
        assert_ok(tx_importance_open(path, &m));
        assert_ok(tx_importance_of(m, "name", 2, 1, &columns));
        assert_true(columns[0] == 2.0f && columns[1] == 3.0f);
        tx_importance_close(m);
    }
    assert_refused(tx_importance_open(TX_PATH(*state, "none"), &m), TX_NOT_FOUND, "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_gguf, open_scratch, close_scratch),
                                       cmocka_unit_test_setup_teardown(test_made, open_scratch, close_scratch),
                                       cmocka_unit_test_setup_teardown(test_older, open_scratch, close_scratch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
