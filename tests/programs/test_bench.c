/* SPDX-License-Identifier: Apache-2.0
 *
 * txbench copy, gemm, attention and ops, end to end, with tiny sizes: the figures are consistent, and invalid arguments
 * are refused. The test does not judge speeds.
 *
 *     test_bench TXBENCH DEVICE */
#include "tests/scratch.h"
#include "tests/skip.h"
#include "tx_json.h"

#include <float.h>
#include <sys/wait.h>

static const char *txbench, *device;
static char *folder;

/* Runs txbench; `arguments` are words of the shell. Sets both outputs' texts and returns the exit status. */
static int run(const char *arguments, char **out, char **complaints)
{
    char command[4096];
    size_t size;
    snprintf(command, sizeof command, "cd '%s' && '%s' %s > out 2> err", folder, txbench, arguments);
    const int status = system(command);
    assert_true(WIFEXITED(status));
    char *path = tx_path_join(folder, "out"), *other = tx_path_join(folder, "err");
    assert_ok(tx_file_read(path, 1 << 24, out, &size));
    assert_ok(tx_file_read(other, 1 << 20, complaints, &size));
    free(path);
    free(other);
    return WEXITSTATUS(status);
}

/* Expects `status`, an error of one line that contains `text`, and no standard output. */
static void refuses(int wanted, const char *arguments, const char *text)
{
    char *out, *complaints;
    const int status = run(arguments, &out, &complaints);
    const char *end = strchr(complaints, '\n');
    if (status != wanted || *out || !end || end[1] || !strstr(complaints, text))
        fail_msg("%s: status %d, expected %d and \"%s\": %s%s", arguments, status, wanted, text, complaints, out);
    free(out);
    free(complaints);
}

/* Expects success without any message. Returns standard output, which the caller frees. */
static char *succeeds(const char *arguments)
{
    char *out, *complaints;
    const int status = run(arguments, &out, &complaints);
    if (status || *complaints)
        fail_msg("%s: status %d: %s", arguments, status, complaints);
    free(complaints);
    return out;
}

/* The JSON of a command with tiny measurements on the device. */
static tx_json *figures(const char *what, const char *arguments)
{
    char words[1024];
    tx_json *all;
    snprintf(words, sizeof words, "%s --device %s --repeats 1 --largest 1 --json %s", what, device, arguments);
    char *out = succeeds(words);
    assert_ok(tx_json_parse(out, strlen(out), words, &all));
    free(out);
    return all;
}

/* ---- consistency of the figures --------------------------------------------------------------------- */

static double number(const tx_json *object, const char *key)
{
    double value = 0.0;
    assert_ok(tx_json_get_number(object, key, 0.0, DBL_MAX, &value));
    return value;
}

static double positive(const tx_json *object, const char *key)
{
    const double value = number(object, key);
    if (!(value > 0.0))
        fail_msg("%s is %g", key, value);
    return value;
}

static const char *text(const tx_json *object, const char *key)
{
    const char *value = "";
    assert_ok(tx_json_get_string(object, key, &value));
    if (!*value)
        fail_msg("%s is empty", key);
    return value;
}

static tx_json *member(const tx_json *object, const char *key, tx_json_type type)
{
    tx_json *value = NULL;
    assert_ok(tx_json_get(object, key, type, &value));
    return value;
}

static void same(double got, double wanted, const char *what)
{
    if (!(fabs(got - wanted) <= 1e-9 * fabs(wanted)))
        fail_msg("%s is %.17g, expected %.17g", what, got, wanted);
}

static void check_head(const tx_json *all, const char *what)
{
    assert_string_equal(text(all, "what"), what);
    assert_string_equal(text(all, "version"), TX_VERSION);
    assert_non_null(strstr(text(all, "command"), what));
    assert_int_equal(strncmp(text(all, "device"), device, strlen(device)), 0);
    text(all, "name");
    text(all, "driver");
    const tx_json *peaks = member(all, "peaks", TX_JSON_OBJECT);
    positive(peaks, "copy_gbytes");
    same(number(peaks, "copy_bytes"), 1 << 20, "copy_bytes");
    positive(peaks, "launch_seconds");
    positive(peaks, "alone_seconds");
}

