/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of any model: written as one file or as shards and read back, all faults in one message, values that are not
 * finite, and how much memory loading takes. GPT-2's folders are tested in test_gpt2.c. */
#include "api/base/half.h"
#include "models/files/weights.h"
#include "tests/device_model.h"
#include "tx_json.h"

#include <pthread.h>
#include <sys/stat.h>

#define INDEX TX_WEIGHTS_INDEX

static void declare(fixture *f, const char *name, tx_shape shape, int64_t logical)
{
    tx_param_spec spec = {.shape = shape, .init = TX_INIT_NORMAL, .scale = 0.02f};
    if (logical) {
        spec.logical = shape;
        spec.logical.dim[0] = logical;
    }
    assert_non_null(tx_param(f->graph, name, &spec));
}

/* Parameters of 28, 80, 12 and 24 bytes; the second is padded. */
static void declare_four(fixture *f)
{
    declare(f, "a", TX_SHAPE(7), 0);
    declare(f, "b", TX_SHAPE(6, 4), 5);
    declare(f, "c", TX_SHAPE(3, 1), 0);
    declare(f, "d", TX_SHAPE(2, 3), 0);
}

static void same_name(const void *context, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    snprintf(param, TX_WEIGHTS_NAME, "%s", strcmp(tensor, "known") == 0 ? "" : tensor);
}

static tx_status load(fixture *f, const char *path, const tx_load_options *options)
{
    tx_weights *weights;
    tx_status status = tx_weights_open(path, &weights);
    if (status)
        return status;
    status = tx_weights_load(weights, f->model, &(tx_weights_names){.rename = same_name}, options);
    tx_weights_close(weights);
    return status;
}

/* ---- Shards ---------------------------------------------------------------------------------------- */

static bool there(const fixture *f, const char *name)
{
    bool exists = tx_file_exists(TX_PATH(f->folder, name));
    return exists;
}

/* Saves, spoils the model and loads again: the same bits. Returns the number of files. */
static int save_and_load(fixture *f, int64_t shard_bytes)
{
    float before[64], after[64];
    int64_t used = 0, at = 0;
    assert_ok(tx_model_init(f->model, (uint64_t)shard_bytes));
    assert_ok(tx_weights_save(f->model, f->folder, shard_bytes));
    for (int pass = 0; pass < 2; pass++) {
        at = 0;
        for (int32_t p = 0; p < tx_model_param_count(f->model); p++) {
            const char *name;
            const tx_param_spec *spec;
            assert_ok(tx_model_param(f->model, p, &name, &spec));
            assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, p, (pass ? after : before) + at));
            at += tx_shape_count(spec->logical.rank ? &spec->logical : &spec->shape);
        }
        used = at;
        if (pass == 0) {
            assert_ok(tx_model_init(f->model, 99));
            assert_ok(load(f, f->folder, NULL));
        }
    }
    assert_int_equal(used, 7 + 20 + 3 + 6);
    assert_memory_equal(before, after, (size_t)used * sizeof before[0]);
    return count_entries(f->folder);
}

static void test_shards(void **state)
{
    fixture *f = *state;
    declare_four(f);
    assert_int_equal(save_and_load(f, TX_WEIGHTS_SHARD), 1);
    assert_true(there(f, "model.safetensors"));
    /* 28 | 80 | 12 + 24: the second is over the limit by itself. */
    assert_int_equal(save_and_load(f, 50), 4);
    assert_true(there(f, INDEX) && there(f, "model-00001-of-00003.safetensors") && !there(f, "model.safetensors"));
    /* 28 + 80 | 12 + 24; exactly the limit is not over it. */
    assert_int_equal(save_and_load(f, 108), 3);
    assert_true(there(f, "model-00002-of-00002.safetensors") && !there(f, "model-00003-of-00003.safetensors"));
    assert_int_equal(save_and_load(f, 107), 4);
    assert_int_equal(save_and_load(f, 1), 5);
    /* Files that are not weights are kept. */
    assert_ok(tx_file_write(TX_PATH(f->folder, "model-1-of-4.safetensors"), "x", 1));
    assert_int_equal(save_and_load(f, 144), 2);
    assert_true(there(f, "model.safetensors"));
    assert_refused(tx_weights_save(f->model, f->folder, 0), TX_INVALID, "at least 1 byte");
}

