/* SPDX-License-Identifier: Apache-2.0
 * What all attention kernels share: rows of a head in global memory, and dropout's factors.
 *
 *   D        head size; DP is D rounded up to whole vectors, the rest zero
 *   CAUSAL, LENGTHS, DROPOUT, CACHED   0 or 1 */

#define DP ((D + VW - 1) / VW * VW)
#define UNROLL _Pragma("unroll")

/* Elements i.. of a row of D in global memory, `p` pointing to the first; the rest of the vector is 0. */
static vec load_row(const __global float *p, int i)
{
#if D % VW == 0
    return VLOAD(p);
#else
    float part[VW];
    for (int k = 0; k < VW; k++)
        part[k] = i + k < D ? p[k] : 0.0f;
    return VLOAD_PRIVATE(part);
#endif
}

static void store_row(vec v, __global float *p, int i)
{
#if D % VW == 0
    VSTORE(v, p);
#else
    float part[VW];
    VSTORE_PRIVATE(v, part);
    for (int k = 0; k < VW; k++)
        if (i + k < D)
            p[k] = part[k];
#endif
}

/* What a head's draws have in common. */
typedef struct dropout {
    uint seed_lo, seed_hi, step, sample, site, head, threshold;
    float keep;
} dropout;

static dropout dropout_of(const __global uint *control, int b, int site, int head, float p)
{
    dropout d = {0};
#if DROPOUT
    d.seed_lo = control[TX_CONTROL_SEED_LO];
    d.seed_hi = control[TX_CONTROL_SEED_HI];
    d.step = control[TX_CONTROL_STEP];
    d.sample = control[TX_CONTROL_SAMPLE] + (uint)b;
    d.site = (uint)site;
    d.head = (uint)head;
    d.threshold = tx_dropout_threshold(p);
    d.keep = 1.0f / (1.0f - p);
#endif
    return d;
}

/* Factors, 0 or 1 / (1 - p), of a query and the keys key..key+3, which share a draw; key is a multiple of 4. */
static float4 draw_factors(const dropout *d, int query, int key)
{
    tx_random r = tx_draw(d->seed_lo, d->seed_hi, d->step, d->sample, d->site, d->head, (uint)query, (uint)key >> 2);
    return (float4)(r.word[0] >= d->threshold ? d->keep : 0.0f, r.word[1] >= d->threshold ? d->keep : 0.0f,
                    r.word[2] >= d->threshold ? d->keep : 0.0f, r.word[3] >= d->threshold ? d->keep : 0.0f);
}
