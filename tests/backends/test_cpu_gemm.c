/* SPDX-License-Identifier: Apache-2.0
 * Matrix products of the CPU backend against a naive double-precision product. ctest runs it twice: ONEDNN_MAX_CPU_ISA
 * is AVX2 the second time, for which oneDNN declines all types of 16 bits. */
#include "tests/backends/cpu_product.h"

static const struct {
    tx_dtype type, result;
} types[] = {{TX_F32, TX_F32}, {TX_BF16, TX_BF16}, {TX_BF16, TX_F32}, {TX_F16, TX_F16}, {TX_F16, TX_F32}};
#define TYPES (sizeof types / sizeof *types)

/* A spec of one dense product. */
static tx_cpu_gemm_spec dense(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b)
{
    return (tx_cpu_gemm_spec){
        .shape = {.batch = 1, .m = m, .n = n, .k = k, .lda = trans_a ? m : k, .ldb = trans_b ? k : n, .ldc = n},
        .trans_a = trans_a,
        .trans_b = trans_b,
        .threads = 2,
        .rows = tx_cpu_kernels_choose()->gemm_rows,
    };
}

static void check_all_types(tx_cpu_gemm_spec spec)
{
    for (size_t t = 0; t < TYPES; t++)
        for (int more = 0; more < 4; more++) {
            spec.type = types[t].type;
            spec.result = types[t].result;
            spec.bias = (more & 1) != 0;
            spec.adds = (more & 2) != 0;
            check(&spec, spec.adds);
        }
}

static void test_shapes(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 1},     {1, 7, 5},    {5, 1, 9},      {3, 4, 1},
                                        {1, 130, 300}, {130, 1, 70}, {12, 32, 64},   {17, 33, 65},
                                        {13, 65, 31},  {48, 96, 40}, {2, 3, 1000},   {6, 16, 384},
                                        {25, 31, 769}, {8, 530, 70}, {5, 1100, 129}, {7, 17, 200}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < 4; t++)
            check_all_types(dense(shapes[i][0], shapes[i][1], shapes[i][2], (t & 1) != 0, (t & 2) != 0));
}

/* Results that are large in each way. */
static void test_large(void **state)
{
    static const int64_t shapes[][3] = {{1700, 40, 20}, {20, 3300, 10}, {70, 90, 1200}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t t = 0; t < TYPES; t++) {
            tx_cpu_gemm_spec spec = dense(shapes[i][0], shapes[i][1], shapes[i][2], i % 2 != 0, i % 2 == 0);
            spec.type = types[t].type;
            spec.result = types[t].result;
            spec.bias = spec.adds = true;
            check(&spec, true);
        }
}

/* A sum over so many k that it is computed in pieces, also if the last piece is shorter. */
static void test_long_sums(void **state)
{
    for (size_t t = 0; t < TYPES; t++)
        for (int adds = 0; adds < 2; adds++) {
            bool swapped = (t + (size_t)adds) % 2 != 0;
            tx_cpu_gemm_spec spec = dense(11, 9, t % 2 ? 20001 : 24576, swapped, !swapped);
            spec.type = types[t].type;
            spec.result = types[t].result;
            spec.adds = adds != 0;
            check(&spec, spec.adds);
        }
}

/* Batches: both with strides, either shared, rows with gaps. */
static void test_batches(void **state)
{
    for (int t = 0; t < 4; t++)
        for (int shared = 0; shared < 3; shared++)
            for (int gap = 0; gap < 4; gap += 3) {
                tx_cpu_gemm_spec spec = dense(9, 21, 35, (t & 1) != 0, (t & 2) != 0);
                tx_gemm *s = &spec.shape;
                s->batch = 3;
                s->lda += gap;
                s->ldb += gap;
                s->ldc += gap;
                s->stride_a = shared == 1 ? 0 : (spec.trans_a ? s->k : s->m) * s->lda + 2 * gap;
                s->stride_b = shared == 2 ? 0 : (spec.trans_b ? s->n : s->k) * s->ldb;
                s->stride_c = s->m * s->ldc;
                check_all_types(spec);
            }
}

static void expect_equal_bits(const tx_cpu_gemm_spec *spec)
{
    static const int32_t threads[] = {1, 2, 3, 5, 16};
    product p = product_create(spec);
    size_t bytes = (size_t)p.c_count * tx_dtype_size(spec->result);
    void *first = malloc(bytes);
    assert_non_null(first);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        p.spec.threads = threads[i];
        run(&p, true);
        if (i == 0)
            memcpy(first, c_of(&p), bytes);
        if (memcmp(first, c_of(&p), bytes) != 0)
            fail_msg("batch %lld, %lldx%lldx%lld %c%c: other bits with %d threads", (long long)spec->shape.batch,
                     (long long)spec->shape.m, (long long)spec->shape.n, (long long)spec->shape.k, "NT"[spec->trans_a],
                     "NT"[spec->trans_b], (int)threads[i]);
    }
    free(first);
    product_free(&p);
}

