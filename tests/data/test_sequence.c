/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts with labels: cutting, labels, rows of a batch, and metrics against values of
 * NumPy's corrcoef, of ranks for Spearman's. */
#include "models/arch/find.h"
#include "models/arch/labels.h"
#include "models/task/sequence.h"
#include "tests/scratch.h"

#include <unistd.h>

static char *write_file(const char *folder, const char *name, const char *text)
{
    char *path = tx_path_join(folder, name);
    assert_ok(tx_file_write(path, text, strlen(text)));
    return path;
}

/* ---- Samples ------------------------------------------------------------------------------------------- */

/* Bytes are tokens here, and no special ones are added. */
typedef struct bench {
    char *folder;
    tx_config *config;
    tx_tokenizer *tokenizer;
    int64_t skip_bad;
    const char *cache;
    char told[512];
} bench;

static void listen(void *context, const char *message)
{
    bench *b = context;
    snprintf(b->told, sizeof b->told, "%s", message);
}

static bench open_bench(void)
{
    bench b = {.folder = make_scratch()};
    char *path = write_file(b.folder, "config.json",
                            "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"]}");
    assert_ok(tx_config_read(path, &b.config));
    assert_int_equal(b.config->architecture->head, TX_HEAD_SEQUENCE_CLASSIFICATION);
    assert_int_equal(b.config->labels, 2);
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

static double value_of(const tx_metric *metric, const double sums[TX_SUMS_MAX])
{
    double value;
    assert_true(tx_metric_measure(metric, sums, &value));
    return value;
}

static tx_status open_text(bench *b, const tx_sequence_task *task, const char *name, const char *text,
                           tx_data_split split, tx_samples *samples)
{
    char *path = write_file(b->folder, name, text);
    const tx_job_settings set = {.skip_bad = b->skip_bad};
    const tx_data_options options = {.set = &set,
                                     .split = split,
                                     .config = b->config,
                                     .tokenizer = b->tokenizer,
                                     .block = 7,
                                     .to = 100.0,
                                     .cache = b->cache,
                                     .report = {.warn = listen, .context = b}};
    b->told[0] = '\0';
    tx_status status = tx_samples_open(&task->task, path, &options, samples);
    free(path);
    return status;
}

static const tx_sequence_task *find_task(const char *name)
{
    const tx_sequence_task *t = tx_glue;
    while (t->task.name && strcmp(t->task.name, name) != 0)
        t++;
    assert_non_null(t->task.name);
    return t;
}

/* The longer text loses first, then both; as tokenizers' longest_first. */
static void test_rows(void **state)
{
    static const struct {
        int32_t ids[7], types[7], length, label;
    } wanted[] = {
        {{'a', 'b', 'c', 0}, {0, 0, 1, 0}, 3, 1},
        {{'a', 'b', '1', '2', '3', '4', '5'}, {0, 0, 1, 1, 1, 1, 1}, 7, 0},
        {{'a', 'b', 'c', 'd', 'e', '1', '2'}, {0, 0, 0, 0, 0, 1, 1}, 7, 1},
        {{'a', 'b', 'c', '1', '2', '3', '4'}, {0, 0, 0, 1, 1, 1, 1}, 7, 0},
        {{'a', 'b', 'c', 'd', '1', '2', '3'}, {0, 0, 0, 0, 1, 1, 1}, 7, 0},
    };
    bench b = open_bench();
    tx_samples samples;
    int32_t memory[5][7 + 7 + 2 + 7];
    assert_ok(open_text(&b, find_task("mrpc"), "a.tsv",
                        "sentence1\tlabel\tsentence2\nab\tequivalent\tc\nab\t0\t123456789\nabcdefgh\t1\t12\n"
                        "abcd\tnot_equivalent\t12345\nabcde\t0\t1234\n",
                        TX_DATA_TRAIN, &samples));
    assert_int_equal(samples.count, 5);
    assert_string_equal(tx_label_name(b.config, 1), "equivalent");
    for (int i = 0; i < 5; i++) {
        const tx_batch row = tx_batch_of(samples.task, 7, 1, memory[i]);
        assert_ok(samples.task->row(&samples, i, &row));
        assert_memory_equal(row.field[TX_SEQUENCE_INPUT_IDS], wanted[i].ids, sizeof wanted[i].ids);
        assert_memory_equal(row.field[TX_SEQUENCE_TOKEN_TYPE_IDS], wanted[i].types, sizeof wanted[i].types);
        assert_int_equal(*(int32_t *)row.field[TX_SEQUENCE_LENGTHS], wanted[i].length);
        assert_int_equal(*(int32_t *)row.field[TX_SEQUENCE_LABELS], wanted[i].label);
        assert_int_equal(tx_batch_longest(samples.task, &row), wanted[i].length);
    }
    tx_samples_close(&samples);
    assert_ok(open_text(&b, find_task("mrpc"), "b.tsv", "sentence1\tsentence2\nab\tc\n", TX_DATA_TEST, &samples));
    assert_int_equal(((const tx_sequence_data *)samples.data)->label[0], TX_IGNORE_LABEL);
    tx_samples_close(&samples);
    close_bench(&b);
}

