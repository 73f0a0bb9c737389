/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal convolution of columns over TAPS rows (op SHORT_CONV), also of rows that continue earlier
 * ones, and the rates of linear attention (op SCAN_RATES). In
 * gradients a work-item sums one column of a block of rows; the sums of the blocks are then added in order.
 */

#ifndef TAPS
#define TAPS 4
#define SILU 1
#endif
#ifndef DELTA
#define DELTA 1
#endif

/* How many rows before `row` its result depends on. */
static int rows_before(const __global int *starts, int with_starts, long row, long T)
{
    const long t = row % T, start = with_starts && starts[row] > 0 ? starts[row] : 0;
    return (int)(start < t ? min(t - start, (long)TAPS - 1) : 0);
}

static vec weights_of(const __global float *w, long i, long n, int tap)
{
    float part[VW];
    for (int k = 0; k < VW; k++)
        part[k] = i + k < n ? w[(i + k) * TAPS + tap] : 0.0f;
    return VLOAD_PRIVATE(part);
}

static vec convolved(const __global h_t *x, const vec w[TAPS], vec bias, int before, long row, long i, long n)
{
    vec z = bias;
    for (int back = TAPS - 1; back >= 0; back--)
        if (back <= before)
            z = fma(w[TAPS - 1 - back], tx_load_h(x + (row - back) * n, i, n), z);
    return z;
}

__kernel void short_conv(const __global h_t *x, long xo, const __global float *w, long wo, const __global float *bias,
                         long bo, int with_bias, const __global int *starts, long so, int with_starts,
                         __global h_t *y, long yo, long n, long T)
{
    const long row = TX_ROW;
    const int before = rows_before(starts + so, with_starts, row, T);
    TX_EACH({
        vec taps[TAPS];
        for (int j = 0; j < TAPS; j++)
            taps[j] = weights_of(w + wo, i, n, j);
        vec z = convolved(x + xo, taps, with_bias ? tx_load(bias + bo, i, n, 0.0f) : (vec)(0.0f), before, row, i, n);
        tx_store_h(SILU ? z * tx_sigmoid(z) : z, y + yo + row * n, i, n);
    })
}

/* The last TAPS - 1 rows before a sample's first row. Spans are described in backends/scan.h. */
#define TAIL_ROW(t) (((long)clamp(spans[0], 0, R - 1) + 1) * (TAPS - 1) + (t))

__kernel void short_conv_cached(const __global h_t *x, long xo, const __global float *w, long wo,
                                const __global float *bias, long bo, int with_bias, const __global float *tail,
                                long to, const __global int *spans, long so, __global h_t *y, long yo, long n, long T,
                                int R)
{
    const long row = TX_ROW;
    const int t = (int)(row % T);
    spans += so + 3 * (row / T);
    TX_EACH({
        vec z = with_bias ? tx_load(bias + bo, i, n, 0.0f) : (vec)(0.0f);
        for (int back = TAPS - 1; back >= 0; back--) {
            const vec tap = weights_of(w + wo, i, n, TAPS - 1 - back);
            if (back <= t)
                z = fma(tap, tx_load_h(x + xo + (row - back) * n, i, n), z);
            else if (spans[1] > 0)
                z = fma(tap, tx_load(tail + to + TAIL_ROW(t - back) * n, i, n, 0.0f), z);
        }
        tx_store_h(SILU ? z * tx_sigmoid(z) : z, y + yo + row * n, i, n);
    })
}

/* The row number is that of a sample. Earlier rows of the tail move down, so that the order matters. */
__kernel void short_conv_tail(const __global h_t *x, long xo, __global float *tail, long to,
                              const __global int *spans, long so, long n, long T, int R)
{
    spans += so + 3 * TX_ROW;
    x += xo + TX_ROW * T * n;
    const long count = min((long)spans[2], T);
    TX_EACH({
        for (int j = 1 - TAPS; j < 0 && count > 0; j++) {
            const long t = count + j;
            vec v = 0.0f;
            if (t >= 0)
                v = tx_load_h(x + t * n, i, n);
            else if (spans[1] > 0)
                v = tx_load(tail + to + TAIL_ROW(t) * n, i, n, 0.0f);
            tx_store(v, tail + to + TAIL_ROW(j) * n, i, n);
        }
    })
}

