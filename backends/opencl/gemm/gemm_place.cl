/* SPDX-License-Identifier: Apache-2.0
 * Where a tile of TILE_M x TILE_N lies, and which terms of its sums a work-group computes. Tiles are numbered by bands of BAND
 * tiles in m, and inside a band column by column, so that groups that run together share a and b in the cache. Group
 * dimension 1 goes over the batch; PARTS 1: then over parts of `part` terms. GROUPED: gemm_grouped.cl; 2: it goes over the groups. */
#ifndef BAND
#define BAND 8
#endif
#include "gemm_operands.cl"

typedef struct gemm_place {
    long i0, j0;    /* first row and column */
    long end;       /* of the rows that are there; below i0 where the tile has none */
    long batch;     /* of a and b; with groups of rows, whose matrix */
    long k0, terms; /* first term, and how many */
} gemm_place;

/* Rows of tiles. Tiles do not reach over groups, so that each group but the first may begin one more. */
static uint gemm_tile_rows(long m, long groups)
{
    return (uint)(GROUPED == 1 ? m / TILE_M + groups + 1 : (m + TILE_M - 1) / TILE_M);
}

#if GROUPED == 1
/* Those in row `row` of tiles. The tiles of group e begin in row begin / TILE_M + e, which leaves those before it room for all
 * of theirs, so that the group is found without adding up: it is the last that begins there or before. */
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

static gemm_place gemm_place_of(long m, long n, long k, long batches, long part, __global const int *offsets, long groups, long tile)
{
    gemm_place at;
    const uint tiles_m = gemm_tile_rows(m, groups), tiles_n = (uint)((n + TILE_N - 1) / TILE_N);
    const uint band = (uint)tile / (BAND * tiles_n), in_band = (uint)tile % (BAND * tiles_n);
    const uint height = min((uint)BAND, tiles_m - band * BAND);
    at.i0 = (long)(band * BAND + in_band % height) * TILE_M;
    at.j0 = (long)(in_band / height) * TILE_N;
    at.end = m;
    at.batch = PARTS ? get_group_id(1) % batches : get_group_id(1);
    at.k0 = PARTS ? get_group_id(1) / batches * part : 0;
    at.terms = PARTS ? min(part, k - at.k0) : k;
#if GROUPED == 1
    gemm_place_rows(&at, at.i0 / TILE_M, m, offsets, groups);
#elif GROUPED == 2
    at.k0 = group_begin(offsets, at.batch, groups, k);
    at.terms = group_rows(offsets, at.batch, groups, k);
#endif
    return at;
}
