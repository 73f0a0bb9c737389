/* SPDX-License-Identifier: Apache-2.0
 * The byte vocabulary: ids, texts, its files and the recognition of others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/json.h"
#include "models/text/bytes.h"
#include "scratch.h"

static void test_encode_and_decode(void **state)
{
    (void)state;
    char bytes[256], *text;
    int32_t ids[256];
    size_t size;
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    assert_int_equal(tx_bytes_encode(bytes, 256, true, ids), 256);
    for (int i = 0; i < 256; i++)
        assert_int_equal(ids[i], i);
    assert_ok(tx_bytes_decode(ids, 256, false, &text, &size));
    assert_int_equal(size, 256);
    assert_memory_equal(text, bytes, 256);
    free(text);
    assert_int_equal(tx_bytes_encode("", 0, true, ids), 0);
    assert_ok(tx_bytes_decode(ids, 0, true, &text, &size));
    assert_int_equal(size, 0);
    assert_string_equal(text, "");
    free(text);
}

static void test_special(void **state)
{
    (void)state;
    static const char text[] = "a<|endoftext|><|endoftext|";
    int32_t ids[sizeof text];
    char *back;
    size_t size, count = tx_bytes_encode(text, sizeof text - 1, true, ids);
    assert_int_equal(count, 1 + 1 + 12);
    assert_int_equal(ids[1], TX_BYTES_END);
    assert_int_equal(ids[2], '<');
    assert_ok(tx_bytes_decode(ids, count, false, &back, &size));
    assert_string_equal(back, text);
    free(back);
    assert_ok(tx_bytes_decode(ids, count, true, &back, &size));
    assert_string_equal(back, "a<|endoftext|");
    free(back);
    assert_int_equal(tx_bytes_encode(text, sizeof text - 1, false, ids), sizeof text - 1);
    ids[3] = 257;
    assert_refused(tx_bytes_decode(ids, 4, true, &back, &size), TX_INVALID, "id 257 at 3");
    ids[3] = -1;
    assert_refused(tx_bytes_decode(ids, 4, true, &back, &size), TX_INVALID, "id -1 at 3");
}

static void test_save_and_recognise(void **state)
{
    (void)state;
    char *folder = make_scratch(), *path = tx_path_join(folder, "tokenizer.json");
    assert_refused(tx_bytes_check(folder), TX_NOT_FOUND, "tokenizer.json");
    assert_ok(tx_bytes_save(folder, 128));
    assert_int_equal(count_entries(folder), 2);
    assert_ok(tx_bytes_check(folder));

    tx_json *json, *model, *vocab;
    assert_ok(tx_json_read(path, 1 << 20, &json));
    assert_ok(tx_json_get(json, "model", TX_JSON_OBJECT, &model));
    assert_ok(tx_json_get(model, "vocab", TX_JSON_OBJECT, &vocab));
    assert_int_equal(tx_json_size(vocab), TX_BYTES_VOCAB);
    assert_ok(tx_json_set_int(vocab, "A", 66));
    assert_ok(tx_json_write(path, json, TX_JSON_LINE));
    assert_refused(tx_bytes_check(folder), TX_UNSUPPORTED, "A: expected an integer from 65 to 65, found 66");
    assert_ok(tx_json_set_int(vocab, "A", 65));
    assert_ok(tx_json_set_int(vocab, "AB", 257));
    assert_ok(tx_json_write(path, json, TX_JSON_LINE));
    assert_refused(tx_bytes_check(folder), TX_UNSUPPORTED, "257 tokens");
    assert_ok(tx_json_set_string(model, "type", "WordPiece"));
    assert_ok(tx_json_write(path, json, TX_JSON_LINE));
    assert_refused(tx_bytes_check(folder), TX_UNSUPPORTED, "model is WordPiece, expected BPE");
    tx_json_free(json);
    free(path);
    remove_scratch(folder);
}

static void test_files_of_others(void **state)
{
    (void)state;
    static const struct {
        const char *file, *why; /* NULL: it is the byte vocabulary */
    } others[] = {
        {"models/tiny_gpt2_bytes/tokenizer.json", NULL},
        {"tokenizers/gpt2-tokenizer.json", "merges"},
        {"tokenizers/bert-base-uncased-tokenizer.json", "normalizer is BertNormalizer"},
        {"models/stories260K/tokenizer.json", "expected"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char *from = test_data(others[i].file); /* first: it may skip the test, and nothing is to be left behind then */
        char *folder = make_scratch(), *to = tx_path_join(folder, "tokenizer.json");
        char *text;
        size_t size;
        assert_ok(tx_file_read(from, 1 << 27, &text, &size));
        assert_ok(tx_file_write(to, text, size));
        if (others[i].why)
            assert_refused(tx_bytes_check(folder), TX_UNSUPPORTED, others[i].why);
        else
            assert_ok(tx_bytes_check(folder));
        free(text);
        free(from);
        free(to);
        remove_scratch(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode_and_decode),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_save_and_recognise),
        cmocka_unit_test(test_files_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