static void test_index(void **state)
{
    fixture *f = *state;
    tx_json *index, *metadata, *map;
    const char *shard;
    int64_t value;
    declare_four(f);
    save_and_load(f, 108);
    char *path = TX_PATH(f->folder, INDEX);
    assert_ok(tx_json_read(path, 1 << 20, &index));
    assert_ok(tx_json_get(index, "metadata", TX_JSON_OBJECT, &metadata));
    assert_ok(tx_json_get_int(metadata, "total_size", 144, 144, &value));
    assert_ok(tx_json_get_int(metadata, "total_parameters", 36, 36, &value));
    assert_ok(tx_json_get(index, "weight_map", TX_JSON_OBJECT, &map));
    assert_int_equal(tx_json_size(map), 4);
    assert_ok(tx_json_get_string(map, "c", &shard));
    assert_string_equal(shard, "model-00002-of-00002.safetensors");
    tx_json_free(index);

    /* The index by itself, one shard by itself. */
    assert_ok(load(f, path, NULL));
    char *second = TX_PATH(f->folder, "model-00002-of-00002.safetensors");
    assert_refused(load(f, second, NULL), TX_FORMAT, "missing a, b");
    assert_non_null(strstr(tx_error(), second));
}

/* A shard that cannot be written leaves no index, so that old and new shards are not read as one model. */
static void test_failed_save(void **state)
{
    fixture *f = *state;
    declare_four(f);
    save_and_load(f, 108);
    char *second = TX_PATH(f->folder, "model-00002-of-00002.safetensors"), *in = TX_PATH(second, "x");
    assert_int_equal(unlink(second), 0);
    assert_ok(tx_folder_create(second)); /* which no file can replace */
    assert_ok(tx_file_write(in, "x", 1));
    assert_refused(tx_weights_save(f->model, f->folder, 108), TX_FORMAT, second);
    assert_false(there(f, INDEX));
    assert_refused(load(f, f->folder, NULL), TX_NOT_FOUND, "holds neither");
}

/* ---- Faults ------------------------------------------------------------------------------------------ */

/* Writes model.safetensors of zeroed tensors. */
static void write_zeros(const fixture *f, const tx_st_tensor *list, int32_t count)
{
    static const char zeros[4096];
    tx_st_writer *writer;
    assert_ok(tx_st_create(TX_PATH(f->folder, "model.safetensors"), list, count, &writer));
    for (int32_t i = 0; i < count; i++)
        assert_ok(tx_st_append(writer, zeros, (size_t)tx_st_bytes(&list[i])));
    assert_ok(tx_st_commit(writer));
}

static void test_all_faults_at_once(void **state)
{
    fixture *f = *state;
    declare_four(f);
    declare(f, "e", TX_SHAPE(2), 0);
    static const tx_st_tensor list[] = {
        {.name = "b", .dtype = TX_ST_F32, .rank = 2, .dim = {6, 4}},
        {.name = "d", .dtype = TX_ST_F32, .rank = 2, .dim = {3, 2}},
        {.name = "e", .dtype = TX_ST_I32, .rank = 1, .dim = {2}},
        {.name = "x", .dtype = TX_ST_F32, .rank = 6, .dim = {1, 1, 1, 1, 1, 1}},
        {.name = "c", .dtype = TX_ST_F32, .rank = 6, .dim = {1, 1, 1, 1, 3, 1}},
        {.name = "known", .dtype = TX_ST_U8, .rank = 1, .dim = {3}},
        {.name = "y\nz", .dtype = TX_ST_U8, .rank = 0},
    };
    write_zeros(f, list, sizeof list / sizeof list[0]);
    assert_refused(
        load(f, f->folder, NULL), TX_FORMAT,
        "the weights do not fit the model: missing a; unexpected x, y\\nz; wrong shape b ([6, 4], the "
        "configuration requires [5, 4]), d ([3, 2], the configuration requires [2, 3]: stored transposed), c "
        "(of 6 dimensions); wrong type e (I32, not F32, F16, BF16 or F64)");
    assert_non_null(strstr(tx_error(), f->folder));
}

/* Up to 20 names of a kind are listed. */
static void test_many_faults(void **state)
{
    fixture *f = *state;
    enum { MANY = 60 };
    char missing[MANY][64], extra[MANY][64];
    tx_st_tensor list[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(missing[i], sizeof missing[i], "transformer.h.%d.attn.c_attn.weight", i);
        snprintf(extra[i], sizeof extra[i], "model.layers.%d.self_attn.q_proj.weight", i);
        list[i] = (tx_st_tensor){.name = extra[i], .dtype = TX_ST_F32, .rank = 1, .dim = {1}};
        declare(f, missing[i], TX_SHAPE(1), 0);
    }
    write_zeros(f, list, 20);
    assert_refused(load(f, f->folder, NULL), TX_FORMAT, "transformer.h.19.attn.c_attn.weight and 40 more; unexpected");
    for (int i = 0; i < 20; i++)
        assert_true(strstr(tx_error(), missing[i]) && strstr(tx_error(), extra[i]));
    assert_null(strstr(tx_error(), missing[20]));
    write_zeros(f, list, MANY);
    assert_refused(load(f, f->folder, NULL), TX_FORMAT, "model.layers.19.self_attn.q_proj.weight and 40 more");
}

