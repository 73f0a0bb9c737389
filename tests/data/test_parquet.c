/* SPDX-License-Identifier: Apache-2.0
 * Rows of small Parquet files, which pyarrow wrote for the fuzzer, and data files that are prepared as one. */
#include "models/data/prepare.h"
#include "models/files/splits.h"
#include "models/parquet/parquet.h"
#include "tests/scratch.h"

#include <limits.h>

#define SEEDS TX_SOURCE_DIR "/tests/fuzz/seeds/parquet/"

static const struct {
    const char *file;
    int64_t rows;
    const char *first; /* rows, with newlines */
} cases[] = {
    {"text", 12, "{\"text\": \"a\"}\n{\"text\": \"bb\"}\n{\"text\": null}\n{\"text\": \"ccc\"}\n"},
    {"dictionary", 12, "{\"text\": \"a\"}\n{\"text\": \"bb\"}\n{\"text\": null}\n{\"text\": \"ccc\"}\n"},
    {"gzip", 12, "{\"text\": \"a\"}\n{\"text\": \"bb\"}\n{\"text\": null}\n{\"text\": \"ccc\"}\n"},
    {"zstd", 12, "{\"text\": \"a\"}\n{\"text\": \"bb\"}\n{\"text\": null}\n{\"text\": \"ccc\"}\n"},
    {"delta", 67, "{\"x\": 0, \"s\": \"pre0\"}\n{\"x\": 3, \"s\": \"pre1\"}\n"},
    {"lengths", 9, "{\"s\": \"\", \"f\": 0.0, \"b\": true}\n{\"s\": \"x\", \"f\": 0.5, \"b\": false}\n"},
    {"int96", 3, "{\"t\": \"1999-01-01T00:00:00\"}\n"},
    {"times", 3,
     "{\"d\": \"2020-02-29\", \"t\": \"1999-01-01T02:03:04.000005\", \"n\": -1.25, \"u\": 1, \"h\": 1.0}\n"},
    {"nested", 3,
     "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": null}], "
     "\"m\": {\"k\": 1}, \"l\": [[1], []]}\n"
     "{\"messages\": [], \"m\": {}, \"l\": [null]}\n"
     "{\"messages\": null, \"m\": null, \"l\": [[2, 3]]}\n"},
};

static void rows_of_all_encodings(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[PATH_MAX];
        tx_parquet *file = NULL;
        const char *row, *want = cases[i].first;
        size_t size = 1;
        int64_t count = 0;
        snprintf(path, sizeof path, SEEDS "%s", cases[i].file);
        assert_ok(tx_parquet_open(path, &file));
        assert_int_equal(tx_parquet_rows(file), cases[i].rows);
        while (size > 0) {
            assert_ok(tx_parquet_next(file, &row, &size));
            count += size > 0;
            if (size == 0 || !*want)
                continue;
            assert_true(strncmp(row, want, size) == 0 && want[size] == '\n');
            want += size + 1;
        }
        assert_int_equal(count, cases[i].rows);
        assert_true(!*want);
        tx_parquet_close(file);
    }
}

/* ---- Prepared files ------------------------------------------------------------------------------------------ */

static char *folder;

static int begin(void **state)
{
    folder = make_scratch();
    return chdir(folder);
}

static int end(void **state)
{
    remove_scratch(folder);
    return 0;
}

static void put(const char *name, const char *text)
{
    assert_ok(tx_file_write(name, text, strlen(text)));
}

/* Prepares the files of an option's value; the prepared text must be `want`. */
static void expect(const char *files, const tx_prepare_options *options, const char *want)
{
    tx_data_source source = {0};
    char *path = NULL, *again = NULL, *text = NULL;
    size_t size = 0;
    assert_ok(tx_data_files(files, &source.files));
    assert_ok(tx_data_prepare(&source, 1, options, &path));
    assert_ok(tx_file_read(path, 1 << 20, &text, &size));
    assert_string_equal(text, want);
    assert_ok(tx_data_prepare(&source, 1, options, &again));
    assert_string_equal(path, again);
    tx_names_free(&source.files);
    free(path);
    free(again);
    free(text);
}

static void refuse(const char *files, const tx_prepare_options *options, const char *words)
{
    tx_data_source source = {0};
    char *path = NULL;
    assert_ok(tx_data_files(files, &source.files));
    assert_refused(tx_data_prepare(&source, 1, options, &path), TX_FORMAT, words);
    assert_null(path);
    tx_names_free(&source.files);
}

static void prepared_files(void **state)
{
    const tx_prepare_options plain = {.folder = "cache"};
    const tx_prepare_options columns = {
        .folder = "cache", .text_columns = "title,body", .delimiter = ": ", .label_column = "stars"};
    const tx_prepare_options label = {.folder = "cache", .label_column = "stars"};
    put("a.txt", "one\ntwo");
    put("b.txt", "three\n");
    expect("a.txt", &plain, "one\ntwo"); /* as it is */
    expect("a.txt,b.txt", &plain, "one\ntwo\nthree\n");
    put("a.jsonl", "{\"text\": \"x\"}\n\n{\"text\": \"y\"}");
    put("c.csv", "text,n\n\"say \"\"hi\"\"\",1\n");
    expect("a.jsonl,c.csv", &plain,
           "{\"text\": \"x\"}\n{\"text\": \"y\"}\n{\"text\": \"say \\\"hi\\\"\", \"n\": \"1\"}\n");
    put("r.csv", "title,body,stars\nT,B,5\nU,,4\n");
    expect("r.csv", &columns, "{\"text\": \"T: B\", \"label\": \"5\"}\n{\"text\": \"U: \", \"label\": \"4\"}\n");
    expect("r.csv", &label,
           "{\"title\": \"T\", \"body\": \"B\", \"stars\": \"5\", \"label\": \"5\"}\n"
           "{\"title\": \"U\", \"body\": \"\", \"stars\": \"4\", \"label\": \"4\"}\n");
    refuse("c.csv", &columns, "c.csv: row 1: no column title,body; there are text, n");
    refuse("c.csv", &label, "c.csv: row 1: no column stars; there are text, n");
}

/* A prepared file that was changed is made again. */
static void changed_files(void **state)
{
    const tx_prepare_options plain = {.folder = "kept"};
    tx_data_source source = {0};
    char *path = NULL;
    put("p.txt", "p\n");
    put("q.txt", "q\n");
    expect("p.txt,q.txt", &plain, "p\nq\n");
    assert_ok(tx_data_files("p.txt,q.txt", &source.files));
    assert_ok(tx_data_prepare(&source, 1, &plain, &path));
    put(path, "p\n");
    expect("p.txt,q.txt", &plain, "p\nq\n");
    free(path);
    tx_names_free(&source.files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_all_encodings),
        cmocka_unit_test(prepared_files),
        cmocka_unit_test(changed_files),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
