/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter updates: what all have in common, and the loop over blocks of those that work on ranges. */
#ifndef TX_BACKENDS_CPU_UPDATE_H
#define TX_BACKENDS_CPU_UPDATE_H

#include "backends/cpu/simd.h"

/* Bits of a group byte. */
#define TX_DECAY 1u
#define TX_KEEPS_ZEROS 2u

/* What is the same for all elements of a step, made in double precision as PyTorch's scalars are. */
typedef struct tx_step {
    const tx_attrs *attrs;
    float rate, factor;   /* of gradients */
    float keep;           /* what weight decay leaves of a weight */
    float weight1, beta1; /* of the first moment: new, old */
    float weight2, beta2;
    float step, root; /* AdamW's rate, and root of its second moment, for its step */
} tx_step;

static inline double tx_update_rate(const tx_cpu_call *call)
{
    const tx_word *word = call->controls->word;
    const uint32_t from = word[TX_CONTROL_HOLD_FROM].u32;
    const bool holds = from && call->results[TX_RESULT_SKIPPED] >= (float)from;
    return (double)word[holds ? TX_CONTROL_HELD_RATE : TX_CONTROL_LEARNING_RATE].f32;
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

/* Updates elements at .. at + count - 1, at most a block of TX_PARAM_BLOCK. */
typedef void tx_block(const tx_cpu_call *call, const tx_step *s, bool decays, int64_t at, int64_t count);

/* `copy`: the output that the new weights go to once more, rounded, where it is there; 0: the op has none. */
static inline void tx_each_block(const tx_cpu_call *call, int64_t first, int64_t last, tx_block *update, int copy)
{
    const tx_step step = tx_step_of(call);
    const uint8_t *groups = call->in[2];
    const int64_t all = tx_operand_count(&call->command->in[0]);
    for (int64_t b = first; b < last; b++) {
        const int64_t at = b * TX_PARAM_BLOCK, left = all - at;
        const int64_t count = left < TX_PARAM_BLOCK ? left : TX_PARAM_BLOCK;
        update(call, &step, groups[b] & TX_DECAY, at, count);
        if (copy && call->out[copy])
            tx_narrow(call->out[copy], (const float *)call->out[0] + at, call->command->out[copy].dtype, at, count);
    }
}

/* The kernel `name`, which does name_block on every block, unless the gradient is not finite; `copy` as above. */
#define TX_UPDATE(name, copy)                                                                                   \
    static void name##_blocks(const tx_cpu_call *call, int64_t first, int64_t last)                             \
    {                                                                                                           \
        tx_each_block(call, first, last, name##_block, copy);                                                   \
    }                                                                                                           \
    void TX_CPU_NAME(name)(const tx_cpu_call *call)                                                             \
    {                                                                                                           \
        const int64_t blocks = (tx_operand_count(&call->command->in[0]) + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK; \
        if (call->results[TX_RESULT_FINITE] != 0.0f)                                                            \
            tx_cpu_slices(call, blocks, TX_CPU_GRAIN / TX_PARAM_BLOCK, name##_blocks);                          \
    }

#endif
