/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiled matrix product y = op(a) op(b) + bias (+ y) for devices whose work-groups share local memory (GPUs). Sums
 * are fp32, rounded to y's type once. See gemm_operands.cl for the arguments.
 *
 * A work-group computes a tile of TILE_M x TILE_N in steps of TILE_K terms. The next block is loaded from global
 * memory to registers while the current one is multiplied in local memory. A work-item holds ROW_QUADS x
 * COLUMN_QUADS blocks of 4 x 4 sums, spread over the tile so that neighbours read neighbouring words.
 *
 *   GROUP_X, GROUP_Y    The work-group, powers of two: TILE_N = 4 GROUP_X COLUMN_QUADS, TILE_M likewise.
 *
 *   TILE_K              Terms of a block, a multiple of 8. TILE_M TILE_K and TILE_N TILE_K are multiples of 4 GROUP.
 *
 *   BUFFERS             With 2 a block is stored while the previous one is read; 1 needs half the local memory.
 *
 *   AB, Y, WIDEN        The storage types of a and b, and of y: f32, bf16 or f16. WIDEN is 1 if AB is not f32.
 *
 *   PACKED              See gemm_packed.cl.
 *
 *   TRANS_A, TRANS_B    The operand is stored transposed.
 *
 *   WIDE_A, WIDE_B      With 1 rows are whole quads of contiguous elements, aligned to their size.
 *
 *   VW                  With 4 this also holds for y and bias; otherwise 1.
 *
 *   GROUPED             See gemm_place.cl; the tile may then have no terms.
 *
 * Group dimension 1 runs over the batch, then over parts of `part` terms (split-k). The sums of parts are stored in
 * y [parts, batch, m, n], and gemm_join.cl adds them.
 */

#define GROUP (GROUP_X * GROUP_Y)
#define TILE_M (4 * GROUP_Y * ROW_QUADS)
#define TILE_N (4 * GROUP_X * COLUMN_QUADS)
#define PITCH_A (TILE_M + 4) /* floats from term to term; the additional quad spreads terms over the banks */
#define PITCH_B (TILE_N + 4)
#include "gemm_place.cl"

#define ELEMENT(p) TX_CAT(TX_GET_, AB)(p, 0)
#if !WIDEN
#define WIDE_QUAD(p) (*(const __global float4 *)(p))
#else
#define WIDE_QUAD(p) TX_CAT(widen_, AB)(*(const __global ushort4 *)(p))
static float4 widen_bf16(ushort4 h)
{
    return as_float4(convert_uint4(h) << 16);
}

static float4 widen_f16(ushort4 h)
{
    return vload_half4(0, (const __private half *)&h);
}
#endif

/* ---- Global memory to registers to local memory ---------------------------------------------- */

/* A block of an operand is `lines` lines (rows of op(a), columns of op(b)) of TILE_K terms. Local memory holds it term
 * by term. If the terms of a line are contiguous in memory (along 1), a quad is four terms of a line, and neighbouring
 * work-items load two quads of a line. Otherwise a quad is four lines of a term. Lines beyond the last are read from
 * the last; their sums are not stored. All arguments except the positions of work-item and tile are constants. */

#define QUADS(lines) ((lines) * TILE_K / 4 / GROUP) /* quads that a work-item loads */
#define EACH_QUAD(q, lines) _Pragma("unroll") for (int q = 0; q < QUADS(lines); q++)
/* Along: a round loads LINES(lines) lines, TERM_STEP / 4 quads of each; later rounds load the rest of their quads. */
#define LINES(lines) (GROUP / 2 < (lines) ? GROUP / 2 : (lines))
#define TERM_STEP(lines) (4 * GROUP / LINES(lines))
#define ROUNDS(lines) (TILE_K / TERM_STEP(lines))
/* Across: the terms of a round. */
#define TERMS(lines) (GROUP / ((lines) / 4))

static int line_of(int item, int along, int lines, int quad)
{
    return along ? item / 2 % LINES(lines) + quad / ROUNDS(lines) * LINES(lines) : item % (lines / 4) * 4;
}

static int term_of(int item, int along, int lines, int quad)
{
    return along ? item % 2 * 4 + item / (2 * LINES(lines)) * 8 + quad % ROUNDS(lines) * TERM_STEP(lines)
                 : item / (lines / 4) + quad * TERMS(lines);
}

/* Returns the offset of quad `quad` from the first element of the tile. `left` is the number of remaining lines. */
static long place_of(int item, int along, int wide, int lines, int quad, long left, long ld)
{
    long line = min((long)line_of(item, along, lines, quad), left - (along || !wide ? 1 : 4));
    long term = term_of(item, along, lines, quad);
    return along ? line * ld + term : term * ld + line;
}

TX_INLINE void places_of(long *at, int item, int along, int wide, int lines, long left, long ld)
{
    EACH_QUAD(q, lines)
        at[q] = place_of(item, along, wide, lines, q, left, ld);
}