/* ---- Values ------------------------------------------------------------------------------------------ */

/* A file of one tensor "w" of the given bytes. */
static void write_one(const fixture *f, tx_st_dtype dtype, int64_t count, const void *data)
{
    tx_st_tensor tensor = {.name = "w", .dtype = dtype, .rank = 1, .dim = {count}};
    tx_st_writer *writer;
    assert_ok(tx_st_create(TX_PATH(f->folder, "model.safetensors"), &tensor, 1, &writer));
    assert_ok(tx_st_append(writer, data, (size_t)tx_st_bytes(&tensor)));
    assert_ok(tx_st_commit(writer));
}

/* Every number of 16 bits, and fp64 numbers on both sides of the middle between two fp32 numbers. */
static void test_types(void **state)
{
    fixture *f = *state;
    enum { ALL = 65536 };
    uint16_t *half = malloc(ALL * sizeof *half);
    float *got = malloc(ALL * sizeof *got);
    double wide[ALL / 256];
    tx_load_options any = {.size = sizeof any, .allow_nonfinite = true};
    assert_true(half && got);
    declare(f, "w", TX_SHAPE(ALL), 0);
    for (int i = 0; i < ALL; i++)
        half[i] = (uint16_t)i;
    for (int kind = 0; kind < 2; kind++) {
        write_one(f, kind ? TX_ST_BF16 : TX_ST_F16, ALL, half);
        assert_ok(load(f, f->folder, &any));
        assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, 0, got));
        for (int i = 0; i < ALL; i++) {
            float want = kind ? tx_bf16_to_f32(half[i]) : tx_f16_to_f32(half[i]);
            assert_true(isnan(want) ? isnan(got[i]) : memcmp(&got[i], &want, sizeof want) == 0);
        }
    }
    for (int i = 0; i < ALL / 256; i++)
        wide[i] = 1.0 + ((double)i + (i % 3 == 0 ? 0.5 : i % 3 == 1 ? 0.5000001 : 0.4999999)) * 0x1p-23;
    tx_st_file *file;
    write_one(f, TX_ST_F64, ALL / 256, wide);
    assert_ok(tx_st_open(TX_PATH(f->folder, "model.safetensors"), &file));
    assert_ok(tx_st_read_f32(file, 0, 0, ALL / 256, got));
    tx_st_close(file);
    for (int i = 0; i < ALL / 256; i++) {
        int ulps = i + (i % 3 == 1 || (i % 3 == 0 && i % 2 == 1)); /* a half goes to even */
        assert_true(got[i] == 1.0f + (float)ulps * 0x1p-23f);
    }
    free(half);
    free(got);
}

static void test_non_finite(void **state)
{
    fixture *f = *state;
    tx_load_options any = {.size = sizeof any, .allow_nonfinite = true};
    enum { COUNT = 1200000, AT = 1100000 }; /* beyond the first piece */
    double *wide = calloc(COUNT, sizeof *wide);
    float *got = malloc(COUNT * sizeof *got);
    assert_true(wide && got);
    declare(f, "w", TX_SHAPE(COUNT), 0);
    wide[AT] = 1e300; /* finite, but not as fp32 */
    write_one(f, TX_ST_F64, COUNT, wide);
    assert_refused(load(f, f->folder, NULL), TX_FORMAT, "tensor w (F64) holds inf at element 1100000");
    assert_ok(load(f, f->folder, &any));
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, 0, got));
    assert_true(isinf(got[AT]) && got[AT - 1] == 0);
    wide[AT] = NAN;
    write_one(f, TX_ST_F64, COUNT, wide);
    assert_refused(load(f, f->folder, NULL), TX_FORMAT, "holds nan at element 1100000");
    any.size = 1;
    assert_refused(load(f, f->folder, &any), TX_INVALID, "size is 1");
    free(wide);
    free(got);
}

