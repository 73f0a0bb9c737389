/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: verdicts on good and malformed files, round trips, conversions, and a file that is truncated at every
 * length, changed at every byte and mutated. */

#include "api/base/clock.h"
#include "api/base/file.h"
#include "api/base/half.h"
#include "models/files/safetensors_header.h"
#include "tests/scratch.h"

#define MUTATIONS 20000
#define CPU_TIME CLOCK_PROCESS_CPUTIME_ID /* other work on the machine does not count */

/* Writes a file of a header text and zeroed data. */
static void write_raw(const char *path, const char *header, size_t size, size_t data_bytes)
{
    char *bytes = calloc(1, 8 + size + data_bytes);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)((uint64_t)size >> (8 * i));
    memcpy(bytes + 8, header, size);
    assert_ok(tx_file_write(path, bytes, 8 + size + data_bytes));
    free(bytes);
}

/* ---- Verdicts ------------------------------------------------------------------------------------ */

static void judge(const char *folder, const tx_json *one)
{
    const char *name = NULL, *want = NULL, *why = NULL;
    assert_ok(tx_json_get_string(one, "file", &name));
    assert_ok(tx_json_get_string(one, "want", &want));
    assert_ok(tx_json_get_string(one, "why", &why));
    tx_st_file *file = NULL;
    double begin = tx_seconds(CPU_TIME);
    tx_status status = tx_st_open(TX_PATH(folder, name), &file);
    double took = tx_seconds(CPU_TIME) - begin;
    if (!(took < 1.0))
        fail_msg("%s: took %g s", name, took);
    if (strcmp(want, "accept") == 0 && status)
        fail_msg("%s (%s) was refused: %s", name, why, tx_error());
    if (strcmp(want, "reject") == 0 && !status)
        fail_msg("%s (%s) was accepted", name, why);
    if (status && (status != TX_FORMAT || !strstr(tx_error(), name)))
        fail_msg("%s: status %d, message: %s", name, (int)status, tx_error());
    for (int32_t i = 0; !status && i < tx_st_count(file); i++) {
        const tx_st_tensor *t = tx_st_tensor_at(file, i);
        void *data = malloc((size_t)tx_st_bytes(t) + 1);
        assert_ok(tx_st_read(file, i, 0, tx_st_elements(t), data));
        free(data);
    }
    if (!status)
        tx_st_close(file);
}

static void test_cases(void **state)
{
    char *folder = test_data("safetensors_cases"), *list = TX_PATH(folder, "cases.json");
    tx_json *cases;
    assert_ok(tx_json_read(list, 1 << 20, &cases));
    assert_true(tx_json_size(cases) > 40);
    for (size_t i = 0; i < tx_json_size(cases); i++)
        judge(folder, tx_json_at(cases, i));
    tx_json_free(cases);
    free(folder);
}

static void test_others_are_recognised(void **state)
{
    static const struct {
        const char *text;
        size_t size;
        const char *what;
    } others[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", 63, "git-LFS pointer"},
        {"<!DOCTYPE html><html></html>", 28, "web page"},
        {"<?xml version=\"1.0\"?><Error/>", 29, "web page"},
        {"\x80\x02}q\x00.", 6, "pickle"},
        {"PK\x03\x04 and so on, and on", 22, "directory of the archive"},
        {"GGUF\x03\x00\x00\x00 more", 13, "GGUF"},
        {"\x7f"
         "ELF\x02\x01\x01\x00 more",
         13, "not a safetensors file"},
        {"short", 5, "too short"},
    };
    char *folder = make_scratch(), *path = TX_PATH(folder, "model.safetensors");
    tx_st_file *file;
    assert_refused(tx_st_open(path, &file), TX_NOT_FOUND, path);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_ok(tx_file_write(path, others[i].text, others[i].size));
        assert_refused(tx_st_open(path, &file), TX_FORMAT, others[i].what);
    }
    assert_refused(tx_st_open(folder, &file), TX_FORMAT, "a folder, not a regular file");
    remove_scratch(folder);
}

/* ---- Round trips --------------------------------------------------------------------------------- */

static const tx_st_tensor written[] = {
    {.name = "wide", .dtype = TX_ST_F64, .rank = 1, .dim = {3}},
    {.name = "matrix \"\xc3\xa9\"", .dtype = TX_ST_F32, .rank = 2, .dim = {2, 3}},
    {.name = "empty", .dtype = TX_ST_F32, .rank = 2, .dim = {0, 1000000}},
    {.name = "scalar", .dtype = TX_ST_I64, .rank = 0},
    {.name = "half", .dtype = TX_ST_F16, .rank = 3, .dim = {1, 5, 1}},
    {.name = "brain", .dtype = TX_ST_BF16, .rank = 1, .dim = {4}},
    {.name = "bytes", .dtype = TX_ST_U8, .rank = 1, .dim = {7}},
};
enum { WRITTEN = sizeof written / sizeof written[0] };