/* Returns the offsets from an element of the quad to the next ones. */
static int4 steps_of(int item, int along, int lines, long left)
{
    int line = line_of(item, along, lines, 0), last = (int)min(left, (long)lines) - 1;
    /* Uses only vector operands: oclgrind computes wrong results for min and max of a vector and a scalar. */
    const int4 next = (int4)(0, 1, 2, 3);
    return along ? next : min(line + next, (int4)(last)) - (int4)(min(line, last));
}

static float4 bring(const __global ab_t *p, int wide, int4 step)
{
    if (wide)
        return WIDE_QUAD(p);
    return (float4)(ELEMENT(p), ELEMENT(p + step.s1), ELEMENT(p + step.s2), ELEMENT(p + step.s3));
}

/* Loads a quad of a block with `terms` terms; terms beyond those are 0. `term` is that of the quad. */
static float4 bring_some(const __global ab_t *p, int along, int wide, int4 step, int term, int terms)
{
    if (along ? term + 4 <= terms : term < terms)
        return bring(p, wide, step);
    float4 quad = 0.0f;
    if (along && term < terms) {
        quad.s0 = ELEMENT(p);
        quad.s1 = term + 1 < terms ? ELEMENT(p + 1) : 0.0f;
        quad.s2 = term + 2 < terms ? ELEMENT(p + 2) : 0.0f;
    }
    return quad;
}

static void put(__local float *tile, int pitch, int along, int lines, int item, int quad, float4 value)
{
    tile += term_of(item, along, lines, quad) * pitch + line_of(item, along, lines, quad);
    if (along) {
        tile[0] = value.s0;
        tile[pitch] = value.s1;
        tile[2 * pitch] = value.s2;
        tile[3 * pitch] = value.s3;
    } else {
        *(__local float4 *)tile = value;
    }
}

/* Loads of b, and the step to its next block. A packed b is loaded by element number, in whole blocks. */
#if PACKED
#define BRING_B(q) tx_packed_quad(b, n * k * MATRICES, first_b + at_b[q], packed_values)
#define BRING_SOME_B(q) BRING_B(q)
#define STEP_B(terms) first_b += (terms) * step_b
#else
#define BRING_B(q) bring(b + at_b[q], WIDE_B, next_b)
#define BRING_SOME_B(q) bring_some(b + at_b[q], TRANS_B, WIDE_B, next_b, term_of(item, TRANS_B, TILE_N, q), first)
#define STEP_B(terms) b += (terms) * step_b
#endif

/* ---- Sums ------------------------------------------------------------------------------------ */

#define MULTIPLY_ROW(q, lane, component)                                                                               \
    _Pragma("unroll") for (int c = 0; c < COLUMN_QUADS; c++) sum[4 * q + lane][c] += left[q].component * right[c];

static void multiply(const __local float *a, const __local float *b, float4 sum[4 * ROW_QUADS][COLUMN_QUADS], int x,
                     int z)
{
#pragma unroll
    for (int t = 0; t < TILE_K; t++) {
        float4 left[ROW_QUADS], right[COLUMN_QUADS];
#pragma unroll
        for (int q = 0; q < ROW_QUADS; q++)
            left[q] = *(const __local float4 *)(a + t * PITCH_A + 4 * (q * GROUP_Y + z));
#pragma unroll
        for (int q = 0; q < COLUMN_QUADS; q++)
            right[q] = *(const __local float4 *)(b + t * PITCH_B + 4 * (q * GROUP_X + x));
#pragma unroll
        for (int q = 0; q < ROW_QUADS; q++) {
            MULTIPLY_ROW(q, 0, s0)
            MULTIPLY_ROW(q, 1, s1)
            MULTIPLY_ROW(q, 2, s2)
            MULTIPLY_ROW(q, 3, s3)
        }
    }
}

static void clear(float4 sum[4 * ROW_QUADS][COLUMN_QUADS])
{
#pragma unroll
    for (int r = 0; r < 4 * ROW_QUADS; r++)
#pragma unroll
        for (int c = 0; c < COLUMN_QUADS; c++)
            sum[r][c] = (float4)(0.0f);
}

#include "epilogue.cl"

/* Stores four sums of row `y` from column j on. The row begins at element `row`. */
static void finish(float4 quad, __global y_t *y, const __global float *bias, const __global y_t *with,
                   __global y_t *kept, long row, long j, long n, int adds)
{
    float part[4];
    vstore4(quad, 0, part);
#pragma unroll
    for (int e = 0; e < 4; e += VW) {
        if (j + e >= n)
            return;
        vec v = VLOAD_PRIVATE(part + e);
        if (bias)
            v += VLOAD(bias + j + e);
        if (adds)
            v += TX_CAT(tx_load_, Y)(y + j + e, 0, VW);
        v = tx_finish(v, with, kept, row + j + e, row + n);
        TX_CAT(tx_store_, Y)(v, y + j + e, 0, VW);
    }
}

