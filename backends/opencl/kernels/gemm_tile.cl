/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix product y = op(a) op(b) + bias (+ y) for work-groups that share local memory (GPUs). Sums are fp32, rounded to y's
 * type once. a and b are given by their first element, leading dimension and batch stride; y is dense.
 *
 * A work-group computes a tile of TILE_M x TILE_N, walking k in steps of TILE_K: the next step's elements are on
 * their way from global memory to registers while the present ones are multiplied out of local memory. A work-item holds
 * ROW_QUADS x COLUMN_QUADS blocks of 4 x 4 sums, spread over the tile so that neighbours read neighbouring words.
 *
 * Options: GROUP_X >= 4 ROW_QUADS, GROUP_Y >= 4 COLUMN_QUADS (shape of the work-group; powers of two); AB, Y f32, bf16 or
 * f16: storage of a and b, and of y; TRANS_A, TRANS_B. */

#define AB_LOAD(p) TX_CAT(tx_load_, AB)(p, 0, 1)
#define Y_LOAD(p) TX_CAT(tx_load_, Y)(p, 0, 1)
#define Y_STORE(v, p) TX_CAT(tx_store_, Y)(v, p, 0, 1)
typedef TX_CAT(AB, _t) ab_t;
typedef TX_CAT(Y, _t) y_t;

#define GROUP (GROUP_X * GROUP_Y)
#define TILE_M (4 * GROUP_Y * ROW_QUADS)
#define TILE_N (4 * GROUP_X * COLUMN_QUADS)
#define TILE_K 16
#define PER_A (TILE_M * TILE_K / GROUP) /* elements of a tile that one work-item brings */
#define PER_B (TILE_N * TILE_K / GROUP)
#define PITCH_A (TILE_M / 4 + 1) /* in quads; the odd one spreads a column over the banks */
#define PITCH_B (TILE_N / 4 + 1)
#define BAND 8 /* tiles of neighbouring rows that run together and share b in the cache */

/* A tile is `wide` lines of TILE_K terms. Neighbouring work-items bring elements at neighbouring addresses: terms of a line
 * where memory holds a line's terms side by side (along_k), else lines of a term. The other index is the outer one. */
#define INNER(along_k, wide) (item % ((along_k) ? TILE_K : (wide)))
#define OUTER(along_k, wide) (item / ((along_k) ? TILE_K : (wide)))
#define TURN(along_k, wide) (GROUP / ((along_k) ? TILE_K : (wide))) /* from an item's element to its next */

/* Brings elements of an operand, `from` at the tile's first line and term; 0 outside lines x terms. */
static void fetch(__global const ab_t *from, long ld, int along_k, int wide, int count, long lines, long terms, int item,
                  float *held)
{
    const int inner = INNER(along_k, wide), outer = OUTER(along_k, wide), turn = TURN(along_k, wide);
    const bool inside = inner < (along_k ? terms : lines);
    const long end = along_k ? lines : terms;
    from += outer * ld + inner;
#pragma unroll
    for (int t = 0; t < count; t++)
        held[t] = inside && outer + t * turn < end ? AB_LOAD(from + t * turn * ld) : 0.0f;
}

static void put(__local float *tile, int pitch, int along_k, int wide, int count, int item, const float *held)
{
    const int inner = INNER(along_k, wide), outer = OUTER(along_k, wide), turn = TURN(along_k, wide);
#pragma unroll
    for (int t = 0; t < count; t++)
        tile[along_k ? inner * pitch + outer + t * turn : (outer + t * turn) * pitch + inner] = held[t];
}

