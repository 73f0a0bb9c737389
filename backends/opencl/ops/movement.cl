/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding, gather, scatter, broadcasts, casts and copies. IN and OUT name storage types (f32, bf16 or f16).
 */

#ifndef IN
#define IN f32
#endif
#ifndef OUT
#define OUT f32
#endif
#define IN_T TX_CAT(IN, _t)
#define OUT_T TX_CAT(OUT, _t)
#define LOAD_IN TX_CAT(tx_load_, IN)
#define STORE_OUT TX_CAT(tx_store_, OUT)

#ifndef PIECE
#define PIECE 1
#endif
#ifndef SORT
#define SORT 1
#endif

/* TX_ROW is row (b, t). P is the number of rows of the position table, 0 without one. `at` is the rank of the
 * positions in it; 0 means absent, so row t has position t. */
__kernel void embedding(const __global int *tokens, long to, const __global IN_T *table, long tao,
                        const __global IN_T *places, long po, const __global int *positions, long pso,
                        __global OUT_T *y, long yo, long n, long T, long P, int at)
{
    long row = TX_ROW;
    long position = tx_place(positions + pso, at, row, T, P - T);
    const int number = tokens[to + row];
    const __global IN_T *token = table + tao + max(number, 0) * (long)n;
    const __global IN_T *place = places + po + position * n;
    y += yo + row * n;
    TX_EACH({
        vec v = 0.0f;
        if (number >= 0)
            v = LOAD_IN(token, i, n);
        if (P)
            v += LOAD_IN(place, i, n);
        STORE_OUT(v, y, i, n);
    })
}

/* TX_ROW is row t of the position table's gradient. */
__kernel void position_grad(const __global IN_T *dy, long dyo, __global float *y, long yo, long n, long B, long T,
                            int mode, const __global uint *control)
{
    long t = TX_ROW;
    int adds = tx_adds(mode, control);
    dy += dyo;
    y += yo + t * n;
    TX_EACH({
        vec sum = 0.0f;
        if (t < T)
            for (long b = 0; b < B; b++)
                sum += LOAD_IN(dy + (b * T + t) * n, i, n);
        if (adds)
            sum += tx_load(y, i, n, 0.0f);
        tx_store(sum, y, i, n);
    })
}

__kernel void gather(const __global IN_T *table, long to, const __global int *indices, long io, __global IN_T *y,
                     long yo, long n)
{
    long row = TX_ROW;
    int index = indices[io + row];
    table += to + max(index, 0) * n;
    y += yo + row * n;
    TX_EACH({
        vec v = 0.0f;
        if (index >= 0)
            v = LOAD_IN(table, i, n);
        TX_CAT(tx_store_, IN)(v, y, i, n);
    })
}

__kernel void transpose(const __global IN_T *x, long xo, __global IN_T *y, long yo, long n, int a, int b)
{
    long row = TX_ROW, first = row / ((long)a * b) * ((long)a * b), at = row - first;
    x += xo + (first + at % a * b + at / a) * n;
    y += yo + row * n;
    TX_EACH({ TX_CAT(tx_store_, IN)(LOAD_IN(x, i, n), y, i, n); })
}

/* TX_ROW is row t of T; its source has `columns` elements. */
__kernel void shift_rows(const __global IN_T *x, long xo, __global IN_T *y, long yo, long n, long columns, long T,
                         long first, long step)
{
    const long row = TX_ROW, offset = first + row % T * step;
    x += xo + row * columns;
    y += yo + row * n;
    TX_EACH({
        for (long k = i; k < i + VW && k < n; k++)
            y[k] = k + offset >= 0 && k + offset < columns ? x[k + offset] : (IN_T)0;
    })
}

/* A work-item numbers the tokens of one row. */
__kernel void token_positions(const __global int *tokens, long to, __global int *y, long yo, int B, int T, int padding)
{
    const long b = get_global_id(0);
    if (b >= B)
        return;
    int position = padding;
    for (long i = b * T; i < (b + 1) * T; i++)
        y[yo + i] = tokens[to + i] == padding ? padding : ++position;
}

