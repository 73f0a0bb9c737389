/* SPDX-License-Identifier: Apache-2.0
 * Rows, padding, order; texts, JSON Lines and their threads. */
#include "tests/data/datasets.h"
#include "tx_json.h"

/* Holds the tokens of a file, in blocks of 2, against `want`; the last byte of an odd number is dropped. */
static void expect_tokens(const char *name, const void *data, size_t size, const void *want, size_t count)
{
    tx_dataset_options options = plain_options(bytes, 2, NULL);
    tx_dataset *dataset = open_text(name, data, size, &options);
    assert_int_equal(tx_dataset_tokens(dataset), count);
    assert_int_equal(tx_dataset_blocks(dataset), count / 2);
    int32_t *tokens = all_tokens(dataset);
    for (size_t i = 0; i < count / 2 * 2; i++)
        assert_int_equal(tokens[i], ((const uint8_t *)want)[i]);
    free(tokens);
    tx_dataset_free(dataset);
}

#define expect_text(name, text, want) expect_tokens(name, text, sizeof(text) - 1, want, sizeof(want) - 1)

#define refuse(name, text, options, status, part) expect_refused(name, text, sizeof(text) - 1, options, status, part)

/* ---- Rows and order --------------------------------------------------------------------------------- */

static void blocks_and_labels(void **state)
{
    tx_dataset_options options = plain_options(bytes, 4, NULL);
    tx_dataset *dataset = open_text("a.txt", "abcd\x7f\0ghij", 10, &options);
    assert_int_equal(tx_dataset_tokens(dataset), 10);
    assert_int_equal(tx_dataset_blocks(dataset), 2);
    assert_int_equal(tx_dataset_block(dataset), 4);
    tx_sample_order order = {0};
    int32_t tokens[12], labels[12];
    assert_ok(read_rows(dataset, &order, 0, 3, tokens, labels));
    const int32_t want_tokens[12] = {'a', 'b', 'c', 'd', 127, 0, 'g', 'h', -1, -1, -1, -1};
    const int32_t want_labels[12] = {'b', 'c', 'd', -100, 0, 'g', 'h', -100, -100, -100, -100, -100};
    assert_memory_equal(tokens, want_tokens, sizeof tokens);
    assert_memory_equal(labels, want_labels, sizeof labels);
    tx_dataset_free(dataset);
}

static void order_is_a_permutation(void **state)
{
    enum { MOST = 1031 };
    const int64_t counts[] = {1, 2, 3, 4, 5, 16, 17, 255, 257, MOST};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            tx_sample_order order = {.shuffle = true, .seed = 42, .epoch = epoch};
            bool seen[MOST] = {false};
            for (int64_t place = 0; place < counts[c]; place++) {
                int64_t at = tx_sample_order_at(&order, counts[c], place);
                assert_true(at >= 0 && at < counts[c] && !seen[at]);
                seen[at] = true;
            }
        }
}

/* A shuffled order hardly keeps neighbours, places, or the order of another seed or epoch. */
static void order_depends_on_seed_and_epoch(void **state)
{
    enum { COUNT = 1000 };
    tx_sample_order a = {.shuffle = true, .seed = 1}, b = {.shuffle = true, .seed = 2};
    tx_sample_order c = {.shuffle = true, .seed = 1, .epoch = 1};
    int same_place = 0, neighbours = 0, as_b = 0, as_c = 0, again = 0;
    for (int64_t p = 0; p < COUNT; p++) {
        int64_t at = tx_sample_order_at(&a, COUNT, p);
        same_place += at == p;
        neighbours += p > 0 && at == tx_sample_order_at(&a, COUNT, p - 1) + 1;
        as_b += at == tx_sample_order_at(&b, COUNT, p);
        as_c += at == tx_sample_order_at(&c, COUNT, p);
        again += at == tx_sample_order_at(&a, COUNT, p);
    }
    assert_in_range(same_place, 0, 9);
    assert_in_range(neighbours, 0, 9);
    assert_in_range(as_b, 0, 9);
    assert_in_range(as_c, 0, 9);
    assert_int_equal(again, COUNT);
}

