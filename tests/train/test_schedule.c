/* SPDX-License-Identifier: Apache-2.0
 * Learning rates against transformers' own (tests/train/schedule_golden.py). */
#include "models/train/schedule.h"
#include "tests/scratch.h"

#include <math.h>

static void rates_equal_transformers(void **state)
{
    static const struct {
        tx_schedule_kind kind;
        double peak;
        int64_t warmup, total;
        const char *adjust;
        double rate[17];
    } golden[] = {
#define X(kind, peak, warmup, total, adjust, ...) {TX_SCHEDULE_##kind, peak, warmup, total, adjust, {__VA_ARGS__}},
#include "schedule_golden.h"
#undef X
    };
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        tx_schedule schedule = tx_schedule_default(golden[i].kind, golden[i].peak, golden[i].warmup, golden[i].total);
        if (golden[i].adjust)
            assert_ok(tx_schedule_adjust(&schedule, golden[i].adjust));
        for (int64_t step = 0; step < golden[i].total + 2; step++) {
            const double rate = tx_schedule_rate(&schedule, step), wanted = golden[i].rate[step];
            if (!(fabs(rate - wanted) <= 1e-15 * golden[i].peak))
                fail_msg("%s, step %d: %.17g, transformers says %.17g", tx_schedule_name(golden[i].kind), (int)step,
                         rate, wanted);
        }
    }
}

static void settings_of_others_are_refused(void **state)
{
    static const struct {
        tx_schedule_kind kind;
        const char *text, *message;
    } bad[] = {
        {TX_SCHEDULE_LINEAR, "{\"power\": 2}", "power is not a setting of linear, which has none"},
        {TX_SCHEDULE_WSD, "{\"num_decay_steps\": \"many\"}", "num_decay_steps"},
        {TX_SCHEDULE_WSD, "{\"decay_type\": \"steep\"}", "steep"},
        {TX_SCHEDULE_POLYNOMIAL, "{\"lr_end\": 1}", "lr_end"},
        {TX_SCHEDULE_COSINE_WITH_MIN_LR, NULL, "min_lr_rate"},
        {TX_SCHEDULE_COSINE_WITH_MIN_LR, "{\"min_lr\": 1e-4, \"min_lr_rate\": 0.1}", "needs one of"},
        {TX_SCHEDULE_COSINE_WARMUP_MIN_LR, "{\"min_lr\": 1}", "more than the learning rate"},
        {TX_SCHEDULE_INVERSE_SQRT, "{\"num_cycles\": 1}", "which has timescale"},
        {TX_SCHEDULE_COSINE, "[1]", "not a JSON object"},
        {TX_SCHEDULE_COSINE, "num_cycles=2", "lr_scheduler_kwargs"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tx_schedule schedule = tx_schedule_default(bad[i].kind, 1e-3, 0, 100), before = schedule;
        assert_true(tx_schedule_adjust(&schedule, bad[i].text) < 0);
        assert_non_null(strstr(tx_error(), bad[i].message));
        assert_memory_equal(&schedule, &before, sizeof schedule);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_equal_transformers),
                                       cmocka_unit_test(settings_of_others_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