/* Rates are work divided by time, the bound is the lower roof, and the share is the part of the roof that is
 * reached. */
static void check_row(const tx_json *row, const tx_json *peaks)
{
    const double seconds = positive(row, "seconds"), flops = positive(row, "flops"), bytes = positive(row, "bytes");
    const double copy = positive(peaks, "copy_gbytes");
    const char *dtype = strcmp(text(row, "op"), "matmul") == 0 ? text(row, "dtype") : "F32";
    const double product = positive(member(peaks, "product_gflops", TX_JSON_OBJECT), dtype);
    const double through = copy * flops / bytes, attainable = through < product ? through : product;
    same(number(row, "gflops"), 1e-9 * flops / seconds, "gflops");
    same(number(row, "gbytes"), 1e-9 * bytes / seconds, "gbytes");
    same(number(row, "attainable_gflops"), attainable, "attainable_gflops");
    same(number(row, "share"), number(row, "gflops") / attainable, "share");
    same(number(row, "of_copy"), number(row, "gbytes") / copy, "of_copy");
    same(number(row, "of_product"), number(row, "gflops") / product, "of_product");
    assert_string_equal(text(row, "bound"), through < product ? "copy" : "product");
    number(row, "spread");
    text(row, "name");
    text(row, "case");
    text(row, "group");
    text(row, "variant");
    if (strcmp(text(row, "op"), "matmul") == 0)
        assert_true(number(row, "of_product") <= 1.0 + 1e-9); /* it is the best of them */
}

static const tx_json *check_rows(const tx_json *all, const char *what, size_t least)
{
    check_head(all, what);
    const tx_json *rows = member(all, "rows", TX_JSON_ARRAY);
    assert_true(tx_json_size(rows) >= least);
    for (size_t i = 0; i < tx_json_size(rows); i++)
        check_row(tx_json_at(rows, i), member(all, "peaks", TX_JSON_OBJECT));
    return rows;
}

/* ---- copy ------------------------------------------------------------------------------------------- */

static void test_copy(void **state)
{
    tx_json *all = figures("copy", "");
    check_head(all, "copy");
    const tx_json *rows = member(all, "rows", TX_JSON_ARRAY);
    assert_int_equal(tx_json_size(rows), 3);
    for (size_t i = 0; i < 3; i++) {
        const tx_json *row = tx_json_at(rows, i);
        const double bytes = (double)(65536 << 2 * i);
        same(number(row, "bytes"), bytes, "bytes");
        same(number(row, "gbytes"), 2e-9 * bytes / positive(row, "seconds"), "gbytes");
    }
    const tx_json *transfers = member(all, "transfer_gbytes", TX_JSON_OBJECT);
    static const char *const ways[] = {"to_device_pinned", "to_device_pageable", "from_device_pinned",
                                       "from_device_pageable"};
    same(number(transfers, "bytes"), 1 << 20, "bytes of a transfer");
    for (size_t i = 0; i < 4; i++)
        positive(transfers, ways[i]);
    const tx_json *beside = member(all, "beside", TX_JSON_OBJECT);
    const double copy = positive(beside, "copy_seconds"), products = positive(beside, "product_seconds");
    same(number(beside, "bytes"), 1 << 20, "bytes beside products");
    same(number(beside, "ratio"), positive(beside, "both_seconds") / (copy > products ? copy : products), "ratio");
    assert_true(number(beside, "products") >= 1 && number(beside, "transfers") >= 1);
    tx_json_free(all);

    char words[256];
    snprintf(words, sizeof words, "copy --device %s --repeats 1 --largest 1", device);
    char *out = succeeds(words);
    assert_non_null(strstr(out, "to_device_pageable"));
    assert_non_null(strstr(out, "beside ratio "));
    assert_non_null(strstr(out, "peaks copy_gbytes "));
    free(out);
}

/* ---- gemm ------------------------------------------------------------------------------------------- */