/* ---- Texts ------------------------------------------------------------------------------------------- */

static void lines_of_text(void **state)
{
    expect_text("a.txt", "one\ntwo\n", "one\ntwo\n");
    expect_text("a.raw", "no end", "no end");
    expect_text("a.tokens", "\n\n\nx\n", "\n\n\nx\n");
    expect_text("a", "any name\n", "any name\n");
    expect_text("a.txt", "\r\nab\r\nc\rd\r\r\n", "\nab\nc\nd\n\n");
    expect_text("a.txt", "the end\r", "the end\n");
    expect_text("a.txt", "a\rb", "a\nb");
    expect_text("a.txt", "\xEF\xBB\xBFmark\n\xEF\xBB\xBF", "mark\n\xEF\xBB\xBF");
    expect_text("a.txt", "nul\0nul\n\x7f\n", "nul\0nul\n\x7f\n");
}

/* Lines that are not UTF-8, at the beginning and after it. */
static void lines_of_other_encodings(void **state)
{
    enum { LINES = 1000, LINE = 8 };
    reported r = {0};
    tx_dataset_options options = plain_options(bytes, 3, &r);
    static const char caf[] = "caf\xe9 au lait\n", mixed[] = "caf\xc3\xa9 au lait\ncaf\xe9\n";
    static char late[LINES * LINE + 1];
    for (int i = 0; i < LINES; i++)
        snprintf(late + i * LINE, sizeof late - (size_t)(i * LINE), "line ok\n");
    late[600 * LINE] = '\xe9';
    refuse("a.txt", caf, &options, TX_FORMAT, "one byte a character, such as Latin-1 or Windows-1252");
    refuse("a.txt", mixed, &options, TX_FORMAT, ": line 2: byte 4 is not UTF-8");
    expect_refused("a.txt", late, LINES * LINE, &options, TX_FORMAT, ": line 601: byte 1 is not UTF-8");
    refuse("a.txt", "\xc3\xa9\n\xff\xfe\xc3\n", &options, TX_FORMAT, ": line 2: byte 1 is not UTF-8");
    options.skip_bad = 1;
    tx_dataset *dataset = open_text("a.txt", mixed, sizeof mixed - 1, &options);
    assert_int_equal(tx_dataset_tokens(dataset), 14);
    assert_non_null(strstr(r.last, "1 malformed line is skipped, the first is line 2"));
    tx_dataset_free(dataset);
}

static void special_tokens(void **state)
{
    tx_dataset_options options = plain_options(bytes, 3, NULL);
    tx_dataset *dataset = open_text("a.txt", "a<|endoftext|>b", 15, &options);
    int32_t *tokens = all_tokens(dataset);
    const int32_t want[] = {'a', TX_BYTES_END, 'b'};
    assert_int_equal(tx_dataset_tokens(dataset), 3);
    assert_memory_equal(tokens, want, sizeof want);
    free(tokens);
    tx_dataset_free(dataset);
}

