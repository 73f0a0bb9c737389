/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF: a file compared with bytes written by hand, blocks of q8_0 by their definition, values and their types,
 * and refusals. Also a file truncated at every length and changed at every byte, and a model converted to a file and
 * back. */

#include "api/base/half.h"
#include "models/arch/find.h"
#include "models/gguf/gguf.h"
#include "models/tx_text.h"
#include "tests/scratch.h"

/* ---- Bytes ---------------------------------------------------------------------------------------- */

/* A file in the making, byte by byte. */
typedef struct raw {
    char byte[4096];
    size_t size;
} raw;

static void put(raw *r, const void *bytes, size_t size)
{
    assert_true(size <= sizeof r->byte - r->size);
    memcpy(r->byte + r->size, bytes, size);
    r->size += size;
}

static void put_32(raw *r, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        put(r, &(char){(char)(value >> 8 * i)}, 1);
}

static void put_64(raw *r, uint64_t value)
{
    put_32(r, (uint32_t)value);
    put_32(r, (uint32_t)(value >> 32));
}

static void put_text(raw *r, const char *text)
{
    put_64(r, strlen(text));
    put(r, text, strlen(text));
}

static void begin(raw *r, uint64_t tensors, uint64_t values)
{
    r->size = 0;
    put(r, "GGUF", 4);
    put_32(r, 3);
    put_64(r, tensors);
    put_64(r, values);
}

static void put_tensor(raw *r, const char *name, uint64_t columns, uint64_t rows, uint32_t type, uint64_t offset)
{
    put_text(r, name);
    put_32(r, rows ? 2 : 1);
    put_64(r, columns);
    if (rows)
        put_64(r, rows);
    put_32(r, type);
    put_64(r, offset);
}

static void pad(raw *r)
{
    while (r->size % 32)
        put(r, "", 1);
}

/* One of each, as the format's description has it. */
static void write_golden(raw *r)
{
    static const float two[] = {1.5f, -2.0f};
    begin(r, 2, 5);
    put_text(r, "a.int");
    put_32(r, 4);
    put_32(r, 7);
    put_text(r, "a.number");
    put_32(r, 6);
    put_32(r, 0x3f000000); /* 0.5 */
    put_text(r, "a.bool");
    put_32(r, 7);
    put(r, "\1", 1);
    put_text(r, "a.text");
    put_32(r, 8);
    put_text(r, "hello");
    put_text(r, "a.list");
    put_32(r, 9);
    put_32(r, 8);
    put_64(r, 2);
    put_text(r, "x");
    put_text(r, "");
    put_tensor(r, "first", 2, 0, 0, 0);
    put_tensor(r, "second", 1, 3, 1, 32);
    pad(r);
    put(r, two, sizeof two);
    pad(r);
    put(r, "\x00\x3c\x00\xc0\x01\x00", 6); /* 1, -2, 2^-24 in fp16 */
    pad(r);
}

static tx_status open_raw(const char *path, const raw *r, tx_gguf_file **file)
{
    assert_ok(tx_file_write(path, r->byte, r->size));
    return tx_gguf_open(path, file);
}

