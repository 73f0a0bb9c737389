/* SPDX-License-Identifier: Apache-2.0
 * Learning rates against transformers' own (tests/train/schedule_golden.py). */
#include "models/train/schedule.h"
#include "tests/scratch.h"

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
#define METRICS(...)
#define ADAPTIVE(...)
#include "schedule_golden.h"
#undef X
#undef METRICS
#undef ADAPTIVE
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

/* The rates after each evaluation, of torch's ReduceLROnPlateau and transformers' GreedyLR. */
static void adaptive_rates_equal_transformers(void **state)
{
#define X(...)
#define METRICS(...) static const double metric[] = {__VA_ARGS__};
#define ADAPTIVE(...)
#include "schedule_golden.h"
#undef METRICS
#undef ADAPTIVE
    enum { METRICS = sizeof metric / sizeof metric[0] };
    static const struct {
        tx_schedule_kind kind;
        double peak;
        const char *adjust;
        double rate[METRICS];
    } golden[] = {
#define METRICS(...)
#define ADAPTIVE(kind, peak, adjust, ...) {TX_SCHEDULE_##kind, peak, adjust, {__VA_ARGS__}},
#include "schedule_golden.h"
#undef X
#undef METRICS
#undef ADAPTIVE
    };
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        tx_schedule schedule = tx_schedule_default(golden[i].kind, golden[i].peak, 5, 100);
        tx_schedule_state now = {0};
        assert_ok(tx_schedule_adjust(&schedule, golden[i].adjust));
        assert_true(tx_schedule_adapts(&schedule) && tx_schedule_rate(&schedule, 0) == golden[i].peak);
        for (int m = 0; m < METRICS; m++) {
            tx_schedule_judge(&schedule, &now, metric[m]);
            if (!(fabs(now.rate - golden[i].rate[m]) <= 1e-15 * golden[i].peak))
                fail_msg("%s %s, evaluation %d: %.17g, transformers says %.17g", tx_schedule_name(golden[i].kind),
                         golden[i].adjust, m, now.rate, golden[i].rate[m]);
        }
    }
}

/* A metric that is not a number never improves. */
static void nan_is_a_bad_evaluation(void **state)
{
    tx_schedule schedule = tx_schedule_default(TX_SCHEDULE_REDUCE_ON_PLATEAU, 1.0, 0, 100);
    tx_schedule_state now = {0};
    assert_ok(tx_schedule_adjust(&schedule, "{\"patience\": 0, \"factor\": 0.5}"));
    tx_schedule_judge(&schedule, &now, 2.0);
    tx_schedule_judge(&schedule, &now, (double)NAN);
    assert_true(now.rate == 0.5 && now.best == 2.0);
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
        {TX_SCHEDULE_COSINE_WITH_MIN_LR, "{\"min_lr\": 1e-4, \"min_lr_rate\": 0.1}", "needs either"},
        {TX_SCHEDULE_COSINE_WARMUP_MIN_LR, "{\"min_lr\": 1}", "more than the learning rate"},
        {TX_SCHEDULE_INVERSE_SQRT, "{\"num_cycles\": 1}", "which has timescale"},
        {TX_SCHEDULE_REDUCE_ON_PLATEAU, "{\"mode\": \"auto\"}", "not one of min|max"},
        {TX_SCHEDULE_REDUCE_ON_PLATEAU, "{\"factor\": 1}", "factor"},
        {TX_SCHEDULE_REDUCE_ON_PLATEAU, "{\"max_lr\": 1}", "which has min_lr, mode, factor, patience"},
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_equal_transformers), cmocka_unit_test(adaptive_rates_equal_transformers),
        cmocka_unit_test(nan_is_a_bad_evaluation), cmocka_unit_test(settings_of_others_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
