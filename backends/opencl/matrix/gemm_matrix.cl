/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix product y = op(a) op(b) + bias (+ y) by the matrix units of GPUs. 16-bit operands are used unchanged; fp32
 * operands are rounded as the unit requires (tf32: 10 bits of mantissa). Sums are fp32. Arguments are as in
 * gemm_tile.cl. Rows of a and b are whole pieces of 16 bytes, aligned.
 *
 * A work-group computes a tile of TILE_M x TILE_N. Each of its WARPS_M x WARPS_N warps computes a share of it in
 * atoms: one or a few instructions of the unit. While one block of TILE_K terms is multiplied, AHEAD others are
 * being copied.
 *
 * With wgmma work-groups are persistent: after a tile, a group continues with the tile whose number is higher by the
 * number of groups, until `end`. The first blocks of that tile are copied while the results of the previous one are
 * stored. With `span` the work is split evenly instead: the blocks of all tiles are numbered, tile by tile, and each
 * group computes `span` of them. The sums of a tile's first piece are stored in part 0 of y, those of the next piece,
 * which the next group computes, in part 1 (gemm_join.cl).
 *
 *   AB, WIDEN        The storage type of a and b. WIDEN is 1 if it has 16 bits.
 *   Y                The storage type of y.
 *   VW               With 4 rows of y and of operands with its layout are whole quads, aligned; else 1.
 *   TRANS_A, TRANS_B, GROUPED   As in gemm_tile.cl.
 *   ATOM             The matrix instruction: MMA, MFMA, WMMA11, WMMA12, WGMMA, DPAS8 or DPAS16.
 *   TILE_M, TILE_N, WARPS_M, WARPS_N, STAGES   The form.
 *   FULL             With 1 fp32 operands keep all their bits.
 *   PLANES           With 2 or 3 a and b are planes of bf16 (gemm_matrix_planes.cl). Each block of terms takes STEPS
 *                    steps: products of a plane of a and a plane of b, small ones first. Each plane is copied once.
 *   OVERLAPS         With 1 the epilogue of a tile runs while the next tile is multiplied (gemm_matrix_overlap.cl).
 *   EMULATED         With 1 the text before the atoms defines their instructions in OpenCL C, for tests.
 */

#include "matrix_atoms.cl"

#define GOES_ON (ATOM == WGMMA)
#define BAND (ATOM == WGMMA ? 16 : 8)
#include "backends/opencl/gemm/gemm_place.cl"

#include "matrix_planes.cl"

#define PIECE (16 / (int)sizeof(ab_t)) /* elements in 16 bytes */
#define TILE_K ((ATOM == WGMMA ? 8 : 4) * PIECE)

/* The definitions of an atom.
 *
 *   LANES                 Work-items of a warp.
 *   ATOM_M, ATOM_N, ATOM_K, SUMS   The atom's sums and terms, and the sums of a lane.
 *   `fragment`            A lane's share of an operand, an array.
 *   `load_a`, `load_b`    Load the fragment of ATOM_M rows, or ATOM_N columns, from `line` on, and ATOM_K terms from
 *                         `term` on.
 *   `multiply`            Computes sum += a b.
 *   RIGHTS                Fragments of b that are held at a time, if there are too few registers for all.
 *   ROW_OF, COLUMN_OF     The position of a lane's sum e. ROW_RUN sums are adjacent in a row.
 *   `join_runs`           Lanes exchange sums, so that STORE_RUN are adjacent, at STORE_ROW and STORE_COLUMN.
 *   STORE, STORE_IF       Stores VW floats in y's type (if a condition holds), if the atom has instructions for it.
 *   LOADED                Vectors of each operand of the epilogue that are loaded at a time, by the free registers.
 *   SWAPS                 With 1 products use b as a and a as b; STORE_ROW and STORE_COLUMN account for it.
 *   KEEPS_ORDER           With 1 a block in local memory has the layout of global memory, with 0 that of place_a and
 *                         place_b.
 *   PITCH, BLOCK_OF       Elements of a block of one line, or of a number of lines.
 *   SUB_GROUP             An attribute of the kernel, if it needs one.
 *
 * The definitions of matrix_copy_*.cl.
 *
 *   `copies_begin`        Begins to copy a block of an operand from global memory.
 *   `copies_close`        Ends the list of copies of one block of both operands.
 *   `copies_end`          Waits for the block.
 *
 * An atom whose unit reads local memory itself, with IN_FLIGHT blocks pending when the next one begins, replaces
 * fragments by these.
 *
 *   `blocks_show`         Makes copied data visible to the unit.
 *   `multiply_block`      Begins products of blocks. With `adds` 0 they replace the sums.
 *   `multiply_earlier`    Waits for the products of all calls except the last one.
 *   `multiply_end`        Waits until all products are added to the sums.
 *   `told_again`          Returns its argument, but compilers do not know that. So values that depend on it are not
 *                         kept in registers. */