static void test_golden(void **state)
{
    const char *path = TX_PATH(*state, "golden.gguf"), *own = TX_PATH(*state, "own.gguf");
    raw r;
    tx_gguf_file *file;
    int64_t whole = 0;
    double number = 0;
    bool flag = false;
    char *text;
    float data[3];
    write_golden(&r);
    assert_ok(open_raw(path, &r, &file));
    assert_ok(tx_gguf_get_int(file, "a.int", 0, 10, &whole));
    assert_ok(tx_gguf_get_number(file, "a.number", &number));
    assert_ok(tx_gguf_get_bool(file, "a.bool", &flag));
    assert_ok(tx_gguf_get_string(file, "a.text", &text, NULL));
    assert_true(whole == 7 && number == 0.5 && flag && strcmp(text, "hello") == 0);
    free(text);
    tx_gguf_array list;
    assert_ok(tx_gguf_get_array(file, "a.list", true, &list));
    assert_true(list.count == 2 && list.size[0] == 1 && *list.text[0] == 'x' && list.size[1] == 0);
    tx_gguf_array_free(&list);
    assert_int_equal(tx_gguf_count(file), 2);
    assert_int_equal(tx_gguf_find(file, "second"), 1);
    assert_int_equal(tx_gguf_tensor_at(file, 1)->dim[0], 3);
    assert_ok(tx_gguf_read_f32(file, 0, 0, 2, data));
    assert_true(data[0] == 1.5f && data[1] == -2.0f);
    assert_ok(tx_gguf_read_f32(file, 1, 0, 3, data));
    assert_true(data[0] == 1.0f && data[1] == -2.0f && data[2] == 0x1p-24f);
    assert_refused(tx_gguf_get_int(file, "a.int", 0, 6, &whole), TX_FORMAT, "a.int");
    assert_refused(tx_gguf_get_int(file, "a.number", 0, 6, &whole), TX_FORMAT, "an integer");
    assert_refused(tx_gguf_get_bool(file, "a.int", &flag), TX_FORMAT, "true or false");
    assert_refused(tx_gguf_get_array(file, "a.list", false, &list), TX_FORMAT, "a.list");
    assert_refused(tx_gguf_get_int(file, "none", 0, 6, &whole), TX_NOT_FOUND, "none");
    assert_refused(tx_gguf_read_f32(file, 0, 1, 2, data), TX_INVALID, "first");
    tx_gguf_close(file);

    /* The writer makes the same bytes. */
    static const float two[] = {1.5f, -2.0f}, three[] = {1.0f, -2.0f, 0x1p-24f};
    const tx_gguf_tensor tensors[] = {{"first", TX_GGUF_F32, 1, {2}}, {"second", TX_GGUF_F16, 2, {3, 1}}};
    uint16_t half[3];
    tx_gguf_writer *writer;
    char *bytes;
    size_t size;
    assert_ok(tx_gguf_create(&writer));
    tx_gguf_put_int(writer, "a.int", 7);
    tx_gguf_put_number(writer, "a.number", 0.5);
    tx_gguf_put_bool(writer, "a.bool", true);
    tx_gguf_put_string(writer, "a.text", "hello", 5);
    tx_gguf_put_array(writer, "a.list", TX_GGUF_VALUE_STRING, 2);
    tx_gguf_add_string(writer, "x", 1);
    tx_gguf_add_string(writer, "", 0);
    assert_ok(tx_gguf_begin(writer, own, tensors, 2));
    assert_ok(tx_gguf_append(writer, two, sizeof two));
    tx_gguf_encode(TX_GGUF_F16, three, NULL, 3, half);
    assert_ok(tx_gguf_append(writer, half, sizeof half));
    assert_false(tx_file_exists(own));
    assert_ok(tx_gguf_commit(writer));
    assert_ok(tx_file_read(own, 4096, &bytes, &size));
    assert_int_equal(size, r.size);
    assert_memory_equal(bytes, r.byte, size);
    free(bytes);
}

/* A writer that does not get all data, or too much, leaves no file. */
static void test_unfinished(void **state)
{
    static const float two[2];
    const char *path = TX_PATH(*state, "unfinished.gguf");
    const tx_gguf_tensor tensor = {"one", TX_GGUF_F32, 1, {1}};
    tx_gguf_writer *writer;
    const int before = count_entries(*state);
    assert_ok(tx_gguf_create(&writer));
    assert_ok(tx_gguf_begin(writer, path, &tensor, 1));
    assert_refused(tx_gguf_append(writer, two, sizeof two), TX_INVALID, "more data");
    assert_refused(tx_gguf_commit(writer), TX_INVALID, "no data");
    assert_ok(tx_gguf_create(&writer));
    tx_gguf_put_int(writer, "too.large", (int64_t)1 << 32);
    assert_refused(tx_gguf_begin(writer, path, &tensor, 1), TX_UNSUPPORTED, "too.large");
    tx_gguf_discard(writer);
    assert_int_equal(count_entries(*state), before);
}

/* ---- q8_0 ------------------------------------------------------------------------------------------- */