static void test_labels(void **state)
{
    bench b = open_bench();
    tx_samples samples;
    const tx_sequence_task *any = &tx_sequence_classification;
    assert_ok(open_text(&b, any, "a.csv", "sentence,label\na,10\nb,9\nc,-1\nd,9\n", TX_DATA_TRAIN, &samples));
    const tx_sequence_data *d = samples.data;
    assert_int_equal(b.config->labels, 2); /* 9 and 10: -1 is no label */
    assert_int_equal(samples.count, 3);
    assert_true(d->label[0] == 1 && d->label[1] == 0 && d->label[2] == 0);
    assert_non_null(strstr(b.told, "1 row is left out"));
    assert_ptr_equal(samples.task, &any->task);
    tx_samples_close(&samples);
    assert_ok(open_text(&b, any, "b.csv", "sentence,label\na,9\n", TX_DATA_VALIDATION, &samples));
    assert_int_equal(((const tx_sequence_data *)samples.data)->label[0], 0);
    tx_samples_close(&samples);
    assert_refused(open_text(&b, any, "c.csv", "sentence,label\na,12\n", TX_DATA_VALIDATION, &samples), TX_FORMAT,
                   "row 1: label: \"12\" is not one of the model's 2");
    assert_refused(open_text(&b, find_task("mnli"), "d.csv", "sentence,label\na,0\n", TX_DATA_VALIDATION, &samples),
                   TX_INVALID, "mnli has 3 labels, the model 2");
    assert_refused(open_text(&b, any, "e.csv", "phrase,label\na,0\n", TX_DATA_TRAIN, &samples), TX_FORMAT,
                   "no column sentence, or sentence1 and sentence2, or text; the columns are phrase, label: name");
    assert_refused(open_text(&b, any, "f.csv", "sentence\na\n", TX_DATA_TRAIN, &samples), TX_FORMAT,
                   "no column label; the columns are sentence");
    assert_refused(open_text(&b, any, "g.csv", "sentence,label\n,0\nb,1\n", TX_DATA_TRAIN, &samples), TX_FORMAT,
                   "row 1: the text has no tokens");
    assert_ok(open_text(&b, any, "h.csv", "sentence,label\na,1\nb,0.25\n", TX_DATA_TRAIN, &samples));
    assert_int_equal(b.config->labels, 1);
    assert_ptr_equal(samples.task, &tx_sequence_regression.task);
    assert_true(((const tx_sequence_data *)samples.data)->target[1] == 0.25f);
    tx_samples_close(&samples);
    close_bench(&b);
}

