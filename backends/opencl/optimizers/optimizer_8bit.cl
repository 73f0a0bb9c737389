/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW and Lion with 8-bit moments and an fp32 absmax for each block.
 */

#include "backends/dynamic_map.h"

typedef struct moments {
    float m, v;
} moments;

/* Computes the new moments of an element from its old codes. */
static moments new_moments(uchar m, uchar v, float of_m, float of_v, float grad, float beta1, float beta2)
{
    moments now;
    now.m = beta1 * (tx_map_signed(m) * of_m) + (1.0f - beta1) * grad;
    now.v = beta2 * (tx_map_unsigned(v) * of_v) + (1.0f - beta2) * grad * grad;
    return now;
}

/* A work-group processes a block. Moments are computed twice, first for the maximum and then for the codes, so that
 * none has to be stored. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
adamw_8bit(__global float *p, long po, const __global float *g, long go, const __global uchar *groups, long gro,
           __global uchar *m, long mo, __global uchar *v, long vo, __global float *absmax, long ao, long n, float beta1,
           float beta2, float log1, float log2, float eps, float decay, const __global uint *control,
           const __global float *result)
{
    __local float part_m[WG],
        part_v[WG]; /* two arrays, because PoCL 3.1 shares a single one between work-items across both reductions */
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    const long block = get_group_id(0), first = block * PARAM_BLOCK;
    const int count = (int)min((long)PARAM_BLOCK, n - first);
    const float factor = result[TX_RESULT_GRAD_FACTOR], rate = tx_update_rate(control, result);
    const float t = result[TX_RESULT_UPDATES], step = rate / -expm1(t * log1), root = sqrt(-expm1(t * log2));
    const float keep = groups[gro + block] & 1 ? 1.0f - rate * decay : 1.0f;
    p += po + first;
    g += go + first;
    m += mo + first;
    v += vo + first;
    absmax += ao + 2 * block;
    const float of_m = absmax[0], of_v = absmax[1];
    float max_m = 0.0f, max_v = 0.0f;
    for (int i = (int)get_local_id(0); i < count; i += WG) {
        const moments now = new_moments(m[i], v[i], of_m, of_v, g[i] * factor, beta1, beta2);
        max_m = tx_max1(max_m, fabs(now.m));
        max_v = tx_max1(max_v, now.v);
    }
    max_m = tx_group_max(max_m, part_m);
    max_v = tx_group_max(max_v, part_v);
    for (int i = (int)get_local_id(0); i < count; i += WG) {
        const moments now = new_moments(m[i], v[i], of_m, of_v, g[i] * factor, beta1, beta2);
        p[i] = p[i] * keep - step * now.m / (sqrt(now.v) / root + eps);
        m[i] = (uchar)tx_map_signed_code(max_m > 0.0f ? now.m / max_m : 0.0f);
        v[i] = (uchar)tx_map_unsigned_code(max_v > 0.0f ? now.v / max_v : 0.0f);
    }
    barrier(CLK_GLOBAL_MEM_FENCE); /* all work-items have read the old values */
    if (get_local_id(0) == 0) {
        absmax[0] = max_m;
        absmax[1] = max_v;
    }
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
lion_8bit(__global float *p, long po, const __global float *g, long go, const __global uchar *groups, long gro,
          __global uchar *m, long mo, __global float *absmax, long ao, long n, float beta1, float beta2, float decay,
          const __global uint *control, const __global float *result)
{
    __local float part[WG];
    if (result[TX_RESULT_FINITE] == 0.0f)
        return;
    const long block = get_group_id(0), first = block * PARAM_BLOCK;
    const int count = (int)min((long)PARAM_BLOCK, n - first);
    const float factor = result[TX_RESULT_GRAD_FACTOR], rate = tx_update_rate(control, result);
    const float keep = groups[gro + block] & 1 ? 1.0f - rate * decay : 1.0f;
    p += po + first;
    g += go + first;
    m += mo + first;
    absmax += ao + block;
    const float of_m = absmax[0];
    float most = 0.0f;
    for (int i = (int)get_local_id(0); i < count; i += WG)
        most = tx_max1(most, fabs(beta2 * (tx_map_signed(m[i]) * of_m) + (1.0f - beta2) * (g[i] * factor)));
    most = tx_group_max(most, part);
    for (int i = (int)get_local_id(0); i < count; i += WG) {
        const float grad = g[i] * factor, old = tx_map_signed(m[i]) * of_m;
        p[i] = p[i] * keep - rate * sign(beta1 * old + (1.0f - beta1) * grad);
        const float now = beta2 * old + (1.0f - beta2) * grad;
        m[i] = (uchar)tx_map_signed_code(most > 0.0f ? now / most : 0.0f);
    }
    barrier(CLK_GLOBAL_MEM_FENCE); /* all work-items have read the old value */
    if (get_local_id(0) == 0)
        absmax[0] = most;
}