/* A tokenizer with an id over 65,535: its tokens are kept as uint32. */
static void wide_ids(void **state)
{
    char *home = TX_PATH(folder, "wide"), *file = TX_PATH(home, "tokenizer.json");
    tx_json *json = NULL, *added = NULL, *model = NULL, *vocab = NULL, *token = NULL;
    tx_tokenizer *wide = NULL;
    assert_ok(tx_folder_create(home));
    assert_ok(tx_tokenizer_save(bytes, home, 64));
    assert_ok(tx_json_read(file, 1 << 22, &json));
    assert_ok(tx_json_get(json, "added_tokens", TX_JSON_ARRAY, &added));
    assert_ok(tx_json_get(json, "model", TX_JSON_OBJECT, &model));
    assert_ok(tx_json_get(model, "vocab", TX_JSON_OBJECT, &vocab));
    for (int id = 257; id <= 65600; id++) {
        char word[16];
        snprintf(word, sizeof word, id < 65600 ? "w%d" : "<far>", id);
        assert_ok(tx_json_set_int(vocab, word, id));
    }
    token = tx_json_copy(tx_json_at(added, 0));
    tx_json_set_int(token, "id", 65600);
    tx_json_set_string(token, "content", "<far>");
    assert_ok(tx_json_append(added, token));
    assert_ok(tx_json_write(file, json, TX_JSON_PRETTY));
    tx_json_free(json);
    assert_ok(tx_tokenizer_open(home, &wide));
    tx_dataset_options options = plain_options(wide, 3, NULL);
    char *cache = tx_path_join(folder, "wide/cache");
    options.cache = cache;
    refuse("a.txt", "a<far>bc<far>d", &options, TX_INVALID, "text 1 has the id 65600");
    options.vocab = 65601;
    for (int kept = 0; kept < 2; kept++) {
        tx_dataset *dataset = open_text("a.txt", "a<far>bc<far>d", 14, &options);
        int32_t *tokens = all_tokens(dataset);
        const int32_t want[] = {'a', 65600, 'b', 'c', 65600, 'd'};
        assert_int_equal(tx_dataset_tokens(dataset), 6);
        assert_memory_equal(tokens, want, sizeof want);
        free(tokens);
        tx_dataset_free(dataset);
    }
    tx_tokenizer_free(wide);
    free(cache);
}

static void files_refused(void **state)
{
    tx_dataset_options options = plain_options(bytes, 4, NULL), without = plain_options(NULL, 4, NULL);
    refuse("a.txt", "", &options, TX_FORMAT, "empty");
    refuse("a.txt", "\xEF\xBB\xBF", &options, TX_FORMAT, "no tokens");
    refuse("a.txt", "abc", &options, TX_FORMAT, "3 tokens do not fill one block of 4");
    refuse("a.txt", "abcd", &without, TX_INVALID, "needs a tokenizer");
    refuse("a.parquet", "abcd", &options, TX_UNSUPPORTED, ".parquet");
    refuse("a.csv", "text\nabcd\n", &options, TX_UNSUPPORTED, ".csv");
    refuse("a.txt", "PAR1abcdefgh", &options, TX_FORMAT, "Parquet");
    refuse("a.bin", "PK\3\4abcdefgh", &options, TX_FORMAT, "zip");
    refuse("a.txt", "\x1f\x8b\x08 abcdef", &options, TX_FORMAT, "gzip");
    refuse("a.jsonl", "version https://git-lfs.github.com/spec/v1\n", &options, TX_FORMAT, "git lfs pull");
    tx_dataset *dataset = NULL;
    assert_refused(tx_dataset_open("/nonexistent/text", &options, &dataset), TX_NOT_FOUND, "/nonexistent/text");
    assert_refused(tx_dataset_open(folder, &options, &dataset), TX_FORMAT, "a folder, not a regular file");
    assert_null(dataset);
}

/* A text in UTF-16 or UTF-32, without a mark; `shift` moves ASCII letters to another script. */
static size_t write_wide(char *to, int32_t width, bool big, uint32_t shift)
{
    static const char said[] = "some words of a text\nand another line of it, 1 or 2\n";
    size_t used = 0;
    for (int k = 0; k < 8; k++)
        for (const char *at = said; *at; at++) {
            const uint32_t code = *at >= 'a' ? (uint32_t)*at - 'a' + shift : (uint32_t)*at;
            for (int32_t i = 0; i < width; i++)
                to[used++] = (char)(code >> 8 * (big ? width - 1 - i : i));
        }
    return used;
}

/* Files of other kinds are recognized by their first bytes, not by their names. Texts in other encodings are read as
 * text. */
