/* SPDX-License-Identifier: Apache-2.0
 * Ids of texts: those of Hugging Face's tokenizers and of others for GPT-2, texts that are long, and bytes that are no
 * text. */
#include "models/tokenizer/bpe.h"
#include "tests/text/text.h"

typedef struct both {
    tx_tokenizer *tokenizer[2]; /* from vocab.json and merges.txt, from tokenizer.json */
    tx_encoder *encoder[2];
} both;

static void open_both(both *b)
{
    const char *const(*files[])[2] = {gpt2_pair, gpt2_one};
    for (int i = 0; i < 2; i++) {
        char *folder = folder_of(files[i]);
        assert_ok(tx_tokenizer_open(folder, &b->tokenizer[i]));
        assert_ok(tx_encoder_create(b->tokenizer[i], &b->encoder[i]));
        assert_int_equal(tx_tokenizer_size(b->tokenizer[i]), 50257);
        assert_int_equal(tx_tokenizer_end(b->tokenizer[i]), 50256);
        assert_int_equal(tx_tokenizer_find(b->tokenizer[i], " the"), 262);
        remove_scratch(folder);
    }
    assert_string_equal(tx_tokenizer_digest(b->tokenizer[0]), tx_tokenizer_digest(b->tokenizer[1]));
}

static void close_both(both *b)
{
    for (int i = 0; i < 2; i++) {
        tx_encoder_free(b->encoder[i]);
        tx_tokenizer_free(b->tokenizer[i]);
    }
}

/* Both give these ids, and the ids give the text back. */
static void expect(const both *b, const char *text, size_t size, const int32_t *id, size_t count)
{
    for (int i = 0; i < 2; i++) {
        tx_ids ids = {0};
        char *back;
        size_t back_size;
        assert_ok(tx_encoder_run(b->encoder[i], text, size, true, &ids));
        if (ids.count != count || (count && memcmp(ids.id, id, count * sizeof *id) != 0))
            fail_msg("other ids, %zu instead of %zu, of \"%.*s\"", ids.count, count, (int)size, text);
        assert_ok(tx_tokenizer_decode(b->tokenizer[i], ids.id, ids.count, false, &back, &back_size));
        assert_int_equal(back_size, size);
        assert_memory_equal(back, text, size);
        free(back);
        free(ids.id);
    }
}

/* A file of the test data, and its lines one by one. */
typedef struct lines {
    char *text, *next;
} lines;

static void open_lines(lines *l, const char *name)
{
    char *path = test_data(name);
    size_t size;
    assert_ok(tx_file_read(path, 1 << 24, &l->text, &size));
    l->next = l->text;
    free(path);
}

/* The next line, its end cut off, or NULL. */
static char *next_line(lines *l)
{
    char *line = l->next, *end = line ? strchr(line, '\n') : NULL;
    if (end)
        *end = '\0';
    l->next = end ? end + 1 : NULL;
    return line && (end || *line) ? line : NULL;
}

static void expect_json(const both *b, const char *line)
{
    tx_json *json, *ids;
    const char *text;
    size_t size;
    assert_ok(tx_json_parse_line(line, strlen(line), "case", &json));
    assert_ok(tx_json_get_text(json, "text", &text, &size));
    assert_ok(tx_json_get(json, "ids", TX_JSON_ARRAY, &ids));
    int32_t *id = calloc(tx_json_size(ids) + 1, sizeof *id);
    for (size_t i = 0; i < tx_json_size(ids); i++) {
        int64_t value;
        assert_ok(tx_json_as_int(tx_json_at(ids, i), "id", 0, 50256, &value));
        id[i] = (int32_t)value;
    }
    expect(b, text, size, id, tx_json_size(ids));
    free(id);
    tx_json_free(json);
}

static void test_golden(void **state)
{
    static const struct {
        const char *file;
        int cases;
    } files[] = {{"tokenizers/gpt2.golden.jsonl", 628}, {"tokenizers/upstream/Xenova__gpt2.jsonl", 26}};
    lines l[2];
    both b;
    for (int i = 0; i < 2; i++)
        open_lines(&l[i], files[i].file);
    open_both(&b);
    for (int i = 0; i < 2; i++) {
        int cases = 0;
        for (char *line; (line = next_line(&l[i])); cases++)
            expect_json(&b, line);
        assert_int_equal(cases, files[i].cases);
        free(l[i].text);
    }
    close_both(&b);
}

/* Ids separated by blanks or commas. */
static size_t parse_ids(const char *text, int32_t *ids)
{
    size_t count = 0;
    for (;;) {
        char *end;
        text += strspn(text, " ,[]");
        long id = strtol(text, &end, 10);
        if (end == text)
            return count;
        ids[count++] = (int32_t)id;
        text = end;
    }
}

