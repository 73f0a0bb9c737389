/* SPDX-License-Identifier: Apache-2.0
 * Blocks of operands on their way to local memory without passing registers: local memory has them as global memory has, lines of
 * terms (along) or terms of lines (across). The atom gives the pitches of both, copy_begin and copy_wait. */

#define BLOCK_ALONG (TILE * PITCH_ALONG)
#define BLOCK_ACROSS (TILE_K * PITCH_ACROSS)
#define BLOCK_A (TRANS_A ? BLOCK_ACROSS : BLOCK_ALONG)
#define BLOCK_B (TRANS_B ? BLOCK_ALONG : BLOCK_ACROSS)
#define PIECES (TILE * TILE_K / PIECE / GROUP) /* of an operand's block that one work-item copies */

typedef int moving; /* nothing that a work-item has to remember */

/* Begins to copy TILE lines of `terms` terms (those up to TILE_K become 0). Lines beyond the last, `left` from the first, are
 * copied from the last. */
static void copies_begin(moving *m, __local ab_t *block, const __global ab_t *from, int along, long ld, long left, long terms,
                         int item)
{
#pragma unroll
    for (int u = 0; u < PIECES; u++) {
        if (along) {
            const int line = item / 4 + u * (GROUP / 4), term = item % 4 * PIECE;
            const int bytes = term < terms ? 16 : 0;
            copy_begin(block + line * PITCH_ALONG + term, from + min((long)line, left - 1) * ld + (bytes ? term : 0), bytes);
        } else {
            const int per_term = TILE / PIECE, line = item % per_term * PIECE, term = item / per_term + u * (GROUP / per_term);
            const int bytes = term < terms ? 16 : 0;
            copy_begin(block + term * PITCH_ACROSS + line, from + (bytes ? term : 0) * ld + min((long)line, left - PIECE),
                       bytes);
        }
    }
}

/* All copies that this work-item has begun are there. */
static void copies_end(moving *m, __local ab_t *block, int along, int item)
{
    copy_wait();
}
