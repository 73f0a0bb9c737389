/* SPDX-License-Identifier: Apache-2.0
 *
 * Code that all attention kernels share: masks, arguments and rows of a head in global memory.
 *
 *   D                  The head size. DP is D rounded up to whole vectors; the padding is zero.
 *   CAUSAL, LENGTHS, DROPOUT, CACHED   Flags, 0 or 1.
 *   WINDOW, STARTS     Flags; 0 if not defined.
 *   CAP                The soft cap of the scores; not defined if there is none.
 *   BLOCKS             A flag; 0 if not defined. Caches hold blocks of Q8_0 (api/base/blocks.h).
 *   APPENDS            The number of caches that get new rows in this launch; 0 if not defined. One has keys only.
 *   SINKS              A flag; 0 if not defined. The softmax of a row also has the sink of its head.
 *   TX_NO_EXP2         If defined, native_exp2 is not used.
 *
 * A long command has several launches. Their work-groups are numbered from first_tile, first_head and first_b.
 */

#include "backends/opencl/ops/draw.cl"

#define DP ((D + VW - 1) / VW * VW)
#define UNROLL _Pragma("unroll")

#ifndef WINDOW
#define WINDOW 0
#endif
#ifndef STARTS
#define STARTS 0
#endif
#ifndef SLOTS
#define SLOTS 0
#endif
#ifndef BLOCKS
#define BLOCKS 0
#endif
#ifndef APPENDS
#define APPENDS 0
#endif
#ifndef SINKS
#define SINKS 0
#endif
/* A scaled score after the cap, and the factor of its gradient. */
#ifdef CAP
#define CAPPED(score) (CAP * tanh((score) * (1.0f / CAP)))
#define CAP_SLOPE(score) *(1.0f - tanh((score) * (1.0f / CAP)) * tanh((score) * (1.0f / CAP)))
#else
#define CAPPED(score) score
#define CAP_SLOPE(score)
#endif
#ifdef TX_NO_EXP2
#define EXP2 exp2
#else
#define EXP2 native_exp2
#endif
#define BOUNDED (WINDOW || STARTS)
#define LOWEST (BOUNDED ? -FLT_MAX : -INFINITY) /* if bounded, a tile may mask all its keys for a query */

/* Returns the first key that query q, at position base + q, attends to. `starts` are those of the row's queries. */
static int first_key(int base, int q, int window, const __global int *starts)
{
    const int own = base + q, start = STARTS ? min(starts[q], own) : 0;
    if (WINDOW == 2)
        return own - (own - start) % window;
    return WINDOW ? max(own - window + 1, start) : start;
}

/* Returns the smallest first key of `rows` queries from q0 on, of T. */
static int least_key(int base, int q0, int rows, int T, int window, const __global int *starts)
{
    int first = BOUNDED ? first_key(base, q0, window, starts) : 0;
    for (int q = q0 + 1; STARTS && q < min(q0 + rows, T); q++)
        first = min(first, first_key(base, q, window, starts));
    return first;
}

#if BLOCKS
#define kv_t uchar
#define KV_BYTES(elements) ((elements) / 32 * 34)
#else
#define kv_t h_t
#define KV_BYTES(elements) (elements)
#endif

#if APPENDS
#define KV_CACHE __global kv_t
#else
#define KV_CACHE const __global kv_t
#endif

/* ---- Arguments of the tiled kernels, before their local memory ------------------------------- */

#if SINKS
#define SINK_ARGUMENTS , const __global float *sinks, long sio
#define SINK(none) sinks[sio + head]
#else
#define SINK_ARGUMENTS
#define SINK(none) (none)
#endif
#define TILE_ARGUMENTS                                                                                                 \
    int T, int S, const __global int *starts, long sto, int heads, int kv_heads, int window, float scale, float p,     \
        int site, int plane, int first_row, int first_column, int first_b, int first_head, int first_tile,             \
        const __global uint *control
/* With CACHED, keys and values are S rows of k_cache and v_cache for each sample. `lengths` holds positions: query
 * t has position lengths[b] + t. With SLOTS the caches have that many samples, and starts[b] is the one of b. */
#define CACHE_OF(b) (SLOTS ? (long)clamp(starts[sto + (b)], 0, SLOTS - 1) : (long)(b))
#define ATTENTION_ARGUMENTS                                                                                            \
    const __global h_t *qkv, long qo, const __global int *lengths, long leo, KV_CACHE *k_cache, long ko,               \
        KV_CACHE *v_cache, long vo, __global h_t *o, long oo, __global float *lse, long lso,                \
        TILE_ARGUMENTS SINK_ARGUMENTS