/* Writes the list above; its data are the bytes 0, 1, 2... in pieces of 5. */
static size_t write_example(const char *path)
{
    tx_st_writer *writer;
    size_t total = 0;
    assert_ok(tx_st_create(path, written, WRITTEN, &writer));
    for (int i = 0; i < WRITTEN; i++)
        total += (size_t)tx_st_bytes(&written[i]);
    for (size_t at = 0; at < total; at += 5) {
        unsigned char piece[5];
        for (size_t i = 0; i < 5; i++)
            piece[i] = (unsigned char)(at + i);
        assert_ok(tx_st_append(writer, piece, total - at < 5 ? total - at : 5));
    }
    assert_refused(tx_st_append(writer, "x", 1), TX_INVALID, "more data");
    assert_ok(tx_st_commit(writer));
    return total;
}

static void test_round_trip(void **state)
{
    char *folder = make_scratch(), *path = TX_PATH(folder, "x.safetensors");
    unsigned char expected = 0, data[64];
    size_t total = write_example(path), size;
    tx_st_file *file;
    assert_ok(tx_st_open(path, &file));
    assert_string_equal(tx_st_path(file), path);
    assert_int_equal(tx_st_count(file), WRITTEN);
    for (int i = 0; i < WRITTEN; i++) {
        int32_t index;
        assert_ok(tx_st_find(file, written[i].name, &index));
        const tx_st_tensor *t = tx_st_tensor_at(file, index);
        assert_int_equal(t->dtype, written[i].dtype);
        assert_int_equal(t->rank, written[i].rank);
        assert_memory_equal(t->dim, written[i].dim, sizeof t->dim);
        size = (size_t)tx_st_bytes(t);
        assert_ok(tx_st_read(file, index, 0, tx_st_elements(t), data));
        for (size_t k = 0; k < size; k++)
            assert_int_equal(data[k], expected++);
        assert_refused(tx_st_read(file, index, 1, tx_st_elements(t), data), TX_INVALID, "requested");
    }
    assert_int_equal(expected, total);
    int32_t index;
    assert_refused(tx_st_find(file, "matrix", &index), TX_NOT_FOUND, "matrix");
    assert_refused(tx_st_read(file, WRITTEN, 0, 1, data), TX_INVALID, "out of range");
    tx_st_close(file);
    char *text;
    assert_ok(tx_file_read(path, 4096, &text, &size));
    assert_int_equal((size - total) % 8, 0);
    free(text);
    remove_scratch(folder);
}

/* Reads parts that begin and end at odd elements, as stored and as fp32: the same as in the whole. */
static void check_parts(const tx_st_file *file, int32_t index, int64_t elements, const float *whole)
{
    const int64_t parts[][2] = {{0, 1}, {1, 4096}, {4095, 3}, {4097, 4097}, {elements - 1, 1}, {elements, 0}};
    const tx_st_tensor *t = tx_st_tensor_at(file, index);
    const size_t width = (size_t)tx_st_dtype_bits(t->dtype) / 8;
    float *some = malloc((size_t)elements * sizeof *some);
    char *stored = malloc((size_t)elements * width), *part = malloc((size_t)elements * width);
    assert_true(some && stored && part);
    assert_ok(tx_st_read(file, index, 0, elements, stored));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const int64_t first = parts[i][0], count = parts[i][1];
        assert_ok(tx_st_read_f32(file, index, first, count, some));
        assert_memory_equal(some, whole + first, (size_t)count * sizeof *some);
        assert_ok(tx_st_read(file, index, first, count, part));
        assert_memory_equal(part, stored + (size_t)first * width, (size_t)count * width);
    }
    assert_refused(tx_st_read(file, index, 1, elements, part), TX_INVALID, "elements");
    assert_refused(tx_st_read(file, index, -1, 1, part), TX_INVALID, "elements");
    assert_refused(tx_st_read(file, index, 0, -1, part), TX_INVALID, "elements");
    free(some);
    free(stored);
    free(part);
}