static void test_blocks(void **state)
{
    float data[64], back[64];
    unsigned char bytes[68];
    for (int i = 0; i < 32; i++)
        data[i] = (float)(i - 16); /* the largest is 16 */
    for (int i = 32; i < 64; i++)
        data[i] = 0.0f;
    tx_gguf_encode(TX_GGUF_Q8_0, data, NULL, 64, bytes);
    const float scale = 16.0f / 127.0f;
    const uint16_t half = tx_f32_to_f16(scale);
    assert_memory_equal(bytes, &half, 2);
    assert_int_equal((signed char)bytes[2], -127);
    assert_int_equal((signed char)bytes[2 + 16], 0);
    assert_int_equal((signed char)bytes[2 + 31], 119); /* 15 / 16 * 127 = 119.06 */
    for (int i = 34; i < 68; i++)
        assert_int_equal(bytes[i], 0);
    tx_to_f32(TX_Q8_0, bytes, 64, back);
    for (int i = 0; i < 64; i++)
        if (!(fabsf(back[i] - data[i]) <= 0.51f * scale))
            fail_msg("element %d: %g instead of %g", i, (double)back[i], (double)data[i]);
}

/* ---- Refusals --------------------------------------------------------------------------------------- */

/* A file of one tensor, with a value if `alignment` is not 0. */
static void make_one(raw *r, uint32_t alignment, uint64_t columns, uint64_t rows, uint32_t type, uint64_t offset)
{
    begin(r, 1, alignment ? 1 : 0);
    if (alignment) {
        put_text(r, "general.alignment");
        put_32(r, 4);
        put_32(r, alignment);
    }
    put_tensor(r, "one", columns, rows, type, offset);
    for (int i = 0; i < 40; i++)
        put_32(r, 0);
}

static void test_refused(void **state)
{
    const char *path = TX_PATH(*state, "refused.gguf");
    raw r;
    tx_gguf_file *file;
    make_one(&r, 0, 4, 2, 0, 0);
    assert_ok(open_raw(path, &r, &file));
    tx_gguf_close(file);
    make_one(&r, 0, 4, 2, 0, 32);
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "offset");
    make_one(&r, 0, 1 << 20, 0, 0, 0);
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "cut off");
    make_one(&r, 0, (uint64_t)1 << 62, (uint64_t)1 << 62, 0, 0);
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "too large");
    make_one(&r, 0, UINT64_MAX, 1, 0, 0);
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "too large");
    make_one(&r, 0, 0, 1, 0, 0);
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "dimensions");
    make_one(&r, 0, 33, 1, 8, 0);
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "not a multiple of the block size");
    make_one(&r, 0, 256, 1, 16, 0);
    assert_refused(open_raw(path, &r, &file), TX_UNSUPPORTED, "type IQ2_XXS (16)");
    make_one(&r, 24, 1, 0, 0, 0);
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "alignment");
    make_one(&r, 64, 1, 0, 0, 0);
    assert_ok(open_raw(path, &r, &file));
    tx_gguf_close(file);
    r.byte[4] = 1;
    assert_refused(open_raw(path, &r, &file), TX_UNSUPPORTED, "version 1");
    r.byte[0] = 'X';
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "not a GGUF");
    begin(&r, (uint64_t)1 << 40, 0);
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "tensors");
    begin(&r, 0, UINT64_MAX);
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "values");
    begin(&r, 0, 1);
    put_text(&r, "key");
    put_32(&r, 9);
    put_32(&r, 5);
    put_64(&r, (uint64_t)1 << 62);
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "elements");
    r.size -= 12;
    put_32(&r, 9);
    put_64(&r, 0);
    assert_refused(open_raw(path, &r, &file), TX_UNSUPPORTED, "an array of type 9");
    begin(&r, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_text(&r, "key");
        put_32(&r, 0);
        put(&r, "\1", 1);
    }
    assert_refused(open_raw(path, &r, &file), TX_FORMAT, "occurs twice");
}

/* Reads all of a file that is accepted. */
static void read_all(const char *path, const char *bytes, size_t size)
{
    tx_gguf_file *file;
    unlink(
        path); /* a file that is made shorter, or is written by tx_file_write, is flushed to disk: thousands of times */
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(bytes, 1, size, to), size);
    assert_int_equal(fclose(to), 0);
    const tx_status status = tx_gguf_open(path, &file);
    if (status) {
        assert_true(status == TX_FORMAT || status == TX_UNSUPPORTED);
        assert_non_null(strstr(tx_error(), path));
        return;
    }
    for (int32_t i = 0; i < tx_gguf_count(file); i++) {
        const int64_t count = tx_gguf_elements(tx_gguf_tensor_at(file, i));
        assert_true(count <= (int64_t)size);
        float *data = malloc((size_t)count * sizeof *data);
        assert_ok(tx_gguf_read_f32(file, i, 0, count, data));
        free(data);
    }
    tx_gguf_close(file);
}

