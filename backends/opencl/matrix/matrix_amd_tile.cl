/* SPDX-License-Identifier: Apache-2.0
 *
 * Additional definitions of the atoms of matrix_amd.cl for matrix products: fragments from blocks of lines, and
 * stores.
 */

#if ATOM == WMMA11 && !SWIZZLE
#define SWAPS 0
#define STORE_RUN ROW_RUN
#define STORE_ROW ROW_OF
#define STORE_COLUMN COLUMN_OF
#else /* the sums of a lane are in one column, so b a is computed; there they are adjacent in a row */
#define SWAPS 1
#define STORE_RUN 4
#define STORE_ROW COLUMN_OF
/* With WMMA11 columns are loaded in an order for which this holds. */
#define STORE_COLUMN(e, lane) (ATOM == WMMA11 ? (lane) / 16 * 8 + (e) : ROW_OF(e, lane))
#endif
#define LOADED_B(lane) (ATOM == WMMA11 && SWAPS ? (lane) % 2 * 8 + (lane) % 16 / 2 : (lane) % ATOM_M)
#if SWIZZLE
#define PITCH TILE_K
#define ABREAST(lines) 8

/* Banks read two lines of 64 bytes in a clock. The pieces of a line change places by bits of its number, and so do the
 * lines of a pair. So reads of eight lines, copies of lines, and words of every eighth line access different banks. For
 * WMMA11, which has registers for fewer addresses, four of these words access the same bank. */
static int place_a(int line, int term)
{
#if ATOM == WMMA11
    return line * PITCH + (term ^ ((line >> 1 & 3) ^ (line >> 2 & 2)) * PIECE);
#else
    const int turn = (line >> 1 & 3) ^ (line >> 3 & 1) ^ (line >> 4 & 2);
    return (line ^ (line >> 4 & 1)) * PITCH + (term ^ turn * PIECE);
#endif
}
#else
#define PITCH (TILE_K + PIECE) /* 80 bytes: 16-byte reads of eight neighbouring lines access different banks */
#define place_a(line, term) ((line)*PITCH + (term))
#endif
#define place_b place_a
#if EMULATED == 0
/* These devices convert halves with one instruction; OpenCL's own functions need many. */
typedef float floats __attribute__((ext_vector_type(VW)));
typedef __fp16 halves __attribute__((ext_vector_type(VW)));
typedef union numbers {
    vec v;
    floats f;
} numbers;

static halves halves_of(vec v)
{
    const numbers n = {.v = v};
    return __builtin_convertvector(n.f, halves);
}

static vec round_halves(vec v)
{
    const numbers n = {.f = __builtin_convertvector(halves_of(v), floats)};
    return n.v;
}

#define store_f16(v, to) (*(__global halves *)(to) = halves_of(v))
#define store_bf16(v, to) tx_store_bf16(v, to, 0, VW)
#define store_f32(v, to) tx_store_f32(v, to, 0, VW)
#define ROUND_HALVES round_halves
#define STORE TX_CAT(store_, Y)

#if WIDEN && !defined TX_NO_EXP2
#define POWER_OF native_exp2
#define RECIPROCAL_OF __builtin_amdgcn_rcpf
#endif
#endif

static void load_line(fragment f, const __local ab_t *block, int line, int term, int lane)
{
#pragma unroll
    for (int i = 0; i < HELD; i++)
        f[i] = *(const __local uint4 *)(block + place_a(line, term + (HELD == 2 ? i : lane / ATOM_M) * PIECE));
}
#define load_a(f, block, line, term, lane, shown) load_line(f, block, (line) + (lane) % ATOM_M, term, lane)
#define load_b(f, block, line, term, lane, shown) load_line(f, block, (line) + LOADED_B(lane), term, lane)
