/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2: the graph that is built, decoding with caches, and weights from and to folders, with the faults that
 * such a folder can have. */
#include "tests/unit.h"

#include "models/arch/gpt2.h"
#include "models/files/safetensors.h"
#include "models/files/weights.h"
#include "models/task/causal_lm.h"
#include "tests/scratch.h"

/* A small model with dropout, on the cpu. */
typedef struct fixture {
    tx_config *config;
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_tensor *tokens, *logits;
    char *folder, *weights; /* scratch, and model.safetensors in it */
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_ok(tx_config_preset("gpt2", &f->config));
    f->config->vocab_size = 257;
    f->config->positions = 16;
    f->config->width = 8;
    f->config->layers = 2;
    f->config->heads = 2;
    ((tx_gpt2_config *)f->config)->initializer_range = 0.3; /* logits that differ from each other */
    f->config->bos_token_id = f->config->eos_token_id = 256;
    assert_ok(tx_engine_create(&(tx_engine_options){.size = sizeof(tx_engine_options), .threads = 1}, &f->engine));
    assert_ok(tx_model_create(f->engine, &f->model));
    assert_ok(tx_graph_create(f->model, &f->graph));
    f->tokens = tx_input(f->graph, "input_ids", TX_I32, TX_SHAPE(2, 16));
    f->logits = tx_arch_logits(f->graph, f->config, NULL);
    assert_non_null(f->logits);
    f->folder = make_scratch();
    f->weights = tx_path_join(f->folder, "model.safetensors");
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    tx_graph_free(f->graph);
    tx_model_free(f->model);
    tx_engine_free(f->engine);
    tx_config_free(f->config);
    remove_scratch(f->folder);
    free(f->weights);
    free(f);
    return 0;
}

/* ---- Graph ----------------------------------------------------------------------------------------- */

static void test_graph(void **state)
{
    fixture *f = *state;
    assert_true(tx_shape_equal(tx_tensor_shape(f->logits), &TX_SHAPE(2, 16, 384)));
    assert_int_equal(tx_model_param_count(f->model), tx_arch_params(f->config));
    for (int32_t i = 0; i < tx_arch_params(f->config); i++) {
        char name[TX_ARCH_NAME];
        const char *have;
        tx_param_spec spec;
        const tx_param_spec *declared;
        assert_ok(tx_arch_param(f->config, i, name, &spec));
        assert_ok(tx_model_param(f->model, i, &have, &declared));
        assert_string_equal(have, name);
        assert_true(tx_shape_equal(&declared->shape, &spec.shape));
    }
}

static void test_training_and_decoding_graphs(void **state)
{
    fixture *f = *state;
    tx_graph *train, *decode;
    assert_ok(tx_graph_create(f->model, &train));
    tx_input(train, "input_ids", TX_I32, TX_SHAPE(2, 16));
    tx_input(train, "labels", TX_I32, TX_SHAPE(2, 16));
    tx_arch_options options = {.size = sizeof options, .train = true};
    tx_tensor *loss = tx_label_loss(train, f->config, tx_arch_logits(train, f->config, &options), 0.0f);
    assert_ok(tx_backward(train, loss));
    tx_graph_free(train);

    assert_ok(tx_graph_create(f->model, &decode));
    tx_input(decode, "input_ids", TX_I32, TX_SHAPE(2, 4));
    tx_input(decode, "positions", TX_I32, TX_SHAPE(2));
    tx_input(decode, "rows", TX_I32, TX_SHAPE(2));
    options = (tx_arch_options){.size = sizeof options, .cache = 12};
    tx_tensor *logits = tx_arch_logits(decode, f->config, &options);
    assert_non_null(logits);
    assert_true(tx_shape_equal(tx_tensor_shape(logits), &TX_SHAPE(2, 384)));
    tx_graph_free(decode);
}

/* A refusal is stored in the graph and reported when the plan is made. */
static void refuse(fixture *f, tx_arch_options options, int64_t positions, const char *text)
{
    tx_graph *graph;
    tx_plan *plan;
    assert_ok(tx_graph_create(f->model, &graph));
    if (positions)
        tx_input(graph, "input_ids", TX_I32, TX_SHAPE(1, positions));
    assert_null(tx_arch_logits(graph, f->config, &options));
    assert_refused(tx_plan_create(graph, "refused", &plan), TX_INVALID, text);
    tx_graph_free(graph);
}

