/* SPDX-License-Identifier: Apache-2.0
 *
 * Additional definitions of the atom of matrix_mma.cl for matrix products: staged copies, conflict-free blocks in
 * local memory, and stores in runs of 4.
 */

#define SWAPS 0
#define LOADED 8

#if EMULATED == 0
/* Makes the copies since the last call one group. */
static void copy_close(void)
{
    __asm__ volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all groups except those of the last calls, whose blocks the next products do not need. */
static void copy_wait_oldest(void)
{
    __asm__ volatile("cp.async.wait_group %0;" ::"n"(AHEAD * STEPS - 1 - LATE) : "memory");
}

#if VW == 4
/* Stores a vector if `exists` is true, without a branch, into which compilers would move computations. */
#define STORE_VECTOR(type, registers, ...)                                                                             \
    __asm__ volatile("{.reg .pred p; setp.ne.s32 p, %0, 0; @p st.global." type " [%1], " registers ";}" ::"r"(exists), \
                     "l"(to), __VA_ARGS__                                                                              \
                     : "memory")

/* Rounds pairs of numbers to 16 bits in a register. */
#define NARROW(type)                                                                      \
    static uint2 narrow_##type(float4 v)                                                  \
    {                                                                                     \
        uint2 two;                                                                        \
        __asm__("cvt.rn." #type "x2.f32 %0, %1, %2;" : "=r"(two.x) : "f"(v.y), "f"(v.x)); \
        __asm__("cvt.rn." #type "x2.f32 %0, %1, %2;" : "=r"(two.y) : "f"(v.w), "f"(v.z)); \
        return two;                                                                       \
    }                                                                                     \
    static void store_##type(int exists, float4 v, __global ushort *to)                   \
    {                                                                                     \
        const uint2 two = narrow_##type(v);                                               \
        STORE_VECTOR("v2.b32", "{%2, %3}", "r"(two.x), "r"(two.y));                       \
    }
NARROW(bf16)
NARROW(f16)

/* Rounds to the storage type. */
static float4 round_bf16(float4 v)
{
    const uint2 two = narrow_bf16(v);
    return as_float4((uint4)(two.x << 16, two.x & 0xFFFF0000u, two.y << 16, two.y & 0xFFFF0000u));
}

static float4 round_f16(float4 v)
{
    const uint2 two = narrow_f16(v);
    float4 out;
    __asm__("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
            : "=f"(out.x), "=f"(out.y)
            : "r"(two.x));
    __asm__("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
            : "=f"(out.z), "=f"(out.w)
            : "r"(two.y));
    return out;
}
#define ROUND_BF16 round_bf16
#define ROUND_HALVES round_f16

#if WIDEN && PLANES == 1
static float power_of(float x)
{
    float y;
    __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static float reciprocal_of(float x)
{
    float y;
    __asm__("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#define POWER_OF power_of
#define RECIPROCAL_OF reciprocal_of
#endif

static void store_f32(int exists, float4 v, __global float *to)
{
    STORE_VECTOR("v4.f32", "{%2, %3, %4, %5}", "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w));
}
#define STORE_IF TX_CAT(store_, Y)
#endif
#endif

#if ATOM == WGMMA
#include "matrix_wgmma.cl"
#elif !WIDEN
#include "matrix_tf32.cl"
#else
/* The position of an element in a block. The pieces of a line of 64 bytes, or of a term's `lines`, are permuted, so
 * that pieces that a warp reads or writes together are in different banks. */
static int along_at(int line, int term)
{
    return line * TILE_K + (term ^ line / 2 % 4 * PIECE);
}

static int across_at(int term, int line, int lines)
{
    return term * lines + (line ^ term % 8 * PIECE);
}

static void load_a(fragment a, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
    const int row = lane % 8, half_line = lane / 8 % 2 * 8, half_term = lane / 16 * 8;
    load_matrices(a, block + (TRANS_A ? across_at(term + row + half_term, line + half_line, TILE_M)
                                      : along_at(line + row + half_line, term + half_term)), TRANS_A, shown);
}

static void load_b(fragment b, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
    const int row = lane % 8, half_term = lane / 8 % 2 * 8, half_line = lane / 16 * 8;
    load_matrices(b, block + (TRANS_B ? along_at(line + row + half_line, term + half_term)
                                      : across_at(term + row + half_term, line + half_line, TILE_N)), !TRANS_B, shown);
}

#endif

#if WIDEN
/* Two lanes exchange sums, so that each has runs of 4: an even lane of the first 8 columns, an odd lane of the
 * others. */
#define STORE_RUN 4
#define STORE_ROW(e, lane) ((lane) / 4 + (e) / 4 * 8)
#define STORE_COLUMN(e, lane) ((lane) % 2 * 8 + (lane) % 4 / 2 * 4)

static void join_runs(float sum[SUMS], int lane, __local uint *shown)
{
    float run[SUMS];
    const int odd = lane % 2;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float first = sum[e], second = sum[e + 4];
        const float mine = odd ? second : first, other = across(odd ? first : second, 1, shown);
        run[e / 2 * 4 + e % 2] = odd ? other : mine;
        run[e / 2 * 4 + e % 2 + 2] = odd ? mine : other;
    }
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        sum[e] = run[e];
}
#define join_runs join_runs
#endif
