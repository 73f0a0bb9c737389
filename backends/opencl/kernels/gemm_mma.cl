/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix product y = op(a) op(b) + bias (+ y) by the matrix units of NVIDIA GPUs from compute capability 8.0 on: mma.sync
 * with copies that go by themselves (cp.async). fp32 operands are rounded to tf32 (10 bits of mantissa, to nearest), bf16 ones taken as
 * they are; sums are fp32. Arguments as in gemm_tile.cl; rows of a and b are whole pieces of 16 bytes, aligned.
 *
 * A work-group of 128 computes a tile of 128 x 128, each of its four warps 64 x 64, in blocks of TILE_K terms: while one
 * block is multiplied the next is copied to local memory. The layout of fragments is in the PTX manual under
 * mma.m16n8k8 (.tf32) and mma.m16n8k16 (.bf16); g is lane / 4, t is lane % 4.
 *
 *   AB, WIDEN        f32 and 0, or bf16 and 1
 *   Y                storage of y
 *   TRANS_A, TRANS_B, PARTS   as in gemm_tile.cl
 *   EMULATED         1: the text before this one has defined the instructions below in OpenCL C, to test all the rest */

#define GROUP 128
#define TILE 128
#define WARP_TILE 64
#define TILE_M TILE
#define TILE_N TILE
#include "gemm_place.cl"

typedef TX_CAT(AB, _t) ab_t;
typedef TX_CAT(Y, _t) y_t;

#define PIECE (16 / (int)sizeof(ab_t)) /* elements of a copy */
#define TILE_K (4 * PIECE)
/* Local memory holds a block as global memory does: lines of terms (along) or terms of lines (across). These pitches let
 * the reads of a warp fall into different banks. */
#define PITCH_ALONG (TILE_K + PIECE)
#define PITCH_ACROSS (TILE + 8)
#define BLOCK_ALONG (TILE * PITCH_ALONG)
#define BLOCK_ACROSS (TILE_K * PITCH_ACROSS)
#define BLOCK_A (TRANS_A ? BLOCK_ACROSS : BLOCK_ALONG)
#define BLOCK_B (TRANS_B ? BLOCK_ALONG : BLOCK_ACROSS)
#define PIECES (TILE * TILE_K / PIECE / GROUP) /* of an operand's block that one work-item copies */

/* ---- Instructions ------------------------------------------------------------------------------------------------ */

#if !EMULATED
/* Copies 16 bytes, of which those from `bytes` on are 0. */
static void copy_begin(__local void *to, const __global void *from, int bytes)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"l"(to), "l"(from), "r"(bytes) : "memory");
}

static void copies_end(void)
{
    __asm__ volatile("cp.async.wait_all;" ::: "memory");
}

