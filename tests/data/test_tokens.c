/* SPDX-License-Identifier: Apache-2.0
 *
 * Words with labels: rows of a batch, truncation, faults of files, and metrics against values of seqeval 1.2.2. */
#include "models/arch/find.h"
#include "models/arch/labels.h"
#include "models/task/tokens.h"
#include "tests/scratch.h"

enum { BLOCK = 8 };

/* Bytes are tokens here. Each word begins with a space, and no special tokens are added. */
typedef struct bench {
    char *folder;
    tx_config *config;
    tx_tokenizer *tokenizer;
} bench;

static bench open_bench(void)
{
    bench b = {.folder = make_scratch()};
    static const char text[] = "{\"model_type\": \"bert\", \"architectures\": [\"BertModel\"]}";
    char *path = tx_path_join(b.folder, "config.json");
    assert_ok(tx_file_write(path, text, strlen(text)));
    assert_ok(tx_config_read(path, &b.config));
    assert_ok(tx_config_set_head(b.config, TX_HEAD_TOKEN_CLASSIFICATION));
    assert_ok(tx_tokenizer_bytes(&b.tokenizer));
    free(path);
    return b;
}

static void close_bench(bench *b)
{
    tx_tokenizer_free(b->tokenizer);
    tx_config_free(b->config);
    remove_scratch(b->folder);
}

static tx_status open_text(bench *b, const char *text, int64_t skip_bad, tx_data_split split, tx_samples *samples)
{
    char *path = tx_path_join(b->folder, "a.jsonl");
    const tx_job_settings set = {.skip_bad = skip_bad};
    const tx_data_options options = {
        .set = &set, .split = split, .config = b->config, .tokenizer = b->tokenizer, .block = BLOCK, .to = 100.0};
    assert_ok(tx_file_write(path, text, strlen(text)));
    tx_status status = tx_samples_open(&tx_token_classification, path, &options, samples);
    free(path);
    return status;
}

static void expect_row(const tx_samples *samples, int64_t number, int32_t length, const int32_t *labels)
{
    int32_t values[4 * BLOCK];
    const tx_batch row = tx_batch_of(samples->task, BLOCK, 1, values);
    assert_ok(samples->task->row(samples, number, &row));
    assert_int_equal(*(int32_t *)row.field[TX_TOKENS_LENGTHS], length);
    for (int i = 0; i < BLOCK; i++)
        assert_int_equal(((int32_t *)row.field[TX_TOKENS_LABELS])[i], labels[i]);
}

/* The first token of each word has its label. The third word of the second row is cut, the fourth is lost. */
static void test_rows(void **state)
{
    static const int32_t first[BLOCK] = {1, -100, 0, -100, -100, -100, -100, -100};
    static const int32_t second[BLOCK] = {1, -100, -100, -100, 2, -100, 1, -100};
    bench b = open_bench();
    tx_samples samples;
    assert_ok(
        open_text(&b,
                  "{\"tokens\": [\"ab\", \"c\"], \"ner_tags\": [\"I-X\", \"B-X\"]}\n"
                  "{\"tokens\": [\"abcd\", \" c\", \"def\", \"g\"], \"ner_tags\": [\"I-X\", \"O\", \"I-X\", \"O\"]}\n",
                  0, TX_DATA_TRAIN, &samples));
    assert_int_equal(samples.count, 2);
    assert_int_equal(b.config->labels, 3);
    assert_string_equal(tx_label_name(b.config, 0), "B-X");
    expect_row(&samples, 0, 3, first);
    expect_row(&samples, 1, 8, second);
    tx_samples_close(&samples);
    close_bench(&b);
}

static void test_faults(void **state)
{
    static const char good[] = "{\"tokens\": [\"a\", \"b\"], \"tags\": [\"O\", \"B\"]}\n";
    static const char *const bad[][2] = {
        {"{\"tokens\": [\"a\"], \"tags\": [\"O\", \"B\"]}\n", "row 2: the row has 1 words and 2 labels"},
        {"{\"tokens\": [], \"tags\": []}\n", "row 2: the row has no words"},
        {"{\"tokens\": \"a b\", \"tags\": [\"O\", \"B\"]}\n", "row 2: tokens: \"a b\" is not a list"},
        {"{\"tokens\": [\"a\"], \"tags\": \"O\"}\n", "row 2: label: \"O\" is not a list"},
        {"{\"tokens\": [\"a\"], \"tags\": [[1]]}\n", "row 2: label"},
        {"{\"tokens\": [\"a\"], \"tags\": [\"\"]}\n", "row 2: label is empty"},
        {"{\"tokens\": [1], \"tags\": [\"O\"]}\n", "row 2: word"},
        {"{\"tokens\": [\"a\"], \"tags\": [1.5]}\n", "row 2: label"},
        {"{\"tokens\": [\"\xC2\xA0\"], \"tags\": [true]}\n", "row 2: label"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[256];
        bench b = open_bench();
        tx_samples samples;
        snprintf(text, sizeof text, "%s%s%s", good, bad[i][0], good);
        assert_refused(open_text(&b, text, 0, TX_DATA_TRAIN, &samples), TX_FORMAT, bad[i][1]);
        assert_ok(open_text(&b, text, 1, TX_DATA_TRAIN, &samples));
        assert_int_equal(samples.count, 2);
        tx_samples_close(&samples);
        close_bench(&b);
    }
    bench b = open_bench();
    tx_samples samples;
    assert_refused(open_text(&b, "{\"sentence\": [\"a\"]}\n", 0, TX_DATA_TRAIN, &samples), TX_FORMAT, "tokens");
    assert_refused(open_text(&b, "{\"tokens\": [\"a\"]}\n", 0, TX_DATA_TRAIN, &samples), TX_FORMAT, "ner_tags");
    assert_refused(open_text(&b, "{\"tokens\": [\"a\"], \"tags\": [\"O\"]}\n", 0, TX_DATA_TRAIN, &samples), TX_FORMAT,
                   "different labels");
    close_bench(&b);
}

/* Sequences that break the rules of BIOES. precision_score and others of seqeval gave the numbers. */
static void test_metrics(void **state)
{
    static const char *const names[] = {"O", "B-A", "I-A", "E-A", "S-B", "I-B", "X", "."};
    static const float guess[2][BLOCK] = {{1, 5}, {1, 2, 5, 4}};
    static const double wanted[] = {0.6, 1.0, 0.75, 4.0 / 6.0};
    bench b = open_bench();
    tx_samples samples;
    double sums[TX_SUMS_MAX] = {0};
    assert_ok(tx_labels_set(b.config, TX_PROBLEM_CLASSES, names, 8));
    b.config->new_head = false;
    assert_ok(open_text(&b,
                        "{\"words\": [\"a\", \"b\"], \"tags\": [1, 6]}\n"
                        "{\"words\": [\"a\", \"b\", \"c\", \"d\"], \"tags\": [1, 2, 0, 4]}\n",
                        0, TX_DATA_VALIDATION, &samples));
    samples.task->measure(&samples, guess[0], BLOCK, sums);
    for (int i = 0; i < 4; i++) {
        double value;
        assert_true(tx_metric_measure(&samples.task->metrics[1 + i], sums, &value));
        print_message("%s %.17g\n", samples.task->metrics[1 + i].name, value);
        assert_true(fabs(value - wanted[i]) < 1e-15);
    }
    tx_samples_close(&samples);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_faults),
                                       cmocka_unit_test(test_metrics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
