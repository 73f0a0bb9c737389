/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares a matrix product of the CPU backend with a naive one in double precision: operands of any type, guards,
 * comparison. */
#ifndef TX_TESTS_CPU_PRODUCT_H
#define TX_TESTS_CPU_PRODUCT_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/gemm_parts.h"

#include "tests/unit.h"

#define GUARD 64 /* elements before and after a result, bytes after the scratch */

/* ---- operands --------------------------------------------------------------------------------- */

static inline uint32_t random_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Puts a number of size 2^-7 to 1 at `index`; half precision also gets subnormals. */
static inline void put_random(void *data, tx_dtype type, int64_t index, uint64_t *state)
{
    uint32_t bits = random_bits(state), sign = bits & 1u, low = (bits >> 1) % 7u;
    if (type == TX_F32) {
        float magnitude = ldexpf(1.0f + (float)(bits >> 9) * 0x1p-23f, (int)low - 7);
        ((float *)data)[index] = sign ? -magnitude : magnitude;
    } else if (type == TX_BF16) {
        ((uint16_t *)data)[index] = (uint16_t)(sign << 15 | (120u + low) << 7 | (bits >> 8 & 0x7Fu));
    } else {
        uint32_t exponent = low == 0 ? 0 : 8u + low;
        ((uint16_t *)data)[index] = (uint16_t)(sign << 15 | exponent << 10 | (bits >> 8 & 0x3FFu));
    }
}

/* A number of `exponent` and `mantissa` bits. */
static inline double decode(uint32_t bits, int exponent, int mantissa)
{
    int bias = (1 << (exponent - 1)) - 1, e = (int)(bits >> mantissa) & ((1 << exponent) - 1);
    double fraction = ldexp((double)(bits & ((1u << mantissa) - 1u)), -mantissa);
    double value = e == 0 ? ldexp(fraction, 1 - bias) : ldexp(1.0 + fraction, e - bias);
    if (e == (1 << exponent) - 1)
        value = fraction == 0.0 ? (double)INFINITY : (double)NAN;
    return bits >> (exponent + mantissa) & 1u ? -value : value;
}

static inline double get(const void *data, tx_dtype type, int64_t index)
{
    if (type == TX_F32)
        return (double)((const float *)data)[index];
    uint32_t bits = ((const uint16_t *)data)[index];
    return type == TX_BF16 ? decode(bits, 8, 7) : decode(bits, 5, 10);
}

static inline void *filled(int64_t count, tx_dtype type, uint64_t seed)
{
    void *data = malloc((size_t)count * tx_dtype_size(type));
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++)
        put_random(data, type, i, &seed);
    return data;
}

static inline double *widened(const void *data, int64_t count, tx_dtype type)
{
    double *wide = malloc((size_t)count * sizeof *wide);
    assert_non_null(wide);
    for (int64_t i = 0; i < count; i++)
        wide[i] = get(data, type, i);
    return wide;
}

/* ---- one product -------------------------------------------------------------------------------- */

typedef struct product {
    tx_cpu_gemm_spec spec;
    void *a, *b, *c;
    double *wide_a, *wide_b; /* the numbers of a and b */
    float *bias;
    int64_t a_count, b_count, c_count; /* c without its guards */
} product;

static inline int64_t extent(int64_t batch, int64_t stride, int64_t rows, int64_t ld, int64_t columns)
{
    return (batch - 1) * stride + (rows - 1) * ld + columns;
}

static inline product product_create(const tx_cpu_gemm_spec *spec)
{
    product p = {.spec = *spec};
    const tx_gemm *s = &spec->shape;
    p.a_count = extent(s->batch, s->stride_a, spec->trans_a ? s->k : s->m, s->lda, spec->trans_a ? s->m : s->k);
    p.b_count = extent(s->batch, s->stride_b, spec->trans_b ? s->n : s->k, s->ldb, spec->trans_b ? s->k : s->n);
    p.c_count = extent(s->batch, s->stride_c, s->m, s->ldc, s->n);
    p.a = filled(p.a_count, spec->type, 1);
    p.b = filled(p.b_count, spec->type, 2);
    p.wide_a = widened(p.a, p.a_count, spec->type);
    p.wide_b = widened(p.b, p.b_count, spec->type);
    p.c = malloc((size_t)(p.c_count + 2 * GUARD) * tx_dtype_size(spec->result));
    assert_non_null(p.c);
    p.bias = spec->bias ? filled(s->n, TX_F32, 3) : NULL;
    return p;
}

static inline void product_free(product *p)
{
    free(p->a);
    free(p->b);
    free(p->wide_a);
    free(p->wide_b);
    free(p->c);
    free(p->bias);
}

static inline char *c_of(const product *p)
{
    return (char *)p->c + GUARD * tx_dtype_size(p->spec.result);
}

