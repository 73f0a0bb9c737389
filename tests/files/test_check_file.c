/* SPDX-License-Identifier: Apache-2.0
 *
 * txcheck file from the outside: the line and the exit status for each kind of file and folder, good and bad.
 *
 *     test_check_file TXCHECK */
#include "tests/unit.h"

#include "models/files/checkpoint.h"
#include "models/files/safetensors.h"
#include "models/gguf/gguf.h"
#include "models/lora/lora.h"
#include "models/tx_text.h"
#include "tests/random_model.h"
#include "tx_json.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *txcheck;

/* Runs `txcheck file PATH`. Returns the exit status and writes the output. */
static int run(const char *path, char *output, size_t size)
{
    char command[4096];
    snprintf(command, sizeof command, "'%s' file '%s'", txcheck, path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t got = fread(output, 1, size - 1, pipe);
    output[got] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* One line, "PATH: " and `verdict` in the rest. After "ok" only the abilities of a model may follow. */
static void expect_path(const char *path, const char *verdict)
{
    char output[8192], begin[4096];
    bool good = strncmp(verdict, "ok", 2) == 0;
    int status = run(path, output, sizeof output);
    snprintf(begin, sizeof begin, "%s: ", path);
    const char *rest = output + strlen(begin), *end = strchr(output, '\n');
    if (status != (good ? 0 : 1) || strncmp(output, begin, strlen(begin)) != 0 || !end || end[1] ||
        (good && strncmp(rest, "ok\n", 3) != 0 && strncmp(rest, "ok: ", 4) != 0) || !strstr(rest, verdict))
        fail_msg("status %d, expected \"%s: %s\", got: %s", status, path, verdict, output);
}

static void expect(const char *folder, const char *name, const char *verdict)
{
    char *path = tx_path_join(folder, name);
    expect_path(path, verdict);
    free(path);
}

static void put(const char *folder, const char *name, const char *data, size_t size)
{
    char *path = tx_path_join(folder, name);
    assert_ok(tx_file_write(path, data, size));
    free(path);
}

static void put_text(const char *folder, const char *name, const char *text)
{
    put(folder, name, text, strlen(text));
}

/* A model of GPT-2's form with the byte vocabulary, in a folder. */
static void save_model(const char *folder, int64_t vocab, bool tokenizer)
{
    tx_config *config = NULL;
    tx_tokenizer *bytes;
    assert_ok(tx_config_preset("gpt2", &config));
    config->vocab_size = vocab;
    config->bos_token_id = config->eos_token_id = -1;
    config->positions = 8;
    config->width = 8;
    config->layers = 1;
    config->heads = 2;
    save_random_model(config, folder);
    tx_config_free(config);
    if (!tokenizer)
        return;
    assert_ok(tx_tokenizer_bytes(&bytes));
    assert_ok(tx_tokenizer_save(bytes, folder, 8));
    tx_tokenizer_free(bytes);
}

/* ---- Models -------------------------------------------------------------------------------------- */

static void test_model(void **state)
{
    char *folder = make_scratch(), *config = tx_path_join(folder, "config.json"), *text;
    char *weights = tx_path_join(folder, "model.safetensors");
    size_t size;
    save_model(folder, 257, true);
    expect_path(folder,
                "ok: gpt2 model: train, generate, GGUF; not --load_in_4bit (rows of transformer.h.0.attn.c_attn.");
    expect(folder, "", "ok"); /* with a slash at the end */
    expect(folder, "config.json", "ok");
    expect(folder, "model.safetensors", "ok");
    expect(folder, "tokenizer.json", "ok");
    expect(folder, "tokenizer_config.json", "ok");

    assert_ok(tx_file_read(config, 1 << 20, &text, &size));
    memcpy(strstr(text, "\"n_layer\": 1"), "\"n_layer\": 2", 12);
    put(folder, "config.json", text, size);
    expect_path(folder, "missing transformer.h.1.ln_1.weight");
    memcpy(strstr(text, "\"n_layer\": 2"), "\"n_layer\": 0", 12);
    put(folder, "config.json", text, size);
    expect_path(folder, "n_layer: expected an integer from 1 to 4096, found 0");
    expect(folder, "config.json", "n_layer: expected an integer from 1 to 4096, found 0");
    free(text);

    save_model(folder, 200, false);
    expect_path(folder, "the tokenizer has 257 ids, the model's vocabulary only 200");
    /* A value that is not finite, in the last parameter: in a model it counts, in a file by itself not. */
    FILE *file = fopen(weights, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -2, SEEK_END), 0);
    assert_int_equal(fwrite("\xC0\x7F", 1, 2, file), 2);
    assert_int_equal(fclose(file), 0);
    expect_path(folder, "transformer.ln_f.bias (F32) holds nan at element 7");
    expect(folder, "model.safetensors", "ok");
    assert_int_equal(unlink(weights), 0);
    expect_path(folder, "holds neither model.safetensors nor");
    put_text(folder, "tf_model.h5", "\x89HDF");
    expect_path(folder, "holds tf_model.h5 but no model.safetensors: convert it");
    put_text(folder, "pytorch_model.bin", "PK\3\4 and more than that");
    expect_path(folder, "the directory of the archive is missing");
    expect(folder, "pytorch_model.bin", "the directory of the archive is missing");
    assert_int_equal(unlink(config), 0);
    expect_path(folder, "the directory of the archive is missing");
    free(weights);
    free(config);
    remove_scratch(folder);
}

static void test_weights(void **state)
{
    char *folder = make_scratch(), *single = tx_path_join(folder, "model.safetensors");
    char *shard = tx_path_join(folder, "model-00001-of-00001.safetensors");
    save_model(folder, 257, false);
    assert_int_equal(rename(single, shard), 0);
    put_text(folder, "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../b\"}}");
    expect(folder, "model.safetensors.index.json", "the shard \"../b\" is not the plain name");
    expect_path(folder, "the shard \"../b\" is not the plain name");
    put_text(folder, "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"model-00001-of-00001.safetensors\"}}");
    expect(folder, "model.safetensors.index.json", "has no tensor a");
    put_text(folder, "pointer.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    expect(folder, "pointer.safetensors", "git-LFS pointer");
    put_text(folder, "page.safetensors", "\xEF\xBB\xBF\n <!DOCTYPE html><html>");
    expect(folder, "page.safetensors", "web page");
    put_text(folder, "old.safetensors",
             "\x80\x02\x8A\x0Al\xFC\x9C"
             "F\xF9 j\xA8P\x19.");
    expect(folder, "old.safetensors", "not a pickle of data: it is cut off");
    put_text(folder, "other.safetensors", "\x80\x02}q.");
    expect(folder, "other.safetensors", "Python pickle");
    /* Headers of 640 and 60 bytes, which begin as a pickle and a page do. */
    char wrong[8 + 640] = "\x80\x02";
    put(folder, "wrong.safetensors", wrong, sizeof wrong);
    expect(folder, "wrong.safetensors", "header, byte 0: expected {");
    memcpy(wrong, "<\0", 2);
    put(folder, "wrong.safetensors", wrong, 8 + 60);
    expect(folder, "wrong.safetensors", "header, byte 0: expected {");
    /* The format follows from the contents if the name has no suffix. */
    assert_int_equal(rename(shard, single), 0);
    char *other = tx_path_join(folder, "weights");
    assert_int_equal(rename(single, other), 0);
    expect(folder, "weights", "ok");
    assert_int_equal(truncate(other, 5000), 0);
    expect(folder, "weights", "cut off");
    free(other);
    free(shard);
    free(single);
    remove_scratch(folder);
}

/* ---- Other kinds ----------------------------------------------------------------------------------- */

static void test_others(void **state)
{
    char *folder = make_scratch(), *pipe = tx_path_join(folder, "pipe.safetensors");
    expect(folder, "none", "no such file or folder");
    expect_path(folder, "unknown kind of folder");
    put_text(folder, "README.md", "text");
    expect(folder, "README.md", "unknown kind of file");
    put_text(folder, "x.json", "{\"a\": 1}");
    expect(folder, "x.json", "unknown kind of JSON");
    put_text(folder, "x.json", "{\"model_type\": \"mamba\"}");
    expect(folder, "x.json", "model_type: \"mamba\": TX has no such type");
    put_text(folder, "x.json", "{\"model\": {\"type\": \"Mystery\"}}");
    expect(folder, "x.json", "type Mystery is not supported");
    put_text(folder, "x.json", "{\"weight_map\": {\"a\": \"b\"}}");
    expect(folder, "x.json", "cannot open");
    put_text(folder, "x.json", "{\"weight_map\": ");
    expect(folder, "x.json", "not valid JSON");
    put_text(folder, "generation_config.json", "[]");
    expect(folder, "generation_config.json", "not a JSON object");
    put_text(folder, "vocab.json", "{\"a\": 0}");
    expect(folder, "vocab.json", "no tokenizer");
    put_text(folder, "merges.txt", "#version: 0.2\na b\n");
    expect(folder, "merges.txt", "line 2: b is not in the vocabulary");
    put_text(folder, "x.jsonl", "{\"text\": \"ab\"}\n{\"txt\": \"ab\"}\n");
    expect(folder, "x.jsonl", "line 2");
    put_text(folder, "x.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n");
    expect(folder, "x.jsonl", "ok");
    put(folder, "x.bin", "\1\0\2\0\3", 5);
    expect(folder, "x.bin", "odd");
    put(folder, "x.bin", "\1\0\2\0\3\0", 6);
    expect(folder, "x.bin", "ok");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    expect_path(pipe, "neither a plain file nor a folder");
    free(pipe);
    remove_scratch(folder);
}

/* Data files as txtrain reads them, recognized by the keys of their first line or row. */
static void test_samples(void **state)
{
#define USER "{\"role\": \"user\", \"content\": \"a\"}"
#define ASSISTANT "{\"role\": \"assistant\", \"content\": \"b\"}"
    static const struct {
        const char *name, *text, *verdict;
    } files[] = {
        {"m.jsonl", "{\"messages\": [" USER ", " ASSISTANT "]}\n", "ok"},
        {"m.json", "[{\"messages\": [" USER ", " ASSISTANT "]}]", "ok"},
        {"p.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n", "ok"},
        {"l.json", "{\"prompt\": [" USER "], \"completion\": [" ASSISTANT "]}\n", "ok"},
        {"i.jsonl", "{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}\n", "ok"},
        {"s.jsonl", "{\"sentence\": \"a\", \"label\": 0}\n{\"sentence\": \"b\", \"label\": 1}\n", "ok"},
        {"r.jsonl", "{\"sentence\": \"a\", \"label\": 0.5}\n{\"sentence\": \"b\", \"label\": 1}\n", "ok"},
        {"n.jsonl", "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": \"neutral\"}\n", "ok"},
        {"t.tsv", "sentence\tlabel\na\t1\nb\t0\n", "ok"},
        {"c.csv", "sentence1,sentence2,label\na,b,x\nb,c,y\n", "ok"},
        {"t.txt", "a text\n", "ok"},
        {"m.jsonl", "{\"messages\": [" USER "]}\n{\"messages\": [{\"role\": \"usr\"}]}\n",
         "line 2: messages: message 1"},
        {"p.jsonl", "{\"prompt\": \"a\"}\n", "line 1: completion is missing"},
        {"i.jsonl", "{\"instruction\": \"a\"}\n", "line 1: output is missing"},
        {"t.tsv", "sentence\tlabel\na\n", "row 1"},
        {"c.csv", "words,label\na,1\n", "no column sentence"},
        {"x.jsonl", "{\"words\": \"a\"}\n", "line 1: text is missing"},
    };
    char *folder = make_scratch();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        put_text(folder, files[i].name, files[i].text);
        expect(folder, files[i].name, files[i].verdict);
    }
    remove_scratch(folder);
}

static void save_matrices(const char *folder, int64_t rank)
{
    const float zeros[64] = {0};
    const tx_st_tensor tensor[] = {
        {.name = TX_LORA_PREFIX "h.0.attn.c_attn.lora_A.weight", .dtype = TX_ST_F32, .rank = 2, .dim = {rank, 8}},
        {.name = TX_LORA_PREFIX "h.0.attn.c_attn.lora_B.weight", .dtype = TX_ST_F32, .rank = 2, .dim = {8, rank}}};
    char *path = tx_path_join(folder, TX_LORA_WEIGHTS);
    tx_st_writer *writer;
    assert_ok(tx_st_create(path, tensor, 2, &writer));
    for (int i = 0; i < 2; i++)
        assert_ok(tx_st_append(writer, zeros, (size_t)tx_st_bytes(&tensor[i])));
    assert_ok(tx_st_commit(writer));
    free(path);
}

static void test_adapter(void **state)
{
    char *folder = make_scratch();
    put_text(folder, TX_LORA_CONFIG,
             "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"target_modules\": [\"c_attn\"], "
             "\"fan_in_fan_out\": true}");
    expect(folder, TX_LORA_CONFIG, "ok");
    expect_path(folder, TX_LORA_WEIGHTS ": no such file");
    save_matrices(folder, 4);
    expect_path(folder, "ok");
    save_matrices(folder, 2);
    expect_path(folder, "is not a matrix of rank 4");
    put_text(folder, TX_LORA_CONFIG, "{\"peft_type\": \"IA3\"}");
    expect_path(folder, "IA3");
    expect(folder, TX_LORA_CONFIG, "IA3");
    remove_scratch(folder);
}

static void test_gguf(void **state)
{
    char *model = test_data("models/stories260K");
    char *folder = make_scratch(), *path = tx_path_join(folder, "a.gguf"), *data;
    size_t size;
    assert_ok(tx_gguf_export(model, path, TX_CONVERT_F32, NULL, NULL));
    expect(folder, "a.gguf", "ok");
    assert_ok(tx_file_read(path, 1 << 24, &data, &size));
    put(folder, "b.gguf", data, size / 2);
    expect(folder, "b.gguf", "cut off");
    put(folder, "b.bin2", data, size);
    expect(folder, "b.bin2", "ends with .gguf");
    free(data);
    free(model);
    free(path);
    remove_scratch(folder);
}

/* A link without a target is a missing part, even if all other files exist. */
static void test_links(void **state)
{
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json"};
    char *folder = make_scratch();
    save_model(folder, 257, true);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = tx_path_join(folder, names[i]), *away = tx_path_join(folder, "away");
        assert_int_equal(rename(path, away), 0);
        assert_int_equal(symlink("nowhere", path), 0);
        expect_path(folder, "is a link to a missing file");
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink("away", path), 0);
        expect_path(folder, "ok");
        assert_int_equal(rename(away, path), 0);
        free(path);
        free(away);
    }
    remove_scratch(folder);
}