static void test_damaged(void **state)
{
    const char *path = TX_PATH(*state, "damaged.gguf");
    static const char values[] = {0, 1, 0x7f, (char)0x80, (char)0xff};
    raw r;
    write_golden(&r);
    for (size_t size = 0; size < r.size; size++)
        read_all(path, r.byte, size);
    for (size_t at = 0; at < r.size; at++) {
        const char was = r.byte[at];
        for (size_t v = 0; v < sizeof values; v++) {
            r.byte[at] = values[v];
            read_all(path, r.byte, r.size);
        }
        r.byte[at] = was;
    }
    uint64_t random = 7;
    char text[2 * sizeof r.byte];
    for (int i = 0; i < 3000; i++) {
        memcpy(text, r.byte, r.size);
        read_all(path, text, mutate(text, r.size, &random));
    }
}

/* ---- Models ----------------------------------------------------------------------------------------- */

/* A GPT-2, or a Llama whose rows of queries and keys are interleaved. */
static tx_config *make_config(bool llama)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 257, \"hidden_size\": 48, \"intermediate_size\": 40, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 6, \"num_key_value_heads\": 2, "
        "\"max_position_embeddings\": 20, \"bos_token_id\": 256, \"eos_token_id\": 256, \"rms_norm_eps\": 1e-6}";
    tx_config *config;
    tx_json *json;
    if (llama) {
        assert_ok(tx_json_parse(text, sizeof text - 1, "config.json", &json));
        assert_ok(tx_config_of_json(json, &config));
    } else {
        assert_ok(tx_config_small(&config));
        assert_ok(tx_config_override(config, "n_layer=2,n_embd=36,n_head=3,n_positions=20"));
    }
    return config;
}

/* A model with random weights over bytes, in a folder. */
static void make_model(const char *folder, bool llama)
{
    const tx_engine_options cpu = {.size = sizeof cpu, .device = "cpu"};
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_config *config = make_config(llama);
    tx_tokenizer *tokenizer;
    assert_ok(tx_engine_create(&cpu, &engine));
    assert_ok(tx_model_create(engine, &model));
    assert_ok(tx_graph_create(model, &graph));
    tx_input(graph, "input_ids", TX_I32, TX_SHAPE(1, 4));
    assert_non_null(tx_arch_logits(graph, config, NULL));
    assert_ok(tx_model_init(model, 3));
    assert_ok(tx_arch_save(model, config, folder));
    assert_ok(tx_tokenizer_bytes(&tokenizer));
    assert_ok(tx_tokenizer_save(tokenizer, folder, 20));
    tx_tokenizer_free(tokenizer);
    tx_graph_free(graph);
    tx_model_free(model);
    tx_engine_free(engine);
    tx_config_free(config);
}

static void compare_files(const char *a, const char *b, bool same)
{
    char *one, *other;
    size_t size, other_size;
    assert_ok(tx_file_read(a, 1 << 24, &one, &size));
    assert_ok(tx_file_read(b, 1 << 24, &other, &other_size));
    assert_true((size == other_size && memcmp(one, other, size) == 0) == same);
    free(one);
    free(other);
}

static void test_model(void **state)
{
    const char *from = TX_PATH(*state, "from"), *file = TX_PATH(*state, "model.gguf"), *to = TX_PATH(*state, "to");
    make_model(from, false);
    assert_ok(tx_gguf_export(from, file, TX_CONVERT_F32, NULL, NULL));
    assert_ok(tx_gguf_import(file, to, TX_F32, NULL));
    compare_files(TX_PATH(from, "model.safetensors"), TX_PATH(to, "model.safetensors"), true);
    compare_files(TX_PATH(from, "tokenizer.json"), TX_PATH(to, "tokenizer.json"), true);
    compare_files(TX_PATH(from, "config.json"), TX_PATH(to, "config.json"), false);
    assert_refused(tx_gguf_import(file, to, TX_F32, NULL), TX_INVALID, "already holds a model");
    /* Rows of 36 numbers are no whole blocks, those of 144 neither: all is fp16, as the convert script does it. */
    tx_gguf_file *opened;
    assert_ok(tx_gguf_export(from, file, TX_CONVERT_Q8_0, NULL, NULL));
    assert_ok(tx_gguf_open(file, &opened));
    for (int32_t i = 0; i < tx_gguf_count(opened); i++) {
        const tx_gguf_tensor *t = tx_gguf_tensor_at(opened, i);
        assert_true(t->dtype == (t->rank == 2 && strcmp(t->name, "position_embd.weight") ? TX_GGUF_F16 : TX_GGUF_F32));
    }
    tx_gguf_close(opened);
    assert_refused(tx_gguf_export(TX_PATH(*state, "none"), file, TX_CONVERT_F32, NULL, NULL), TX_NOT_FOUND, "none");
}

