/* SPDX-License-Identifier: Apache-2.0
 * Folders with tekken.json or tiktoken.model alone: ids by the definition, where two tokens merge if their bytes are a
 * token, the lowest rank first. Damaged files. */
#include "models/tokenizer/buffer.h"
#include "models/tokenizer/charsmap.h"
#include "tests/text/text.h"

#define TOKENS 260
#define PATTERN " ?[a-z]+|[^a-z]"

/* The bytes of the token of a rank, and their number: all bytes, and then a few words. */
static size_t token_of(int rank, char bytes[4])
{
    static const char *const words[] = {"ab", "bc", "abc", " a"};
    bytes[0] = (char)rank;
    if (rank < 256)
        return 1;
    snprintf(bytes, 4, "%s", words[rank - 256]);
    return strlen(words[rank - 256]);
}

/* Appends a format with the base64 of a token and its rank. */
static void add_token(tx_buffer *to, const char *format, int rank)
{
    char bytes[4], line[128], *base64;
    assert_ok(tx_charsmap_text(bytes, token_of(rank, bytes), &base64));
    snprintf(line, sizeof line, format, base64, rank);
    tx_buffer_add(to, line, strlen(line));
    free(base64);
}

static void add_text(tx_buffer *to, const char *text)
{
    tx_buffer_add(to, text, strlen(text));
}

/* Writes a file of the tokens of all ranks from `first` on. */
static void write_tekken(const char *folder, int first, int size)
{
    char begin[256];
    tx_buffer text = {0};
    snprintf(begin, sizeof begin,
             "{\"config\": {\"pattern\": \"" PATTERN
             "\", \"default_vocab_size\": %d, \"default_num_special_tokens\": 4},"
             " \"special_tokens\": [{\"rank\": 0, \"token_str\": \"<unk>\"}, {\"rank\": 1, \"token_str\": \"<s>\"},"
             " {\"rank\": 2, \"token_str\": \"</s>\"}], \"vocab\": [",
             size);
    add_text(&text, begin);
    for (int rank = first; rank < TOKENS; rank++)
        add_token(&text,
                  rank > first ? ", {\"token_bytes\": \"%s\", \"rank\": %d}"
                               : "{\"token_bytes\": \"%s\", \"rank\": %d}",
                  rank);
    add_text(&text, "]}");
    assert_ok(tx_file_write(TX_PATH(folder, "tekken.json"), text.data, text.size));
    free(text.data);
}

static void write_tiktoken(const char *folder, int first, const char *config)
{
    tx_buffer text = {0};
    for (int rank = first; rank < TOKENS; rank++)
        add_token(&text, "%s %d\n", rank);
    assert_ok(tx_file_write(TX_PATH(folder, "tiktoken.model"), text.data, text.size));
    assert_ok(tx_file_write(TX_PATH(folder, "tokenizer_config.json"), config, strlen(config)));
    free(text.data);
}

static void test_ids(void **state)
{
    char *folder = make_scratch();
    write_tekken(folder, 0, 4 + TOKENS);
    tx_tokenizer *tokenizer = open_tokenizer(folder);
    expect_ids(tokenizer, "abc bc abcd", true, (int32_t[]){262, 36, 261, 36, 262, 104, -1});
    expect_ids(tokenizer, "</s>[1]", true, (int32_t[]){2, 95, 53, 97, -1});
    assert_int_equal(tx_tokenizer_find(tokenizer, "<SPECIAL_3>"), 3);
    tx_tokenizer_free(tokenizer);
    write_tekken(folder, 0, 4 + TOKENS - 3); /* the last tokens are not used */
    tokenizer = open_tokenizer(folder);
    expect_ids(tokenizer, "abc", true, (int32_t[]){260, 103, -1});
    tx_tokenizer_free(tokenizer);
    remove_scratch(folder);
}

static void test_tiktoken(void **state)
{
    char *folder = make_scratch();
    write_tiktoken(folder, 0,
                   "{\"tokenizer_class\": \"TikTokenTokenizer\", \"added_tokens_decoder\": {\"260\": {\"content\": "
                   "\"[EOS]\", \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"single_word\": false, "
                   "\"special\": true}}}");
    tx_tokenizer *tokenizer = open_tokenizer(folder);
    expect_ids(tokenizer, "abc abcd[EOS]", true, (int32_t[]){258, 32, 258, 100, 260, -1});
    tx_tokenizer_free(tokenizer);
    remove_scratch(folder);
}

static void test_refused(void **state)
{
    char *folder = make_scratch();
    tx_tokenizer *tokenizer;
    write_tiktoken(folder, 0, "{\"tokenizer_class\": \"QWenTokenizer\"}");
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_UNSUPPORTED, "QWenTokenizer is only in Python code");
    write_tiktoken(folder, 1, "{\"tokenizer_class\": \"TikTokenTokenizer\"}");
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_FORMAT, "line 1: expected base64 and the rank 0");
    assert_ok(tx_file_write(TX_PATH(folder, "tiktoken.model"), "A*== 0\n", 7));
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_FORMAT, "not base64 at character 2");
    assert_ok(tx_file_write(TX_PATH(folder, "tiktoken.model"), "YQ== 0\nYQ== 1\n", 14));
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_FORMAT, "the token a occurs twice");
    write_tekken(folder, 1, 4 + TOKENS - 1); /* this file is found first */
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_FORMAT, "vocab: rank 1 instead of 0");
    write_tekken(folder, 0, 5 + TOKENS);
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_FORMAT, "vocab: 260 tokens, not 261");
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ids), cmocka_unit_test(test_tiktoken),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