#define IN_FLIGHT (ATOM == WGMMA && !PROMOTES)
#define LATE (PLANES > 1 && IN_FLIGHT) /* planes are copied a step later, when the products of their stage are done */
#define AHEAD (STAGES - 1 - (IN_FLIGHT && !LATE))
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
#ifndef join_runs
#define join_runs(sum, lane, shown)
#endif
#define BLOCK_A BLOCK_OF(TILE_M)
#define BLOCK_B BLOCK_OF(TILE_N)
#define ALIGNED __attribute__((aligned(ATOM == WGMMA && !EMULATED ? 1024 : 128))) /* PoCL supports at most 128 */

#ifndef RIGHTS
#define RIGHTS ATOMS_N
#endif
#if ATOM != WGMMA
#define blocks_show(a, b, step, item, shown)
#define multiply_earlier(sum, shown)
#define multiply_end(sum, shown)
#define told_again(x) (x)

static void multiply_block(float sum[ATOMS_M][ATOMS_N][SUMS], const __local ab_t *a, const __local ab_t *b, int adds,
                           int line, int column, int lane, __local uint *shown)
{
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

#ifndef STORE_IF
#ifndef STORE
#define STORE(v, to) TX_CAT(tx_store_, Y)(v, to, 0, VW)
#endif
static void store_if(int exists, vec v, __global y_t *to)
{
    if (exists)
        STORE(v, to);
}
#define STORE_IF store_if
#endif
#include "backends/opencl/gemm/epilogue.cl"

/* A lane's sums of an atom are VECTORS vectors. The operands of BATCH atoms are loaded before the first is used, so
 * that a lane waits for memory once. Conditions about operands that may be absent are the same for all lanes. */
#ifndef LOADED
#define LOADED 4
#endif
#define VECTORS (SUMS / VW)
#define BATCH (VECTORS < LOADED ? LOADED / VECTORS : 1)
#define RUN_OF(v) ((v)*VW / STORE_RUN * STORE_RUN)
#define VECTOR_ROW(atom, v, lane) (ATOM_M * ((atom) / ATOMS_N) + STORE_ROW(RUN_OF(v), lane))
#define VECTOR_COLUMN(atom, v, lane) (ATOM_N * ((atom) % ATOMS_N) + STORE_COLUMN(RUN_OF(v), lane) + (v)*VW % STORE_RUN)

/* Lanes exchange a warp's sums for stores, and add the bias, which may be NULL, of a warp's `columns` columns. */
TX_INLINE void join_sums(float sum[ATOMS_M][ATOMS_N][SUMS], const __global float *bias, int columns, int lane,
                         __local uint *shown)
{
#pragma unroll
    for (int atom = 0; atom < ATOMS_M * ATOMS_N; atom++)
        join_runs(sum[atom / ATOMS_N][atom % ATOMS_N], lane, shown);
    if (!bias)
        return;
#pragma unroll
    for (int atom = 0; atom < ATOMS_M * ATOMS_N; atom++)
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            float *const to = sum[atom / ATOMS_N][atom % ATOMS_N] + v * VW;
            const int column = min(VECTOR_COLUMN(atom, v, lane), columns - VW);
            VSTORE_PRIVATE(VLOAD_PRIVATE(to) + tx_load(bias + column, 0, VW, 0.0f), to);
        }
}

