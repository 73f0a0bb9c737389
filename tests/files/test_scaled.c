/* SPDX-License-Identifier: Apache-2.0
 * Weights with scales of their own, in files of a few bytes: values by the definitions of the formats (OCP 8-bit
 * Floating Point and Microscaling Formats), and files whose parts do not fit. */
#include "models/files/scaled.h"
#include "tests/scratch.h"

typedef struct part {
    tx_st_tensor tensor;
    const void *data;
} part;

/* Writes a file of parts, and opens it with a configuration. */
static tx_status open_parts(const char *path, const char *config, const part *parts, int32_t count,
                            tx_weights **weights)
{
    tx_st_tensor tensors[4];
    tx_st_writer *writer;
    tx_json *json;
    for (int32_t i = 0; i < count; i++)
        tensors[i] = parts[i].tensor;
    assert_ok(tx_st_create(path, tensors, count, &writer));
    for (int32_t i = 0; i < count; i++)
        assert_ok(tx_st_append(writer, parts[i].data, (size_t)tx_st_bytes(&tensors[i])));
    assert_ok(tx_st_commit(writer));
    assert_ok(tx_weights_open(path, weights));
    assert_ok(tx_json_parse(config, strlen(config), "config", &json));
    const tx_status status = tx_scaled_open(json, weights);
    tx_json_free(json);
    return status;
}

static void compare(const char *path, const char *config, const part *parts, int32_t count, const float *wanted,
                    int64_t values)
{
    tx_weights *weights;
    float data[32];
    assert_ok(open_parts(path, config, parts, count, &weights));
    assert_int_equal(tx_weights_count(weights), 1);
    assert_string_equal(tx_weights_tensor_at(weights, 0)->name, "a.weight");
    assert_int_equal(tx_st_elements(tx_weights_tensor_at(weights, 0)), values);
    assert_ok(tx_weights_read_f32(weights, 0, 0, values, data));
    assert_memory_equal(data, wanted, (size_t)values * sizeof *data);
    assert_ok(tx_weights_read_f32(weights, 0, values - 3, 2, data));
    assert_memory_equal(data, wanted + values - 3, 2 * sizeof *data);
    tx_weights_close(weights);
}

static void test_values(void **state)
{
    const char *path = TX_PATH(*state, "model.safetensors");
    /* 1, 2, -1, 448, the smallest number, the largest below normal ones; blocks of 2 x 2, the last ones are smaller. */
    static const uint8_t e4m3[] = {0x38, 0x40, 0xB8, 0x7E, 0x01, 0x07, 0x38, 0x38, 0x38};
    static const float blocks[] = {1, 2, 4, 8}, eight[] = {1, 2, -2, 448, 0x1p-9f, 0x1.cp-6f, 4, 4, 8};
    compare(path, "{\"weight_block_size\": [2, 2]}",
            (part[]){{{"a.weight", TX_ST_F8_E4M3, 2, {3, 3}}, e4m3},
                     {{"a.weight_scale_inv", TX_ST_F32, 2, {2, 2}}, blocks}},
            2, eight, 9);
    /* Codes 9, 8, 7, 0 .. less 8, from the lowest bits on; a scale for each 4. */
    static const uint32_t words[] = {0x0F010789};
    static const uint16_t halves[] = {0x3F80, 0x4000}; /* 1 and 2 in bf16 */
    static const int64_t shape[] = {1, 8};
    static const float four[] = {1, 0, -1, -8, -14, -16, 14, -16};
    compare(path, "{}",
            (part[]){{{"a.weight_packed", TX_ST_I32, 2, {1, 1}}, words},
                     {{"a.weight_scale", TX_ST_BF16, 2, {1, 2}}, halves},
                     {{"a.weight_shape", TX_ST_I64, 1, {2}}, shape}},
            3, four, 8);
    /* Pairs of e2m1, the lower bits first, a scale of 8 bits and one of all. */
    static const uint8_t pairs[] = {0x21, 0xF7, 0x80, 0x9A}, scale[] = {0x40}; /* 2 */
    static const float factor[] = {4}, small[] = {0.25f, 0.5f, 3, -3, 0, -0.0f, -0.5f, -0.25f};
    compare(path, "{}",
            (part[]){{{"a.weight_packed", TX_ST_U8, 2, {1, 4}}, pairs},
                     {{"a.weight_scale", TX_ST_F8_E4M3, 2, {1, 1}}, scale},
                     {{"a.weight_global_scale", TX_ST_F32, 1, {1}}, factor}},
            3, small, 8);
}

static void test_refused(void **state)
{
    const char *path = TX_PATH(*state, "refused.safetensors");
    static const uint8_t codes[32];
    static const float scales[8];
    static const int64_t shape[] = {2, 9};
    const part weight = {{"a.weight", TX_ST_F8_E4M3, 2, {4, 4}}, codes};
    tx_weights *weights;
    assert_refused(open_parts(path, "{}", &weight, 1, &weights), TX_FORMAT, "a.weight: its scales are missing");
    assert_refused(
        open_parts(path, "{}", (part[]){weight, {{"a.weight_scale", TX_ST_F32, 2, {3, 1}}, scales}}, 2, &weights),
        TX_FORMAT, "a.weight_scale does not have a scale for each block");
    assert_refused(open_parts(path, "{}",
                              (part[]){{{"a.weight_packed", TX_ST_I32, 2, {2, 1}}, codes},
                                       {{"a.weight_scale", TX_ST_F32, 2, {2, 1}}, scales},
                                       {{"a.weight_shape", TX_ST_I64, 1, {2}}, shape}},
                              3, &weights),
                   TX_UNSUPPORTED, "4 and 8 bits");
    assert_refused(open_parts(path, "{\"weight_block_size\": [2]}", &weight, 1, &weights), TX_UNSUPPORTED,
                   "weight_block_size");
    assert_refused(open_parts(path, "{\"format\": \"sparse\"}", &weight, 1, &weights), TX_UNSUPPORTED, "sparse");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_values, open_scratch, close_scratch),
                                       cmocka_unit_test_setup_teardown(test_refused, open_scratch, close_scratch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