static void test_graph_refusals(void **state)
{
    fixture *f = *state;
    refuse(f, (tx_arch_options){.size = 1}, 4, "options.size");
    refuse(f, (tx_arch_options){.size = sizeof(tx_arch_options)}, 0, "an input input_ids, I32 [B, T]");
    refuse(f, (tx_arch_options){.size = sizeof(tx_arch_options)}, 17, "17 positions requested");
    refuse(f, (tx_arch_options){.size = sizeof(tx_arch_options), .cache = 8}, 9, "nor more tokens a row");
    refuse(f, (tx_arch_options){.size = sizeof(tx_arch_options), .cache = 8, .train = true}, 4,
           "allows neither training");
    refuse(f, (tx_arch_options){.size = sizeof(tx_arch_options), .cache = 8}, 4, "a cache needs the input positions");
    f->config->heads = 3;
    refuse(f, (tx_arch_options){.size = sizeof(tx_arch_options)}, 4, "n_head");
}

/* Tokens of both rows of the fixture's batch. */
static void fill_tokens(int32_t tokens[2][16])
{
    for (int b = 0; b < 2; b++)
        for (int t = 0; t < 16; t++)
            tokens[b][t] = (b * 101 + t * 37) % 257;
}

/* Runs tokens at[b].. of each row through a graph with caches, count[b] of them padded to `length`; logits of the last
 * one of each row. */
static void decode(fixture *f, int32_t tokens[2][16], const int32_t at[2], const int32_t count[2], int32_t length,
                   float last[2][384])
{
    tx_graph *graph;
    tx_plan *plan;
    int32_t part[32], rows[2] = {count[0] - 1, length + count[1] - 1};
    assert_ok(tx_graph_create(f->model, &graph));
    tx_tensor *input = tx_input(graph, "input_ids", TX_I32, TX_SHAPE(2, length));
    tx_tensor *positions = tx_input(graph, "positions", TX_I32, TX_SHAPE(2));
    tx_tensor *last_rows = tx_input(graph, "rows", TX_I32, TX_SHAPE(2));
    const tx_arch_options options = {.size = sizeof options, .cache = 16};
    tx_tensor *logits = tx_output(tx_arch_logits(graph, f->config, &options));
    assert_ok(tx_plan_create(graph, "decode", &plan));
    for (int32_t b = 0; b < 2; b++)
        for (int32_t t = 0; t < length; t++)
            part[b * length + t] = t < count[b] ? tokens[b][at[b] + t] : 0;
    const int32_t full[2] = {16 - length + 1, 0}, negative[2] = {0, -1};
    assert_refused(tx_plan_write(plan, positions, full, sizeof full), TX_INVALID, "positions");
    assert_refused(tx_plan_write(plan, positions, negative, sizeof negative), TX_INVALID, "positions");
    assert_ok(tx_plan_write(plan, positions, at, 2 * sizeof at[0]));
    assert_ok(tx_plan_write(plan, input, part, 2 * (size_t)length * sizeof part[0]));
    assert_ok(tx_plan_write(plan, last_rows, rows, sizeof rows));
    assert_ok(tx_plan_run(plan));
    assert_ok(tx_plan_read(plan, logits, last, 2 * 384 * sizeof(float)));
    tx_plan_free(plan);
    tx_graph_free(graph);
}

/* Prefill and decoding token by token give the results of the whole sequence, with each row at its own position. */
static void test_decoding_equals_whole(void **state)
{
    fixture *f = *state;
    static const int32_t counts[][2] = {{6, 4}, {1, 1}, {1, 1}, {3, 2}, {1, 4}, {4, 3}};
    int32_t at[2] = {0, 0};
    static float whole[2][16][384], last[2][384];
    int32_t tokens[2][16];
    tx_plan *plan;
    fill_tokens(tokens);
    tx_output(f->logits);
    assert_ok(tx_plan_create(f->graph, "whole", &plan));
    assert_ok(tx_model_init(f->model, 3));
    assert_ok(tx_plan_write(plan, f->tokens, tokens, sizeof tokens));
    assert_ok(tx_plan_run(plan));
    assert_ok(tx_plan_read(plan, f->logits, whole, sizeof whole));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const int32_t *count = counts[i];
        decode(f, tokens, at, count, count[0] > count[1] ? count[0] : count[1], last);
        for (int b = 0; b < 2; b++) {
            at[b] += count[b];
            for (int v = 0; v < 257; v++) {
                float want = whole[b][at[b] - 1][v];
                assert_true(fabsf(last[b][v] - want) <= 1e-5f * (1.0f + fabsf(want)));
            }
        }
    }
    tx_plan_free(plan);
}

