/* SPDX-License-Identifier: Apache-2.0
 * The parts of tokenizers compared with Hugging Face's: pipeline.golden.jsonl, which check_pipeline.py --write makes,
 * and the two published BERT tokenizers. Also files that try to do harm. */
#include "tests/text/text.h"

#include <time.h>

#define GOLDEN TX_SOURCE_DIR "/tests/text/pipeline.golden.jsonl"
#define BASES 11

/* The ids of an array; the caller frees ids.id. */
static tx_ids ids_of(const tx_json *json, const char *key)
{
    tx_json *list;
    tx_ids ids = {0};
    assert_ok(tx_json_get(json, key, TX_JSON_ARRAY, &list));
    assert_ok(tx_ids_reserve(&ids, tx_json_size(list) + 1));
    for (size_t i = 0; i < tx_json_size(list); i++) {
        int64_t id;
        assert_ok(tx_json_as_int(tx_json_at(list, i), "id", 0, INT32_MAX, &id));
        ids.id[ids.count++] = (int32_t)id;
    }
    return ids;
}

static void expect_same(const tx_ids *found, const tx_ids *wanted, const char *name, const char *what)
{
    if (found->count != wanted->count ||
        (found->count && memcmp(found->id, wanted->id, wanted->count * sizeof *wanted->id) != 0))
        fail_msg("%s: other %s", name, what);
}

static tx_tokenizer *open_json(const tx_json *json, const char *folder)
{
    assert_ok(tx_json_write(TX_PATH(folder, "tokenizer.json"), json, TX_JSON_LINE));
    tx_tokenizer *tokenizer = open_tokenizer(folder);
    return tokenizer;
}

/* Replaces the base's parts by those of the case. */
static tx_json *tokenizer_of(const tx_json *line, tx_json *const *bases)
{
    const char *name, *base;
    tx_json *parts, *tokenizer;
    assert_ok(tx_json_get_string(line, "base", &name));
    for (int i = 0; i < BASES; i++) {
        assert_ok(tx_json_get_string(bases[i], "base", &base));
        if (strcmp(base, name) == 0)
            assert_ok(tx_json_get(bases[i], "tokenizer", TX_JSON_OBJECT, &tokenizer));
    }
    tokenizer = tx_json_copy(tokenizer);
    assert_ok(tx_json_get(line, "parts", TX_JSON_OBJECT, &parts));
    for (void *i = tx_json_first(parts); i; i = tx_json_next(parts, i))
        assert_ok(tx_json_set(tokenizer, tx_json_key(i), tx_json_copy(tx_json_value(i))));
    return tokenizer;
}

static void check_text(const tx_tokenizer *t, const tx_json *one, const char *name)
{
    const char *text, *decoded = NULL;
    char *back;
    size_t size, decoded_size, back_size;
    tx_ids found, wanted = ids_of(one, "ids");
    assert_ok(tx_json_get_text(one, "text", &text, &size));
    encode(t, text, size, true, &found);
    expect_same(&found, &wanted, name, text);
    if (tx_json_has(one, "decoded")) {
        assert_ok(tx_json_get_text(one, "decoded", &decoded, &decoded_size));
        assert_ok(tx_tokenizer_decode(t, wanted.id, wanted.count, false, &back, &back_size));
        if (back_size != decoded_size || memcmp(back, decoded, back_size) != 0)
            fail_msg("%s: \"%s\", expected \"%s\"", name, back, decoded);
        free(back);
    }
    free(found.id);
    free(wanted.id);
}

/* Checks a model's input for one text, or for two. */
static void check_given(const tx_tokenizer *t, const tx_json *one, const char *name)
{
    static const char *const keys[] = {"first", "second"};
    tx_ids wanted[2] = {ids_of(one, "ids"), ids_of(one, "types")}, found[2] = {{0}}, text[2] = {{0}};
    const bool pair = tx_json_has(one, "second");
    for (int i = 0; i < (pair ? 2 : 1); i++) {
        const char *bytes;
        size_t size;
        assert_ok(tx_json_get_text(one, keys[i], &bytes, &size));
        encode(t, bytes, size, true, &text[i]);
    }
    assert_ok(tx_tokenizer_join(t, &text[0], pair ? &text[1] : NULL, &found[0], &found[1]));
    expect_same(&found[0], &wanted[0], name, "ids given");
    expect_same(&found[1], &wanted[1], name, "types");
    for (int i = 0; i < 2; i++) {
        free(wanted[i].id);
        free(found[i].id);
        free(text[i].id);
    }
}