/* ---- scatter_add ------------------------------------------------------------------------------ */

/* scatter_add adds the sources of each row in their order, in pieces of PIECE.
 *
 * Sources are sorted by index, then by their own number, so that the sources of a row are adjacent. `sorted` holds for
 * each place the source, its number in the row, and the number of sources of the row. If a row has more than PIECE
 * sources, the sums of its pieces are first stored in parts[2 ceil(count / PIECE)][n]. So a frequent row is not left to
 * one work-item. */

/* Zeroes the output unless the op adds to it. */
__kernel void scatter_begin(__global float *y, long yo, long n, int mode, const __global uint *control)
{
    if (tx_adds(mode, control))
        return;
    TX_EACH({ tx_store((vec)0.0f, y + yo, i, n); })
}

#define EACH_PLACE(i, count)                                                                                           \
    for (int i = (int)get_global_id(0) * RUN, end = min(i + RUN, count); i < end; i++)

/* Sorts sources by index, then by their own number, in blocks of SORT. The place of a source is the number of
 * sources that precede it. */
__kernel void scatter_sort(const __global int *indices, long io, __global int *order, long oo, int count)
{
    indices += io;
    order += oo;
    EACH_PLACE(i, count)
    {
        const int first = i / SORT * SORT, last = min(first + SORT, count), index = indices[i];
        int place = first;
        for (int j = first; j < last; j++)
            place += indices[j] < index || (indices[j] == index && j < i);
        order[place] = i;
    }
}

/* Merges pairs of sorted runs of `run` sources. A work-item writes RUN consecutive places. It finds by bisection
 * how many sources before them come from the left run, then merges step by step. */
__kernel void scatter_merge(const __global int *indices, long io, const __global int *from, long fo, __global int *to,
                            long too, int count, int run)
{
    const int first = (int)get_global_id(0) * RUN, base = first / (2 * run) * 2 * run, before = first - base;
    if (first >= count)
        return;
    const int lefts = min(run, count - base), rights = min(run, count - base - lefts);
    const __global int *left = from + fo + base, *right = left + lefts;
    indices += io;
    to += too;
    int low = max(0, before - rights), high = min(before, lefts);
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (indices[left[middle]] <= indices[right[before - 1 - middle]])
            low = middle + 1;
        else
            high = middle;
    }
    int l = low, r = before - low;
    for (int i = first; i < min(first + RUN, base + lefts + rights); i++) {
        const int takes_left = r >= rights || (l < lefts && indices[left[l]] <= indices[right[r]]);
        to[i] = takes_left ? left[l++] : right[r++];
    }
}

/* Returns the last source with the same row as the source at `place`, in direction `sign`. The search doubles its
 * steps, then bisects. */
static int last_alike(const __global int *indices, const __global int *order, int count, int place, int sign)
{
    const int index = indices[order[place]], limit = sign > 0 ? count - 1 - place : place;
    int low = 0, high = 1; /* low: same row; high: not known to be the same */
    while (high <= limit && indices[order[place + sign * high]] == index) {
        low = high;
        high *= 2;
    }
    high = min(high, limit + 1);
    while (low + 1 < high) {
        const int middle = low + (high - low) / 2;
        if (indices[order[place + sign * middle]] == index)
            low = middle;
        else
            high = middle;
    }
    return place + sign * low;
}

/* Writes the row data of each place in the sorted order. */
__kernel void scatter_rows(const __global int *indices, long io, const __global int *order, long oo,
                           __global int *sorted, long so, int count, int rows, int padding)
{
    indices += io;
    order += oo;
    int index = -1, first = 0, last = -1; /* of the row at the previous place */
    EACH_PLACE(i, count)
    {
        if (i > last) {
            index = indices[order[i]];
            first = last_alike(indices, order, count, i, -1);
            last = last_alike(indices, order, count, i, 1);
        }
        __global int *at = sorted + so + 3 * (long)i;
        at[0] = order[i];
        at[1] = i - first;
        at[2] = index >= 0 && index < rows && index != padding ? last + 1 - first : 0;
    }
}