/* ---- Folders --------------------------------------------------------------------------------------- */

/* The values of all parameters in their order. */
static float *all_values(tx_model *model, int64_t *count)
{
    int64_t used = 0;
    float *values = malloc(100000 * sizeof *values);
    assert_non_null(values);
    for (int32_t i = 0; i < tx_model_param_count(model); i++) {
        const char *name;
        const tx_param_spec *spec;
        assert_ok(tx_model_param(model, i, &name, &spec));
        used += tx_shape_count(&spec->logical);
        assert_true(used <= 100000);
        assert_ok(tx_model_read(model, TX_PARAM_WEIGHT, i, values + used - tx_shape_count(&spec->logical)));
    }
    *count = used;
    return values;
}

static void test_save_and_load(void **state)
{
    fixture *f = *state;
    int64_t count, again;
    assert_ok(tx_model_init(f->model, 1));
    float *before = all_values(f->model, &count);
    assert_int_equal(count, tx_arch_param_count(f->config));
    char *deep = tx_path_join(f->folder, "deep/er");
    assert_ok(tx_arch_save(f->model, f->config, deep));
    assert_int_equal(count_entries(deep), 2);
    assert_ok(tx_model_init(f->model, 2));
    assert_ok(tx_arch_load(f->model, f->config, deep, NULL));
    float *after = all_values(f->model, &again);
    assert_memory_equal(before, after, (size_t)count * sizeof *before);
    free(after);

    char *path = tx_path_join(deep, "config.json");
    tx_config *config;
    assert_ok(tx_config_read(path, &config));
    assert_int_equal(config->width, 8);
    tx_config_free(config);
    config = f->config;
    config->layers = 3;
    assert_refused(tx_arch_load(f->model, config, deep, NULL), TX_NOT_FOUND, "not built from this configuration");
    free(path);
    free(before);
    free(deep);
}

/* How a file is made to differ from a good one. */
typedef struct tx_change {
    bool no_prefix, buffers;
    const char *left_out, *added; /* names */
    const char *reshaped;         /* with its two dimensions exchanged */
    const char *non_finite;       /* with a NaN at element 3 */
    int head;                     /* 0 without a head, 1 if it equals wte, 2 if it differs */
    tx_st_dtype dtype;
} tx_change;

static const tx_change good = {.dtype = TX_ST_F32};

/* Element i of parameter p: exact in every type. */
static float value_at(int32_t p, int64_t i)
{
    return (float)((p * 7 + i) % 129 - 64) / 64.0f;
}

static void append(tx_st_writer *writer, const tx_change *change, int32_t p, const tx_st_tensor *t, const char *name)
{
    for (int64_t i = 0; i < tx_st_elements(t); i++) {
        float value = value_at(p, i);
        double wide;
        if (change->non_finite && strcmp(name, change->non_finite) == 0 && i == 3)
            value = NAN;
        if (p < 0)
            value = change->head == 1 ? value_at(0, i) : 0.5f;
        wide = (double)value;
        if (change->dtype == TX_ST_F64)
            assert_ok(tx_st_append(writer, &wide, sizeof wide));
        else
            assert_ok(tx_st_append(writer, &value, sizeof value));
    }
}

