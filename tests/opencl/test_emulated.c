/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of fp32 by planes of bf16 (gemm_matrix_planes.c), by emulated matrix units, which truncate sums:
 *
 *     test_emulated errors [TERMS]   next to other providers and to an fp32 sum; exit status 1 if planes have larger
 *                                    errors than fp32 additions
 *     test_emulated limits           infinity, NaN, overflow, subnormal numbers, odd sizes, offsets, parts
 *
 * Exit status 77: there is no OpenCL device. */
#include "tests/opencl/emulated.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Errors -------------------------------------------------------------------------------------------------------- */

/* Random numbers; positive ones; rows, columns and terms of very different sizes; pairs of terms that cancel out except
 * for the last four bits. */
enum { RANDOM, POSITIVE, SCALED, CANCELLING, KINDS };
static const char *const kinds[] = {"random", "positive", "badly scaled", "cancelling"};

static void fill(const product *p, int kind)
{
    for (int64_t t = 0; t < p->k; t++) {
        for (int64_t i = 0; i < p->m; i++) {
            const float v = draw();
            *element_a(p, i, t) = kind == POSITIVE ? fabsf(v)
                                  : kind == SCALED ? ldexpf(v, (int)(i % 61 - 30 + t % 17))
                                                   : v;
            if (kind == CANCELLING && t % 2)
                *element_a(p, i, t) = *element_a(p, i, t - 1);
        }
        for (int64_t j = 0; j < p->n; j++) {
            const float v = draw();
            *element_b(p, t, j) = kind == POSITIVE ? fabsf(v)
                                  : kind == SCALED ? ldexpf(v, (int)(j % 47 - 23 - t % 13))
                                                   : v;
            if (kind == CANCELLING && t % 2)
                *element_b(p, t, j) = -*element_b(p, t - 1, j) * (1.0f + 0x1p-20f * v);
        }
    }
}

/* The errors of all elements in units of 2^-24 of the sum of the terms' sizes. */
typedef struct errors {
    double rms, most;
} errors;

static errors errors_of(const product *p, const float *y)
{
    errors e = {0.0, 0.0};
    for (int64_t i = 0; i < p->m * p->n; i++) {
        double sum = 0.0, size = 0.0;
        for (int64_t t = 0; t < p->k; t++) {
            const double v = (double)*element_a(p, i / p->n, t) * (double)*element_b(p, t, i % p->n);
            sum += v;
            size += fabs(v);
        }
        const double error = 0x1p24 * fabs((double)y[i] - sum) / size;
        e.rms += error * error;
        e.most = !(error <= e.most) ? error : e.most;
    }
    e.rms = sqrt(e.rms / (double)(p->m * p->n));
    return e;
}

/* Sums of products in fp32, in the order of the terms: each operation rounds. */
static void add_in_order(const product *p, float *y)
{
    for (int64_t i = 0; i < p->m * p->n; i++) {
        y[i] = 0.0f;
        for (int64_t t = 0; t < p->k; t++)
            y[i] += *element_a(p, i / p->n, t) * *element_b(p, t, i % p->n);
    }
}

static bool compare(tx_context *const context[2], int kind, int64_t terms)
{
    static const struct {
        const char *name;
        bool tf32;
    } by[] = {{"portable-tile-64x64x8", false},
              {"nvidia-mma-3xtf32", false},
              {"nvidia-wgmma-6xbf16", false},
              {"nvidia-mma-128x128", true},
              {"nvidia-wgmma-3xbf16", true}};
    enum { TILE, THREE_TF32, SIX, TF32, THREE, ALL };
    const product p = make(64, 64, terms, false, true, 0);
    errors e[ALL], plain;
    int64_t scratch;
    tx_status s = TX_OK;
    fill(&p, kind);
    add_in_order(&p, p.y);
    plain = errors_of(&p, p.y);
    printf("%s, %d terms: fp32 sum %.3g (at most %.3g)", kinds[kind], (int)terms, plain.rms, plain.most);
    for (int i = 0; i < ALL && !s; i++) {
        s = multiply(context[by[i].tf32], by[i].name, &p, &scratch);
        e[i] = errors_of(&p, p.y);
        printf(", %s %.3g (%.3g)", by[i].name, e[i].rms, e[i].most);
        fflush(stdout);
    }
    const bool good = !s && e[SIX].rms <= plain.rms && e[SIX].most <= plain.most && e[SIX].rms <= e[TILE].rms &&
                      e[SIX].most <= e[TILE].most && e[THREE].rms <= e[TF32].rms && e[THREE].most <= e[TF32].most;
    printf("%s%s\n", good ? "" : " FAIL ", s ? tx_error() : "");
    release(&p);
    return good;
}