#define ATTENTION_GRAD_ARGUMENTS                                                                                       \
    const __global h_t *d_o, long doo, const __global h_t *qkv, long qo, const __global float *lse, long lso,          \
        const __global float *delta, long deo, const __global int *lengths, long leo, __global h_t *dqkv, long dqo,    \
        TILE_ARGUMENTS

/* Defines the variables of a kernel whose work-groups own `rows` queries each and loop over keys, `cols` at a time.
 * Grid dimension 0 is tiles of queries, from the last, which has most keys if causal; 1 is heads; 2 is samples.
 * The loop covers keys from `begin`, which is less than a step before the first key that a query of the tile
 * attends to, to `last`. */
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

/* The same for work-groups that own `rows` keys and loop over the queries of all heads that read them, `cols` at a
 * time. Dimension 0 is tiles of keys, from the first, to which most queries attend if causal; 1 is key heads. A
 * window, or a chunk of its size, excludes the queries from `end` on. */
#define KEY_TILE(rows, cols)                                                                                           \
    const int kv_head = first_head + (int)get_group_id(1), b = first_b + (int)get_group_id(2);                         \
    const int k0 = (first_tile + (int)get_group_id(0)) * (rows), group = heads / kv_heads;                             \
    const int length = LENGTHS ? clamp(lengths[leo + b], 0, T) : T;                                                    \
    const int first = k0 >= length ? length : CAUSAL ? k0 / (cols) * (cols) : 0;                                       \
    const int end = WINDOW ? min(length, k0 + (rows)-1 + window) : length;                                             \
    const __global int *const starts_of = starts + sto + b * (long)T

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Loads elements i.. of a row of D in global memory; `p` points to element i. The rest of the vector is 0. If rows
 * are not whole vectors, they are not aligned either. */
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

/* Loads elements i.. of a row of a key or value; x[at] is element i. */
#if BLOCKS
static vec load_kv(const __global uchar *x, long at, int i)
{
    const __global uchar *block = x + at / 32 * 34;
    const __global char *values = (const __global char *)block + 2 + at % 32;
    return vload_half(0, (const __global half *)block) * TX_CAT(convert_float, VW)(TX_CAT(vload, VW)(0, values));
}
#elif !APPENDS
#define load_kv(x, at, i) load_row((x) + (at), i)
#endif
#if APPENDS
/* Keys or values of a sample in a cache. Those of the rows from position `base` on are in qkv, `stride` apart. Some
 * work-group of this launch stores them in the cache (append_rows). No other reads them there. */
typedef struct kv_from {
    const __global kv_t *cache, *fresh;
    uint base, cache_stride, stride;
} kv_from;
static vec load_kv(kv_from x, uint at, int i)
{
    if (at < x.base * x.cache_stride)
        return load_row(x.cache + at, i);
    return load_row(x.fresh + (at / x.cache_stride - x.base) * x.stride + i, i);
}
#else
typedef const __global kv_t *kv_from;
#endif

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

#if APPENDS
/* Stores `count` new rows of a head's keys, from x on and `stride` apart, and of its values in the caches. */
static void append_rows(const __global h_t *x, long stride, int count, int values, __global kv_t *k, __global kv_t *v,
                        long kv_stride)
{
    for (int i = (int)get_local_id(0); i < count * D; i += WG) {
        const int row = i / D, e = i % D;
        k[row * kv_stride + e] = x[row * stride + e];
        if (APPENDS == 2)
            v[row * kv_stride + e] = x[row * stride + values + e];
    }
}

/* Defines k and v for the sample's caches. The first of the heads that share keys stores those of the tile's rows. */
#define CACHED_ROWS(rows)                                                                                              \
    __global kv_t *const k_rows = k_cache + ko + CACHE_OF(b) * S * kv_stride;                                          \
    __global kv_t *const v_rows = v_cache + vo + CACHE_OF(b) * S * kv_stride;                                          \
    const __global h_t *const fresh = x + (heads + kv_head) * D;                                                       \
    const kv_from k = {k_rows, fresh, (uint)base, (uint)kv_stride, (uint)stride};                                      \
    const kv_from v = {v_rows, fresh + (APPENDS - 1) * kv_heads * D, (uint)base, (uint)kv_stride, (uint)stride};       \
    const long first_new = (base + q0) * (long)kv_stride + key;                                                        \
    if (head % (heads / kv_heads) == 0)                                                                                \
        append_rows(fresh + q0 * (long)stride, stride, min((rows), T - q0), kv_heads * D, k_rows + first_new,          \
                    v_rows + first_new, kv_stride)
#else
#define CACHED_ROWS(rows)                                                                                              \
    const __global kv_t *const k = k_cache + ko + KV_BYTES(CACHE_OF(b) * S * kv_stride);                               \
    const __global kv_t *const v = v_cache + vo + KV_BYTES(CACHE_OF(b) * S * kv_stride)
#endif