static void check_case(const tx_json *line, tx_json *const *bases, const char *folder)
{
    const char *name;
    tx_json *json = tokenizer_of(line, bases), *list;
    tx_tokenizer *t = open_json(json, folder);
    assert_ok(tx_json_get_string(line, "name", &name));
    assert_ok(tx_json_get(line, "texts", TX_JSON_ARRAY, &list));
    for (size_t i = 0; i < tx_json_size(list); i++)
        check_text(t, tx_json_at(list, i), name);
    if (tx_json_has(line, "given")) {
        assert_ok(tx_json_get(line, "given", TX_JSON_ARRAY, &list));
        for (size_t i = 0; i < tx_json_size(list); i++)
            check_given(t, tx_json_at(list, i), name);
    }
    tx_tokenizer_free(t);
    tx_json_free(json);
}

/* Calls for each line of a file of JSON Lines; returns their number. */
static int each_line(const char *path, void (*each)(void *context, int number, tx_json *line), void *context)
{
    char *text, *at, *end;
    size_t size;
    int count = 0;
    assert_ok(tx_file_read(path, 1 << 24, &text, &size));
    for (at = text; (end = memchr(at, '\n', (size_t)(text + size - at))); at = end + 1) {
        tx_json *json;
        assert_ok(tx_json_parse_line(at, (size_t)(end - at), path, &json));
        each(context, count++, json);
    }
    free(text);
    return count;
}

typedef struct golden {
    tx_json *bases[BASES];
    char *folder;
} golden;

static void golden_line(void *context, int number, tx_json *line)
{
    golden *g = context;
    if (number >= 1 && number <= BASES) {
        g->bases[number - 1] = line;
        return;
    }
    if (number > BASES)
        check_case(line, g->bases, g->folder);
    tx_json_free(line);
}

static void test_golden(void **state)
{
    golden g = {.folder = make_scratch()};
    assert_in_range(each_line(GOLDEN, golden_line, &g), BASES + 100, 1000);
    for (int i = 0; i < BASES; i++)
        tx_json_free(g.bases[i]);
    remove_scratch(g.folder);
}

/* ---- BERT ------------------------------------------------------------------------------------------ */

/* "ids" are a model's input for one text, or for two. */
static void bert_line(void *context, int number, tx_json *line)
{
    const tx_tokenizer *t = context;
    const char *text, *name;
    size_t size;
    tx_ids wanted = ids_of(line, "ids"), found[2] = {{0}}, given = {0}, types = {0};
    const bool pair = tx_json_has(line, "text_pair");
    assert_ok(tx_json_get_string(line, "name", &name));
    for (int i = 0; i < (pair ? 2 : 1); i++) {
        assert_ok(tx_json_get_text(line, i ? "text_pair" : "text", &text, &size));
        encode(t, text, size, true, &found[i]);
    }
    assert_ok(tx_tokenizer_join(t, &found[0], pair ? &found[1] : NULL, &given, &types));
    expect_same(&given, &wanted, name, "ids");
    free(found[0].id);
    free(found[1].id);
    free(given.id);
    free(types.id);
    free(wanted.id);
    tx_json_free(line);
}

static void test_bert(void **state)
{
    static const struct {
        const char *const files[2][2];
        const char *lines[2];
        int64_t size;
    } cases[] = {
        {{{"tokenizers/bert-base-uncased-tokenizer.json", "tokenizer.json"}, {NULL, NULL}},
         {"tokenizers/upstream/Xenova__bert-base-uncased.jsonl",
          "tokenizers/upstream/Xenova__distilbert-base-uncased-finetuned-sst-2-english.jsonl"},
         30522},
        {{{"tokenizers/bert-base-cased-tokenizer.json", "tokenizer.json"}, {NULL, NULL}},
         {"tokenizers/upstream/Xenova__bert-base-cased.jsonl",
          "tokenizers/upstream/Xenova__distilbert-base-cased-distilled-squad.jsonl"},
         28996},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *folder = folder_of(cases[i].files);
        tx_tokenizer *t = open_tokenizer(folder);
        assert_int_equal(tx_tokenizer_size(t), cases[i].size);
        for (int k = 0; k < 2; k++) {
            char *path = test_data(cases[i].lines[k]);
            assert_in_range(each_line(path, bert_line, t), 5, 100);
            free(path);
        }
        tx_tokenizer_free(t);
        remove_scratch(folder);
    }
}

/* ---- Pieces ---------------------------------------------------------------------------------------- */

