/* SPDX-License-Identifier: Apache-2.0
 *
 * The second kernel of a split-k product: y = sum of work [parts, count] over parts + bias (+ y), with the epilogue.
 * Y is the storage type of y. With `span` the number of parts depends on the tile (gemm_matrix.cl): each work-group
 * computed `span` blocks of terms of the tiles, which have `blocks` each. Tiles are numbered along columns.
 */

#define Y_LOAD TX_CAT(tx_load_, Y)
#define Y_STORE TX_CAT(tx_store_, Y)

#include "epilogue.cl"

__kernel void gemm_join(__global const float *work, long work_at, __global const float *bias, long bias_at,
                        __global TX_CAT(Y, _t) * y, long y_at, __global const uint *control, long count, long n,
                        long parts, long span, long blocks, long tile_rows, long tile_columns, int accumulate,
                        __global const TX_CAT(Y, _t) * with, long with_at, __global TX_CAT(Y, _t) * kept, long kept_at)
{
    const long i = get_global_id(0) * (long)VW;
    if (i >= count)
        return;
    if (span) {
        const uint row = (uint)i / (uint)n, column = (uint)i % (uint)n, rows = (uint)count / (uint)n;
        const uint tiles = (rows + (uint)tile_rows - 1) / (uint)tile_rows;
        const uint first = (column / (uint)tile_columns * tiles + row / (uint)tile_rows) * (uint)blocks;
        parts = (first + (uint)blocks - 1) / (uint)span - first / (uint)span + 1;
    }
    work += work_at;
    y += y_at;
    vec v = tx_load(work, i, count, 0.0f);
    for (long p = 1; p < parts; p++)
        v += tx_load(work + p * count, i, count, 0.0f);
    if (bias)
        v += tx_load(bias + bias_at, i % n, n, 0.0f);
    if (tx_adds(accumulate, control))
        v += Y_LOAD(y, i, count);
    v = tx_finish(v, with ? with + with_at : with, kept ? kept + kept_at : kept, i, count);
    Y_STORE(v, y, i, count);
}
