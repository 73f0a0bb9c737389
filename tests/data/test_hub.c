/* SPDX-License-Identifier: Apache-2.0
 * Models and datasets by name, in copies of the folders of TX and of Hugging Face's cache. */

#include "models/files/hub.h"
#include "models/files/splits.h"
#include "tests/scratch.h"

static char *root;

/* root/NAME, allocated. */
static char *under(const char *name)
{
    char *path = tx_path_join(root, name);
    assert_non_null(path);
    return path;
}

/* Makes an empty file root/NAME and its folders. */
static void put(const char *name, const char *text)
{
    char *path = under(name), *slash = strrchr(path, '/');
    *slash = '\0';
    assert_ok(tx_folder_create(path));
    *slash = '/';
    assert_ok(tx_file_write(path, text, strlen(text)));
    free(path);
}

static void set_under(const char *variable, const char *name)
{
    char *path = under(name);
    setenv(variable, path, 1);
    free(path);
}

static int begin(void **state)
{
    static const char *const others[] = {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "TX_HOME"};
    root = make_scratch();
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        unsetenv(others[i]);
    set_under("HOME", "home");
    return chdir(root);
}

static int end(void **state)
{
    remove_scratch(root);
    return 0;
}

static void expect_model(const char *name, const char *folder)
{
    char *found = NULL, *want = folder[0] == '.' ? strdup(folder) : under(folder);
    assert_ok(tx_hub_model(name, &found));
    assert_string_equal(found, want);
    free(found);
    free(want);
}

static void refuse_model(const char *name, tx_status status, const char *text)
{
    char *found = NULL;
    assert_refused(tx_hub_model(name, &found), status, text);
    assert_null(found);
}

static void expect_dataset(const char *name, const char *config, const char *folder)
{
    char *found = NULL, *want = folder[0] == '.' ? strdup(folder) : under(folder);
    assert_ok(tx_hub_dataset(name, config, &found));
    assert_string_equal(found, want);
    free(found);
    free(want);
}

static void refuse_dataset(const char *name, const char *config, tx_status status, const char *text)
{
    char *found = NULL;
    assert_refused(tx_hub_dataset(name, config, &found), status, text);
    assert_null(found);
}

/* ---- Models ------------------------------------------------------------------------------------------- */

static void model_paths(void **state)
{
    put("own/model/config.json", "{}");
    put("bare/file", "");
    expect_model("./own/model", "./own/model");
    expect_model("./bare", "./bare"); /* not changed; the code that opens it reports missing files */
    char *path = under("own/model");
    expect_model(path, "own/model");
    free(path);
    refuse_model("./nothing", TX_NOT_FOUND, "./nothing: no such file or folder");
    refuse_model("a/b/c", TX_NOT_FOUND, "a/b/c: no such file or folder");
    refuse_model("", TX_NOT_FOUND, "no such file or folder");
    refuse_model("../../x", TX_NOT_FOUND, "no such file");
    refuse_model("a b; rm", TX_NOT_FOUND, "no such file");
    refuse_model("-x", TX_NOT_FOUND, "no such file");
    refuse_model("a--b", TX_NOT_FOUND, "no such file");
    refuse_model("owner/..", TX_NOT_FOUND, "no such file");
}

static void model_nowhere(void **state)
{
    refuse_model("gpt2-nowhere", TX_NOT_FOUND,
                 "gpt2-nowhere: no such model here; to fetch it: hf download gpt2-nowhere (");
    refuse_model("some/model", TX_NOT_FOUND, "hf download some/model (");
    assert_non_null(strstr(tx_error(), "/home/.local/share/tx/models/some/model"));
    assert_non_null(strstr(tx_error(), "/home/.cache/huggingface/hub/models--some--model)"));
}

static void model_at_home(void **state)
{
    put("home/.local/share/tx/models/tiny/config.json", "{}");
    expect_model("tiny", "home/.local/share/tx/models/tiny");
    put("data/tx/models/tiny/config.json", "{}");
    set_under("XDG_DATA_HOME", "data");
    expect_model("tiny", "data/tx/models/tiny");
    put("txhome/models/tiny/config.json", "{}");
    put("txhome/models/openai-community/gpt2-xl/config.json", "{}");
    set_under("TX_HOME", "txhome");
    expect_model("tiny", "txhome/models/tiny");
    expect_model("openai-community/gpt2-xl", "txhome/models/openai-community/gpt2-xl");
    expect_model("gpt2-xl", "txhome/models/openai-community/gpt2-xl");
    put("txhome/models/half/model.safetensors", "");
    refuse_model("half", TX_NOT_FOUND, "txhome/models/half has no config.json");
    unsetenv("TX_HOME");
    unsetenv("XDG_DATA_HOME");
}

