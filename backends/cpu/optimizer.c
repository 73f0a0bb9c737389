/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates over ranges of the flat arenas, and the evaluation of the gradient norm before them.
 */
#include "backends/cpu/update.h"

/* ---- Gradient norm --------------------------------------------------------------------------------- */

static void adjust_scale(float *result, bool finite, float interval)
{
    const float scale = result[TX_RESULT_LOSS_SCALE], steps = finite ? result[TX_RESULT_SCALE_STEPS] + 1.0f : 0.0f;
    const bool grows = steps >= interval && isfinite(2.0f * scale);
    if (interval == 0.0f)
        return;
    result[TX_RESULT_LOSS_SCALE] = !finite ? 0.5f * scale : grows ? 2.0f * scale : scale;
    result[TX_RESULT_SCALE_STEPS] = steps >= interval ? 0.0f : steps;
}

void TX_CPU_NAME(clip_norm)(const tx_cpu_call *call)
{
    float *result = call->results;
    const double scale = (double)result[TX_RESULT_LOSS_SCALE];
    const double limit = (double)call->controls->word[TX_CONTROL_MAX_GRAD_NORM].f32;
    const double norm = sqrt((double)result[TX_RESULT_GRAD_SUMSQ]) / scale;
    const bool finite = isfinite(norm);
    const double clip = limit > 0.0 && limit / (norm + 1e-6) < 1.0 ? limit / (norm + 1e-6) : 1.0;
    result[TX_RESULT_GRAD_NORM] = (float)norm;
    result[TX_RESULT_FINITE] = finite ? 1.0f : 0.0f;
    result[TX_RESULT_GRAD_FACTOR] = (float)(clip / scale);
    result[finite ? TX_RESULT_UPDATES : TX_RESULT_SKIPPED] += 1.0f;
    adjust_scale(result, finite, call->controls->word[TX_CONTROL_GROWTH_INTERVAL].f32);
}

/* ---- Pruned weights --------------------------------------------------------------------------------- */

static void mask_block(const tx_cpu_call *call, int64_t at, int64_t count)
{
    if (call->command->in[0].dtype == TX_BF16) {
        const uint16_t *restrict p = (const uint16_t *)call->in[0] + at;
        uint16_t *restrict g = (uint16_t *)call->out[0] + at;
        TX_SIMD for (int64_t i = 0; i < count; i++) g[i] = p[i] & 0x7FFFu ? g[i] : 0;
    } else {
        const float *restrict p = (const float *)call->in[0] + at;
        float *restrict g = (float *)call->out[0] + at;
        TX_SIMD for (int64_t i = 0; i < count; i++) g[i] = p[i] == 0.0f ? 0.0f : g[i];
    }
}

static void mask_blocks(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const uint8_t *groups = call->in[2];
    const int64_t all = tx_operand_count(&call->command->in[0]);
    for (int64_t b = first; b < last; b++)
        if (groups[b] & TX_KEEPS_ZEROS)
            mask_block(call, b * TX_PARAM_BLOCK,
                       all - b * TX_PARAM_BLOCK < TX_PARAM_BLOCK ? all - b * TX_PARAM_BLOCK : TX_PARAM_BLOCK);
}

void TX_CPU_NAME(mask_gradient)(const tx_cpu_call *call)
{
    const int64_t blocks = tx_ceil_div(tx_operand_count(&call->command->in[0]), TX_PARAM_BLOCK);
    tx_cpu_slices(call, blocks, TX_CPU_GRAIN / TX_PARAM_BLOCK, mask_blocks);
}

/* ---- Updates --------------------------------------------------------------------------------------- */

static void sgd_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count)
{
    const float decay = decays ? s->attrs->update.weight_decay : 0.0f, momentum = s->attrs->update.momentum;
    const float rate = s->rate, factor = s->factor, *g = (const float *)call->in[1] + at;
    float *p = (float *)call->out[0] + at, *v = call->out[1] ? (float *)call->out[1] + at : NULL;
    if (!v) {
        TX_SIMD for (int64_t i = 0; i < count; i++) p[i] -= rate * (g[i] * factor + decay * p[i]);
    } else if (s->attrs->update.nesterov) {
        TX_SIMD for (int64_t i = 0; i < count; i++)
        {
            const float d = g[i] * factor + decay * p[i];
            v[i] = momentum * v[i] + d;
            p[i] -= rate * (d + momentum * v[i]);
        }
    } else {
        TX_SIMD for (int64_t i = 0; i < count; i++)
        {
            v[i] = momentum * v[i] + (g[i] * factor + decay * p[i]);
            p[i] -= rate * v[i];
        }
    }
}
TX_UPDATE(sgd, TX_OUT(sgd, half))

static void adamw_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count)
{
    const tx_step a = *s;
    const float shrink = decays ? a.keep : 1.0f, eps = a.attrs->eps, *restrict g = (const float *)call->in[1] + at;
    float *restrict p = (float *)call->out[0] + at, *restrict m = (float *)call->out[1] + at;
    float *restrict v = (float *)call->out[2] + at;
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        const float d = g[i] * a.factor;
        m[i] += a.weight1 * (d - m[i]);
        v[i] = v[i] * a.beta2 + a.weight2 * (d * d);
        p[i] = p[i] * shrink - a.step * m[i] / (sqrtf(v[i]) / a.root + eps);
    }
}
TX_UPDATE(adamw, TX_OUT(adamw, half))