static void test_gemm_shape(void **state)
{
    static const char *const dtypes[][2] = {{"fp32", "F32"}, {"bf16", "BF16"}};
    for (int d = 0; d < 2; d++) {
        char words[256];
        snprintf(words, sizeof words, "--m 33 --n 17 --k 65 --trans_a --dtype %s", dtypes[d][0]);
        tx_json *all = figures("gemm", words);
        const tx_json *rows = check_rows(all, "gemm", 1), *row = tx_json_at(rows, 0);
        assert_int_equal(tx_json_size(rows), 1);
        assert_string_equal(text(row, "dtype"), dtypes[d][1]);
        assert_non_null(strstr(text(row, "case"), "m33 n17 k65 ta"));
        same(number(row, "flops"), 2.0 * 33 * 17 * 65, "flops");
        same(number(row, "bytes"), (d ? 2.0 : 4.0) * (33 * 65 + 65 * 17 + 33 * 17), "bytes");
        assert_false(tx_json_has(all, "step"));
        tx_json_free(all);
    }
}

/* Each weight matrix is multiplied once in the forward and twice in the backward pass. */
static void test_gemm_step(void **state)
{
    const double tokens = 2 * 16, width = 32, layers = 3, padded = 384;
    tx_json *all = figures("gemm", "--model config.json --batch 2 --block 16");
    const tx_json *rows = check_rows(all, "gemm", 8), *step = member(all, "step", TX_JSON_OBJECT);
    double flops = 0.0, seconds = 0.0;
    bool forward = false, weights = false, inputs = false, classifier = false;
    for (size_t i = 0; i < tx_json_size(rows); i++) {
        const tx_json *row = tx_json_at(rows, i);
        flops += positive(row, "count") * number(row, "flops");
        seconds += number(row, "count") * number(row, "seconds");
        forward |= strcmp(text(row, "group"), "forward") == 0;
        inputs |= strcmp(text(row, "group"), "dX") == 0;
        weights |= strcmp(text(row, "group"), "dW") == 0;
        classifier |= strncmp(text(row, "name"), "classifier ", 11) == 0;
    }
    assert_true(forward && inputs && weights && classifier);
    same(flops, 6 * tokens * (layers * 12 * width * width + padded * width), "flops of a step");
    same(number(step, "flops"), flops, "step.flops");
    same(number(step, "seconds"), seconds, "step.seconds");
    same(number(step, "gflops"), 1e-9 * flops / seconds, "step.gflops");
    tx_json_free(all);
}

/* ---- attention -------------------------------------------------------------------------------------- */

static void test_attention(void **state)
{
    for (int window = -1; window < 8; window += window < 0 ? 1 : 7) { /* -1 is not causal, 0 has no window */
        char words[256];
        snprintf(words, sizeof words,
                 "--batch 2 --block 17 --heads 4 --kv_heads 2 --head_size 16 --causal %s --window %d",
                 window < 0 ? "false" : "true", window < 0 ? 0 : window);
        tx_json *all = figures("attention", words);
        const tx_json *rows = check_rows(all, "attention", 2);
        const double pairs = 2 * 4 * (window < 0 ? 17.0 * 17 : window ? 7.0 * 8 / 2 + 10 * 7 : 17.0 * 18 / 2);
        assert_int_equal(tx_json_size(rows), 2);
        same(number(tx_json_at(rows, 0), "flops"), 4 * pairs * 16, "flops forward");
        same(number(tx_json_at(rows, 1), "flops"), 10 * pairs * 16, "flops backward");
        assert_string_equal(text(tx_json_at(rows, 0), "op"), "attention");
        assert_string_equal(text(tx_json_at(rows, 1), "op"), "attention_grad");
        tx_json_free(all);
    }
}

/* ---- train ------------------------------------------------------------------------------------------ */

/* Operations of a step with micro-batches of 2 rows of 16 tokens, by txbench train. */
static double flops_of_step(const char *config, double tokens, const char *options)
{
    char words[256];
    tx_json *all;
    snprintf(words, sizeof words, "train --config %s --batch 2 --block 16 --pairs 1 --steps 1 --json --device %s %s",
             config, device, options);
    char *out = succeeds(words);
    assert_ok(tx_json_parse(out, strlen(out), words, &all));
    const double flops = number(all, "flops");
    const double speed = positive(member(all, "tx", TX_JSON_OBJECT), "tokens_per_second");
    same(number(all, "gflops"), 1e-9 * flops * speed / tokens, "gflops");
    free(out);
    tx_json_free(all);
    return flops;
}