/* Results and operands of the epilogue: the kernel's arguments, which need no registers. `bias`, `with` and `kept` may
 * be NULL. */
typedef struct outcome {
    const __global float *bias;
    __global y_t *y, *kept;
    const __global y_t *with;
    int accumulate;
    const __global uint *control;
    __global float *column_sums; /* or NULL, see gemm_matrix_overlap.cl */
} outcome;

/* A warp's share of a tile: pointers to its first element, and the rows and columns that exist. */
typedef struct share {
    const __global float *bias;
    __global y_t *y, *kept;
    const __global y_t *with, *others; /* `others`: y if the product is added to it, else `with` */
    int rows, columns;
} share;

/* Stores a warp's sums. Loads are not guarded: those of other rows and columns are from the last ones. It must be
 * inlined to keep the sums in registers. */
TX_INLINE void store_sums(float sum[ATOMS_M][ATOMS_N][SUMS], const share *of, long n, int lane)
{
    const int rows = of->rows, columns = of->columns;
#pragma unroll
    for (int first = 0; first < ATOMS_M * ATOMS_N; first += BATCH) {
        vec others[BATCH][VECTORS];
        if (READS(of->others))
#pragma unroll
            for (int b = 0; b < BATCH; b++)
#pragma unroll
                for (int v = 0; v < VECTORS; v++) {
                    const int column = min(VECTOR_COLUMN(first + b, v, lane), columns - VW);
                    const long at = min(VECTOR_ROW(first + b, v, lane), rows - 1) * n + column;
                    others[b][v] = TX_CAT(tx_load_, Y)(of->others + at, 0, VW);
                }
#pragma unroll
        for (int b = 0; b < BATCH; b++)
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
                const int row = VECTOR_ROW(first + b, v, lane), column = VECTOR_COLUMN(first + b, v, lane);
                const long at = row * n + column;
                const int exists = row < rows && column < columns;
                vec out = VLOAD_PRIVATE(sum[(first + b) / ATOMS_N][(first + b) % ATOMS_N] + v * VW);
                if (KEEPS || READS(of->with))
                    out = tx_product(out);
                if (KEEPS)
                    STORE_IF(exists && of->kept, out, of->kept + at);
                STORE_IF(exists, KEEPS || READS(of->others) ? tx_apply(out, others[b][v]) : out, of->y + at);
            }
    }
}

/* The operands and the parts of split-k, as the kernel's arguments, which need no registers. */
typedef struct operands {
    const __global ab_t *a, *b;
    long a_at, b_at, m, n, k, lda, ldb, stride_a, stride_b, batches, part;
    const __global int *offsets;
    long groups;
    uint span, end; /* an even split, or 0; the end of this group's tiles, or of its blocks */
} operands;

/* Returns the number of blocks of a tile's terms. Without terms a tile has one block of zeros. */
static int blocks_of(long terms)
{
    return (int)max((terms + TILE_K - 1) / TILE_K, 1L);
}

/* Parts are stored in fp32, without an epilogue. Other programs have no registers to spare. */
#define MAY_SPLIT_f32 GOES_ON
#define MAY_SPLIT_bf16 0
#define MAY_SPLIT_f16 0
#if TX_CAT(MAY_SPLIT_, Y) && !defined(EPILOGUE)
#define SPLITS(span) ((span) != 0)
#else
#define SPLITS(span) 0
#endif

/* Returns tile number `at`, or with an even split the piece that begins at block number `at`: the rest of its tile, as
 * far as the group computes it. */
static gemm_place place_of(const operands *o, uint at)
{
    if (!SPLITS(o->span))
        return gemm_place_of(o->m, o->n, o->k, o->batches, o->part, o->offsets, o->groups, at);
    const uint each = blocks_of(o->k), tile = at / each, rows = (uint)((o->m + TILE_M - 1) / TILE_M);
    gemm_place piece;
    piece.i0 = (long)(tile % rows) * TILE_M;
    piece.j0 = (long)(tile / rows) * TILE_N;
    piece.end = o->m;
    piece.batch = 0;
    piece.k0 = (long)(at % each) * TILE_K;
    piece.terms = min(o->k - piece.k0, (long)(o->end - at) * TILE_K);
    return piece;
}

