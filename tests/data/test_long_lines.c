/* SPDX-License-Identifier: Apache-2.0
 * Lines of files: the positions of their ends, equally strict checks of long and short JSON texts, and the memory of
 * long lines. */

#include "models/data/lines.h"
#include "tests/data/texts.h"

#include <sys/resource.h>
#include <sys/wait.h>

/* Memory under a sanitizer is no measure. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

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

/* ---- Where lines end ----------------------------------------------------------------------------------- */

/* The next line of a text by looking at each byte; its end made \n. */
static size_t next_line(const char *text, size_t size, size_t *at, bool carriage, char *line)
{
    size_t length = 0;
    while (*at < size) {
        char c = text[(*at)++];
        if (carriage && c == '\r') {
            *at += *at < size && text[*at] == '\n';
            c = '\n';
        }
        line[length++] = c;
        if (c == '\n')
            break;
    }
    return length;
}

static void ends_of_lines(void **state)
{
    enum { SIZE = 1500000 };
    static const char ends[] = {'\n', '\r', '\r', 'a'};
    char *text = malloc(SIZE), *want = malloc(SIZE), *line = NULL;
    uint64_t random = 1;
    for (int round = 0; round < 4; round++) {
        const uint64_t gap = round < 2 ? 40 : 400000;
        for (size_t i = 0, next = 0; i < SIZE; i++) {
            text[i] = 'x';
            if (i >= next) {
                text[i] = ends[next_random(&random) % sizeof ends];
                next = i + next_random(&random) % gap;
            }
        }
        char *path = put(folder, "lines", text, SIZE);
        tx_data_file file = {0};
        assert_ok(tx_data_file_open(path, &file));
        const int64_t from = round % 2 ? 7 : 0;
        tx_lines lines = {.file = &file, .at = from, .end = SIZE, .form = round % 2 ? TX_LINES_TEXT : TX_LINES_PLAIN};
        size_t size = 1, at = (size_t)from;
        int64_t newlines = 0, counted = 0, place = 0;
        while (size > 0) {
            size_t length = next_line(text, SIZE, &at, lines.form == TX_LINES_TEXT, want);
            assert_ok(tx_lines_next(&lines, &line, &size));
            assert_int_equal(size, length);
            assert_true(size == 0 || memcmp(line, want, size) == 0);
        }
        for (size_t i = 0; i < SIZE; i++)
            newlines += text[i] == '\n';
        assert_ok(tx_lines_count(&file, SIZE, &counted));
        assert_int_equal(counted, newlines);
        assert_ok(tx_lines_after(&file, SIZE / 2, &place));
        const char *after = memchr(text + SIZE / 2, '\n', SIZE / 2);
        assert_int_equal(place, after ? after + 1 - text : SIZE);
        assert_int_equal(truncate(path, SIZE / 2), 0);
        lines = (tx_lines){.file = &file, .end = SIZE, .data = lines.data, .room = lines.room};
        tx_status status = TX_OK;
        while (!status)
            status = tx_lines_next(&lines, &line, &size);
        assert_refused(status, TX_IO, "has 750000 bytes, ");
        free(lines.data);
        tx_data_file_close(&file);
        free(path);
    }
    free(want);
    free(text);
}

/* ---- Long lines of JSON ---------------------------------------------------------------------------------- */

/* Behind so many blanks a line counts as long. */
#define BLANKS 1100

/* A long line has the verdict and the text of the same line without the blanks. */
static bool expect_same(const char *line, size_t size)
{
    tx_json *json = NULL, *of_long = NULL;
    const char *text = NULL, *long_text = NULL;
    size_t length = 0, long_length = 0;
    char *copy = malloc(size + BLANKS);
    memset(copy, ' ', BLANKS);
    memcpy(copy + BLANKS, line, size);
    tx_status want = tx_json_parse_line(line, size, "line", &json);
    if (!want && (tx_json_type_of(json) != TX_JSON_OBJECT || tx_json_get_text(json, "text", &text, &length)))
        want = TX_FORMAT;
    tx_status status = tx_jsonl_text(copy, size + BLANKS, "line", &of_long, &long_text, &long_length);
    if (status != want || (!want && (long_length != length || memcmp(long_text, text, length) != 0)))
        fail_msg("%.*s: status %d and %zu bytes, expected %d and %zu", (int)size, line, status, long_length, want,
                 length);
    if (status)
        assert_non_null(strstr(tx_error(), "line"));
    else
        tx_json_free(of_long);
    tx_json_free(json);
    free(copy);
    return !want;
}

