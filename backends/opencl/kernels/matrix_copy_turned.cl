/* SPDX-License-Identifier: Apache-2.0
 * Blocks of operands on their way to local memory through registers. Local memory has lines of terms, whatever global memory has: where
 * that has terms of lines (across), a work-item turns pieces of JOINED neighbouring terms, so that it stores whole words. The atom
 * gives PITCH, from one line to the next. */

#define BLOCK_A (TILE * PITCH)
#define BLOCK_B (TILE * PITCH)
#define PIECES (TILE * TILE_K / PIECE / GROUP) /* of an operand's block that one work-item moves */
#define JOINED (WIDEN ? 2 : 1)

typedef union piece {
    uint4 all;
    ab_t one[PIECE];
} piece;

typedef struct moving {
    piece piece[PIECES];
} moving;

/* Where piece u of a work-item begins. Neighbouring work-items read neighbouring memory. */
static int line_of(int along, int u, int item)
{
    return along ? item / 4 + u * (GROUP / 4) : item % (TILE / PIECE) * PIECE;
}

static int term_of(int along, int u, int item)
{
    if (along)
        return item % 4 * PIECE;
    const int per_round = GROUP / (TILE / PIECE) * JOINED; /* terms of all work-items' joined pieces */
    return u / JOINED * per_round + item / (TILE / PIECE) * JOINED + u % JOINED;
}

/* Begins to read TILE lines of `terms` terms (those up to TILE_K become 0). Lines beyond the last, `left` from the first, are
 * read from the last. */
static void copies_begin(moving *m, __local ab_t *block, const __global ab_t *from, int along, long ld, long left, long terms,
                         int item)
{
#pragma unroll
    for (int u = 0; u < PIECES; u++) {
        const int line = line_of(along, u, item), term = term_of(along, u, item);
        const __global ab_t *at = along ? from + min((long)line, left - 1) * ld + term
                                        : from + term * ld + min((long)line, left - PIECE);
        m->piece[u].all = term < terms ? *(const __global uint4 *)at : (uint4)(0);
    }
}

/* Stores what was read. */
static void copies_end(moving *m, __local ab_t *block, int along, int item)
{
#pragma unroll
    for (int u = 0; u < PIECES; u += along ? 1 : JOINED) {
        __local ab_t *to = block + line_of(along, u, item) * PITCH + term_of(along, u, item);
        if (along) {
            *(__local uint4 *)to = m->piece[u].all;
            continue;
        }
#pragma unroll
        for (int i = 0; i < PIECE; i++) {
#if WIDEN
            *(__local uint *)(to + i * PITCH) = m->piece[u].one[i] | (uint)m->piece[u + 1].one[i] << 16;
#else
            to[i * PITCH] = m->piece[u].one[i];
#endif
        }
    }
}
