/* SPDX-License-Identifier: Apache-2.0
 * Learning rates against transformers' own (tests/train/schedule_golden.py). */
#include "models/train/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void rates_equal_transformers(void **state)
{
    (void)state;
    static const struct {
        tx_schedule schedule;
        int64_t step;
        double rate;
    } golden[] = {
#define X(kind, peak, warmup, total, step, rate) {{TX_SCHEDULE_##kind, peak, warmup, total}, step, rate},
#include "schedule_golden.h"
#undef X
    };
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        double rate = tx_schedule_rate(&golden[i].schedule, golden[i].step);
        if (!(fabs(rate - golden[i].rate) <= 1e-15 * golden[i].schedule.peak))
            fail_msg("%s, step %d: %.17g, transformers says %.17g", tx_schedule_name(golden[i].schedule.kind),
                     (int)golden[i].step, rate, golden[i].rate);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_equal_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