static void as_strict_as_short_ones(void **state)
{
    static const char *const lines[] = {
        "{\"text\": \"plain\"}",
        "{\"text\": \"\"}",
        "{\"a\": {\"text\": 1}, \"text\" : \"b\\\"c\\\\\\/\\b\\f\\n\\r\\t\", \"z\": [\"text\", {\"text\": \"q\"}]}",
        "{\"text\": \"\\u00e9\\u4e2d\\ud83d\\ude00\\u0000\\u001F\\uFFFF \\uABCDe\"}",
        "{\"text\": \"\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80\x7F\"}",
        "{\"\\u0074ext\": \"escaped key\"}",
        "{\"text\": \"a\", \"text\": \"b\"}",
        "{\"text\": 1, \"text\": \"b\"}",
        "{\"text\": \"a\", \"\\u0074ext\": \"b\"}",
        "{\"text\": [\"a\"]}",
        "{\"x\": \"text\", \"text\": \"a\"}",
        "{\"x\": \"text\" : \"a\"}",
        "[\"text\", \"a\"]",
        "[{\"text\": \"a\"}]",
        "{\"text\": \"a\"} x",
        "{\"text\": \"a\"",
        "{\"text\": \"a}",
        "{\"text\": \"\\ud83d\"}",
        "{\"text\": \"\\ude00\"}",
        "{\"text\": \"\\ud83d\\u0041\"}",
        "{\"text\": \"\\ud83d\\ud83d\"}",
        "{\"text\": \"\\u12g4\"}",
        "{\"text\": \"\\u123\"}",
        "{\"text\": \"\\x\"}",
        "{\"text\": \"\\",
        "{\"text\": \"tab\there\"}",
        "{\"text\": \"\xC3\"}",
        "{\"text\": \"\xED\xA0\x80\"}",
        "{\"text\": \"\xC0\xAF\"}",
        "{\"text\": \"a\", \"n\": 123456789012345678901234567890}",
        "{\"text\": \"a\", \"n\": 1e999}",
        "{\"text\" \"a\"}",
        "{text: \"a\"}",
        "{\"text\":\"a\",}",
        "",
    };
    enum { LINES = sizeof lines / sizeof lines[0] };
    int good = 0, rounds = 0;
    uint64_t random = 7;
    assert_false(expect_same("{\"text\": \"a\0b\"}", 14));
    assert_false(expect_same("{\"text\": \"a\"}\0", 14));
    for (size_t i = 0; i < LINES; i++) {
        char text[600];
        size_t size = strlen(lines[i]);
        good += expect_same(lines[i], size);
        for (int k = 0; k < 2000; k++, rounds++) {
            memcpy(text, lines[i], size);
            good += expect_same(text, mutate(text, size, &random));
        }
    }
    print_message("%d of %d lines are good\n", good, rounds);
    assert_in_range(good, rounds / 50, rounds);
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

/* Most memory, in bytes, that a process took to open a file. */
static int64_t memory_of(const char *path)
{
    struct rusage usage;
    int code = 1;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tx_tokenizer *bytes = NULL;
        tx_dataset *dataset = NULL;
        tx_dataset_options options;
        tx_status status = tx_tokenizer_bytes(&bytes);
        options = plain_options(bytes, 16, NULL);
        options.threads = 2;
        _exit(status || tx_dataset_open(path, &options, &dataset) ? 1 : 0);
    }
    assert_int_equal(wait4(child, &code, 0, &usage), child);
    assert_int_equal(code, 0);
    return (int64_t)usage.ru_maxrss * 1024;
}

static void write_line(const char *path, bool json, const char *word, size_t size)
{
    char many[60000];
    size_t length = strlen(word);
    for (size_t i = 0; i < sizeof many; i++)
        many[i] = word[i % length];
    FILE *file = fopen(path, "wb");
    fputs(json ? "{\"text\": \"" : "", file);
    for (size_t used = 0; used < size; used += sizeof many)
        fwrite(many, 1, sizeof many, file);
    fputs(json ? "\", \"more\": 1}\n" : "\n", file);
    assert_int_equal(fclose(file), 0);
}

/* A line of one word, of short words, of escapes: no more than three times its size and a constant. */
static void memory_of_long_lines(void **state)
{
    enum { SIZE = 100000000, ROOM = 12000000 }; /* so large that the allocator gives each its own pages */
    static const char *const words[] = {"a", "to be, or ", "\\u00e9"}; /* whose lengths divide 60000 */
    if (SANITIZED)
        skip();
    char *small = put_text(folder, "small.jsonl", "{\"text\": \"sixteen letters..\"}\n");
    const int64_t base = memory_of(small);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const bool json = i > 0;
        char *path = TX_PATH(folder, json ? "long.jsonl" : "long.txt");
        write_line(path, json, words[i], SIZE);
        const int64_t taken = memory_of(path) - base;
        print_message("%s, %s: %.1f times the line\n", words[i], json ? "JSON" : "text", (double)taken / SIZE);
        assert_true(taken <= 3 * (int64_t)SIZE + ROOM);
        unlink(path);
    }
    free(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_lines),
        cmocka_unit_test(as_strict_as_short_ones),
        cmocka_unit_test(memory_of_long_lines),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
