/* SPDX-License-Identifier: Apache-2.0
 * The table of options: values from the command line and from a file, and the message for each mistake. */
#include "models/options/option.h"
#include "tools/cli/alive.h"
#include "tools/cli/options.h"

#include "tests/scratch.h"

typedef struct settings {
    bool train;
    int64_t steps;
    double rate;
    const char *output, *resume, *more, *modules, *log;
    int32_t schedule;
    uint32_t report;
    tx_words stop, between, files;
} settings;

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_HEADING, .help = "all"},
    {TX_OPTION_FLAG, "do_train", AT(train), .choices = "auto", .help = "train"},
    {TX_OPTION_INTEGER, "max_steps", AT(steps), -1, 1000, "N", "steps"},
    {TX_OPTION_REAL, "learning_rate", AT(rate), 0, 1, "X", "rate"},
    {TX_OPTION_TEXT, "output_dir", AT(output), .choices = "DIR", .help = "folder"},
    {TX_OPTION_OPTIONAL, "resume_from_checkpoint", AT(resume), .choices = "DIR", .help = "resume"},
    {TX_OPTION_CHOICE, "lr_scheduler_type", AT(schedule), .choices = "linear|cosine", .help = "schedule"},
    {TX_OPTION_LIST, "report_to", AT(report), .choices = "none|tensorboard|all", .help = "report"},
    {TX_OPTION_TEXT, "kwargs", AT(more), .choices = "JSON", .help = "more"},
    {TX_OPTION_TEXT, "modules", AT(modules), .choices = "NAME,...|all", .help = "modules"},
    {TX_OPTION_WORDS, "stop", AT(stop), .choices = "TEXT", .help = "stop"},
    {TX_OPTION_TEXT, "log", AT(log), .choices = "FILE", .help = "log"},
    {TX_OPTION_WORDS, "between", AT(between), .most = 2, .choices = "A B", .help = "two"},
    {TX_OPTION_FOREIGN, "fp16", .choices = "false", .help = "use fp32"},
    {TX_OPTION_FOREIGN, "fsdp", .help = "do not"},
    {TX_OPTION_FOREIGN, "smoothing", .choices = "none|0", .help = "none"},
    {TX_OPTION_FOREIGN, "workers", .choices = "*", .help = "all stay"},
    {TX_OPTION_FOREIGN, "accelerator", .choices = "{}", .help = "none is needed"},
    {TX_OPTION_FOREIGN, "harmless", .choices = "*", .help = ""},
    {TX_OPTION_FOREIGN, "idle", .choices = "off|*", .help = "not followed"},
};

static const tx_option_spelling spellings[] = {{"-o", "output_dir"}, {"-out", "output_dir"}, {"--to", "output_dir"}};

#define TABLE                                                          \
    .name = "prog", .usage = "prog [options]", .about = "Does. More.", \
    .table = {TX_CLI_OPTIONS(options), TX_CLI_SPELLINGS(spellings)}

static const tx_cli program = {TABLE};
static const tx_cli of_files = {TABLE, .operand = "FILE", .operands = AT(files), .operands_least = 1,
                                .operands_most = 3};
#undef AT

static tx_option_values values; /* of the last line parsed */

static bool given(size_t offset)
{
    return tx_option_given(&values, offset);
}

/* Parses the words of `line`, separated by blanks, with stderr redirected to a file whose text is copied to
 * `message`. */
static int parse(const tx_cli *cli, settings *set, const char *line, char message[1024])
{
    char words[4096];
    char *argv[64] = {"prog"}, *rest = words;
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word; (word = strtok_r(rest, " ", &rest));)
        argv[argc++] = word;
    *set = (settings){.steps = 7, .rate = 0.5};
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    tx_option_values_free(&values);
    values = tx_options_values(cli, set);
    int status = tx_options_read(cli, argc, argv, &values);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    message[fread(message, 1, 1023, file)] = '\0';
    fclose(file);
    return status;
}