/* Stores the sums of a work-item whose first row and column are i and j, for rows before `end`. The pointers are to
 * row 0 of the result of this group dimension 1, which begins `first_sum` elements into y. */
TX_INLINE void store_sums(float4 sum[4 * ROW_QUADS][COLUMN_QUADS], __global y_t *y, const __global float *bias,
                          const __global y_t *with, __global y_t *kept, long first_sum, long i, long end, long j,
                          long n, int adds)
{
#pragma unroll
    for (int r = 0; r < 4 * ROW_QUADS; r++) {
        const long row = i + 4 * (r / 4 * GROUP_Y) + r % 4;
        if (row >= end)
            continue;
#pragma unroll
        for (int c = 0; c < COLUMN_QUADS; c++)
            finish(sum[r][c], y + row * n, bias, with, kept, first_sum + row * n, j + 4 * (c * GROUP_X), n, adds);
    }
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
gemm_tile(GEMM_ARGUMENTS, long batches, long part, long first_tile, TILE_ARGUMENTS)
{
    __local float tile_a[BUFFERS * TILE_K * PITCH_A] __attribute__((aligned(16)));
    __local float tile_b[BUFFERS * TILE_K * PITCH_B] __attribute__((aligned(16)));
    const int item = get_local_id(0), x = item % GROUP_X, z = item / GROUP_X;
    TX_PACKED_VALUES(item, GROUP)
    const gemm_place place = gemm_place_of(m, n, k, batches, part, GROUPS, first_tile + get_group_id(0));
    const long i0 = place.i0, j0 = place.j0, end = place.end, batch = place.batch, k0 = place.k0;
    const long step_a = TRANS_A ? lda : 1, step_b = TRANS_B ? 1 : ldb;
    a += a_at + batch * stride_a + (TRANS_A ? i0 : i0 * lda) + k0 * step_a;
#if PACKED
    long first_b = batch * stride_b + (TRANS_B ? j0 * ldb : j0) + k0 * step_b;
    b += b_at;
#else
    b += b_at + batch * stride_b + (TRANS_B ? j0 * ldb : j0) + k0 * step_b;
#endif

    float4 sum[4 * ROW_QUADS][COLUMN_QUADS], held_a[QUADS(TILE_M)], held_b[QUADS(TILE_N)];
    long at_a[QUADS(TILE_M)], at_b[QUADS(TILE_N)];
    const int4 next_a = steps_of(item, !TRANS_A, TILE_M, end - i0);
#if !PACKED
    const int4 next_b = steps_of(item, TRANS_B, TILE_N, n - j0);
#endif
    clear(sum);
    /* A partial block comes first, so that the loop needs no check. */
    const int first = (int)((place.terms - 1) % TILE_K) + 1;
    places_of(at_a, item, !TRANS_A, WIDE_A, TILE_M, end - i0, lda);
    EACH_QUAD(q, TILE_M)
        held_a[q] = bring_some(a + at_a[q], !TRANS_A, WIDE_A, next_a, term_of(item, !TRANS_A, TILE_M, q), first);
    places_of(at_b, item, TRANS_B, WIDE_B, TILE_N, n - j0, ldb);
    EACH_QUAD(q, TILE_N)
        held_b[q] = BRING_SOME_B(q);
    a += first * step_a;
    STEP_B(first);
    int at = 0;
    for (long left = place.terms - first;; left -= TILE_K, at ^= BUFFERS - 1) {
        EACH_QUAD(q, TILE_M) put(tile_a + at * TILE_K * PITCH_A, PITCH_A, !TRANS_A, TILE_M, item, q, held_a[q]);
        EACH_QUAD(q, TILE_N) put(tile_b + at * TILE_K * PITCH_B, PITCH_B, TRANS_B, TILE_N, item, q, held_b[q]);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (left > 0) {
            EACH_QUAD(q, TILE_M)
                held_a[q] = bring(a + at_a[q], WIDE_A, next_a);
            EACH_QUAD(q, TILE_N)
                held_b[q] = BRING_B(q);
            a += TILE_K * step_a;
            STEP_B(TILE_K);
        }
        multiply(tile_a + at * TILE_K * PITCH_A, tile_b + at * TILE_K * PITCH_B, sum, x, z);
        if (left <= 0)
            break;
        if (BUFFERS == 1)
            barrier(CLK_LOCAL_MEM_FENCE);
    }

    const long first_sum = (long)get_group_id(1) * m * n;
    store_sums(sum, y + y_at + first_sum, bias ? bias + bias_at : 0, with ? with + with_at : 0,
               kept ? kept + kept_at : 0, first_sum, i0 + 4 * z, end, j0 + 4 * x, n, tx_adds(accumulate, control));
}
