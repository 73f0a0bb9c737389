/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix product y = op(a) op(b) + bias (+ y) by the matrix units of GPUs. Operands of 16 bits are taken as they are, fp32 ones rounded as the
 * unit does (tf32: 10 bits of mantissa); sums are fp32. Arguments as in gemm_tile.cl; rows of a and b are whole pieces of 16
 * bytes, aligned.
 *
 * A work-group computes a tile of TILE_M x TILE_N, each of its WARPS_M x WARPS_N warps a share of it by atoms: what an instruction of
 * the unit, or a few, do at once. While one block of TILE_K terms is multiplied, AHEAD others are on their way. By wgmma a group goes
 * on to the tile that is as many behind as there are groups, until end_tile: its first blocks are on their way while the
 * results of the one before are stored.
 *
 *   AB, WIDEN        storage of a and b, and whether they have 16 bits
 *   Y                storage of y
 *   VW               4: rows of y, and what lies like it, are whole quads, aligned; else 1
 *   TRANS_A, TRANS_B, PARTS, GROUPED   as in gemm_tile.cl
 *   ATOM             whose units: MMA, MFMA, WMMA11, WMMA12, WGMMA, DPAS8, DPAS16
 *   TILE_M, TILE_N, WARPS_M, WARPS_N, STAGES   the form
 *   FULL             1: fp32 operands keep all their bits
 *   BIAS, ADDS       whether there is a bias, and y may be added to
 *   EMULATED         1: the text before the atoms has defined their instructions in OpenCL C, to test all the rest */

#define MMA 1
#define MFMA 2
#define WMMA11 3
#define WMMA12 4
#define WGMMA 5
#define DPAS8 6
#define DPAS16 7

#define GOES_ON (ATOM == WGMMA)
#define BAND (ATOM == WGMMA ? 16 : 8)
#include "backends/opencl/gemm/gemm_place.cl"

#define PIECE (16 / (int)sizeof(ab_t)) /* elements of 16 bytes */
#define TILE_K ((ATOM == WGMMA ? 8 : 4) * PIECE)

/* An atom gives:
 *   LANES                 work-items of a warp
 *   ATOM_M, ATOM_N, ATOM_K, SUMS   its sums and terms, and sums that a lane holds
 *   fragment              what a lane holds of an operand, an array
 *   load_a, load_b        the fragment of ATOM_M rows, or ATOM_N columns, from `line` on, and ATOM_K terms from `term` on
 *   multiply              sum += a b
 *   RIGHTS                fragments of b that are held at a time, where registers are too few for all
 *   ROW_OF, COLUMN_OF     where sum e of a lane lies; ROW_RUN of them lie side by side in a row
 *   join_runs             lanes exchange sums, so that more lie side by side: STORE_RUN, at STORE_ROW and STORE_COLUMN
 *   STORE                 VW floats as y holds them, where the atom has instructions for it
 *   SWAPS                 1: products take b for a and a for b, which STORE_ROW and STORE_COLUMN know
 *   KEEPS_ORDER           1: a block in local memory is as global memory has it; 0: as place_a and place_b say
 *   PITCH, or BLOCK_OF    elements of a block of one line, or of so many
 *   SUB_GROUP             an attribute of the kernel, where it needs one
 * and with matrix_copy_*.cl
 *   copies_begin          a block of an operand is on its way from global memory
 *   copies_close          what was begun makes one block of both
 *   copies_end            and is there
 * One whose unit reads local memory by itself, and has so many blocks IN_FLIGHT when the next begins, gives in the place of fragments
 *   blocks_show           what was copied is there for the unit too
 *   multiply_block        begins a stage's products; those of the block before it are done
 *   multiply_end          all that was begun is in the sums
 *   registers_limit       how many registers a lane can have
 *   told_again            a value of which compilers do not know that it is the same: what depends on it is not kept in registers */
#define IN_FLIGHT (ATOM == WGMMA)
#define AHEAD (STAGES - 1 - IN_FLIGHT)
#if ATOM == MMA || ATOM == WGMMA
#include "matrix_mma.cl"
#include "matrix_mma_tile.cl"
#elif ATOM == DPAS8 || ATOM == DPAS16
#include "matrix_dpas.cl"
#include "matrix_dpas_tile.cl"
#else
#include "matrix_amd.cl"
#include "matrix_amd_tile.cl"
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
#ifndef BLOCK_OF
#define BLOCK_OF(lines) ((lines)*PITCH)
#endif
#ifndef SUB_GROUP
#define SUB_GROUP
#endif
#define BLOCK_A BLOCK_OF(TILE_M)
#define BLOCK_B BLOCK_OF(TILE_N)
#define ALIGNED __attribute__((aligned(ATOM == WGMMA && !EMULATED ? 1024 : 128))) /* more than 128 PoCL does not give */

