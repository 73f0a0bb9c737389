/* SPDX-License-Identifier: Apache-2.0
 * The optimizers in double precision. */
#include "tests/graph/optimizer_reference.h"

#include "backends/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t count_of(const tx_reference *r)
{
    return r->rows * (r->columns ? r->columns : 1);
}

bool tx_reference_create(tx_reference *r, int64_t rows, int64_t columns, const double *p)
{
    *r = (tx_reference){.rows = rows, .columns = columns};
    const size_t n = (size_t)count_of(r);
    r->p = calloc(10 * n, sizeof *r->p);
    if (!r->p)
        return false;
    r->m = r->p + n;
    r->v = r->m + 4 * n; /* APOLLO's moments have `rank` numbers for a channel */
    r->c = r->v + 4 * n;
    memcpy(r->p, p, n * sizeof *p);
    return true;
}

void tx_reference_free(tx_reference *r)
{
    free(r->p);
    *r = (tx_reference){0};
}

static double decay_of(const tx_reference *r, const tx_optimizer_options *o)
{
    return r->decays ? (double)o->weight_decay : 0.0;
}

static void sgd(tx_reference *r, const tx_optimizer_options *o, double rate, const double *g)
{
    const double mu = (double)o->momentum;
    for (int64_t i = 0; i < count_of(r); i++) {
        const double d = g[i] + decay_of(r, o) * r->p[i];
        r->m[i] = mu * r->m[i] + d;
        r->p[i] -= rate * (o->nesterov ? d + mu * r->m[i] : r->m[i]);
    }
}

static void lion(tx_reference *r, const tx_optimizer_options *o, double rate, const double *g)
{
    const double b1 = (double)o->beta1, b2 = (double)o->beta2;
    for (int64_t i = 0; i < count_of(r); i++) {
        const double c = b1 * r->m[i] + (1.0 - b1) * g[i];
        r->p[i] = r->p[i] * (1.0 - rate * decay_of(r, o)) - rate * (c > 0 ? 1.0 : c < 0 ? -1.0 : 0.0);
        r->m[i] = b2 * r->m[i] + (1.0 - b2) * g[i];
    }
}

/* The nearest number of a type that a moment is kept in. */
static double rounded(double x, tx_dtype type)
{
    int power;
    if (type != TX_BF16 || x == 0.0)
        return x;
    const double fraction = frexp(x, &power);
    return ldexp(nearbyint(ldexp(fraction, 8)), power - 8);
}

static void adamw(tx_reference *r, const tx_optimizer_options *o, double rate, int64_t t, const double *g)
{
    const double b1 = (double)o->beta1, b2 = (double)o->beta2;
    const double step = rate / (1.0 - pow(b1, (double)t)), root = sqrt(1.0 - pow(b2, (double)t));
    for (int64_t i = 0; i < count_of(r); i++) {
        const double m = b1 * r->m[i] + (1.0 - b1) * g[i], v = b2 * r->v[i] + (1.0 - b2) * g[i] * g[i];
        r->p[i] = r->p[i] * (1.0 - rate * decay_of(r, o)) - step * m / (sqrt(v) / root + (double)o->eps);
        r->m[i] = rounded(m, o->momentum_dtype);
        r->v[i] = rounded(v, o->variance_dtype);
    }
}

/* x, divided by the greatest magnitude of its block, becomes the nearest number of the map. */
static void to_8bit(double *x, int64_t n, bool has_sign)
{
    for (int64_t first = 0; first < n; first += 256) {
        const int64_t end = first + 256 < n ? first + 256 : n;
        double most = 0.0;
        for (int64_t i = first; i < end; i++)
            most = fmax(most, fabs(x[i]));
        for (int64_t i = first; i < end && most > 0; i++) {
            const double wanted = fabs(x[i]) / most;
            double best = wanted < 0.5 || x[i] < 0 ? 0.0 : 1.0; /* there is no -1 */
            for (int decade = 0; decade < 7; decade++) {
                const int parts = has_sign ? 1 << decade : 2 << decade;
                for (int k = 0; k < parts; k++) {
                    const double one = (0.1 + 0.9 * (k + 0.5) / parts) * pow(10.0, decade - 6);
                    best = fabs(one - wanted) < fabs(best - wanted) ? one : best;
                }
            }
            x[i] = copysign(best * most, x[i]);
        }
    }
}