static void test_checkpoint(void **state)
{
    char *folder = make_scratch(), *made = tx_path_join(folder, "checkpoint-3");
    tx_checkpoint *checkpoint;
    assert_ok(tx_checkpoint_begin(folder, 3, &checkpoint));
    save_model(tx_checkpoint_folder(checkpoint), 257, true);
    assert_ok(tx_checkpoint_commit(checkpoint));
    expect_path(made, "ok");
    expect(made, TX_CHECKPOINT_MANIFEST, "ok");
    put_text(made, "tokenizer_config.json", "{}");
    expect_path(made, "tokenizer_config.json: has 2 bytes");
    expect(made, TX_CHECKPOINT_MANIFEST, "tokenizer_config.json: has 2 bytes");
    put_text(made, "config.json", "{}");
    expect_path(made, "config.json: has 2 bytes");
    char *manifest = tx_path_join(made, TX_CHECKPOINT_MANIFEST);
    assert_int_equal(unlink(manifest), 0);
    expect_path(made, "not a complete checkpoint");
    free(manifest);
    free(made);
    remove_scratch(folder);
}

/* Several paths: a line each, in order; one that is bad decides. */
static void test_several(void **state)
{
    char *folder = make_scratch(), paths[1024], output[4096], wanted[1024];
    put_text(folder, "a b.bin", "abcd");
    put_text(folder, "c.bin", "abc");
    snprintf(paths, sizeof paths, "%s/a b.bin' '%s/c.bin' '%s/a b.bin", folder, folder, folder);
    assert_int_equal(run(paths, output, sizeof output), 1);
    snprintf(wanted, sizeof wanted, "%s/a b.bin: ok\n%s/c.bin: ", folder, folder);
    assert_memory_equal(output, wanted, strlen(wanted));
    snprintf(wanted, sizeof wanted, "\n%s/a b.bin: ok\n", folder);
    assert_string_equal(output + strlen(output) - strlen(wanted), wanted);
    snprintf(paths, sizeof paths, "%s/a b.bin' '%s/a b.bin", folder, folder);
    assert_int_equal(run(paths, output, sizeof output), 0);
    remove_scratch(folder);
}