#ifndef RIGHTS
#define RIGHTS ATOMS_N
#endif
#if !IN_FLIGHT
#define blocks_show(a, b, item, shown)
#define multiply_end(sum, shown)
#define registers_limit()
#define told_again(x) (x)

static void multiply_block(float sum[ATOMS_M][ATOMS_N][SUMS], const __local ab_t *a, const __local ab_t *b, int stage,
                           int line, int column, int lane, __local uint *shown)
{
    a += stage * BLOCK_A;
    b += stage * BLOCK_B;
#pragma unroll
    for (int k = 0; k < TILE_K; k += ATOM_K) {
        fragment left[ATOMS_M];
#pragma unroll
        for (int i = 0; i < ATOMS_M; i++)
            load_a(left[i], a, line + ATOM_M * i, k, lane, shown);
#pragma unroll
        for (int first = 0; first < ATOMS_N; first += RIGHTS) {
            fragment right[RIGHTS];
#pragma unroll
            for (int j = 0; j < RIGHTS; j++)
                load_b(right[j], b, column + ATOM_N * (first + j), k, lane, shown);
#pragma unroll
            for (int i = 0; i < ATOMS_M; i++)
#pragma unroll
                for (int j = 0; j < RIGHTS; j++)
                    multiply(sum[i][first + j], SWAPS ? right[j] : left[i], SWAPS ? left[i] : right[j], shown);
        }
    }
}
#endif

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
#include "backends/opencl/gemm/epilogue.cl"

/* STORE_RUN neighbouring sums of a row, of which `left` are there; the first is element `at` of y and what lies like it. */
static void finish(const float *v, __global y_t *y, const __global float *bias, const __global y_t *with,
                   __global y_t *kept, long at, int left, int adds)
{
#pragma unroll
    for (int e = 0; e < STORE_RUN; e += VW)
        if (e < left) {
            vec out = VLOAD_PRIVATE(v + e);
            if (BIAS)
                out += tx_load(bias + e, 0, VW, 0.0f);
            if (ADDS && adds)
                out += TX_CAT(tx_load_, Y)(y + at + e, 0, VW);
            out = tx_finish(out, with, kept, at + e, at + e + VW);
            store(out, y + at + e);
        }
}

/* A warp's sums, of which `rows` and `columns` are there; the pointers are to the first. (As a function of its own it would have
 * them in memory.) */
TX_INLINE void store_sums(float sum[ATOMS_M][ATOMS_N][SUMS], __global y_t *y, const __global float *bias, const __global y_t *with,
                          __global y_t *kept, int rows, int columns, long n, int adds, int lane, __local uint *shown)
{
#pragma unroll
    for (int i = 0; i < ATOMS_M; i++)
#pragma unroll
        for (int j = 0; j < ATOMS_N; j++) {
            join_runs(sum[i][j], lane, shown);
#pragma unroll
            for (int e = 0; e < SUMS; e += STORE_RUN) {
                const int row = ATOM_M * i + STORE_ROW(e, lane), run = ATOM_N * j + STORE_COLUMN(e, lane);
                if (row < rows)
                    finish(sum[i][j] + e, y, bias + run, with, kept, row * n + run, columns - run, adds);
            }
        }
}

/* What is multiplied, and the parts of its terms: as the kernel has them, which need no registers. */
typedef struct operands {
    const __global ab_t *a, *b;
    long a_at, b_at, m, n, k, lda, ldb, stride_a, stride_b, batches, part;
    const __global int *offsets;
    long groups;
} operands;

static gemm_place place_of_tile(const operands *o, uint tile)
{
    return gemm_place_of(o->m, o->n, o->k, o->batches, o->part, o->offsets, o->groups, tile);
}

/* Of a tile's terms; one of zeros where there are none. */
static int blocks_of(long terms)
{
    return (int)max((terms + TILE_K - 1) / TILE_K, 1L);
}

/* Where the next blocks come from. */
typedef struct source {
    const __global ab_t *a, *b;
    int lines_a, lines_b; /* that are there */
    int left, last;       /* blocks of its tile that are not on their way, and how many terms the last one has */
    uint tile;
} source;

static source source_of(const operands *o, uint tile)
{
    const gemm_place at = place_of_tile(o, tile);
    source from;
    from.a = o->a + o->a_at + at.batch * o->stride_a + (TRANS_A ? at.i0 + at.k0 * o->lda : at.i0 * o->lda + at.k0);
    from.b = o->b + o->b_at + at.batch * o->stride_b + (TRANS_B ? at.j0 * o->ldb + at.k0 : at.j0 + at.k0 * o->ldb);
    from.lines_a = (int)min(at.end - at.i0, (long)TILE_M);
    from.lines_b = (int)min(o->n - at.j0, (long)TILE_N);
    from.left = blocks_of(at.terms);
    from.last = (int)(at.terms - (from.left - 1L) * TILE_K);
    from.tile = tile;
    return from;
}

