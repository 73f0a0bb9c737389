/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates: common values of a step, and the loop over blocks of parameters.
 */
#ifndef TX_BACKENDS_CPU_UPDATE_H
#define TX_BACKENDS_CPU_UPDATE_H

#include "backends/cpu/simd.h"

/* Bits of a group byte. */
#define TX_DECAY 1u
#define TX_KEEPS_ZEROS 2u

/* The values that all elements of a step share, computed in double precision like PyTorch's scalars. */
typedef struct tx_step {
    const tx_attrs *attrs;
    float rate, factor;   /* of gradients */
    float keep;           /* factor of weight decay */
    float weight1, beta1; /* of the first moment: weight of the new value, of the old one */
    float weight2, beta2;
    float step, root; /* AdamW's bias-corrected rate, and root of the bias correction of the second moment */
    float own[4];     /* further values of one optimizer */
} tx_step;

static inline double tx_update_rate(const tx_cpu_call *call)
{
    const tx_word *word = call->controls->word;
    const uint32_t from = word[TX_CONTROL_HOLD_FROM].u32;
    const bool holds = from && call->results[TX_RESULT_SKIPPED] >= (float)from;
    const double rate = (double)word[holds ? TX_CONTROL_HELD_RATE : TX_CONTROL_LEARNING_RATE].f32;
    const float factor = call->command->attrs.update.rate;
    return factor != 0.0f ? rate * (double)factor : rate;
}

static inline tx_step tx_step_of(const tx_cpu_call *call)
{
    const tx_attrs *attrs = &call->command->attrs;
    const double rate = tx_update_rate(call);
    const double t = (double)call->results[TX_RESULT_UPDATES];
    return (tx_step){
        .attrs = attrs,
        .rate = (float)rate,
        .factor = call->results[TX_RESULT_GRAD_FACTOR],
        .keep = (float)(1.0 - rate * (double)attrs->update.weight_decay),
        .weight1 = (float)(1.0 - (double)attrs->update.beta1),
        .beta1 = attrs->update.beta1,
        .weight2 = (float)(1.0 - (double)attrs->update.beta2),
        .beta2 = attrs->update.beta2,
        .step = (float)(rate / (1.0 - pow((double)attrs->update.beta1, t))),
        .root = (float)sqrt(1.0 - pow((double)attrs->update.beta2, t)),
    };
}

/* Updates elements at .. at + count - 1, at most one block of TX_PARAM_BLOCK. */
typedef void tx_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count);

/* Sets `own`. */
typedef void tx_prepare(const tx_cpu_call *call, tx_step *s);

/* `prepare` may be NULL. `copy` is the output for a rounded copy of the weights, which may be absent; 0 if the op has
 * no such output. The copy is written even if the gradient is not finite, because its memory does not hold the old one
 * if it is offloaded. */
static inline void tx_each_block(const tx_cpu_call *call, int64_t first, int64_t last, tx_block *update, int copy,
                                 tx_prepare *prepare)
{
    tx_step step = tx_step_of(call);
    const bool finite = call->results[TX_RESULT_FINITE] != 0.0f;
    const uint8_t *groups = call->in[2];
    const int64_t all = tx_operand_count(&call->command->in[0]);
    if (prepare)
        prepare(call, &step);
    for (int64_t b = first; b < last; b++) {
        const int64_t at = b * TX_PARAM_BLOCK, left = all - at;
        const int64_t count = left < TX_PARAM_BLOCK ? left : TX_PARAM_BLOCK;
        if (finite)
            update(call, &step, groups[b] & TX_DECAY, at, count);
        if (copy && call->out[copy])
            tx_narrow(call->out[copy], (const float *)call->out[0] + at, call->command->out[copy].dtype, at, count);
    }
}

/* Defines the kernel `name`, which runs name_block on every block unless the gradient is not finite. See
 * tx_each_block for `copy`. TX_UPDATE_WITH first runs `prepare`, once for each thread. */
#define TX_UPDATE(name, copy) TX_UPDATE_WITH(name, copy, NULL)
#define TX_UPDATE_WITH(name, copy, prepare)                                                          \
    static void name##_blocks(const tx_cpu_call *call, int64_t first, int64_t last)                  \
    {                                                                                                \
        tx_each_block(call, first, last, name##_block, copy, prepare);                               \
    }                                                                                                \
    void TX_CPU_NAME(name)(const tx_cpu_call *call)                                                  \
    {                                                                                                \
        const int64_t blocks = tx_ceil_div(tx_operand_count(&call->command->in[0]), TX_PARAM_BLOCK); \
        if (call->results[TX_RESULT_FINITE] != 0.0f || copy)                                         \
            tx_cpu_slices(call, blocks, TX_CPU_GRAIN / TX_PARAM_BLOCK, name##_blocks);               \
    }

#endif
