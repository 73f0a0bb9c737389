/* SPDX-License-Identifier: Apache-2.0
 * Frozen matrices in 4 and 8 bits: codes, stored bytes and values, valid writes and declarations, and gradients. The
 * gradients are compared with those through a dequantized copy. test_nf4 DEVICE */

#include "api/base/blocks.h"
#include "api/base/half.h"
#include "api/packed/nf4.h"
#include "tests/device_model.h"

static const tx_dtype packed[] = {TX_NF4, TX_NF4_DOUBLE, TX_Q8};

/* Returns a number in -1 .. 1 that depends only on i. */
static float number(int64_t i)
{
    uint64_t h = ((uint64_t)i + 7) * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ (h >> 31)) * UINT64_C(0xBF58476D1CE4E5B9);
    return (float)((double)((h ^ (h >> 29)) >> 11) * 0x1p-52 - 1.0);
}

static float *numbers(int64_t count, float scale)
{
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = scale * number(i) * number(3 * i + 1);
    return x;
}

/* ---- Codes -------------------------------------------------------------------------------------------------- */

/* Results of bitsandbytes 0.50.2. */
static void codes_are_those_of_bitsandbytes(void **state)
{
    static const uint8_t wanted[64] = {
        0x0E, 0xC8, 0x52, 0x1F, 0xDB, 0x74, 0x10, 0xEC, 0x96, 0x31, 0xFE, 0xB8, 0x42, 0x0E, 0xDA, 0x63,
        0x10, 0xEC, 0x85, 0x21, 0xFD, 0xB7, 0x41, 0x0E, 0xC9, 0x53, 0x1F, 0xEB, 0x84, 0x20, 0xED, 0xA6,
        0x31, 0x0E, 0xC8, 0x72, 0x1F, 0xDA, 0x74, 0x10, 0xEC, 0x95, 0x31, 0xFE, 0xB7, 0x42, 0x0E, 0xDA,
        0x63, 0x10, 0xEC, 0x85, 0x21, 0xFD, 0xA7, 0x41, 0x0E, 0xC9, 0x53, 0x1F, 0xDB, 0x74, 0x20, 0xED,
    };
    uint8_t codes[64];
    float x[128], absmax[2];
    for (int i = 0; i < 128; i++)
        x[i] = (float)((i * 7919 + 13) % 1009 - 504) / 256.0f * (float)(1 + i / 64);
    x[70] = 0.0f;
    tx_nf4_quantize(x, 2, codes, absmax);
    assert_memory_equal(codes, wanted, sizeof wanted);
    assert_true(absmax[0] == 1.93359375f && absmax[1] == 3.9296875f);
}

/* Numbers that are not finite are detected, and zeros stay zeros. */
static void odd_blocks(void **state)
{
    uint8_t codes[32];
    float x[64] = {0}, absmax;
    tx_nf4_quantize(x, 1, codes, &absmax);
    tx_nf4_dequantize(codes, &absmax, 1, x);
    for (int i = 0; i < 64; i++)
        assert_true(x[i] == 0.0f);
    x[9] = NAN;
    x[30] = 2.0f;
    tx_nf4_quantize(x, 1, codes, &absmax);
    assert_true(isnan(absmax));
}

/* ---- Storage ------------------------------------------------------------------------------------------------- */

static tx_param_spec matrix(tx_dtype dtype, int64_t rows, int64_t columns)
{
    return (tx_param_spec){.shape = TX_SHAPE(rows, columns), .frozen = true, .dtype = dtype};
}

static int32_t index_of(const fixture *f, const char *name)
{
    int32_t index = -1;
    assert_ok(tx_model_find(f->model, name, &index));
    return index;
}

/* Half a block's absmax times the widest gap between values is the most that an element can be off; scales in 8 bits
 * are off by a 64th part of their group's deviation. */
static void check_near(const float *stored, const float *x, int64_t count, float slack)
{
    for (int64_t b = 0; b < count; b += 64) {
        float most = 0.0f;
        for (int64_t i = b; i < b + 64; i++)
            most = fmaxf(most, fabsf(x[i]));
        for (int64_t i = b; i < b + 64; i++)
            assert_true(fabsf(stored[i] - x[i]) <= most * (0.1520f + slack) + slack);
    }
}