static void adamw_8bit(tx_reference *r, const tx_optimizer_options *o, double rate, int64_t t, const double *g,
                       int64_t least)
{
    adamw(r, o, rate, t, g);
    if (r->table || count_of(r) < least)
        return;
    to_8bit(r->m, count_of(r), true);
    to_8bit(r->v, count_of(r), false);
}

static void ademamix(tx_reference *r, const tx_optimizer_options *o, double rate, int64_t t, const double *g)
{
    const double b1 = (double)o->beta1, b2 = (double)o->beta2, time = (double)t;
    const double of_1 = log(b1), of_3 = log((double)o->beta3);
    const double x = o->beta3_steps > 0 ? fmin(1.0, time / (double)o->beta3_steps) : 1.0;
    const double share = o->slow_weight_steps > 0 ? fmin(1.0, time / (double)o->slow_weight_steps) : 1.0;
    const double b3 = exp(of_1 * of_3 / ((1.0 - x) * of_3 + x * of_1));
    for (int64_t i = 0; i < count_of(r); i++) {
        r->m[i] = b1 * r->m[i] + (1.0 - b1) * g[i];
        r->c[i] = b3 * r->c[i] + (1.0 - b3) * g[i];
        r->v[i] = b2 * r->v[i] + (1.0 - b2) * g[i] * g[i];
        const double sum = r->m[i] / (1.0 - pow(b1, time)) + share * (double)o->slow_weight * r->c[i];
        const double step = sum / (sqrt(r->v[i] / (1.0 - pow(b2, time))) + (double)o->eps);
        r->p[i] -= rate * (step + decay_of(r, o) * r->p[i]);
    }
}

static void stable_adamw(tx_reference *r, const tx_optimizer_options *o, double rate, int64_t t, const double *g)
{
    const double b1 = (double)o->beta1, b2 = (double)o->beta2, eps = (double)o->eps;
    const double keep1 = b1 * (1.0 - pow(b1, (double)(t - 1))) / (1.0 - pow(b1, (double)t));
    const double keep2 = b2 * (1.0 - pow(b2, (double)(t - 1))) / (1.0 - pow(b2, (double)t));
    double mean = 0.0;
    for (int64_t i = 0; i < count_of(r); i++) {
        r->m[i] = keep1 * r->m[i] + (1.0 - keep1) * g[i];
        r->v[i] = keep2 * r->v[i] + (1.0 - keep2) * g[i] * g[i];
        mean += g[i] * g[i] / fmax(r->v[i], eps * eps) / (double)count_of(r);
    }
    rate /= fmax(1.0, sqrt(mean));
    for (int64_t i = 0; i < count_of(r); i++)
        r->p[i] = r->p[i] * (1.0 - rate * decay_of(r, o)) - rate * r->m[i] / (sqrt(r->v[i]) + eps);
}

/* Updates v of a vector, or the row and column sums of a matrix in v and c. Writes the gradient's divisor to m. */
static void adafactor_moments(tx_reference *r, int64_t t, const double *g)
{
    const double b = 1.0 - pow((double)t, -0.8);
    const int64_t n = count_of(r), columns = r->columns ? r->columns : n;
    for (int64_t i = 0; i < r->rows; i++)
        r->v[i] *= b;
    for (int64_t j = 0; j < r->columns; j++)
        r->c[j] *= b;
    for (int64_t i = 0; i < n; i++) {
        const double u = (1.0 - b) * (g[i] * g[i] + 1e-30);
        r->v[r->columns ? i / columns : i] += r->columns ? u / (double)columns : u;
        if (r->columns)
            r->c[i % columns] += u / (double)r->rows;
    }
    double mean = 0.0;
    for (int64_t i = 0; i < r->rows; i++)
        mean += r->v[i] / (double)r->rows;
    for (int64_t i = 0; i < n; i++)
        r->m[i] = r->columns ? sqrt(r->v[i / columns] / mean) * sqrt(r->c[i % columns]) : sqrt(r->v[i]);
}