static void model_in_the_cache(void **state)
{
    const char *hub = "home/.cache/huggingface/hub/";
    char name[200];
#define PUT(rest, text) (snprintf(name, sizeof name, "%s%s", hub, rest), put(name, text))
#define EXPECT(model, rest) (snprintf(name, sizeof name, "%s%s", hub, rest), expect_model(model, name))
    PUT("models--o--main/snapshots/aaa/config.json", "{}");
    PUT("models--o--main/snapshots/bbb/config.json", "{}");
    refuse_model("o/main", TX_NOT_FOUND, "has no refs/main and no single snapshot");
    PUT("models--o--main/refs/main", "bbb\n");
    EXPECT("o/main", "models--o--main/snapshots/bbb");
    PUT("models--o--main/refs/main", "../../../x");
    refuse_model("o/main", TX_NOT_FOUND, "refs/main does not name a snapshot");
    PUT("models--o--main/refs/main", "ccc");
    refuse_model("o/main", TX_NOT_FOUND, "hf download o/main (");
    PUT("models--o--single/snapshots/abc/config.json", "{}");
    EXPECT("o/single", "models--o--single/snapshots/abc");
    PUT("models--o--half/snapshots/abc/tokenizer.json", "{}");
    refuse_model("o/half", TX_NOT_FOUND, "snapshots/abc has no config.json");
    PUT("models--openai-community--gpt2/snapshots/abc/config.json", "{}");
    EXPECT("openai-community/gpt2", "models--openai-community--gpt2/snapshots/abc");
    EXPECT("gpt2", "models--openai-community--gpt2/snapshots/abc");
    PUT("models--gpt2/snapshots/def/config.json", "{}");
    PUT("models--gpt2/refs/main", "def");
    EXPECT("gpt2", "models--gpt2/snapshots/def");
    PUT("models--distilgpt2/snapshots/def/config.json", "{}");
    EXPECT("distilbert/distilgpt2", "models--distilgpt2/snapshots/def");
#undef PUT
#undef EXPECT
}

static void which_cache(void **state)
{
    put("home/.cache/huggingface/hub/models--m/snapshots/a/config.json", "{}");
    put("xdg/huggingface/hub/models--m/snapshots/b/config.json", "{}");
    put("hf/hub/models--m/snapshots/c/config.json", "{}");
    put("hub/models--m/snapshots/d/config.json", "{}");
    setenv("HF_HOME", "", 1); /* as if it were not set */
    expect_model("m", "home/.cache/huggingface/hub/models--m/snapshots/a");
    set_under("XDG_CACHE_HOME", "xdg");
    expect_model("m", "xdg/huggingface/hub/models--m/snapshots/b");
    set_under("HF_HOME", "hf");
    expect_model("m", "hf/hub/models--m/snapshots/c");
    set_under("HF_HUB_CACHE", "hub");
    expect_model("m", "hub/models--m/snapshots/d");
    set_under("TX_HOME", "txhome");
    put("txhome/models/m/config.json", "{}");
    expect_model("m", "txhome/models/m"); /* before the cache */
    unsetenv("TX_HOME");
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_HOME");
    unsetenv("XDG_CACHE_HOME");
    char *home = strdup(getenv("HOME"));
    unsetenv("HOME");
    refuse_model("m", TX_NOT_FOUND, "neither TX_HOME nor HOME is set");
    setenv("HOME", home, 1);
    free(home);
}

/* ---- Datasets ----------------------------------------------------------------------------------------- */

static void datasets(void **state)
{
    put("txhome/datasets/wikitext/wikitext-2-raw-v1/wiki.train.raw", "");
    put("txhome/datasets/plain/train.txt", "");
    put("txhome/datasets/two/train.txt", "");
    put("txhome/datasets/two/train.jsonl", "");
    put("local/config/val.bin", "");
    set_under("TX_HOME", "txhome");
    expect_dataset("wikitext", "wikitext-2-raw-v1", "txhome/datasets/wikitext/wikitext-2-raw-v1");
    expect_dataset("Salesforce/wikitext", "wikitext-2-raw-v1", "txhome/datasets/wikitext/wikitext-2-raw-v1");
    expect_dataset("plain", NULL, "txhome/datasets/plain");
    expect_dataset("two", NULL, "txhome/datasets/two"); /* which of the files is asked later */
    expect_dataset("./local", "config", "./local/config");
    refuse_dataset("./local", NULL, TX_NOT_FOUND, "./local: not a folder with a train");
    refuse_dataset("./local", "other", TX_NOT_FOUND, "./local/other: not a folder with a train");
    refuse_dataset("./local", "..", TX_INVALID, "not the name of a configuration");
    refuse_dataset("./local", "a/b", TX_INVALID, "not the name of a configuration");
    refuse_dataset("./local/config/val.bin", NULL, TX_INVALID, "not a folder");
    refuse_dataset("plain", "config", TX_NOT_FOUND, "plain/config: no such dataset here");
    put("home/.cache/huggingface/hub/datasets--o--d/snapshots/a/c/train.jsonl", "");
    expect_dataset("o/d", "c", "home/.cache/huggingface/hub/datasets--o--d/snapshots/a/c");
    unsetenv("TX_HOME");
}

