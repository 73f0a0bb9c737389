/* SPDX-License-Identifier: Apache-2.0
 *
 * StableAdamW (Wortsman et al., 2023).
 */
#include "backends/cpu/update.h"

static int64_t block_of(const tx_cpu_call *call)
{
    return tx_block_size(tx_operand_count(&call->command->in[0]), TX_REDUCE_BLOCK);
}

/* The weight of a new value in a moment without bias: (1 - beta) / (1 - beta^t). */
static float unbiased_weight(const tx_cpu_call *call, float beta)
{
    return (float)((1.0 - (double)beta) / (1.0 - pow((double)beta, (double)call->results[TX_RESULT_UPDATES])));
}

/* Updates the moments of blocks, and sums the squares of u = g / max(sqrt(v), eps) for each. */
static void measure_blocks(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_attrs *attrs = &call->command->attrs;
    const float weight1 = unbiased_weight(call, attrs->update.beta1);
    const float weight2 = unbiased_weight(call, attrs->update.beta2), keep2 = 1.0f - weight2;
    const float factor = call->results[TX_RESULT_GRAD_FACTOR], least = attrs->eps > 0.0f ? attrs->eps : FLT_MIN;
    const int64_t block = block_of(call), all = tx_operand_count(&call->command->in[0]);
    float *work = call->out[3];
    for (int64_t b = first; b < last; b++) {
        const int64_t at = b * block, count = at + block < all ? block : all - at;
        const float *g = (const float *)call->in[1] + at;
        float *m = (float *)call->out[1] + at, *v = (float *)call->out[2] + at;
        TX_SIMD for (int64_t i = 0; i < count; i++)
        {
            const float d = g[i] * factor;
            m[i] += weight1 * (d - m[i]);
            v[i] = v[i] * keep2 + weight2 * (d * d);
        }
        TX_SUM(work[b], i, count, (g[i] * factor) * (g[i] * factor) / fmaxf(v[i], least * least));
    }
}

static void update_slice(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_attrs *attrs = &call->command->attrs;
    const int64_t all = tx_operand_count(&call->command->in[0]);
    const uint8_t *groups = call->in[2];
    const float sum = ((const float *)call->out[3])[tx_blocks(all, TX_REDUCE_BLOCK)], eps = attrs->eps;
    const double rms = sqrt((double)sum / (double)all), rate = tx_update_rate(call) / (rms > 1.0 ? rms : 1.0);
    const float step = (float)rate;
    const float keep = groups[0] & TX_DECAY ? (float)(1.0 - rate * (double)attrs->update.weight_decay) : 1.0f;
    const bool zeros_stay = groups[0] & TX_KEEPS_ZEROS;
    const float *restrict m = call->out[1], *restrict v = call->out[2];
    float *restrict p = call->out[0];
    TX_SIMD for (int64_t i = first; i < last; i++)
    {
        const float now = p[i] * keep - step * m[i] / (sqrtf(v[i]) + eps);
        p[i] = zeros_stay && p[i] == 0.0f ? p[i] : now;
    }
}

void TX_CPU_NAME(stable_adamw)(const tx_cpu_call *call)
{
    const int64_t all = tx_operand_count(&call->command->in[0]), blocks = tx_blocks(all, TX_REDUCE_BLOCK);
    float *work = call->out[3];
    if (call->results[TX_RESULT_FINITE] == 0.0f)
        return;
    tx_cpu_slices(call, blocks, tx_cpu_rows_grain(block_of(call)), measure_blocks);
    TX_SUM(work[blocks], i, blocks, work[i]);
    tx_cpu_slices(call, all, TX_CPU_GRAIN, update_slice);
}
