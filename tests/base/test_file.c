/* SPDX-License-Identifier: Apache-2.0
 * Files and JSON: atomic writes, limits, strictness, messages. */
#include "tests/unit.h"

#include "tests/scratch.h"
#include "tx_json.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void test_write_and_read(void **state)
{
    char *folder = make_scratch(), *path = tx_path_join(folder, "a file"), *data;
    size_t size;
    assert_ok(tx_file_write(path, "first\0half", 10));
    assert_ok(tx_file_write(path, "second", 6));
    assert_ok(tx_file_read(path, 6, &data, &size));
    assert_int_equal(size, 6);
    assert_string_equal(data, "second");
    free(data);
    assert_refused(tx_file_read(path, 5, &data, &size), TX_FORMAT, "larger than the 5");
    assert_ok(tx_file_read_text(path, 6, &data, &size));
    assert_int_equal(size, 6);
    free(data);
    assert_ok(tx_file_write(path, "first\0half", 10));
    assert_refused(tx_file_read_text(path, 10, &data, &size), TX_FORMAT, "byte 6 is NUL: this is not a text file");
    assert_int_equal(count_entries(folder), 1);
    free(path);
    path = tx_path_join(folder, "none");
    assert_refused(tx_file_read(path, 100, &data, &size), TX_NOT_FOUND, path);
    assert_refused(tx_file_read(folder, 1 << 20, &data, &size), TX_FORMAT, "a folder, not a regular file");
    free(path);
    remove_scratch(folder);
}

/* Only regular files are opened, and no one waits for the others. */
static void test_what_is_no_file(void **state)
{
    char *folder = make_scratch(), *file = tx_path_join(folder, "file"), *link = tx_path_join(folder, "link"),
         *pipe = tx_path_join(folder, "pipe"), *data;
    int descriptor = -1;
    int64_t bytes = 0;
    size_t size;
    assert_ok(tx_file_write(file, "text", 4));
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_ok(tx_file_read(link, 4, &data, &size));
    assert_string_equal(data, "text");
    free(data);
    assert_refused(tx_file_read(pipe, 4, &data, &size), TX_FORMAT, "pipe: a pipe, not a regular file");
    assert_refused(tx_file_read("/dev/null", 4, &data, &size), TX_FORMAT, "a device, not");
    const int writing[] = {O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, O_RDWR | O_NOFOLLOW,
                           O_WRONLY | O_APPEND | O_NOFOLLOW};
    for (size_t i = 0; i < sizeof writing / sizeof writing[0]; i++) {
        assert_refused(tx_file_open(link, writing[i], &descriptor, &bytes), TX_FORMAT, "link: a link, not");
        assert_refused(tx_file_open(pipe, writing[i], &descriptor, &bytes), TX_FORMAT, "pipe: a pipe, not");
        assert_refused(tx_file_open(folder, writing[i], &descriptor, &bytes), TX_FORMAT, ": a folder, not");
    }
    assert_int_equal(descriptor, -1);
    assert_ok(tx_file_open(link, O_RDONLY, &descriptor, &bytes));
    assert_int_equal(bytes, 4);
    assert_int_equal(fcntl(descriptor, F_GETFL) & O_NONBLOCK, 0);
    assert_ok(tx_file_read_at(descriptor, "link", 1, (char[3]){0}, 3));
    assert_int_equal(truncate(file, 2), 0);
    assert_refused(tx_file_read_at(descriptor, "link", 1, (char[3]){0}, 3), TX_IO, "link: has 2 bytes, 4 are needed");
    close(descriptor);
    free(file);
    free(link);
    free(pipe);
    remove_scratch(folder);
}

static void assert_holds(const char *path, const char *text)
{
    char *data;
    size_t size;
    assert_ok(tx_file_read(path, 100, &data, &size));
    assert_string_equal(data, text);
    free(data);
}

static bool is_kind(const char *path, mode_t kind)
{
    struct stat info;
    return lstat(path, &info) == 0 && (info.st_mode & S_IFMT) == kind;
}