/* A label is a name or a number: any other is refused by its row, in files of all forms, or left out. */
static void test_bad_labels(void **state)
{
    static const struct {
        const char *name, *text, *words;
    } bad[] = {
        {"a.csv", "sentence,label\na,0\nb,\nc,1\n", "a.csv: row 2: label is empty"},
        {"a.csv", "sentence,label\na,0\nb,\" \"\nc,1\n", "a.csv: row 2: label is empty"},
        {"a.tsv", "sentence\tlabel\na\t0.5\nb\t\nc\t1.5\n", "a.tsv: row 2: label is empty"},
        {"a.tsv", "sentence\tlabel\na\t0.5\nb\t?\nc\t1.5\n", "a.tsv: row 2: label: \"?\" is not a number"},
        {"a.csv", "sentence,label\na,0\nb,nan\nc,1\n", "a.csv: row 2: label: \"nan\""},
        {"a.jsonl",
         "{\"sentence\": \"a\", \"label\": 0}\n\n{\"sentence\": \"b\", \"label\": null}\n{\"sentence\": \"c\", "
         "\"label\": 1}",
         "a.jsonl: row 2: label is empty"},
        {"a.json",
         "{\"sentence\": \"a\", \"label\": \"x\"}\n{\"sentence\": \"b\", \"label\": \"\"}\n{\"sentence\": \"c\", "
         "\"label\": \"y\"}",
         "a.json: row 2: label is empty"},
        {"a.jsonl",
         "{\"sentence\": \"a\", \"label\": 0}\n{\"sentence\": \"b\", \"label\": [1, 0]}\n{\"sentence\": \"c\", "
         "\"label\": 1}",
         "a.jsonl: row 2: label: [1, 0] is a list"},
        {"a.csv", "sentence,label\na,x\nb,\"['x', 'y']\"\nc,y\n", "a.csv: row 2: label: ['x', 'y'] is a list"},
        {"a.jsonl",
         "{\"sentence\": \"a\", \"label\": 0}\n{\"sentence\": \"b\", \"label\": {\"x\": 1}}\n{\"sentence\": \"c\", "
         "\"label\": 1}",
         "a.jsonl: row 2: label: {\"x\": 1} is an object"},
        {"a.csv", "sentence,label\na,0\nb\nc,1\n", "a.csv: row 2: 1 fields"},
        {"a.jsonl", "{\"sentence\": \"a\", \"label\": 0}\n{\"sentence\": \"b\"}\n{\"sentence\": \"c\", \"label\": 1}",
         "a.jsonl: row 2: label is missing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bench b = open_bench();
        tx_samples samples;
        const tx_sequence_task *any = &tx_sequence_classification;
        assert_refused(open_text(&b, any, bad[i].name, bad[i].text, TX_DATA_TRAIN, &samples), TX_FORMAT, bad[i].words);
        b.skip_bad = 1;
        assert_ok(open_text(&b, any, bad[i].name, bad[i].text, TX_DATA_TRAIN, &samples));
        assert_int_equal(samples.count, 2);
        assert_int_equal(b.config->labels, strstr(bad[i].text, "0.5") ? 1 : 2);
        assert_non_null(strstr(b.told, "1 malformed row is skipped, the first is row 2"));
        tx_samples_close(&samples);
        close_bench(&b);
    }
}

/* Later data have their labels as the training data have them: run_glue.py ends with a KeyError for any other. */
static void test_labels_of_later_data(void **state)
{
    static const struct {
        const char *train, *later, *words;
        int32_t label;
    } cases[] = {
        {"a,0\nb,3\nc,7\n", "a,3\nb,1\n", "row 2: label: \"1\" is not one of the model's 3", 0},
        {"a,neg\nb,pos\n", "a,1\n", "row 1: label: \"1\" is not one of the model's 2", 0},
        {"a,false\nb,true\n", "a,0\n", "row 1: label: \"0\" is not one of the model's 2", 0},
        {"a,0.5\nb,1\n", "a,x\n", "row 1: label: \"x\" is not a number", 0},
        {"a,0.5\nb,1\n", "a,\n", "row 1: label is empty", 0},
        {"a,neg\nb,pos\n", "a,pos\n", NULL, 1},
    };
    const tx_sequence_task *any = &tx_sequence_classification;
    char text[64];
    tx_samples samples;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench b = open_bench();
        snprintf(text, sizeof text, "sentence,label\n%s", cases[i].train);
        assert_ok(open_text(&b, any, "a.csv", text, TX_DATA_TRAIN, &samples));
        tx_samples_close(&samples);
        snprintf(text, sizeof text, "sentence,label\n%s", cases[i].later);
        const tx_status status = open_text(&b, any, "b.csv", text, TX_DATA_VALIDATION, &samples);
        if (cases[i].words) {
            assert_refused(status, TX_FORMAT, cases[i].words);
        } else {
            assert_ok(status);
            assert_int_equal(((const tx_sequence_data *)samples.data)->label[0], cases[i].label);
            tx_samples_close(&samples);
        }
        close_bench(&b);
    }
    /* Evaluation of a model that has names: by these or by numbers, not both. */
    bench b = open_bench();
    assert_ok(tx_labels_set(b.config, TX_PROBLEM_CLASSES, (const char *const[]){"neg", "pos"}, 2));
    assert_ok(open_text(&b, any, "c.csv", "sentence,label\na,1\nb,0\n", TX_DATA_VALIDATION, &samples));
    assert_int_equal(((const tx_sequence_data *)samples.data)->label[0], 1);
    tx_samples_close(&samples);
    assert_refused(open_text(&b, any, "d.csv", "sentence,label\na,neg\nb,0\n", TX_DATA_VALIDATION, &samples), TX_FORMAT,
                   "row 2: label: \"0\" is not one of the model's 2");
    close_bench(&b);
}