/* Returns the number of the group's next tile or piece. */
static uint next_of(const operands *o, const gemm_place *place, uint at)
{
    return at + (SPLITS(o->span) ? (uint)blocks_of(place->terms) : (uint)get_num_groups(0));
}

/* Returns the part of y that gets the sums: y is [parts, batch, m, n]. */
static uint part_of(const operands *o, uint at)
{
    return SPLITS(o->span) ? at / o->span - at / blocks_of(o->k) * blocks_of(o->k) / o->span : (uint)get_group_id(1);
}

/* Returns the share of a warp whose first row and column in tile number `at` are `line` and `column`. A product with an
 * epilogue is not added to y. */
static share share_of(const outcome *to, const operands *o, const gemm_place *place, uint at, int line, int column)
{
    const long first = (part_of(o, at) * o->m + place->i0 + line) * o->n + place->j0 + column;
    share of;
    of.bias = to->bias ? to->bias + place->j0 + column : 0;
    of.y = to->y + first;
    of.kept = to->kept ? to->kept + first : 0;
    of.with = to->with ? to->with + first : 0;
    of.others = tx_adds(to->accumulate, to->control) ? of.y : of.with;
    of.rows = (int)min(place->end - place->i0 - line, (long)WARP_M);
    of.columns = (int)min(o->n - place->j0 - column, (long)WARP_N);
    return of;
}

/* The source of the next blocks. */
typedef struct source {
    const __global ab_t *a, *b;
    int lines_a, lines_b; /* that exist */
    int left, last;       /* blocks of its tile that have not been started, and the terms of the last one */
    uint next;            /* the next tile or piece */
} source;

static source source_of(const operands *o, uint number)
{
    const gemm_place at = place_of(o, number);
    source from;
    from.a = o->a + o->a_at + at.batch * o->stride_a + (TRANS_A ? at.i0 + at.k0 * o->lda : at.i0 * o->lda + at.k0);
    from.b = o->b + o->b_at + at.batch * o->stride_b + (TRANS_B ? at.j0 * o->ldb + at.k0 : at.j0 + at.k0 * o->ldb);
    from.lines_a = (int)min(at.end - at.i0, (long)TILE_M);
    from.lines_b = (int)min(o->n - at.j0, (long)TILE_N);
    from.left = blocks_of(at.terms);
    from.last = (int)(at.terms - (from.left - 1L) * TILE_K);
    from.next = next_of(o, &at, number);
    return from;
}

/* Begins copies of the block that step `step` begins, or of its planes. After a tile's last block follows the first
 * block of the next tile, or a block of zeros. */
static void blocks_begin(source *from, const operands *o, moving *moving_a, moving *moving_b, __local ab_t *block_a,
                         __local ab_t *block_b, int step, int item)
{
    if (GOES_ON && step == 0 && from->left <= 0 && from->next < o->end)
        *from = source_of(o, from->next);
    const int some = from->left > 1 ? TILE_K : from->left == 1 ? from->last : 0;
    const int plane_b = step - LATE, plane_a = PLANES - 1 - plane_b;
    if (plane_b >= 0 && plane_a >= 0) {
        copies_begin(moving_a, block_a + plane_a * BLOCK_A, from->a + plane_a * (TRANS_A ? o->k : o->m) * o->lda,
                     !TRANS_A, TILE_M, o->lda, from->lines_a, some, item);
        copies_begin(moving_b, block_b + plane_b * BLOCK_B, from->b + plane_b * (TRANS_B ? o->n : o->k) * o->ldb,
                     TRANS_B, TILE_N, o->ldb, from->lines_b, some, item);
    }
    copies_close();
    if (step < STEPS - 1)
        return;
    from->a += TILE_K * (TRANS_A ? o->lda : 1);
    from->b += TILE_K * (TRANS_B ? 1 : o->ldb);
    from->left--;
}

/* Sum number e of a lane. */
#define LANE_SUMS (ATOMS_M * ATOMS_N * SUMS)
#define SUM_AT(sum, e) (sum)[(e) / SUMS / ATOMS_N][(e) / SUMS % ATOMS_N][(e) % SUMS]

