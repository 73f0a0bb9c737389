/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the atom of matrix_mma.cl for attention. The sums of an atom are a fragment of 16 terms without data
 * movement. Blocks in local memory are read both along lines and transposed.
 */

#define OWN_ATOM ATOM_M
#define OTHER_ATOM ATOM_N
#define LANE_LINES 2 /* own lines of a lane in an atom's sums */
#define LINE_OF(e) ((e) % 4 / 2)
#define OWN_OF(i, lane) ((lane) / 4 + 8 * (i))
#define OTHER_OF COLUMN_OF
#define BESIDE ROW_RUN
#define LINE_BIT 4
#define LINE_END 32
/* In gradients, wgmma still reads the lines of the step before while those of the next one are copied. */
#define STAGES (ATOM == WGMMA && OWN_BLOCKS == 2 ? 3 : 2)
#define JOIN(operation, x)                                                                                             \
    x = operation(x, across(x, 1, shown));                                                                            \
    x = operation(x, across(x, 2, shown));

/* Blocks have the layout of global memory, or of matrix_wgmma.cl. With the former a line takes an odd number of pieces,
 * so that eight lines are in different banks. */
#if ATOM == WGMMA
#define LINE_AT(line, term, lines) ((term) / 64 * 64 * (lines) + (line)*64 + ((term) % 64 ^ (line) % 8 * PIECE))
#else
#define LINE_AT(line, term, lines) ((line)*PITCH + (term))
#endif
#define BLOCK(forms) (OTHERS * PITCH * (ATOM == WGMMA && (forms) == TURNED ? 3 : 2) / 2)
#define TURNED_IN(block, forms) (block)

/* Loads 16 own lines of 16 terms. */
static void load_own(fragment a, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
    load_matrices(a, block + (line + lane % 16) * PITCH + term + lane / 16 * 8, 0, shown);
}

/* Loads 16 other lines of 16 terms. */
static void load_other(fragment b, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
    load_matrices(b, block + (line + lane % 8 + lane / 16 * 8) * PITCH + term + lane / 8 % 2 * 8, 0, shown);
}

/* Loads 16 columns, with 16 other lines as terms. */
static void load_turned(fragment b, const __local ab_t *block, int line, int column, int lane, __local uint *shown)
{
    load_matrices(b, block + (line + lane % 16) * PITCH + column + lane / 16 * 8, 1, shown);
}

/* Makes 16 own lines of 16 terms from 8 sums of each lane. */
static void fragment_of(fragment a, const float *sum, int lane, __local uint *shown)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = narrow_both(sum[2 * i], sum[2 * i + 1]);
}

static void multiply_own(float *sum, const uint *own, const uint *other, __local uint *shown)
{
    multiply(sum, own, other, shown);
}

static void store_run(const float *v, __global ab_t *to)
{
    *(__global uint *)to = narrow_both(v[0], v[1]);
}

typedef int moving; /* unused: copies need no registers */

/* Begins to copy `lines` lines of D, of which `left` exist; the others become 0. */
static void bring_begin(moving *m, __local ab_t *block, const __global ab_t *from, uint stride, int lines, int left,
                        int item)
{
#pragma unroll
    for (int u = 0; u < (lines * PIECES + GROUP - 1) / GROUP; u++) {
        const int at = item + u * GROUP, line = at / PIECES, term = at % PIECES * PIECE;
        if (at < lines * PIECES)
            copy_begin(block + LINE_AT(line, term, lines), from + (uint)clamp(left - 1, 0, line) * stride + term,
                       line < left ? 16 : 0);
    }
}

#if EMULATED == 0 || ATOM == MMA
#define lines_show(block, lines, item) /* the emulation marks lines that have arrived */
#endif

/* Waits for this work-item's share of the copy. */
static void bring_end(const moving *m, __local ab_t *block, int forms, int item)
{
    copy_wait();
    lines_show(block, OTHERS, item);
}

static void bring_own(__local ab_t *block, const __global ab_t *from, uint stride, int left, int item)
{
    bring_begin(0, block, from, stride, OWN_LINES, left, item);
    copy_wait();
    lines_show(block, OWN_LINES, item);
}