/* ---- Metrics -------------------------------------------------------------------------------------------- */

static double metric(const tx_task *task, const char *name, const double sums[TX_SUMS_MAX])
{
    return value_of(&task->metrics[tx_task_metric(task, name)], sums);
}

#define PEARSON 0.9193194851
#define SPEARMAN 0.8440722199
#define NEAR(task, name, wanted) assert_true(fabs(metric(task, name, sums) - (wanted)) <= 1e-7)

static void test_metrics(void **state)
{
    int32_t label[] = {1, 0, 1, 1, 0, TX_IGNORE_LABEL, 1, 0};
    const float logits[][2] = {{0, 1}, {0, 1}, {1, 0}, {0, 1}, {1, 0}, {1, 0}, {0, 1}, {1, 0}};
    float target[] = {1, 2.5f, 2.5f, 4, 0.5f, 9, 3, 5};
    int32_t known[] = {0, 0, 0, 0, 0, TX_IGNORE_LABEL, 0, 0};
    const float guess[] = {0.5f, 2, 3, 3, 1, 0, 2, 4.5f};
    tx_sequence_data d = {.label = label, .target = target};
    const tx_task *mrpc = &find_task("mrpc")->task, *cola = &find_task("cola")->task, *stsb = &find_task("stsb")->task;
    double sums[TX_SUMS_MAX] = {0};
    tx_samples samples = {.task = mrpc, .data = &d, .count = 8};
    tx_sequence_measure(&samples, logits[0], 2, sums);
    NEAR(mrpc, "accuracy", 5.0 / 7.0);
    NEAR(mrpc, "f1", 0.75);
    NEAR(mrpc, "combined_score", 0.5 * (5.0 / 7.0 + 0.75));
    NEAR(cola, "matthews_correlation", 0.4166666667);
    d.label = known;
    tx_sequence_measure_numbers(&samples, guess, 1, sums);
    NEAR(stsb, "pearson", PEARSON);
    NEAR(stsb, "spearmanr", SPEARMAN);
    NEAR(stsb, "combined_score", 0.5 * (PEARSON + SPEARMAN));
    NEAR(&tx_sequence_regression.task, "mse", 0.4642857143);
    for (int i = 0; i < 8; i++) /* SciPy's pearsonr and spearmanr are nan for a constant */
        target[i] = 0.1f;
    tx_sequence_measure_numbers(&samples, guess, 1, sums);
    assert_true(isnan(metric(stsb, "pearson", sums)) && isnan(metric(stsb, "spearmanr", sums)));
    d.label = label;
    samples.count = 1; /* only one label */
    tx_sequence_measure(&samples, logits[0], 2, sums);
    NEAR(cola, "matthews_correlation", 0.0);
}

