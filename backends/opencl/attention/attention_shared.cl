/* SPDX-License-Identifier: Apache-2.0
 * What all attention kernels share: rows of a head in global memory.
 *
 *   D        head size; DP is D rounded up to whole vectors, the rest zero
 *   CAUSAL, LENGTHS, DROPOUT, CACHED   0 or 1
 *   WINDOW, STARTS                     the same; 0 where not given
 *   EXP2                               native_exp2 where not given
 *
 * A command that takes long has several launches, whose work-groups are numbered from first_tile, first_head and first_b. */

#include "backends/opencl/ops/draw.cl"

#define DP ((D + VW - 1) / VW * VW)
#define UNROLL _Pragma("unroll")

#ifndef WINDOW
#define WINDOW 0
#endif
#ifndef STARTS
#define STARTS 0
#endif
#ifndef EXP2
#define EXP2 native_exp2
#endif
#define BOUNDED (WINDOW || STARTS)
#define LOWEST (BOUNDED ? -FLT_MAX : -INFINITY) /* where bounded, a tile may hide all its keys from a query */

/* The first key that query q sees, which stands at base + q; `starts` are those of the row's queries. */
static int first_key(int base, int q, int window, const __global int *starts)
{
    const int own = base + q;
    int first = WINDOW ? max(own - window + 1, 0) : 0;
    if (STARTS)
        first = max(first, starts[q]);
    return min(first, own);
}

/* The least of those of `rows` queries from q0 on, of T. */
static int least_key(int base, int q0, int rows, int T, int window, const __global int *starts)
{
    int first = BOUNDED ? first_key(base, q0, window, starts) : 0;
    for (int q = q0 + 1; STARTS && q < min(q0 + rows, T); q++)
        first = min(first, first_key(base, q, window, starts));
    return first;
}

/* ---- Arguments of the kernels on tiles, before their local memory -------------------------------------------------- */

#define TILE_ARGUMENTS                                                                                                 \
    int T, int S, const __global int *starts, long sto, int heads, int kv_heads, int window, float scale, float p,     \
        int site, int plane, int first_row, int first_column, int first_b, int first_head, int first_tile,             \
        const __global uint *control
/* With CACHED, keys and values are S rows a batch of k_cache and v_cache, and `lengths` holds positions: that of query t is
 * lengths[b] + t. */
#define ATTENTION_ARGUMENTS                                                                                            \
    const __global h_t *qkv, long qo, const __global int *lengths, long leo, const __global h_t *k_cache, long ko,     \
        const __global h_t *v_cache, long vo, __global h_t *o, long oo, __global float *lse, long lso, TILE_ARGUMENTS
#define ATTENTION_GRAD_ARGUMENTS                                                                                       \
    const __global h_t *d_o, long doo, const __global h_t *qkv, long qo, const __global float *lse, long lso,          \
        const __global float *delta, long deo, const __global int *lengths, long leo, __global h_t *dqkv, long dqo,    \
        TILE_ARGUMENTS

/* What a kernel derives from them if its work-groups own `rows` queries each and walk over keys, `cols` at a time. Dimension 0
 * of the grid: tiles of queries, from the last, which has most keys when causal; 1: heads; 2: rows of the batch. Some query
 * of the tile sees the keys from `begin`, less than a step before the first, to `last`. */
#define QUERY_TILE(rows, cols)                                                                                         \
    const int head = first_head + (int)get_group_id(1), b = first_b + (int)get_group_id(2);                            \
    const int kv_head = head / (heads / kv_heads);                                                                     \
    const int q0 = ((T - 1) / (rows) - first_tile - (int)get_group_id(0)) * (rows);                                    \
    const int base = CACHED ? (int)tx_position(lengths[leo + b], S - T) : 0;                                           \
    const int length = LENGTHS ? clamp(lengths[leo + b], 0, T) : T, keys = CACHED ? S : length;                        \
    const int last = q0 >= length ? 0 : CAUSAL ? min(keys, base + min(q0 + (rows), T)) : keys;                         \
    const __global int *const starts_of = starts + sto + b * (long)T;                                                  \
    const int begin = least_key(base, q0, (rows), T, window, starts_of) / (cols) * (cols);                             \
    const draws drop = draws_of(control, b, site, plane + head, p, first_row, first_column)

/* The same if they own `rows` keys and walk over the queries of all heads that read these, `cols` at a time. Dimension 0: tiles
 * of keys, from the first, which most queries see when causal; 1: key heads. A window leaves the queries before `end`. */
#define KEY_TILE(rows, cols)                                                                                           \
    const int kv_head = first_head + (int)get_group_id(1), b = first_b + (int)get_group_id(2);                         \
    const int k0 = (first_tile + (int)get_group_id(0)) * (rows), group = heads / kv_heads;                             \
    const int length = LENGTHS ? clamp(lengths[leo + b], 0, T) : T;                                                    \
    const int first = k0 >= length ? length : CAUSAL ? k0 / (cols) * (cols) : 0;                                       \
    const int end = WINDOW ? min(length, k0 + (rows)-1 + window) : length;                                             \
    const __global int *const starts_of = starts + sto + b * (long)T

/* ---- Rows ---------------------------------------------------------------------------------------------------------- */

#define TX_PUT_f32(v, p, i) ((p)[i] = (v))
#define TX_PUT_bf16(v, p, i) ((p)[i] = round_bf16(v))
#define TX_PUT_f16(v, p, i) vstore_half_rte(v, i, (__global half *)(p))
#define tx_put_h(v, p, i) TX_CAT(TX_PUT_, H)(v, p, i)

/* To nearest even; NaN stays NaN. */
static ushort round_bf16(float v)
{
    const uint u = as_uint(v);
    return (ushort)(isnan(v) ? (u >> 16) | 0x40u : (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

/* Elements i.. of a row of D in global memory, `p` pointing to the first; the rest of the vector is 0. Rows that are no
 * whole vectors are not aligned for them either. */
static vec load_row(const __global h_t *p, int i)
{
#if D % VW == 0
    return tx_load_h(p, 0, VW);
#else
    float part[VW];
    for (int k = 0; k < VW; k++)
        part[k] = i + k < D ? tx_get_h(p, k) : 0.0f;
    return VLOAD_PRIVATE(part);
#endif
}

static void store_row(vec v, __global h_t *p, int i)
{
#if D % VW == 0
    tx_store_h(v, p, 0, VW);
#else
    float part[VW];
    VSTORE_PRIVATE(v, part);
    for (int k = 0; k < VW; k++)
        if (i + k < D)
            tx_put_h(part[k], p, k);
#endif
}