static void good(const tx_cli *cli, settings *set, const char *line)
{
    char message[1024];
    int status = parse(cli, set, line, message);
    if (status != TX_GO_ON || message[0])
        fail_msg("%s: status %d, %s", line, status, message);
}

static void bad(const tx_cli *cli, int wanted, const char *line, const char *text)
{
    settings set;
    char message[1024];
    int status = parse(cli, &set, line, message);
    if (status != wanted || !strstr(message, text))
        fail_msg("%s: status %d, %s", line, status, message);
}

/* Accepted, and this is said of it. */
static void told(settings *set, const char *line, const char *text)
{
    char message[1024];
    int status = parse(&program, set, line, message);
    if (status != TX_GO_ON || !strstr(message, text))
        fail_msg("%s: status %d, %s", line, status, message);
}

static void test_values(void **state)
{
    settings set;
    good(&program, &set, "--do-train --max_steps=1e2 --learning-rate 2.5e-3 --output_dir d --lr_scheduler_type Cosine");
    assert_true(set.train);
    assert_int_equal(set.steps, 100);
    assert_true(fabs(set.rate - 2.5e-3) < 1e-15);
    assert_string_equal(set.output, "d");
    assert_int_equal(set.schedule, 1);
    assert_null(set.resume);
    good(&program, &set, "--do_train True --max_steps -1");
    assert_true(set.train && set.steps == -1);
    told(&set, "--do_train --do_train false --max_steps 10.0",
         "--do_train is given twice: false is used instead of true");
    assert_true(!set.train && set.steps == 10);
    good(&program, &set, "--do_train=no");
    assert_false(set.train);
    good(&program, &set, "--resume_from_checkpoint --do_train");
    assert_string_equal(set.resume, "");
    assert_true(set.train);
    good(&program, &set, "--resume_from_checkpoint a/b");
    assert_string_equal(set.resume, "a/b");
    good(&program, &set, "--output_dir=--odd");
    assert_string_equal(set.output, "--odd");
}

static void test_given(void **state)
{
    settings set;
    good(&program, &set, "--max_steps 7 --do_train=false");
    assert_true(given(offsetof(settings, steps)) && given(offsetof(settings, train)));
    assert_false(given(offsetof(settings, rate)) || given(offsetof(settings, output)));
    good(&program, &set, "");
    assert_false(given(offsetof(settings, steps)));
}

static void test_spellings(void **state)
{
    settings set;
    good(&program, &set, "-o a --do_train");
    assert_string_equal(set.output, "a");
    assert_true(set.train);
    good(&program, &set, "-out=b");
    assert_string_equal(set.output, "b");
    good(&program, &set, "--max_steps 3 --to c");
    assert_string_equal(set.output, "c");
    assert_true(given(offsetof(settings, output)));
    bad(&program, TX_EXIT_USAGE, "--max_steps -out", "the value is missing");
    bad(&program, TX_EXIT_USAGE, "-ou b", "-ou: not an option");
}

/* As a program that links the library sets them. */
static void test_by_name(void **state)
{
    settings set = {.steps = 7};
    tx_option_values v = tx_options_values(&program, &set);
    char text[] = "folder";
    assert_ok(tx_option_set(&v, "output-dir", text));
    text[0] = 'g'; /* a copy was taken */
    assert_ok(tx_option_set(&v, "report_to", "tensorboard,all"));
    assert_ok(tx_option_set(&v, "stop", "a"));
    assert_ok(tx_option_set(&v, "fp16", "false"));
    assert_refused(tx_option_set(&v, "fp16", "true"), TX_UNSUPPORTED, "use fp32");
    assert_refused(tx_option_set(&v, "max_step", "1"), TX_INVALID, "did you mean --max_steps?");
    assert_refused(tx_option_set(&v, "max_steps", "x"), TX_INVALID, "not a whole number");
    tx_json *json = tx_option_json(&v, 0, 0);
    char *line = tx_json_text(json, TX_JSON_LINE);
    assert_string_equal(
        line,
        "{\"do_train\": false, \"max_steps\": 7, \"learning_rate\": 0.0, \"output_dir\": \"folder\", "
        "\"resume_from_checkpoint\": null, \"lr_scheduler_type\": \"linear\", \"report_to\": "
        "\"tensorboard,all\", \"kwargs\": null, \"modules\": null, \"stop\": [\"a\"], \"log\": null, \"between\": []}");
    free(line);
    tx_json_free(json);
    tx_option_values_free(&v);
}

