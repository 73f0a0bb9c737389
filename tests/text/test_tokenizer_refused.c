/* SPDX-License-Identifier: Apache-2.0
 * Tokenizers as files: what is refused. */
#include "tests/text/folders.h"

/* The place of a value in tokenizer.json, another value, and how it is refused. */
static const struct {
    const char *place, *value;
    tx_status status;
    const char *message;
} refused[] = {
    {"model.type", "\"WordPiece\"", TX_UNSUPPORTED, "pre_tokenizer: ByteLevel beside a model of type WordPiece"},
    {"model.type", "\"Unigram\"", TX_UNSUPPORTED, "Unigram"},
    {"model.type", "\"WordLevel\"", TX_UNSUPPORTED, "WordLevel"},
    {"model.dropout", "0.1", TX_UNSUPPORTED, "dropout 0.1"},
    {"model.continuing_subword_prefix", "\"##\"", TX_UNSUPPORTED, "continuing_subword_prefix \"##\""},
    {"model.end_of_word_suffix", "\"</w>\"", TX_UNSUPPORTED, "end_of_word_suffix \"</w>\""},
    {"normalizer", "{\"type\":\"Nmt\"}", TX_UNSUPPORTED, "normalizer: Nmt is not supported"},
    {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Precompiled\"}]}",
     TX_UNSUPPORTED, "normalizer: normalizers[1]: Precompiled is not supported"},
    {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[7]}", TX_FORMAT, "normalizers[0]: not an object"},
    {"normalizer", "{\"type\":\"Strip\",\"strip_left\":true}", TX_NOT_FOUND, "Strip: strip_right is missing"},
    {"normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"a\"}", TX_UNSUPPORTED,
     "Replace: regular expression: one that matches the empty text"},
    {"normalizer", "3", TX_FORMAT, "normalizer: expected an object, found 3"},
    {"pre_tokenizer", "null", TX_UNSUPPORTED, "decoder: ByteLevel is supported only after pre_tokenizer ByteLevel"},
    {"pre_tokenizer", "{\"type\":\"UnicodeScripts\"}", TX_UNSUPPORTED,
     "pre_tokenizer: UnicodeScripts is not supported"},
    {"pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", TX_FORMAT,
     "Metaspace: replacement ab: expected one"},
    {"pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}", TX_UNSUPPORTED,
     "prepend_scheme last"},
    {"pre_tokenizer",
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false},{\"type\":"
     "\"Punctuation\"}]}",
     TX_UNSUPPORTED, "Punctuation after ByteLevel"},
    {"pre_tokenizer", SPLIT("\\\\w+", "Isolated"), TX_UNSUPPORTED,
     "pretokenizers[0]: Split: regular expression: \"\\w\""},
    {"pre_tokenizer", SPLIT("^a", "Isolated"), TX_UNSUPPORTED, "\"^\""},
    {"pre_tokenizer", SPLIT("\\\\h", "Isolated"), TX_UNSUPPORTED, "\"\\h\""},
    {"pre_tokenizer", SPLIT("[a[b]]", "Isolated"), TX_UNSUPPORTED, "\"[b\""},
    {"pre_tokenizer", SPLIT("[a&&b]", "Isolated"), TX_UNSUPPORTED, "\"&&\""},
    {"pre_tokenizer", SPLIT("a{2}+", "Isolated"), TX_UNSUPPORTED, "{2}"},
    {"pre_tokenizer", SPLIT("(?i)a", "Isolated"), TX_UNSUPPORTED, "(?i)"},
    {"pre_tokenizer", SPLIT("a*", "Isolated"), TX_UNSUPPORTED, "matches the empty text"},
    {"pre_tokenizer", SPLIT("(a", "Isolated"), TX_UNSUPPORTED, "regular expression"},
    {"pre_tokenizer", SPLIT("a)", "Isolated"), TX_FORMAT, ") without ("},
    {"pre_tokenizer", SPLIT("a", "Sideways"), TX_UNSUPPORTED, "behavior Sideways"},
    {"post_processor", "{\"type\":\"Mystery\"}", TX_UNSUPPORTED, "post_processor: Mystery"},
    {"post_processor", "{\"type\":\"BertProcessing\",\"sep\":[\"s\",999],\"cls\":[\"c\",1]}", TX_FORMAT,
     "post_processor: id 999 is not in the vocabulary"},
    {"post_processor", "{\"type\":\"BertProcessing\",\"sep\":[\"s\"],\"cls\":[\"c\",1]}", TX_FORMAT,
     "post_processor: BertProcessing: sep: expected a token and its id"},
    {"post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"C\",\"type_id\":0}}]}",
     TX_FORMAT, "single[0]: Sequence C: expected A or B"},
    {"post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"C\",\"type_id\":0}}]}",
     TX_FORMAT, "special_tokens is missing"},
    {"decoder", "null", TX_UNSUPPORTED, "decoder: after pre_tokenizer ByteLevel only ByteLevel"},
    {"decoder", "{\"type\":\"CTC\"}", TX_UNSUPPORTED, "decoder: CTC is not supported"},
    {"decoder", "{\"type\":\"Fuse\"}", TX_UNSUPPORTED, "decoder: after pre_tokenizer ByteLevel only ByteLevel"},
    {"model.vocab.q", "1", TX_FORMAT, "two tokens have id 1"},
    {"model.vocab.q", "-1", TX_FORMAT, "q: expected an integer from 0"},
    {"model.vocab.q", "\"one\"", TX_FORMAT, "q: expected an integer"},
    {"model.vocab.q", "99999999", TX_FORMAT, "q: expected an integer"},
    {"model.vocab", "{}", TX_FORMAT, "merges[0]: h is not in the vocabulary"},
    {"model.merges", "[\"h e\", \"h e\"]", TX_FORMAT, "merges[1]: the pair has a merge already, number 0"},
    {"model.merges", "[\"h zz\"]", TX_FORMAT, "merges[0]: zz is not in the vocabulary"},
    {"model.merges", "[\"h q\"]", TX_FORMAT, "merges[0]: h and q together are not in the vocabulary"},
    {"model.merges", "[\"he\"]", TX_FORMAT, "merges[0]: expected two words"},
    {"model.merges", "[\"h e r\"]", TX_FORMAT, "merges[0]: expected two words"},
    {"model.merges", "[[\"h\"]]", TX_FORMAT, "merges[0]: expected two words, found 1"},
    {"model.merges", "[7]", TX_FORMAT, "merges[0]: a merge: expected a string"},
    {"added_tokens.0.id", "7", TX_FORMAT, "added_tokens[0]: <|endoftext|>: id 7, in the vocabulary 0"},
    {"added_tokens.0.content", "\"<new>\"", TX_UNSUPPORTED, "<new>: id 0, where tokenizers would give it 263"},
    {"added_tokens.0.special", "1", TX_FORMAT, "special: expected true or false"},
    {"added_tokens", "7", TX_FORMAT, "added_tokens: expected an array"},
    {"model", "[]", TX_FORMAT, "model: expected an object"},
};