/* The bits do not depend on the number of threads: few rows, tiles, and large products with few and many terms. */
static void test_threads(void **state)
{
    static const int64_t shapes[][3] = {{3, 1250, 300}, {512, 16, 512}, {78, 128, 512}, {300, 310, 90},
                                        {37, 17, 5000}, {200, 1500, 9}, {704, 984, 13}, {600, 900, 64},
                                        {96, 96, 2000}, {1000, 128, 70}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t t = 0; t < 2 * TYPES; t++) {
            tx_cpu_gemm_spec spec = dense(shapes[i][0], shapes[i][1], shapes[i][2], (i + t) % 2 != 0, t >= TYPES);
            spec.type = types[t % TYPES].type;
            spec.result = types[t % TYPES].result;
            spec.bias = i > 0;
            spec.adds = true;
            expect_equal_bits(&spec);
            if (i % 4)
                continue;
            tx_gemm *s = &spec.shape;
            s->batch = 7;
            s->stride_a = s->m * s->k;
            s->stride_b = s->k * s->n;
            s->stride_c = s->m * s->n;
            expect_equal_bits(&spec);
        }
}

/* Few rows: the bits of one do not depend on how many there are. */
static void test_few_rows(void **state)
{
    for (int trans = 0; trans < 2; trans++) {
        const int64_t rows = tx_cpu_kernels_choose()->gemm_rows->few;
        tx_cpu_gemm_spec spec = dense(rows, 700, 1333, false, trans != 0);
        spec.bias = true;
        product p = product_create(&spec);
        const size_t row = (size_t)spec.shape.n * sizeof(float);
        float *all = malloc(row * (size_t)rows), *a = p.a;
        assert_non_null(all);
        run(&p, false);
        memcpy(all, c_of(&p), row * (size_t)rows);
        for (int i = 0; i < 2 * rows; i++) { /* single rows, then the first ones together */
            p.spec.shape.m = i < rows ? 1 : i - rows + 1;
            p.a = i < rows ? a + i * spec.shape.lda : a;
            run(&p, false);
            assert_memory_equal((char *)all + (i < rows ? (size_t)i * row : 0), c_of(&p), (size_t)p.spec.shape.m * row);
        }
        p.a = a;
        free(all);
        product_free(&p);
    }
}

/* One NaN of a or b reaches its row or column and nothing else, also if it is multiplied by zero. */
static void test_nan(void **state)
{
    const int64_t n = 37, k = 50;
    for (int64_t m = 6; m < 20; m += 13)
        for (size_t t = 0; t < TYPES; t++)
            for (int operand = 0; operand < 2; operand++) {
                tx_cpu_gemm_spec spec = dense(m, n, k, false, false);
                spec.type = types[t].type;
                spec.result = types[t].result;
                product p = product_create(&spec);
                size_t size = tx_dtype_size(spec.type);
                memset(operand ? p.a : p.b, 0, (size_t)(operand ? p.a_count : p.b_count) * size);
                int64_t at = operand ? 7 * n + 5 : 5 * k + 7;
                memset((char *)(operand ? p.b : p.a) + at * (int64_t)size, 0xFF, size);
                run(&p, false);
                for (int64_t i = 0; i < m * n; i++) {
                    bool expected = operand ? i % n == 5 : i / n == 5;
                    double found = get(c_of(&p), spec.result, i);
                    if (expected ? !isnan(found) : found != 0.0)
                        fail_msg("element %lld is %g", (long long)i, found);
                }
                product_free(&p);
            }
}

/* A product that was prepared with a bias and for adding can run without either, and twice in a row. */
static void test_optional(void **state)
{
    for (size_t t = 0; t < TYPES; t++) {
        tx_cpu_gemm_spec spec = dense(20, 30, 40, false, true);
        spec.type = types[t].type;
        spec.result = types[t].result;
        spec.bias = spec.adds = true;
        product p = product_create(&spec);
        tx_cpu_gemm *gemm = NULL;
        int64_t bytes = 0;
        assert_int_equal(tx_cpu_gemm_create(&spec, &gemm, &bytes), TX_OK);
        float *bias = p.bias;
        for (int time = 0; time < 3; time++) {
            p.bias = time < 2 ? NULL : bias;
            poison(&p, false);
            run_prepared(gemm, bytes, &p, false);
            compare(&p, NULL, false);
        }
        tx_cpu_gemm_destroy(gemm);
        product_free(&p);
    }
}