/* gpt-tokenizer's test plans: "EncodingName: r50k_base", "Sample: TEXT", "Encoded: [1, 2]". */
static void test_plans(void **state)
{
    lines l;
    both b;
    int cases = 0;
    open_lines(&l, "tokenizers/upstream/gpt-tokenizer_TestPlans.txt");
    open_both(&b);
    char *at = l.text;
    static const char name[] = "EncodingName: ", sample[] = "\nSample: ", encoded[] = "\nEncoded: ";
    while ((at = strstr(at, name))) {
        bool ours = strncmp(at + sizeof name - 1, "r50k_base\n", 10) == 0;
        char *text = strstr(at, sample), *ids = strstr(at, encoded);
        assert_non_null(text);
        assert_non_null(ids);
        text += sizeof sample - 1;
        at = ids + sizeof encoded - 1;
        if (!ours)
            continue;
        int32_t *id = calloc(strlen(at) / 2 + 2, sizeof *id);
        char *end = strchr(at, '\n');
        if (end)
            *end = '\0';
        expect(&b, text, (size_t)(ids - text), id, parse_ids(at, id));
        free(id);
        cases++;
        at = end ? end + 1 : at + strlen(at);
    }
    assert_int_equal(cases, 64);
    free(l.text);
    close_both(&b);
}

/* llama.cpp's vocabulary tests. The file of texts lacks the last one, which is decoded from its ids. */
static void test_llama(void **state)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    lines texts, outs;
    both b;
    int cases = 0, without_text = 0;
    open_lines(&texts, "tokenizers/upstream/llama.cpp_vocab.inp");
    open_lines(&outs, "tokenizers/upstream/llama.cpp_vocab_gpt2.out");
    open_both(&b);
    char *text = texts.text;
    for (char *line; (line = next_line(&outs)); cases++) {
        int32_t *id = calloc(strlen(line) / 2 + 2, sizeof *id);
        size_t count = parse_ids(line, id), size;
        char *end = strstr(text, separator), *back = NULL;
        if (end) {
            expect(&b, text, (size_t)(end - text), id, count);
            text = end + sizeof separator - 1;
        } else {
            assert_ok(tx_tokenizer_decode(b.tokenizer[0], id, count, false, &back, &size));
            expect(&b, back, size, id, count);
            without_text++;
        }
        free(back);
        free(id);
    }
    assert_int_equal(cases, 43);
    assert_int_equal(without_text, 1);
    free(texts.text);
    free(outs.text);
    close_both(&b);
}

/* ---- long texts ---------------------------------------------------------------------------------- */

/* One word of a million spaces or letters: an algorithm of quadratic time would take hours. */
static void test_long_words(void **state)
{
    const size_t size = 1 << 20;
    static const struct {
        char byte;
        const char *end;
    } words[] = {{' ', ""}, {' ', "x"}, {'a', ""}, {'\n', " "}, {'-', ""}};
    char *folder = folder_of(gpt2_one), *text = malloc(size + 2);
    tx_tokenizer *tokenizer = open_tokenizer(folder);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        tx_ids ids;
        char *back;
        size_t back_size, whole = size + strlen(words[i].end);
        memset(text, words[i].byte, size);
        memcpy(text + size, words[i].end, strlen(words[i].end) + 1);
        encode(tokenizer, text, whole, true, &ids);
        assert_true(ids.count < whole || words[i].byte == ' ');
        assert_ok(tx_tokenizer_decode(tokenizer, ids.id, ids.count, false, &back, &back_size));
        assert_int_equal(back_size, whole);
        assert_memory_equal(back, text, whole);
        free(back);
        free(ids.id);
    }
    tx_tokenizer_free(tokenizer);
    free(text);
    remove_scratch(folder);
}

/* Merging by its definition: the pairs in the order of their ranks, each from the left to the right. */
static size_t merge_by_rank(const tx_merges *merges, int32_t *id, size_t count)
{
    for (size_t rank = 0; rank < merges->count; rank++) {
        const tx_merge *m = &merges->at[rank];
        size_t made = 0;
        for (size_t i = 0; i < count; i++) {
            bool pair = i + 1 < count && id[i] == m->left && id[i + 1] == m->right;
            id[made++] = pair ? m->id : id[i];
            i += pair;
        }
        count = made;
    }
    return count;
}

