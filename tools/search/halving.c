/* SPDX-License-Identifier: Apache-2.0
 * Successive halving: decides which trials continue. */
#include "tools/search/study.h"

int64_t tx_halving_step(const tx_study *study, int32_t rung)
{
    int64_t step = study->rung;
    for (; rung > 0 && step < INT64_MAX / study->factor; rung--)
        step *= study->factor;
    return rung > 0 ? INT64_MAX : step;
}

bool tx_halving_goes_on(const tx_study *study, const tx_trial *trial, int32_t rung)
{
    const double own = trial->rung[rung];
    int64_t reached = 0, better = 0;
    for (int32_t i = 0; i < study->count; i++) {
        const tx_trial *t = &study->trial[i];
        if (t->rungs <= rung)
            continue;
        reached++;
        better += study->greater ? t->rung[rung] > own : t->rung[rung] < own;
    }
    const int64_t places = reached / study->factor;
    return better < (places > 0 ? places : 1);
}
