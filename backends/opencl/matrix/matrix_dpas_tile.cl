/* SPDX-License-Identifier: Apache-2.0
 *
 * Additional definitions of the atom of matrix_dpas.cl for matrix products. Its rows are columns of y, so the sums
 * of a lane are adjacent.
 */

#define SWAPS 1
#define RIGHTS 1
#define STORE_RUN 16
#define STORE_ROW COLUMN_OF
#define STORE_COLUMN ROW_OF

/* Blocks in local memory have the order in which the lanes read them. ATOM_K terms of 8 lines of b are 256 bytes.
 * The same holds for a, but with LANES lines at a time: as pieces of one line after another, or as words if global
 * memory has terms of lines.
 * Each group of 8 lines is padded by 16 bytes, and pieces are permuted, so that work-items that write neighbouring
 * pieces access different banks. */
#define PITCH_8 (8 * TILE_K + PIECE)
#define BLOCK_OF(lines) ((lines) / 8 * PITCH_8)
#define WORD (4 / (int)sizeof(ab_t)) /* elements in 4 bytes */

static int place_a(int line, int term)
{
    const int lane = line % LANES, rest = term % ATOM_K, piece = term / PIECE % 4;
    const int at = BLOCK_OF(line - lane) + term / ATOM_K * (LANES * ATOM_K);
    return at + (TRANS_A ? rest / WORD * (LANES * WORD) + lane * WORD + rest % WORD
                         : rest / PIECE * (LANES * PIECE) + (lane ^ piece * (LANES / 4)) * PIECE + rest % PIECE);
}

static int place_b(int line, int term)
{
    return line / 8 * PITCH_8 + term / ATOM_K * (8 * ATOM_K) + line % 8 * ATOM_K + term % ATOM_K;
}

static void load_a(fragment f, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
#pragma unroll
    for (int j = 0; j < 16 / LANES; j++) {
#if TRANS_A
        f->columns[j] = as_int8(read_words(block + place_a(line + LANES * j, term)));
#else
        const __local uint4 *const first = (const __local uint4 *)(block + place_a(line + LANES * j + lane, term));
        const __local uint4 *const second =
            (const __local uint4 *)(block + place_a(line + LANES * j + lane, term + PIECE));
        f->columns[j] = as_int8((uint8)(*first, *second));
#endif
    }
}

static void load_b(fragment f, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        f->rows[i] = read_rows(block + place_b(line + 8 * i, term));
}