/* Each product is computed once in the forward and twice in the backward pass: 6 operations a weight and token. Scores
 * and values take 4 operations a pair of positions and element, and 10 in the backward pass. */
static void test_train_flops(void **state)
{
    const double rows = 2, length = 16, tokens = rows * length, width = 32, layers = 3, padded = 384, labels = 2;
    const double attention = 14 * rows * length * (length + 1) / 2 * width;
    const double gpt2 = 6 * tokens * (layers * 12 * width * width + padded * width) + layers * attention;
    same(flops_of_step("config.json", tokens, ""), gpt2, "flops of GPT-2");
    same(flops_of_step("config.json", 2 * tokens, "--gradient_accumulation_steps 2"), 2 * gpt2,
         "flops of two micro-batches");
    /* A classifier reads the first position of the last block. After the attention of this block it needs only that. */
    const double all_pairs = 14 * rows * length * length * width;
    const double bert = 6 * tokens * ((layers - 1) * 12 + 3) * width * width + layers * all_pairs +
                        6 * rows * ((9 + 1) * width * width + labels * width);
    same(flops_of_step("bert.json", tokens, ""), bert, "flops of a classifier");
}

/* ---- ops -------------------------------------------------------------------------------------------- */

static void test_ops(void **state)
{
    tx_json *all = figures("ops", "--op gelu");
    const tx_json *rows = check_rows(all, "ops", 1);
    assert_string_equal(text(tx_json_at(rows, 0), "op"), "gelu");
    tx_json_free(all);
    char words[256];
    snprintf(words, sizeof words, "ops --device %s --repeats 1 --largest 1 --op add", device);
    char *out = succeeds(words);
    assert_non_null(strstr(out, "add "));
    assert_non_null(strstr(out, "peaks launch_seconds "));
    assert_non_null(strstr(out, "share"));
    free(out);
}

/* ---- mistakes --------------------------------------------------------------------------------------- */

static void test_mistakes(void **state)
{
    refuses(2, "copy --largest 0", "must be between");
    refuses(2, "copy --html page.html", "--html");
    refuses(2, "gemm --m", "the value is missing");
    refuses(2, "gemm --m -3", "must be between");
    refuses(2, "gemm --dtype fp8", "fp32|bf16|fp16");
    refuses(2, "attention --heads 0", "must be between");
    refuses(1, "attention --causal false --window 3", "--window 3 needs --causal");
    refuses(2, "attention --head 3", "heads");
    refuses(2, "ops --repeats often", "not a");
    refuses(1, "gemm --m 5 --k 6", "give -m, -n and -k together");
    refuses(1, "gemm --trans_b", "give -m, -n and -k together");
    refuses(1, "gemm --model nowhere", "nowhere");
    refuses(1, "gemm --model config.json --block 65", "65 is more than the model's 64 positions");
    refuses(1, "attention --heads 3 --kv_heads 2", "--kv_heads 2 must divide --heads 3");
    refuses(1, "ops --op nothing", "nothing: no such op");
    refuses(1, "ops --device abacus", "abacus");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_bench TXBENCH DEVICE\n");
        return 2;
    }
    txbench = argv[1];
    device = tx_test_device(argv[2]);
    folder = make_scratch();
    static const char config[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 300, \"n_positions\": 64, \"n_embd\": 32, "
                                 "\"n_layer\": 3, \"n_head\": 4}";
    static const char bert[] = "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], "
                               "\"vocab_size\": 300, \"hidden_size\": 32, \"num_hidden_layers\": 3, "
                               "\"num_attention_heads\": 4, \"intermediate_size\": 128, "
                               "\"max_position_embeddings\": 64}";
    char *path = tx_path_join(folder, "config.json"), *other = tx_path_join(folder, "bert.json");
    if (!path || tx_file_write(path, config, strlen(config)) || !other || tx_file_write(other, bert, strlen(bert)))
        return 1;
    free(path);
    free(other);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),      cmocka_unit_test(test_gemm_shape),  cmocka_unit_test(test_gemm_step),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_train_flops), cmocka_unit_test(test_ops),
        cmocka_unit_test(test_mistakes),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_scratch(folder);
    return failed;
}