/* A tokenizer that was trained on words of few letters, whose merges depend on one another over long distances. */
static tx_tokenizer *learned(const char *letters, uint64_t *random)
{
    tx_tokenizer_trainer *trainer;
    tx_tokenizer *tokenizer;
    char text[20000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = next_random(random) % 200 ? letters[next_random(random) % strlen(letters)] : ' ';
    assert_ok(tx_tokenizer_trainer_create(&trainer));
    assert_ok(tx_tokenizer_trainer_add(trainer, text, sizeof text));
    assert_ok(tx_tokenizer_trainer_finish(trainer, 500, 2, &tokenizer));
    tx_tokenizer_trainer_free(trainer);
    return tokenizer;
}

/* Words that are longer than a window have the ids of the whole, also where windows are as short as can be. */
static void test_windows(void **state)
{
    static const char *const letters[] = {"a", "ab", "abc", "aaab", "etaoin"};
    enum { SIZE = 150000 };
    uint64_t random = 3;
    char *text = malloc(SIZE);
    int32_t *want = malloc(SIZE * sizeof *want);
    for (size_t k = 0; k < sizeof letters / sizeof letters[0]; k++) {
        tx_tokenizer *t = learned(letters[k], &random);
        const size_t windows[] = {t->merges.window, 2 * t->merges.reach + 300, 3 * t->merges.reach + 101};
        assert_in_range(windows[0], 4 * t->merges.reach, SIZE / 2);
        for (int period = 0; period < 3; period++) { /* any letters, the same few over and over, runs */
            for (size_t i = 0; i < SIZE; i++)
                text[i] = period == 1 && i >= 7 ? text[i - 7]
                          : period == 2 && i && next_random(&random) % 9999
                              ? text[i - 1]
                              : letters[k][next_random(&random) % strlen(letters[k])];
            for (size_t i = 0; i < SIZE; i++)
                want[i] = t->vocab.byte_ids[(unsigned char)text[i]];
            const size_t count = merge_by_rank(&t->merges, want, SIZE);
            for (size_t w = 0; w < 3; w++) {
                tx_ids ids = {0};
                t->merges.window = windows[w];
                assert_ok(tx_merges_apply(&t->merges, &(tx_symbols){t->vocab.byte_ids, text, SIZE}, &ids));
                assert_int_equal(ids.count, count);
                assert_memory_equal(ids.id, want, count * sizeof *want);
                free(ids.id);
            }
        }
        tx_tokenizer_free(t);
    }
    free(want);
    free(text);
}

/* Merges of which one makes a part of an earlier one: only whole words can be merged. */
static void test_no_windows(void **state)
{
    tx_tokenizer *t;
    assert_ok(tx_tokenizer_bytes(&t));
    tx_merges merges = {0};
    assert_ok(tx_vocab_put(&t->vocab, 257, TX_TOKEN_WORD, "ab", 2));
    assert_ok(tx_vocab_put(&t->vocab, 258, TX_TOKEN_WORD, "abb", 3));
    for (int ordered = 0; ordered < 2; ordered++) {
        assert_ok(tx_merges_add(&merges, ordered ? (tx_merge){'a', 'b', 257} : (tx_merge){257, 'b', 258}));
        assert_ok(tx_merges_add(&merges, ordered ? (tx_merge){257, 'b', 258} : (tx_merge){'a', 'b', 257}));
        assert_ok(tx_merges_seal(&merges, &t->vocab));
        assert_int_equal(merges.window > 0, ordered);
        tx_merges_free(&merges);
        merges = (tx_merges){0};
    }
    tx_tokenizer_free(t);
}

/* Added tokens of which many begin others: at each place the longest, as looking at all of them finds it. */
static void test_longest_added(void **state)
{
    enum { TOKENS = 40, SIZE = 500 };
    uint64_t random = 1;
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    for (int round = 0; round < 50; round++) {
        tx_additions additions = {.at = calloc(TOKENS, sizeof(tx_added)), .count = TOKENS};
        char text[SIZE];
        tx_found found = {0};
        for (int i = 0; i < TOKENS; i++) {
            char token[12] = "";
            const size_t length = 1 + next_random(&random) % 9;
            for (size_t k = 0; k < length; k++)
                token[k] = next_random(&random) % 8 ? 'a' : 'b';
            additions.at[i] = (tx_added){.id = i, .text = strdup(token), .size = length};
        }
        for (size_t i = 0; i < SIZE; i++)
            text[i] = "aaaaaaab\0\xff"[next_random(&random) % 10];
        assert_ok(tx_additions_seal(&additions, &(tx_tokenizer_steps){0}));
        for (size_t at = 0; at < SIZE;) {
            const tx_added *longest = NULL;
            for (int i = 0; i < TOKENS; i++) {
                const tx_added *one = &additions.at[i];
                if (one->size <= SIZE - at && memcmp(text + at, one->text, one->size) == 0 &&
                    (!longest || one->size > longest->size))
                    longest = one;
            }
            if (longest) {
                tx_additions_find(&additions, 0, text, SIZE, true, NULL, match, &found);
                assert_ptr_equal(found.added, longest);
                assert_int_equal(found.begin, at);
            }
            at += longest ? longest->size : 1;
        }
        tx_additions_find(&additions, 0, text, SIZE, true, NULL, match, &found);
        assert_null(found.added);
        tx_additions_free(&additions);
    }
    pcre2_match_data_free(match);
}

/* A text on one line has the ids of its parts, cut before single spaces; words are met again that have left the cache.
 */
static void test_long_text(void **state)
{
    char *path = test_data("text/wikitext2_valid.txt"), *folder = folder_of(gpt2_one), *text;
    size_t size, at = 0;
    tx_encoder *encoder;
    tx_ids whole, parts = {0};
    assert_ok(tx_file_read(path, 1 << 24, &text, &size));
    tx_tokenizer *tokenizer = open_tokenizer(folder);
    for (size_t i = 0; i < size; i++)
        text[i] = text[i] == '\n' ? '.' : text[i];
    encode(tokenizer, text, size, false, &whole);
    for (size_t i = 1; i < size; i++) {
        bool cut = i - at > 50 && text[i] == ' ' && text[i - 1] != ' ' && text[i + 1] != ' ';
        if (!cut && i + 1 < size)
            continue;
        if (i + 1 == size)
            i = size;
        assert_ok(tx_encoder_create(tokenizer, &encoder));
        assert_ok(tx_encoder_run(encoder, text + at, i - at, false, &parts));
        tx_encoder_free(encoder);
        at = i;
    }
    assert_int_equal(whole.count, parts.count);
    assert_memory_equal(whole.id, parts.id, whole.count * sizeof *whole.id);
    free(whole.id);
    free(parts.id);
    free(text);
    free(path);
    tx_tokenizer_free(tokenizer);
    remove_scratch(folder);
}

/* ---- bytes that are not text ----------------------------------------------------------------------- */

static void test_any_bytes(void **state)
{
    char *folder = folder_of(gpt2_one), text[600], *back;
    uint64_t random = 88172645463325252u;
    size_t back_size;
    tx_encoder *encoder;
    tx_tokenizer *tokenizer = open_tokenizer(folder);
    assert_ok(tx_encoder_create(tokenizer, &encoder));
    for (int round = 0; round < 3000; round++) {
        tx_ids ids = {0};
        size_t size = next_random(&random) % sizeof text;
        for (size_t i = 0; i < size; i++) {
            uint64_t r = next_random(&random);
            const unsigned char any[] = {(unsigned char)(r >> 8), (unsigned char)(0x80 | (r >> 8 & 0x3F)),
                                         (unsigned char)" the\n'"[(r >> 8) % 6]};
            text[i] = (char)any[r % 3];
        }
        assert_ok(tx_encoder_run(encoder, text, size, round % 2 == 0, &ids));
        assert_ok(tx_tokenizer_decode(tokenizer, ids.id, ids.count, false, &back, &back_size));
        assert_int_equal(back_size, size);
        assert_memory_equal(back, text, size);
        free(back);
        free(ids.id);
    }
    tx_encoder_free(encoder);
    tx_tokenizer_free(tokenizer);
    remove_scratch(folder);
}

/* Invalid bytes are units of their own next to any other byte. NUL is a character, U+180E is not a space. */
static void test_odd_bytes(void **state)
{
    static const struct {
        const char *text;
        size_t size;
        int32_t id[8];
        size_t count;
    } cases[] = {
        {"a\xFF the", 6, {64, 187, 262}, 3},
        {"\xE4\xB8\xAD", 3, {40792}, 1},
        {"\xE4\xB8", 2, {160, 116}, 2},                   /* a character cut off */
        {"\xE4\xB8 the", 6, {160, 116, 262}, 3},          /* and text after it */
        {"\xC0\xAF", 2, {124, 107}, 2},                   /* overlong */
        {"\xED\xA0\x80", 3, {169, 254, 222}, 3},          /* a surrogate */
        {"\xF4\x90\x80\x80", 4, {176, 238, 222, 222}, 4}, /* above U+10FFFF */
        {" \xE1\xA0\x8E"
         "a",
         5,
         {28053, 254, 236, 64},
         4}, /* U+180E: no space since Unicode 6.3, in PCRE2 it is */
        {"a\0b", 3, {64, 188, 65}, 3},
        {"", 0, {0}, 0},
    };
    both b;
    open_both(&b);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(&b, cases[i].text, cases[i].size, cases[i].id, cases[i].count);
    close_both(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),     cmocka_unit_test(test_plans),     cmocka_unit_test(test_llama),
        cmocka_unit_test(test_long_words), cmocka_unit_test(test_windows),   cmocka_unit_test(test_longest_added),
        cmocka_unit_test(test_no_windows), cmocka_unit_test(test_long_text), cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_odd_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
