/* SPDX-License-Identifier: Apache-2.0
 * Helpers of the descriptors of parameter updates. */
#ifndef TX_TESTS_OPS_UPDATE_H
#define TX_TESTS_OPS_UPDATE_H

#include "tests/ops/case.h"

/* Copies input i to output o unchanged, as an update does if a gradient is not finite. */
void tx_update_keep(tx_call *call, int32_t o, int32_t i);
/* A case over a range of n elements: weights, gradients, groups. */
tx_case *tx_update_case(tx_cases *list, int64_t n);
/* A state of an input's shape. */
void tx_update_state(tx_case *c, int32_t i, tx_spec spec);
/* The last case with a gradient that is not finite: the norm said so, and nothing may change. */
void tx_update_skipped(tx_cases *list);

/* The rate of an update. */
static inline double tx_update_rate_of(const tx_call *call)
{
    const tx_word *word = call->controls.word;
    const bool holds =
        word[TX_CONTROL_HOLD_FROM].u32 && call->result[TX_RESULT_SKIPPED] >= word[TX_CONTROL_HOLD_FROM].u32;
    const double factor = call->attrs.update.rate != 0.0f ? (double)call->attrs.update.rate : 1.0;
    return factor * (double)word[holds ? TX_CONTROL_HELD_RATE : TX_CONTROL_LEARNING_RATE].f32;
}

/* AdamW of one element. */
typedef struct tx_adam_step {
    double m, v, p;
    double m_size, v_size, p_size; /* what their errors scale with */
} tx_adam_step;
tx_adam_step tx_update_adamw(const tx_call *call, int64_t i, double m, double v);

#endif
