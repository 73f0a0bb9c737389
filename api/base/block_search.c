/* SPDX-License-Identifier: Apache-2.0
 * Searches for scales of blocks. Called by block_write*.c. */
#include "api/base/block_codes.h"

#define ROUNDS 5

void tx_block_load(const float *x, int n, int groups, tx_lanes *to)
{
    memset(to, 0, (size_t)n * sizeof *to);
    for (int j = 0; j < groups; j++)
        for (int i = 0; i < n; i++)
            to[i][j] = x[j * n + i];
}

/* ---- Symmetric ----------------------------------------------------------------------------------------------- */

/* The first value of largest magnitude, or 0 if all are too small. */
static void find_largest(int n, const tx_lanes *x, tx_lanes largest)
{
    tx_lanes magnitude = {0};
    memset(largest, 0, sizeof(tx_lanes));
    for (int i = 0; i < n; i++)
        TX_EACH_LANE
        {
            const float a = fabsf(x[i][l]);
            largest[l] = a > magnitude[l] ? x[i][l] : largest[l];
            magnitude[l] = a > magnitude[l] ? a : magnitude[l];
        }
    TX_EACH_LANE
    largest[l] = magnitude[l] < TX_BLOCK_LEAST ? 0.0f : largest[l];
}

/* Computes a = sum (w x) q and b = sum (w q) q of the codes q = round(f x). */
static void sum_products(int n, float most, const tx_lanes f, const tx_lanes *x, const tx_lanes *w, tx_lanes a,
                         tx_lanes b)
{
    tx_lanes xq = {0}, qq = {0}, factor;
    memcpy(factor, f, sizeof factor);
    for (int i = 0; i < n; i++)
        TX_EACH_LANE
        {
            const float q = tx_block_nearest(factor[l] * x[i][l], -most, most - 1.0f);
            xq[l] += w[i][l] * x[i][l] * q;
            qq[l] += w[i][l] * q * q;
        }
    memcpy(a, xq, sizeof xq);
    memcpy(b, qq, sizeof qq);
}

static TX_BLOCK_CLONES void search_symmetric(int n, int trials, float most, const tx_lanes *x, const tx_lanes *w,
                                             tx_lanes *q, tx_lanes scale)
{
    tx_lanes largest, factor, best, f, a, b;
    find_largest(n, x, largest);
    TX_EACH_LANE
    factor[l] = largest[l] != 0.0f ? -most / largest[l] : 0.0f;
    sum_products(n, most, factor, x, w, a, b);
    TX_EACH_LANE
    {
        scale[l] = b[l] > 0.0f ? a[l] / b[l] : 0.0f;
        best[l] = scale[l] * a[l];
    }
    for (int k = -trials; k <= trials; k++) {
        if (k == 0)
            continue;
        TX_EACH_LANE
        f[l] = largest[l] != 0.0f ? -(most + 0.1f * (float)k) / largest[l] : 0.0f;
        sum_products(n, most, f, x, w, a, b);
        TX_EACH_LANE
        {
            const bool better = (b[l] > 0.0f) & (a[l] * a[l] > best[l] * b[l]);
            scale[l] = better ? a[l] / b[l] : scale[l];
            best[l] = better ? scale[l] * a[l] : best[l];
            factor[l] = better ? f[l] : factor[l];
        }
    }
    for (int i = 0; i < n; i++)
        TX_EACH_LANE
    q[i][l] = largest[l] != 0.0f ? tx_block_nearest(factor[l] * x[i][l], -most, most - 1.0f) + most : 0.0f;
}

static TX_BLOCK_CLONES void refine(int n, float most, const tx_lanes *x, const tx_lanes *w, tx_lanes *q, tx_lanes scale)
{
    tx_lanes a = {0}, b = {0};
    for (int i = 0; i < n; i++)
        TX_EACH_LANE
        {
            const float old = q[i][l] - most;
            a[l] += w[i][l] * x[i][l] * old;
            b[l] += w[i][l] * old * old;
        }
    for (int i = 0; i < n * ROUNDS; i++)
        TX_EACH_LANE
        {
            const float value = x[i % n][l], weight = w[i % n][l], old = q[i % n][l] - most;
            const float rest_a = a[l] - weight * value * old, rest_b = b[l] - weight * old * old;
            const float now = tx_block_nearest(value * rest_b / rest_a, -most, most - 1.0f);
            const float new_a = rest_a + weight * value * now, new_b = rest_b + weight * now * now;
            const bool better =
                (rest_a > 0.0f) & (now != old) & (new_b > 0.0f) & (new_a * new_a * b[l] > a[l] * a[l] * new_b);
            q[i % n][l] = better ? now + most : q[i % n][l];
            a[l] = better ? new_a : a[l];
            b[l] = better ? new_b : b[l];
        }
    TX_EACH_LANE
    scale[l] = b[l] > 0.0f ? a[l] / b[l] : 0.0f;
}

