/* SPDX-License-Identifier: Apache-2.0
 * Which tile of TILE_M x TILE_N, and which terms of its sums, a work-group computes. Group dimension 0 goes over tiles from
 * number `first_tile` on: by bands of BAND tiles in m, and inside a band column by column, so that groups that run together
 * share b in the cache. Dimension 1 goes over the batch; PARTS 1: then over parts of `part` terms. */
#define BAND 8

typedef struct gemm_place {
    long i0, j0; /* first row and column */
    long batch;
    long k0, terms; /* first term, and how many */
} gemm_place;

static gemm_place gemm_place_of(long m, long n, long k, long batches, long part, long first_tile)
{
    gemm_place at;
    const long tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N;
    const long tile = first_tile + get_group_id(0), band = tile / (BAND * tiles_n), in_band = tile % (BAND * tiles_n);
    const long height = min((long)BAND, tiles_m - band * BAND);
    at.i0 = (band * BAND + in_band % height) * TILE_M;
    at.j0 = in_band / height * TILE_N;
    at.batch = PARTS ? get_group_id(1) % batches : get_group_id(1);
    at.k0 = PARTS ? get_group_id(1) / batches * part : 0;
    at.terms = PARTS ? min(part, k - at.k0) : k;
    return at;
}