static int64_t first_terms = 64, last_terms = 1024;

static bool prove_errors(tx_context *const context[2])
{
    bool good = true;
    for (int kind = 0; kind < KINDS; kind++)
        for (int64_t terms = first_terms; terms <= last_terms; terms *= 16)
            good = compare(context, kind, terms) && good;
    return good;
}

/* ---- Limits -------------------------------------------------------------------------------------------------------- */

/* Sets numbers whose planes give NaN or infinity, with which fp32 does not, and the other way round. */
static void set_limits(const product *p)
{
    static const float rows[] = {INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, 0x1.FEp127f, 0x1p-130f, 0x1p-149f, 0.0f};
    static const float columns[] = {0.0f, -0.0f, 1.0f, 0x1.FFFFFEp-2f, 0x1.010102p0f, INFINITY, NAN, 0x1p-140f, 2.0f};
    enum { ROWS = sizeof rows / sizeof rows[0], COLUMNS = sizeof columns / sizeof columns[0] };
    for (int64_t i = 0; i < p->m; i++) /* rows 1, 3... begin with these, the others are finite */
        for (int64_t t = 0; t < p->k; t++)
            *element_a(p, i, t) = i % 2 && t == i % p->k ? rows[i / 2 % ROWS] : 0x1p-20f * draw();
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t t = 0; t < p->k; t++)
            *element_b(p, t, j) = j % 3 == 0 && t % 5 != 4 ? columns[j / 3 % COLUMNS] : draw();
}

/* Compares with fp32 sums in the order of the terms: the same NaN and infinities, and finite sums within a relative
 * error plus the last bit of bf16's subnormal numbers. */
static int64_t faults_of(const product *p, double relative)
{
    int64_t faults = 0;
    for (int64_t i = 0; i < p->m * p->n; i++) {
        const float got = p->y[i];
        float want = 0.0f;
        double size = 0.0, sizes = 0.0;
        for (int64_t t = 0; t < p->k; t++) {
            const float a = *element_a(p, i / p->n, t), b = *element_b(p, t, i % p->n);
            want = fmaf(a, b, want);
            size += fabs((double)a * (double)b);
            sizes += fabs((double)a) + fabs((double)b);
        }
        const double most = relative * size + 0x1p-133 * sizes;
        const bool right = isfinite(want) ? fabs((double)got - (double)want) <= most
                           : isnan(want)  ? isnan(got)
                                          : got == want;
        if (!right && faults++ < 3)
            printf("    element %d, %d is %.9g and should be %.9g\n", (int)(i / p->n), (int)(i % p->n), (double)got,
                   (double)want);
    }
    return faults;
}

static bool try_limits(tx_context *context, const char *provider, double relative, const product *p)
{
    int64_t scratch = 0;
    set_limits(p);
    const tx_status s = multiply(context, provider, p, &scratch);
    const int64_t faults = s ? -1 : faults_of(p, relative);
    printf("%s  %s, %d x %d x %d, transposes %d%d, shift %d, %d bytes of scratch: %d faults %s\n",
           faults ? "FAIL" : "ok", provider, (int)p->m, (int)p->n, (int)p->k, p->trans_a, p->trans_b, (int)p->shift,
           (int)scratch, (int)faults, s ? tx_error() : "");
    fflush(stdout);
    release(p);
    return faults == 0 && scratch > 0;
}

/* The last product is split into parts. */
static bool prove_limits(tx_context *const context[2])
{
    bool good = true;
    for (int transposes = 0; transposes < 4; transposes++) {
        const product p = make(61, 57, 43, transposes & 1, transposes & 2, transposes);
        good = try_limits(context[0], "nvidia-wgmma-6xbf16", 0x1p-22, &p) && good;
    }
    const product even = make(48, 56, 200, false, true, 0), parts = make(20, 60, 1240, false, true, 0);
    good = try_limits(context[1], "nvidia-wgmma-3xbf16", 0x1p-15, &even) && good;
    return try_limits(context[0], "nvidia-wgmma-6xbf16", 0x1p-22, &parts) && good;
}

int main(int argc, char **argv)
{
    if (argc > 2)
        first_terms = last_terms = atoll(argv[2]);
    if (argc > 1 && strcmp(argv[1], "errors") == 0)
        return on_card(prove_errors);
    if (argc > 1 && strcmp(argv[1], "limits") == 0)
        return on_card(prove_limits);
    return fprintf(stderr, "usage: test_emulated errors [TERMS] | limits\n"), 2;
}