/* ---- Affine -------------------------------------------------------------------------------------------------- */

/* The best so far: codes are round(factor (x - low)), values scale q + least. */
typedef struct affine {
    tx_lanes factor, low, scale, least, error;
} affine;

/* The error of codes. */
static void sum_errors(bool absolute, int n, const tx_lanes *x, const tx_lanes *w, const tx_lanes *q,
                       const tx_lanes scale, const tx_lanes least, tx_lanes error)
{
    tx_lanes sum = {0}, factor, offset;
    memcpy(factor, scale, sizeof factor);
    memcpy(offset, least, sizeof offset);
    for (int i = 0; i < n && absolute; i++)
        TX_EACH_LANE
    sum[l] += w[i][l] * fabsf(factor[l] * q[i][l] + offset[l] - x[i][l]);
    for (int i = 0; i < n && !absolute; i++)
        TX_EACH_LANE
        {
            const float e = factor[l] * q[i][l] + offset[l] - x[i][l];
            sum[l] += w[i][l] * (e * e);
        }
    memcpy(error, sum, sizeof sum);
}

/* Tries the codes round(f (x - least)), and keeps them if their best scale and minimum have a smaller error. `whole`
 * and `first` are the sums of w and w x. */
static void try_affine(const tx_block_range *how, int n, const tx_lanes *x, const tx_lanes *w, const tx_lanes f,
                       const tx_lanes whole, const tx_lanes first, affine *best)
{
    tx_lanes q[TX_LANE_VALUES], ql = {0}, qq = {0}, qx = {0}, factor, low, scale, least, error, d;
    const float most = how->most;
    memcpy(factor, f, sizeof factor);
    memcpy(low, best->least, sizeof low);
    for (int i = 0; i < n; i++)
        TX_EACH_LANE
        {
            const float code = tx_block_nearest(factor[l] * (x[i][l] - low[l]), 0.0f, most);
            const float wq = w[i][l] * code;
            q[i][l] = code;
            ql[l] += wq;
            qq[l] += wq * code;
            qx[l] += wq * x[i][l];
        }
    TX_EACH_LANE
    {
        d[l] = whole[l] * qq[l] - ql[l] * ql[l];
        scale[l] = (whole[l] * qx[l] - first[l] * ql[l]) / d[l];
        least[l] = (qq[l] * first[l] - ql[l] * qx[l]) / d[l];
        scale[l] = least[l] > 0.0f ? qx[l] / qq[l] : scale[l];
        least[l] = least[l] > 0.0f ? 0.0f : least[l];
    }
    sum_errors(how->absolute, n, x, w, (const tx_lanes *)q, scale, least, error);
    TX_EACH_LANE
    {
        const bool better = (d[l] > 0.0f) & (error[l] < best->error[l]);
        best->factor[l] = better ? f[l] : best->factor[l];
        best->low[l] = better ? best->least[l] : best->low[l];
        best->scale[l] = better ? scale[l] : best->scale[l];
        best->least[l] = better ? least[l] : best->least[l];
        best->error[l] = better ? error[l] : best->error[l];
    }
}

