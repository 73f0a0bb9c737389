/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the atoms of matrix_amd.cl for attention. Own lines are columns of an atom's sums, so a lane has
 * adjacent sums of one own line. Other lines are rows, in an order for which 8 sums of a lane belong to 8
 * neighbouring lines. So the sums are a fragment without data movement. With WMMA11, whose lanes hold all terms, the
 * halves of a warp exchange them first.
 */

#define OWN_ATOM ATOM_M
#define OTHER_ATOM ATOM_N
#define LANE_LINES 1 /* own lines of a lane in an atom's sums */
#define LINE_OF(e) 0
#define OWN_OF(i, lane) ((lane) % ATOM_M)
#define OTHER_OF(e, lane) ((e) / 8 * 16 + (lane) / ATOM_M * 8 + (e) % 8)
#define BESIDE 8
#define LINE_BIT 1
#define LINE_END ATOM_M
#define STAGES 1
#define JOIN(operation, x) x = operation(x, across(x, ATOM_M, shown));

/* The line or column in row r of an atom, chosen so that OTHER_OF holds. */
#if ATOM == MFMA
#define ORDER(r) (((r) & 19) | ((r) & 4) << 1 | ((r) & 8) >> 1)
#elif ATOM == WMMA11
#define ORDER(r) ((r) % 2 * 8 + (r) / 2)
#else
#define ORDER(r) (r)
#endif

/* Pieces of a transposed block are permuted, so that work-items that write different columns access different
 * banks. */
#define TURNED_PITCH (OTHERS + PIECE)
#define TURNED_AT(column, line) ((column) * TURNED_PITCH + ((line) ^ (column) / 8 % (OTHERS / PIECE) * PIECE))
#define ALONG_AT(line, term) ((line)*PITCH + (term))
#define ALONG_BLOCK (OTHERS * PITCH)
#define TURNED_BLOCK (D * TURNED_PITCH)

#if EMULATED == 0
/* Returns the value of x in the lane whose number differs in these bits. */
static float across(float x, int bits, __local uint *shown)
{
    return as_float(__builtin_amdgcn_ds_bpermute(((int)get_local_id(0) ^ bits) << 2, as_int(x)));
}

/* Rounds two numbers to their storage type, a in the lower half. */
static uint narrow_f16(float a, float b)
{
    typedef __fp16 half2_ __attribute__((ext_vector_type(2)));
    const float2_ two = {a, b};
    union {
        half2_ halves;
        uint word;
    } v = {.halves = __builtin_convertvector(two, half2_)};
    return v.word;
}

/* NaN is kept unless its lower 16 bits are all set, which does not occur with 16-bit operands. */
static uint narrow_bf16(float a, float b)
{
    const uint u = as_uint(a), v = as_uint(b);
    return (u + 0x7FFFu + (u >> 16 & 1u)) >> 16 | ((v + 0x7FFFu + (v >> 16 & 1u)) & 0xFFFF0000u);
}
#define narrow_both TX_CAT(narrow_, AB)
#endif

/* Loads a lane's pieces of 16 terms, which begin at `at`. */
static void load_pieces(fragment f, const __local ab_t *at, int lane)
{
#pragma unroll
    for (int i = 0; i < HELD; i++)
        f[i] = *(const __local uint4 *)(at + (HELD == 2 ? i : lane / ATOM_M) * PIECE);
}

/* Loads ATOM_M own lines of 16 terms. */
static void load_own(fragment f, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
    load_pieces(f, block + (line + lane % ATOM_M) * PITCH + term, lane);
}

/* Loads ATOM_M other lines of 16 terms. */
static void load_other(fragment f, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
    load_pieces(f, block + (line + ORDER(lane % ATOM_M)) * PITCH + term, lane);
}

/* Loads ATOM_M columns, with 16 other lines as terms. */
static void load_turned(fragment f, const __local ab_t *block, int line, int column, int lane, __local uint *shown)
{
    column += ORDER(lane % ATOM_M);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        f[i] = *(const __local uint4 *)(block + TURNED_AT(column, line + (HELD == 2 ? i : lane / ATOM_M) * PIECE));
}

/* Makes ATOM_M own lines of 16 terms from 8 sums of each lane. */
static void fragment_of(fragment f, const float *sum, int lane, __local uint *shown)
{
    const uint4 own = (uint4)(narrow_both(sum[0], sum[1]), narrow_both(sum[2], sum[3]), narrow_both(sum[4], sum[5]),
                              narrow_both(sum[6], sum[7]));
#if HELD == 2
    const uint4 other =
        (uint4)(as_uint(across(as_float(own.x), ATOM_M, shown)), as_uint(across(as_float(own.y), ATOM_M, shown)),
                as_uint(across(as_float(own.z), ATOM_M, shown)), as_uint(across(as_float(own.w), ATOM_M, shown)));
    const int upper = lane / ATOM_M;
    f[0] = upper ? other : own;
    f[1] = upper ? own : other;
#else
    f[0] = own;
#endif
}

static void multiply_own(float *sum, const uint4 *own, const uint4 *other, __local uint *shown)
{
    multiply(sum, other, own, shown);
}

static void store_run(const float *v, __global ab_t *to)
{
    *(__global uint4 *)to =
        (uint4)(narrow_both(v[0], v[1]), narrow_both(v[2], v[3]), narrow_both(v[4], v[5]), narrow_both(v[6], v[7]));
}

#include "attention_turned.cl"
