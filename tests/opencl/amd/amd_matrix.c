/* SPDX-License-Identifier: Apache-2.0
 * AMD's matrix units. Layouts: AMD's matrix instruction calculator (github.com/ROCm/amd_matrix_instruction_calculator).
 * Sums are fp32, a term after the other; all lanes take part. */
#include "tests/opencl/amd/amd_internal.h"

#include <math.h>
#include <string.h>

#define MOST 32

/* A product of `size` x `size` sums over `terms`: d += a b. */
typedef struct product {
    int size, terms;
    float a[MOST][MOST], b[MOST][MOST], d[MOST][MOST]; /* a by row and term, b by column and term */
} product;

typedef enum type { F32, XF32, BF16, F16 } type;

static bool is_word(type from)
{
    return from == F32 || from == XF32;
}

/* Term `n` of the words that a lane holds. */
static float term_of(type from, const uint32_t (*word)[AMD_LANES], int lane, int n)
{
    float x;
    uint32_t bits = is_word(from) ? word[n][lane] : word[n / 2][lane] >> 16 * (n % 2) & 0xffff;
    if (from == F16)
        return amd_half(bits);
    bits = from == BF16 ? bits << 16 : from == XF32 ? bits & 0xffffe000 : bits;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void fetch_words(amd_state *w, const amd_operand *o, int count, uint32_t (*out)[AMD_LANES])
{
    for (int n = 0; n < count; n++) {
        const uint32_t word = o->kind == AMD_CONSTANT ? 0 : (uint32_t)n;
        amd_fetch_word(w, o, word, out[n]);
    }
}

/* Each lane holds a line's terms, `each` of them from `first` on. */
static void fill(amd_state *w, const amd_operand *o, type from, int size, int each, bool repeated, float (*out)[MOST])
{
    uint32_t word[8][AMD_LANES];
    fetch_words(w, o, is_word(from) ? each : each / 2, word);
    for (int lane = 0; lane < (int)w->lanes; lane++)
        for (int n = 0; n < each; n++) {
            float *to = &out[lane % size][(repeated ? 0 : lane / size * each) + n];
            const float x = term_of(from, (const uint32_t(*)[AMD_LANES])word, lane, n);
            if (repeated && lane >= size && !(x == *to))
                amd_stop(w, "the upper half of the lanes holds other values than the lower half");
            *to = x;
        }
}

/* Which row sum `n` of a lane belongs to; its column is lane % size. */
static int row_of(int size, bool repeated, int lane, int n)
{
    if (size == 32)
        return n / 4 * 8 + lane / 32 * 4 + n % 4;
    return repeated ? 2 * n + lane / 16 : lane / 16 * 8 + n;
}

static void multiply(amd_state *w, const amd_instruction *x, type from, int size)
{
    product p = {.size = size};
    uint32_t sum[16][AMD_LANES];
    const int count = size * size / (int)w->lanes, words = x->number[0], each = is_word(from) ? words : 2 * words;
    const bool repeated = size == 16 && words == 8; /* gfx11's WMMA */
    p.terms = repeated ? each : each * (int)w->lanes / size;
    fill(w, &x->from[0], from, size, each, repeated, p.a);
    fill(w, &x->from[1], from, size, each, repeated, p.b);
    fetch_words(w, &x->from[2], count, sum);
    for (int lane = 0; lane < (int)w->lanes; lane++)
        for (int n = 0; n < count; n++) {
            float d;
            const float *a = p.a[row_of(size, repeated, lane, n)], *b = p.b[lane % size];
            memcpy(&d, &sum[n][lane], sizeof d);
            for (int k = 0; k < p.terms; k++)
                d = fmaf(a[k], b[k], d);
            memcpy(&w->v[x->to.reg + (uint32_t)n][lane], &d, sizeof d);
        }
}

void amd_v_mfma_f32_32x32x2_f32(amd_state *w, const amd_instruction *x)
{
    multiply(w, x, F32, 32);
}

void amd_v_mfma_f32_32x32x4_xf32(amd_state *w, const amd_instruction *x)
{
    multiply(w, x, XF32, 32);
}

void amd_v_mfma_f32_32x32x8_bf16(amd_state *w, const amd_instruction *x)
{
    multiply(w, x, BF16, 32);
}

void amd_v_mfma_f32_32x32x8_f16(amd_state *w, const amd_instruction *x)
{
    multiply(w, x, F16, 32);
}

void amd_v_wmma_f32_16x16x16_bf16(amd_state *w, const amd_instruction *x)
{
    multiply(w, x, BF16, 16);
}

void amd_v_wmma_f32_16x16x16_f16(amd_state *w, const amd_instruction *x)
{
    multiply(w, x, F16, 16);
}