static void test_conversions(void **state)
{
    enum { COUNT = 10000 };
    static const tx_st_tensor kinds[] = {{.name = "a64", .dtype = TX_ST_F64, .rank = 1, .dim = {COUNT}},
                                         {.name = "b32", .dtype = TX_ST_F32, .rank = 1, .dim = {COUNT}},
                                         {.name = "c16", .dtype = TX_ST_F16, .rank = 1, .dim = {COUNT}},
                                         {.name = "dbf", .dtype = TX_ST_BF16, .rank = 1, .dim = {COUNT}},
                                         {.name = "e", .dtype = TX_ST_I32, .rank = 0}};
    char *folder = make_scratch(), *path = TX_PATH(folder, "x.safetensors");
    double *f64 = malloc(COUNT * sizeof *f64);
    float *f32 = malloc(COUNT * sizeof *f32), *read = malloc(COUNT * sizeof *read);
    uint16_t *half = malloc(2 * COUNT * sizeof *half);
    for (int i = 0; i < COUNT; i++) {
        f64[i] = sin(i) / 3;
        f32[i] = (float)f64[i];
        half[i] = tx_f32_to_f16(f32[i]);
        half[COUNT + i] = tx_f32_to_bf16(f32[i]);
    }
    tx_st_writer *writer;
    int32_t zero = 0;
    assert_ok(tx_st_create(path, kinds, 5, &writer));
    assert_ok(tx_st_append(writer, f64, COUNT * sizeof *f64));
    assert_ok(tx_st_append(writer, f32, COUNT * sizeof *f32));
    assert_ok(tx_st_append(writer, half, 2 * COUNT * sizeof *half));
    assert_ok(tx_st_append(writer, &zero, sizeof zero));
    assert_ok(tx_st_commit(writer));
    tx_st_file *file;
    assert_ok(tx_st_open(path, &file));
    char *text;
    size_t size;
    assert_ok(tx_file_read(path, INT64_MAX, &text, &size));
    assert_non_null(strstr(text + 8, "\"format\"")); /* after the header's length */
    free(text);
    for (int32_t k = 0; k < 4; k++) {
        assert_ok(tx_st_read_f32(file, k, 0, COUNT, read));
        for (int i = 0; i < COUNT; i++) {
            float want = k < 2 ? f32[i] : k == 2 ? tx_f16_to_f32(half[i]) : tx_bf16_to_f32(half[COUNT + i]);
            assert_true(read[i] == want);
        }
        check_parts(file, k, COUNT, read);
        assert_refused(tx_st_read_f32(file, k, 1, COUNT, read), TX_INVALID, "elements");
        assert_refused(tx_st_read_f32(file, k, -1, 1, read), TX_INVALID, "elements");
    }
    assert_refused(tx_st_read_f32(file, 4, 0, 1, read), TX_UNSUPPORTED, "I32");
    tx_st_close(file);
    free(f64);
    free(f32);
    free(read);
    free(half);
    remove_scratch(folder);
}

static void test_writer_refuses(void **state)
{
    char *folder = make_scratch(), *path = TX_PATH(folder, "x.safetensors"), data[8] = {0};
    tx_st_writer *writer;
    tx_st_tensor pair[2] = {{.name = "w", .dtype = TX_ST_F32, .rank = 1, .dim = {2}}};
    assert_ok(tx_st_create(path, pair, 1, &writer));
    assert_ok(tx_st_append(writer, data, 4));
    assert_refused(tx_st_commit(writer), TX_INVALID, "declares 8");
    assert_int_equal(count_entries(folder), 0);
    pair[1] = pair[0];
    assert_refused(tx_st_create(path, pair, 2, &writer), TX_INVALID, "twice");
    pair[0].dim[0] = -1;
    assert_refused(tx_st_create(path, pair, 1, &writer), TX_INVALID, "negative");
    pair[0].dim[0] = INT64_MAX / 8;
    assert_refused(tx_st_create(path, pair, 1, &writer), TX_FORMAT, "2^63");
    pair[0].name = "__metadata__";
    assert_refused(tx_st_create(path, pair, 1, &writer), TX_INVALID, "twice");
    assert_int_equal(count_entries(folder), 0);
    assert_ok(tx_st_create(path, pair, 0, &writer));
    assert_ok(tx_st_commit(writer));
    tx_st_file *file;
    assert_ok(tx_st_open(path, &file));
    assert_int_equal(tx_st_count(file), 0);
    tx_st_close(file);
    remove_scratch(folder);
}

/* ---- Damage -------------------------------------------------------------------------------------- */

