/* SPDX-License-Identifier: Apache-2.0
 *
 * Masked language modelling: rows of blocks and of lines, tokens that are never masked, the shares of masked ones, and
 * random numbers that depend only on seed, epoch and sample. */
#include "models/arch/find.h"
#include "models/task/tasks.h"
#include "tests/scratch.h"

enum { BLOCK = 12, CLS = 1, SEP, MASK, FIRST, WORDS = FIRST + 26 };
enum { INPUT_IDS, LENGTHS, LABELS };

typedef struct bench {
    char *folder;
    tx_config *config;
    tx_tokenizer *tokenizer;
    tx_samples samples;
} bench;

/* Letters are words, around which a text has [CLS] and [SEP]. */
static tx_tokenizer *open_tokenizer(const char *folder, bool masks)
{
    static const char begin[] =
        "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": {\"type\": "
        "\"BertPreTokenizer\"}, \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
        "{\"id\": \"[CLS]\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": "
        "{\"id\": "
        "\"[SEP]\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": "
        "{\"id\": "
        "\"B\", \"type_id\": 1}}], \"special_tokens\": {\"[CLS]\": {\"id\": \"[CLS]\", \"ids\": [1], \"tokens\": "
        "[\"[CLS]\"]}, \"[SEP]\": {\"id\": \"[SEP]\", \"ids\": [2], \"tokens\": [\"[SEP]\"]}}}, \"decoder\": "
        "{\"type\": "
        "\"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}, \"model\": {\"type\": \"WordPiece\", \"unk_token\": "
        "\"[UNK]\", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100, \"vocab\": {\"[UNK]\": "
        "0, "
        "\"[CLS]\": 1, \"[SEP]\": 2, \"";
    char text[4096], *path = tx_path_join(folder, "tokenizer.json");
    size_t used = (size_t)snprintf(text, sizeof text, "%s%s\": 3", begin, masks ? "[MASK]" : "[NONE]");
    tx_tokenizer *tokenizer;
    for (int i = 0; i < 26; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, ", \"%c\": %d", 'a' + i, FIRST + i);
    used += (size_t)snprintf(text + used, sizeof text - used, "}}}");
    assert_true(used < sizeof text);
    assert_ok(tx_file_write(path, text, used));
    assert_ok(tx_tokenizer_open(path, &tokenizer));
    free(path);
    return tokenizer;
}

static int set_up(void **state)
{
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->folder = make_scratch();
    char *path = tx_path_join(b->folder, "config.json");
    static const char json[] =
        "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], \"vocab_size\": 30}";
    assert_ok(tx_file_write(path, json, strlen(json)));
    assert_ok(tx_config_read(path, &b->config));
    b->tokenizer = open_tokenizer(b->folder, true);
    free(path);
    *state = b;
    return 0;
}

static void shut(bench *b)
{
    tx_samples_close(&b->samples);
}

static int tear_down(void **state)
{
    bench *b = *state;
    shut(b);
    tx_tokenizer_free(b->tokenizer);
    tx_config_free(b->config);
    remove_scratch(b->folder);
    free(b);
    return 0;
}

static tx_status open_text(bench *b, const char *text, bool by_line, double share, uint64_t seed)
{
    char *path = tx_path_join(b->folder, "text.txt");
    const tx_job_settings set = {.mlm_probability = share, .line_by_line = by_line};
    const tx_data_options options = {.set = &set,
                                     .config = b->config,
                                     .tokenizer = b->tokenizer,
                                     .block = BLOCK,
                                     .to = 100.0,
                                     .threads = 1,
                                     .seed = seed};
    shut(b);
    assert_ok(tx_file_write(path, text, strlen(text)));
    const tx_status status = tx_samples_open(&tx_masked_lm, path, &options, &b->samples);
    free(path);
    return status;
}

static void read_row(const bench *b, int64_t number, uint64_t epoch, int32_t room[2 * BLOCK + 1], tx_batch *row)
{
    *row = tx_batch_of(&tx_masked_lm, BLOCK, 1, room);
    row->epoch = epoch;
    assert_ok(tx_masked_lm.row(&b->samples, number, row));
}

/* Checks a row's tokens before masking. */
static void expect_row(const bench *b, int64_t number, const int32_t *ids, int32_t length)
{
    int32_t room[2 * BLOCK + 1], hidden = 0;
    tx_batch row;
    read_row(b, number, 3, room, &row);
    const int32_t *has = row.field[INPUT_IDS], *labels = row.field[LABELS];
    assert_int_equal(*(int32_t *)row.field[LENGTHS], length);
    for (int t = 0; t < BLOCK; t++) {
        const int32_t id = t < length ? ids[t] : 0;
        assert_int_equal(labels[t] == TX_IGNORE_LABEL ? has[t] : labels[t], id);
        assert_true(labels[t] == TX_IGNORE_LABEL || (t < length && id != CLS && id != SEP));
        hidden += labels[t] != TX_IGNORE_LABEL;
    }
    assert_true(hidden > 0);
}

/* Each line is a row, truncated before its last [SEP] token. Lines without a word are dropped. */
static void lines_are_rows(void **state)
{
    bench *b = *state;
    static const int32_t a[] = {CLS, FIRST, FIRST + 1, SEP}, c[] = {CLS, FIRST + 2, SEP};
    int32_t cut[BLOCK] = {CLS};
    for (int t = 1; t < BLOCK; t++)
        cut[t] = t + 1 < BLOCK ? FIRST + t - 1 : SEP;
    assert_ok(open_text(b, "a b\n\n \nc\na b c d e f g h i j k l m\n", true, 0.15, 1));
    assert_int_equal(b->samples.count, 3);
    expect_row(b, 0, a, 4);
    expect_row(b, 1, c, 3);
    expect_row(b, 2, cut, BLOCK);
    assert_refused(open_text(b, "\n\n", true, 0.15, 1), TX_FORMAT, "no tokens");
}

static void blocks_are_rows(void **state)
{
    bench *b = *state;
    static const int32_t wanted[BLOCK] = {CLS, FIRST,     FIRST + 1, SEP,       CLS,       SEP,
                                          CLS, FIRST + 2, FIRST + 3, FIRST + 4, FIRST + 5, SEP};
    assert_ok(open_text(b, "a b\n\nc d e f\ng\n", false, 0.15, 1));
    assert_int_equal(b->samples.count, 1);
    expect_row(b, 0, wanted, BLOCK);
}

static bool near(int64_t part, int64_t of, double share)
{
    return fabs((double)part / (double)of - share) < 4.0 * sqrt(share * (1.0 - share) / (double)of);
}

/* With many words the shares are those of BERT, within four standard deviations. */
static void test_shares(void **state)
{
    bench *b = *state;
    enum { LINES = 200, EPOCHS = 50, IN_LINE = BLOCK - 2 };
    char text[LINES * 2 * IN_LINE + 1];
    int64_t hidden = 0, masked = 0, kept = 0, counts[WORDS] = {0};
    for (int i = 0; i < LINES * IN_LINE; i++) {
        text[2 * i] = (char)('a' + i % 26);
        text[2 * i + 1] = i % IN_LINE == IN_LINE - 1 ? '\n' : ' ';
    }
    text[LINES * 2 * IN_LINE] = '\0';
    assert_ok(open_text(b, text, true, 0.4, 5));
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (int64_t i = 0; i < LINES; i++) {
            int32_t room[2 * BLOCK + 1];
            tx_batch row;
            read_row(b, i, epoch, room, &row);
            const int32_t *ids = row.field[INPUT_IDS], *labels = row.field[LABELS];
            for (int t = 0; t < BLOCK; t++) {
                if (labels[t] == TX_IGNORE_LABEL)
                    continue;
                hidden++;
                masked += ids[t] == MASK;
                kept += ids[t] == labels[t];
                counts[ids[t]] += ids[t] != labels[t];
            }
        }
    /* A row of 10 words has none of 0.4 with probability 0.006, and then one. */
    assert_true(near(hidden, (int64_t)LINES * EPOCHS * IN_LINE, 0.4 + 0.1 * pow(0.6, IN_LINE)));
    assert_true(near(masked, hidden, 0.8 + 0.1 / WORDS));
    assert_true(near(kept, hidden, 0.1 + 0.1 / WORDS));
    for (int id = 0; id < WORDS; id++)
        assert_true(id == MASK || counts[id] > 0); /* any token of the tokenizer, special ones too */
}

static void test_keys(void **state)
{
    bench *b = *state;
    int32_t one[2 * BLOCK + 1], other[2 * BLOCK + 1];
    char digest[TX_DIGEST_TEXT];
    tx_batch row;
    static const char text[] = "a b c d e f g h i j\nj i h g f e d c b a\n";
    assert_ok(open_text(b, text, true, 0.5, 7));
    snprintf(digest, sizeof digest, "%s", b->samples.digest);
    read_row(b, 1, 2, one, &row);
    read_row(b, 0, 2, other, &row);
    read_row(b, 1, 2, other, &row);
    assert_memory_equal(one, other, sizeof one);
    read_row(b, 1, 3, other, &row);
    assert_memory_not_equal(one, other, sizeof one);
    assert_ok(open_text(b, text, true, 0.5, 8));
    read_row(b, 1, 2, other, &row);
    assert_memory_not_equal(one, other, sizeof one);
    assert_string_not_equal(digest, b->samples.digest);
    assert_ok(open_text(b, text, true, 0.5, 7));
    assert_string_equal(digest, b->samples.digest);
    read_row(b, 1, 2, other, &row);
    assert_memory_equal(one, other, sizeof one);
}

static void test_refusals(void **state)
{
    bench *b = *state;
    tx_tokenizer_free(b->tokenizer);
    b->tokenizer = open_tokenizer(b->folder, false);
    assert_refused(open_text(b, "a b\n", true, 0.15, 1), TX_INVALID, "no mask token");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_are_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(blocks_are_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shares, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
