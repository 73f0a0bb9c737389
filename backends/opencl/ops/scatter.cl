/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter_add: adds the sources of each row in their order, in pieces of PIECE. IN names their storage type.
 *
 * Sources are sorted by index, then by their own number, so that the sources of a row are adjacent. `sorted` holds for
 * each place the source, its number in the row, and the number of sources of the row. If a row has more than PIECE
 * sources, the sums of its pieces are first stored in parts[2 ceil(count / PIECE)][n]. So a frequent row is not left to
 * one work-item.
 *
 * SORT  sources that are sorted by counting
 * SORT_RUN, MERGE_RUN  consecutive sources of a work-item in the kernels that sort */
#define TX_ONE_PROGRAM /* the kernels are launched together */

#define IN_T TX_CAT(IN, _t)
#define LOAD_IN TX_CAT(tx_load_, IN)

/* Zeroes the output unless the op adds to it. */
__kernel void scatter_begin(__global float *y, long yo, long n, int mode, const __global uint *control)
{
    if (tx_adds(mode, control))
        return;
    TX_EACH({ tx_store((vec)0.0f, y + yo, i, n); })
}

#define EACH_PLACE(i, count)                                                                                           \
    for (int i = (int)get_global_id(0) * SORT_RUN, end = min(i + SORT_RUN, count); i < end; i++)

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

/* Merges pairs of sorted runs of `run` sources. A work-item writes MERGE_RUN consecutive places. It finds by bisection
 * how many sources before them come from the left run, then merges step by step. */
__kernel void scatter_merge(const __global int *indices, long io, const __global int *from, long fo, __global int *to,
                            long too, int count, int run)
{
    const int first = (int)get_global_id(0) * MERGE_RUN, base = first / (2 * run) * 2 * run, before = first - base;
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
    for (int i = first; i < min(first + MERGE_RUN, base + lefts + rights); i++) {
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