/* Returns the stored form of x, one block after the other. */
static float *in_a_row(const float *x, int64_t count, bool twice)
{
    const int64_t blocks = count / TX_NF4_BLOCK, groups = (blocks + TX_NF4_GROUP - 1) / TX_NF4_GROUP;
    uint8_t *codes = malloc((size_t)count / 2), *of_absmax = malloc((size_t)blocks);
    float *absmax = malloc((size_t)blocks * sizeof *absmax), *group = malloc((size_t)groups * sizeof(float[2]));
    float *stored = malloc((size_t)count * sizeof *stored), map[TX_NF4_MAP];
    tx_nf4_make_map(map);
    tx_nf4_quantize(x, blocks, codes, absmax);
    if (twice) {
        tx_nf4_compress(absmax, blocks, of_absmax, group);
        tx_nf4_expand(of_absmax, group, map, blocks, absmax);
    }
    tx_nf4_dequantize(codes, absmax, blocks, stored);
    free(codes);
    free(of_absmax);
    free(absmax);
    free(group);
    return stored;
}

static int set_up_three(void **state)
{
    return set_up_threads(state, 3);
}

static void what_is_written_is_read_back(void **state)
{
    fixture *f = *state;
    enum { ROWS = 1500, COLUMNS = 768, COUNT = ROWS * COLUMNS }; /* more than is converted at once */
    float *x = numbers(COUNT, 3.0f), *whole = malloc(COUNT * sizeof *whole), *parts = malloc(COUNT * sizeof *parts);
    assert_non_null(whole);
    assert_non_null(parts);
    for (int t = 0; t < 2; t++) {
        const tx_param_spec spec = matrix(packed[t], ROWS, COLUMNS);
        assert_non_null(tx_param(f->graph, t ? "double" : "single", &spec));
    }
    for (int t = 0; t < 2; t++) {
        const int64_t unit = tx_nf4_unit(t), cut = 17 * unit;
        const int32_t p = index_of(f, t ? "double" : "single");
        assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, p, x));
        assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, p, whole));
        check_near(whole, x, COUNT, t ? 0.02f : 0.0f);
        float *wanted = in_a_row(x, COUNT, t); /* whichever threads have done it */
        assert_memory_equal(whole, wanted, COUNT * sizeof *wanted);
        free(wanted);
        assert_memory_not_equal(whole, x, COUNT * sizeof *x);
        /* Writes in two pieces give the same, and pieces can be read. */
        assert_ok(tx_model_write_range(f->model, TX_PARAM_WEIGHT, p, cut, COUNT - cut, x + cut));
        assert_ok(tx_model_write_range(f->model, TX_PARAM_WEIGHT, p, 0, cut, x));
        assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, p, parts));
        assert_memory_equal(parts, whole, COUNT * sizeof *parts);
        assert_ok(tx_model_read_range(f->model, TX_PARAM_WEIGHT, p, 50001, 77, parts));
        assert_memory_equal(parts, whole + 50001, 77 * sizeof *parts);
        assert_refused(tx_model_write_range(f->model, TX_PARAM_WEIGHT, p, 32, 64, x), TX_INVALID, "whole units");
        assert_refused(tx_model_write_range(f->model, TX_PARAM_WEIGHT, p, 0, unit / 2, x), TX_INVALID, "whole units");
        assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, p, parts));
        assert_memory_equal(parts, whole, COUNT * sizeof *parts);
    }
    free(x);
    free(whole);
    free(parts);
}