/* A dataset of one configuration needs no name for it; several are listed. */
static void configurations(void **state)
{
    put("hub1/plain_text/train-00000-of-00001.parquet", "");
    put("hub1/README.md", "");
    expect_dataset("./hub1", NULL, "./hub1/plain_text");
    put("hub2/a/train.jsonl", "");
    put("hub2/b/train.jsonl", "");
    refuse_dataset("./hub2", NULL, TX_INVALID, "./hub2 has several configurations: choose one of a, b");
    expect_dataset("./hub2", "b", "./hub2/b");
    refuse_dataset("./hub1", "x", TX_NOT_FOUND, "./hub1/x: not a folder");
    refuse_dataset("some/data", NULL, TX_NOT_FOUND, "to fetch it: hf download --repo-type dataset some/data (");
}

/* ---- Splits -------------------------------------------------------------------------------------------- */

static void expect_split(const char *folder, tx_split split, const char *file)
{
    tx_names found = {0};
    assert_ok(tx_hub_split(folder, split, &found));
    assert_int_equal(found.count, 1);
    assert_string_equal(found.name[0], file);
    tx_names_free(&found);
}

static void splits(void **state)
{
    tx_names found = {0};
    put("s1/wiki.train.raw", "");
    put("s1/wiki.valid.raw", "");
    put("s1/wiki.test.raw", "");
    put("s1/constrain.txt", "");
    put("s1/train.parquet.xz", "");
    put("s1/.train.txt", "");
    put("s1/train.txt.xz", "");
    put("s1/latest.txt", "");
    put("s1/train.tokens/x", "");
    expect_split("s1", TX_SPLIT_TRAIN, "s1/wiki.train.raw");
    expect_split("s1", TX_SPLIT_VALIDATION, "s1/wiki.valid.raw");
    expect_split("s1", TX_SPLIT_TEST, "s1/wiki.test.raw");
    put("s2/tiny_shakespeare_train.bin", "");
    put("s2/tiny_shakespeare_val.bin", "");
    expect_split("s2", TX_SPLIT_TRAIN, "s2/tiny_shakespeare_train.bin");
    expect_split("s2", TX_SPLIT_VALIDATION, "s2/tiny_shakespeare_val.bin");
    assert_refused(tx_hub_split("s2", TX_SPLIT_TEST, &found), TX_NOT_FOUND, "s2: no test file");
    put("s3/validation.jsonl", "");
    expect_split("s3", TX_SPLIT_VALIDATION, "s3/validation.jsonl");
    put("s3/valid.txt", "");
    assert_refused(tx_hub_split("s3", TX_SPLIT_VALIDATION, &found), TX_INVALID,
                   "s3: both valid.txt and validation.jsonl could be the validation file");
    put("s5/dev.tsv", ""); /* GLUE's own files, and what its dataset is saved as */
    put("s5/test_matched.jsonl", "");
    expect_split("s5", TX_SPLIT_VALIDATION, "s5/dev.tsv");
    expect_split("s5", TX_SPLIT_TEST, "s5/test_matched.jsonl");
    put("s6/validation_matched.jsonl", "");
    put("s6/validation_mismatched.jsonl", "");
    put("s6/train.json", "");
    expect_split("s6", TX_SPLIT_VALIDATION, "s6/validation_matched.jsonl");
    expect_split("s6", TX_SPLIT_TRAIN, "s6/train.json");
    put("s7/train-00000-of-00001.jsonl.gz", "");
    put("s7/validation.csv.zst", "");
    expect_split("s7", TX_SPLIT_TRAIN, "s7/train-00000-of-00001.jsonl.gz");
    expect_split("s7", TX_SPLIT_VALIDATION, "s7/validation.csv.zst");
    assert_refused(tx_hub_split("s4", TX_SPLIT_TRAIN, &found), TX_NOT_FOUND, "s4");
    assert_refused(tx_hub_split("s3/valid.txt", TX_SPLIT_TRAIN, &found), TX_IO, "s3/valid.txt");
    assert_int_equal(found.count, 0);
}

