/* SPDX-License-Identifier: Apache-2.0
 *
 * Row sums of do * o for the gradient of attention. LANES work-items (1 on CPU devices) compute a row.
 */
#include "attention_shared.cl"

#ifdef SINK_SLOPES
#define SLOPE_ARGUMENTS , const __global float *lse, long lso, const __global float *sinks, long sio
#else
#define SLOPE_ARGUMENTS
#endif

/* Computes sums [B, heads, T] of `count` rows (b, t, head). */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
attention_delta(const __global h_t *d_o, long doo, const __global h_t *o, long oo, __global float *delta, long deo,
                long count, int T, int heads SLOPE_ARGUMENTS)
{
    const int item = (int)get_local_id(0), lane = item % LANES;
    const long e = (long)get_group_id(0) * (WG / LANES) + item / LANES;
    vec sum = 0.0f;
    if (e < count)
        for (int i = lane * VW; i < DP; i += LANES * VW)
            sum += load_row(d_o + doo + e * D + i, i) * load_row(o + oo + e * D + i, i);
    float total = tx_hsum(sum);
#if LANES > 1
    __local float part[WG];
    part[item] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 1; i < LANES; i++)
        total += lane == 0 ? part[item + i] : 0.0f;
#endif
    const long row = (e / heads / T * heads + e % heads) * T + e / heads % T;
#ifdef SINK_SLOPES /* the gradients of the sinks instead, [B, T, heads] */
    if (e < count && lane == 0)
        delta[deo + e] = -exp(sinks[sio + e % heads] - lse[lso + row]) * total;
#else
    if (e < count && lane == 0)
        delta[deo + row] = total;
#endif
}