/* A parameter of the type in the file has its bits, also those of NaN. */
static void test_same_bits(void **state)
{
    fixture *f = *state;
    enum { COUNT = 3 * 65536 + 5 }; /* several parts */
    tx_load_options any = {.size = sizeof any, .allow_nonfinite = true};
    uint16_t *half = malloc(COUNT * sizeof *half);
    assert_non_null(half);
    for (int i = 0; i < COUNT; i++)
        half[i] = (uint16_t)(7 * i);
    for (int kind = 0; kind < 2; kind++) {
        void *memory;
        tx_graph_free(f->graph);
        tx_model_free(f->model);
        assert_ok(tx_model_create(f->engine, &f->model));
        assert_ok(tx_model_store(f->model, kind ? TX_BF16 : TX_F16));
        assert_ok(tx_graph_create(f->model, &f->graph));
        declare(f, "w", TX_SHAPE(COUNT), 0);
        write_one(f, kind ? TX_ST_BF16 : TX_ST_F16, COUNT, half);
        assert_ok(load(f, f->folder, &any));
        assert_ok(tx_model_map(f->model, 0, &memory));
        assert_memory_equal(memory, half, COUNT * sizeof *half);
        assert_refused(load(f, f->folder, NULL), TX_FORMAT, kind ? "nan at element 4663" : "nan at element 4535");
    }
    free(half);
}

/* The other thread cuts a file and restores its size. */
static void *cut(void *path)
{
    struct stat info;
    int failed = stat(path, &info);
    for (int i = 0; i < 200 && !failed; i++)
        failed = truncate(path, i % 2 ? info.st_size : 1000);
    return failed ? path : NULL;
}

/* A file that becomes shorter before it is read, or meanwhile, gives an error or the data, and no signal. */
static void test_shrinking(void **state)
{
    fixture *f = *state;
    enum { COUNT = 1200000 };
    char path[512];
    float *data = calloc(COUNT, sizeof *data);
    tx_weights *weights;
    struct stat info;
    pthread_t thread;
    void *failed = NULL;
    assert_non_null(data);
    snprintf(path, sizeof path, "%s/model.safetensors", f->folder);
    declare(f, "w", TX_SHAPE(COUNT), 0);
    write_one(f, TX_ST_F32, COUNT, data);
    assert_ok(tx_weights_open(f->folder, &weights));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, 2000000), 0);
    assert_refused(tx_weights_load(weights, f->model, &(tx_weights_names){.rename = same_name}, NULL), TX_IO,
                   "has 2000000 bytes");
    assert_int_equal(truncate(path, info.st_size), 0);
    assert_int_equal(pthread_create(&thread, NULL, cut, path), 0);
    for (int i = 0; i < 20; i++) {
        const tx_status status = tx_weights_load(weights, f->model, &(tx_weights_names){.rename = same_name}, NULL);
        assert_true(status == TX_OK || status == TX_IO);
    }
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_ok(tx_weights_load(weights, f->model, &(tx_weights_names){.rename = same_name}, NULL));
    tx_weights_close(weights);
    free(data);
}

/* ---- Memory ------------------------------------------------------------------------------------------ */

/* Returns a line of /proc/self/status in kB; skips the test if there is no such line. */
static long status_line(const char *key)
{
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && value < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            value = strtol(line + strlen(key), NULL, 10);
    if (file)
        fclose(file);
    if (value < 0) {
        print_message("/proc/self/status does not tell %s; skipped\n", key);
        skip();
    }
    return value;
}

/* The peak of memory while 64 MB are loaded is not 64 MB more than before. */
static void test_memory(void **state)
{
    fixture *f = *state;
    declare(f, "w", TX_SHAPE(4096, 4096), 0);
    assert_ok(tx_model_init(f->model, 1));
    assert_ok(tx_weights_save(f->model, f->folder, TX_WEIGHTS_SHARD));
    assert_ok(tx_model_init(f->model, 2)); /* the arena is in memory now */
    FILE *reset = fopen("/proc/self/clear_refs", "w");
    bool done = reset && fputs("5", reset) >= 0;
    if ((reset && fclose(reset) != 0) || !done) {
        print_message("the peak of memory cannot be reset here; skipped\n");
        skip();
    }
    long before = status_line("VmRSS:");
    assert_ok(load(f, f->folder, NULL));
    long grown = status_line("VmHWM:") - before;
    print_message("loading 65536 kB took %ld kB at the peak\n", grown);
    assert_true(grown < 16384);
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up_folder, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_shards),      test(test_index),  test(test_failed_save), test(test_all_faults_at_once),
        test(test_many_faults), test(test_types),  test(test_non_finite),  test(test_same_bits),
        test(test_shrinking),   test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