/* dz[d] is that of row r + d while row r is computed. The row number is that of a block. work: dw [n, TAPS], dbias. */
__kernel void short_conv_grad(const __global h_t *dy, long dyo, const __global h_t *x, long xo,
                              const __global float *w, long wo, const __global float *bias, long bo, int with_bias,
                              const __global int *starts, long so, int with_starts, __global h_t *dx, long dxo,
                              __global float *work, long woo, int sums, long n, long T, long rows, long block)
{
    const long first = TX_ROW * block, end = min(first + block, rows);
    starts += so;
    TX_EACH({
        vec taps[TAPS];
        vec dz[TAPS];
        vec sum[TAPS + 1];
        const vec b = with_bias ? tx_load(bias + bo, i, n, 0.0f) : (vec)(0.0f);
        for (int j = 0; j < TAPS; j++) {
            taps[j] = weights_of(w + wo, i, n, j);
            sum[j] = 0.0f;
        }
        sum[TAPS] = 0.0f;
        for (long next = first; next < end + TAPS - 1; next++) {
            const long row = next - (TAPS - 1);
            for (int d = 0; d + 1 < TAPS; d++)
                dz[d] = dz[d + 1];
            dz[TAPS - 1] = 0.0f;
            if (next < rows) {
                const int before = rows_before(starts, with_starts, next, T);
                vec d = tx_load_h(dy + dyo + next * n, i, n);
                if (SILU) {
                    vec z = convolved(x + xo, taps, b, before, next, i, n);
                    vec s = tx_sigmoid(z);
                    d = d * s * (1.0f + z * (1.0f - s));
                }
                dz[TAPS - 1] = d;
                if (next < end) {
                    for (int back = 0; back < TAPS; back++)
                        if (back <= before)
                            sum[TAPS - 1 - back] += d * tx_load_h(x + xo + (next - back) * n, i, n);
                    sum[TAPS] += d;
                }
            }
            if (row >= first) {
                vec v = 0.0f;
                for (int on = 0; on < TAPS; on++)
                    if (on < T - row % T && rows_before(starts, with_starts, row + on, T) >= on)
                        v = fma(taps[TAPS - 1 - on], dz[on], v);
                tx_store_h(v, dx + dxo + row * n, i, n);
            }
        }
        if (sums) {
            __global float *out = work + woo + TX_ROW * n * (TAPS + 1);
            for (int j = 0; j <= TAPS; j++) {
                float part[VW];
                VSTORE_PRIVATE(sum[j], part);
                for (int k = 0; k < VW && i + k < n; k++)
                    out[j < TAPS ? (i + k) * TAPS + j : n * TAPS + i + k] = part[k];
            }
        }
    })
}

/* y = or += the sum of elements at, at + 1, .. of all blocks of `stride` elements. */
__kernel void fold_blocks(const __global float *work, long wo, __global float *y, long yo, long blocks, long stride,
                          long at, long n, int accumulate, const __global uint *control)
{
    const long i = get_global_id(0);
    if (i >= n)
        return;
    float sum = 0.0f;
    for (long b = 0; b < blocks; b++)
        sum += work[wo + b * stride + at + i];
    y[yo + i] = tx_adds(accumulate, control) ? y[yo + i] + sum : sum;
}

/* ---- Rates: kernels that compute one number ---- */

#if VW == 1
static float softplus(float x)
{
    return fmax(x, 0.0f) + log1p(exp(-fabs(x)));
}

#define INPUT(row) (tx_get_h(x, (row) * WIDE + (DELTA ? V : 0) + h) + dt_bias[h])
#define WIDE (DELTA ? 2 * V : V)

__kernel void scan_rates(const __global h_t *x, long xo, const __global float *a_log, long ao,
                         const __global float *dt_bias, long dto, __global float *rates, long ro, long V, float low,
                         float high, long count)
{
    const long at = get_global_id(0);
    const long row = at / V;
    const int h = (int)(at % V);
    if (at >= count)
        return;
    x += xo;
    dt_bias += dto;
    rates += ro + row * 2 * V + h;
    const float step = softplus(INPUT(row)), inside = clamp(step, low, high);
    rates[V] = DELTA ? tx_sigmoid(tx_get_h(x, row * WIDE + h)) : inside;
    rates[0] = -exp(a_log[ao + h]) * (DELTA ? step : inside);
}

__kernel void scan_rates_grad(const __global float *drates, long dro, const __global h_t *x, long xo,
                              const __global float *a_log, long ao, const __global float *dt_bias, long dto,
                              __global h_t *dx, long dxo, __global float *work, long wo, int sums, long V, float low,
                              float high, long rows, long block, long count)
{
    const long at = get_global_id(0);
    const long b = at / V;
    const int h = (int)(at % V);
    if (at >= count)
        return;
    float of_a = 0.0f, of_bias = 0.0f;
    const float rate = -exp(a_log[ao + h]);
    x += xo;
    dt_bias += dto;
    for (long row = b * block; row < min((b + 1) * block, rows); row++) {
        const float input = INPUT(row), step = softplus(input), inside = DELTA ? step : clamp(step, low, high);
        const float dg = drates[dro + row * 2 * V + h], dweight = drates[dro + row * 2 * V + V + h];
        const float da = inside == step ? (rate * dg + (DELTA ? 0.0f : dweight)) * tx_sigmoid(input) : 0.0f;
        const long to = row * WIDE + (DELTA ? V : 0) + h;
        tx_store_h(da, dx + dxo, to, to + 1);
        if (DELTA) {
            const float s = tx_sigmoid(tx_get_h(x, row * WIDE + h)), t = tx_sigmoid(-tx_get_h(x, row * WIDE + h));
            tx_store_h(dweight * s * t, dx + dxo, row * WIDE + h, row * WIDE + h + 1);
        }
        of_a += dg * rate * inside;
        of_bias += da;
    }
    if (sums) {
        work[wo + b * 2 * V + h] = of_a;
        work[wo + b * 2 * V + V + h] = of_bias;
    }
}
#endif