/* Sets everything that must not be read to NaN, and the old result to numbers if the product adds to it. */
static inline void poison(const product *p, bool add)
{
    memset(p->c, 0xFF, (size_t)(p->c_count + 2 * GUARD) * tx_dtype_size(p->spec.result));
    const tx_gemm *s = &p->spec.shape;
    uint64_t seed = 4;
    for (int64_t r = 0; add && r < s->batch * s->m; r++)
        for (int64_t j = 0; j < s->n; j++)
            put_random(c_of(p), p->spec.result, r / s->m * s->stride_c + r % s->m * s->ldc + j, &seed);
}

static inline void run_prepared(tx_cpu_gemm *gemm, int64_t scratch_bytes, const product *p, bool add)
{
    size_t size = ((size_t)scratch_bytes + GUARD + 63) / 64 * 64;
    unsigned char *scratch = aligned_alloc(64, size);
    assert_non_null(scratch);
    memset(scratch, 0xFF, size);
    assert_int_equal(tx_cpu_gemm_run(gemm, p->a, p->b, 0, p->bias, c_of(p), add ? 1.0f : 0.0f, scratch), TX_OK);
    for (size_t i = (size_t)scratch_bytes; i < size; i++)
        if (scratch[i] != 0xFF)
            fail_msg("%s wrote beyond its scratch", tx_cpu_gemm_variant(gemm));
    free(scratch);
}

static inline void run(const product *p, bool add)
{
    tx_cpu_gemm *gemm = NULL;
    int64_t scratch_bytes = -1;
    if (tx_cpu_gemm_create(&p->spec, &gemm, &scratch_bytes))
        fail_msg("%s", tx_error());
    assert_true(scratch_bytes >= 0);
    poison(p, add);
    run_prepared(gemm, scratch_bytes, p, add);
    tx_cpu_gemm_destroy(gemm);
}

/* Compares c with the product in double precision; old[] is what c was. */
static inline void compare(const product *p, const void *old, bool add)
{
    const tx_gemm *s = &p->spec.shape;
    double rounding = p->spec.result == TX_F32 ? 0x1p-24 : p->spec.result == TX_BF16 ? 0x1p-8 : 0x1p-11;
    for (int64_t i = 0; i < s->batch; i++)
        for (int64_t r = 0; r < s->m; r++)
            for (int64_t j = 0; j < s->n; j++) {
                int64_t at = i * s->stride_c + r * s->ldc + j;
                double sum = 0, size = 0;
                for (int64_t q = 0; q < s->k; q++) {
                    int64_t x = i * s->stride_a + (p->spec.trans_a ? q * s->lda + r : r * s->lda + q);
                    int64_t y = i * s->stride_b + (p->spec.trans_b ? j * s->ldb + q : q * s->ldb + j);
                    double term = p->wide_a[x] * p->wide_b[y];
                    sum += term;
                    size += fabs(term);
                }
                double more[] = {p->bias ? (double)p->bias[j] : 0.0, add ? get(old, p->spec.result, at) : 0.0};
                sum += more[0] + more[1];
                size += fabs(more[0]) + fabs(more[1]);
                double found = get(c_of(p), p->spec.result, at), error = fabs(found - sum);
                double bound = 0x1p-24 * (4.0 + 4.0 * sqrt((double)s->k)) * size + rounding * fabs(sum) + 0x1p-25;
                if (!(error <= bound))
                    fail_msg("%lldx%lldx%lld %c%c %s->%s%s%s, batch %lld (%lld, %lld): %g is not %g (bound %g)",
                             (long long)s->m, (long long)s->n, (long long)s->k, "NT"[p->spec.trans_a],
                             "NT"[p->spec.trans_b], tx_dtype_name(p->spec.type), tx_dtype_name(p->spec.result),
                             p -> bias ? " bias" : "", add ? " add" : "", (long long)i, (long long)r, (long long)j,
                             found, sum, bound);
            }
}

/* The memory outside the rows of c must be as poison() left it. */
static inline void check_guards(const product *p)
{
    const tx_gemm *s = &p->spec.shape;
    size_t size = tx_dtype_size(p->spec.result);
    const unsigned char poisoned[4] = {0xFF, 0xFF, 0xFF, 0xFF};
    for (int64_t at = -GUARD; at < p->c_count + GUARD; at++) {
        int64_t within = s->batch > 1 ? at % s->stride_c : at;
        bool row = at >= 0 && at < p->c_count && within / s->ldc < s->m && within % s->ldc < s->n;
        if (!row && memcmp(c_of(p) + at * (int64_t)size, poisoned, size) != 0)
            fail_msg("element %lld outside the result was written", (long long)at);
    }
}

static inline void check(const tx_cpu_gemm_spec *spec, bool add)
{
    product p = product_create(spec);
    poison(&p, add);
    size_t bytes = (size_t)p.c_count * tx_dtype_size(spec->result);
    void *old = malloc(bytes), *first = malloc(bytes);
    assert_true(old && first);
    memcpy(old, c_of(&p), bytes);
    run(&p, add);
    compare(&p, old, add);
    check_guards(&p);
    memcpy(first, c_of(&p), bytes);
    run(&p, add);
    assert_memory_equal(first, c_of(&p), bytes);
    free(old);
    free(first);
    product_free(&p);
}

#endif
