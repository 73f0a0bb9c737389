/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of text by number and column: formats, any order, damaged files. */
#include "models/data/rows.h"
#include "models/tokenizer/buffer.h"
#include "tests/scratch.h"

#include <unistd.h>

static char *write_file(const char *folder, const char *name, const char *text)
{
    char *path = tx_path_join(folder, name);
    assert_ok(tx_file_write(path, text, strlen(text)));
    return path;
}

static tx_status open_rows(const char *path, tx_rows **rows)
{
    *rows = NULL;
    TX_TRY(tx_rows_open(path, rows));
    TX_TRY(tx_rows_index(*rows));
    return tx_rows_columns(*rows);
}

static void expect_cell(tx_rows *rows, int64_t row, const char *column, const char *text)
{
    size_t size;
    const tx_json *object;
    const int32_t c = tx_rows_column(rows, column);
    assert_true(c >= 0);
    assert_ok(tx_rows_read(rows, row, &object));
    assert_string_equal(tx_rows_text(rows, c, &size), text);
    assert_int_equal(size, strlen(text));
}

static void test_formats(void **state)
{
    enum { FILES = 4 };
    static const char *const files[FILES][2] = {
        {"a.csv", "\xEF\xBB\xBFlabel,text\r\n1,\"a, \"\"b\"\"\nc\"\r\n\r\n2.5,\n"},
        {"a.tsv", "label\ttext\n1\ta, \"b\"\n2.5\t\n"},
        {"a.jsonl",
         "{\"label\": 1, \"text\": \"a, \\\"b\\\"\\nc\"}\n\n{\"text\": \"\", \"label\": 2.5, \"more\": []}\n"},
        {"a.json", "\n[\n  {\"label\": 1, \"text\": \"a, \\\"b\\\"\\nc\"},\n  {\"label\": 2.5, \"text\": null}\n]\n"},
    };
    static const char *const first[FILES] = {"a, \"b\"\nc", "a, \"b\"", "a, \"b\"\nc", "a, \"b\"\nc"};
    char *folder = make_scratch();
    for (int i = 0; i < FILES; i++) {
        char *path = write_file(folder, files[i][0], files[i][1]);
        tx_rows *table;
        assert_ok(open_rows(path, &table));
        assert_int_equal(tx_rows_count(table), 2);
        assert_null(tx_rows_name(table, 2));
        expect_cell(table, 0, "label", "1");
        expect_cell(table, 0, "text", first[i]);
        expect_cell(table, 1, "label", "2.5");
        expect_cell(table, 1, "text", "");
        assert_int_equal(tx_rows_column(table, "more"), -1);
        tx_rows_close(table);
        free(path);
    }
    remove_scratch(folder);
}

/* Rows are read in any order. */
static void test_order(void **state)
{
    char *folder = make_scratch();
    char *path =
        write_file(folder, "a.csv", "label,text,text\n1,\"a\nb\",q\n\n2,\"c \"\"d\"\"\n\",\n3,\"x\"y \"z\",[1]\n");
    tx_rows *table;
    assert_ok(open_rows(path, &table));
    assert_int_equal(tx_rows_count(table), 3);
    for (int i = 0; i < 2; i++) {
        expect_cell(table, 2, "text", "xy \"z\"");
        expect_cell(table, 0, "text", "a\nb");
        expect_cell(table, 0, "text.1", "q");
        expect_cell(table, 1, "text", "c \"d\"\n");
    }
    tx_rows_close(table);
    free(path);
    remove_scratch(folder);
}

/* A table that becomes shorter while it is read is a failure. */
static void test_shorter(void **state)
{
    enum { ROWS = 40000 };
    char *folder = make_scratch();
    tx_buffer text = {0};
    tx_rows *table;
    const tx_json *object;
    tx_buffer_add(&text, "a,b\n", 4);
    for (int i = 0; i < ROWS; i++)
        tx_buffer_add(&text, "12345678,abcdefg\n", 17);
    tx_buffer_add(&text, "", 1);
    char *path = write_file(folder, "a.csv", text.data);
    assert_ok(open_rows(path, &table));
    assert_int_equal(tx_rows_count(table), ROWS);
    expect_cell(table, ROWS - 1, "b", "abcdefg");
    expect_cell(table, 0, "a", "12345678");
    assert_int_equal(truncate(path, 14), 0);
    const tx_status status = tx_rows_read(table, ROWS - 1, &object);
    assert_refused(tx_rows_skip(table, ROWS - 1, 1, status), TX_IO, "row 40000");
    tx_rows_close(table);
    free(text.data);
    free(path);
    remove_scratch(folder);
}

static void test_faults(void **state)
{
    static const struct {
        const char *name, *text, *words;
        tx_status status;
    } bad[] = {
        {"a.csv", "a,b\n1,2\n3\n", "row 2: 1 fields, the first row has 2", TX_FORMAT},
        {"a.csv", "a,b\n1,\"2\n", "row 1: a quote is not closed", TX_FORMAT},
        {"a.tsv", "a\tb\n", "has no rows", TX_FORMAT},
        {"a.tsv",
         "\xFF\xFE"
         "a",
         "text in UTF-16", TX_FORMAT},
        {"a.csv", "PK\3\4", "not text, but a zip archive", TX_FORMAT},
        {"a.tsv", "", "has no rows", TX_FORMAT},
        {"a.jsonl", "{\"a\": 1}\n{\"b\": 1}\n", "row 2: a is missing", TX_FORMAT},
        {"a.jsonl", "[1]\n", "row 1: expected an object", TX_FORMAT},
        {"a.jsonl", "{\"a\": 1}\n{\"a\"\n", "row 2: JSON", TX_FORMAT},
        {"a.xml", "<a/>", ".csv, .tsv", TX_INVALID},
    };
    char *folder = make_scratch();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *path = write_file(folder, bad[i].name, bad[i].text);
        tx_rows *table;
        tx_status status = open_rows(path, &table);
        for (int64_t row = 0; !status && row < tx_rows_count(table); row++) {
            const tx_json *object;
            status = tx_rows_skip(table, row, 0, tx_rows_read(table, row, &object));
        }
        assert_refused(status, bad[i].status, bad[i].words);
        tx_rows_close(table);
        free(path);
    }
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_shorter),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