static void what_is_no_text(void **state)
{
    static const struct {
        const char *begin;
        size_t at, size;
        const char *what;
    } others[] = {
        {"%PDF-1.7\n", 0, 9, "a.txt: not text, but a PDF: extract its text"},
        {"PK\3\4\x14\0", 0, 6, "a zip archive"},
        {"BZh91AY&SY", 0, 10, "compressed by bzip2"},
        {"ustar  \0", 257, 8, "a tar archive"},
        {"\x89PNG\r\n\x1A\n", 0, 8, "a PNG image"},
        {"\xFF\xD8\xFF\xE0", 0, 4, "a JPEG image"},
        {"RIFF\0\1\0\0WEBPVP8 ", 0, 16, "a WebP image"},
        {"\x7F"
         "ELF\2\1\1",
         0, 7, "an ELF program"},
        {"SQLite format 3", 0, 16, "an SQLite database"},
        {"\xFF\xFE"
         "a\0b\0",
         0, 6, "text in UTF-16"},
        {"\xFE\xFF\0a\0b", 0, 6, "text in UTF-16"},
        {"\xFF\xFE\0\0a\0\0\0", 0, 8, "text in UTF-32"},
    };
    static const uint32_t scripts[] = {'a', 0x3B1, 0x430, 0x915, 0xE01, 0x4E00, 0xAC00};
    static const char *const texts[] = {
        "caf\xC3\xA9 na\xC3\xAFve", "a\0b c", "MZ BM II*", "Convert WEBP", "PDF %PDF-1.4", "\xE6\x96\x87 a",
        "\x1B[31mred\x1B[0m"};
    tx_dataset_options options = plain_options(bytes, 4, NULL);
    char text[4096];
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        memset(text, 'x', sizeof text);
        memcpy(text + others[i].at, others[i].begin, others[i].size);
        expect_refused("a.txt", text, sizeof text, &options, TX_FORMAT, others[i].what);
    }
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
        for (int big = 0; big < 2; big++) {
            size_t size = write_wide(text, 2, big, scripts[i]);
            expect_refused("a.txt", text, size, &options, TX_FORMAT, big ? "text in UTF-16BE" : "text in UTF-16LE");
            size = write_wide(text, 4, big, scripts[i]);
            expect_refused("a.txt", text, size, &options, TX_FORMAT, big ? "text in UTF-32BE" : "text in UTF-32LE");
        }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const size_t length = i == 1 ? 5 : strlen(texts[i]);
        const size_t size = sizeof text - sizeof text % length;
        for (size_t k = 0; k < size; k++)
            text[k] = texts[i][k % length];
        tx_dataset_free(open_text("a.txt", text, size, &options));
    }
}

static void options_refused(void **state)
{
    const tx_dataset_options good = plain_options(bytes, 4, NULL);
    tx_dataset_options bad[12];
    for (size_t i = 0; i < 12; i++)
        bad[i] = good;
    bad[0].block = 1;
    bad[1].vocab = 0;
    bad[2].group = -1;
    bad[3].from = -1.0;
    bad[4].to = 101.0;
    bad[5].from = 100.0;
    bad[6].to = (double)NAN;
    bad[7].from = (double)NAN;
    bad[8].most_blocks = -1;
    bad[9].skip_bad = -1;
    bad[10].threads = 0;
    bad[11].vocab = (int64_t)1 << 31;
    for (size_t i = 0; i < 12; i++)
        refuse("a.txt", "abcdefgh", &bad[i], TX_INVALID, "");
    tx_dataset_options size = good;
    tx_dataset *dataset = NULL;
    size.size--;
    assert_refused(tx_dataset_open("a.txt", &size, &dataset), TX_INVALID, "size field");
}