/* Links: a name of the user's is followed, a name of TX's is replaced. */
static void test_output_links(void **state)
{
    char *folder = make_scratch(), *file = tx_path_join(folder, "file"), *link = tx_path_join(folder, "link"),
         *loose = tx_path_join(folder, "loose"), *made = tx_path_join(folder, "made");
    assert_ok(tx_file_write_output(file, "first", 5));
    assert_int_equal(symlink("file", link), 0);
    assert_ok(tx_file_write_output(link, "second", 6));
    assert_true(is_kind(link, S_IFLNK));
    assert_holds(file, "second");
    assert_int_equal(symlink("made", loose), 0);
    assert_ok(tx_file_write_output(loose, "third", 5));
    assert_true(is_kind(loose, S_IFLNK));
    assert_holds(made, "third");
    assert_ok(tx_file_write(link, "own", 3));
    assert_true(is_kind(link, S_IFREG));
    assert_holds(link, "own");
    assert_holds(file, "second");
    assert_int_equal(count_entries(folder), 4);
    assert_refused(tx_file_write_output(folder, "x", 1), TX_FORMAT, "a folder, not a regular file");
    free(file);
    free(link);
    free(loose);
    free(made);
    remove_scratch(folder);
}

/* Pipes and devices stay; a name of the user's is written, a name of TX's refused. */
static void test_output_is_no_file(void **state)
{
    char *folder = make_scratch(), *pipe = tx_path_join(folder, "pipe"), *device = tx_path_join(folder, "device"),
         *link = tx_path_join(folder, "link"), got[8] = "";
    assert_int_equal(mkfifo(pipe, 0600), 0);
    const int reader = open(pipe, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_ok(tx_file_write_output(pipe, "text", 4));
    assert_int_equal(read(reader, got, sizeof got), 4);
    assert_string_equal(got, "text");
    assert_refused(tx_file_write(pipe, "text", 4), TX_FORMAT, "pipe: a pipe, not a regular file");
    assert_true(is_kind(pipe, S_IFIFO));
    close(reader);
    if (mknod(device, S_IFCHR | 0600, 1 << 8 | 3) == 0) { /* as root: another node of /dev/null's */
        tx_file *file = NULL;
        assert_int_equal(symlink("device", link), 0);
        assert_ok(tx_file_write_output(device, "text", 4));
        assert_ok(tx_file_write_output(link, "text", 4));
        assert_ok(tx_file_create_output(device, &file));
        tx_file_discard(file);
        assert_refused(tx_file_write(device, "text", 4), TX_FORMAT, "a device, not");
        assert_true(is_kind(device, S_IFCHR) && is_kind(link, S_IFLNK));
    }
    free(pipe);
    free(device);
    free(link);
    remove_scratch(folder);
}

/* If the file is standard output, the text is appended to its earlier contents. */
static void test_output_is_standard_output(void **state)
{
    char *folder = make_scratch(), *path = tx_path_join(folder, "file");
    const int kept = dup(STDOUT_FILENO), file = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(kept >= 0 && file >= 0);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    const bool before = write(STDOUT_FILENO, "one ", 4) == 4;
    const tx_status status = tx_file_write_output("/dev/stdout", "two", 3);
    const bool after = write(STDOUT_FILENO, " three", 6) == 6;
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(file);
    assert_ok(status);
    assert_true(before && after);
    assert_holds(path, "one two three");
    assert_true(is_kind("/dev/stdout", S_IFLNK));
    free(path);
    remove_scratch(folder);
}

/* Names and file contents are escaped in messages for the terminal. */
static void test_escape(void **state)
{
    char safe[100], small[8];
    tx_escape("a\nb\t\r\x1b[1m\x7f \xc2\x9b\xc3\xa9\x9b\\", safe, sizeof safe);
    assert_string_equal(safe, "a\\nb \\r\\x1b[1m\\x7f \\u009b\xc3\xa9\x9b\\");
    tx_escape("abcdef\nghi", small, sizeof small);
    assert_string_equal(small, "abc");
    tx_fail(TX_IO, "%s: cannot open", "a\nb");
    assert_string_equal(tx_error(), "a\\nb: cannot open");
    tx_fail_in(TX_IO, "c\x1b");
    assert_string_equal(tx_error(), "c\\x1b: a\\nb: cannot open");
}

static void test_discard(void **state)
{
    char *folder = make_scratch(), *path = tx_path_join(folder, "kept"), *data;
    size_t size;
    tx_file *file;
    assert_ok(tx_file_write(path, "old", 3));
    assert_ok(tx_file_create(path, &file));
    assert_ok(tx_file_append(file, "new", 3));
    assert_int_equal(count_entries(folder), 2);
    tx_file_discard(file);
    tx_file_discard(NULL);
    assert_int_equal(count_entries(folder), 1);
    assert_ok(tx_file_read(path, 100, &data, &size));
    assert_string_equal(data, "old");
    free(data);
    free(path);
    remove_scratch(folder);
}

static void test_failures_leave_nothing(void **state)
{
    char *folder = make_scratch(), *path = tx_path_join(folder, "no/such/file"), *taken = tx_path_join(folder, "taken");
    assert_refused(tx_file_write(path, "x", 1), TX_NOT_FOUND, path);
    assert_ok(tx_folder_create(taken));
    assert_refused(tx_file_write(taken, "x", 1), TX_FORMAT, taken);
    assert_int_equal(count_entries(folder), 1);
    free(path);
    free(taken);
    remove_scratch(folder);
}

/* A write that stops half way (a file-size limit simulates a full disk) keeps the old file. */
static void test_no_room(void **state)
{
    enum { SIZE = 100000, LIMIT = 4096 };
    char *folder = make_scratch(), *path = tx_path_join(folder, "kept"), *data, *big = calloc(1, SIZE);
    size_t size;
    struct rlimit before, small;
    assert_ok(tx_file_write(path, "old", 3));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = LIMIT;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    tx_status status = tx_file_write(path, big, SIZE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_refused(status, TX_IO, "cannot write");
    assert_int_equal(count_entries(folder), 1);
    assert_ok(tx_file_read(path, 100, &data, &size));
    assert_string_equal(data, "old");
    free(data);
    free(big);
    free(path);
    remove_scratch(folder);
}

static void test_folders(void **state)
{
    char *folder = make_scratch(), *deep = tx_path_join(folder, "a/b \xc3\xa9/c/");
    assert_ok(tx_folder_create(deep));
    assert_ok(tx_folder_create(deep));
    assert_true(tx_file_exists(deep));
    char *file = tx_path_join(folder, "file"), *below = tx_path_join(file, "below");
    assert_ok(tx_file_write(file, "", 0));
    assert_refused(tx_folder_create(file), TX_IO, file);
    assert_refused(tx_folder_create(below), TX_IO, file);
    assert_refused(tx_folder_create(""), TX_INVALID, "empty");
    free(below);
    free(file);
    free(deep);
    remove_scratch(folder);
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static tx_status parse(const char *text, tx_json **json)
{
    return tx_json_parse(text, strlen(text), "input", json);
}

static void test_json_refuses(void **state)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "{} {}",
                                      "{\"a\":1,\"a\":2}",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "[01]",
                                      "[+1]",
                                      "[1.]",
                                      "[NaN]",
                                      "[1e999]",
                                      "// x\n[]",
                                      "[\"\x80\"]",
                                      "[\"\xc0\xaf\"]",
                                      "[\"\\ud800\"]",
                                      "[\"\n\"]",
                                      "['a']",
                                      "\xef\xbb\xbf[]",
                                      "[99999999999999999999, 1e999]",
                                      "[99999999999999999999 1]",
                                      "[099999999999999999999]"};
    tx_json *json;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(parse(bad[i], &json), TX_FORMAT, "input: not valid JSON");
    assert_refused(parse("{\"a\": \x1b[31m\n!}", &json), TX_FORMAT, "input");
    assert_null(strpbrk(tx_error(), "\n\r\x1b")); /* one line, whatever the file holds */
    char deep[200];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    assert_refused(tx_json_parse(deep, sizeof deep, "input", &json), TX_FORMAT, "deeper");
    assert_ok(tx_json_parse(deep + 40, 120, "input", &json));
    tx_json_free(json);
}

/* Python's words for numbers are read only from files. */
static void test_json_words(void **state)
{
    static const char text[] =
        "{\"a\": [Infinity, -Infinity, NaN], \"s\": \"NaN \\\" Infinity\", \"i\": 10000000000000000000}";
    static const char *const words[] = {"Infinity", "-Infinity", "NaN"};
    tx_json *json, *list;
    const char *s;
    double d;
    assert_refused(parse(text, &json), TX_FORMAT, "input: not valid JSON");
    assert_ok(tx_json_parse_file(text, strlen(text), "input", &json));
    assert_ok(tx_json_get(json, "a", TX_JSON_ARRAY, &list));
    for (size_t i = 0; i < 3; i++) {
        assert_ok(tx_json_get_string(tx_json_at(list, i), "__float__", &s));
        assert_string_equal(s, words[i]);
    }
    assert_ok(tx_json_get_string(json, "s", &s));
    assert_string_equal(s, "NaN \" Infinity");
    assert_ok(tx_json_get_number(json, "i", 0, 1e30, &d));
    assert_true(d == 1e19);
    tx_json_free(json);
    assert_refused(tx_json_parse_file("[Infinity1]", 11, "input", &json), TX_FORMAT, "input: not valid JSON");
    assert_refused(tx_json_parse_file("[Inf]", 5, "input", &json), TX_FORMAT, "input: not valid JSON");
}

static void test_json_getters(void **state)
{
    tx_json *json, *member;
    int64_t i = 7;
    double d = 7;
    bool b = false;
    const char *s = NULL;
    assert_ok(parse("{\"i\":12,\"d\":0.5,\"b\":true,\"s\":\"text\",\"n\":null,\"a\":[1,2],\"o\":{}}", &json));
    assert_ok(tx_json_get_int(json, "i", 0, 12, &i));
    assert_int_equal(i, 12);
    assert_refused(tx_json_get_int(json, "i", 0, 11, &i), TX_FORMAT, "i: expected an integer from 0 to 11, found 12");
    assert_refused(tx_json_get_int(json, "d", 0, 11, &i), TX_FORMAT, "found 0.5");
    assert_refused(tx_json_get_int(json, "s", 0, INT64_MAX, &i), TX_FORMAT, "at least 0, found \"text\"");
    assert_refused(tx_json_get_int(json, "x", 0, 11, &i), TX_NOT_FOUND, "x is missing");
    assert_int_equal(i, 12);
    assert_ok(tx_json_get_number(json, "i", 0, 100, &d));
    assert_true(d == 12.0);
    assert_refused(tx_json_get_number(json, "b", 0, 1, &d), TX_FORMAT, "b: expected a number from 0 to 1, found true");
    assert_ok(tx_json_get_bool(json, "b", &b));
    assert_true(b);
    assert_refused(tx_json_get_bool(json, "n", &b), TX_FORMAT, "found null");
    assert_ok(tx_json_get_string(json, "s", &s));
    assert_string_equal(s, "text");
    assert_refused(tx_json_get_string(json, "a", &s), TX_FORMAT, "found an array");
    assert_ok(tx_json_get(json, "a", TX_JSON_ARRAY, &member));
    assert_int_equal(tx_json_size(member), 2);
    assert_ok(tx_json_as_int(tx_json_at(member, 1), "a[1]", 0, 9, &i));
    assert_int_equal(i, 2);
    assert_null(tx_json_at(member, 2));
    assert_refused(tx_json_get(json, "a", TX_JSON_OBJECT, &member), TX_FORMAT, "expected an object, found an array");
    assert_false(tx_json_has(json, "n"));
    assert_false(tx_json_has(json, "x"));
    assert_true(tx_json_has(json, "b"));
    tx_json_free(json);
}

/* Integers beyond int64 are read only as numbers; those within int64 stay integers. */
static void test_json_long_integers(void **state)
{
    static const char text[] =
        "{\"a\":1000000000000000019884624838656,\"b\":9223372036854775808,\"c\":9223372036854775807,"
        "\"d\":-99999999999999999999,\"1\\\"11111111111111111111\":1.5,"
        "\"e\":[1111111111111111111,99999999999999999999.5,99999999999999999999e-1],"
        "\"s\":\"99999999999999999999\",\"m\":-9223372036854775808}";
    tx_json *json, *list;
    const char *s;
    double d = 0;
    int64_t i = 0;
    assert_ok(parse(text, &json));
    assert_ok(tx_json_get_number(json, "a", 0, 1e300, &d));
    assert_true(d == 1e30);
    assert_refused(tx_json_get_int(json, "a", 0, INT64_MAX, &i), TX_FORMAT, "a: expected an integer");
    assert_refused(tx_json_get_int(json, "b", 0, INT64_MAX, &i), TX_FORMAT, "b: expected an integer");
    assert_ok(tx_json_get_int(json, "c", 0, INT64_MAX, &i));
    assert_true(i == INT64_MAX);
    assert_ok(tx_json_get_int(json, "m", INT64_MIN, 0, &i));
    assert_true(i == INT64_MIN);
    assert_ok(tx_json_get_number(json, "d", -1e300, 0, &d));
    assert_true(d == -1e20);
    assert_true(tx_json_has(json, "1\"11111111111111111111"));
    assert_ok(tx_json_get(json, "e", TX_JSON_ARRAY, &list));
    assert_ok(tx_json_as_int(tx_json_at(list, 0), "e[0]", 0, INT64_MAX, &i));
    assert_true(i == INT64_C(1111111111111111111));
    assert_ok(tx_json_as_number(tx_json_at(list, 2), "e[2]", 0, 1e300, &d));
    assert_true(d == 1e19);
    assert_ok(tx_json_get_string(json, "s", &s));
    assert_string_equal(s, "99999999999999999999");
    tx_json_free(json);
    size_t used;
    assert_refused(tx_json_parse_prefix(text, sizeof text - 1, "input", &json, &used), TX_FORMAT, "too big integer");
    assert_ok(parse("99999999999999999999", &json));
    tx_json_free(json);
}

static void test_json_writing(void **state)
{
    tx_json *json = tx_json_object(), *array = tx_json_array();
    assert_ok(tx_json_append_number(array, 0.1));
    assert_ok(tx_json_append_string(array, "\"\xc3\xa9\""));
    assert_ok(tx_json_set_number(json, "lr", 1e-5));
    assert_ok(tx_json_set_bool(json, "b", true));
    assert_ok(tx_json_set_null(json, "n"));
    assert_ok(tx_json_set(json, "a", array));
    assert_refused(tx_json_set_number(json, "x", NAN), TX_INVALID, "x: JSON has no number");
    assert_null(tx_json_pack("{s:f, s:o}", "x", (double)NAN, "y", tx_json_array()));
    assert_non_null(strstr(tx_error(), "JSON: "));
    assert_null(tx_json_pack("[s]", "\xff"));
    assert_refused(tx_json_set_string(json, "x", "\xff"), TX_INVALID, "not UTF-8");
    assert_refused(tx_json_set_int(NULL, "x", 1), TX_MEMORY, "x");
    char *text = tx_json_text(json, TX_JSON_LINE);
    assert_string_equal(text, "{\"lr\": 1e-5, \"b\": true, \"n\": null, \"a\": [0.1, \"\\\"\xc3\xa9\\\"\"]}");
    free(text);
    assert_ok(tx_json_set_number(json, "third", 1.0 / 3.0));
    text = tx_json_text(json, TX_JSON_LINE);
    tx_json *back;
    assert_ok(parse(text, &back));
    double third = 0;
    assert_ok(tx_json_get_number(back, "third", 0, 1, &third));
    assert_true(third == 1.0 / 3.0);
    free(text);
    tx_json_free(back);

    char *folder = make_scratch(), *path = tx_path_join(folder, "x.json");
    assert_ok(tx_json_write(path, json, TX_JSON_SORTED));
    size_t size;
    assert_ok(tx_file_read(path, 1000, &text, &size));
    assert_memory_equal(text, "{\n  \"a\": [\n", 11);
    assert_memory_equal(text + size - 2, "}\n", 2);
    free(text);
    assert_ok(tx_json_read(path, 1000, &back));
    assert_int_equal(tx_json_size(back), 5);
    tx_json_free(back);
    free(path);
    remove_scratch(folder);
    tx_json_free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_and_read),
        cmocka_unit_test(test_what_is_no_file),
        cmocka_unit_test(test_output_links),
        cmocka_unit_test(test_output_is_no_file),
        cmocka_unit_test(test_output_is_standard_output),
        cmocka_unit_test(test_escape),
        cmocka_unit_test(test_discard),
        cmocka_unit_test(test_failures_leave_nothing),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_json_refuses),
        cmocka_unit_test(test_json_words),
        cmocka_unit_test(test_json_getters),
        cmocka_unit_test(test_json_long_integers),
        cmocka_unit_test(test_json_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