static void test_several(void **state)
{
    settings set;
    good(&program, &set, "--report_to tensorboard all --do_train");
    assert_int_equal(set.report, 6);
    assert_true(set.train);
    told(&set, "--report_to=none --report_to tensorboard,all", "\"tensorboard,all\" is used instead of \"none\"");
    assert_int_equal(set.report, 6);
    good(&program, &set, "--max_steps 5 --max_steps 5 --log a --log=a -o a --to a");
    bad(&program, TX_EXIT_USAGE, "--log a --log b", "--log is given twice, as \"a\" and \"b\": give one file");
    good(&program, &set, "--modules q_proj k_proj o_proj --do_train");
    assert_string_equal(set.modules, "q_proj,k_proj,o_proj");
    assert_true(set.train);
    good(&program, &set, "--modules q_proj,k_proj -o a");
    assert_string_equal(set.modules, "q_proj,k_proj");
    good(&program, &set, "--stop a --stop b --stop=c --stop d --stop e");
    assert_int_equal(set.stop.count, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(set.stop.word[i][0], 'a' + i);
    good(&program, &set, "--between a b --do_train");
    assert_int_equal(set.between.count, 2);
    assert_string_equal(set.between.word[1], "b");
    assert_true(set.train);
    good(&program, &set, "--between a --do_train");
    assert_int_equal(set.between.count, 1);
    bad(&program, TX_EXIT_USAGE, "--between a b c", "c: not an option");
    good(&of_files, &set, "a.json --do_train b -- --c");
    assert_int_equal(set.files.count, 3);
    assert_string_equal(set.files.word[0], "a.json");
    assert_string_equal(set.files.word[2], "--c");
    good(&of_files, &set, "--max_steps 5 a b");
    assert_int_equal(set.steps, 5);
    assert_int_equal(set.files.count, 2);
    good(&of_files, &set, "-");
    assert_string_equal(set.files.word[0], "-");
    bad(&of_files, TX_EXIT_USAGE, "--do_train", "FILE is missing");
    bad(&of_files, TX_EXIT_USAGE, "a b c d", "d: one FILE too many");
}

static void test_mistakes(void **state)
{
    bad(&program, TX_EXIT_USAGE, "--max_step 1", "did you mean --max_steps?");
    bad(&program, TX_EXIT_USAGE, "--zzzzzzzzzz", "--zzzzzzzzzz: unknown option; --help all lists all");
    bad(&program, TX_EXIT_USAGE, "--max_steps 1.5", "--max_steps 1.5: not a whole number");
    bad(&program, TX_EXIT_USAGE, "--max_steps 1001", "must be between -1 and 1000");
    bad(&program, TX_EXIT_USAGE, "--max_steps 99999999999999999999", "must be between -1 and 1000");
    bad(&program, TX_EXIT_USAGE, "--learning_rate nan", "--learning_rate nan: not a number");
    bad(&program, TX_EXIT_USAGE, "--learning_rate inf", "not a number");
    bad(&program, TX_EXIT_USAGE, "--max_steps", "the value is missing");
    bad(&program, TX_EXIT_USAGE, "--output_dir --do_train", "the value is missing");
    bad(&program, TX_EXIT_USAGE, "--output_dir=", "the value is empty");
    bad(&program, TX_EXIT_USAGE, "--max_step 1 --do_train=maybe --learning_rate 7", "did you mean --max_steps?");
    bad(&program, TX_EXIT_USAGE, "--max_step 1 --do_train=maybe --learning_rate 7", "must be true or false");
    bad(&program, TX_EXIT_USAGE, "--max_step 1 --do_train=maybe --learning_rate 7", "must be between");
    bad(&program, TX_EXIT_USAGE, "--do_train=maybe", "must be true or false");
    bad(&program, TX_EXIT_USAGE, "--lr_scheduler_type sine", "must be one of linear|cosine");
    bad(&program, TX_EXIT_USAGE, "--report_to tensorboard,wandb", "--report_to wandb: must be one or more of none|");
    bad(&program, TX_EXIT_USAGE, "stray", "stray: not an option");
    bad(&program, TX_EXIT_USAGE, "--do_train args.json", "a file of options must be the first argument");
    bad(&program, TX_EXIT_USAGE, "--completion csh", "unsupported shell: give bash, zsh or fish");
}

static void test_foreign(void **state)
{
    settings set;
    bad(&program, TX_EXIT_USAGE, "--fp16", "use fp32");
    bad(&program, TX_EXIT_USAGE, "--fp16 True", "use fp32");
    bad(&program, TX_EXIT_USAGE, "--fsdp=full_shard", "do not");
    bad(&program, TX_EXIT_USAGE, "--smoothing 0.1", "none");
    bad(&program, TX_EXIT_USAGE, "--smoothing -1", "none");
    bad(&program, TX_EXIT_USAGE, "--fsdp", "do not");
    good(&program, &set,
         "--fp16 false --smoothing 0.0 --harmless {} --workers 7 --smoothing none --workers --do_train");
    assert_true(set.train);
    /* A value that is only accepted counts as given. */
    const tx_option *idle = tx_option_find(&values.table, "idle");
    good(&program, &set, "--do_train auto --idle no");
    assert_true(set.train && values.source[idle - options] == TX_OPTION_UNSET);
    good(&program, &set, "--idle 3");
    assert_true(values.source[idle - options] == TX_OPTION_SET);
    assert_non_null(tx_option_foreign("txserve", "max-num-seqs"));
    assert_null(tx_option_foreign("txgen", "max_num_seqs"));
}

/* Writes `text` to a file, and parses with that file first and `line` after it. */
static void with_file(char *folder, const char *text, char line[512], const char *more)
{
    char *path = tx_path_join(folder, "args.json");
    assert_non_null(path);
    assert_ok(tx_file_write(path, text, strlen(text)));
    snprintf(line, 512, "%s %s", path, more);
    free(path);
}

static void test_file(void **state)
{
    char *folder = make_scratch(), line[512];
    settings set;
    with_file(folder,
              "{\"do-train\": true, \"max_steps\": 20, \"learning_rate\": 1, \"output_dir\": \"a b\", "
              "\"resume_from_checkpoint\": true, \"lr_scheduler_type\": \"cosine\", \"report_to\": [\"tensorboard\"], "
              "\"stop\": [\"x y\", \"z\"], \"fp16\": false, \"fsdp\": [], \"smoothing\": 0.0, "
              "\"workers\": [1, 2], \"accelerator\": {\"fp16\": false, \"workers\": {\"a\": 1}}, "
              "\"kwargs\": {\"a\": [1]}, \"modules\": [\"q_proj\", \"v_proj\"]}",
              line, "--max_steps 30 --stop w");
    good(&program, &set, line);
    assert_true(set.train && set.steps == 30 && set.schedule == 1 && set.report == 2);
    assert_true(fabs(set.rate - 1.0) < 1e-15);
    assert_string_equal(set.output, "a b");
    assert_string_equal(set.resume, "");
    assert_string_equal(set.more, "{\"a\": [1]}");
    assert_string_equal(set.modules, "q_proj,v_proj");
    assert_int_equal(set.stop.count, 3);
    assert_string_equal(set.stop.word[0], "x y");
    assert_string_equal(set.stop.word[2], "w");
    with_file(folder,
              "{\"do_train\": null, \"max_steps\": \"12\", \"learning_rate\": \"1e-3\", \"output_dir\": null, "
              "\"resume_from_checkpoint\": false, \"fp16\": null, \"report_to\": \"tensorboard,all\"}",
              line, "");
    good(&program, &set, line);
    assert_true(!set.train && set.steps == 12 && !set.output && !set.resume && set.report == 6);
    assert_true(fabs(set.rate - 1e-3) < 1e-15);
    /* Words of YAML for true and false */
    with_file(folder, "{\"do_train\": \"on\", \"report_to\": \"off\", \"resume_from_checkpoint\": \"no\"}", line, "");
    good(&program, &set, line);
    assert_true(set.train && !set.resume && set.report == 1);
    with_file(folder, "{\"report_to\": false, \"resume_from_checkpoint\": \"yes\"}", line, "");
    good(&program, &set, line);
    assert_true(set.report == 1 && set.resume && !*set.resume);
    /* A default that a file names counts as given, but not as requested on the command line. */
    with_file(folder, "{\"max_steps\": 7, \"learning_rate\": 0.25, \"to\": \"a\", \"gone\": null}", line, "");
    good(&program, &set, line);
    assert_true(given(offsetof(settings, steps)) && !tx_option_asked(&values, offsetof(settings, steps)));
    assert_true(tx_option_asked(&values, offsetof(settings, rate)) && !strcmp(set.output, "a"));
    with_file(folder, "{\"max_steps\": 7}", line, "--max_steps 7");
    good(&program, &set, line);
    assert_true(tx_option_asked(&values, offsetof(settings, steps)));
    remove_scratch(folder);
}

static void test_file_mistakes(void **state)
{
    char *folder = make_scratch(), line[512];
    static const struct {
        const char *text, *message;
        int status;
    } cases[] = {
        {"{\"max_step\": 1, \"do_train\": 2}", "args.json: do_train 2: must be true or false", TX_EXIT_USAGE},
        {"{\"max_step\": 1, \"do_train\": 2}", "did you mean max_steps?; ", TX_EXIT_USAGE},
        {"{\"max_step\": 1}", "args.json: max_step: unknown option; did you mean max_steps?", TX_EXIT_USAGE},
        {"{\"max_steps\": 1.5}", "args.json: max_steps 1.5: not a whole number", TX_EXIT_USAGE},
        {"{\"max_steps\": true}", "args.json: max_steps: must be a whole number", TX_EXIT_USAGE},
        {"{\"max_steps\": [1]}", "args.json: max_steps: must be a whole number", TX_EXIT_USAGE},
        {"{\"learning_rate\": 2}", "args.json: learning_rate 2: too large: must be between", TX_EXIT_USAGE},
        {"{\"output_dir\": {}}", "args.json: output_dir: must be a string", TX_EXIT_USAGE},
        {"{\"output_dir\": 1}", "args.json: output_dir: must be a string", TX_EXIT_USAGE},
        {"{\"output_dir\": \"\"}", "args.json: output_dir: the value is empty", TX_EXIT_USAGE},
        {"{\"do_train\": {}}", "args.json: do_train: must be true or false", TX_EXIT_USAGE},
        {"{\"do_train\": 2}", "args.json: do_train 2: must be true or false", TX_EXIT_USAGE},
        {"{\"stop\": [\"a\", 1]}", "args.json: stop: must be strings", TX_EXIT_USAGE},
        {"{\"fp16\": true}", "args.json: fp16: TX does not support this option: use fp32", TX_EXIT_USAGE},
        {"{\"fsdp\": {\"a\": 1}}", "args.json: fsdp: TX does not support", TX_EXIT_USAGE},
        {"{\"smoothing\": [0, 0.1]}", "args.json: smoothing: TX does not support", TX_EXIT_USAGE},
        {"{\"accelerator\": {\"fp16\": true}}", "args.json: fp16: TX does not support", TX_EXIT_USAGE},
        {"{\"accelerator\": {\"gear\": 1}}", "args.json: gear: unknown option", TX_EXIT_USAGE},
        {"{\"accelerator\": \"a file\"}", "args.json: accelerator: TX does not support", TX_EXIT_USAGE},
        {"[]", "args.json: must hold one object", TX_EXIT_USAGE},
        {"{\"output_dir\": \"a\", \"to\": \"b\"}", "args.json: to: given twice, as \"a\" and \"b\"", TX_EXIT_USAGE},
        {"{\"max_steps\": 1, \"max_steps\": 2}", "duplicate", TX_EXIT_FAILURE},
        {"{\"max_steps\": NaN}", "args.json: max_steps: must be a whole number", TX_EXIT_USAGE},
        {"{\"learning_rate\": Infinity}", "args.json: learning_rate: must be a number", TX_EXIT_USAGE},
        {"", "args.json", TX_EXIT_FAILURE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        with_file(folder, cases[i].text, line, "");
        bad(&program, cases[i].status, line, cases[i].message);
    }
    remove_scratch(folder);
    bad(&program, TX_EXIT_FAILURE, "gone/args.json", "gone/args.json: cannot open");
}

static void test_bytes(void **state)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } good_ones[] = {{"1", 1},           {"65536", 65536},   {"8GiB", INT64_C(8) << 30}, {"1.5 gb", 1500000000},
                     {"2KiB", 2048},     {"3 MB", 3000000},  {"1TiB", INT64_C(1) << 40}, {"7B", 7},
                     {"0.5MiB", 524288}, {"1e3 KB", 1000000}};
    static const char *const bad_ones[] = {"", "GiB", "0", "-1GiB", "8 Gi", "8GiBs", "nan", "inf", "1e30GiB"};
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof good_ones / sizeof good_ones[0]; i++) {
        assert_ok(tx_read_bytes(good_ones[i].text, &bytes));
        assert_true(bytes == good_ones[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad_ones / sizeof bad_ones[0]; i++)
        assert_refused(tx_read_bytes(bad_ones[i], &bytes), TX_INVALID, "not an amount of memory");
}

/* The texts of progress, also before anything is done and after an hour. */
static void test_bar(void **state)
{
    static const struct {
        const char *what;
        int64_t done, total;
        double seconds;
        const char *text;
    } rows[] = {
        {"kernels", 0, 42, 3.0, "kernels 0 of 42"},
        {"kernels", 27, 42, 16.0, "kernels 27 of 42, 9 s left"},
        {"kernels", 41, 42, 0.0, "kernels 41 of 42, 0 s left"},
        {"kernels", 3, 42, 12.0, "kernels 3 of 42"},
        {"kernels", 4, 42, 58.0, "kernels 4 of 42, 10 min left"},
        {"files", 1, 2, 12.0, "files 1 of 2, 12 s left"},
        {"book.txt", 250000000, 1000000000, 5.0, "book.txt 25 %, 15 s left"},
        {"book.txt", 0, 1000000000, 5.0, "book.txt 0 %"},
    };
    char text[80];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tx_bar_text(text, sizeof text, rows[i].what, rows[i].done, rows[i].total, rows[i].seconds);
        assert_string_equal(text, rows[i].text);
    }
    tx_bar_text(text, 12, "kernels", 27, 42, 16.0); /* it is cut off */
    assert_string_equal(text, "kernels 27 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),        cmocka_unit_test(test_several), cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_bytes),         cmocka_unit_test(test_foreign), cmocka_unit_test(test_file),
        cmocka_unit_test(test_file_mistakes), cmocka_unit_test(test_given),   cmocka_unit_test(test_by_name),
        cmocka_unit_test(test_spellings),     cmocka_unit_test(test_bar),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tx_option_values_free(&values);
    return failed;
}