/* Type Q8 has the numbers of Q8_0: of values, and of blocks as files hold them, whose codes stay as they are. */
static void eight_bits_are_q8_0(void **state)
{
    fixture *f = *state;
    enum { ROWS = 1100, COLUMNS = 992, COUNT = ROWS * COLUMNS, CUT = 32 * 12345 }; /* more than is converted at once */
    float *x = numbers(COUNT, 3.0f), *wanted = malloc(COUNT * sizeof *wanted), *got = malloc(COUNT * sizeof *got);
    uint8_t *blocks = malloc(COUNT / 32 * 34);
    assert_true(wanted && got && blocks);
    const tx_param_spec spec = matrix(TX_Q8, ROWS, COLUMNS);
    assert_non_null(tx_param(f->graph, "w", &spec));
    const int32_t p = index_of(f, "w");
    tx_block_write_q8_0(x, NULL, COUNT, blocks);
    tx_block_read(TX_Q8_0, blocks, COUNT, wanted);
    assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, p, x));
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, p, got));
    assert_memory_equal(got, wanted, COUNT * sizeof *got);
    for (int64_t i = 0; i < COUNT; i++) /* codes whose greatest is not 127 */
        blocks[i / 32 * 34 + 2 + i % 32] = (uint8_t)(i * 7 % 90 - 128 * (i % 5 == 0));
    tx_block_read(TX_Q8_0, blocks, COUNT, wanted);
    assert_ok(tx_model_write_blocks(f->model, p, CUT, COUNT - CUT, TX_Q8_0, blocks + CUT / 32 * 34));
    assert_ok(tx_model_write_blocks(f->model, p, 0, CUT, TX_Q8_0, blocks));
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, p, got));
    assert_memory_equal(got, wanted, COUNT * sizeof *got);
    assert_ok(tx_model_read_range(f->model, TX_PARAM_WEIGHT, p, 50001, 77, got));
    assert_memory_equal(got, wanted + 50001, 77 * sizeof *got);
    assert_refused(tx_model_write_range(f->model, TX_PARAM_WEIGHT, p, 16, 64, x), TX_INVALID, "whole units");
    assert_refused(tx_model_write_blocks(f->model, p, 0, 64, TX_Q4_0, blocks), TX_INVALID, "blocks of Q8_0");
    assert_refused(tx_model_write_blocks(f->model, p, 0, 48, TX_Q8_0, blocks), TX_INVALID, "whole blocks");
    free(x);
    free(wanted);
    free(got);
    free(blocks);
}

static void takes_what_is_planned(void **state)
{
    fixture *f = *state;
    tx_memory planned, held;
    int64_t bytes[4];
    const tx_dtype types[] = {TX_BF16, TX_NF4, TX_NF4_DOUBLE, TX_Q8};
    for (int t = 0; t < 4; t++) {
        const tx_param_spec spec = matrix(types[t], 512, 1024);
        char name[2] = {(char)('a' + t), 0};
        assert_ok(tx_model_memory(f->model, &planned));
        bytes[t] = -planned.bytes[TX_MEMORY_WEIGHTS];
        assert_non_null(tx_param(f->graph, name, &spec));
        assert_ok(tx_model_memory(f->model, &planned));
        bytes[t] += planned.bytes[TX_MEMORY_WEIGHTS];
    }
    assert_int_equal(bytes[0], 2 * 512 * 1024);
    assert_int_equal(bytes[1], 512 * 1024 / 2 + 4 * 8192);
    assert_int_equal(bytes[2], 512 * 1024 / 2 + 8192 + 1024 + 512); /* 32 groups of 8 bytes, rounded up */
    assert_int_equal(bytes[3], 512 * 1024 / 32 * 34);
    assert_ok(tx_model_allocate(f->model));
    assert_ok(tx_engine_memory(f->engine, &held));
    assert_int_equal(held.bytes[TX_MEMORY_WEIGHTS], planned.bytes[TX_MEMORY_WEIGHTS]);
}

/* ---- Refusals -------------------------------------------------------------------------------------------------- */

static void refuse_param(fixture *f, tx_param_spec spec, tx_status status, const char *word)
{
    assert_null(tx_param(f->graph, "w", &spec));
    assert_refused(tx_backward(f->graph, NULL), status, word);
    tx_graph_free(f->graph);
    f->graph = NULL;
    assert_ok(tx_graph_create(f->model, &f->graph));
}

