/* SPDX-License-Identifier: Apache-2.0
 * Where a tile of TILE_M x TILE_N lies, and which terms of its sums a work-group computes. Tiles are numbered by bands of BAND
 * tiles in m, and inside a band column by column, so that groups that run together share a and b in the cache. Group
 * dimension 1 goes over the batch; PARTS 1: then over parts of `part` terms. */
#ifndef BAND
#define BAND 8
#endif

typedef struct gemm_place {
    long i0, j0; /* first row and column */
    long batch;
    long k0, terms; /* first term, and how many */
} gemm_place;

static gemm_place gemm_place_of(long m, long n, long k, long batches, long part, long tile)
{
    gemm_place at;
    const uint tiles_m = (uint)((m + TILE_M - 1) / TILE_M), tiles_n = (uint)((n + TILE_N - 1) / TILE_N);
    const uint band = (uint)tile / (BAND * tiles_n), in_band = (uint)tile % (BAND * tiles_n);
    const uint height = min((uint)BAND, tiles_m - band * BAND);
    at.i0 = (long)(band * BAND + in_band % height) * TILE_M;
    at.j0 = (long)(in_band / height) * TILE_N;
    at.batch = PARTS ? get_group_id(1) % batches : get_group_id(1);
    at.k0 = PARTS ? get_group_id(1) / batches * part : 0;
    at.terms = PARTS ? min(part, k - at.k0) : k;
    return at;
}
