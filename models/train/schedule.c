/* SPDX-License-Identifier: Apache-2.0
 * Learning-rate schedules. */
#include "models/train/schedule.h"

#include <math.h>

const char *tx_schedule_name(tx_schedule_kind kind)
{
    static const char *const name[] = {
#define X(id, text) text,
        TX_SCHEDULE_MAP(X)
#undef X
    };
    return kind < TX_SCHEDULE_COUNT ? name[kind] : "none";
}

double tx_schedule_rate(const tx_schedule *schedule, int64_t step)
{
    int64_t warmup = schedule->warmup_steps, total = schedule->total_steps;
    if (step < warmup)
        return schedule->peak * ((double)step / (double)warmup);
    int64_t span = total - warmup > 1 ? total - warmup : 1;
    switch (schedule->kind) {
    case TX_SCHEDULE_LINEAR:
        return schedule->peak * fmax(0.0, (double)(total - step) / (double)span);
    case TX_SCHEDULE_COSINE: {
        const double pi = 3.14159265358979323846;
        return schedule->peak * fmax(0.0, 0.5 * (1.0 + cos(pi * ((double)(step - warmup) / (double)span))));
    }
    case TX_SCHEDULE_CONSTANT:
    case TX_SCHEDULE_COUNT:
        break;
    }
    return schedule->peak;
}
