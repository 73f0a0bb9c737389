/* SPDX-License-Identifier: Apache-2.0
 *
 * Additional definitions of the atoms of matrix_amd.cl for matrix products: fragments from blocks of lines, and
 * stores.
 */

#if ATOM == WMMA11
#define SWAPS 0
#define STORE_RUN ROW_RUN
#define STORE_ROW ROW_OF
#define STORE_COLUMN COLUMN_OF
#else /* the sums of a lane are in one column, so b a is computed; there they are adjacent in a row */
#define SWAPS 1
#define STORE_RUN 4
#define STORE_ROW COLUMN_OF
#define STORE_COLUMN ROW_OF
#endif
#define PITCH (TILE_K + PIECE) /* 80 bytes: 16-byte reads of eight neighbouring lines access different banks */
#define place_a(line, term) ((line)*PITCH + (term))
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

static void store_f16(vec v, __global ushort *to)
{
    *(__global halves *)to = halves_of(v);
}

static void store_bf16(vec v, __global ushort *to)
{
    tx_store_bf16(v, to, 0, VW);
}

static void store_f32(vec v, __global float *to)
{
    tx_store_f32(v, to, 0, VW);
}
#define ROUND_HALVES round_halves
#define STORE TX_CAT(store_, Y)
#endif

static void load_a(fragment f, const __local ab_t *block, int line, int term, int lane, __local uint *shown)
{
    const __local ab_t *at = block + (line + lane % ATOM_M) * PITCH + term;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        f[i] = *(const __local uint4 *)(at + (HELD == 2 ? i : lane / ATOM_M) * PIECE);
}
#define load_b load_a

static void join_runs(float *sum, int lane, __local uint *shown)
{
}
