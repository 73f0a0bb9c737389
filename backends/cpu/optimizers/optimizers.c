/* SPDX-License-Identifier: Apache-2.0
 *
 * Lion, and AdamW with weights and moments of any floating type.
 */
#include "backends/cpu/random.h"
#include "backends/cpu/update.h"

static void lion_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count)
{
    const tx_step a = *s;
    const float keep = decays ? a.keep : 1.0f, rate = a.rate, *restrict g = (const float *)call->in[1] + at;
    float *restrict p = (float *)call->out[0] + at, *restrict m = (float *)call->out[1] + at;
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        const float d = g[i] * a.factor, c = a.beta1 * m[i] + a.weight1 * d;
        p[i] = p[i] * keep - (c > 0.0f ? rate : c < 0.0f ? -rate : 0.0f);
        m[i] = a.beta2 * m[i] + a.weight2 * d;
    }
}
TX_UPDATE(lion, TX_OUT(lion, half))

/* ---- AdamW of any types ----------------------------------------------------------------------------- */

/* Draws the random numbers of a block (rng.h). */
static void draw_noise(const tx_cpu_call *call, int64_t at, uint32_t noise[TX_PARAM_BLOCK])
{
    tx_site site = tx_site_of(call, 0);
    const uint32_t row = (uint32_t)((call->command->attrs.first + at) / TX_PARAM_BLOCK);
    site.sample = 0;
    site.site = TX_UPDATE_SITE;
    for (int64_t first = 0; first < TX_PARAM_BLOCK; first += TX_DRAW_COLUMNS)
        tx_draw_columns(&site, row, first, noise + first);
}

/* Stochastic rounding to bf16: rounds up or down with the probabilities that preserve the mean. Numbers that are
 * not finite do not change. */
static void round_by_chance(float *x, const uint32_t noise[TX_PARAM_BLOCK], int shift, int64_t count)
{
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        const uint32_t bits = tx_bits_of(x[i]), up = (bits + (noise[i] >> shift & 0xFFFFu)) & 0xFFFF0000u;
        x[i] = tx_float_of((bits & 0x7F800000u) == 0x7F800000u ? bits : up);
    }
}

/* Rounds the new values of p, which is BF16, and of moments that are BF16. p is rounded to nearest if a
 * compensation buffer keeps its rounding error. */
static void round_block(const tx_cpu_call *call, int64_t at, int64_t count, float *p, float *m, float *v)
{
    const tx_operand *in = call->command->in;
    uint32_t noise[TX_PARAM_BLOCK];
    draw_noise(call, at, noise);
    if (!call->out[3])
        round_by_chance(p, noise, 0, count);
    else
        TX_SIMD for (int64_t i = 0; i < count; i++) p[i] = tx_bf16_to_f32(tx_f32_to_bf16(p[i]));
    if (in[3].dtype == TX_BF16)
        round_by_chance(m, noise, 16, count);
    if (in[4].dtype == TX_BF16)
        round_by_chance(v, noise, 8, count);
}

static void adamw_anyprecision_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count)
{
    const tx_step a = *s;
    const tx_operand *in = call->command->in;
    const float shrink = decays ? a.keep : 1.0f, eps = a.attrs->eps;
    float p[TX_PARAM_BLOCK], old[TX_PARAM_BLOCK], buffer[TX_PARAM_BLOCK];
    float m[TX_PARAM_BLOCK], v[TX_PARAM_BLOCK], c[TX_PARAM_BLOCK];
    const float *g = tx_run_of(call->in[1], in[1].dtype, at, count, buffer);
    tx_widen(p, call->out[0], in[0].dtype, at, count);
    tx_widen(m, call->out[1], in[3].dtype, at, count);
    tx_widen(v, call->out[2], in[4].dtype, at, count);
    if (call->out[3])
        tx_widen(c, call->out[3], in[5].dtype, at, count);
    else
        memset(c, 0, sizeof c);
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        const float d = g[i] * a.factor;
        old[i] = p[i] * shrink;
        m[i] += a.weight1 * (d - m[i]);
        v[i] = v[i] * a.beta2 + a.weight2 * (d * d);
        c[i] -= a.step * m[i] / (sqrtf(v[i]) / a.root + eps);
        p[i] = old[i] + c[i];
    }
    if (in[0].dtype == TX_BF16)
        round_block(call, at, count, p, m, v);
    TX_SIMD for (int64_t i = 0; i < count; i++) c[i] += old[i] - p[i];
    tx_narrow(call->out[0], p, in[0].dtype, at, count);
    tx_narrow(call->out[1], m, in[3].dtype, at, count);
    tx_narrow(call->out[2], v, in[4].dtype, at, count);
    if (call->out[3])
        tx_narrow(call->out[3], c, in[5].dtype, at, count);
}
TX_UPDATE(adamw_anyprecision, 0)
