/* SPDX-License-Identifier: Apache-2.0
 * Tokenizers as files: reading and writing them, the byte vocabulary, and decoding. */
#include "tests/text/folders.h"

/* ---- reading --------------------------------------------------------------------------------------- */

static void test_small(void **state)
{
    char *folder = small_folder();
    const char *bytes;
    size_t size;
    tx_tokenizer *tokenizer = open_tokenizer(folder);
    int32_t h = tx_tokenizer_find(tokenizer, "h"), he = tx_tokenizer_find(tokenizer, "he"),
            the = tx_tokenizer_find(tokenizer, " the"), hen = tx_tokenizer_find(tokenizer, "hen");
    assert_true(h > 0 && he > 256 && the > 256 && hen < 0);
    EXPECT_IDS(tokenizer, "he the<|endoftext|>!", true, he, the, 0, 1);
    EXPECT_IDS(tokenizer, "h<", true, h, '<' - '!' + 1);
    assert_int_equal(tx_tokenizer_find(tokenizer, TX_END_OF_TEXT), 0);
    assert_int_equal(tx_tokenizer_end(tokenizer), 0);
    assert_ok(tx_tokenizer_piece(tokenizer, the, false, &bytes, &size));
    assert_int_equal(size, 4);
    assert_memory_equal(bytes, " the", 4);
    assert_ok(tx_tokenizer_piece(tokenizer, 0, true, &bytes, &size));
    assert_int_equal(size, 0);
    assert_refused(tx_tokenizer_piece(tokenizer, -1, true, &bytes, &size), TX_INVALID, "id -1 is not in");
    assert_refused(tx_tokenizer_piece(tokenizer, 263, true, &bytes, &size), TX_INVALID, "id 263 is not in");
    tx_tokenizer_free(tokenizer);
    remove_scratch(folder);
}

/* Equivalent files: the same ids, and the same digest if the ids can never differ. */
static void test_equal_files(void **state)
{
    static const struct {
        const char *place, *value;
        bool same_digest;
    } cases[] = {
        {"post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[]}", true},
        {"post_processor", "null", true},
        {"post_processor", "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}]}", true},
        {"decoder", "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"}]}", true},
        {"model.unk_token", "\"<|endoftext|>\"", true},
        {"model.byte_fallback", "true", true},
        {"model.type", "null", true},
        {"truncation", "{\"max_length\":1}", true},
        {"pre_tokenizer",
         SPLIT("'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!"
               "\\\\S)|\\\\s+",
               "Isolated"),
         false},
        {"model.ignore_merges", "true", false},
        {"normalizer", "{\"type\":\"NFC\"}", false},
        {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[]}", true},
        {"model.vocab.qq", "263", false},
    };
    static const char text[] = "the hen, the then 12 others\n\n  then<|endoftext|>";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *folder = small_folder();
        tx_tokenizer *before, *after;
        tx_ids ids[2];
        assert_ok(tx_tokenizer_open(folder, &before));
        if (strcmp(cases[i].place, "model.type") == 0) { /* left out, as in old files */
            tx_json *json = read_in(folder, "tokenizer.json");
            char *whole = tx_json_text(json, TX_JSON_LINE), *at = strstr(whole, "\"type\": \"BPE\", ");
            assert_non_null(at);
            memset(at, ' ', strlen("\"type\": \"BPE\", "));
            write_in(folder, "tokenizer.json", whole);
            free(whole);
            tx_json_free(json);
        } else {
            change(folder, cases[i].place, cases[i].value);
        }
        assert_ok(tx_tokenizer_open(folder, &after));
        encode(before, text, sizeof text - 1, true, &ids[0]);
        encode(after, text, sizeof text - 1, true, &ids[1]);
        assert_int_equal(ids[0].count, ids[1].count);
        assert_memory_equal(ids[0].id, ids[1].id, ids[0].count * sizeof(int32_t));
        bool same = strcmp(tx_tokenizer_digest(before), tx_tokenizer_digest(after)) == 0;
        if (same != cases[i].same_digest)
            fail_msg("%s: the digests are %s", cases[i].place, same ? "the same" : "not the same");
        free(ids[0].id);
        free(ids[1].id);
        tx_tokenizer_free(before);
        tx_tokenizer_free(after);
        remove_scratch(folder);
    }
}