static uint round_tf32(float x)
{
    uint bits;
    __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

#if !WIDEN
#define MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#endif
/* sum [16 x 8] += a b of all lanes' fragments. */
static void multiply_add(float sum[4], const uint a[4], const uint b[2])
{
    __asm__ volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four matrices of 8 x 8 16-bit elements; lane i names row i % 8 of matrix i / 8. A lane gets two neighbours of row g of
 * each, or where turned is 1 of column g. */
static void load_matrices(uint out[4], const __local ab_t *row, int turned)
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
#endif

/* ---- Blocks and fragments ------------------------------------------------------------------------------------------ */

/* Begins to copy TILE lines of `terms` terms (those up to TILE_K become 0). Lines beyond the last, `left` from the first, are
 * copied from the last. */
static void copy_block(__local ab_t *block, const __global ab_t *from, int along, long ld, long left, long terms, int item)
{
#pragma unroll
    for (int u = 0; u < PIECES; u++) {
        if (along) {
            const int line = item / 4 + u * (GROUP / 4), term = item % 4 * PIECE;
            const int bytes = term < terms ? 16 : 0;
            copy_begin(block + line * PITCH_ALONG + term, from + min((long)line, left - 1) * ld + (bytes ? term : 0), bytes);
        } else {
            const int per_term = TILE / PIECE, line = item % per_term * PIECE, term = item / per_term + u * (GROUP / per_term);
            const int bytes = term < terms ? 16 : 0;
            copy_begin(block + term * PITCH_ACROSS + line, from + (bytes ? term : 0) * ld + min((long)line, left - PIECE),
                       bytes);
        }
    }
}

#if !WIDEN
static uint element(const __local float *block, int along, int line, int term)
{
    return round_tf32(block[along ? line * PITCH_ALONG + term : term * PITCH_ACROSS + line]);
}

/* Rows line.. +15, terms term.. +7. */
static void load_a(uint a[4], const __local float *block, int line, int term, int lane)
{
    const int g = lane / 4, t = lane % 4;
    a[0] = element(block, !TRANS_A, line + g, term + t);
    a[1] = element(block, !TRANS_A, line + g + 8, term + t);
    a[2] = element(block, !TRANS_A, line + g, term + t + 4);
    a[3] = element(block, !TRANS_A, line + g + 8, term + t + 4);
}

/* Columns line.. +15 as two fragments. */
static void load_b(uint b[4], const __local float *block, int line, int term, int lane)
{
    const int g = lane / 4, t = lane % 4;
    b[0] = element(block, TRANS_B, line + g, term + t);
    b[1] = element(block, TRANS_B, line + g, term + t + 4);
    b[2] = element(block, TRANS_B, line + g + 8, term + t);
    b[3] = element(block, TRANS_B, line + g + 8, term + t + 4);
}
#else
static void load_a(uint a[4], const __local ab_t *block, int line, int term, int lane)
{
    const int row = lane % 8, half_line = lane / 8 % 2 * 8, half_term = lane / 16 * 8;
    load_matrices(a, TRANS_A ? block + (term + row + half_term) * PITCH_ACROSS + line + half_line
                             : block + (line + row + half_line) * PITCH_ALONG + term + half_term, TRANS_A);
}

static void load_b(uint b[4], const __local ab_t *block, int line, int term, int lane)
{
    const int row = lane % 8, half_term = lane / 8 % 2 * 8, half_line = lane / 16 * 8;
    load_matrices(b, TRANS_B ? block + (line + row + half_line) * PITCH_ALONG + term + half_term
                             : block + (term + row + half_term) * PITCH_ACROSS + line + half_line, !TRANS_B);
}
#endif

#define STEP_K (TILE_K / 2) /* terms of an instruction: 8 of tf32, 16 of bf16 */

static void multiply_block(float sum[4][8][4], const __local ab_t *a, const __local ab_t *b, int line, int column, int lane)
{
#pragma unroll
    for (int k = 0; k < TILE_K; k += STEP_K) {
        uint left[4][4], right[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            load_a(left[i], a, line + 16 * i, k, lane);
#pragma unroll
        for (int j = 0; j < 4; j++)
            load_b(right[j], b, column + 16 * j, k, lane);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                multiply_add(sum[i][j], left[i], right[j / 2] + j % 2 * 2);
    }
}

#include "epilogue.cl"

/* Two neighbouring sums of row `y`, which begins at element `row`, from column j on. */
static void finish(float v0, float v1, __global y_t *y, const __global float *bias, const __global float *with,
                   __global float *kept, long row, long j, long n, int adds)
{
    const float v[2] = {v0, v1};
#pragma unroll
    for (int e = 0; e < 2; e++) {
        if (j + e >= n)
            return;
        float out = v[e] + (bias ? bias[j + e] : 0.0f);
        if (adds)
            out += TX_CAT(tx_load_, Y)(y, j + e, n);
        out = tx_finish(out, with, kept, row + j + e, row + n);
        TX_CAT(tx_store_, Y)(out, y, j + e, n);
    }
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
gemm_mma(__global const ab_t *a, long a_at, __global const ab_t *b, long b_at, __global const float *bias, long bias_at,
         __global y_t *y, long y_at, __global const uint *control, long m, long n, long k, long lda, long ldb,
         long stride_a, long stride_b, int accumulate, long batches, long part, long first_tile,
         __global const float *with, long with_at, __global float *kept, long kept_at)
{
    __local ab_t tile_a[2 * BLOCK_A] __attribute__((aligned(16)));
    __local ab_t tile_b[2 * BLOCK_B] __attribute__((aligned(16)));
    const int item = get_local_id(0), lane = item % 32, warp = item / 32;
    const int line = warp % 2 * WARP_TILE, column = warp / 2 * WARP_TILE;
    const gemm_place place = gemm_place_of(m, n, k, batches, part, first_tile);
    const long i0 = place.i0, j0 = place.j0, batch = place.batch, k0 = place.k0, terms = place.terms;
    const long step_a = TILE_K * (TRANS_A ? lda : 1), step_b = TILE_K * (TRANS_B ? 1 : ldb);
    a += a_at + batch * stride_a + (TRANS_A ? i0 + k0 * lda : i0 * lda + k0);
    b += b_at + batch * stride_b + (TRANS_B ? j0 * ldb + k0 : j0 + k0 * ldb);

    float sum[4][8][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sum[i][j][e] = 0.0f;
    copy_block(tile_a, a, !TRANS_A, lda, m - i0, terms, item);
    copy_block(tile_b, b, TRANS_B, ldb, n - j0, terms, item);
    int at = 0;
    for (long left = terms; left > 0; left -= TILE_K) {
        copies_end();
        barrier(CLK_LOCAL_MEM_FENCE); /* this block is there, and the one before is no longer read */
        if (left > TILE_K) {
            a += step_a;
            b += step_b;
            copy_block(tile_a + (at ^ 1) * BLOCK_A, a, !TRANS_A, lda, m - i0, left - TILE_K, item);
            copy_block(tile_b + (at ^ 1) * BLOCK_B, b, TRANS_B, ldb, n - j0, left - TILE_K, item);
        }
        multiply_block(sum, tile_a + at * BLOCK_A, tile_b + at * BLOCK_B, line, column, lane);
        at ^= 1;
    }

    const int adds = tx_adds(accumulate, control);
    const long first_sum = (PARTS ? (long)get_group_id(1) : batch) * m * n;
    y += y_at + first_sum;
    if (bias)
        bias += bias_at;
    if (with)
        with += with_at;
    if (kept)
        kept += kept_at;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const long row = i0 + line + 16 * i + 8 * h + lane / 4;
            if (row >= m)
                continue;
#pragma unroll
            for (int j = 0; j < 8; j++)
                finish(sum[i][j][2 * h], sum[i][j][2 * h + 1], y + row * n, bias, with, kept, first_sum + row * n,
                       j0 + column + 8 * j + lane % 4 * 2, n, adds);
        }
}