static void wrong_parameters_are_refused(void **state)
{
    fixture *f = *state;
    tx_param_spec spec = matrix(TX_NF4, 64, 64);
    spec.frozen = false;
    refuse_param(f, spec, TX_INVALID, "only a frozen one");
    refuse_param(f, matrix(TX_NF4, 64, 96), TX_UNSUPPORTED, "multiples of 64");
    refuse_param(f, matrix(TX_Q8, 64, 80), TX_UNSUPPORTED, "multiples of 32");
    spec = (tx_param_spec){.shape = TX_SHAPE(64), .frozen = true, .dtype = TX_NF4};
    refuse_param(f, spec, TX_UNSUPPORTED, "matrices");
    spec = matrix(TX_NF4_DOUBLE, 96, 512);
    spec.sections = (tx_param_sections){2, 0, {32, 64}, {0}};
    assert_non_null(tx_param(f->graph, "fits", &spec));
    spec.sections.size[0] = 16;
    spec.sections.size[1] = 80;
    assert_non_null(tx_param(f->graph, "one tensor", &spec));
    spec.apart = true;
    refuse_param(f, spec, TX_UNSUPPORTED, "double quantisation");
    spec.dtype = TX_NF4;
    assert_non_null(tx_param(f->graph, "single", &spec));
}

/* A graph that reads w in the way that `read` selects. */
static void wrong_readers_are_refused(void **state)
{
    fixture *f = *state;
    static const char *const words[] = {"embedding", "add", "matmul", "matmul", "matmul", "only a parameter"};
    const tx_param_spec spec = matrix(TX_NF4, 128, 64);
    for (int k = 0; k < 6; k++) {
        tx_tensor *w = tx_param(f->graph, "w", &spec), *y = NULL;
        tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(2, 3, 64));
        if (k == 0)
            y = tx_embedding(tx_input(f->graph, "ids", TX_I32, TX_SHAPE(2, 3)), w, NULL, NULL);
        else if (k == 1)
            y = tx_add(w, w);
        else if (k == 2)
            y = tx_linear(w, tx_input(f->graph, "b", TX_F32, TX_SHAPE(64, 5)), NULL, false);
        else if (k == 3) /* x transposed */
            y = tx_matmul(tx_input(f->graph, "a", TX_F32, TX_SHAPE(2, 128, 3)), w, true, false);
        else if (k == 4)
            y = tx_linear(x, w, NULL, false); /* 64 terms by 128 rows */
        else
            y = tx_input(f->graph, "packed", TX_NF4, TX_SHAPE(64, 64));
        assert_null(y);
        assert_non_null(strstr(tx_error(), words[k]));
        tx_graph_free(f->graph);
        f->graph = NULL;
        assert_ok(tx_graph_create(f->model, &f->graph));
    }
}

/* ---- Gradients --------------------------------------------------------------------------------------------------- */

enum { WIDTH = 128, INNER = 320, OUT = 192 };

/* x scaled by p, through w [INNER, WIDTH] and v [INNER, OUT], which products read in both layouts; the loss is the sum
 * of squares. */
static tx_tensor *build(fixture *f, tx_dtype type, tx_dtype computed, int64_t rows)
{
    tx_graph_free(f->graph);
    f->graph = NULL;
    assert_ok(tx_graph_create(f->model, &f->graph));
    assert_ok(tx_graph_autocast(f->graph, computed));
    const char *w = type == TX_F32 || type == TX_BF16 ? "copy w" : "w", *v = w[0] == 'c' ? "copy v" : "v";
    const tx_param_spec first = matrix(type, INNER, WIDTH), second = matrix(type, INNER, OUT);
    tx_tensor *x = tx_input(f->graph, "x", TX_F32, TX_SHAPE(rows, WIDTH));
    tx_tensor *p =
        tx_param(f->graph, "p", &(tx_param_spec){.shape = TX_SHAPE(rows, WIDTH), .init = TX_INIT_NORMAL, .scale = 1});
    tx_tensor *h = tx_linear(tx_mul(x, p), tx_param(f->graph, w, &first), NULL, true);
    tx_tensor *y = tx_linear(h, tx_param(f->graph, v, &second), NULL, false);
    assert_ok(tx_backward(f->graph, tx_reduce(y, TX_REDUCE_SUMSQ, TX_AXIS_ALL)));
    assert_ok(tx_plan_create(f->graph, "train", &f->plan));
    return x;
}

