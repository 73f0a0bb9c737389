/* SPDX-License-Identifier: Apache-2.0
 *
 * Asynchronous copies of operand blocks to local memory without registers, AHEAD blocks at a time. Local memory has
 * the layout of global memory: lines of terms (along) or terms of lines (across). The atom defines the position of
 * an element (along_at, across_at), and copy_begin, copy_close and copy_wait_oldest.
 */

typedef int moving; /* unused: copies need no registers */

/* Begins to copy `lines` lines of TILE_K terms. `left` lines and `terms` terms exist; the others become 0. */
static void copies_begin(moving *m, __local ab_t *block, const __global ab_t *from, int along, int lines, long ld,
                         int left, int terms, int item)
{
    const int per_term = lines / PIECE, per_line = TILE_K / PIECE;
    const int line = along ? item / per_line : item % per_term * PIECE;
    const int term = along ? item % per_line * PIECE : item / per_term;
    const int step = GROUP / (along ? per_line : per_term); /* from one piece of this work-item to the next */
    const int inside = along ? (term < terms ? left - line : 0) : (line < left ? terms - term : 0);
    from += along ? line * ld + term : term * ld + line;
#pragma unroll
    for (int u = 0; u < lines * TILE_K / PIECE / GROUP; u++)
        copy_begin(block + (along ? along_at(line + u * step, term) : across_at(term + u * step, line, lines)),
                   from + u * step * ld, u * step < inside ? 16 : 0);
}

/* Makes all copies since the last call one block of both operands, and waits for this work-item's share of the oldest
 * block. */
#define copies_close copy_close
#define copies_end(a, block_a, b, block_b, item) copy_wait_oldest()