/* Rows whose label is a list: the field "labels" has 1 or 0 for each label of the model. */
static void test_several(void **state)
{
    static const char text[] =
        "{\"sentence\": \"a\", \"label\": [\"y\", \"x\"]}\n{\"sentence\": \"b\", \"label\": []}\n"
        "{\"sentence\": \"c\", \"label\": [\"z\"]}\n";
    static const int32_t wanted[3][3] = {{1, 1, 0}, {0, 0, 0}, {0, 0, 1}};
    const float outputs[9] = {1, 1, -1, -1, -1, 1, -1, -1, 1}; /* two of three texts are right */
    double sums[TX_SUMS_MAX] = {0};
    bench b = open_bench();
    tx_samples samples, again;
    assert_ok(open_text(&b, &tx_sequence_classification, "a.jsonl", text, TX_DATA_TRAIN, &samples));
    assert_true(b.config->problem == TX_PROBLEM_MULTI_LABEL);
    assert_int_equal(b.config->labels, 3);
    for (int r = 0; r < 3; r++) {
        int32_t values[2 * 7 + 1 + 3 + 7];
        const tx_batch row = tx_batch_of(samples.task, 7, 1, values);
        assert_ok(samples.task->row(&samples, r, &row));
        assert_memory_equal(row.field[TX_SEQUENCE_LABELS], wanted[r], sizeof wanted[r]);
        assert_int_equal(tx_batch_labels(samples.task, 7, &row), 3);
    }
    samples.task->measure(&samples, outputs, 3, sums);
    assert_true(fabs(value_of(&samples.task->metrics[1], sums) - 6.0 / 7.0) < 1e-15);
    assert_true(fabs(value_of(&samples.task->metrics[2], sums) - 2.0 / 3.0) < 1e-15);
    /* Other data have the same task. */
    assert_ok(open_text(&b, &tx_sequence_classification, "b.jsonl", text, TX_DATA_VALIDATION, &again));
    assert_true(tx_task_is_same(samples.task, again.task, 7));
    tx_samples_close(&again);
    assert_refused(open_text(&b, &tx_sequence_classification, "c.jsonl", "{\"sentence\": \"a\", \"label\": \"x\"}\n",
                             TX_DATA_VALIDATION, &again),
                   TX_FORMAT, "not a list");
    assert_refused(open_text(&b, &tx_sequence_classification, "d.jsonl", "{\"sentence\": \"a\", \"label\": [\"w\"]}\n",
                             TX_DATA_VALIDATION, &again),
                   TX_FORMAT, "not one of the model's 3 labels");
    tx_samples_close(&samples);
    close_bench(&b);
}

/* More tokens than memory holds are read from a file, and are those that memory would hold. */
static void test_many(void **state)
{
    enum { ROWS = 180000 };
    bench b = open_bench();
    tx_buffer text = {0};
    tx_samples samples[2];
    tx_buffer_add(&text, "sentence,label\n", 15);
    for (int i = 0; i < ROWS; i++) {
        char line[32];
        tx_buffer_add(&text, line, (size_t)snprintf(line, sizeof line, "%06d,%d\n", i, i % 3));
    }
    tx_buffer_add(&text, "", 1);
    for (int i = 0; i < 2; i++) {
        b.cache = i ? b.folder : NULL;
        assert_ok(open_text(&b, &tx_sequence_classification, "a.csv", text.data, TX_DATA_TRAIN, &samples[i]));
        assert_int_equal(((const tx_sequence_data *)samples[i].data)->texts.ids.written > 0, i);
        assert_int_equal(samples[i].count, ROWS);
    }
    assert_string_equal(samples[0].digest, samples[1].digest);
    for (int64_t row = 0; row < ROWS; row += 997) {
        int32_t memory[2][7 + 7 + 2 + 7];
        char wanted[8];
        for (int i = 0; i < 2; i++) {
            const tx_batch to = tx_batch_of(samples[i].task, 7, 1, memory[i]);
            assert_ok(samples[i].task->row(&samples[i], row, &to));
        }
        snprintf(wanted, sizeof wanted, "%06d", (int)row);
        for (int t = 0; t < 6; t++)
            assert_int_equal(memory[1][t], wanted[t]);
        assert_memory_equal(memory[0], memory[1], sizeof memory[0]);
    }
    for (int i = 0; i < 2; i++)
        tx_samples_close(&samples[i]);
    free(text.data);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_bad_labels),
        cmocka_unit_test(test_labels_of_later_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
