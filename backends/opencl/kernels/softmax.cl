/* SPDX-License-Identifier: Apache-2.0
 * Softmax and cross-entropy, one work-group a row. Sums of exponentials are gathered in one pass: every lane
 * keeps its maximum so far and a sum relative to it (Milakov and Gimelshein, 2018). */

#define ROW_LOOP(i, n) for (long i = (long)get_local_id(0) * VW; i < (n); i += WG * VW)

/* Maximum m over x[0..n-1] and the sum of e^(x - m). */
static float2 row_sum(const __global h_t *x, long n, __local float *part)
{
    vec m = -FLT_MAX, s = 0.0f;
    ROW_LOOP(i, n)
    {
        vec v = tx_load_h_or(x, i, n, -INFINITY);
        if (ANY(v > m)) {
            vec larger = fmax(m, v);
            s *= tx_exp(m - larger);
            m = larger;
        }
        s += tx_exp(v - m);
    }
    float top = tx_group_max(tx_hmax(m), part);
    return (float2)(top, tx_group_sum(tx_hsum(s * tx_exp(m - top)), part));
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
softmax(const __global h_t *x, long xo, __global float *y, long yo, long n)
{
    __local float part[WG];
    long row = get_group_id(0);
    x += xo + row * n;
    y += yo + row * n;
    float2 sum = row_sum(x, n, part);
    float scale = 1.0f / sum.y;
    ROW_LOOP(i, n)
    tx_store(tx_exp(tx_load_h(x, i, n) - sum.x) * scale, y, i, n);
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
softmax_grad(const __global float *dy, long dyo, const __global float *y, long yo, __global float *dx, long dxo, long n)
{
    __local float part[WG];
    long row = get_group_id(0);
    dy += dyo + row * n;
    y += yo + row * n;
    dx += dxo + row * n;
    vec sum = 0.0f;
    ROW_LOOP(i, n)
    sum += tx_load(dy, i, n, 0.0f) * tx_load(y, i, n, 0.0f);
    float total = tx_group_sum(tx_hsum(sum), part);
    ROW_LOOP(i, n)
    tx_store(tx_load(y, i, n, 0.0f) * (tx_load(dy, i, n, 0.0f) - total), dx, i, n);
}

/* Rows of n, of which `vocab` count. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
cross_entropy(const __global h_t *x, long xo, const __global int *labels, long lo, __global float *losses, long so,
              __global float *lse, long eo, long n, long vocab, int ignore, float smoothing)
{
    __local float part[WG];
    long row = get_group_id(0);
    x += xo + row * n;
    float2 sum = row_sum(x, vocab, part);
    float mean = 0.0f;
    if (smoothing > 0.0f) {
        vec all = 0.0f;
        ROW_LOOP(i, vocab)
        all += tx_load_h_or(x, i, vocab, 0.0f);
        mean = tx_group_sum(tx_hsum(all), part) / (float)vocab;
    }
    if (get_local_id(0) == 0) {
        float l = sum.x + log(sum.y);
        int label = labels[lo + row];
        lse[eo + row] = l;
        losses[so + row] = label == ignore              ? 0.0f
                           : label < 0 || label >= vocab ? NAN
                                                         : l - (1.0f - smoothing) * tx_get_h(x, label) - smoothing * mean;
    }
}

/* dx may lie on x. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
cross_entropy_grad(const __global h_t *x, long xo, const __global float *dlosses, long so, const __global int *labels,
                   long lo, const __global float *lse, long eo, __global h_t *dx, long dxo, long n, long vocab,
                   int ignore, float smoothing)
{
    long row = get_group_id(0);
    x += xo + row * n;
    dx += dxo + row * n;
    int label = labels[lo + row];
    if (label == ignore) {
        ROW_LOOP(i, n)
        tx_store_h((vec)0.0f, dx, i, n);
        return;
    }
    float d = dlosses[so + row], l = lse[eo + row], share = smoothing / (float)vocab;
    ROW_LOOP(i, n)
    {
        vec v = (tx_exp(tx_load_h(x, i, n) - l) - share) * d;
        if ((label >= i && label < i + VW) || i + VW > vocab) {
            float part[VW];
            VSTORE_PRIVATE(v, part);
            for (int k = 0; k < VW; k++)
                part[k] = i + k >= vocab ? 0.0f : i + k == label ? part[k] - (1.0f - smoothing) * d : part[k];
            v = VLOAD_PRIVATE(part);
        }
        tx_store_h(v, dx, i, n);
    }
}
