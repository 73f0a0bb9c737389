/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and adds elements, converting between floating types.
 */
#ifndef TX_CPU_MOVE_H
#define TX_CPU_MOVE_H

#include "backends/cpu/simd.h"

static inline bool tx_cpu_adds(const tx_cpu_call *call)
{
    return tx_beta(call->command->attrs.accumulate, call->controls) != 0.0f;
}

/* Copies `count` elements of operand `in` from element `from` to element `to` of y. With `add` they are added to y. */
static inline void tx_cpu_move(const tx_cpu_call *call, int in, int64_t from, int64_t to, int64_t count, bool add)
{
    const tx_dtype of_x = call->command->in[in].dtype, of_y = call->command->out[0].dtype;
    float piece[TX_PIECE], buffer[TX_PIECE];
    for (int64_t start = 0; start < count; start += TX_PIECE) {
        const int64_t some = tx_min(count - start, TX_PIECE);
        tx_widen(piece, call->in[in], of_x, from + start, some);
        if (add) {
            const float *old = tx_run_of(call->out[0], of_y, to + start, some, buffer);
            TX_SIMD for (int64_t i = 0; i < some; i++) piece[i] += old[i];
        }
        tx_narrow(call->out[0], piece, of_y, to + start, some);
    }
}

#endif