/* Seconds of the processor that programs run from here took. */
static double seconds(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &usage), 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* ---- The cases of the test data ------------------------------------------------------------------------ */

static void test_cases(void **state)
{
    char *folder = test_data("safetensors_cases"), *list = tx_path_join(folder, "cases.json"), output[8192];
    tx_json *cases;
    int judged = 0;
    assert_ok(tx_json_read(list, 1 << 20, &cases));
    for (size_t i = 0; i < tx_json_size(cases); i++) {
        const char *name, *want;
        assert_ok(tx_json_get_string(tx_json_at(cases, i), "file", &name));
        assert_ok(tx_json_get_string(tx_json_at(cases, i), "want", &want));
        char *path = tx_path_join(folder, name);
        double begin = seconds();
        int status = run(path, output, sizeof output);
        double took = seconds() - begin;
        if (!(took < 1.0))
            fail_msg("%s: took %g s", name, took);
        if (strcmp(want, "accept") == 0 || strcmp(want, "reject") == 0) {
            if (status != (strcmp(want, "reject") == 0))
                fail_msg("%s: wanted %s, got: %s", name, want, output);
            judged++;
        }
        if (status > 1 || strncmp(output, path, strlen(path)) != 0)
            fail_msg("%s: status %d: %s", name, status, output);
        free(path);
    }
    assert_true(judged > 40);
    print_message("%d of %zu cases judged as wanted, the others judged\n", judged, tx_json_size(cases));
    tx_json_free(cases);
    free(list);
    free(folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),   cmocka_unit_test(test_weights),    cmocka_unit_test(test_others),
        cmocka_unit_test(test_samples), cmocka_unit_test(test_adapter),    cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_links),   cmocka_unit_test(test_checkpoint), cmocka_unit_test(test_several),
        cmocka_unit_test(test_cases),
    };
    if (argc != 2)
        return fprintf(stderr, "usage: test_check_file TXCHECK\n"), 2;
    txcheck = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