static void test_refusals(void **state)
{
    tx_cpu_gemm *gemm = NULL;
    int64_t bytes = 0;
    tx_cpu_gemm_spec spec = dense(4, 4, 4, false, false);
    spec.shape.k = 0;
    assert_int_equal(tx_cpu_gemm_create(&spec, &gemm, &bytes), TX_INVALID);
    spec = dense(4, 4, 4, false, false);
    spec.shape.ldc = 3;
    assert_int_equal(tx_cpu_gemm_create(&spec, &gemm, &bytes), TX_INVALID);
    spec = dense(4, 4, 4, false, false);
    spec.type = TX_I32;
    assert_int_equal(tx_cpu_gemm_create(&spec, &gemm, &bytes), TX_UNSUPPORTED);
    spec.type = TX_BF16;
    spec.result = TX_F16;
    assert_int_equal(tx_cpu_gemm_create(&spec, &gemm, &bytes), TX_UNSUPPORTED);
    assert_null(gemm);
    spec = dense(1, 1, 1, false, false);
    assert_int_equal(tx_cpu_gemm_create(&spec, &gemm, &bytes), TX_OK);
    float one = 1.0f;
    assert_int_equal(tx_cpu_gemm_run(gemm, &one, &one, 0, &one, &one, 0.0f, NULL), TX_INVALID);
    assert_int_equal(tx_cpu_gemm_run(gemm, &one, &one, 0, NULL, &one, 1.0f, NULL), TX_INVALID);
    tx_cpu_gemm_destroy(gemm);
    tx_cpu_gemm_destroy(NULL);
}

static void expect_variant(const tx_cpu_gemm_spec *spec, const char *expected)
{
    tx_cpu_gemm *gemm = NULL;
    int64_t bytes = 0;
    assert_int_equal(tx_cpu_gemm_create(spec, &gemm, &bytes), TX_OK);
    if (!strstr(tx_cpu_gemm_variant(gemm), expected))
        fail_msg("%s, but %s was expected", tx_cpu_gemm_variant(gemm), expected);
    tx_cpu_gemm_destroy(gemm);
}

/* The loops in every instruction set that this CPU can run, not just the best one. */
static void test_instruction_sets(void **state)
{
    static const char *const variants[] = {"base", "avx2", "avx512"};
    for (int v = 0; v < 3; v++) {
        setenv("TX_CPU_VARIANT", variants[v], 1);
        if (!tx_cpu_kernels_choose())
            continue;
        tx_cpu_gemm_spec spec = dense(3, 45, 71, false, false);
        spec.type = spec.result = TX_F32;
        expect_variant(&spec, variants[v]);
        for (int t = 0; t < 4; t++) {
            check_all_types(dense(29, 45, 71, (t & 1) != 0, (t & 2) != 0));
            check_all_types(dense(3, 530, 71, (t & 1) != 0, (t & 2) != 0));
        }
    }
    unsetenv("TX_CPU_VARIANT");
}

/* Products of operands that are padded with AVX2. They have the bits of those whose rows are further apart in memory,
 * which oneDNN computes in place. */
static void test_padded(void **state)
{
    enum { ROWS = 128, COLUMNS = 512, APART = COLUMNS + 4 };
    const bool avx2 = strcmp(tx_cpu_kernels_choose()->gemm_rows->name, "avx2") == 0;
    for (int trans = 0; trans < 2; trans++) {
        tx_cpu_gemm_spec spec = dense(ROWS, COLUMNS, 70, trans != 0, false);
        spec.type = spec.result = TX_F32;
        spec.bias = spec.adds = true;
        check(&spec, true);
        if (avx2)
            expect_variant(&spec, "padded");
        product p = product_create(&spec);
        spec.shape.ldb = APART;
        product q = product_create(&spec);
        memcpy(q.a, p.a, (size_t)p.a_count * sizeof(float));
        for (int64_t r = 0; r < spec.shape.k; r++)
            memcpy((float *)q.b + r * APART, (float *)p.b + r * COLUMNS, COLUMNS * sizeof(float));
        for (int32_t threads = 1; threads <= 3; threads++) {
            p.spec.threads = q.spec.threads = threads;
            run(&p, true);
            run(&q, true);
            assert_memory_equal(c_of(&p), c_of(&q), (size_t)p.c_count * sizeof(float));
        }
        product_free(&p);
        product_free(&q);
    }
}

static double rms_error(const product *p)
{
    const tx_gemm *s = &p->spec.shape;
    double squares = 0;
    for (int64_t i = 0; i < s->m * s->n; i++) {
        double sum = 0;
        for (int64_t q = 0; q < s->k; q++)
            sum += p->wide_a[i / s->n * s->lda + q] * p->wide_b[q * s->ldb + i % s->n];
        const double error = get(c_of(p), TX_F32, i) - sum;
        squares += error * error;
    }
    return sqrt(squares / (double)(s->m * s->n));
}