/* Behind a tile's last block comes the first of the next tile, or blocks of zeros. */
static void blocks_begin(source *from, const operands *o, uint end_tile, moving *moving_a, moving *moving_b,
                         __local ab_t *block_a, __local ab_t *block_b, int item)
{
#if GOES_ON
    const uint then = from->tile + (uint)get_num_groups(0);
    if (from->left <= 0 && then < end_tile)
        *from = source_of(o, then);
#endif
    const int some = from->left > 1 ? TILE_K : from->left == 1 ? from->last : 0;
    copies_begin(moving_a, block_a, from->a, !TRANS_A, TILE_M, o->lda, from->lines_a, some, item);
    copies_begin(moving_b, block_b, from->b, TRANS_B, TILE_N, o->ldb, from->lines_b, some, item);
    copies_close();
    from->a += TILE_K * (TRANS_A ? o->lda : 1);
    from->b += TILE_K * (TRANS_B ? 1 : o->ldb);
    from->left--;
}

static void clear(float sum[ATOMS_M][ATOMS_N][SUMS])
{
#pragma unroll
    for (int i = 0; i < ATOMS_M; i++)
#pragma unroll
        for (int j = 0; j < ATOMS_N; j++)
#pragma unroll
            for (int e = 0; e < SUMS; e++)
                sum[i][j][e] = 0.0f;
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) SUB_GROUP void
gemm_matrix(GEMM_ARGUMENTS, long batches, long part, long first_tile, long end_tile, TILE_ARGUMENTS)
{
    __local ab_t tile_a[STAGES * BLOCK_A] ALIGNED;
    __local ab_t tile_b[STAGES * BLOCK_B] ALIGNED;
#if EMULATED
    __local uint shown[GROUP * SHOWN];
    for (int i = 0; i < SHOWN; i++)
        shown[get_local_id(0) * SHOWN + i] = 0;
#else
    __local uint *const shown = 0;
#endif
    registers_limit();
    const int item = get_local_id(0), lane = item % LANES, warp = item / LANES;
    const int line = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    const operands of = {a, b, a_at, b_at, m, n, k, lda, ldb, stride_a, stride_b, batches, part, GROUPS};
    float sum[ATOMS_M][ATOMS_N][SUMS];
    moving moving_a, moving_b;
    uint tile = (uint)(first_tile + get_group_id(0));
    source from = source_of(&of, tile);
    for (int i = 0; i < AHEAD; i++)
        blocks_begin(&from, &of, (uint)end_tile, &moving_a, &moving_b, tile_a + i * BLOCK_A, tile_b + i * BLOCK_B, item);
    int at = 0, next = AHEAD; /* the stages that are multiplied and filled */
    do {
        clear(sum);
        int left = blocks_of(place_of_tile(&of, tile).terms);
        do {
            copies_end(&moving_a, tile_a + at * BLOCK_A, &moving_b, tile_b + at * BLOCK_B, item);
            blocks_show(tile_a + at * BLOCK_A, tile_b + at * BLOCK_B, item, shown);
            barrier(CLK_LOCAL_MEM_FENCE); /* this block is there, and the one that is filled next no longer read */
            blocks_begin(&from, &of, (uint)end_tile, &moving_a, &moving_b, tile_a + next * BLOCK_A, tile_b + next * BLOCK_B, item);
            multiply_block(sum, tile_a, tile_b, at, line, column, lane, shown);
            at = at == STAGES - 1 ? 0 : at + 1;
            next = next == STAGES - 1 ? 0 : next + 1;
        } while (--left > 0);
        multiply_end(sum, shown);

        const gemm_place place = place_of_tile(&of, tile);
        const int adds = tx_adds(accumulate, control), now = told_again(item), lane = now % LANES, warp = now / LANES;
        const int line = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
        const long first_row = (long)get_group_id(1) * m + place.i0 + line;
        const long first_column = place.j0 + column;
        const int rows = (int)min(place.end - place.i0 - line, (long)WARP_M), columns = (int)min(n - first_column, (long)WARP_N);
        const long first = first_row * n + first_column;
        __global y_t *const results = y + y_at + first, *const keeps = kept ? kept + kept_at + first : 0;
        const __global float *const biases = bias + bias_at + first_column;
        const __global y_t *const others = with + with_at + first;
        store_sums(sum, results, biases, others, keeps, rows, columns, n, adds, lane, shown);
        tile += (uint)get_num_groups(0);
    } while (GOES_ON && tile < (uint)end_tile);
}
