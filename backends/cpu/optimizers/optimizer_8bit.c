/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW and Lion with 8-bit moments and an fp32 absmax for each block (Dettmers et al., 8-bit Optimizers via Block-wise
 * Quantization, 2022).
 */
#include "backends/cpu/update.h"
#include "backends/dynamic_map.h"

/* The new moments of a block as fp32, and their greatest magnitudes. */
typedef struct moments {
    float m[TX_PARAM_BLOCK], v[TX_PARAM_BLOCK], absmax[2];
} moments;

static void widen_block(const uint8_t *m, const uint8_t *v, const float absmax[2], int64_t count, moments *out)
{
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        out->m[i] = tx_map_signed(m[i]) * absmax[0];
        out->v[i] = tx_map_unsigned(v[i]) * absmax[1];
    }
}

static void narrow_block(const moments *in, int64_t count, uint8_t *m, uint8_t *v)
{
    const float of_m = in->absmax[0] > 0.0f ? in->absmax[0] : 1.0f, of_v = in->absmax[1] > 0.0f ? in->absmax[1] : 1.0f;
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        m[i] = (uint8_t)tx_map_signed_code(in->m[i] / of_m);
        v[i] = (uint8_t)tx_map_unsigned_code(in->v[i] / of_v);
    }
}

static void adamw_8bit_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count)
{
    const tx_step a = *s;
    const float shrink = decays ? a.keep : 1.0f, eps = a.attrs->eps, *restrict g = (const float *)call->in[1] + at;
    float *restrict p = (float *)call->out[0] + at;
    uint8_t *m = (uint8_t *)call->out[1] + at, *v = (uint8_t *)call->out[2] + at;
    float *absmax = (float *)call->out[3] + 2 * (at / TX_PARAM_BLOCK);
    moments now = {.absmax = {0.0f, 0.0f}};
    widen_block(m, v, absmax, count, &now);
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        const float d = g[i] * a.factor;
        now.m[i] += a.weight1 * (d - now.m[i]);
        now.v[i] = now.v[i] * a.beta2 + a.weight2 * (d * d);
        p[i] = p[i] * shrink - a.step * now.m[i] / (sqrtf(now.v[i]) / a.root + eps);
    }
    for (int64_t i = 0; i < count; i++) {
        now.absmax[0] = fabsf(now.m[i]) > now.absmax[0] ? fabsf(now.m[i]) : now.absmax[0];
        now.absmax[1] = now.v[i] > now.absmax[1] ? now.v[i] : now.absmax[1];
    }
    narrow_block(&now, count, m, v);
    memcpy(absmax, now.absmax, sizeof now.absmax);
}
TX_UPDATE(adamw_8bit, 0)

static void lion_8bit_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count)
{
    const tx_step a = *s;
    const float shrink = decays ? a.keep : 1.0f, *restrict g = (const float *)call->in[1] + at;
    float *restrict p = (float *)call->out[0] + at, *absmax = (float *)call->out[2] + at / TX_PARAM_BLOCK;
    uint8_t *m = (uint8_t *)call->out[1] + at;
    float now[TX_PARAM_BLOCK], most = 0.0f;
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        const float d = g[i] * a.factor, old = tx_map_signed(m[i]) * *absmax, c = a.beta1 * old + a.weight1 * d;
        p[i] = p[i] * shrink - (c > 0.0f ? a.rate : c < 0.0f ? -a.rate : 0.0f);
        now[i] = a.beta2 * old + a.weight2 * d;
    }
    for (int64_t i = 0; i < count; i++)
        most = fabsf(now[i]) > most ? fabsf(now[i]) : most;
    TX_SIMD for (int64_t i = 0; i < count; i++) m[i] =
        (uint8_t)tx_map_signed_code(now[i] / (most > 0.0f ? most : 1.0f));
    *absmax = most;
}
TX_UPDATE(lion_8bit, 0)