/* Writes the model's parameters with a change. */
static void write_changed(const fixture *f, const char *path, const tx_change *change)
{
    char name[64][TX_ARCH_NAME];
    tx_st_tensor list[64];
    int32_t origin[64], count = 0;
    for (int32_t p = 0; p < tx_arch_params(f->config); p++) {
        tx_param_spec spec;
        assert_ok(tx_arch_param(f->config, p, name[count], &spec));
        if (change->left_out && strcmp(name[count], change->left_out) == 0)
            continue;
        const tx_shape *s = spec.logical.rank ? &spec.logical : &spec.shape;
        bool exchanged = change->reshaped && strcmp(name[count], change->reshaped) == 0;
        list[count] = (tx_st_tensor){.dtype = change->dtype, .rank = s->rank};
        for (int32_t d = 0; d < s->rank; d++)
            list[count].dim[d] = s->dim[exchanged ? s->rank - 1 - d : d];
        list[count].name = name[count] + (change->no_prefix ? strlen("transformer.") : 0);
        origin[count++] = p;
    }
    if (change->head) {
        list[count] = list[0];
        list[count].name = "lm_head.weight";
        origin[count++] = -1;
    }
    if (change->added) {
        list[count] = (tx_st_tensor){.name = change->added, .dtype = change->dtype, .rank = 1, .dim = {2}};
        origin[count++] = 0;
    }
    if (change->buffers) {
        list[count] = (tx_st_tensor){.name = "h.0.attn.bias", .dtype = change->dtype, .rank = 4, .dim = {1, 1, 4, 4}};
        origin[count++] = 0;
        list[count] = (tx_st_tensor){.name = "transformer.h.1.attn.masked_bias", .dtype = change->dtype, .rank = 0};
        origin[count++] = 0;
    }
    tx_st_writer *writer;
    assert_ok(tx_st_create(path, list, count, &writer));
    for (int32_t i = 0; i < count; i++)
        append(writer, change, origin[i], &list[i], list[i].name);
    assert_ok(tx_st_commit(writer));
}

static void check_loaded(const fixture *f)
{
    int64_t count, at = 0;
    float *values = all_values(f->model, &count);
    for (int32_t p = 0; p < tx_arch_params(f->config); p++) {
        char name[TX_ARCH_NAME];
        tx_param_spec spec;
        assert_ok(tx_arch_param(f->config, p, name, &spec));
        int64_t elements = tx_shape_count(spec.logical.rank ? &spec.logical : &spec.shape);
        for (int64_t i = 0; i < elements; i++)
            assert_true(values[at + i] == value_at(p, i));
        at += elements;
    }
    free(values);
}

static void test_published_variants(void **state)
{
    fixture *f = *state;
    static const tx_change accepted[] = {
        {.dtype = TX_ST_F32},
        {.dtype = TX_ST_F32, .no_prefix = true, .buffers = true},
        {.dtype = TX_ST_F64, .no_prefix = true, .head = 1},
        {.dtype = TX_ST_F32, .head = 1, .buffers = true},
    };
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        assert_ok(tx_model_init(f->model, i));
        write_changed(f, f->weights, &accepted[i]);
        assert_ok(tx_arch_load(f->model, f->config, f->folder, NULL));
        check_loaded(f);
    }
}

static void refuse_change(fixture *f, tx_change change, tx_status status, const char *text)
{
    change.dtype = TX_ST_F32;
    write_changed(f, f->weights, &change);
    assert_refused(tx_arch_load(f->model, f->config, f->folder, NULL), status, text);
    assert_non_null(strstr(tx_error(), f->folder));
}

static void test_wrong_files(void **state)
{
    fixture *f = *state;
    refuse_change(f, (tx_change){.head = 2}, TX_UNSUPPORTED, "lm_head.weight differs from transformer.wte.weight");
    refuse_change(f, (tx_change){.left_out = "transformer.ln_f.bias", .added = "score.weight"}, TX_FORMAT,
                  "missing transformer.ln_f.bias; unexpected score.weight");
    refuse_change(f, (tx_change){.reshaped = "transformer.h.1.mlp.c_fc.weight"}, TX_FORMAT,
                  "wrong shape transformer.h.1.mlp.c_fc.weight ([32, 8], the configuration requires [8, 32]: stored "
                  "transposed)");
    refuse_change(f, (tx_change){.non_finite = "transformer.wpe.weight"}, TX_FORMAT,
                  "transformer.wpe.weight (F32) holds nan at element 3");
    refuse_change(f, (tx_change){.added = "ln_f.bias"}, TX_FORMAT, "duplicate ln_f.bias");

    /* Names are listed while there is space in the message, the others are counted. */
    tx_st_writer *writer;
    assert_ok(tx_st_create(f->weights, NULL, 0, &writer));
    assert_ok(tx_st_commit(writer));
    assert_refused(tx_arch_load(f->model, f->config, f->folder, NULL), TX_FORMAT,
                   "missing transformer.wte.weight, transformer.wpe.weight, ");
    assert_non_null(strstr(tx_error(), " and 8 more"));
}

