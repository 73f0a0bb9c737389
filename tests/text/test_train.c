/* SPDX-License-Identifier: Apache-2.0
 * Training a tokenizer. */
#include "tests/text/text.h"

static tx_tokenizer *train(const char *text, int64_t vocab, int64_t least)
{
    tx_tokenizer_trainer *trainer;
    tx_tokenizer *tokenizer;
    assert_ok(tx_tokenizer_trainer_create(&trainer));
    assert_ok(tx_tokenizer_trainer_add(trainer, text, strlen(text)));
    assert_ok(tx_tokenizer_trainer_finish(trainer, vocab, least, &tokenizer));
    tx_tokenizer_trainer_free(trainer);
    return tokenizer;
}

/* The text of an id. */
static void expect_piece(const tx_tokenizer *t, int32_t id, const char *text, size_t wanted)
{
    const char *bytes;
    size_t size;
    assert_ok(tx_tokenizer_piece(t, id, false, &bytes, &size));
    if (size != wanted || memcmp(bytes, text, size) != 0)
        fail_msg("id %d is \"%.*s\", expected \"%.*s\"", id, (int)size, bytes, (int)wanted, text);
}

static void expect_text(const tx_tokenizer *t, int32_t id, const char *text)
{
    expect_piece(t, id, text, strlen(text));
}

static void test_order(void **state)
{
    /* Pairs: ab and bc 4 (ab first: the smaller ids), then abc 4; xy and " abc" 3, and x has the smaller id than " ".
     */
    tx_tokenizer *t = train("abc abc abc abc xy xy xy", 300, 2);
    expect_text(t, 0, TX_END_OF_TEXT);
    expect_text(t, 1, "!"); /* the bytes in the order of their letters */
    expect_text(t, 94, "~");
    expect_text(t, 256, "\xAD");
    EXPECT_IDS(t, "\x01", true, 190); /* NUL is the first of those that are not printable */
    expect_text(t, 257, "ab");
    expect_text(t, 258, "abc");
    expect_text(t, 259, "xy");
    expect_text(t, 260, " abc");
    expect_text(t, 261, " xy");
    assert_int_equal(tx_tokenizer_size(t), 262);
    EXPECT_IDS(t, "abc xy ab", true, 258, 261, 221, 257);
    tx_tokenizer_free(t);
}

static void test_limits(void **state)
{
    tx_tokenizer_trainer *trainer;
    tx_tokenizer *t = train("abc abc abc abc xy xy xy", 300, 4); /* " abc" has 3 */
    assert_int_equal(tx_tokenizer_size(t), 259);
    tx_tokenizer_free(t);
    t = train("abc abc abc abc xy xy xy", 258, 2);
    assert_int_equal(tx_tokenizer_size(t), 258);
    tx_tokenizer_free(t);
    t = train("", 1000, 1);
    assert_int_equal(tx_tokenizer_size(t), TX_BYTES_VOCAB);
    EXPECT_IDS(t, "!<|endoftext|>", true, 1, 0);
    tx_tokenizer_free(t);
    assert_ok(tx_tokenizer_trainer_create(&trainer));
    assert_refused(tx_tokenizer_trainer_finish(trainer, 256, 2, &t), TX_INVALID, "it must have 257");
    tx_tokenizer_trainer_free(trainer);
}

/* Runs of one letter: pairs overlap, and several pairs spell the same token. */
static void test_runs(void **state)
{
    char text[2000] = "";
    for (int i = 1; i <= 40; i++) {
        strcat(text, " ");
        for (int k = 0; k < i; k++)
            strcat(text, "a");
    }
    tx_tokenizer *t = train(text, 300, 1);
    tx_ids ids;
    char *back;
    size_t size;
    encode(t, text, strlen(text), true, &ids);
    assert_ok(tx_tokenizer_decode(t, ids.id, ids.count, false, &back, &size));
    assert_string_equal(back, text);
    assert_true(ids.count < 100);
    free(back);
    free(ids.id);
    tx_tokenizer_free(t);
}

/* Any bytes can be trained on; the file reads back as the same tokenizer. */
static void test_any_bytes(void **state)
{
    uint64_t random = 7;
    char text[5000], *folder = make_scratch();
    tx_tokenizer_trainer *trainer;
    tx_tokenizer *made, *read;
    assert_ok(tx_tokenizer_trainer_create(&trainer));
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = (char)(next_random(&random) % (round % 2 ? 256 : 5));
        assert_ok(tx_tokenizer_trainer_add(trainer, text, sizeof text));
    }
    assert_ok(tx_tokenizer_trainer_finish(trainer, 600, 2, &made));
    assert_int_equal(tx_tokenizer_size(made), 600);
    assert_ok(tx_tokenizer_save(made, folder, 1024));
    assert_ok(tx_tokenizer_open(folder, &read));
    assert_string_equal(tx_tokenizer_digest(made), tx_tokenizer_digest(read));
    tx_tokenizer_free(made);
    tx_tokenizer_free(read);
    tx_tokenizer_trainer_free(trainer);
    remove_scratch(folder);
}

/* ---- words against the rule itself ----------------------------------------------------------------- */

/* A part of a word. */
typedef struct part {
    const char *at;
    size_t size;
} part;

/* Returns the rank of the merge of two parts, or SIZE_MAX if there is none. */
static size_t rank_of(const tx_json *merges, part left, part right)
{
    for (size_t i = 0; i < tx_json_size(merges); i++) {
        const char *merge;
        assert_ok(tx_json_as_string(tx_json_at(merges, i), "merge", &merge));
        if (strlen(merge) == left.size + 1 + right.size && memcmp(merge, left.at, left.size) == 0 &&
            merge[left.size] == ' ' && memcmp(merge + left.size + 1, right.at, right.size) == 0)
            return i;
    }
    return SIZE_MAX;
}

