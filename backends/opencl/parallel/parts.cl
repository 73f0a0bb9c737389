/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards of tables (rows) and of tensors (columns). IN and OUT name storage types (f32, bf16 or f16).
 */

#ifndef IN
#define IN f32
#endif
#ifndef OUT
#define OUT f32
#endif

__kernel void tp_indices(const __global int *indices, long io, __global int *y, long yo, long count, long first,
                         long rows, long all)
{
    const long i = get_global_id(0);
    if (i >= count)
        return;
    const int index = indices[io + i];
    const long row = index - first;
    y[yo + i] = index < 0 || index >= all ? index : row >= 0 && row < rows ? (int)row : -1;
}

/* Copies `n` columns of each row of x, from column `from` on, to column `to` of y. The rows have x_width and
 * y_width columns. */
__kernel void columns(const __global TX_CAT(IN, _t) * x, long xo, __global TX_CAT(OUT, _t) * y, long yo, long n,
                      long x_width, long from, long y_width, long to, int mode, const __global uint *control)
{
    const int adds = tx_adds(mode, control);
    x += xo + TX_ROW * x_width + from;
    y += yo + TX_ROW * y_width + to;
    TX_EACH({
        vec v = TX_CAT(tx_load_, IN)(x, i, n);
        if (adds)
            v += TX_CAT(tx_load_, OUT)(y, i, n);
        TX_CAT(tx_store_, OUT)(v, y, i, n);
    })
}