static void adafactor(tx_reference *r, const tx_optimizer_options *o, double rate, int64_t t, const double *g)
{
    const int64_t n = count_of(r);
    double of_u = 0.0, of_p = 0.0;
    adafactor_moments(r, t, g);
    for (int64_t i = 0; i < n; i++) {
        of_u += g[i] / r->m[i] * (g[i] / r->m[i]) / (double)n;
        of_p += r->p[i] * r->p[i] / (double)n;
    }
    if (o->relative_step)
        rate = fmin(o->warmup_init ? 1e-6 * (double)t : 1e-2, 1.0 / sqrt((double)t));
    if (o->scale_parameter)
        rate *= fmax(1e-3, sqrt(of_p));
    for (int64_t i = 0; i < n; i++)
        r->p[i] = r->p[i] * (1.0 - rate * decay_of(r, o)) - rate / fmax(1.0, sqrt(of_u)) * g[i] / r->m[i];
}

/* to = the product of a [n, k] and b [k, m]. */
static void multiply(const double *a, const double *b, int64_t n, int64_t k, int64_t m, double *to)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            double sum = 0.0;
            for (int64_t l = 0; l < k; l++)
                sum += a[i * k + l] * b[l * m + j];
            to[i * m + j] = sum;
        }
}

static void muon(tx_reference *r, const tx_optimizer_options *o, double rate, const double *g)
{
    const int64_t n = r->rows, k = r->columns, count = n * k;
    const double mu = (double)o->momentum;
    double *x = malloc((size_t)(3 * count + 2 * n * n) * sizeof *x);
    double *turned = x + count, *added = turned + count, *a = added + count, *squared = a + n * n, norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        r->m[i] += (g[i] - r->m[i]) * (1.0 - mu);
        x[i] = o->nesterov ? g[i] + mu * (r->m[i] - g[i]) : r->m[i];
        norm += x[i] * x[i];
    }
    for (int64_t i = 0; i < count; i++)
        x[i] /= fmax(sqrt(norm), 1e-7);
    for (int step = 0; step < 5; step++) {
        for (int64_t i = 0; i < count; i++)
            turned[i % k * n + i / k] = x[i];
        multiply(x, turned, n, k, n, a);
        multiply(a, a, n, n, n, squared);
        for (int64_t i = 0; i < n * n; i++)
            a[i] = -4.7750 * a[i] + 2.0315 * squared[i];
        multiply(a, x, n, n, k, added);
        for (int64_t i = 0; i < count; i++)
            x[i] = 3.4445 * x[i] + added[i];
    }
    const double size = o->match_rms ? 0.2 * sqrt(fmax((double)n, (double)k)) : sqrt(fmax(1.0, (double)n / (double)k));
    for (int64_t i = 0; i < count; i++)
        r->p[i] = r->p[i] * (1.0 - rate * decay_of(r, o)) - rate * size * x[i];
    free(x);
}

/* m is z, c is x. */
static void schedule_free(tx_reference *r, const tx_optimizer_options *o, double rate, int64_t t, const double *g)
{
    const bool adam = o->kind == TX_SCHEDULE_FREE_ADAMW;
    const double b1 = adam ? (double)o->beta1 : (double)o->momentum, b2 = (double)o->beta2;
    const double warmup = (double)o->warmup_steps;
    double sum = 0.0, weight = 0.0, now = 0.0;
    for (int64_t k = 1; k <= t; k++) {
        now = (double)k < warmup ? rate * (double)k / warmup : rate;
        weight = now * now;
        sum += weight;
    }
    for (int64_t i = 0; i < count_of(r); i++) {
        r->m[i] = t == 1 ? r->p[i] : r->m[i];
        r->c[i] = t == 1 ? r->p[i] : r->c[i];
        r->v[i] = b2 * r->v[i] + (1.0 - b2) * g[i] * g[i];
        const double root = sqrt(r->v[i] / (1.0 - pow(b2, (double)t))) + (double)o->eps;
        r->m[i] -= now * ((adam ? g[i] / root : g[i]) + decay_of(r, o) * r->p[i]);
        r->c[i] += weight / sum * (r->m[i] - r->c[i]);
        r->p[i] = b1 * r->c[i] + (1.0 - b1) * r->m[i];
    }
}

/* An element of the projection to `rank` columns for update t. */
static double projected(const tx_reference *r, const tx_optimizer_options *o, int64_t t, int64_t row, int64_t column)
{
    const tx_random draw = tx_draw(0, 0, (uint32_t)((t - 1) / o->update_proj_gap), r->site, TX_PROJECTION_SITE, 0,
                                   (uint32_t)row, (uint32_t)(column / 4));
    const uint32_t *word = draw.word + (column & 2);
    const double size = sqrt(-2.0 * log(((word[0] >> 9) + 0.5) / 8388608.0) / (double)o->rank);
    const double angle = 2.0 * acos(-1.0) * ((word[1] >> 9) + 0.5) / 8388608.0;
    return size * (column & 1 ? sin(angle) : cos(angle));
}