/* The parts of " a  the" in each mode. Parts are given as texts that are encoded separately. */
static void test_splitters(void **state)
{
    static const struct {
        const char *pre_tokenizer, *parts[8];
    } cases[] = {
        {SPLIT(" ", "Isolated"), {" ", "a", " ", " ", "the"}},
        {SPLIT(" ", "Removed"), {"a", "the"}},
        {SPLIT(" ", "MergedWithNext"), {" a", " ", " the"}},
        {SPLIT(" ", "MergedWithPrevious"), {" ", "a ", " ", "the"}},
        {SPLIT(" ", "Contiguous"), {" ", "a", "  ", "the"}},
        {SPLIT("[^ ]+ ?", "Isolated"), {" ", "a ", " ", "the"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *folder = small_folder();
        tx_ids ids, part;
        size_t count = 0;
        change(folder, "pre_tokenizer", cases[i].pre_tokenizer);
        /* A part without an expression is one word. */
        tx_tokenizer *t = open_tokenizer(folder);
        encode(t, " a  the", 7, true, &ids);
        tx_tokenizer_free(t);
        change(folder, "pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}");
        assert_ok(tx_tokenizer_open(folder, &t));
        for (int p = 0; p < 8 && cases[i].parts[p]; p++) {
            encode(t, cases[i].parts[p], strlen(cases[i].parts[p]), true, &part);
            if (count + part.count > ids.count || memcmp(ids.id + count, part.id, part.count * sizeof(int32_t)) != 0)
                fail_msg("%s: part %d is another", cases[i].pre_tokenizer, p);
            count += part.count;
            free(part.id);
        }
        assert_int_equal(count, ids.count);
        free(ids.id);
        tx_tokenizer_free(t);
        remove_scratch(folder);
    }
}

/* Ids without a word are refused; ids of added tokens follow the words'. */
static void test_holes(void **state)
{
    static const char added[] = "{\"id\":264,\"content\":\"<new>\",\"single_word\":false,\"lstrip\":false,"
                                "\"rstrip\":false,\"normalized\":false,\"special\":true}";
    char *folder = small_folder();
    change(folder, "model.vocab.qq", "263");
    change(folder, "added_tokens.", added);
    tx_tokenizer *tokenizer = open_tokenizer(folder);
    assert_int_equal(tx_tokenizer_size(tokenizer), 265);
    assert_int_equal(tx_tokenizer_find(tokenizer, "<new>"), 264);
    tx_tokenizer_free(tokenizer);
    for (int id = 264; id < 400; id += 36) {
        char text[16];
        snprintf(text, sizeof text, "%d", id);
        change(folder, "model.vocab.qq", text);
        assert_refused(tx_tokenizer_open(folder, &tokenizer), TX_FORMAT, "vocab: qq: id ");
        assert_non_null(strstr(tx_error(), " among 264 words: some smaller id has no word"));
    }
    remove_scratch(folder);
}

/* vocab.json and merges.txt made of the small tokenizer.json, with `extra` lines after the merges. */
static char *pair_folder(const char *line_end, const char *extra)
{
    char *folder = small_folder(), *one = TX_PATH(folder, "tokenizer.json"), *two = TX_PATH(folder, "vocab.json");
    tx_json *json = read_in(folder, "tokenizer.json"), *model, *vocab, *merges;
    char text[4096] = "#version: 0.2";
    assert_ok(tx_json_get(json, "model", TX_JSON_OBJECT, &model));
    assert_ok(tx_json_get(model, "vocab", TX_JSON_OBJECT, &vocab));
    assert_ok(tx_json_get(model, "merges", TX_JSON_ARRAY, &merges));
    assert_ok(tx_json_write(two, vocab, TX_JSON_SORTED));
    for (size_t i = 0; i < tx_json_size(merges); i++) {
        const char *merge;
        assert_ok(tx_json_as_string(tx_json_at(merges, i), "merge", &merge));
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", line_end, merge);
    }
    strcat(text, extra);
    write_in(folder, "merges.txt", text);
    unlink(one);
    tx_json_free(json);
    return folder;
}

static void test_pair(void **state)
{
    char *folder = small_folder();
    tx_tokenizer *one, *pair;
    assert_ok(tx_tokenizer_open(folder, &one));
    remove_scratch(folder);
    for (int i = 0; i < 3; i++) {
        folder = pair_folder(i == 1 ? "\r\n" : "\n", i == 2 ? "\n" : "");
        assert_ok(tx_tokenizer_open(folder, &pair));
        assert_string_equal(tx_tokenizer_digest(pair), tx_tokenizer_digest(one));
        EXPECT_IDS(pair, "<|endoftext|>", true, 0);
        tx_tokenizer_free(pair);
        remove_scratch(folder);
    }
    tx_tokenizer_free(one);
    static const char *const bad[][2] = {{"\nh", "merges.txt: line 8: expected two words"},
                                         {"\nh e r", "merges.txt: line 8: expected two words"},
                                         {"\n\nh q", "merges.txt: line 8: expected two words"},
                                         {"\nh zz\n", "merges.txt: line 8: zz is not in the vocabulary"},
                                         {"\nh e", "merges.txt: line 8: the pair has a merge already"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        folder = pair_folder("\n", bad[i][0]);
        assert_refused(tx_tokenizer_open(folder, &pair), TX_FORMAT, bad[i][1]);
        remove_scratch(folder);
    }
    folder = pair_folder("\n", "");
    write_in(folder, "tokenizer_config.json", "{\"add_prefix_space\": true, \"pad_token\": {\"content\": \"!\"}}");
    assert_ok(tx_tokenizer_open(folder, &pair));
    EXPECT_IDS(pair, "the!", true, tx_tokenizer_find(pair, " the"), 1);
    tx_tokenizer_free(pair);
    write_in(folder, "tokenizer_config.json", "{\"pad_token\": \"[PAD]\"}");
    write_in(folder, "added_tokens.json", "{\"[TOOL]\": 263}");
    assert_ok(tx_tokenizer_open(folder, &pair));
    EXPECT_IDS(pair, "[PAD]![TOOL]", true, 264, 1, 263);
    tx_tokenizer_free(pair);
    write_in(folder, "tokenizer_config.json", "{\"add_bos_token\": true}");
    assert_refused(tx_tokenizer_open(folder, &pair), TX_UNSUPPORTED, "add_bos_token with vocab.json");
    remove_scratch(folder);
}

/* ---- tokens of tokenizer_config.json and its companions -------------------------------------------------- */

/* The ids are those of transformers 5.24's AutoTokenizer for the same files. "!" is 1, the first new id is 263. */
static void test_config_tokens(void **state)
{
    static const struct {
        const char *config, *map, *added, *text, *ids;
    } cases[] = {
        {"{\"added_tokens_decoder\": {\"263\": {\"content\": \"<tool>\", \"special\": true}}, "
         "\"additional_special_tokens\": [\"<extra>\"], \"pad_token\": \"<pad>\"}",
         NULL, NULL, "!<tool>!<extra>!<pad>", "1 263 1 265 1 264"},
        /* The numbers are an order, no ids. */
        {"{\"added_tokens_decoder\": {\"900\": {\"content\": \"<tool>\"}, \"7\": {\"content\": \"<extra>\"}}}", NULL,
         NULL, "<tool><extra>", "264 263"},
        /* Flags of tokens as in tokenizer.json: both remove the spaces. */
        {"{\"added_tokens_decoder\": {\"0\": {\"content\": \"<|endoftext|>\", \"special\": true, \"lstrip\": true, "
         "\"rstrip\": true}}}",
         NULL, NULL, "! <|endoftext|> !", "1 0 1"},
        /* Roles in their order, those of the model after them; an object has flags. */
        {"{\"image_token\": \"<img>\", \"mask_token\": {\"__type\": \"AddedToken\", \"content\": \"<mask>\", "
         "\"lstrip\": true}, "
         "\"bos_token\": \"<s>\", \"extra_special_tokens\": {\"tool_token\": \"<tool>\"}}",
         NULL, NULL, "<s>! <mask><img><tool>", "263 1 264 265 266"},
        /* special_tokens_map.json wins unless there is an added_tokens_decoder. */
        {"{\"eos_token\": \"<old>\"}", "{\"eos_token\": \"<new>\", \"additional_special_tokens\": [\"<x>\"]}", NULL,
         "<new><x>", "263 264"},
        {"{\"eos_token\": \"<old>\", \"added_tokens_decoder\": {}}", "{\"pad_token\": \"!\"}", NULL, "<old>!!",
         "263 1 1"},
        {NULL, "{\"pad_token\": \"<pad>\"}", NULL, "!<pad>", "1 263"},
        /* added_tokens.json, in the order of its ids; an id of tokenizer.json's tokens is not added. */
        {NULL, NULL, "{\"<b>\": 264, \"<a>\": 263, \"<c>\": 0}", "<a><b>", "263 264"},
        {"{\"added_tokens_decoder\": {}}", NULL, "{\"!!\": 263}", "!!", "1 1"},
        {"{\"pad_token\": null, \"unk_token\": \"\", \"additional_special_tokens\": []}", NULL, NULL, "!", "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *folder = small_folder(), found[256] = "";
        const char *const files[][2] = {{"tokenizer_config.json", cases[i].config},
                                        {"special_tokens_map.json", cases[i].map},
                                        {"added_tokens.json", cases[i].added}};
        for (size_t k = 0; k < 3; k++)
            write_in(folder, files[k][0], files[k][1] ? files[k][1] : "{}");
        tx_ids ids;
        tx_tokenizer *t = open_tokenizer(folder);
        encode(t, cases[i].text, strlen(cases[i].text), true, &ids);
        for (size_t k = 0; k < ids.count; k++)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s%d", k ? " " : "", (int)ids.id[k]);
        if (strcmp(found, cases[i].ids) != 0)
            fail_msg("case %zu: %s, transformers has %s", i, found, cases[i].ids);
        free(ids.id);
        tx_tokenizer_free(t);
        remove_scratch(folder);
    }
}

/* transformers' classes follow tokenizer_config.json if tokenizer.json contradicts it; PreTrainedTokenizerFast does
 * not. Words are 1 hello, 2 Hello, 3 cafe, 4 caf\u00e9. */
static void test_config_contradicts(void **state)
{
    static const char bert[] = "{\"added_tokens\": [], \"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": "
                               "true, \"handle_chinese_chars\": true, "
                               "\"strip_accents\": null, \"lowercase\": true}, \"pre_tokenizer\": {\"type\": "
                               "\"BertPreTokenizer\"}, \"decoder\": {\"type\": "
                               "\"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}, \"model\": {\"type\": "
                               "\"WordPiece\", \"unk_token\": \"[UNK]\", "
                               "\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100, \"vocab\": "
                               "{\"[UNK]\": 0, \"hello\": 1, "
                               "\"Hello\": 2, \"cafe\": 3, \"caf\\u00e9\": 4}}}";
    static const struct {
        const char *config;
        int32_t ids[2];
    } cases[] = {
        {"{}", {1, 3}},
        {"{\"tokenizer_class\": \"BertTokenizer\", \"do_lower_case\": false}", {2, 4}},
        {"{\"do_lower_case\": false}", {2, 4}},
        {"{\"tokenizer_class\": \"BertTokenizer\", \"strip_accents\": false}", {1, 4}},
        {"{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"do_lower_case\": false}", {1, 3}},
    };
    char *folder = make_scratch();
    write_in(folder, "tokenizer.json", bert);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_in(folder, "tokenizer_config.json", cases[i].config);
        tx_tokenizer *t = open_tokenizer(folder);
        EXPECT_IDS(t, "Hello caf\xC3\xA9", true, cases[i].ids[0], cases[i].ids[1]);
        tx_tokenizer_free(t);
    }
    remove_scratch(folder);
    folder = small_folder();
    write_in(folder, "tokenizer_config.json", "{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_prefix_space\": true}");
    tx_tokenizer *t = open_tokenizer(folder);
    EXPECT_IDS(t, "the!", true, tx_tokenizer_find(t, " the"), 1);
    tx_tokenizer_free(t);
    remove_scratch(folder);
}

/* ---- added tokens ------------------------------------------------------------------------------------ */

/* An added token, its flags in the order of the file. */
#define ADDED(id, content, single_word, lstrip, rstrip, normalized, special)                           \
    "{\"id\":" #id ",\"content\":\"" content "\",\"single_word\":" #single_word ",\"lstrip\":" #lstrip \
    ",\"rstrip\":" #rstrip ",\"normalized\":" #normalized ",\"special\":" #special "}"

static void test_added(void **state)
{
    static const char *const tokens[] = {
        ADDED(263, "<l>", false, true, false, false, true),      ADDED(264, "<r>", false, false, true, false, false),
        ADDED(265, "\\u00e9t", true, false, false, true, false), ADDED(266, "<r><l>", false, false, false, false, true),
        ADDED(267, "h<r>", false, false, false, false, true),    ADDED(268, "\\n", false, true, true, false, false),
    };
    char *folder = small_folder();
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        change(folder, "added_tokens.", tokens[i]);
    tx_tokenizer *t = open_tokenizer(folder);
    int32_t space = tx_tokenizer_find(t, " "), h = tx_tokenizer_find(t, "h"), less = tx_tokenizer_find(t, "<"),
            l = tx_tokenizer_find(t, "l"), greater = tx_tokenizer_find(t, ">"), r = tx_tokenizer_find(t, "r");
    EXPECT_IDS(t, "h \t<l> h", true, h, 263, space, h);
    EXPECT_IDS(t, "h <r> \xC2\xA0h", true, h, space, 264, h);
    EXPECT_IDS(t, "<r><l>", true, 266); /* the longest */
    EXPECT_IDS(t, "<r> <l>", true, 264, 263);
    EXPECT_IDS(t, "\xC3\xA9t h", true, 265, space, h);
    EXPECT_IDS(t, "\xC3\xA9t!", true, 265, 1);
    /* Special ones can be text like any other; the others stay tokens. What hides a token hides it then, too. */
    EXPECT_IDS(t, "<l><r>", false, less, l, greater, 264);
    EXPECT_IDS(t, "<r><l>", false, less, r, greater, less, l, greater);
    EXPECT_IDS(t, "h<r>", false, h, less, r, greater);
    /* The first of some line ends takes the others, which are then none. */
    EXPECT_IDS(t, "h \n\n\n h", true, h, 268, h);
    char *back;
    size_t size;
    assert_ok(tx_tokenizer_decode(t, (int32_t[]){265, 263, 1}, 3, true, &back, &size));
    assert_string_equal(back, "\xC3\xA9t!");
    free(back);
    tx_ids ids;
    encode(t, "h\xC3\xA9t", 4, true, &ids); /* no single word */
    assert_int_equal(ids.count, 4);
    free(ids.id);
    tx_tokenizer_free(t);
    change(folder, "added_tokens.", tokens[0]);
    assert_refused(tx_tokenizer_open(folder, &t), TX_FORMAT, "<l>: it is added twice");
    remove_scratch(folder);
}

/* As many as models reserve for later. */
static void test_many_added(void **state)
{
    enum { MANY = 200, FIRST = 263 };
    char *folder = small_folder(), *path = TX_PATH(folder, "tokenizer.json"), content[64], text[MANY * 16] = "";
    tx_json *json = read_in(folder, "tokenizer.json"), *list, *token;
    assert_ok(tx_json_get(json, "added_tokens", TX_JSON_ARRAY, &list));
    for (int i = 0; i < MANY; i++) {
        char line[256];
        snprintf(content, sizeof content, "<reserved %d>", i);
        strcat(text, content);
        snprintf(line, sizeof line,
                 "{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                 "\"normalized\":false,\"special\":true}",
                 FIRST + i, content);
        assert_ok(tx_json_parse(line, strlen(line), "token", &token));
        assert_ok(tx_json_append(list, token));
    }
    assert_ok(tx_json_write(path, json, TX_JSON_LINE));
    tx_json_free(json);
    tx_ids ids;
    tx_tokenizer *t = open_tokenizer(folder);
    assert_int_equal(tx_tokenizer_find(t, "<reserved 7>"), FIRST + 7);
    encode(t, text, strlen(text), true, &ids);
    assert_int_equal(ids.count, MANY);
    for (int32_t i = 0; i < MANY; i++)
        assert_int_equal(ids.id[i], FIRST + i);
    free(ids.id);
    tx_tokenizer_free(t);
    remove_scratch(folder);
}

/* ---- writing ----------------------------------------------------------------------------------------- */

static void test_save_copies(void **state)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"};
    char *from = small_folder(), *to = make_scratch();
    write_in(from, files[2], "{ }");
    tx_tokenizer *tokenizer = open_tokenizer(from);
    char *wanted[3], *text;
    size_t size[3], written;
    for (int i = 0; i < 3; i++)
        assert_ok(tx_file_read(TX_PATH(from, files[i]), LIMIT, &wanted[i], &size[i]));
    remove_scratch(from); /* the copies do not need it */
    assert_ok(tx_tokenizer_save(tokenizer, to, 5));
    assert_int_equal(count_entries(to), 3);
    for (int i = 0; i < 3; i++) {
        assert_ok(tx_file_read(TX_PATH(to, files[i]), LIMIT, &text, &written));
        assert_int_equal(written, size[i]);
        assert_memory_equal(text, wanted[i], written);
        free(wanted[i]);
        free(text);
    }
    tx_tokenizer_free(tokenizer);
    remove_scratch(to);
}

static void test_bytes(void **state)
{
    char bytes[256], *folder = make_scratch(), *text;
    size_t size;
    tx_tokenizer *made, *read;
    tx_ids ids;
    int64_t most;
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    assert_ok(tx_tokenizer_bytes(&made));
    assert_int_equal(tx_tokenizer_size(made), TX_BYTES_VOCAB);
    assert_int_equal(tx_tokenizer_end(made), TX_BYTES_END);
    encode(made, bytes, 256, true, &ids);
    assert_int_equal(ids.count, 256);
    for (int i = 0; i < 256; i++)
        assert_int_equal(ids.id[i], i);
    assert_ok(tx_tokenizer_decode(made, ids.id, 256, false, &text, &size));
    assert_int_equal(size, 256);
    assert_memory_equal(text, bytes, 256);
    free(text);
    free(ids.id);
    EXPECT_IDS(made, "a<|endoftext|><|end", true, 'a', TX_BYTES_END, '<', '|', 'e', 'n', 'd');
    EXPECT_IDS(made, "<|", false, '<', '|');
    assert_refused(tx_tokenizer_decode(made, (int32_t[]){1, 257}, 2, true, &text, &size), TX_INVALID,
                   "id number 2: id 257");

    assert_ok(tx_tokenizer_save(made, folder, 128));
    assert_int_equal(count_entries(folder), 2);
    tx_json *config = read_in(folder, "tokenizer_config.json");
    assert_ok(tx_json_get_int(config, "model_max_length", 0, INT64_MAX, &most));
    assert_int_equal(most, 128);
    tx_json_free(config);
    assert_ok(tx_tokenizer_open(folder, &read));
    assert_string_equal(tx_tokenizer_digest(made), tx_tokenizer_digest(read));
    tx_tokenizer_free(made);
    tx_tokenizer_free(read);
    remove_scratch(folder);
}

/* The byte vocabulary as a file, and a Llama's: BPE of characters whose bytes have tokens. */
static void test_files_of_others(void **state)
{
    static const char *const of_bytes[][2] = {{"models/tiny_gpt2_bytes/tokenizer.json", "tokenizer.json"},
                                              {NULL, NULL}},
                             *const of_llama[][2] = {{"models/stories260K/tokenizer.json", "tokenizer.json"},
                                                     {NULL, NULL}};
    static const int32_t ids[] = {403, 407, 261, 378, 432, 410, 485, 443};
    tx_tokenizer *bytes, *tokenizer;
    char *folder = folder_of(of_bytes), *back;
    size_t size;
    assert_ok(tx_tokenizer_bytes(&bytes));
    assert_ok(tx_tokenizer_open(folder, &tokenizer));
    assert_string_equal(tx_tokenizer_digest(tokenizer), tx_tokenizer_digest(bytes));
    tx_tokenizer_free(bytes);
    tx_tokenizer_free(tokenizer);
    remove_scratch(folder);
    folder = folder_of(of_llama);
    assert_ok(tx_tokenizer_open(folder, &tokenizer));
    assert_int_equal(tx_tokenizer_size(tokenizer), 512);
    EXPECT_IDS(tokenizer, "Once upon a time, \xC3\xA9!", true, 403, 407, 261, 378, 432, 410, 485, 443);
    assert_ok(tx_tokenizer_decode(tokenizer, ids, 8, false, &back, &size));
    assert_string_equal(back, "Once upon a time, \xC3\xA9!");
    free(back);
    tx_tokenizer_free(tokenizer);
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_equal_files),
        cmocka_unit_test(test_splitters),
        cmocka_unit_test(test_holes),
        cmocka_unit_test(test_pair),
        cmocka_unit_test(test_config_tokens),
        cmocka_unit_test(test_config_contradicts),
        cmocka_unit_test(test_added),
        cmocka_unit_test(test_save_copies),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_files_of_others),
        cmocka_unit_test(test_many_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