static void test_refused(void **state)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char *folder = small_folder();
        tx_tokenizer *tokenizer = NULL;
        change(folder, refused[i].place, refused[i].value);
        assert_refused(tx_tokenizer_open(folder, &tokenizer), refused[i].status, refused[i].message);
        assert_null(tokenizer);
        assert_non_null(strstr(tx_error(), folder));
        remove_scratch(folder);
    }
}

static void test_refused_files(void **state)
{
    tx_tokenizer *tokenizer = NULL;
    char *folder = make_scratch();
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_NOT_FOUND, "neither tokenizer.json nor vocab.json");
    write_in(folder, "vocab.json", "{}");
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_NOT_FOUND, "neither tokenizer.json nor vocab.json");
    write_in(folder, "merges.txt", "");
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_UNSUPPORTED, "no token for byte 0x00");
    write_in(folder, "vocab.json", "[]");
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_FORMAT, "vocab.json: expected an object");
    write_in(folder, "tokenizer.json", "{\"model\"");
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_FORMAT, "tokenizer.json: not valid JSON");
    write_in(folder, "tokenizer.json", "{}");
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_NOT_FOUND, "model is missing");
    remove_scratch(folder);

    folder = small_folder();
    static const char *const bad[][2] = {
        {"{\"eos_token\": 7}", "eos_token: "},
        {"{\"eos_token\": {\"lstrip\": true}}", "eos_token: content is missing"},
        {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"<a>\"}}}", "added_tokens_decoder: x is not an id"},
        {"{\"added_tokens_decoder\": {\"9\": {\"content\": \"<a>\", \"lstrip\": 1}}}",
         "added_tokens_decoder: 9: lstrip"},
        {"{\"added_tokens_decoder\": []}", "added_tokens_decoder: expected an object"},
        {"{\"extra_special_tokens\": [7]}", "extra_special_tokens[0]: "},
        {"{\"extra_special_tokens\": \"<a>\"}", "extra_special_tokens: expected a list"},
        {"[]", "tokenizer_config.json: expected an object"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_in(folder, "tokenizer_config.json", bad[i][0]);
        assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_FORMAT, bad[i][1]);
        assert_non_null(strstr(tx_error(), "tokenizer_config.json"));
    }
    write_in(folder, "tokenizer_config.json", "{\"split_special_tokens\": true}");
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_UNSUPPORTED, "split_special_tokens");
    write_in(folder, "tokenizer_config.json", "{}");
    write_in(folder, "added_tokens.json", "{\"<a>\": \"9\"}");
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_FORMAT, "added_tokens.json: <a>: expected an integer");
    assert_null(tokenizer);
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
