/* SPDX-License-Identifier: Apache-2.0
 * Products of rows and weights in blocks against sums in double precision of rows that the test rounds itself. ctest
 * runs it with each instruction set. */
#include "tests/backends/cpu_product.h"

/* Types, and smaller ones whose blocks have as many values. */
static const tx_dtype kinds[] = {TX_Q8_0, TX_Q4_0, TX_Q4_K, TX_Q6_K};
static const tx_dtype smaller[] = {TX_Q4_0, TX_Q4_0, TX_Q4_K, TX_Q4_K};
static const tx_gemm_rows *rows_here;

typedef struct operands {
    int64_t m, n, k;
    tx_dtype type;
    float *a, *bias, *c;
    uint8_t *b;
} operands;

/* Random blocks whose numbers are small and positive. */
static void fill_blocks(tx_dtype type, uint8_t *to, int64_t blocks, uint64_t *seed)
{
    const int64_t bytes = tx_block_bytes(type);
    for (int64_t i = 0; i < blocks * bytes; i++)
        to[i] = (uint8_t)random_bits(seed);
    for (int64_t i = 0; i < blocks; i++) {
        const uint16_t half = (uint16_t)(0x2000u + random_bits(seed) % 0x400u), less = (uint16_t)(half - 0x400u);
        memcpy(to + i * bytes + (type == TX_Q6_K ? 208 : 0), &half, sizeof half);
        if (type == TX_Q4_K)
            memcpy(to + i * bytes + 2, &less, sizeof less);
    }
}

/* With `other`, rows from the 21st on have another type, at most as large. */
static operands create(int64_t m, int64_t n, int64_t k, tx_dtype type, tx_dtype other)
{
    operands o = {.m = m, .n = n, .k = k, .type = type};
    const int64_t bytes = tx_block_total(type, n * k), first = type == other || n <= 20 ? n : 20;
    tx_block_part parts[TX_BLOCK_PARTS] = {{(int32_t)first, (int32_t)type}};
    uint64_t seed = (uint64_t)(m * 7919 + n * 31 + k);
    o.a = filled(m * k, TX_F32, seed);
    o.bias = filled(n, TX_F32, seed + 1);
    o.c = malloc((size_t)(m * n) * sizeof *o.c);
    o.b = calloc(1, (size_t)bytes);
    assert_non_null(o.c);
    assert_non_null(o.b);
    fill_blocks(type, o.b, first * k / tx_block_values(type), &seed);
    if (first < n) {
        parts[1] = (tx_block_part){(int32_t)n, (int32_t)other};
        fill_blocks(other, o.b + first * tx_block_run(type, k), (n - first) * k / tx_block_values(other), &seed);
    }
    memcpy(o.b + tx_block_parts_at(type, n * k), parts, sizeof parts);
    return o;
}

static void destroy(operands *o)
{
    free(o->a);
    free(o->bias);
    free(o->c);
    free(o->b);
}

/* Computes the first `m` rows. */
static void multiply(const operands *o, int64_t m, int32_t threads)
{
    const tx_cpu_gemm_spec spec = {
        .shape = {.batch = 1, .m = m, .n = o->n, .k = o->k, .lda = o->k, .ldb = o->k, .ldc = o->n},
        .trans_b = true,
        .packed = o->type,
        .bias = true,
        .threads = threads,
        .rows = rows_here,
    };
    tx_cpu_gemm *gemm = NULL;
    int64_t bytes = 0;
    assert_int_equal(tx_cpu_gemm_create(&spec, &gemm, &bytes), TX_OK);
    char *scratch = aligned_alloc(64, (size_t)tx_gemm_lines(bytes + GUARD));
    assert_non_null(scratch);
    memset(scratch + bytes, 0x5a, GUARD);
    assert_int_equal(tx_cpu_gemm_run(gemm, o->a, o->b, 0, o->bias, o->c, 0.0f, scratch), TX_OK);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(scratch[bytes + i], 0x5a);
    free(scratch);
    tx_cpu_gemm_destroy(gemm);
}