static void test_truncations(void **state)
{
    char *folder = make_scratch(), *path = TX_PATH(folder, "x.safetensors"), *text;
    char *cut = TX_PATH(folder, "cut.safetensors");
    size_t size;
    tx_st_file *file;
    write_example(path);
    assert_ok(tx_file_read(path, 4096, &text, &size));
    for (size_t length = 0; length < size; length++) {
        FILE *stream = fopen(cut, "wb"); /* not flushed to disk, unlike tx_file_write: there are many */
        assert_non_null(stream);
        assert_int_equal(fwrite(text, 1, length, stream), length);
        assert_int_equal(fclose(stream), 0);
        assert_refused(tx_st_open(cut, &file), TX_FORMAT, cut);
    }
    free(text);
    remove_scratch(folder);
}

/* A file that shrinks while it is open gives an error, not a signal. */
static void test_shrinking_file(void **state)
{
    char *folder = make_scratch(), *path = TX_PATH(folder, "x.safetensors");
    unsigned char data[24];
    tx_st_file *file;
    write_example(path);
    assert_ok(tx_st_open(path, &file));
    assert_int_equal(truncate(path, 100), 0);
    assert_refused(tx_st_read(file, 0, 0, 3, data), TX_IO, "has 100 bytes, 560 are needed");
    tx_st_close(file);
    remove_scratch(folder);
}

/* Properties of every accepted header. */
static void check_header(const tx_st_header *h, int64_t data_bytes)
{
    int64_t end = 0, bytes;
    for (int32_t i = 0; i < h->count; i++) {
        const tx_st_entry *e = &h->entry[i];
        assert_true(e->begin == end && e->end >= e->begin);
        assert_ok(tx_st_size(&e->tensor, &bytes));
        assert_true(bytes == e->end - e->begin);
        assert_int_equal(tx_named_find(h->by_name, (size_t)h->count, e->tensor.name), i);
        end = e->end;
    }
    assert_true(end == data_bytes);
    assert_int_equal(tx_named_find(h->by_name, (size_t)h->count, "no tensor has this name"), -1);
}

static const char plain[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],"
    "\"data_offsets\":[0,24]},\"b\":{\"dtype\":\"BF16\",\"shape\":[0],\"data_offsets\":[24,24]}, "
    "\"\\u00e9\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[24,25]}}  ";

static void test_every_byte_changed(void **state)
{
    char text[sizeof plain];
    tx_st_header header;
    int accepted = 0;
    for (size_t at = 0; at + 1 < sizeof plain; at++)
        for (int value = 0; value < 256; value++) {
            memcpy(text, plain, sizeof plain);
            text[at] = (char)value;
            if (tx_st_header_parse("x", text, sizeof plain - 1, 25, &header))
                continue;
            check_header(&header, 25);
            tx_st_header_free(&header);
            accepted++;
        }
    assert_true(accepted > 256); /* names and spaces may change */
}

static void test_mutations(void **state)
{
    uint64_t random = 42;
    char text[4 * sizeof plain];
    tx_st_header header;
    for (int i = 0; i < MUTATIONS; i++) {
        memcpy(text, plain, sizeof plain);
        size_t size = mutate(text, sizeof plain - 1, &random);
        tx_status status = tx_st_header_parse("x", text, size, 25, &header);
        assert_true(status == TX_OK || status == TX_FORMAT || status == TX_UNSUPPORTED);
        if (status)
            continue;
        check_header(&header, 25);
        tx_st_header_free(&header);
    }
}

/* A header that would be blown up in memory by a parser of whole documents is refused early. */
static void test_hostile_header(void **state)
{
    enum { SIZE = 8 << 20 };
    char *folder = make_scratch(), *path = TX_PATH(folder, "x.safetensors"), *text = malloc(SIZE);
    tx_st_file *file;
    assert_non_null(text);
    int used = snprintf(text, SIZE, "{\"w\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[0");
    for (int i = used; i < SIZE; i += 2)
        memcpy(text + i, ",0", i + 1 < SIZE ? 2 : 1);
    write_raw(path, text, SIZE, 0);
    double begin = tx_seconds(CPU_TIME);
    assert_refused(tx_st_open(path, &file), TX_FORMAT, "at most 65536 bytes");
    memset(text + 5, '[', SIZE - 5);
    write_raw(path, text, SIZE, 0);
    assert_refused(tx_st_open(path, &file), TX_FORMAT, "an object that describes a tensor");
    if (!(tx_seconds(CPU_TIME) - begin < 1.0))
        fail_msg("took %g s", tx_seconds(CPU_TIME) - begin);
    free(text);
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),          cmocka_unit_test(test_others_are_recognised),
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_writer_refuses), cmocka_unit_test(test_truncations),
        cmocka_unit_test(test_shrinking_file), cmocka_unit_test(test_every_byte_changed),
        cmocka_unit_test(test_mutations),      cmocka_unit_test(test_hostile_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