/* The loss and the gradient of p. */
static float run(fixture *f, tx_tensor *x, int64_t rows, float *gradient)
{
    float *data = numbers(rows * WIDTH, 1.0f);
    tx_results results;
    assert_ok(tx_model_restore(f->model, &(tx_results){{0}}));
    assert_ok(tx_plan_write(f->plan, x, data, (size_t)(rows * WIDTH) * sizeof *data));
    assert_ok(tx_plan_run(f->plan));
    assert_ok(tx_model_fetch(f->model));
    assert_ok(tx_model_results(f->model, &results));
    assert_ok(tx_model_read(f->model, TX_PARAM_GRADIENT, index_of(f, "p"), gradient));
    tx_plan_free(f->plan);
    f->plan = NULL;
    free(data);
    return results.value[TX_RESULT_LOSS];
}

static void copy_values(fixture *f, const char *from, const char *to, int64_t count)
{
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, index_of(f, from), x));
    assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, index_of(f, to), x));
    free(x);
}

static void compare_gradients(void **state, tx_dtype type, tx_dtype computed, int64_t rows)
{
    fixture *f = NULL;
    assert_int_equal(set_up_threads((void **)&f, 2), 0);
    const int64_t count = rows * WIDTH;
    float *mine = malloc((size_t)count * sizeof *mine), *copys = malloc((size_t)count * sizeof *copys);
    float *w = numbers(INNER * WIDTH, 0.1f), *v = numbers(INNER * OUT, 0.1f);
    assert_non_null(mine);
    assert_non_null(copys);
    /* Both graphs declare their parameters before the first is written. */
    tx_graph *kept = NULL;
    tx_plan *plan = NULL;
    tx_tensor *of_copy = build(f, computed, computed, rows);
    kept = f->graph;
    plan = f->plan;
    f->graph = NULL;
    f->plan = NULL;
    tx_tensor *x = build(f, type, computed, rows);
    assert_ok(tx_model_init(f->model, 5));
    assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, index_of(f, "w"), w));
    assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, index_of(f, "v"), v));
    copy_values(f, "w", "copy w", INNER * WIDTH);
    copy_values(f, "v", "copy v", INNER * OUT);
    const float loss = run(f, x, rows, mine);
    f->plan = plan;
    const float wanted = run(f, of_copy, rows, copys);
    const double tolerance =
        computed == TX_F32 ? 1e-5 : 2e-3; /* sums in another order, rounded to 16 bits on the way */
    double error = 0.0, size = 0.0;
    for (int64_t i = 0; i < count; i++) {
        error += ((double)mine[i] - copys[i]) * ((double)mine[i] - copys[i]);
        size += (double)copys[i] * copys[i];
    }
    assert_true(size > 0.0 && wanted > 0.0f);
    assert_true(sqrt(error / size) <= tolerance);
    assert_true(fabs((double)loss / wanted - 1.0) <= tolerance);
    /* The weights are the same as before. Their values differ from the written ones, which would hide a mix-up. */
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, index_of(f, "w"), w));
    float *after = malloc(sizeof *after * INNER * WIDTH);
    assert_non_null(after);
    copy_values(f, "w", "copy w", INNER * WIDTH);
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, index_of(f, "w"), after));
    assert_memory_equal(after, w, sizeof *after * INNER * WIDTH);
    free(after);
    tx_graph_free(kept);
    free(mine);
    free(copys);
    free(w);
    free(v);
    tear_down((void **)&f);
}

static void gradients_are_those_through_a_copy(void **state)
{
    static const tx_dtype computed[] = {TX_F32, TX_BF16};
    for (int t = 0; t < 3; t++)
        for (int c = 0; c < 2; c++) {
            compare_gradients(state, packed[t], computed[c], 3);
            compare_gradients(state, packed[t], computed[c], 40);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_those_of_bitsandbytes),
        cmocka_unit_test(odd_blocks),
        cmocka_unit_test_setup_teardown(what_is_written_is_read_back, set_up_three, tear_down),
        cmocka_unit_test_setup_teardown(eight_bits_are_q8_0, set_up_three, tear_down),
        cmocka_unit_test_setup_teardown(takes_what_is_planned, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_parameters_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_readers_are_refused, set_up, tear_down),
        cmocka_unit_test(gradients_are_those_through_a_copy),
    };
    device = tx_test_device(argc > 1 ? argv[1] : device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
