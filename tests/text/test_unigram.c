/* SPDX-License-Identifier: Apache-2.0
 * Unigram and WordLevel tokenizers, models of SentencePiece and vocab.txt: the ids of small ones are those that Hugging
 * Face's tokenizers 0.23 gives. What would take hours is refused, or is linear in the text. */
#include "models/tokenizer/bpe.h"
#include "tests/text/text.h"

#include <time.h>

#define SEEDS TX_SOURCE_DIR "/tests/fuzz/seeds/"
#define TEXT "ab  A e\xCC\x81 \xEF\xAC\x81 zz!\naab"

/* A folder with a seed of the fuzz targets under a name. */
static char *folder_with(const char *seed, const char *name)
{
    char path[256], *folder = make_scratch(), *text;
    size_t size;
    snprintf(path, sizeof path, SEEDS "%s", seed);
    assert_ok(tx_file_read(path, 1 << 20, &text, &size));
    assert_ok(tx_file_write(TX_PATH(folder, name), text, size));
    free(text);
    return folder;
}

static void test_ids(void **state)
{
    static const struct {
        const char *seed;
        int32_t ids[20];
    } cases[] = {
        {"tokenizer/unigram", {4, 3, 4, 1, 7, 4, 3, 1, 0, 8, 4, 5, -1}},
        {"tokenizer/unigram_bytes", {4, 3, 1, 1, 74, 1, 0, 1, 0, 1, 131, 131, 8, 19, 6, -1}},
        {"tokenizer/unigram_scores", {1, 2, 3, 1, 2, 1, 7, 1, 2, 3, 1, 0, 8, 1, 2, 2, 3, -1}},
        {"tokenizer/unigram_scripts", {2, 0, 0, 0, 0, 0, 0, 8, 0, 2, 2, -1}},
        {"tokenizer/word_level", {3, 2, 2, 2, 2, 2, 2, -1}},
        {"tokenizer/anchors", {0, 2, 0, 0, 1, -1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *folder = folder_with(cases[i].seed, "tokenizer.json");
        tx_tokenizer *tokenizer = open_tokenizer(folder);
        expect_ids(tokenizer, TEXT, true, cases[i].ids);
        tx_tokenizer_free(tokenizer);
        remove_scratch(folder);
    }
}

/* The file, the name that it gets, and the message that refuses it, or its texts. */
static void test_refused(void **state)
{
    static const char *const cases[][3] = {
        {"tokenizer/unigram_pair", "tokenizer.json", "model: vocab[2]: expected a token and its score"},
        {"tokenizer/unigram_long", "tokenizer.json", "vocab[9]: a token of 1025 bytes: at most 1024"},
        {"tokenizer/unigram_unk_id", "tokenizer.json", "unk_id: expected an integer from 0 to 8"},
        {"older/cut", "tokenizer.model", "tokenizer.model: not a model of SentencePiece, or damaged"},
        {"older/tiktoken", "tokenizer.model", "not a model of SentencePiece: it has no pieces"},
        {"older/group", "spiece.model", "spiece.model: not a model of SentencePiece, or damaged"},
        {"older/huge_size", "spm.model", "not a model of SentencePiece, or damaged"},
        {"older/nan", "tokenizer.model", "piece 3: its score is not a number"},
        {"older/nul", "tokenizer.model", "piece 3: its text is empty, not UTF-8, or contains NUL"},
        {"older/twice", "tokenizer.model", "the piece a occurs twice"},
        {"older/far_unk", "tokenizer.model", "unk_id 99 is not the id of a piece"},
        {"older/word_model", "tokenizer.model", "model type 3 is not supported, only Unigram and BPE"},
        {"older/bad_map", "tokenizer.model", "8 bytes are not a map of characters"},
        {"older/vocab_twice", "vocab.txt", "vocab.txt: line 3: \"a\" occurs twice"},
        {"older/vocab_no_cls", "vocab.txt", "cls_token: [CLS] is not in the vocabulary"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *folder = folder_with(cases[i][0], cases[i][1]);
        tx_tokenizer *tokenizer;
        assert_true(tx_tokenizer_open(folder, &tokenizer) != TX_OK);
        if (!strstr(tx_error(), cases[i][2]) || strchr(tx_error(), '\n'))
            fail_msg("%s: %s", cases[i][0], tx_error());
        remove_scratch(folder);
    }
}

/* Classes with other vocabularies, and an unknown one. */
static void test_classes(void **state)
{
    static const struct {
        const char *class, *message;
    } refused[] = {{"BarthezTokenizer", "tokenizer_class BarthezTokenizer: save the tokenizer as tokenizer.json"},
                   {"LlamaTokenizerFast", "tokenizer_class LlamaTokenizer with model type 1 is not supported"}};
    char *folder = folder_with("older/unigram", "tokenizer.model"), config[128];
    tx_tokenizer *tokenizer;
    for (size_t i = 0; i < 2; i++) {
        snprintf(config, sizeof config, "{\"tokenizer_class\": \"%s\"}", refused[i].class);
        assert_ok(tx_file_write(TX_PATH(folder, "tokenizer_config.json"), config, strlen(config)));
        assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_UNSUPPORTED, refused[i].message);
    }
    snprintf(config, sizeof config, "{\"tokenizer_class\": \"XLMRobertaTokenizer\"}");
    assert_ok(tx_file_write(TX_PATH(folder, "tokenizer_config.json"), config, strlen(config)));
    tokenizer = open_tokenizer(folder);
    assert_int_equal(tx_tokenizer_find(tokenizer, "<pad>"), 1);
    assert_int_equal(tx_tokenizer_find(tokenizer, "<mask>"), 12);
    EXPECT_IDS(tokenizer, "ab<mask>", true, 7, 6, 12);
    tx_tokenizer_free(tokenizer);
    remove_scratch(folder);
}

/* A tokenizer of an older file is saved as tokenizer.json, and gives the same ids. */
static void test_saved(void **state)
{
    static const char *const cases[][2] = {{"older/unigram", "tokenizer.model"},
                                           {"older/users", "spiece.model"},
                                           {"older/bpe", "sentencepiece.bpe.model"},
                                           {"older/vocab", "vocab.txt"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *folder = folder_with(cases[i][0], cases[i][1]), *other = make_scratch();
        tx_tokenizer *one = open_tokenizer(folder), *file = open_tokenizer(TX_PATH(folder, cases[i][1]));
        assert_ok(tx_tokenizer_save(one, other, 77));
        tx_tokenizer *two = open_tokenizer(other);
        assert_string_equal(tx_tokenizer_digest(one), tx_tokenizer_digest(two));
        assert_string_equal(tx_tokenizer_digest(one), tx_tokenizer_digest(file));
        assert_int_equal(tx_tokenizer_end(one), tx_tokenizer_end(two));
        assert_true(i == 3 || tx_tokenizer_end(one) == 2);
        tx_tokenizer_free(one);
        tx_tokenizer_free(two);
        tx_tokenizer_free(file);
        remove_scratch(folder);
        remove_scratch(other);
    }
}

/* A word of 256 KiB, with tokens of up to 1024 bytes that all begin alike. */
static void test_long(void **state)
{
    enum { SIZE = 1 << 18, LONGEST = 1024 };
    char *folder = make_scratch(), *text = malloc(SIZE), token[LONGEST + 1];
    tx_json *json, *model, *vocab = tx_json_array(), *pair;
    const char frame[] = "{\"model\": {\"type\": \"Unigram\", \"unk_id\": null}}";
    memset(text, 'a', SIZE);
    assert_ok(tx_json_parse(frame, sizeof frame - 1, "frame", &json));
    assert_ok(tx_json_get(json, "model", TX_JSON_OBJECT, &model));
    assert_ok(tx_json_set(model, "vocab", vocab));
    for (size_t size = 1; size <= LONGEST; size *= 2) {
        memset(token, 'a', size);
        token[size] = '\0';
        assert_ok(tx_json_append(vocab, pair = tx_json_array()));
        assert_ok(tx_json_append_string(pair, token));
        assert_ok(tx_json_append_number(pair, -1.0 - (double)size / LONGEST));
    }
    assert_ok(tx_json_write(TX_PATH(folder, "tokenizer.json"), json, TX_JSON_LINE));
    tx_tokenizer *tokenizer = open_tokenizer(folder);
    tx_ids ids;
    const clock_t start = clock();
    encode(tokenizer, text, SIZE, true, &ids);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 30);
    assert_int_equal(ids.count, SIZE / LONGEST);
    for (size_t i = 0; i < ids.count; i++)
        assert_int_equal(ids.id[i], 10);
    free(ids.id);
    free(text);
    tx_json_free(json);
    tx_tokenizer_free(tokenizer);
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ids), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_classes), cmocka_unit_test(test_saved),
                                       cmocka_unit_test(test_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
