/* SPDX-License-Identifier: Apache-2.0
 * The cache of tokenized texts: entries that are found again, damaged, or of another text, and a folder that is not
 * writable. */

#include "tests/data/texts.h"

#include <sys/stat.h>

static char *folder, *cache;
static tx_tokenizer *bytes;

static int begin(void **state)
{
    folder = make_scratch();
    cache = tx_path_join(folder, "kept/here");
    return tx_tokenizer_bytes(&bytes);
}

static int end(void **state)
{
    remove_scratch(folder);
    free(cache);
    tx_tokenizer_free(bytes);
    return 0;
}

/* Opens the text with the cache; returns its digest. */
static const char *open_cached(const char *name, const char *text, tx_dataset_options options)
{
    static char digest[2][TX_DIGEST_TEXT];
    static int turn;
    char *path = put(folder, name, text, strlen(text));
    tx_dataset *dataset = NULL;
    options.cache = cache;
    assert_ok(tx_dataset_open(path, &options, &dataset));
    free(path);
    turn ^= 1;
    strcpy(digest[turn], tx_dataset_digest(dataset));
    tx_dataset_free(dataset);
    return digest[turn];
}

/* The only file of the cache, allocated. */
static char *only_file(void)
{
    char *path = NULL;
    DIR *list = opendir(cache);
    assert_non_null(list);
    for (struct dirent *e = readdir(list); e; e = readdir(list))
        if (e->d_name[0] != '.') {
            assert_null(path);
            path = tx_path_join(cache, e->d_name);
        }
    closedir(list);
    assert_non_null(path);
    return path;
}

static void empty_cache(void)
{
    if (tx_file_exists(cache))
        remove_scratch(strdup(cache));
}

/* When the file was written. */
static struct timespec changed(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_mtim;
}

static void kept_and_found(void **state)
{
    reported r = {0};
    empty_cache();
    tx_dataset_options options = plain_options(bytes, 3, &r), without = plain_options(bytes, 3, NULL);
    const char *text = "one\r\ntwo\nthree\n\nfour";
    char first[TX_DIGEST_TEXT], again[TX_DIGEST_TEXT];
    strcpy(first, open_cached("a.txt", text, options));
    char *file = only_file();
    struct timespec before = changed(file);
    strcpy(again, open_cached("b.raw", text, options)); /* the name is no part of it */
    struct timespec after = changed(file);
    assert_string_equal(first, again);
    assert_int_equal(before.tv_nsec, after.tv_nsec);
    tx_dataset *dataset = NULL;
    assert_ok(tx_dataset_open(TX_PATH(folder, "a.txt"), &without, &dataset));
    assert_string_equal(tx_dataset_digest(dataset), first);
    tx_dataset_free(dataset);
    assert_int_equal(r.count, 0);
    free(file);
}

/* The cached file is used: changed ids with a matching digest give other blocks. */
static void what_is_kept_is_used(void **state)
{
    empty_cache();
    tx_dataset_options options = plain_options(bytes, 3, NULL);
    char first[TX_DIGEST_TEXT], digest[TX_DIGEST_TEXT];
    strcpy(first, open_cached("a.txt", "one\ntwo\n", options));
    char *file = only_file(), *data = NULL;
    size_t size;
    assert_ok(tx_file_read(file, INT64_MAX, &data, &size));
    enum { TRAILER = 192, DIGEST = 112 };
    data[0]++;
    memset(data + size - TRAILER + DIGEST, 0, 64);
    assert_ok(tx_digest_data(data, size, digest));
    memcpy(data + size - TRAILER + DIGEST, digest, 64);
    assert_ok(tx_file_write(file, data, size));
    assert_string_not_equal(open_cached("a.txt", "one\ntwo\n", options), first);
    free(data);
    free(file);
}

/* One use of the cache serves all parts and cuts. */
static void parts_of_what_is_kept(void **state)
{
    empty_cache();
    const char *text = "{\"text\":\"abcd\"}\n{\"text\":\"efg\"}\n{\"text\":\"hijkl\"}\n";
    tx_dataset_options options = plain_options(bytes, 2, NULL);
    open_cached("a.jsonl", text, options);
    options.from = 34.0;
    options.group = 1;
    for (int kept = 0; kept < 2; kept++) {
        tx_dataset *dataset = NULL;
        options.cache = kept ? cache : NULL;
        assert_ok(tx_dataset_open(TX_PATH(folder, "a.jsonl"), &options, &dataset));
        assert_int_equal(tx_dataset_tokens(dataset), 8);
        assert_int_equal(tx_dataset_blocks(dataset), 3);
        int32_t *tokens = all_tokens(dataset);
        const int32_t want[] = {'e', 'f', 'h', 'i', 'j', 'k'};
        assert_memory_equal(tokens, want, sizeof want);
        free(tokens);
        tx_dataset_free(dataset);
    }
    free(only_file());
}