static void ids_outside_the_vocabulary(void **state)
{
    tx_dataset_options options = plain_options(bytes, 4, NULL);
    options.vocab = 'z';
    refuse("a.txt", "abcd\nefgh\n\nxyz\n", &options, TX_INVALID,
           "text 4 has the id 122, outside the model's vocabulary of 122");
    options.vocab = 'z' + 1;
    tx_dataset_free(open_text("a.txt", "abcd\nefgh\n\nxyz\n", 15, &options));
}

/* ---- JSON Lines ---------------------------------------------------------------------------------------- */

static void json_lines(void **state)
{
    expect_text("a.jsonl", "{\"text\": \"one\\n\"}\n{\"id\": 7, \"text\": \"two\"}\n", "one\ntwo");
    expect_text("a.json", "\xEF\xBB\xBF{\"text\":\"a\\u0000b\"}\r\n\n \t\r\n{\"text\":\"\"}\n{\"text\":\"\\u00e9\"}",
                "a\0b\xC3\xA9");
}

static void json_lines_refused(void **state)
{
    tx_dataset_options options = plain_options(bytes, 2, NULL);
    refuse("a.jsonl", "{\"text\":\"abc\"}\n\n{\"text\":\"abc\"\n", &options, TX_FORMAT,
           ": line 3: not valid JSON: column");
    refuse("a.jsonl", "{\"text\":\"abc\"}\n{\"txt\":\"abc\"}", &options, TX_FORMAT, ": line 2: text is missing");
    refuse("a.jsonl", "{\"text\":12}\n", &options, TX_FORMAT, ": line 1: text: expected a string, found 12");
    refuse("a.jsonl", "[\"text\"]\n", &options, TX_FORMAT, ": line 1: expected an object");
    refuse("a.jsonl", "\"text\"\n", &options, TX_FORMAT, ": line 1: expected an object");
    refuse("a.jsonl", "{\"text\":\"\xff\"}\n", &options, TX_FORMAT, "such as Latin-1");
    refuse("a.jsonl", "{\"text\":\"\xc3\xa9\xff\"}\n", &options, TX_FORMAT, ": line 1: not valid JSON");
    refuse("a.jsonl", "{\"text\":\"a\"} {\"text\":\"b\"}\n", &options, TX_FORMAT, ": line 1: not valid JSON");
    refuse("a.jsonl", "{\"text\":\"\"}\n", &options, TX_FORMAT, "no tokens");
    refuse("a.jsonl", "\n\n \n", &options, TX_FORMAT, "no tokens");
}

static void bad_lines_left_out(void **state)
{
    static const char text[] = "{\"text\":\"ab\"}\n{\n{\"text\":\"cd\"}\n7\n{\"text\":\"ef\"}\n";
    reported r = {0};
    tx_dataset_options options = plain_options(bytes, 6, &r);
    options.skip_bad = 2;
    tx_dataset *dataset = open_text("a.jsonl", text, sizeof text - 1, &options);
    assert_int_equal(tx_dataset_tokens(dataset), 6);
    assert_int_equal(r.count, 1);
    assert_non_null(strstr(r.last, "a.jsonl: 2 malformed lines are skipped, the first is line 2"));
    tx_dataset_free(dataset);
    options.skip_bad = 1;
    expect_refused("a.jsonl", text, sizeof text - 1, &options, TX_FORMAT,
                   ": more than 1 malformed lines, the first: line 2: not valid JSON");
}

/* ---- Threads ------------------------------------------------------------------------------------------- */

/* Makes a text of lines of all lengths and ends, as JSON Lines or as plain text; allocated. */
static char *make_text(bool json, size_t *size)
{
    size_t room = (size_t)1 << 20, used = 0;
    char *text = malloc(room);
    uint64_t random = 7;
    assert_non_null(text);
    for (int line = 1; used < room - 4096; line++) {
        uint64_t length = next_random(&random) % (line % 50 ? 90 : 2000);
        used += json ? (size_t)snprintf(text + used, 64, "{\"text\": \"%d ", line) : 0;
        for (uint64_t i = 0; i < length; i++)
            text[used++] = (char)(json ? 'a' + next_random(&random) % 26 : 1 + next_random(&random) % 127);
        used += json ? (size_t)snprintf(text + used, 8, "\"}") : 0;
        text[used++] = '\n';
    }
    *size = used;
    return text;
}