/* The text that an id adds after other ids, for programs that show a text during generation. */
static void test_pieces(void **state)
{
    static const char text[] =
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"byte_fallback\":true,\"vocab\":{\"u\":0,\"\xE2\x96\x81"
        "a\":1,\"<0xE2>\":2,\"\xE2\x96\x81\":3,\"a\":4},\"merges\":[\"\xE2\x96\x81 a\"]},\"normalizer\":{\"type\":"
        "\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},{\"type\":\"Replace\","
        "\"pattern\":{\"String\":\" "
        "\"},\"content\":\"\xE2\x96\x81\"}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" "
        "\"},{\"type\":\"ByteFallback\"},"
        "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}";
    static const char *const pieces[] = {"u", " a", "\xE2", " ", "a"};
    char *folder = make_scratch(), *back;
    tx_json *json;
    size_t size;
    assert_ok(tx_json_parse(text, sizeof text - 1, "text", &json));
    tx_tokenizer *t = open_json(json, folder);
    for (int32_t id = 0; id < 5; id++) {
        const char *bytes;
        assert_ok(tx_tokenizer_piece(t, id, false, &bytes, &size));
        assert_int_equal(size, strlen(pieces[id]));
        assert_memory_equal(bytes, pieces[id], size);
    }
    EXPECT_IDS(t, "a a", true, 1, 1);
    EXPECT_IDS(t, "a\xFF", true, 1, 0); /* invalid UTF-8 becomes U+FFFD, which has no token */
    assert_ok(tx_tokenizer_decode(t, (int32_t[]){1, 2, 1}, 3, false, &back, &size));
    assert_string_equal(back, "a\xEF\xBF\xBD a"); /* in a whole text a single byte is not a character */
    free(back);
    tx_tokenizer_free(t);
    tx_json_free(json);
    remove_scratch(folder);
}

/* Tokens that are shorter than the number of characters that Strip removes. */
static void test_strip(void **state)
{
    static const char text[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xE2\x96\x81\":1,\"a\xE2\x96\x81\":2},\"merges\":[]},"
        "\"decoder\":{\"type\":\"Strip\",\"content\":\"\xE2\x96\x81\",\"start\":0,\"stop\":1}}";
    char *folder = make_scratch(), *back;
    tx_json *json;
    size_t size;
    assert_ok(tx_json_parse(text, sizeof text - 1, "text", &json));
    tx_tokenizer *t = open_json(json, folder);
    assert_ok(tx_tokenizer_decode(t, (int32_t[]){0, 2, 1, 0}, 4, false, &back, &size));
    assert_string_equal(back, "aaa");
    free(back);
    tx_tokenizer_free(t);
    tx_json_free(json);
    remove_scratch(folder);
}

/* ---- Files from strangers -------------------------------------------------------------------------- */

#define REPLACE(pattern, content) \
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"" pattern "\"},\"content\":\"" content "\"}"
#define MORE REPLACE("a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")

/* A tokenizer that would need hours, or all memory, is refused soon. */
static void test_limits(void **state)
{
    static const struct {
        const char *normalizer, *pre_tokenizer, *decoder, *message;
    } cases[] = {
        {"null",
         "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a|aa)+x|y\"},\"behavior\":\"Isolated\",\"invert\":false}",
         "null", "\"(a|aa)+x|y\" takes too many steps"},
        {REPLACE("(a|aa)+x|y", "b"), "null", "null", "\"(a|aa)+x|y\" takes too many steps"},
        {"{\"type\":\"Sequence\",\"normalizers\":[" MORE "," MORE "," MORE "," MORE "," MORE "," MORE "," MORE "]}",
         "null", "null", "a text would become longer than"},
        {"null", "null", REPLACE("(a|aa)+x|y", "b"), "\"(a|aa)+x|y\" takes too many steps"},
    };
    char *folder = make_scratch(), *path = TX_PATH(folder, "tokenizer.json"), text[8192], as[65];
    memset(as, 'a', 64);
    as[64] = '\0';
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tx_tokenizer *t = NULL;
        tx_encoder *encoder = NULL;
        tx_ids ids = {0};
        const clock_t start = clock();
        snprintf(text, sizeof text,
                 "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"%s\":1},\"merges\":[]},\"normalizer\":%s,"
                 "\"pre_tokenizer\":%s,\"decoder\":%s}",
                 as, cases[i].normalizer, cases[i].pre_tokenizer, cases[i].decoder);
        assert_ok(tx_file_write(path, text, strlen(text)));
        tx_status status = tx_tokenizer_open(folder, &t);
        TX_THEN(status, tx_encoder_create(t, &encoder));
        TX_THEN(status, tx_encoder_run(encoder, as, 64, true, &ids));
        assert_refused(status, TX_UNSUPPORTED, cases[i].message);
        assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 1);
        tx_encoder_free(encoder);
        tx_tokenizer_free(t);
        free(ids.id);
    }
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_bert),
                                       cmocka_unit_test(test_pieces), cmocka_unit_test(test_strip),
                                       cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
