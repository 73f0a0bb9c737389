/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies operand blocks to local memory through registers. Local memory has the layout that the atom reads,
 * independent of global memory. If global memory has terms of lines (across), a work-item transposes pieces of
 * JOINED neighbouring terms, so that it stores whole words. The atom defines the position of an element (place_a,
 * place_b), with whole pieces of a line together.
 */

#define PIECES(lines) ((lines) * TILE_K / PIECE / GROUP) /* pieces of an operand's block that one work-item moves */
#define JOINED (WIDEN ? 2 : 1)
#ifndef ABREAST
#define ABREAST(lines) ((lines) / PIECE) /* pieces of a term that neighbouring work-items read */
#endif
#define PLACE(of_b, line, term) ((of_b) ? place_b(line, term) : place_a(line, term))

typedef struct moving {
    uint4 piece[PIECES(TILE_M > TILE_N ? TILE_M : TILE_N)];
} moving;

/* Words of JOINED neighbouring terms, one for each line. */
typedef union words {
#if WIDEN
    uint8 all;
#else
    uint4 all;
#endif
    uint one[PIECE];
} words;

static words joined(const uint4 *piece)
{
#if WIDEN
    const words w = {.all = convert_uint8(as_ushort8(piece[0])) | convert_uint8(as_ushort8(piece[1])) << 16};
#else
    const words w = {.all = piece[0]};
#endif
    return w;
}

/* Returns the line, or term, at which piece u of a work-item begins. Neighbouring work-items read neighbouring
 * memory. */
static int line_of(int along, int lines, int u, int item)
{
    if (along)
        return item / 4 + u * (GROUP / 4);
    return (item % ABREAST(lines) + item / (4 * ABREAST(lines)) * ABREAST(lines) % (lines / PIECE)) * PIECE;
}

static int term_of(int along, int lines, int u, int item)
{
    if (along)
        return item % 4 * PIECE;
    const int per_round = GROUP / (lines / PIECE) * JOINED; /* terms of all work-items' joined pieces */
    const int pair = item / ABREAST(lines) % 4 + item / (4 * (lines / PIECE)) * 4;
    return u / JOINED * per_round + pair * JOINED + u % JOINED;
}

/* Begins to read `lines` lines of TILE_K terms. `left` lines exist, and the last one is read instead of the others.
 * `terms` terms exist; the others become 0. 32 bits count the elements of a block. */
static void copies_begin(moving *m, __local ab_t *block, const __global ab_t *from, int along, int lines, long ld,
                         int left, int terms, int item)
{
#pragma unroll
    for (int u = 0; u < PIECES(lines); u++) {
        const int line = line_of(along, lines, u, item), term = term_of(along, lines, u, item);
        const __global ab_t *at = from + (along ? (uint)min(line, left - 1) * (uint)ld + term
                                                : term * (uint)ld + min(line, left - PIECE));
        m->piece[u] = term < terms ? *(const __global uint4 *)at : (uint4)(0);
    }
}

#define copies_close()

static void store_pieces(const moving *m, __local ab_t *block, int of_b, int along, int lines, int item)
{
#pragma unroll
    for (int u = 0; u < PIECES(lines); u += along ? 1 : JOINED) {
        const int line = line_of(along, lines, u, item), term = term_of(along, lines, u, item);
        if (along) {
            *(__local uint4 *)(block + PLACE(of_b, line, term)) = m->piece[u];
            continue;
        }
        const words turned = joined(m->piece + u);
#pragma unroll
        for (int i = 0; i < PIECE; i++)
            *(__local uint *)(block + PLACE(of_b, line + i, term)) = turned.one[i];
    }
}

/* Stores the pieces of both operands that were read. */
static void copies_end(const moving *a, __local ab_t *block_a, const moving *b, __local ab_t *block_b, int item)
{
    store_pieces(a, block_a, 0, !TRANS_A, TILE_M, item);
    store_pieces(b, block_b, 1, TRANS_B, TILE_N, item);
}
