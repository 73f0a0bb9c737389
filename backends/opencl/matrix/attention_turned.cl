/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies blocks of other lines to local memory through registers: along (lines of D), transposed (columns of OTHERS
 * terms), or both. The atom defines the layouts, ALONG_AT and TURNED_AT, and the sizes of such blocks. Layouts keep
 * whole pieces of a line together, and pairs of a column.
 */
#define TURNED_IN(block, forms) ((block) + ((forms) & ALONG ? ALONG_BLOCK : 0))
#define BLOCK(forms) (((forms) & ALONG ? ALONG_BLOCK : 0) + ((forms) & TURNED ? TURNED_BLOCK : 0))

/* A work-item moves pieces of two neighbouring lines, so that it stores whole words when it transposes. */
#define PAIRS ((OTHERS / 2 * PIECES + GROUP - 1) / GROUP)

typedef struct moving {
    uint4 piece[PAIRS][2];
} moving;

/* Words of two lines, one for each column. */
typedef union words {
    uint8 all;
    uint one[PIECE];
} words;

/* Begins to read OTHERS lines of D, of which `left` exist; the others become 0. */
static void bring_begin(moving *m, __local ab_t *block, const __global ab_t *from, uint stride, int lines, int left,
                        int item)
{
#pragma unroll
    for (int u = 0; u < PAIRS; u++) {
        const int at = item + u * GROUP, line = at / PIECES * 2, term = at % PIECES * PIECE;
#pragma unroll
        for (int i = 0; i < 2; i++)
            m->piece[u][i] = line + i < min(left, OTHERS)
                                 ? *(const __global uint4 *)(from + (uint)(line + i) * stride + term)
                                 : (uint4)(0);
    }
}

/* Stores the lines that were read: along, transposed or both. */
static void bring_end(const moving *m, __local ab_t *block, int forms, int item)
{
    __local ab_t *const turned = TURNED_IN(block, forms);
#pragma unroll
    for (int u = 0; u < PAIRS; u++) {
        const int at = item + u * GROUP, line = at / PIECES * 2, term = at % PIECES * PIECE;
        if (line >= OTHERS)
            continue;
        if (forms & ALONG) {
            *(__local uint4 *)(block + ALONG_AT(line, term)) = m->piece[u][0];
            *(__local uint4 *)(block + ALONG_AT(line + 1, term)) = m->piece[u][1];
        }
        const words both = {.all = convert_uint8(as_ushort8(m->piece[u][0])) | convert_uint8(as_ushort8(m->piece[u][1]))
                                                                                   << 16};
        if (forms & TURNED)
#pragma unroll
            for (int i = 0; i < PIECE; i++)
                *(__local uint *)(turned + TURNED_AT(term + i, line)) = both.one[i];
    }
}

static void bring_own(__local ab_t *block, const __global ab_t *from, uint stride, int left, int item)
{
    for (int at = item; at < OWN_LINES * PIECES; at += GROUP) {
        const int line = at / PIECES, term = at % PIECES * PIECE;
        *(__local uint4 *)(block + line * PITCH + term) =
            line < left ? *(const __global uint4 *)(from + (uint)line * stride + term) : (uint4)(0);
    }
}