/* Scales g by channel, or as a whole. m and v are moments of `rank` numbers for each channel. */
static void scale_channels(tx_reference *r, const tx_optimizer_options *o, int64_t t, const double *g, double *scaled)
{
    const bool tall = r->rows >= r->columns;
    const int64_t channels = tall ? r->rows : r->columns, others = tall ? r->columns : r->rows;
    double step = 0.0, size = 0.0;
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t k = 0; k < o->rank; k++) {
            double x = 0.0, *m = &r->m[c * o->rank + k], *v = &r->v[c * o->rank + k];
            for (int64_t i = 0; i < others; i++)
                x += projected(r, o, t, i, k) * g[tall ? c * others + i : i * channels + c];
            *m = (double)o->beta1 * *m + (1.0 - (double)o->beta1) * x;
            *v = (double)o->beta2 * *v + (1.0 - (double)o->beta2) * x * x;
            step += pow(*m / (sqrt(*v) + (double)o->eps), 2.0);
            size += x * x;
        }
        for (int64_t i = 0; i < others; i++)
            scaled[tall ? c * others + i : i * channels + c] = sqrt(step) / (sqrt(size) + 1e-8);
        if (!o->scale_by_tensor)
            step = size = 0.0;
    }
    for (int64_t i = 0; i < count_of(r); i++)
        scaled[i] = g[i] * (o->scale_by_tensor ? sqrt(step) / (sqrt(size) + 1e-8) : scaled[i]);
}

static void apollo(tx_reference *r, const tx_optimizer_options *o, double rate, int64_t t, const double *g)
{
    const double b1 = (double)o->beta1, b2 = (double)o->beta2, scale = sqrt((double)o->scale);
    double *u = malloc((size_t)count_of(r) * sizeof *u), norm = 0.0, limit = 1.0;
    scale_channels(r, o, t, g, u);
    for (int64_t i = 0; i < count_of(r); i++)
        norm += u[i] * u[i];
    norm = sqrt(norm) * (o->scale_front ? scale : 1.0);
    if (t > 1 && !o->disable_nl)
        limit = fmax(norm / (r->c[0] + 1e-8), 1.01) / 1.01;
    r->c[0] = norm / limit;
    for (int64_t i = 0; i < count_of(r); i++) {
        r->p[i] -= rate * sqrt(1.0 - pow(b2, (double)t)) / (1.0 - pow(b1, (double)t)) * scale * u[i] / limit;
        r->p[i] *= 1.0 - rate * decay_of(r, o);
    }
    free(u);
}

void tx_reference_update(tx_reference *r, const tx_optimizer_options *o, double rate, int64_t t, const double *g,
                         int64_t least)
{
    switch (o->kind) {
    case TX_SGD:
        sgd(r, o, rate, g);
        break;
    case TX_LION:
        lion(r, o, rate, g);
        break;
    case TX_ADAFACTOR:
        adafactor(r, o, rate, t, g);
        break;
    case TX_ADAMW_8BIT:
        adamw_8bit(r, o, rate, t, g, least);
        break;
    case TX_LION_8BIT:
        lion(r, o, rate, g);
        if (!r->table && count_of(r) >= least)
            to_8bit(r->m, count_of(r), true);
        break;
    case TX_ADEMAMIX:
        ademamix(r, o, rate, t, g);
        break;
    case TX_SCHEDULE_FREE_ADAMW:
    case TX_SCHEDULE_FREE_SGD:
        schedule_free(r, o, rate, t, g);
        break;
    case TX_STABLE_ADAMW:
        stable_adamw(r, o, rate, t, g);
        break;
    case TX_MUON:
        if (r->columns && !r->table)
            muon(r, o, rate, g);
        else
            adamw(r, o, rate, t, g);
        break;
    case TX_APOLLO:
        if (r->columns && !r->table)
            apollo(r, o, rate, t, g);
        else
            adamw(r, o, rate, t, g);
        break;
    default:
        adamw(r, o, rate, t, g);
        break;
    }
}