/* All tensors of `a` equal those of the folder `b`, for any requested elements. */
static void compare_weights(const char *a, const char *b)
{
    tx_weights *one, *other;
    float *data, *wanted;
    assert_ok(tx_gguf_weights(a, &one));
    assert_ok(tx_weights_open(b, &other));
    assert_int_equal(tx_weights_count(one), tx_weights_count(other));
    for (int32_t i = 0; i < tx_weights_count(one); i++) {
        const tx_st_tensor *of = tx_weights_tensor_at(one, i);
        const int64_t count = tx_st_elements(of), parts[][2] = {{0, count}, {count / 3, count / 2}, {count - 1, 1}};
        int32_t j = 0;
        while (strcmp(tx_weights_tensor_at(other, j)->name, of->name) != 0)
            assert_true(++j < tx_weights_count(other));
        data = malloc((size_t)count * sizeof *data);
        wanted = malloc((size_t)count * sizeof *wanted);
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            assert_ok(tx_weights_read_f32(one, i, parts[p][0], parts[p][1], data));
            assert_ok(tx_weights_read_f32(other, j, parts[p][0], parts[p][1], wanted));
            assert_memory_equal(data, wanted, (size_t)parts[p][1] * sizeof *data);
        }
        free(data);
        free(wanted);
    }
    tx_weights_close(one);
    tx_weights_close(other);
}

/* A file instead of a folder: the same configuration, tokenizer and weights. */
static void test_as_folder(void **state)
{
    const char *file = TX_PATH(*state, "model.gguf");
    tx_config *config;
    tx_tokenizer *tokenizer, *own;
    for (int llama = 0; llama < 2; llama++) {
        const char *from = TX_PATH(*state, llama ? "llama" : "gpt2");
        make_model(from, llama);
        assert_ok(tx_gguf_export(from, file, TX_CONVERT_F32, NULL, NULL));
        compare_weights(file, from);
        assert_ok(tx_config_of_folder(file, &config));
        assert_ok(tx_arch_check(config, file));
        assert_ok(tx_arch_check(config, from));
        assert_int_equal(config->positions, 20);
        assert_int_equal(config->layers, 2);
        assert_ok(tx_tokenizer_open(file, &tokenizer));
        assert_ok(tx_tokenizer_open(from, &own));
        assert_int_equal(tx_tokenizer_size(tokenizer), tx_tokenizer_size(own));
        tx_tokenizer_free(tokenizer);
        tx_tokenizer_free(own);
        tx_config_free(config);
    }
    /* Another architecture, no tokenizer, and a missing file. */
    raw r;
    begin(&r, 1, 1);
    put_text(&r, "general.architecture");
    put_32(&r, 8);
    put_text(&r, "mamba");
    put_tensor(&r, "token_embd.weight", 4, 2, 0, 0);
    pad(&r);
    for (int i = 0; i < 8; i++)
        put_32(&r, 0);
    assert_ok(tx_file_write(file, r.byte, r.size));
    assert_refused(tx_config_of_folder(file, &config), TX_UNSUPPORTED, "mamba");
    assert_refused(tx_tokenizer_open(file, &tokenizer), TX_NOT_FOUND, "tokenizer.ggml");
    assert_refused(tx_config_of_folder(TX_PATH(*state, "none.gguf"), &config), TX_NOT_FOUND, "none.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_golden, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_unfinished, open_scratch, close_scratch),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test_setup_teardown(test_refused, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_damaged, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_model, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_as_folder, open_scratch, close_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
