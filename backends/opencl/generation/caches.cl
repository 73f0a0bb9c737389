/* SPDX-License-Identifier: Apache-2.0
 *
 * Key-value caches of storage type IN (f32, bf16 or f16) or, with BLOCKS, in blocks of Q8_0 (api/base/blocks.h), for
 * BATCH samples. With SLOTS, caches of that many samples.
 */

#ifndef IN
#define IN f32
#endif
#ifndef SLOTS
#define SLOTS 0
#endif
#ifndef BLOCKS
#define BLOCKS 0
#endif
#ifndef BATCH
#define BATCH 1
#endif
#ifndef CACHES
#define CACHES 2 /* 1: both are the same */
#endif
#define IN_T TX_CAT(IN, _t)
#define LOAD_IN TX_CAT(tx_load_, IN)
#define GET_IN(p, i) TX_CAT(TX_GET_, IN)(p, i)
#if BLOCKS
#define CACHE u8
#else
#define CACHE IN
#endif
#define CACHE_T TX_CAT(CACHE, _t)

/* Bytes of blocks, as numbers. */
typedef uchar u8_t;
static vec tx_load_u8(const __global uchar *p, long i, long n)
{
    float part[VW];
    for (int k = 0; k < VW; k++)
        part[k] = i + k < n ? (float)p[i + k] : 0.0f;
    return VLOAD_PRIVATE(part);
}
static void tx_store_u8(vec v, __global uchar *p, long i, long n)
{
    float part[VW];
    VSTORE_PRIVATE(v, part);
    for (int k = 0; k < VW; k++)
        if (i + k < n)
            p[i + k] = (uchar)part[k];
}

/* TX_ROW is row (b, t) of qkv. It has n keys, from column `skip` on, and n values. */
__kernel void kv_append(const __global IN_T *qkv, long qo, __global CACHE_T *k_cache, long ko,
                        __global CACHE_T *v_cache, long vo, const __global int *positions, long po,
                        const __global int *slots, long slo, long n, long skip, long last, long T, long S)
{
    long row = TX_ROW, sample = SLOTS ? clamp(slots[slo + row / T], 0, SLOTS - 1) : row / T;
    long slot = row % T + tx_position(positions[po + row / T], S - T);
    qkv += qo + row * last + skip;
    long at = (sample * S + slot) * n;
#if BLOCKS
    TX_EACH({
        for (int kv = 0; kv < CACHES && i % 32 == 0; kv++) {
            const __global IN_T *x = qkv + kv * n + i;
            __global uchar *to = (kv ? v_cache + vo : k_cache + ko) + (at + i) / 32 * 34;
            float most = 0.0f;
            float check = 0.0f;
            for (int k = 0; k < 32; k++) {
                most = fmax(most, fabs(GET_IN(x, k)));
                check += GET_IN(x, k) * 0.0f;
            }
            const float d = most / 127.0f + check;
            const float inverse = d > FLT_MIN ? 1.0f / d : 0.0f;
            vstore_half_rte(d, 0, (__global half *)to);
            for (int k = 0; k < 32; k++)
                to[2 + k] = inverse > 0.0f ? (uchar)(char)round(GET_IN(x, k) * inverse) : 0;
        }
    })
#else
    TX_EACH({
        TX_CAT(tx_store_, IN)(LOAD_IN(qkv, i, n), k_cache + ko + at, i, n);
        if (CACHES == 2)
            TX_CAT(tx_store_, IN)(LOAD_IN(qkv + n, i, n), v_cache + vo + at, i, n);
    })
#endif
}

/* TX_ROW is a position in the caches of all BATCH samples. MOVES: the row of sample b there becomes another's. */
#define MOVES(b)                                               \
    (sources[b] != b && sources[b] >= 0 && sources[b] < BATCH && \
     position < tx_position(positions[b], S))
__kernel void kv_reorder(__global CACHE_T *k_cache, long ko, __global CACHE_T *v_cache, long vo,
                         const __global int *sources, long so, const __global int *positions, long po, long n, long S)
{
    long position = TX_ROW;
    int moved = 0;
    sources += so;
    positions += po;
    for (int b = 0; b < BATCH; b++)
        moved |= MOVES(b);
    if (!moved)
        return;
    for (int kv = 0; kv < CACHES; kv++) {
        __global CACHE_T *cache = (kv ? v_cache + vo : k_cache + ko) + position * n;
        TX_EACH({
            vec row[BATCH];
            for (int b = 0; b < BATCH; b++)
                if (MOVES(b))
                    row[b] = TX_CAT(tx_load_, CACHE)(cache + sources[b] * S * n, i, n);
            for (int b = 0; b < BATCH; b++)
                if (MOVES(b))
                    TX_CAT(tx_store_, CACHE)(row[b], cache + b * S * n, i, n);
        })
    }
}
