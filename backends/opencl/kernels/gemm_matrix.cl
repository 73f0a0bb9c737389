/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix product y = op(a) op(b) + bias (+ y) by the matrix units of GPUs. Operands of 16 bits are taken as they are, fp32 ones rounded as the
 * unit does (tf32: 10 bits of mantissa); sums are fp32. Arguments as in gemm_tile.cl; rows of a and b are whole pieces of 16
 * bytes, aligned.
 *
 * A work-group computes a tile of TILE_M x TILE_N, each of its WARPS_M x WARPS_N warps a share of it by atoms: what an instruction of
 * the unit, or a few, do at once. While one block of TILE_K terms is multiplied, STAGES - 1 others are on their way.
 *
 *   AB, WIDEN        storage of a and b, and whether they have 16 bits
 *   Y                storage of y
 *   VW               4: rows of y, and what lies like it, are whole quads, aligned; else 1
 *   TRANS_A, TRANS_B, PARTS   as in gemm_tile.cl
 *   ATOM             whose units: MMA, MFMA, WMMA11, WMMA12
 *   TILE_M, TILE_N, WARPS_M, WARPS_N, STAGES   the form
 *   FULL             1: fp32 operands keep all their bits
 *   EMULATED         1: the text before the atoms has defined their instructions in OpenCL C, to test all the rest */

#define MMA 1
#define MFMA 2
#define WMMA11 3
#define WMMA12 4

#include "gemm_place.cl"

typedef TX_CAT(AB, _t) ab_t;
typedef TX_CAT(Y, _t) y_t;

#define PIECE (16 / (int)sizeof(ab_t)) /* elements of 16 bytes */
#define TILE_K (4 * PIECE)

/* An atom gives:
 *   LANES                 work-items of a warp
 *   ATOM_M, ATOM_N, ATOM_K, SUMS   its sums and terms, and sums that a lane holds
 *   fragment              what a lane holds of an operand, an array
 *   load_a, load_b        the fragment of ATOM_M rows, or ATOM_N columns, from `line` on, and ATOM_K terms from `term` on
 *   multiply              sum += a b
 *   ROW_OF, COLUMN_OF     where sum e of a lane lies; ROW_RUN of them lie side by side in a row
 *   join_runs             lanes exchange sums, so that more lie side by side: STORE_RUN, at STORE_ROW and STORE_COLUMN
 *   STORE                 VW floats as y holds them, where the atom has instructions for it
 *   SWAPS                 1: products take b for a and a for b, which STORE_ROW and STORE_COLUMN know
 *   KEEPS_ORDER           1: a block in local memory is as global memory has it; 0: lines of terms always
 * and with matrix_copy_*.cl
 *   copies_begin          a block of an operand is on its way from global memory
 *   copies_close          what was begun makes one block of both
 *   copies_end            and is there */
#if ATOM == MMA
#include "matrix_mma.cl"
#include "matrix_mma_tile.cl"
#else
#include "matrix_amd.cl"
#endif

#define GROUP (LANES * WARPS_M * WARPS_N)
#define WARP_M (TILE_M / WARPS_M)
#define WARP_N (TILE_N / WARPS_N)
#define ATOMS_M (WARP_M / ATOM_M)
#define ATOMS_N (WARP_N / ATOM_N)

#if KEEPS_ORDER
#define PITCH TILE_K
#include "matrix_copy_async.cl"
#else
#include "matrix_copy_turned.cl"
#endif
#define BLOCK_A (TILE_M * PITCH)
#define BLOCK_B (TILE_N * PITCH)

static void multiply_block(float sum[ATOMS_M][ATOMS_N][SUMS], const __local ab_t *a, const __local ab_t *b, int line,
                           int column, int lane, __local uint *shown)
{
#pragma unroll
    for (int k = 0; k < TILE_K; k += ATOM_K) {
        fragment left[ATOMS_M], right[ATOMS_N];
#pragma unroll
        for (int i = 0; i < ATOMS_M; i++)
            load_a(left[i], a, line + ATOM_M * i, k, lane, shown);
#pragma unroll
        for (int j = 0; j < ATOMS_N; j++)
            load_b(right[j], b, column + ATOM_N * j, k, lane, shown);
#pragma unroll
        for (int i = 0; i < ATOMS_M; i++)
#pragma unroll
            for (int j = 0; j < ATOMS_N; j++)
                multiply(sum[i][j], SWAPS ? right[j] : left[i], SWAPS ? left[i] : right[j], shown);
    }
}

#ifndef STORE
#define STORE(v, to) TX_CAT(tx_store_, Y)(v, to, 0, VW)
#endif
static void store(vec v, __global y_t *to)
{
    STORE(v, to);
}

/* What is kept is rounded already, and whole vectors alone are finished. */
#define KEEP(v, kept, at, end) TX_CAT(keep_, Y)(v, (kept) + (at))
#define keep_bf16(v, to) TX_HALVES_STORE(TX_NARROW(AS_UVEC(v) >> 16), to)
#define keep_f16 store
#define keep_f32 store
#include "epilogue.cl"