/* The layouts of datasets on the Hub. */
static void shards(void **state)
{
    tx_names found = {0};
    put("h1/data/train-00000-of-00002.parquet", "");
    put("h1/data/train-00001-of-00002.parquet", "");
    put("h1/data/test-00000-of-00001-0123456789abcdef.parquet", "");
    put("h1/dataset_infos.json", "");
    assert_ok(tx_hub_split("h1", TX_SPLIT_TRAIN, &found));
    assert_int_equal(found.count, 2);
    assert_string_equal(found.name[1], "h1/data/train-00001-of-00002.parquet");
    tx_names_free(&found);
    expect_split("h1", TX_SPLIT_TEST, "h1/data/test-00000-of-00001-0123456789abcdef.parquet");
    put("h2/train-00000-of-00003.parquet", "");
    put("h2/train-00002-of-00003.parquet", "");
    assert_refused(tx_hub_split("h2", TX_SPLIT_TRAIN, &found), TX_FORMAT, "h2: shard 1 of 3 of train is missing");
    put("h3/train-00000-of-00002.parquet", "");
    assert_refused(tx_hub_split("h3", TX_SPLIT_TRAIN, &found), TX_FORMAT, "only 1 of the 2 shards");
    put("h4/train/0000.parquet", "");
    put("h4/train/0001.parquet", "");
    assert_ok(tx_hub_split("h4", TX_SPLIT_TRAIN, &found));
    assert_int_equal(found.count, 2);
    tx_names_free(&found);
    put("h5/data/train_sft-00000-of-00001.parquet", "");
    expect_split("h5", TX_SPLIT_TRAIN, "h5/data/train_sft-00000-of-00001.parquet");
    put("h5/data/train_gen-00000-of-00001.parquet", "");
    assert_refused(tx_hub_split("h5", TX_SPLIT_TRAIN, &found), TX_INVALID, "both train_gen-00000-of-00001.parquet and");
    put("h6/README.md", "");
    put("h6/databricks-dolly-15k.jsonl", "");
    expect_split("h6", TX_SPLIT_TRAIN, "h6/databricks-dolly-15k.jsonl");
    assert_refused(tx_hub_split("h6", TX_SPLIT_TEST, &found), TX_NOT_FOUND, "h6: no test file");
    assert_int_equal(found.count, 0);
}

static void option_values(void **state)
{
    tx_names found = {0};
    put("o/a,b.txt", "");
    assert_ok(tx_data_files("o/a,b.txt", &found));
    assert_int_equal(found.count, 1);
    tx_names_free(&found);
    put("o/x-1.jsonl", "");
    put("o/x-2.jsonl", "");
    assert_ok(
        tx_data_files("o/missing.txt,o/x-*.jsonl", &found)); /* a missing file is reported by the one that opens it */
    assert_int_equal(found.count, 3);
    assert_string_equal(found.name[2], "o/x-2.jsonl");
    tx_names_free(&found);
    assert_refused(tx_data_files("o/y-*.jsonl", &found), TX_NOT_FOUND, "o/y-*.jsonl: no such file");
    assert_refused(tx_data_files(",", &found), TX_INVALID, "names no file");
}

/* A folder stands for its data files and those of its folders. Files of other kinds and hidden ones are left out. */
static void folders_of_texts(void **state)
{
    static const char *const right[] = {"t/a.md", "t/b.txt", "t/sub/c.jsonl", "t/sub/d.txt.gz", "o/one.txt"};
    tx_names found = {0};
    put("t/b.txt", "");
    put("t/a.md", "");
    put("t/sub/c.jsonl", "");
    put("t/sub/d.txt.gz", "");
    put("t/sub/picture.png", "");
    put("t/.git/e.txt", "");
    put("t/.hidden.txt", "");
    put("o/one.txt", "");
    put("none/picture.png", "");
    assert_ok(tx_data_files("t,o/one.txt", &found));
    assert_int_equal(found.count, sizeof right / sizeof right[0]);
    for (size_t i = 0; i < found.count; i++)
        assert_string_equal(found.name[i], right[i]);
    tx_names_free(&found);
    assert_refused(tx_data_files("none", &found), TX_NOT_FOUND, "none: the folder has no file that TX can read");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_paths),        cmocka_unit_test(model_nowhere),    cmocka_unit_test(model_at_home),
        cmocka_unit_test(model_in_the_cache), cmocka_unit_test(which_cache),      cmocka_unit_test(datasets),
        cmocka_unit_test(configurations),     cmocka_unit_test(splits),           cmocka_unit_test(shards),
        cmocka_unit_test(option_values),      cmocka_unit_test(folders_of_texts),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