/* Index in `parts` of the piece that begins at a place. The first piece of a row has an odd index. It may share its
 * PIECE places with the last piece of another row, but never with another first piece. */
static long part_of(long place, int number)
{
    return place / PIECE * 2 + (number == 0);
}

/* TX_ROW is a place. The work-item at the first place of each piece sums it. */
__kernel void scatter_pieces(const __global int *indices, long io, const __global IN_T *src, long so,
                             __global float *y, long yo, const __global int *sorted, long sorto, __global float *parts,
                             long po, long n)
{
    const long place = TX_ROW;
    const __global int *at = sorted + sorto + 3 * place;
    const int number = at[1], size = at[2], length = min(size - number, PIECE);
    if (number % PIECE || length <= 0)
        return;
    const int whole = size <= PIECE;
    __global float *to = whole ? y + yo + indices[io + at[0]] * n : parts + po + part_of(place, number) * n;
    TX_EACH({
        vec sum = 0.0f;
        if (whole)
            sum = tx_load(to, i, n, 0.0f);
        for (int k = 0; k < length; k++)
            sum += LOAD_IN(src + so + at[3 * k] * n, i, n);
        tx_store(sum, to, i, n);
    })
}

/* TX_ROW is a place. The work-item at the first place of a row with several pieces adds them to the output. */
__kernel void scatter_join(const __global int *indices, long io, __global float *y, long yo, const __global int *sorted,
                           long sorto, const __global float *parts, long po, long n)
{
    const long place = TX_ROW;
    const __global int *at = sorted + sorto + 3 * place;
    const int size = at[2];
    if (at[1] || size <= PIECE)
        return;
    y += yo + indices[io + at[0]] * n;
    TX_EACH({
        vec sum = tx_load(y, i, n, 0.0f);
        for (int number = 0; number < size; number += PIECE)
            sum += tx_load(parts + po + part_of(place + number, number) * n, i, n, 0.0f);
        tx_store(sum, y, i, n);
    })
}

/* ---- broadcasts, casts, copies ----------------------------------------------------------------------------- */

/* TX_ROW is a row of y. axis 0 reads x[0], 1 reads x[row], 2 reads x[column]. */
__kernel void broadcast(const __global float *x, long xo, __global float *y, long yo, long n, int axis, float alpha,
                        int which, const __global uint *control)
{
    long row = TX_ROW;
    float factor = tx_factor(alpha, which, control);
    x += xo;
    y += yo + row * n;
    TX_EACH({
        vec v;
        if (axis == 2)
            v = tx_load(x, i, n, 0.0f);
        else
            v = x[axis == 1 ? row : 0];
        tx_store(v * factor, y, i, n);
    })
}

/* With IN and OUT f32 it also copies 32-bit words of any type. */
__kernel void cast(const __global IN_T *x, long xo, __global OUT_T *y, long yo, long n, int mode,
                   const __global uint *control)
{
    int adds = tx_adds(mode, control);
    x += xo;
    y += yo;
    TX_EACH({
        vec v = LOAD_IN(x, i, n);
        if (adds)
            v += TX_CAT(tx_load_, OUT)(y, i, n);
        STORE_OUT(v, y, i, n);
    })
}

/* Offsets and count are in bytes. */
__kernel void copy_bytes(const __global uchar *x, long xo, __global uchar *y, long yo, long n)
{
    TX_EACH({
        for (int k = 0; k < VW; k++)
            if (i + k < n)
                y[yo + i + k] = x[xo + i + k];
    })
}

__kernel void fill(__global OUT_T *y, long yo, long n, float value)
{
    y += yo;
    TX_EACH({ STORE_OUT((vec)value, y, i, n); })
}

__kernel void range(__global int *y, long yo, long n, long period, int first, int step, int gap)
{
    y += yo;
    TX_EACH({
        for (long k = i; k < i + VW && k < n; k++) {
            const long place = k % period;
            y[k] = first + (int)place * step + (place < period / 2 ? 0 : gap);
        }
    })
}
