/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax, cross-entropy and distillation, with a work-group for each row. Sums of exponentials take one pass: every
 * lane keeps a running maximum and a sum relative to it (Milakov and Gimelshein, 2018).
 *
 *   HELD   If it is above 0, logits are bf16, a lane keeps its HELD quads of a row in registers, and the row is read
 *          once.
 */

#ifndef HELD
#define HELD 0
#endif

#define ROW_LOOP(i, n) for (long i = (long)get_local_id(0) * VW; i < (n); i += WG * VW)

/* Returns the maximum m of factor * x[0..n-1] and the sum of e^(factor * x - m). */
TX_INLINE float2 row_sum_by(const __global h_t *x, long n, float factor, __local float *part)
{
    vec m = -FLT_MAX, s = 0.0f;
    ROW_LOOP(i, n)
    {
        vec v = tx_load_h_or(x, i, n, -INFINITY) * factor;
        if (ANY(v > m)) {
            vec larger = fmax(m, v);
            s *= tx_exp(m - larger);
            m = larger;
        }
        s += tx_exp(v - m);
    }
    float maximum = tx_group_max(tx_hmax(m), part);
    return (float2)(maximum, tx_group_sum(tx_hsum(s * tx_exp(m - maximum)), part));
}

TX_INLINE float2 row_sum(const __global h_t *x, long n, __local float *part)
{
    return row_sum_by(x, n, 1.0f, part);
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

/* Returns the log-sum-exp of a row. If there is smoothing, also returns the sum of its logits divided by `all`. */
TX_INLINE float2 row_lse(const __global h_t *x, long vocab, long all, float smoothing, __local float *part)
{
    float2 sum = row_sum(x, vocab, part);
    float mean = 0.0f;
    if (smoothing > 0.0f) {
        vec logits = 0.0f;
        ROW_LOOP(i, vocab)
        logits += tx_load_h_or(x, i, vocab, 0.0f);
        mean = tx_group_sum(tx_hsum(logits), part) / (float)all;
    }
    return (float2)(sum.x + log(sum.y), mean);
}

static float row_loss(float2 lse, float logit, float smoothing)
{
    return lse.x - (1.0f - smoothing) * logit - smoothing * lse.y;
}

/* Computes the gradient of a row's logits from its log-sum-exp l and the gradient d of its loss. dx may alias x.
 * The work-item that processes the label stores its original logit in *logit and returns 1. */
TX_INLINE int row_gradient(const __global h_t *x, __global h_t *dx, long n, long vocab, long all, int label, float l,
                           float d, float smoothing, float *logit)
{
    const float share = smoothing / (float)all;
    int found = 0;
    ROW_LOOP(i, n)
    {
        vec u = tx_load_h(x, i, n), v = (tx_exp(u - l) - share) * d;
        const bool hit = label >= i && label < i + VW;
        float part[VW];
        if (hit) { /* not by an index into u, which then lies in memory */
            *logit = tx_get_h(x, label);
            found = 1;
        }
        if (hit || i + VW > vocab) {
            VSTORE_PRIVATE(v, part);
            for (int k = 0; k < VW; k++)
                part[k] = i + k >= vocab ? 0.0f : i + k == label ? part[k] - (1.0f - smoothing) * d : part[k];
            v = VLOAD_PRIVATE(part);
        }
        tx_store_h(v, dx, i, n);
    }
    return found;
}

static void row_zero(__global h_t *dx, long n)
{
    ROW_LOOP(i, n)
    tx_store_h((vec)0.0f, dx, i, n);
}

/* Rows have n columns, of which the first `vocab` count. With `parted` these are one rank's shard of `all` columns,
 * and a label below 0 belongs to another rank. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
cross_entropy(const __global h_t *x, long xo, const __global int *labels, long lo, __global float *losses, long so,
              __global float *lse, long eo, long n, long vocab, int ignore, float smoothing, long all, int parted)
{
    __local float part[WG];
    long row = get_group_id(0);
    x += xo + row * n;
    float2 l = row_lse(x, vocab, all, smoothing, part);
    if (get_local_id(0) == 0) {
        int label = labels[lo + row];
        lse[eo + row] = l.x;
        losses[so + row] = label == ignore                            ? 0.0f
                           : (label < 0 && !parted) || label >= vocab ? NAN
                           : row_loss(l, label < 0 ? 0.0f : tx_get_h(x, label), smoothing);
    }
}

/* dx may alias x. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
cross_entropy_grad(const __global h_t *x, long xo, const __global float *dlosses, long so, const __global int *labels,
                   long lo, const __global float *lse, long eo, __global h_t *dx, long dxo, long n, long vocab,
                   int ignore, float smoothing, long all, int parted)
{
    long row = get_group_id(0);
    int label = labels[lo + row];
    float logit;
    if (label == ignore)
        row_zero(dx + dxo + row * n, n);
    else
        row_gradient(x + xo + row * n, dx + dxo + row * n, n, vocab, all, label, lse[eo + row], dlosses[so + row],
                     smoothing, &logit);
}

#if HELD
#define LOG2_E 1.44269504f
#define NONE 0xFF80FF80u /* -INFINITY twice */
#define EACH_HELD(k, at) _Pragma("unroll") for (int k = 0, at = get_local_id(0) * 4; k < HELD; k++, at += WG * 4)

/* A row in registers: the quads of this lane before element `whole`, which end before `vocab`, and element
 * whole + local id, or -INFINITY. */
typedef struct held_row {
    uint2 quad[HELD];
    float last;
    int whole;
} held_row;

/* `zero` is 0 unless the row has NaN. It depends on the result of the last pass over the row, so that compilers do not
 * widen all logits before a pass: there are too few registers for floats. */
static float4 logits_of(const held_row *r, int k, uint zero)
{
    const uint2 q = r->quad[k] ^ zero;
    return as_float4((uint4)(q.x << 16, q.x & 0xFFFF0000u, q.y << 16, q.y & 0xFFFF0000u));
}

static void row_hold(held_row *r, const __global h_t *x, long vocab)
{
    r->whole = (int)(vocab / 4 * 4);
    const long at_last = r->whole + (long)get_local_id(0);
    r->last = at_last < vocab ? tx_get_h(x, at_last) : -INFINITY;
    EACH_HELD(k, at)
    r->quad[k] = at < r->whole ? *(const __global uint2 *)(x + at) : (uint2)NONE;
}

/* Like row_lse, with powers of 2, which the hardware computes: their errors are far below those of 16 bits. */
TX_INLINE float2 held_lse(const held_row *r, long all, float smoothing, __local float *part)
{
    vec high = -FLT_MAX, sum = 0.0f, logits = 0.0f;
    EACH_HELD(k, at)
    high = fmax(high, logits_of(r, k, 0));
    const float maximum = tx_group_max(fmax(tx_hmax(high), r->last), part), base = maximum * LOG2_E;
    EACH_HELD(k, at)
    sum += native_exp2(logits_of(r, k, isnan(maximum)) * LOG2_E - base);
    const float total = tx_group_sum(tx_hsum(sum) + native_exp2(r->last * LOG2_E - base), part);
    if (smoothing > 0.0f) {
        EACH_HELD(k, at)
        logits += at < r->whole ? logits_of(r, k, isnan(total)) : 0.0f;
        logits.x += r->last > -INFINITY ? r->last : 0.0f;
        logits = tx_group_sum(tx_hsum(logits), part) / (float)all;
    }
    return (float2)(maximum + log(total), logits.x);
}

/* Like row_gradient, with a label that may belong to another rank. */
TX_INLINE int held_gradient(const held_row *r, const __global h_t *x, __global h_t *dx, long n, long vocab, long all,
                            int label, float l, float d, float smoothing, float *logit)
{
    const float share = smoothing / (float)all * d, base = l * LOG2_E;
    const int item = get_local_id(0), owner = label < r->whole ? label / 4 % WG : label - r->whole;
    const int found = label >= 0 && label < vocab && owner == item;
    if (found)
        *logit = tx_get_h(x, label);
    EACH_HELD(k, at)
    if (at < r->whole)
        tx_store_h(native_exp2(logits_of(r, k, isnan(l)) * LOG2_E - base) * d - share, dx, at, at + 4);
    if (r->whole + item < vocab)
        tx_put_h(native_exp2(r->last * LOG2_E - base) * d - share, dx, r->whole + item);
    for (long i = vocab + item; i < n; i += WG)
        tx_put_h(0.0f, dx, i);
    if (found)
        tx_put_h(native_exp2(*logit * LOG2_E - base) * d - share - (1.0f - smoothing) * d, dx, label);
    return found;
}
#endif

/* dx may alias x, so the work-item that overwrites a label's logit also reads it. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
fused_classifier(const __global h_t *x, long xo, const __global float *dlosses, long so, const __global int *labels,
                 long lo, __global h_t *dx, long dxo, __global float *losses, long eo, long n, long vocab, int ignore,
                 float smoothing, long all, int parted)
{
    __local float part[WG];
    long row = get_group_id(0);
    int label = labels[lo + row];
    x += xo + row * n;
    dx += dxo + row * n;
    losses += eo + row;
    float logit;
#if HELD
    held_row held;
    row_hold(&held, x, vocab);
    const float2 l = held_lse(&held, all, smoothing, part);
#else
    const float2 l = row_lse(x, vocab, all, smoothing, part);
#endif
    /* Ignored rows are read too, because all work-items must reach the barriers. */
    if (label == ignore)
        row_zero(dx, n);
#if HELD
    else if (held_gradient(&held, x, dx, n, vocab, all, label, l.x, dlosses[so + row], smoothing, &logit))
#else
    else if (row_gradient(x, dx, n, vocab, all, label, l.x, dlosses[so + row], smoothing, &logit) && label < vocab)
#endif
        *losses = row_loss(l, logit, smoothing);
    if (get_local_id(0) == 0 && (label < 0 || label >= vocab))
        *losses = label == ignore ? 0.0f : NAN;
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
token_statistics(const __global h_t *x, long xo, const __global int *labels, long lo, const __global float *lse,
                 long eo, __global float *entropy, long no, __global float *mean, long mo, __global float *top,
                 long to, __global float *squares, long so, long n, long vocab, int ignore)
{
    __local float part[WG];
    const long row = get_group_id(0);
    const int label = labels[lo + row];
    const bool counts = label >= 0 && label < vocab;
    const float l = lse[eo + row];
    vec minus = 0.0f, sum = 0.0f, square = 0.0f, before = -INFINITY, greatest = -INFINITY;
    x += xo + row * n;
    ROW_LOOP(i, counts ? vocab : 0)
    {
        /* Beyond the vocabulary, probabilities are e^-inf and differences finite. */
        const vec q = tx_load_h_or(x, i, vocab, l - 1e30f) - l, p = tx_exp(q);
        minus += p * q;
        square += p * p;
        sum += tx_load_h_or(x, i, vocab, 0.0f);
        greatest = fmax(greatest, tx_load_h_or(x, i, vocab, -INFINITY));
        if (i < label)
            before = fmax(before, tx_load_h_or(x, i, (long)label, -INFINITY));
    }
    const float total = tx_group_sum(tx_hsum(minus), part), all = tx_group_sum(tx_hsum(sum), part),
                both = tx_group_sum(tx_hsum(square), part), first = tx_group_max(tx_hmax(before), part),
                most = tx_group_max(tx_hmax(greatest), part);
    if (get_local_id(0) == 0) {
        const float logit = counts ? tx_get_h(x, label) : NAN;
        entropy[no + row] = -total;
        mean[mo + row] = all / (float)vocab;
        top[to + row] = first < logit && most <= logit ? 1.0f : 0.0f;
        squares[so + row] = counts ? log(both) : 0.0f;
    }
}

/* dx is not x. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
token_entropy_grad(const __global h_t *x, long xo, const __global float *dentropy, long so, const __global int *labels,
                   long lo, const __global float *lse, long eo, const __global float *entropy, long no,
                   __global h_t *dx, long dxo, long n, long vocab, int ignore)
{
    const long row = get_group_id(0);
    const int label = labels[lo + row];
    const float l = lse[eo + row], h = entropy[no + row], d = dentropy[so + row];
    x += xo + row * n;
    dx += dxo + row * n;
    if (label < 0 || label >= vocab) {
        row_zero(dx, n);
        return;
    }
    ROW_LOOP(i, n)
    {
        /* Beyond the vocabulary, probabilities are e^-inf and differences finite. */
        const vec q = tx_load_h_or(x, i, vocab, l - 1e30f) - l;
        tx_store_h(-tx_exp(q) * (q + h) * d, dx, i, n);
    }
}