static TX_BLOCK_CLONES void search_affine(const tx_block_range *how, int n, const tx_lanes *x, const tx_lanes *w,
                                          tx_lanes *q, tx_lanes scale, tx_lanes minimum)
{
    tx_lanes high, whole = {0}, first = {0}, f;
    bool flat[TX_LANES];
    affine best;
    memcpy(high, x[0], sizeof high);
    TX_EACH_LANE
    best.least[l] = x[0][l] < 0.0f ? x[0][l] : 0.0f;
    for (int i = 0; i < n; i++)
        TX_EACH_LANE
        {
            best.least[l] = x[i][l] < best.least[l] ? x[i][l] : best.least[l];
            high[l] = x[i][l] > high[l] ? x[i][l] : high[l];
            whole[l] += w[i][l];
            first[l] += w[i][l] * x[i][l];
        }
    TX_EACH_LANE
    {
        flat[l] = high[l] <= best.least[l];
        best.factor[l] = flat[l] ? 0.0f : how->most / (high[l] - best.least[l]);
        best.scale[l] = flat[l] ? 0.0f : 1.0f / best.factor[l];
        best.low[l] = best.least[l];
    }
    for (int i = 0; i < n; i++)
        TX_EACH_LANE
    q[i][l] = tx_block_nearest(best.factor[l] * (x[i][l] - best.low[l]), 0.0f, how->most);
    sum_errors(how->absolute, n, x, w, (const tx_lanes *)q, best.scale, best.least, best.error);
    for (int k = 0; k <= how->trials; k++) {
        TX_EACH_LANE
        f[l] = flat[l] ? 0.0f : (how->first + how->step * (float)k + how->most) / (high[l] - best.least[l]);
        try_affine(how, n, x, w, f, whole, first, &best);
    }
    for (int i = 0; i < n; i++)
        TX_EACH_LANE
    q[i][l] = tx_block_nearest(best.factor[l] * (x[i][l] - best.low[l]), 0.0f, how->most);
    TX_EACH_LANE
    {
        scale[l] = best.scale[l];
        minimum[l] = -best.least[l];
    }
}

/* ---- Positive ------------------------------------------------------------------------------------------------ */

/* Moves codes one at a time while the scale a / b gets better. */
static void move_codes(int n, float most, const float *x, const float *w, float *q, float *a, float *b)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n; i++) {
            float new_a = *a - w[i] * x[i] * q[i], new_b = *b - w[i] * q[i] * q[i];
            if (!(new_a > 0.0f && new_b > 0.0f))
                continue;
            const float now = tx_block_nearest(x[i] * new_b / new_a, 0.0f, most);
            if (now == q[i])
                continue;
            new_a += w[i] * x[i] * now;
            new_b += w[i] * now * now;
            if (new_a * new_a * *b > *a * *a * new_b) {
                q[i] = now;
                *a = new_a;
                *b = new_b;
            }
        }
}

/* The order of trials. */
TX_BLOCK_CONSTANT int order[] = {0, -4, -3, -2, -1, 1, 2, 3, 4};

float tx_block_positive(int n, float most, const float *x, const float *w, float *q)
{
    float high = 0.0f, factor = 0.0f, least = INFINITY, a = 0.0f, b = 0.0f;
    for (int i = 0; i < n; i++)
        high = x[i] > high ? x[i] : high;
    for (size_t k = 0; k < sizeof order / sizeof order[0] && high >= TX_BLOCK_LEAST; k++) {
        const float f = (0.1f * (float)order[k] + most) / high, scale = 1.0f / f;
        float error = 0.0f;
        for (int i = 0; i < n; i++) {
            const float e = x[i] - scale * tx_block_nearest(f * x[i], 0.0f, most);
            error += w[i] * e * e;
        }
        factor = error < least ? f : factor;
        least = error < least ? error : least;
    }
    for (int i = 0; i < n; i++) {
        q[i] = tx_block_nearest(factor * x[i], 0.0f, most);
        a += w[i] * x[i] * q[i];
        b += w[i] * q[i] * q[i];
    }
    move_codes(n, most, x, w, q, &a, &b);
    return b > 0.0f ? a / b : 0.0f;
}

void tx_block_symmetric(int n, int trials, float most, const tx_lanes *x, const tx_lanes *w, tx_lanes *q,
                        tx_lanes scale)
{
    search_symmetric(n, trials, most, x, w, q, scale);
}

void tx_block_refine(int n, float most, const tx_lanes *x, const tx_lanes *w, tx_lanes *q, tx_lanes scale)
{
    refine(n, most, x, w, q, scale);
}

void tx_block_affine(const tx_block_range *how, int n, const tx_lanes *x, const tx_lanes *w, tx_lanes *q,
                     tx_lanes scale, tx_lanes minimum)
{
    search_affine(how, n, x, w, q, scale, minimum);
}
