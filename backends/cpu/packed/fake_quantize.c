/* SPDX-License-Identifier: Apache-2.0
 * Fake quantization of weights (op FAKE_QUANTIZE), in groups of TX_BLOCK_MAX values of a row or a column. */
#include "api/base/blocks.h"
#include "backends/cpu/simd.h"

/* Groups of a row or column. */
static int64_t groups_of(const tx_command *c, int64_t *width)
{
    const tx_shape *x = &c->in[0].shape;
    *width = x->dim[x->rank - (c->attrs.rounding.columns ? 2 : 1)];
    return tx_ceil_div(*width, TX_BLOCK_MAX);
}

static int32_t type_at(const tx_rounding *r, int64_t row)
{
    int32_t i = 0;
    while (i + 1 < r->parts && row >= r->part[i].end)
        i++;
    return r->part[i].type;
}

static void round_groups(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_command *c = call->command;
    const tx_rounding *r = &c->attrs.rounding;
    const bool on = call->controls->word[TX_CONTROL_FAKE_QUANTIZE].f32 != 0.0f;
    const float *x = call->in[0];
    int64_t width;
    const int64_t groups = groups_of(c, &width), step = r->columns ? tx_shape_last(&c->in[0].shape) : 1;
    for (int64_t i = first; i < last; i++) {
        float from[TX_BLOCK_MAX], to[TX_BLOCK_MAX];
        const int64_t line = i / groups, at = i % groups * TX_BLOCK_MAX, count = tx_min(width - at, TX_BLOCK_MAX);
        const int64_t begin = r->columns ? (line / step * width + at) * step + line % step : line * width + at;
        for (int64_t k = 0; k < count; k++)
            from[k] = x[begin + k * step];
        if (on)
            tx_block_round(type_at(r, line), from, count, to);
        else
            memcpy(to, from, (size_t)count * sizeof *to);
        if (step == 1)
            tx_narrow(call->out[0], to, c->out[0].dtype, begin, count);
        for (int64_t k = 0; k < count && step > 1; k++)
            tx_narrow(call->out[0], to + k, c->out[0].dtype, begin + k * step, 1);
    }
}

void TX_CPU_NAME(fake_quantize)(const tx_cpu_call *call)
{
    const tx_command *c = call->command;
    int64_t width;
    const int64_t groups = groups_of(c, &width), lines = tx_operand_count(&c->in[0]) / width;
    tx_cpu_slices(call, lines * groups, 4, round_groups);
}