/* Returns the log-sum-exps of a row: of its logits, of its logits over the temperature, and of the teacher's over
 * the temperature. The fourth number is unused: Intel's CPU runtime computed wrong results with a float3. */
TX_INLINE float4 row_distilled(const __global h_t *x, const __global h_t *t, long vocab, float inverse,
                               __local float *part)
{
    const float2 a = row_sum(x, vocab, part);
    const float2 b = row_sum_by(x, vocab, inverse, part);
    const float2 c = row_sum_by(t, vocab, inverse, part);
    return (float4)(a.x + log(a.y), b.x + log(b.y), c.x + log(c.y), 0.0f);
}

/* Rows have n columns, of which the first `vocab` count. See ops.def for temperature and alpha. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
distillation(const __global h_t *x, long xo, const __global h_t *t, long to, const __global int *labels, long lo,
             __global float *losses, long so, long n, long vocab, int ignore, float temperature, float alpha)
{
    __local float part[WG];
    long row = get_group_id(0);
    float inverse = 1.0f / temperature;
    int label = labels[lo + row];
    x += xo + row * n;
    t += to + row * n;
    float4 l = row_distilled(x, t, vocab, inverse, part);
    vec sum = 0.0f;
    ROW_LOOP(i, vocab)
    {
        /* Beyond the vocabulary the teacher's probability is e^-inf, and the difference is finite. */
        vec q = tx_load_h_or(t, i, vocab, -1e30f) * inverse - l.z, p = tx_load_h_or(x, i, vocab, 0.0f) * inverse - l.y;
        sum += tx_exp(q) * (q - p);
    }
    float divergence = tx_group_sum(tx_hsum(sum), part);
    if (get_local_id(0) == 0)
        losses[so + row] = label == ignore                ? 0.0f
                           : label < 0 || label >= vocab ? NAN
                                                         : alpha * (l.x - tx_get_h(x, label)) +
                                                               (1.0f - alpha) * temperature * temperature * divergence;
}

