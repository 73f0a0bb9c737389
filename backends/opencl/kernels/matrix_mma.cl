/* SPDX-License-Identifier: Apache-2.0
 * The atom of NVIDIA's mma.sync, from compute capability 8.0 on: bf16 and fp16 here, fp32 in matrix_tf32.cl. Fragments are
 * in the PTX manual under mma.m16n8k8 (.tf32) and mma.m16n8k16 (.bf16, .f16). g is lane / 4, t is lane % 4. */

#define LANES 32
#define KEEPS_ORDER 1
#define SWAPS 0

#if !EMULATED
/* Copies 16 bytes, or none and zeros in their place. */
static void copy_begin(__local void *to, const __global void *from, int bytes)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"l"(to), "l"(from), "r"(bytes) : "memory");
}

/* The copies that were begun since the last such call belong together. */
static void copy_close(void)
{
    __asm__ volatile("cp.async.commit_group;" ::: "memory");
}

/* All of them are there but those of the last STAGES - 2 calls. */
static void copy_wait(void)
{
    __asm__ volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
}

#define MMA_bf16 "m16n8k16.row.col.f32.bf16.bf16.f32"
#define MMA_f16 "m16n8k16.row.col.f32.f16.f16.f32"
#define MMA_f32 "m16n8k8.row.col.f32.tf32.tf32.f32"
/* sum [16 x 8] += a b of all lanes' fragments. */
static void multiply_add(float sum[4], const uint a[4], const uint b[2], __local uint *shown)
{
    __asm__ volatile("mma.sync.aligned." TX_CAT(MMA_, AB) " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(sum[0]), "f"(sum[1]), "f"(sum[2]),
                       "f"(sum[3]));
}

/* Four matrices of 8 x 8 16-bit elements; lane i names row i % 8 of matrix i / 8. A lane gets two neighbours of row g of
 * each, or where turned is 1 of column g. */
static void load_matrices(uint out[4], const __local ab_t *row, int turned, __local uint *shown)
{
    if (turned)
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                         : "l"(row)
                         : "memory");
    else
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                         : "l"(row)
                         : "memory");
}

/* What the lane beside this one (its number differs in the last bit) has in x. */
static float beside(float x, __local uint *shown)
{
    float y;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=f"(y) : "f"(x));
    return y;
}
#endif

#if VW == 4 && !EMULATED
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

#if !WIDEN
#include "matrix_tf32.cl"
#else

#define ATOM_M 16
#define ATOM_N 16
#define ATOM_K 16
#define SUMS 8
#define ROW_RUN 2
#define ROW_OF(e, lane) ((lane) / 4 + (e) % 4 / 2 * 8)
#define COLUMN_OF(e, lane) ((e) / 4 * 8 + (lane) % 4 * 2 + (e) % 2)

typedef uint fragment[4]; /* of b: two of the first 8 columns, two of the others */

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

static void multiply(float *sum, const uint *a, const uint *b, __local uint *shown)
{
    multiply_add(sum, a, b, shown);
    multiply_add(sum + 4, a, b + 2, shown);
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
