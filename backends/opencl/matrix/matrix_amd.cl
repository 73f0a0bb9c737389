/* SPDX-License-Identifier: Apache-2.0
 *
 * The atoms of AMD's matrix units. MFMA (gfx908, gfx90a, gfx94x, gfx95x; 64 lanes) has 32 x 32 sums. It supports
 * bf16, fp16 and, on devices with xf32, fp32 rounded to xf32; with FULL 1 it uses fp32 unchanged. WMMA (32 lanes)
 * has 16 x 16 sums and supports bf16 and fp16.
 *
 * A row of a, or a column of b, belongs to lane % ATOM_M. The order of terms in the instructions of an atom does not
 * matter if a and b agree: a lane holds 16 bytes of neighbouring terms for several instructions. With WMMA11 all
 * lanes hold all terms, and the upper half repeats the lower. Layouts: AMD matrix instruction calculator.
 */

#if ATOM == MFMA
#define LANES 64
#define ATOM_M 32
#define ATOM_N 32
#define SUMS 16
#define ROW_OF(e, lane) ((e) / 4 * 8 + (lane) / 32 * 4 + (e) % 4)
#else
#define LANES 32
#define ATOM_M 16
#define ATOM_N 16
#define SUMS 8
#if ATOM == WMMA11
#define ROW_OF(e, lane) (2 * (e) + (lane) / 16)
#else
#define ROW_OF(e, lane) ((lane) / 16 * 8 + (e))
#endif
#endif
#define COLUMN_OF(e, lane) ((lane) % ATOM_N)
#define ROW_RUN 1
#define ATOM_K (2 * PIECE)
#define KEEPS_ORDER 0

#define HELD (ATOM == WMMA11 ? 2 : 1) /* pieces of a fragment */
typedef uint4 fragment[HELD];

#if !EMULATED
typedef short short2_ __attribute__((ext_vector_type(2)));
typedef short short4_ __attribute__((ext_vector_type(4)));
typedef short short8_ __attribute__((ext_vector_type(8)));
typedef short short16_ __attribute__((ext_vector_type(16)));
typedef __fp16 half4_ __attribute__((ext_vector_type(4)));
typedef __fp16 half8_ __attribute__((ext_vector_type(8)));
typedef __fp16 half16_ __attribute__((ext_vector_type(16)));
typedef float float2_ __attribute__((ext_vector_type(2)));
typedef float sums __attribute__((ext_vector_type(SUMS)));

typedef union operand {
    uint4 all[HELD];
    short2_ b2[4];
    short4_ b4[2];
    short8_ b8;
    half4_ h4[2];
    half8_ h8;
    float2_ f2[2];
    float f[4];
#if ATOM == WMMA11
    short16_ b16;
    half16_ h16;
#endif
} operand;

#if ATOM == MFMA && FULL
#define INSTRUCTIONS 4
#define MULTIPLY(i) __builtin_amdgcn_mfma_f32_32x32x2f32(x.f[i], y.f[i], s.all, 0, 0, 0)
#define MULTIPLY_f32 MULTIPLY
#elif ATOM == MFMA && !WIDEN
#define INSTRUCTIONS 2
#define MULTIPLY(i) __builtin_amdgcn_mfma_f32_32x32x4_xf32(x.f2[i], y.f2[i], s.all, 0, 0, 0)
#define MULTIPLY_f32 MULTIPLY
#elif ATOM == MFMA
#define INSTRUCTIONS_f16 2
#define MULTIPLY_f16(i) __builtin_amdgcn_mfma_f32_32x32x8f16(x.h4[i], y.h4[i], s.all, 0, 0, 0)
#if defined(__gfx908__)
#define INSTRUCTIONS_bf16 4
#define MULTIPLY_bf16(i) __builtin_amdgcn_mfma_f32_32x32x4bf16(x.b2[i], y.b2[i], s.all, 0, 0, 0)
#else
#define INSTRUCTIONS_bf16 2
#define MULTIPLY_bf16(i) __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x.b4[i], y.b4[i], s.all, 0, 0, 0)
#endif
#define INSTRUCTIONS TX_CAT(INSTRUCTIONS_, AB)
#else
#define INSTRUCTIONS 1
#if ATOM == WMMA11
#define MULTIPLY_bf16(i) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x.b16, y.b16, s.all)
#define MULTIPLY_f16(i) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x.h16, y.h16, s.all)
#else
#define MULTIPLY_bf16(i) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x.b8, y.b8, s.all)
#define MULTIPLY_f16(i) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x.h8, y.h8, s.all)
#endif
#endif

static void multiply(float *sum, const uint4 *a, const uint4 *b, __local uint *shown)
{
    operand x, y;
    union {
        float one[SUMS];
        sums all;
    } s;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        x.all[i] = a[i];
        y.all[i] = b[i];
    }
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        s.one[e] = sum[e];
#pragma unroll
    for (int i = 0; i < INSTRUCTIONS; i++)
        s.all = TX_CAT(MULTIPLY_, AB)(i);
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        sum[e] = s.one[e];
}
#endif