static void clear(float sum[ATOMS_M][ATOMS_N][SUMS])
{
#pragma unroll
    for (int e = 0; e < LANE_SUMS; e++)
        SUM_AT(sum, e) = 0.0f;
}

#include "gemm_matrix_mend.cl"
#include "gemm_matrix_overlap.cl"

/* The words of work-items that the emulated instructions use. */
#if EMULATED
#define SHOWN_WORDS                    \
    __local uint shown[GROUP * SHOWN]; \
    for (int i = 0; i < SHOWN; i++)    \
        shown[get_local_id(0) * SHOWN + i] = 0;
#else
#define SHOWN_WORDS __local uint *const shown = 0;
#endif

/* The blocks of a stage. */
#define STAGE(tile, stage, block) ((tile) + (stage)*PLANES * (block))

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) SUB_GROUP void
gemm_matrix(GEMM_ARGUMENTS, long batches, long part, long first_tile, long end_tile, long span,
            TILE_ARGUMENTS WHOLE_ARGUMENTS SUMS_ARGUMENTS)
{
    __local ab_t tile_a[STAGES * PLANES * BLOCK_A] ALIGNED;
    __local ab_t tile_b[STAGES * PLANES * BLOCK_B] ALIGNED;
    SHOWN_WORDS
    const int item = get_local_id(0), lane = item % LANES, warp = item / LANES;
    const int line = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    uint tile = (uint)(first_tile + get_group_id(0)) * (uint)(SPLITS(span) ? span : 1);
    const operands of = {
        a, b, a_at, b_at, m, n, k, lda, ldb, stride_a, stride_b, batches, part, GROUPS, (uint)span,
        SPLITS(span) ? min(tile + (uint)span, (uint)end_tile) : (uint)end_tile};
    const outcome to = {bias ? bias + bias_at : 0, y + y_at, kept ? kept + kept_at : 0, with ? with + with_at : 0,
                        accumulate, control, COLUMN_SUMS};
    WHOLE_OPERANDS
    WAITING_MEMORY
    float sum[ATOMS_M][ATOMS_N][SUMS];
    moving moving_a, moving_b;
    source from = source_of(&of, tile);
    for (int i = 0; i < AHEAD * STEPS; i++)
        blocks_begin(&from, &of, &moving_a, &moving_b, STAGE(tile_a, i / STEPS, BLOCK_A),
                     STAGE(tile_b, i / STEPS, BLOCK_B), i % STEPS, item);
    int at = 0, next = AHEAD; /* the stages that are multiplied and filled */
    do {
        PARTIAL_SUMS
        clear(sum);
        int left = tile_begin(&before, &of, &to, tile, item);
        do {
            for (int step = 0; step < STEPS; step++) {
                const __local ab_t *block_a = STAGE(tile_a, at, BLOCK_A) + PLANE_A(step) * BLOCK_A,
                                   *block_b = STAGE(tile_b, at, BLOCK_B) + PLANE_B(step) * BLOCK_B;
                copies_end(&moving_a, tile_a + at * BLOCK_A, &moving_b, tile_b + at * BLOCK_B, item);
                blocks_show(block_a, block_b, step, item, shown);
                barrier(CLK_LOCAL_MEM_FENCE); /* this block is complete, and the next one's place is no longer read */
                blocks_begin(&from, &of, &moving_a, &moving_b, STAGE(tile_a, next, BLOCK_A),
                             STAGE(tile_b, next, BLOCK_B), step, item);
                multiply_block(PARTIAL(sum), block_a, block_b, !PROMOTES || step > 0, line, column, lane, shown);
                waiting_step(&before, &of, item);
                multiply_earlier(PARTIAL(sum), shown);
            }
            promote(sum, PARTIAL(sum), shown);
            at = at == STAGES - 1 ? 0 : at + 1;
            next = next == STAGES - 1 ? 0 : next + 1;
        } while (--left > 0);
        multiply_end(PARTIAL(sum), shown);
        tile = tile_end(sum, &before, &of, &to, &whole, tile, item, shown);
    } while (GOES_ON && tile < of.end);
    tiles_end(&before, &of, item);
}