/* STORE_RUN neighbouring sums of row `y`, which begins at element `row`, from column j on. */
static void finish(const float *v, __global y_t *y, const __global float *bias, const __global y_t *with,
                   __global y_t *kept, long row, long j, long n, int adds)
{
#pragma unroll
    for (int e = 0; e < STORE_RUN; e += VW) {
        if (j + e >= n)
            return;
        vec out = VLOAD_PRIVATE(v + e);
        if (bias)
            out += tx_load(bias + j + e, 0, VW, 0.0f);
#ifndef EPILOGUE /* whose results are only stored */
        if (adds)
            out += TX_CAT(tx_load_, Y)(y + j + e, 0, VW);
#endif
        out = tx_finish(out, with, kept, row + j + e, row + j + e + VW);
        store(out, y + j + e);
    }
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
gemm_matrix(__global const ab_t *a, long a_at, __global const ab_t *b, long b_at, __global const float *bias, long bias_at,
            __global y_t *y, long y_at, __global const uint *control, long m, long n, long k, long lda, long ldb,
            long stride_a, long stride_b, int accumulate, long batches, long part, long first_tile,
            __global const y_t *with, long with_at, __global y_t *kept, long kept_at)
{
    __local ab_t tile_a[STAGES * BLOCK_A] __attribute__((aligned(128)));
    __local ab_t tile_b[STAGES * BLOCK_B] __attribute__((aligned(128)));
#if EMULATED
    __local uint shown[GROUP * SHOWN];
#else
    __local uint *const shown = 0;
#endif
    const int item = get_local_id(0), lane = item % LANES, warp = item / LANES;
    const int line = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    const gemm_place place = gemm_place_of(m, n, k, batches, part, first_tile);
    const long i0 = place.i0, j0 = place.j0, batch = place.batch, k0 = place.k0, terms = place.terms;
    const long step_a = TILE_K * (TRANS_A ? lda : 1), step_b = TILE_K * (TRANS_B ? 1 : ldb);
    a += a_at + batch * stride_a + (TRANS_A ? i0 + k0 * lda : i0 * lda + k0);
    b += b_at + batch * stride_b + (TRANS_B ? j0 * ldb + k0 : j0 + k0 * ldb);

    float sum[ATOMS_M][ATOMS_N][SUMS];
#pragma unroll
    for (int i = 0; i < ATOMS_M; i++)
#pragma unroll
        for (int j = 0; j < ATOMS_N; j++)
#pragma unroll
            for (int e = 0; e < SUMS; e++)
                sum[i][j][e] = 0.0f;
    moving moving_a, moving_b;
    const int lines_a = (int)min(m - i0, (long)TILE_M), lines_b = (int)min(n - j0, (long)TILE_N);
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        const int some = (int)clamp(terms - i * TILE_K, 0L, (long)TILE_K);
        copies_begin(&moving_a, tile_a + i * BLOCK_A, a, !TRANS_A, TILE_M, lda, lines_a, some, item);
        copies_begin(&moving_b, tile_b + i * BLOCK_B, b, TRANS_B, TILE_N, ldb, lines_b, some, item);
        copies_close();
        a += step_a;
        b += step_b;
    }
    int at = 0, next = STAGES - 1; /* the stages that are multiplied and filled */
    for (long left = terms - (STAGES - 1) * TILE_K; left > -(STAGES - 1) * TILE_K; left -= TILE_K) {
        copies_end(&moving_a, tile_a + at * BLOCK_A, &moving_b, tile_b + at * BLOCK_B, item);
        barrier(CLK_LOCAL_MEM_FENCE); /* this block is there, and the one before is no longer read */
        const int some = (int)clamp(left, 0L, (long)TILE_K);
        copies_begin(&moving_a, tile_a + next * BLOCK_A, a, !TRANS_A, TILE_M, lda, lines_a, some, item);
        copies_begin(&moving_b, tile_b + next * BLOCK_B, b, TRANS_B, TILE_N, ldb, lines_b, some, item);
        copies_close();
        a += step_a;
        b += step_b;
        multiply_block(sum, tile_a + at * BLOCK_A, tile_b + at * BLOCK_B, line, column, lane, shown);
        at = at == STAGES - 1 ? 0 : at + 1;
        next = next == STAGES - 1 ? 0 : next + 1;
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
    for (int i = 0; i < ATOMS_M; i++)
#pragma unroll
        for (int j = 0; j < ATOMS_N; j++) {
            join_runs(sum[i][j], lane, shown);
#pragma unroll
            for (int e = 0; e < SUMS; e += STORE_RUN) {
                const long row = i0 + line + ATOM_M * i + STORE_ROW(e, lane);
                if (row < m)
                    finish(sum[i][j] + e, y + row * n, bias, with, kept, first_sum + row * n,
                           j0 + column + ATOM_N * j + STORE_COLUMN(e, lane), n, adds);
            }
        }
}