#define MULTIPLY_ROW(q, lane, component)                                                                               \
    for (int c = 0; c < COLUMN_QUADS; c++)                                                                             \
        sum[4 * q + lane][c] += left[q].component * right[c];

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
gemm_tile(__global const ab_t *a, long a_at, __global const ab_t *b, long b_at, __global const float *bias, long bias_at,
          __global y_t *y, long y_at, __global const uint *control, long m, long n, long k, long lda, long ldb,
          long stride_a, long stride_b, int accumulate)
{
    __local float4 tile_a[TILE_K * PITCH_A], tile_b[TILE_K * PITCH_B];
    const int item = get_local_id(0), x = item % GROUP_X, z = item / GROUP_X;
    /* Bands of BAND tiles in m; inside a band the columns follow one another. */
    const long tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N, batch = get_group_id(1);
    const long band = get_group_id(0) / (BAND * tiles_n), in_band = get_group_id(0) % (BAND * tiles_n);
    const long height = min((long)BAND, tiles_m - band * BAND);
    const long i0 = (band * BAND + in_band % height) * TILE_M, j0 = in_band / height * TILE_N;
    const long step_a = TRANS_A ? lda : 1, step_b = TRANS_B ? 1 : ldb;
    a += a_at + batch * stride_a + (TRANS_A ? i0 : i0 * lda);
    b += b_at + batch * stride_b + (TRANS_B ? j0 * ldb : j0);

    float4 sum[4 * ROW_QUADS][COLUMN_QUADS];
    float held_a[PER_A], held_b[PER_B];
#pragma unroll
    for (int r = 0; r < 4 * ROW_QUADS; r++)
        for (int c = 0; c < COLUMN_QUADS; c++)
            sum[r][c] = (float4)(0.0f);
    fetch(a, lda, !TRANS_A, TILE_M, PER_A, m - i0, k, item, held_a);
    fetch(b, ldb, TRANS_B, TILE_N, PER_B, n - j0, k, item, held_b);
    for (long p = 0; p < k; p += TILE_K) {
        barrier(CLK_LOCAL_MEM_FENCE);
        put((__local float *)tile_a, 4 * PITCH_A, !TRANS_A, TILE_M, PER_A, item, held_a);
        put((__local float *)tile_b, 4 * PITCH_B, TRANS_B, TILE_N, PER_B, item, held_b);
        barrier(CLK_LOCAL_MEM_FENCE);
        long next = p + TILE_K;
        if (next < k) {
            fetch(a + next * step_a, lda, !TRANS_A, TILE_M, PER_A, m - i0, k - next, item, held_a);
            fetch(b + next * step_b, ldb, TRANS_B, TILE_N, PER_B, n - j0, k - next, item, held_b);
        }
#pragma unroll
        for (int t = 0; t < TILE_K; t++) {
            float4 left[ROW_QUADS], right[COLUMN_QUADS];
#pragma unroll
            for (int q = 0; q < ROW_QUADS; q++)
                left[q] = tile_a[t * PITCH_A + q * GROUP_Y + z];
#pragma unroll
            for (int q = 0; q < COLUMN_QUADS; q++)
                right[q] = tile_b[t * PITCH_B + q * GROUP_X + x];
#pragma unroll
            for (int q = 0; q < ROW_QUADS; q++) {
                MULTIPLY_ROW(q, 0, s0)
                MULTIPLY_ROW(q, 1, s1)
                MULTIPLY_ROW(q, 2, s2)
                MULTIPLY_ROW(q, 3, s3)
            }
        }
    }

    const int adds = tx_adds(accumulate, control);
    y += y_at + batch * m * n;
#pragma unroll
    for (int r = 0; r < 4 * ROW_QUADS; r++)
#pragma unroll
        for (int c = 0; c < 4 * COLUMN_QUADS; c++) {
            long i = i0 + 4 * (r / 4 * GROUP_Y + z) + r % 4, j = j0 + 4 * (c / 4 * GROUP_X + x) + c % 4;
            if (i < m && j < n) {
                const float4 quad = sum[r][c / 4];
                float v = c % 4 == 0 ? quad.s0 : c % 4 == 1 ? quad.s1 : c % 4 == 2 ? quad.s2 : quad.s3;
                if (bias)
                    v += bias[bias_at + j];
                if (adds)
                    v += Y_LOAD(y + i * n + j);
                Y_STORE(v, y + i * n + j);
            }
        }
}
