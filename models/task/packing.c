/* SPDX-License-Identifier: Apache-2.0
 * Packs several samples into a row. */
#include "models/task/instruction.h"

#include <stdlib.h>
#include <string.h>

/* The free positions of all rows, as the leaves of a binary tree. A node has the maximum of its children. */
typedef struct rows {
    int64_t leaves; /* a power of two */
    int64_t *room;  /* [2 * leaves]: node i has the children 2 i and 2 i + 1; the root is 1 */
} rows;

/* Finds the first row with `length` free positions and reserves them. */
static int64_t reserve(const rows *r, int64_t length)
{
    int64_t node = 1;
    while (node < r->leaves)
        node = 2 * node + (r->room[2 * node] < length);
    const int64_t row = node - r->leaves;
    r->room[node] -= length;
    for (node /= 2; node; node /= 2)
        r->room[node] = r->room[2 * node] > r->room[2 * node + 1] ? r->room[2 * node] : r->room[2 * node + 1];
    return row;
}

/* Sorts the samples of `from` by their rows, row_of, and keeps their order within a row. */
static void sort(tx_instruction_data *d, const int64_t *from, const int64_t *row_of)
{
    memset(d->last, 0, (size_t)d->count * sizeof *d->last);
    for (int64_t i = 0; i < d->count; i++)
        d->last[row_of[i]]++;
    for (int64_t r = 1; r < d->count; r++)
        d->last[r] += d->last[r - 1];
    for (int64_t i = d->count - 1; i >= 0; i--)
        d->order[--d->last[row_of[i]]] = from[i];
    /* The loop has turned the ends of the rows into their beginnings. */
    memmove(d->last, d->last + 1, (size_t)(d->count - 1) * sizeof *d->last);
    d->last[d->count - 1] = d->count;
}

tx_status tx_instruction_pack(tx_instruction_data *d, int64_t block, uint64_t seed)
{
    const tx_sample_order order = {.shuffle = true, .seed = seed};
    const size_t bytes = (size_t)d->count * sizeof(int64_t);
    rows r = {.leaves = 1};
    while (r.leaves < d->count)
        r.leaves *= 2;
    r.room = malloc((size_t)(2 * r.leaves) * sizeof *r.room);
    d->order = malloc(bytes);
    d->last = malloc(bytes);
    int64_t *from = malloc(bytes), *row_of = malloc(bytes);
    const bool fits = r.room && d->order && d->last && from && row_of;
    for (int64_t i = 0; fits && i < 2 * r.leaves; i++)
        r.room[i] = block;
    d->rows = 0;
    for (int64_t i = 0; fits && i < d->count; i++) {
        const int64_t sample = from[i] = tx_sample_order_at(&order, d->count, i);
        row_of[i] = reserve(&r, d->end[sample] - tx_sample_begin(d->end, sample));
        d->rows = row_of[i] >= d->rows ? row_of[i] + 1 : d->rows;
    }
    if (fits)
        sort(d, from, row_of);
    free(r.room);
    free(from);
    free(row_of);
    return fits ? TX_OK : tx_fail(TX_MEMORY, "no memory to pack %zu samples", (size_t)d->count);
}
