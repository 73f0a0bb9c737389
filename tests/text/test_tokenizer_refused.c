/* SPDX-License-Identifier: Apache-2.0
 * Tokenizers as files: refusals, and llama.cpp's names of pre-tokenizers in GGUF files. */
#include "models/tokenizer/regex.h"
#include "models/tokenizer/tokenizer_gguf.h"
#include "tests/text/folders.h"

#define CHARSMAP(text) "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" text "\"}"

/* The place of a value in tokenizer.json, another value, and how it is refused. */
static const struct {
    const char *place, *value;
    tx_status status;
    const char *message;
} refused[] = {
    {"model.type", "\"WordPiece\"", TX_UNSUPPORTED, "pre_tokenizer: ByteLevel with a model of type WordPiece"},
    {"model.type", "\"Unigram\"", TX_UNSUPPORTED, "pre_tokenizer: ByteLevel with a model of type Unigram"},
    {"model.type", "\"Mystery\"", TX_UNSUPPORTED, "type Mystery is not supported"},
    {"model.dropout", "0.1", TX_UNSUPPORTED, "dropout 0.1"},
    {"model.continuing_subword_prefix", "\"##\"", TX_FORMAT, "merges[0]: e has no continuing_subword_prefix"},
    {"model.end_of_word_suffix", "\"\\u00e9\"", TX_UNSUPPORTED, "end_of_word_suffix \"\xC3\xA9\" with ByteLevel"},
    {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"NFC\"}]}",
     TX_UNSUPPORTED, "normalizer: ByteLevel is supported only as the last step"},
    {"normalizer", "{\"type\":\"ByteLevel\"}", TX_UNSUPPORTED, "ByteLevel after ByteLevel"},
    {"decoder", "{\"type\":\"BPEDecoder\",\"suffix\":\"\"}", TX_UNSUPPORTED, "BPEDecoder: an empty suffix"},
    {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Mystery\"}]}",
     TX_UNSUPPORTED, "normalizer: normalizers[1]: Mystery is not supported"},
    {"normalizer", "{\"type\":\"Precompiled\"}", TX_NOT_FOUND, "Precompiled: precompiled_charsmap is missing"},
    {"normalizer", CHARSMAP(""), TX_FORMAT, "precompiled_charsmap: 0 bytes are not a map of characters"},
    {"normalizer", CHARSMAP("AAAA"), TX_FORMAT, "precompiled_charsmap: 3 bytes are not a map of characters"},
    {"normalizer", CHARSMAP("AAA"), TX_FORMAT, "precompiled_charsmap: not base64 at character 1 of 3"},
    {"normalizer", CHARSMAP("AA=AAAAA"), TX_FORMAT, "precompiled_charsmap: not base64 at character 3 of 8"},
    {"normalizer", CHARSMAP("CAAAAAAAAAA="), TX_FORMAT, "precompiled_charsmap: 8 bytes are not a map of characters"},
    {"normalizer", CHARSMAP("BAAAAAAAAAD/"), TX_FORMAT, "precompiled_charsmap: its replacements are not UTF-8"},
    {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[7]}", TX_FORMAT, "normalizers[0]: not an object"},
    {"normalizer", "{\"type\":\"Strip\",\"strip_left\":true}", TX_NOT_FOUND, "Strip: strip_right is missing"},
    {"normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"a\"}", TX_UNSUPPORTED,
     "Replace: regular expression: one that matches the empty text"},
    {"normalizer", "3", TX_FORMAT, "normalizer: expected an object, found 3"},
    {"pre_tokenizer", "null", TX_UNSUPPORTED, "decoder: ByteLevel is supported only after pre_tokenizer ByteLevel"},
    {"pre_tokenizer", "{\"type\":\"Mystery\"}", TX_UNSUPPORTED, "pre_tokenizer: Mystery is not supported"},
    {"pre_tokenizer", "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"ab\"}", TX_FORMAT,
     "CharDelimiterSplit: delimiter ab: expected one"},
    {"pre_tokenizer", "{\"type\":\"FixedLength\",\"length\":0}", TX_FORMAT,
     "FixedLength: length: expected an integer from 1"},
    {"pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", TX_FORMAT,
     "Metaspace: replacement ab: expected one"},
    {"pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}", TX_UNSUPPORTED,
     "prepend_scheme last"},
    {"pre_tokenizer",
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false},{\"type\":"
     "\"ByteLevel\",\"add_prefix_space\":false}]}",
     TX_UNSUPPORTED, "ByteLevel after ByteLevel"},
    {"pre_tokenizer", SPLIT("\\\\w+", "Isolated"), TX_UNSUPPORTED,
     "pretokenizers[0]: Split: regular expression: \"\\w\""},
    {"pre_tokenizer", SPLIT("^", "Isolated"), TX_UNSUPPORTED, "matches the empty text"},
    {"pre_tokenizer", SPLIT("\\\\h", "Isolated"), TX_UNSUPPORTED, "\"\\h\""},
    {"pre_tokenizer", SPLIT("[a[b&&c]]", "Isolated"), TX_UNSUPPORTED, "\"&&\""},
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
    {"added_tokens.0.id", "7", TX_FORMAT, "added_tokens[0]: <|endoftext|>: id 7, but its id in the vocabulary is 0"},
    {"added_tokens.0.content", "\"<new>\"", TX_UNSUPPORTED, "<new>: id 0, but tokenizers would assign 263"},
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
    write_in(folder, "vocab.json", "{\"</w>\": 0, \"a</w>\": 1}");
    assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_UNSUPPORTED, "words that end with </w>");
    write_in(folder, "vocab.json", "{}");
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