/* dx may alias x. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
distillation_grad(const __global h_t *x, long xo, const __global float *dlosses, long so, const __global h_t *t,
                  long to, const __global int *labels, long lo, __global h_t *dx, long dxo, long n, long vocab,
                  int ignore, float temperature, float alpha)
{
    __local float part[WG];
    long row = get_group_id(0);
    float inverse = 1.0f / temperature, d = dlosses[so + row];
    float hard = alpha * d, soft = (1.0f - alpha) * temperature * d;
    int label = labels[lo + row];
    x += xo + row * n;
    t += to + row * n;
    dx += dxo + row * n;
    float4 l = row_distilled(x, t, vocab, inverse,
                             part); /* for ignored rows too, because all work-items must reach its barriers */
    if (label == ignore) {
        row_zero(dx, n);
        return;
    }
    ROW_LOOP(i, n)
    {
        vec u = tx_load_h(x, i, n);
        vec v = hard * tx_exp(u - l.x) +
                soft * (tx_exp(u * inverse - l.y) - tx_exp(tx_load_h(t, i, n) * inverse - l.z));
        if ((label >= i && label < i + VW) || i + VW > vocab) {
            float one[VW];
            VSTORE_PRIVATE(v, one);
            for (int k = 0; k < VW; k++)
                one[k] = i + k >= vocab ? 0.0f : i + k == label ? one[k] - hard : one[k];
            v = VLOAD_PRIVATE(one);
        }
        tx_store_h(v, dx, i, n);
    }
}
