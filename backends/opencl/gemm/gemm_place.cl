/* SPDX-License-Identifier: Apache-2.0
 *
 * The position of a tile of TILE_M x TILE_N, and the terms of its sums that a work-group computes.
 *
 * Tiles are numbered in bands of BAND tiles in m, and inside a band column by column, so that concurrent groups
 * share a and b in the cache. Group dimension 1 runs over the batch, then over parts of `part` terms (split-k). See
 * gemm_grouped.cl for GROUPED; with GROUPED 2 dimension 1 runs over the groups.
 */
#ifndef BAND
#define BAND 8
#endif
#include "gemm_operands.cl"

typedef struct gemm_place {
    long i0, j0;    /* first row and column */
    long end;       /* end of the valid rows; not above i0 if the tile has none */
    long batch;     /* of a and b; for groups of rows, the group's matrix */
    long k0, terms; /* first term, and number of terms */
} gemm_place;

/* Returns the number of rows of tiles. A tile belongs to one group, so each group except the first may add a row. */
static uint gemm_tile_rows(long m, long groups)
{
    return (uint)(GROUPED == 1 ? m / TILE_M + groups + 1 : (m + TILE_M - 1) / TILE_M);
}

#if GROUPED == 1
/* Finds the valid rows in row `row` of tiles. The tiles of group e begin in row begin / TILE_M + e, which leaves
 * enough rows for the tiles of earlier groups. So the group is the last one that begins at or before this row, and
 * no prefix sum is needed. */
static void gemm_place_rows(gemm_place *at, long row, long m, __global const int *offsets, long groups)
{
    long e = 0;
    for (long high = groups; e < high;) {
        const long middle = (e + high + 1) / 2;
        if (group_begin(offsets, middle, groups, m) / TILE_M + middle <= row)
            e = middle;
        else
            high = middle - 1;
    }
    const long begin = group_begin(offsets, e, groups, m);
    at->i0 = begin + (row - begin / TILE_M - e) * TILE_M;
    at->end = begin + group_rows(offsets, e, groups, m);
    at->batch = min(e, groups - 1);
    if (e == groups || at->i0 >= at->end)
        at->terms = 0;
}
#endif

static gemm_place gemm_place_of(long m, long n, long k, long batches, long part, __global const int *offsets,
                                long groups, long tile)
{
    gemm_place at;
    const uint tiles_m = gemm_tile_rows(m, groups), tiles_n = (uint)((n + TILE_N - 1) / TILE_N);
    const uint band = (uint)tile / (BAND * tiles_n), in_band = (uint)tile % (BAND * tiles_n);
    const uint height = min((uint)BAND, tiles_m - band * BAND);
    at.i0 = (long)(band * BAND + in_band % height) * TILE_M;
    at.j0 = (long)(in_band / height) * TILE_N;
    at.end = m;
    at.batch = (uint)get_group_id(1) % (uint)batches;
    at.k0 = (uint)get_group_id(1) / (uint)batches * part;
    at.terms = min(part, k - at.k0);
#if GROUPED == 1
    gemm_place_rows(&at, at.i0 / TILE_M, m, offsets, groups);
#elif GROUPED == 2
    at.k0 = group_begin(offsets, at.batch, groups, k);
    at.terms = group_rows(offsets, at.batch, groups, k);
#endif
    return at;
}