/* ---- GGUF files: llama.cpp's names of pre-tokenizers --------------------------------------------------- */

#define PART(regex) \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex "\"}, \"behavior\": \"Isolated\", \"invert\": false}, "
#define BYTES(own) "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": " own "}"
#define PARTS(...) "{\"type\": \"Sequence\", \"pretokenizers\": [" __VA_ARGS__ "]}"
#define DIGITS "{\"type\": \"Digits\", \"individual_digits\": true}, "
#define UPPER "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define LOWER "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define LLAMA3                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| " \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|" LINES
#define LINES "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

/* Writes a file of the folder's tokenizer and no tensors that count. */
static tx_status write_gguf(const char *folder, const char *architecture, const char *path)
{
    const tx_gguf_tensor tensor = {"one", TX_GGUF_F32, 1, {1}};
    tx_gguf_writer *writer;
    tx_tokenizer *tokenizer = open_tokenizer(folder);
    assert_ok(tx_gguf_create(&writer));
    const tx_status status = tx_tokenizer_put_gguf(tokenizer, &(tx_gguf_ids){263, -1, 0, architecture}, writer);
    tx_tokenizer_free(tokenizer);
    if (status) {
        tx_gguf_discard(writer);
        return status;
    }
    assert_ok(tx_gguf_begin(writer, path, &tensor, 1));
    assert_ok(tx_gguf_append(writer, &(float){0}, sizeof(float)));
    return tx_gguf_commit(writer);
}

/* Names as llama.cpp's convert script gives them to SmolLM, DeepSeek-Coder, Qwen3.5, Mistral Nemo and GPT-2. */
static void test_gguf_names(void **state)
{
    static const struct {
        const char *pre_tokenizer, *name, *architecture;
    } known[] = {
        {PARTS(DIGITS BYTES("true")), "smollm", "llama"},
        {PARTS(PART("\\\\p{N}") BYTES("true")), "smollm", "llama"},
        {PARTS(PART("[\\r\\n]") PART("\\\\s?\\\\p{L}+") PART("\\\\s?\\\\p{P}+")
                   PART("[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+") DIGITS BYTES("false")),
         "deepseek-coder", "llama"},
        {PARTS(PART("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}| "
                    "?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|" LINES) BYTES("false")),
         "qwen35", "llama"},
        {PARTS(PART("[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "*" LOWER "+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "+" LOWER
                    "*|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|" LINES) BYTES("false")),
         "tekken", "llama"},
        {BYTES("true"), "gpt-2", "gpt2"},
        {BYTES("true"), "mpt", "mpt"},
        {BYTES("true"), "gpt-2", "modern-bert"}, /* whose tokenizer has NFC */
        {PARTS(PART("\\\\p{N}") BYTES("true")), "command-r", "command-r"},
        {BYTES("true"), "gpt-2", "command-r"},
        {PARTS(PART(LLAMA3) BYTES("false")), "dbrx", "olmo2"},
    };
    char *folder = small_folder(), *file = TX_PATH(folder, "model.gguf");
    write_in(folder, "tokenizer_config.json", "{\"eos_token\": \"!\"}"); /* so the file holds no tokenizer.json */
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        change(folder, "pre_tokenizer", known[i].pre_tokenizer);
        assert_ok(write_gguf(folder, known[i].architecture, file));
        tx_gguf_file *opened;
        char *name;
        assert_ok(tx_gguf_open(file, &opened));
        assert_ok(tx_gguf_get_string(opened, "tokenizer.ggml.pre", &name, NULL));
        assert_string_equal(name, known[i].name);
        assert_false(tx_gguf_has(opened, "tokenizer.huggingface.json"));
        free(name);
        tx_gguf_close(opened);
        tx_tokenizer *one = open_tokenizer(folder), *other = open_tokenizer(file);
        static const char text[] = "the hen, THE then 12345 others!\r\n\n  then/\n \xE6\x97\xA5 don't";
        tx_ids ids[2];
        encode(one, text, sizeof text - 1, true, &ids[0]);
        encode(other, text, sizeof text - 1, true, &ids[1]);
        assert_int_equal(ids[0].count, ids[1].count);
        assert_memory_equal(ids[0].id, ids[1].id, ids[0].count * sizeof *ids[0].id);
        free(ids[0].id);
        free(ids[1].id);
        tx_tokenizer_free(one);
        tx_tokenizer_free(other);
    }
    change(folder, "pre_tokenizer", PARTS(PART("[aeiou]") BYTES("false")));
    assert_refused(write_gguf(folder, "llama", file), TX_UNSUPPORTED, "(Split [aeiou], ByteLevel)");
    assert_non_null(strstr(tx_error(), "convert_hf_to_gguf.py"));
    assert_null(tx_gguf_split_of("no name"));
    assert_string_equal(tx_gguf_split_of("starcoder")->name, "smollm");
    remove_scratch(folder);
}

