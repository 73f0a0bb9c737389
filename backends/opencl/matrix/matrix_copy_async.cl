/* SPDX-License-Identifier: Apache-2.0
 * Blocks of operands on their way to local memory without passing registers, AHEAD at a time: local
 * memory has them as global memory has, lines of terms (along) or terms of lines (across). The atom says where an element lies
 * (along_at, across_at), and gives copy_begin, copy_close and copy_wait_oldest. */

typedef int moving; /* nothing that a work-item has to remember */

/* How many work-items copy a block of so many lines, each as many pieces. */
#define COPIERS(lines) ((lines) * TILE_K / PIECE % GROUP ? 256 : GROUP)

/* Begins to copy `lines` lines of TILE_K terms; of them `left` lines and `terms` terms are there, the others become 0. */
static void copies_begin(moving *m, __local ab_t *block, const __global ab_t *from, int along, int lines, long ld, int left,
                         int terms, int item)
{
    const int per_term = lines / PIECE, per_line = TILE_K / PIECE, items = COPIERS(lines);
    const int line = along ? item / per_line : item % per_term * PIECE;
    const int term = along ? item % per_line * PIECE : item / per_term;
    const int step = items / (along ? per_line : per_term); /* from one piece of this work-item to the next */
    const int inside = along ? (term < terms ? left - line : 0) : (line < left ? terms - term : 0);
    if (items < GROUP && item >= items)
        return;
    from += along ? line * ld + term : term * ld + line;
#pragma unroll
    for (int u = 0; u < lines * TILE_K / PIECE / items; u++)
        copy_begin(block + (along ? along_at(line + u * step, term) : across_at(term + u * step, line, lines)),
                   from + u * step * ld, u * step < inside ? 16 : 0);
}

/* All that was begun since the last call is one block of both operands. */
static void copies_close(void)
{
    copy_close();
}

/* This work-item's share of the oldest block is there. */
static void copies_end(const moving *a, __local ab_t *block_a, const moving *b, __local ab_t *block_b, int item)
{
    copy_wait_oldest();
}
