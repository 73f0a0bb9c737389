/* SPDX-License-Identifier: Apache-2.0
 * Blocks of operands on their way to local memory through registers. Local memory has lines of terms, whatever global memory has: where
 * that has terms of lines (across), a work-item turns pieces of JOINED neighbouring terms, so that it stores whole words. The atom
 * gives PITCH, from one line to the next. */

#define PIECES(lines) ((lines) * TILE_K / PIECE / GROUP) /* of an operand's block that one work-item moves */
#define JOINED (WIDEN ? 2 : 1)

typedef union piece {
    uint4 all;
    ab_t one[PIECE];
} piece;

typedef struct moving {
    piece piece[PIECES(TILE_M > TILE_N ? TILE_M : TILE_N)];
} moving;

/* Where piece u of a work-item begins. Neighbouring work-items read neighbouring memory. */
static int line_of(int along, int lines, int u, int item)
{
    return along ? item / 4 + u * (GROUP / 4) : item % (lines / PIECE) * PIECE;
}

static int term_of(int along, int lines, int u, int item)
{
    if (along)
        return item % 4 * PIECE;
    const int per_round = GROUP / (lines / PIECE) * JOINED; /* terms of all work-items' joined pieces */
    return u / JOINED * per_round + item / (lines / PIECE) * JOINED + u % JOINED;
}

/* Begins to read `lines` lines of TILE_K terms. `left` lines are there, and the last is read in the place of others; `terms` terms
 * are, and the others become 0. */
static void copies_begin(moving *m, __local ab_t *block, const __global ab_t *from, int along, int lines, long ld, int left,
                         int terms, int item)
{
#pragma unroll
    for (int u = 0; u < PIECES(lines); u++) {
        const int line = line_of(along, lines, u, item), term = term_of(along, lines, u, item);
        const __global ab_t *at = along ? from + min(line, left - 1) * ld + term
                                        : from + term * ld + min(line, left - PIECE);
        m->piece[u].all = term < terms ? *(const __global uint4 *)at : (uint4)(0);
    }
}

static void copies_close(void)
{
}

static void store_pieces(const moving *m, __local ab_t *block, int along, int lines, int item)
{
#pragma unroll
    for (int u = 0; u < PIECES(lines); u += along ? 1 : JOINED) {
        __local ab_t *to = block + line_of(along, lines, u, item) * PITCH + term_of(along, lines, u, item);
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

/* Stores what was read of both operands. */
static void copies_end(const moving *a, __local ab_t *block_a, const moving *b, __local ab_t *block_b, int item)
{
    store_pieces(a, block_a, !TRANS_A, TILE_M, item);
    store_pieces(b, block_b, TRANS_B, TILE_N, item);
}
