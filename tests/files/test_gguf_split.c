/* SPDX-License-Identifier: Apache-2.0
 * GGUF models that llama.cpp's gguf-split divided: any file opens all. */
#include "models/gguf/gguf_file.h"
#include "tests/scratch.h"

#define COUNT 3

/* Writes file `number` with one tensor, and with the values of the model if it is the first. */
static void write_part(const char *folder, int number, int says, int64_t tensors)
{
    const float data[] = {(float)number, 7.0f};
    char name[40], tensor_name[] = "t0";
    tx_gguf_writer *writer;
    snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", number + 1, COUNT);
    tensor_name[1] = (char)('0' + number);
    const tx_gguf_tensor tensor = {tensor_name, TX_GGUF_F32, 1, {2}};
    assert_ok(tx_gguf_create(&writer));
    if (number == 0)
        tx_gguf_put_string(writer, "a.text", "hello", 5);
    tx_gguf_put_int(writer, "split.no", says);
    tx_gguf_put_int(writer, "split.count", COUNT);
    tx_gguf_put_int(writer, "split.tensors.count", tensors);
    assert_ok(tx_gguf_begin(writer, TX_PATH(folder, name), &tensor, 1));
    assert_ok(tx_gguf_append(writer, data, sizeof data));
    assert_ok(tx_gguf_commit(writer));
}

static void write_all(const char *folder)
{
    for (int i = 0; i < COUNT; i++)
        write_part(folder, i, i, COUNT);
}

static void test_any_part(void **state)
{
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};
    write_all(*state);
    for (int i = 0; i < COUNT; i++) {
        tx_gguf_file *file;
        float data[2];
        assert_ok(tx_gguf_open(TX_PATH(*state, names[i]), &file));
        assert_int_equal(tx_gguf_count(file), COUNT);
        assert_true(tx_gguf_has(file, "a.text"));
        for (int t = 0; t < COUNT; t++) {
            const char name[] = {'t', (char)('0' + t), '\0'};
            assert_int_equal(tx_gguf_find(file, name), t);
            assert_ok(tx_gguf_read_f32(file, t, 0, 2, data));
            assert_true(data[0] == (float)t && data[1] == 7.0f);
        }
        tx_gguf_close(file);
    }
}

static void test_faults(void **state)
{
    tx_gguf_file *file = NULL;
    const char *first = TX_PATH(*state, "m-00001-of-00003.gguf");
    write_all(*state);
    write_part(*state, 1, 2, COUNT);
    assert_refused(tx_gguf_open(first, &file), TX_FORMAT, "m-00002-of-00003.gguf: is part 3 of 3");
    write_part(*state, 1, 1, COUNT);
    write_part(*state, 0, 0, COUNT + 1);
    assert_refused(tx_gguf_open(first, &file), TX_FORMAT, "its parts have 3 tensors, not 4");
    write_all(*state);
    assert_int_equal(rename(first, TX_PATH(*state, "other.gguf")), 0);
    assert_refused(tx_gguf_open(TX_PATH(*state, "other.gguf"), &file), TX_FORMAT, "-NNNNN-of-00003.gguf");
    assert_refused(tx_gguf_open(TX_PATH(*state, "m-00003-of-00003.gguf"), &file), TX_NOT_FOUND,
                   "m-00001-of-00003.gguf");
    assert_null(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_any_part, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_faults, open_scratch, close_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