/* fp32 on matrix units: whole blocks and parts of them in each direction, and more rows and terms than are computed at
 * once. The bits are the same with any number of threads, and errors are no larger than oneDNN's. */
static void test_matrix_units(void **state)
{
    static const int64_t shapes[][3] = {{128, 128, 128}, {97, 133, 71}, {2100, 65, 48}, {96, 100, 1100}, {64, 300, 50}};
    tx_cpu_gemm_spec spec = dense(100, 120, 5000, false, false);
    if (!tx_gemm_amx.takes(&spec))
        skip();
    expect_variant(&spec, "amx");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < 16; t++) {
            tx_cpu_gemm_spec other = dense(shapes[i][0], shapes[i][1], shapes[i][2], (t & 1) != 0, (t & 2) != 0);
            other.bias = (t & 4) != 0;
            other.adds = (t & 8) != 0;
            other.threads = 1 + t % 5;
            expect_variant(&other, "amx");
            check(&other, other.adds);
        }
    product p = product_create(&spec);
    const size_t bytes = (size_t)p.c_count * sizeof(float);
    float *first = malloc(bytes), *scratch = aligned_alloc(64, 1 << 24);
    assert_true(first && scratch);
    for (p.spec.threads = 1; p.spec.threads <= 7; p.spec.threads++) {
        run(&p, false);
        if (p.spec.threads == 1)
            memcpy(first, c_of(&p), bytes);
        assert_memory_equal(first, c_of(&p), bytes);
    }
    const double error = rms_error(&p);
    void *other = NULL;
    int64_t other_bytes = 0;
    char variant[TX_GEMM_VARIANT];
    assert_int_equal(tx_gemm_dnnl_create(&spec, &other, &other_bytes, variant), TX_OK);
    assert_true(other_bytes <= 1 << 24);
    const tx_gemm_call call = {.a = p.a, .b = p.b, .c = c_of(&p), .scratch = scratch};
    assert_int_equal(tx_gemm_dnnl_run(other, &call), TX_OK);
    const double others = rms_error(&p);
    print_message("rms errors: %g on matrix units, %g by %s\n", error, others, variant);
    assert_true(error <= others);
    tx_gemm_dnnl_destroy(other);
    free(first);
    free(scratch);
    product_free(&p);
}

/* A number that is not finite gives none that is; large and small ones of fp32 keep all their bits. */
static void test_matrix_units_range(void **state)
{
    static const float numbers[] = {INFINITY, -INFINITY, NAN, 3.4028234e38f, 2e-31f};
    tx_cpu_gemm_spec spec = dense(100, 100, 64, false, false);
    if (!tx_gemm_amx.takes(&spec))
        skip();
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        product p = product_create(&spec);
        memset(p.a, 0, (size_t)p.a_count * sizeof(float));
        for (int64_t j = 0; j < p.b_count; j++)
            ((float *)p.b)[j] = 0.75f;
        ((float *)p.a)[7 * 64 + 5] = numbers[i];
        run(&p, false);
        for (int64_t j = 0; j < p.c_count; j++) {
            const double found = get(c_of(&p), TX_F32, j), wanted = 0.75 * (double)numbers[i];
            if (j / 100 != 7           ? found != 0.0
                : isfinite(numbers[i]) ? !(fabs(found - wanted) <= 0x1p-23 * fabs(wanted))
                                       : isfinite(found))
                fail_msg("%g gives %g", (double)numbers[i], found);
        }
        product_free(&p);
    }
}

/* Checks the second run: if oneDNN accepted these products, nothing above would have been widened. */
static void test_declined(void **state)
{
#ifdef __x86_64__
    if (getenv("ONEDNN_MAX_CPU_ISA")) {
        for (size_t t = 0; t < TYPES; t++) {
            tx_cpu_gemm_spec spec = dense(TX_GEMM_FEW + 1, 30, 40, false, false);
            spec.type = types[t].type;
            spec.result = types[t].result;
            expect_variant(&spec, spec.type == TX_F32 ? "onednn" : "widened to fp32");
        }
        return;
    }
#endif
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_large),
        cmocka_unit_test(test_long_sums),    cmocka_unit_test(test_batches),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_nan),          cmocka_unit_test(test_optional),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_instruction_sets),
        cmocka_unit_test(test_padded),       cmocka_unit_test(test_declined),
        cmocka_unit_test(test_matrix_units), cmocka_unit_test(test_matrix_units_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
