/* SPDX-License-Identifier: Apache-2.0
 *
 * Key-value caches of storage type IN (f32, bf16 or f16) for BATCH samples. With SLOTS, caches of that many samples.
 */

#ifndef IN
#define IN f32
#endif
#ifndef SLOTS
#define SLOTS 0
#endif
#ifndef BATCH
#define BATCH 1
#endif
#define IN_T TX_CAT(IN, _t)
#define LOAD_IN TX_CAT(tx_load_, IN)

/* TX_ROW is row (b, t) of qkv. It has n keys, from column `skip` on, and n values. */
__kernel void kv_append(const __global IN_T *qkv, long qo, __global IN_T *k_cache, long ko, __global IN_T *v_cache,
                        long vo, const __global int *positions, long po, const __global int *slots, long slo, long n,
                        long skip, long last, long T, long S)
{
    long row = TX_ROW, sample = SLOTS ? clamp(slots[slo + row / T], 0, SLOTS - 1) : row / T;
    long slot = row % T + tx_position(positions[po + row / T], S - T);
    qkv += qo + row * last + skip;
    long at = (sample * S + slot) * n;
    TX_EACH({
        TX_CAT(tx_store_, IN)(LOAD_IN(qkv, i, n), k_cache + ko + at, i, n);
        TX_CAT(tx_store_, IN)(LOAD_IN(qkv + n, i, n), v_cache + vo + at, i, n);
    })
}

/* TX_ROW is a position in the caches of all BATCH samples. */
__kernel void kv_reorder(__global IN_T *k_cache, long ko, __global IN_T *v_cache, long vo, const __global int *sources,
                         long so, const __global int *positions, long po, long n, long S)
{
    long position = TX_ROW;
    int moved = 0;
    sources += so;
    positions += po;
    for (int b = 0; b < BATCH; b++)
        moved |= sources[b] != b && position < tx_position(positions[b], S);
    if (!moved)
        return;
    for (int kv = 0; kv < 2; kv++) {
        __global IN_T *cache = (kv ? v_cache + vo : k_cache + ko) + position * n;
        TX_EACH({
            vec row[BATCH];
            for (int b = 0; b < BATCH; b++)
                row[b] = LOAD_IN(cache + b * S * n, i, n);
            for (int b = 0; b < BATCH; b++)
                if (sources[b] >= 0 && sources[b] < BATCH && position < tx_position(positions[b], S))
                    TX_CAT(tx_store_, IN)(row[sources[b]], cache + b * S * n, i, n);
        })
    }
}
