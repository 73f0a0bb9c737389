/* SPDX-License-Identifier: Apache-2.0
 * Parameter updates over ranges of the flat arenas, and the decision about the gradient's norm before them. */
#include "backends/cpu/simd.h"

#define DECAY 1u /* bit of a group byte */

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

/* ---- Updates --------------------------------------------------------------------------------------- */

/* Items are blocks of TX_PARAM_BLOCK elements; the last may be short. */
static int64_t block_length(const tx_cpu_call *call, int64_t block)
{
    const int64_t left = tx_operand_count(&call->command->in[0]) - block * TX_PARAM_BLOCK;
    return left < TX_PARAM_BLOCK ? left : TX_PARAM_BLOCK;
}

/* The new weights of a block, rounded, as output `k`, where there is one: what every update ends a block with. */
static void put_copy(const tx_cpu_call *call, int k, int64_t block)
{
    if (call->out[k])
        tx_narrow(call->out[k], (const float *)call->out[0] + block * TX_PARAM_BLOCK, call->command->out[k].dtype,
                  block * TX_PARAM_BLOCK, block_length(call, block));
}

static void update(const tx_cpu_call *call, tx_cpu_body *body)
{
    const int64_t count = tx_operand_count(&call->command->in[0]);
    if (call->results[TX_RESULT_FINITE] != 0.0f)
        tx_cpu_slices(call, (count + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK, TX_CPU_GRAIN / TX_PARAM_BLOCK, body);
}

static void sgd_blocks(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_attrs *attrs = &call->command->attrs;
    const float rate = call->controls->word[TX_CONTROL_LEARNING_RATE].f32;
    const float factor = call->results[TX_RESULT_GRAD_FACTOR], momentum = attrs->momentum;
    const uint8_t *groups = call->in[2];
    (void)thread;
    for (int64_t b = first; b < last; b++) {
        const float *g = (const float *)call->in[1] + b * TX_PARAM_BLOCK;
        float *p = (float *)call->out[0] + b * TX_PARAM_BLOCK;
        const float decay = groups[b] & DECAY ? attrs->weight_decay : 0.0f;
        const int64_t count = block_length(call, b);
        if (call->out[1]) {
            float *v = (float *)call->out[1] + b * TX_PARAM_BLOCK;
            TX_SIMD for (int64_t i = 0; i < count; i++)
            {
                v[i] = momentum * v[i] + (g[i] * factor + decay * p[i]);
                p[i] -= rate * v[i];
            }
        } else {
            TX_SIMD for (int64_t i = 0; i < count; i++) p[i] -= rate * (g[i] * factor + decay * p[i]);
        }
        put_copy(call, TX_OUT(sgd, half), b);
    }
}

void TX_CPU_NAME(sgd)(const tx_cpu_call *call)
{
    update(call, sgd_blocks);
}

/* What is the same for all elements of a step, in double precision as PyTorch's scalars are. */
typedef struct tx_adam {
    float factor, weight1, beta2, weight2, step, root, eps, shrink;
} tx_adam;

static tx_adam adam_of(const tx_cpu_call *call)
{
    const tx_attrs *attrs = &call->command->attrs;
    const double rate = (double)call->controls->word[TX_CONTROL_LEARNING_RATE].f32;
    const double t = (double)call->results[TX_RESULT_UPDATES];
    return (tx_adam){
        .factor = call->results[TX_RESULT_GRAD_FACTOR],
        .weight1 = (float)(1.0 - (double)attrs->beta1),
        .beta2 = attrs->beta2,
        .weight2 = (float)(1.0 - (double)attrs->beta2),
        .step = (float)(rate / (1.0 - pow((double)attrs->beta1, t))),
        .root = (float)sqrt(1.0 - pow((double)attrs->beta2, t)),
        .eps = attrs->eps,
        .shrink = (float)(1.0 - rate * (double)attrs->weight_decay),
    };
}

static void adamw_block(tx_adam a, float shrink, int64_t count, const float *restrict g, float *restrict p,
                        float *restrict m, float *restrict v)
{
    TX_SIMD for (int64_t i = 0; i < count; i++)
    {
        const float d = g[i] * a.factor;
        m[i] += a.weight1 * (d - m[i]);
        v[i] = v[i] * a.beta2 + a.weight2 * (d * d);
        p[i] = p[i] * shrink - a.step * m[i] / (sqrtf(v[i]) / a.root + a.eps);
    }
}

static void adamw_blocks(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_adam adam = adam_of(call);
    const uint8_t *groups = call->in[2];
    (void)thread;
    for (int64_t b = first; b < last; b++) {
        const int64_t at = b * TX_PARAM_BLOCK;
        adamw_block(adam, groups[b] & DECAY ? adam.shrink : 1.0f, block_length(call, b),
                    (const float *)call->in[1] + at, (float *)call->out[0] + at, (float *)call->out[1] + at,
                    (float *)call->out[2] + at);
        put_copy(call, TX_OUT(adamw, half), b);
    }
}

void TX_CPU_NAME(adamw)(const tx_cpu_call *call)
{
    update(call, adamw_blocks);
}

static void lion_blocks(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)
{
    const tx_attrs *attrs = &call->command->attrs;
    const float rate = call->controls->word[TX_CONTROL_LEARNING_RATE].f32;
    const float factor = call->results[TX_RESULT_GRAD_FACTOR], beta1 = attrs->beta1, beta2 = attrs->beta2;
    const uint8_t *groups = call->in[2];
    (void)thread;
    for (int64_t b = first; b < last; b++) {
        const float *g = (const float *)call->in[1] + b * TX_PARAM_BLOCK;
        float *p = (float *)call->out[0] + b * TX_PARAM_BLOCK, *m = (float *)call->out[1] + b * TX_PARAM_BLOCK;
        const float keep = groups[b] & DECAY ? 1.0f - rate * attrs->weight_decay : 1.0f;
        const int64_t count = block_length(call, b);
        TX_SIMD for (int64_t i = 0; i < count; i++)
        {
            const float d = g[i] * factor, c = beta1 * m[i] + (1.0f - beta1) * d;
            p[i] = p[i] * keep - (c > 0.0f ? rate : c < 0.0f ? -rate : 0.0f);
            m[i] = beta2 * m[i] + (1.0f - beta2) * d;
        }
        put_copy(call, TX_OUT(lion, half), b);
    }
}

void TX_CPU_NAME(lion)(const tx_cpu_call *call)
{
    update(call, lion_blocks);
}