static void test_absent_files(void **state)
{
    fixture *f = *state;
    char *bin = tx_path_join(f->folder, "pytorch_model.bin"), *none = tx_path_join(f->folder, "none");
    char *other = tx_path_join(f->folder, "tf_model.h5");
    assert_refused(tx_arch_load(f->model, f->config, f->folder, NULL), TX_NOT_FOUND,
                   "holds neither model.safetensors nor");
    assert_refused(tx_arch_load(f->model, f->config, none, NULL), TX_NOT_FOUND, "no such file or folder");
    assert_ok(tx_file_write(other, "", 0));
    assert_refused(tx_arch_load(f->model, f->config, f->folder, NULL), TX_UNSUPPORTED, "holds tf_model.h5");
    assert_ok(tx_file_write(bin, "PK", 2));
    assert_refused(tx_arch_load(f->model, f->config, f->folder, NULL), TX_FORMAT, "pytorch_model.bin: 2 bytes");
    assert_ok(tx_file_write(f->weights, "version https://git-lfs.github.com/spec/v1\n", 43));
    assert_refused(tx_arch_load(f->model, f->config, f->folder, NULL), TX_FORMAT, "git-LFS pointer");
    free(bin);
    free(none);
    free(other);
}

/* ---- Shards ---------------------------------------------------------------------------------------- */

static void write_index(const fixture *f, const char *text)
{
    char *path = tx_path_join(f->folder, "model.safetensors.index.json");
    assert_ok(tx_file_write(path, text, strlen(text)));
    free(path);
}

static void test_shards(void **state)
{
    fixture *f = *state;
    static const char *const shards[] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    char index[8192];
    int used = snprintf(index, sizeof index, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    int32_t params = tx_arch_params(f->config);
    for (int32_t s = 0; s < 2; s++) {
        tx_st_writer *writer;
        int32_t first = s * params / 2, end = (s + 1) * params / 2;
        tx_st_tensor list[64];
        char names[64][TX_ARCH_NAME];
        for (int32_t p = first; p < end; p++) {
            tx_param_spec spec;
            assert_ok(tx_arch_param(f->config, p, names[p], &spec));
            const tx_shape *shape = spec.logical.rank ? &spec.logical : &spec.shape;
            list[p] = (tx_st_tensor){.name = names[p], .dtype = TX_ST_F32, .rank = shape->rank};
            memcpy(list[p].dim, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
            used += snprintf(index + used, sizeof index - (size_t)used, "%s\"%s\":\"%s\"", p ? "," : "", names[p],
                             shards[s]);
        }
        char *path = tx_path_join(f->folder, shards[s]);
        assert_ok(tx_st_create(path, list + first, end - first, &writer));
        for (int32_t p = first; p < end; p++)
            append(writer, &good, p, &list[p], list[p].name);
        assert_ok(tx_st_commit(writer));
        free(path);
    }
    snprintf(index + used, sizeof index - (size_t)used, "}}");
    write_index(f, index);
    assert_ok(tx_arch_load(f->model, f->config, f->folder, NULL));
    check_loaded(f);
}

static void refuse_index(fixture *f, const char *shard, const char *text)
{
    char index[256];
    snprintf(index, sizeof index, "{\"weight_map\":{\"transformer.wte.weight\":\"%s\"}}", shard);
    write_index(f, index);
    assert_refused(tx_arch_load(f->model, f->config, f->folder, NULL), TX_FORMAT, text);
}

static void test_wrong_index(void **state)
{
    fixture *f = *state;
    static const char *const leading_out[] = {"../x", "/etc/passwd", "a/b", "..", ""};
    for (size_t i = 0; i < sizeof leading_out / sizeof leading_out[0]; i++)
        refuse_index(f, leading_out[i], "not the plain name of a file");
    refuse_index(f, "none.safetensors", "none.safetensors");
    char *shard = tx_path_join(f->folder, "shard");
    write_changed(f, shard, &(tx_change){.dtype = TX_ST_F32, .no_prefix = true});
    refuse_index(f, "shard", "has no tensor transformer.wte.weight");
    write_changed(f, shard, &good);
    refuse_index(f, "shard", "weight_map lists 1 tensors");
    free(shard);
    write_index(f, "{}");
    assert_refused(tx_arch_load(f->model, f->config, f->folder, NULL), TX_FORMAT, "weight_map is missing");
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_graph),          test(test_training_and_decoding_graphs),
        test(test_graph_refusals), test(test_decoding_equals_whole),
        test(test_save_and_load),  test(test_published_variants),
        test(test_wrong_files),    test(test_absent_files),
        test(test_shards),         test(test_wrong_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