static void another_text_or_form(void **state)
{
    empty_cache();
    tx_dataset_options options = plain_options(bytes, 2, NULL);
    const char *text = "{\"text\":\"abcd\"}\n";
    char lines[TX_DIGEST_TEXT];
    strcpy(lines, open_cached("a.txt", text, options));
    assert_string_not_equal(open_cached("a.jsonl", text, options), lines);
    open_cached("a.txt", "{\"text\":\"abcd\"}", options);
    assert_int_equal(count_entries(cache), 4); /* with the lock */
}

/* Every byte changed, many truncations, and one byte more: each is reported, and the entry is written again. */
static void damaged(void **state)
{
    empty_cache();
    reported r = {0};
    tx_dataset_options options = plain_options(bytes, 3, &r);
    char first[TX_DIGEST_TEXT];
    const char *text = "one\ntwo\n\nxyz";
    strcpy(first, open_cached("a.txt", text, options));
    char *file = only_file(), *good = NULL, *found = NULL;
    size_t size, size_found;
    assert_ok(tx_file_read(file, INT64_MAX, &good, &size));
    char *bad = malloc(size + 1);
    const size_t lengths[] = {0, 1, 8, 191, 192, 193, size - 4, size - 1, size + 1};
    enum { LENGTHS = sizeof lengths / sizeof lengths[0] };
    for (size_t k = 0; k < size + LENGTHS; k++) {
        memcpy(bad, good, size);
        bad[size] = 'x';
        if (k < size)
            bad[k] ^= 0x10;
        free(put(cache, strrchr(file, '/') + 1, bad, k < size ? size : lengths[k - size]));
        assert_string_equal(open_cached("a.txt", text, options), first);
        assert_int_equal(r.count, k + 1);
        assert_non_null(strstr(r.last, file));
        assert_non_null(strstr(r.last, "is tokenised again"));
        assert_ok(tx_file_read(file, INT64_MAX, &found, &size_found));
        assert_int_equal(size_found, size);
        assert_memory_equal(found, good, size);
        free(found);
    }
    free(bad);
    free(good);
    free(file);
}

/* While it is in use. */
static void shortened(void **state)
{
    empty_cache();
    tx_dataset_options options = plain_options(bytes, 3, NULL);
    options.cache = cache;
    for (int kept = 0; kept < 2; kept++) {
        char *path = put_text(folder, "a.txt", "one\ntwo\n"), *file;
        int32_t tokens[3], labels[3];
        tx_sample_order order = {0};
        tx_dataset *dataset = NULL;
        assert_ok(tx_dataset_open(path, &options, &dataset));
        file = only_file();
        assert_int_equal(truncate(file, 2), 0);
        assert_refused(read_rows(dataset, &order, 0, 1, tokens, labels), TX_IO, "has 2 bytes");
        tx_dataset_free(dataset);
        assert_ok(tx_dataset_open(path, &options, &dataset)); /* made anew */
        tx_dataset_free(dataset);
        free(file);
        free(path);
    }
}

static void lines_left_out(void **state)
{
    empty_cache();
    reported r = {0};
    tx_dataset_options options = plain_options(bytes, 2, &r);
    const char *text = "{\"text\":\"abcd\"}\n#\n{\"text\":\"efg\"}\n#\n";
    options.skip_bad = 2;
    open_cached("a.jsonl", text, options);
    open_cached("a.jsonl", text, options);
    assert_int_equal(r.count, 2);
    assert_non_null(strstr(r.last, "2 malformed lines are skipped, the first is line 2"));
    tx_dataset *dataset = NULL;
    options.skip_bad = 1;
    options.cache = cache;
    assert_refused(tx_dataset_open(TX_PATH(folder, "a.jsonl"), &options, &dataset), TX_FORMAT,
                   "more than 1 malformed lines, the first: line 2:");
}

static void no_folder_to_keep_in(void **state)
{
    empty_cache();
    reported r = {0};
    tx_dataset_options options = plain_options(bytes, 2, &r);
    char *taken = put_text(folder, "taken", ""), *parent = cache;
    cache = tx_path_join(taken, "cache"); /* its parent is a file */
    open_cached("a.txt", "abcd", options);
    assert_int_equal(r.count, 1);
    assert_non_null(strstr(r.last, "cannot be cached"));
    assert_non_null(strstr(r.last, taken));
    free(cache);
    cache = parent;
    free(taken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_and_found),
        cmocka_unit_test(what_is_kept_is_used),
        cmocka_unit_test(parts_of_what_is_kept),
        cmocka_unit_test(another_text_or_form),
        cmocka_unit_test(damaged),
        cmocka_unit_test(shortened),
        cmocka_unit_test(lines_left_out),
        cmocka_unit_test(no_folder_to_keep_in),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
