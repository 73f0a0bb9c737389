/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers with a second average: AdEMAMix has one of gradients, schedule-free AdamW and SGD one of weights.
 */
#include "backends/cpu/update.h"

/* ---- AdEMAMix --------------------------------------------------------------------------------------------- */

/* In `own`: decay rate and weight of a new value of the slow moment, its weight in the step, and the inverse bias
 * correction of the fast moment. */
enum { BETA3, WEIGHT3, SHARE, INVERSE };

static void prepare_slow(const tx_cpu_call *call, tx_step *s)
{
    const tx_attrs *attrs = &call->command->attrs;
    const double t = (double)call->results[TX_RESULT_UPDATES], of_1 = log((double)attrs->update.beta1);
    const double of_3 = log((double)attrs->update.beta3), all = (double)attrs->update.beta3_steps;
    const double x = all > t ? t / all : 1.0, power = x < 1.0 ? of_1 * of_3 / ((1.0 - x) * of_3 + x * of_1) : of_3;
    const double rises = (double)attrs->update.slow_weight_steps;
    s->own[BETA3] = (float)exp(power);
    s->own[WEIGHT3] = (float)-expm1(power);
    s->own[SHARE] = (float)((double)attrs->update.slow_weight * (rises > t ? t / rises : 1.0));
    s->own[INVERSE] = (float)(1.0 / (1.0 - pow((double)attrs->update.beta1, t)));
}

static void ademamix_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count)
{
    const tx_step a = *s;
    const float beta3 = a.own[BETA3], weight3 = a.own[WEIGHT3], share = a.own[SHARE], inverse = a.own[INVERSE];
    const float shrink = decays ? a.keep : 1.0f, eps = a.attrs->eps;
    const float *restrict g = (const float *)call->in[1] + at;
    float *restrict p = (float *)call->out[0] + at, *restrict m = (float *)call->out[1] + at;
    float *restrict slow = (float *)call->out[2] + at, *restrict v = (float *)call->out[3] + at;
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        const float d = g[i] * a.factor;
        m[i] += a.weight1 * (d - m[i]);
        slow[i] = slow[i] * beta3 + weight3 * d;
        v[i] = v[i] * a.beta2 + a.weight2 * (d * d);
        p[i] = p[i] * shrink - a.rate * (m[i] * inverse + share * slow[i]) / (sqrtf(v[i]) / a.root + eps);
    }
}
TX_UPDATE_WITH(ademamix, 0, prepare_slow)

/* ---- Schedule-free ------------------------------------------------------------------------------------------ */

/* In `own`: the weight of this step in the average, lr^2 / (sum of lr^2), for a rate that rises linearly in `warmup`
 * steps and then is constant. */
enum { NEW };

static void prepare_average(const tx_cpu_call *call, tx_step *s)
{
    const double t = (double)call->results[TX_RESULT_UPDATES];
    const double warmup = (double)call->command->attrs.update.warmup_steps, rising = t < warmup ? t : warmup;
    const double sum = (rising + 1.0) * (2.0 * rising + 1.0) / 6.0; /* of squares in the warm-up, divided by `rising` */
    s->own[NEW] = (float)(t < warmup ? t / sum : 1.0 / ((warmup > 0.0 ? sum / warmup : 0.0) + t - warmup));
}

/* Moves z by a step of rate * u, then x and p. Before the first update both are p. */
static void average_block(const tx_cpu_call *call, const tx_step *s, float b, const float *u, int64_t at, int64_t count)
{
    const float rate = s->rate, now = s->own[NEW], rest = (float)(1.0 - (double)b);
    float *restrict p = (float *)call->out[0] + at;
    float *restrict x = (float *)call->out[1] + at, *restrict z = (float *)call->out[2] + at;
    if (call->results[TX_RESULT_UPDATES] == 1.0f) {
        memcpy(x, p, (size_t)count * sizeof *x);
        memcpy(z, p, (size_t)count * sizeof *z);
    }
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        z[i] -= rate * u[i];
        x[i] += now * (z[i] - x[i]);
        p[i] = x[i] + rest * (z[i] - x[i]);
    }
}

static void schedule_free_adamw_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count)
{
    const tx_step a = *s;
    const float decay = decays ? a.attrs->update.weight_decay : 0.0f, eps = a.attrs->eps;
    const float *restrict g = (const float *)call->in[1] + at, *p = (const float *)call->out[0] + at;
    float *restrict v = (float *)call->out[3] + at, u[TX_PARAM_BLOCK];
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        const float d = g[i] * a.factor;
        v[i] = v[i] * a.beta2 + a.weight2 * (d * d);
        u[i] = d / (sqrtf(v[i]) / a.root + eps) + decay * p[i];
    }
    average_block(call, s, a.beta1, u, at, count);
}
TX_UPDATE_WITH(schedule_free_adamw, 0, prepare_average)

static void schedule_free_sgd_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count)
{
    const float decay = decays ? s->attrs->update.weight_decay : 0.0f, factor = s->factor;
    const float *restrict g = (const float *)call->in[1] + at, *p = (const float *)call->out[0] + at;
    float u[TX_PARAM_BLOCK];
    TX_SIMD for (int64_t i = 0; i < count; i++) u[i] = g[i] * factor + decay * p[i];
    average_block(call, s, s->attrs->update.momentum, u, at, count);
}
TX_UPDATE_WITH(schedule_free_sgd, 0, prepare_average)

TX_ELEMENTS(exchange)
{
    float *restrict p = call->out[0], *restrict x = call->out[1];
    if (call->results[TX_RESULT_UPDATES] == 0.0f)
        return;
    TX_SIMD for (int64_t i = first; i < last; i++)
    {
        const float old = p[i];
        p[i] = x[i];
        x[i] = old;
    }
}