/* Rounds a group of values to multiples of 1/127 of the largest magnitude. */
static void round_group(float *x, int64_t count)
{
    float most = 0.0f;
    for (int64_t i = 0; i < count; i++)
        most = fmaxf(most, fabsf(x[i]));
    for (int64_t i = 0; i < count && most > 0.0f; i++)
        x[i] = rintf(x[i] * (127.0f / most)) * (most / 127.0f);
}

/* Few rows are rounded in groups as long as a block, if the instruction set has integer products; many in groups of 32
 * if it has them for many rows. */
static int64_t group_of(const operands *o, int64_t m)
{
    if (m <= TX_GEMM_FEW)
        return strcmp(rows_here->name, "base") == 0 ? 1 : tx_block_values(o->type);
    return rows_here->any_rows() ? 32 : 1;
}

static void check_rows(const operands *o, int64_t m)
{
    const tx_block_matrix b = tx_block_matrix_of(o->b, o->type, o->n, o->k);
    const int64_t group = group_of(o, m);
    float *a = malloc((size_t)o->k * sizeof *a), *w = malloc((size_t)o->k * sizeof *w);
    assert_true(a && w);
    multiply(o, m, 2);
    for (int64_t i = 0; i<m; i += m> 20 ? 17 : 1) {
        memcpy(a, o->a + i * o->k, (size_t)o->k * sizeof *a);
        for (int64_t g = 0; g < o->k && group > 1; g += group)
            round_group(a + g, group);
        for (int64_t j = 0; j < o->n; j++) {
            tx_dtype type;
            const uint8_t *row = tx_block_row(&b, j, &type, NULL);
            double sum = (double)o->bias[j], size = fabs(sum);
            tx_block_read(type, row, o->k, w);
            for (int64_t p = 0; p < o->k; p++) {
                sum += (double)a[p] * (double)w[p];
                size += fabs((double)a[p] * (double)w[p]);
            }
            if (!(fabs((double)o->c[i * o->n + j] - sum) <= 1e-6 * size))
                fail_msg("type %d, row %d of %d, column %d: %.9g for %.9g", (int)type, (int)i, (int)m, (int)j,
                         (double)o->c[i * o->n + j], sum);
        }
    }
    free(a);
    free(w);
}

static void test_products(void **state)
{
    static const int64_t rows[] = {1, 3, 8, 9, 31, 33, 300}, columns[] = {1, 20, 37, 64, 130};
    for (size_t t = 0; t < 4; t++)
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            for (int longer = 0; longer < 2; longer++) {
                const int64_t k = tx_block_values(kinds[t]) * (longer ? 11 : 1);
                operands o = create(300, columns[c], k, kinds[t], longer ? smaller[t] : kinds[t]);
                for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                    check_rows(&o, rows[r]);
                destroy(&o);
            }
}

/* The bits of a row depend neither on the number of threads nor, among few rows or among many, on the others. */
static void test_bits(void **state)
{
    for (size_t t = 0; t < 4; t++) {
        operands o = create(300, 150, 768, kinds[t], smaller[t]);
        const size_t bytes = (size_t)(300 * 150) * sizeof(float);
        float *want = malloc(bytes);
        assert_non_null(want);
        multiply(&o, TX_GEMM_FEW, 1);
        memcpy(want, o.c, bytes);
        for (int64_t m = 1; m < TX_GEMM_FEW; m++) {
            multiply(&o, m, 2);
            assert_memory_equal(o.c, want, (size_t)(m * 150) * sizeof(float));
        }
        multiply(&o, 300, 1);
        memcpy(want, o.c, bytes);
        for (int32_t threads = 2; threads <= 3; threads++) {
            multiply(&o, 300, threads);
            assert_memory_equal(o.c, want, bytes);
        }
        for (int64_t m = TX_GEMM_FEW + 1; m < 300 && rows_here->any_rows(); m = 2 * m + 1) {
            multiply(&o, m, 2);
            assert_memory_equal(o.c, want, (size_t)(m * 150) * sizeof(float));
        }
        free(want);
        destroy(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_bits)};
    const tx_cpu_kernels *kernels = tx_cpu_kernels_choose();
    if (!kernels)
        return 77; /* the processor lacks the instruction set in TX_CPU_VARIANT */
    rows_here = kernels->gemm_rows;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
