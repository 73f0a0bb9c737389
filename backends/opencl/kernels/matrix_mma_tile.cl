/* SPDX-License-Identifier: Apache-2.0
 * What products do besides by the atom of matrix_mma.cl: blocks in stages, in local memory without conflicts, and results
 * stored in runs of 4. */

#define SWAPS 0

#if EMULATED == 0
/* The copies that were begun since the last such call belong together. */
static void copy_close(void)
{
    __asm__ volatile("cp.async.commit_group;" ::: "memory");
}

/* They are there but for those of the last STAGES - 2 such calls. */
static void copy_wait_oldest(void)
{
    __asm__ volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
}

/* What the lane beside this one (its number differs in the last bit) has in x. */
static float beside(float x, __local uint *shown)
{
    float y;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=f"(y) : "f"(x));
    return y;
}

#if VW == 4
static void store_bf16(float4 v, __global ushort *to)
{
    uint2 two;
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two.x) : "f"(v.y), "f"(v.x));
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two.y) : "f"(v.w), "f"(v.z));
    *(__global uint2 *)to = two;
}

static void store_f16(float4 v, __global ushort *to)
{
    uint2 two;
    __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two.x) : "f"(v.y), "f"(v.x));
    __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two.y) : "f"(v.w), "f"(v.z));
    *(__global uint2 *)to = two;
}

static void store_f32(float4 v, __global float *to)
{
    *(__global float4 *)to = v;
}
#define STORE TX_CAT(store_, Y)
#endif
#endif

#if !WIDEN
#include "matrix_tf32.cl"
#else
/* Where an element of a block lies: the pieces of a line of 64 bytes, or of a term's `lines`, change places, so that those
 * which a warp reads or writes at once lie in different banks. */
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

/* Two lanes exchange sums, so that each has runs of 4: an even one of the first 8 columns, an odd one of the others. */
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
        const float mine = odd ? second : first, other = beside(odd ? first : second, shown);
        run[e / 2 * 4 + e % 2] = odd ? other : mine;
        run[e / 2 * 4 + e % 2 + 2] = odd ? mine : other;
    }
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        sum[e] = run[e];
}
#endif
