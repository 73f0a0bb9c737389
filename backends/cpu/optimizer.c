/* SPDX-License-Identifier: Apache-2.0
 * Parameter updates over ranges of the flat arenas, and the decision about the gradient's norm before them. */
#include "backends/cpu/simd.h"

#define DECAY 1u /* bit of a group byte */

/* ---- Gradient norm --------------------------------------------------------------------------------- */

void TX_CPU_NAME(clip_norm)(const tx_cpu_call *call)
{
    float *result = call->results;
    const double scale = (double)call->controls->word[TX_CONTROL_LOSS_SCALE].f32;
    const double limit = (double)call->controls->word[TX_CONTROL_MAX_GRAD_NORM].f32;
    const double norm = sqrt((double)result[TX_RESULT_GRAD_SUMSQ]) / scale;
    const bool finite = isfinite(norm);
    const double clip = limit > 0.0 && limit / (norm + 1e-6) < 1.0 ? limit / (norm + 1e-6) : 1.0;
    result[TX_RESULT_GRAD_NORM] = (float)norm;
    result[TX_RESULT_FINITE] = finite ? 1.0f : 0.0f;
    result[TX_RESULT_GRAD_FACTOR] = (float)(clip / scale);
    result[finite ? TX_RESULT_UPDATES : TX_RESULT_SKIPPED] += 1.0f;
}

/* ---- Updates --------------------------------------------------------------------------------------- */

/* What is the same for all elements of a step, made in double precision as PyTorch's scalars are. */
typedef struct tx_step {
    const tx_attrs *attrs;
    float rate, factor;   /* of gradients */
    float keep;           /* what weight decay leaves of a weight */
    float weight1, beta1; /* of the first moment: new, old */
    float weight2, beta2;
    float step, root; /* AdamW's rate, and root of its second moment, for its step */
} tx_step;

static tx_step step_of(const tx_cpu_call *call)
{
    const tx_attrs *attrs = &call->command->attrs;
    const double rate = (double)call->controls->word[TX_CONTROL_LEARNING_RATE].f32;
    const double t = (double)call->results[TX_RESULT_UPDATES];
    return (tx_step){
        .attrs = attrs,
        .rate = (float)rate,
        .factor = call->results[TX_RESULT_GRAD_FACTOR],
        .keep = (float)(1.0 - rate * (double)attrs->weight_decay),
        .weight1 = (float)(1.0 - (double)attrs->beta1),
        .beta1 = attrs->beta1,
        .weight2 = (float)(1.0 - (double)attrs->beta2),
        .beta2 = attrs->beta2,
        .step = (float)(rate / (1.0 - pow((double)attrs->beta1, t))),
        .root = (float)sqrt(1.0 - pow((double)attrs->beta2, t)),
    };
}

/* Updates elements at .. at + count - 1, at most a block of TX_PARAM_BLOCK. */
typedef void tx_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count);

static void each_block(const tx_cpu_call *call, int64_t first, int64_t last, tx_block *update)
{
    const tx_step step = step_of(call);
    const uint8_t *groups = call->in[2];
    const int64_t all = tx_operand_count(&call->command->in[0]);
    for (int64_t b = first; b < last; b++) {
        const int64_t at = b * TX_PARAM_BLOCK, left = all - at;
        update(call, &step, groups[b] & DECAY, at, left < TX_PARAM_BLOCK ? left : TX_PARAM_BLOCK);
    }
}

/* The kernel `name`, which does name_block on every block, unless the gradient is not finite. */
#define UPDATE(name)                                                                                           \
    static void name##_blocks(const tx_cpu_call *call, int64_t first, int64_t last, int32_t thread)            \
    {                                                                                                          \
        (void)thread;                                                                                          \
        each_block(call, first, last, name##_block);                                                           \
    }                                                                                                          \
    void TX_CPU_NAME(name)(const tx_cpu_call *call)                                                            \
    {                                                                                                          \
        const int64_t blocks = (tx_operand_count(&call->command->in[0]) + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK; \
        if (call->results[TX_RESULT_FINITE] != 0.0f)                                                           \
            tx_cpu_slices(call, blocks, TX_CPU_GRAIN / TX_PARAM_BLOCK, name##_blocks);                         \
    }

static void sgd_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count)
{
    const float decay = decays ? s->attrs->weight_decay : 0.0f, momentum = s->attrs->momentum;
    const float rate = s->rate, factor = s->factor, *g = (const float *)call->in[1] + at;
    float *p = (float *)call->out[0] + at, *v = call->out[1] ? (float *)call->out[1] + at : NULL;
    if (!v) {
        TX_SIMD for (int64_t i = 0; i < count; i++) p[i] -= rate * (g[i] * factor + decay * p[i]);
    } else if (s->attrs->nesterov) {
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
UPDATE(sgd)

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
UPDATE(adamw)

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
UPDATE(lion)