/* Merges the first pair of the lowest rank until there is none; returns the number of parts. */
static size_t merge_by_rule(const tx_json *merges, part *parts, size_t count)
{
    for (;;) {
        size_t best = SIZE_MAX, at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            size_t rank = rank_of(merges, parts[i], parts[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == SIZE_MAX)
            return count;
        parts[at].size += parts[at + 1].size;
        memmove(parts + at + 1, parts + at + 2, (--count - at - 1) * sizeof *parts);
    }
}

/* Words of letters, short and long, are merged by the rule. */
static void test_rule(void **state)
{
    part parts[200];
    uint64_t random = 5;
    char text[4000], *folder = make_scratch(), *path = TX_PATH(folder, "tokenizer.json");
    tx_json *json, *model, *merges;
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = "abcd abcd ab"[next_random(&random) % 12];
    text[sizeof text - 1] = '\0';
    tx_tokenizer *t = train(text, 340, 1);
    assert_ok(tx_tokenizer_save(t, folder, 1));
    assert_ok(tx_json_read(path, 1 << 20, &json));
    assert_ok(tx_json_get(json, "model", TX_JSON_OBJECT, &model));
    assert_ok(tx_json_get(model, "merges", TX_JSON_ARRAY, &merges));
    for (size_t size = 1; size < 200; size += size < 60 ? 1 : 20) {
        tx_ids ids;
        for (size_t i = 0; i < size; i++) {
            text[i] = "abcd"[next_random(&random) % 4];
            parts[i] = (part){text + i, 1};
        }
        size_t count = merge_by_rule(merges, parts, size);
        encode(t, text, size, true, &ids);
        assert_int_equal(ids.count, count);
        for (size_t i = 0; i < count; i++)
            expect_piece(t, ids.id[i], parts[i].at, parts[i].size);
        free(ids.id);
    }
    tx_json_free(json);
    tx_tokenizer_free(t);
    remove_scratch(folder);
}

/* ---- training against the rule itself --------------------------------------------------------------- */

/* One long word of letters, of which no two neighbours are alike: more pairs than the first table of them holds. */
enum { LETTERS = 60000, FIRST = 257, TOKENS = FIRST + 1500 };

typedef struct rule {
    int32_t id[LETTERS];
    size_t count;
    int32_t times[TOKENS][TOKENS]; /* of a pair; 0 between steps */
    char *spelled[TOKENS];
    int32_t tokens;
} rule;

/* Finds the most frequent pair; of equally frequent ones that with the smallest ids. */
static void find_best(rule *r, int32_t *left, int32_t *right)
{
    int32_t most = 0;
    for (size_t i = 0; i + 1 < r->count; i++)
        r->times[r->id[i]][r->id[i + 1]]++;
    for (size_t i = 0; i + 1 < r->count; i++) {
        const int32_t a = r->id[i], b = r->id[i + 1], times = r->times[a][b];
        if (times > most || (times == most && (a < *left || (a == *left && b < *right)))) {
            most = times;
            *left = a;
            *right = b;
        }
    }
    for (size_t i = 0; i + 1 < r->count; i++)
        r->times[r->id[i]][r->id[i + 1]] = 0;
}

static void merge_best(rule *r)
{
    int32_t left = 0, right = 0, made = FIRST;
    char text[512];
    size_t used = 0;
    find_best(r, &left, &right);
    assert_true((size_t)snprintf(text, sizeof text, "%s%s", r->spelled[left], r->spelled[right]) < sizeof text);
    while (made < r->tokens && strcmp(r->spelled[made], text) != 0)
        made++;
    if (made == r->tokens)
        assert_non_null(r->spelled[r->tokens++] = strdup(text));
    for (size_t i = 0; i < r->count; i++) {
        const bool both = r->id[i] == left && i + 1 < r->count && r->id[i + 1] == right;
        r->id[used++] = both ? made : r->id[i];
        i += both;
    }
    r->count = used;
}

static void test_many_pairs(void **state)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    rule *r = calloc(1, sizeof *r);
    char *text = calloc(1, LETTERS + 1);
    uint64_t random = 9;
    assert_true(r && text);
    for (const char *c = letters; *c; c++)
        assert_non_null(r->spelled[*c - '!' + 1] = strndup(c, 1)); /* a byte's id is the place of its letter */
    for (size_t i = 0; i < LETTERS; i++) {
        do
            text[i] = letters[next_random(&random) % 52];
        while (i && text[i] == text[i - 1]);
        r->id[i] = text[i] - '!' + 1;
    }
    r->count = LETTERS;
    r->tokens = FIRST;
    while (r->tokens < TOKENS)
        merge_best(r);
    tx_tokenizer *t = train(text, TOKENS, 1);
    assert_int_equal(tx_tokenizer_size(t), TOKENS);
    for (int32_t i = FIRST; i < TOKENS; i++)
        expect_text(t, i, r->spelled[i]);
    for (int32_t i = 0; i < TOKENS; i++)
        free(r->spelled[i]);
    tx_tokenizer_free(t);
    free(text);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),     cmocka_unit_test(test_limits), cmocka_unit_test(test_runs),
        cmocka_unit_test(test_any_bytes), cmocka_unit_test(test_rule),   cmocka_unit_test(test_many_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