static void threads_change_nothing(void **state)
{
    for (int json = 0; json < 2; json++) {
        char digest[TX_DIGEST_TEXT] = "";
        int64_t tokens = 0;
        size_t size;
        char *text = make_text(json, &size);
        for (int32_t threads = 1; threads < 17; threads += threads < 4 ? 1 : 6) {
            tx_dataset_options options = plain_options(bytes, 64, NULL);
            options.threads = threads;
            options.group = 37;
            tx_dataset *dataset = open_text(json ? "a.jsonl" : "a.txt", text, size, &options);
            if (threads == 1) {
                strcpy(digest, tx_dataset_digest(dataset));
                tokens = tx_dataset_tokens(dataset);
            }
            assert_string_equal(tx_dataset_digest(dataset), digest);
            assert_int_equal(tx_dataset_tokens(dataset), tokens);
            tx_dataset_free(dataset);
        }
        assert_int_equal(strlen(digest), 64);
        free(text);
    }
}

/* The message names the first malformed line of the file, whichever thread met it and however many there are. */
static void threads_name_the_first_bad_line(void **state)
{
    size_t size;
    char *text = make_text(true, &size);
    int64_t line = 1, first = 0;
    for (char *at = text; at < text + size; at = strchr(at, '\n') + 1, line++)
        if (line % 3000 == 2999) {
            *at = '#';
            first = first ? first : line;
        }
    text[size - 2] = '#';
    assert_int_equal(first, 2999);
    for (int32_t threads = 1; threads < 17; threads += 5) {
        tx_dataset_options options = plain_options(bytes, 64, NULL);
        options.threads = threads;
        expect_refused("a.jsonl", text, size, &options, TX_FORMAT, ": line 2999: not valid JSON");
        options.skip_bad = 1;
        expect_refused("a.jsonl", text, size, &options, TX_FORMAT,
                       ": more than 1 malformed lines, the first: line 2999:");
    }
    free(text);
}

/* A million ends of lines, and one line of 32 MB: time is linear, or the test is not over today. */
static void long_and_short_lines(void **state)
{
    static const char *const ends[] = {"\n", "\r", "\r\n"};
    size_t count = 1000000, size = (size_t)32 << 20;
    char *text = malloc(size);
    assert_non_null(text);
    tx_dataset_options options = plain_options(bytes, 1000, NULL);
    for (size_t k = 0; k < 3; k++) {
        size_t length = strlen(ends[k]);
        for (size_t i = 0; i < count; i++)
            memcpy(text + i * length, ends[k], length);
        tx_dataset *dataset = open_text("a.txt", text, count * length, &options);
        assert_int_equal(tx_dataset_tokens(dataset), count);
        tx_dataset_free(dataset);
    }
    memset(text, ' ', size);
    options.threads = 3;
    tx_dataset *dataset = open_text("a.txt", text, size, &options);
    assert_int_equal(tx_dataset_tokens(dataset), size);
    tx_dataset_free(dataset);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_and_labels),
        cmocka_unit_test(order_is_a_permutation),
        cmocka_unit_test(order_depends_on_seed_and_epoch),
        cmocka_unit_test(lines_of_text),
        cmocka_unit_test(lines_of_other_encodings),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(wide_ids),
        cmocka_unit_test(what_is_no_text),
        cmocka_unit_test(files_refused),
        cmocka_unit_test(options_refused),
        cmocka_unit_test(ids_outside_the_vocabulary),
        cmocka_unit_test(json_lines),
        cmocka_unit_test(json_lines_refused),
        cmocka_unit_test(bad_lines_left_out),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(threads_name_the_first_bad_line),
        cmocka_unit_test(long_and_short_lines),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