/* Splits a text by all regular expressions of a name, one after the other; bars between the parts. */
static void split_by(const char *name, const char *text, const char *wanted)
{
    const tx_gguf_split *split = tx_gguf_split_of(name);
    char parts[256];
    assert_non_null(split);
    snprintf(parts, sizeof parts, "%s", text);
    for (int i = 0; i < TX_GGUF_REGEXES && split->regex[i]; i++) {
        tx_regex regex = {0};
        char next[256] = "";
        assert_ok(tx_regex_open(split->regex[i], &regex));
        pcre2_match_data *match = pcre2_match_data_create_from_pattern(regex.code, NULL);
        for (char *part = strtok(parts, "|"); part; part = strtok(NULL, "|")) {
            const size_t size = strlen(part);
            for (size_t at = 0; at < size;) { /* text between matches is a part, too */
                const bool found = pcre2_match(regex.code, (PCRE2_SPTR)part, size, at, 0, match, NULL) > 0;
                const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(match);
                const size_t first = found ? ends[0] : size, end = first > at ? first : ends[1];
                snprintf(next + strlen(next), sizeof next - strlen(next), "%.*s|", (int)(end - at), part + at);
                at = end;
            }
        }
        pcre2_match_data_free(match);
        tx_regex_close(&regex);
        memcpy(parts, next, sizeof next);
    }
    assert_string_equal(parts, wanted);
}

/* The pre-tokenizers of models of 2025 and 2026. The parts are those of llama.cpp, and for kimi-k2 of tiktoken. */
static void test_gguf_splits(void **state)
{
    static const char text[] = "don't 12345\xe6\xbc\xa2"
                               "b a.B\n\n/x";
    split_by("llama4", text,
             "don't| |123|45|\xe6\xbc\xa2"
             "b| a|.B|\n\n|/x|");
    split_by("hunyuan", text,
             "don|'t| |1|2|3|4|5|\xe6\xbc\xa2"
             "b| a|.B|\n\n|/x|");
    split_by("seed-coder", text,
             "don|'t| |1|2|3|4|5|\xe6\xbc\xa2"
             "b| a|.B|\n\n|/x|");
    split_by("bailingmoe2", text,
             "don|'t| |1|2|3|4|5|\xe6\xbc\xa2"
             "b| a|.B|\n\n|/x|");
    split_by("exaone-moe", text,
             "don|'t| |1|2|3|4|5|\xe6\xbc\xa2"
             "b a|.B|\n\n|/x|");
    split_by("minicpm5", text,
             "don|'t| |123|45|\xe6\xbc\xa2"
             "b| a|.B|\n\n|/x|");
    split_by("cohere2moe", "don't 12345, x", "don't| |12|345|,| x|");
    split_by("kimi-k2", text, "don't| |123|45|\xe6\xbc\xa2|b| a|.B|\n\n|/x|");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_gguf_splits),
        cmocka_unit_test(test_refused_files),
        cmocka_unit_test(test_gguf_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
