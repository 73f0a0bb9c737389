/* SPDX-License-Identifier: Apache-2.0
 *
 * The first and last kernels of Muon's chain of nodes (api/optimizers/muon.c), and the normalization between them.
 */
#include "backends/cpu/update.h"

static void momentum_slice(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_attrs *attrs = &call->command->attrs;
    const float momentum = attrs->update.momentum, rest = (float)(1.0 - (double)momentum);
    const float factor = call->results[TX_RESULT_GRAD_FACTOR], *restrict g = call->in[0];
    float *restrict b = call->out[0], *restrict u = call->out[1];
    TX_SIMD for (int64_t i = first; i < last; i++)
    {
        const float d = g[i] * factor;
        b[i] += (d - b[i]) * rest;
        u[i] = attrs->update.nesterov ? d + momentum * (b[i] - d) : b[i];
    }
}

void TX_CPU_NAME(muon_momentum)(const tx_cpu_call *call)
{
    const int64_t count = tx_operand_count(&call->command->in[0]);
    if (call->results[TX_RESULT_FINITE] != 0.0f)
        tx_cpu_slices(call, count, TX_CPU_GRAIN, momentum_slice);
    else
        memset(call->out[1], 0, (size_t)count * sizeof(float));
}

static void muon_slice(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_step s = tx_step_of(call);
    const uint8_t *groups = call->in[2];
    const float keep = groups[0] & TX_DECAY ? s.keep : 1.0f, rate = s.rate * s.attrs->scale, *restrict x = call->in[1];
    float *restrict p = call->out[0];
    const bool zeros_stay = groups[0] & TX_KEEPS_ZEROS;
    TX_SIMD for (int64_t i = first; i < last; i++) p[i] = zeros_stay && p[i] == 0.0f ? p[i] : p[i] * keep - rate * x[i];
}

void TX_CPU_NAME(muon)(const tx_cpu_call *call)
{
    if (call->results[TX_RESULT_FINITE] != 0.0f)
        tx_cpu_slices(call, tx_operand_count(&call->command->in[0]), TX_CPU_GRAIN, muon_slice);
}

TX_ELEMENTS(normalize)
{
    const float *x = call->in[0], *sumsq = call->in[1], norm = sqrtf(sumsq[0]), eps = call->command->attrs.eps;
    const float inverse = 1.0f / (norm > eps ? norm : eps);
    float *y = call->out[0];
    TX_SIMD for (int64_t i = first; i < last; i++) y[i] = x[i] * inverse;
}
