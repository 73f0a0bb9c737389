/* SPDX-License-Identifier: Apache-2.0
 * The choice of trials: samplers on a simulated objective with a known optimum, successive halving, importance. */
#include "models/job/settings.h"
#include "tests/scratch.h"
#include "tools/search/study.h"

#define SEEDS 20
#define TRIALS 50

static void open_study(tx_study *study, tx_method method, uint64_t seed, const char *text)
{
    const tx_words words = {&text, 1};
    *study =
        (tx_study){.method = method, .seed = seed, .start_trials = 10, .candidates = 24, .grid_points = 5, .factor = 4};
    assert_ok(tx_space_read(&words, &(tx_option_values){.table = tx_job_table}, &study->space));
}

/* ---- The simulated objective ------------------------------------------------------------------------------------ */

static const char landscape[] =
    "learning_rate=loguniform:1e-6:1e-1, warmup_ratio=uniform:0:1, num_train_epochs=int:1:20,"
    "per_device_train_batch_size=choice:4,8,16,32,64";

/* Least, 0, at 1e-3, 0.3, 7 and 16. */
static double objective(const double *point)
{
    const double a = log10(point[0]) + 3.0, b = point[1] - 0.3, c = (point[2] - 7.0) / 10.0, e = fabs(point[3] - 2.0);
    return a * a + 4.0 * b * b + 2.0 * c * c + 0.3 * e;
}

static void run_study(tx_study *study, int32_t trials)
{
    for (int32_t i = 0; i < trials; i++) {
        double point[TX_SPACE_MOST] = {0.0};
        tx_trial *trial;
        assert_ok(tx_study_suggest(study, i, point));
        assert_ok(tx_study_add(study, &trial));
        memcpy(trial->point, point, sizeof point);
        trial->value = objective(point) * (study->greater ? -1.0 : 1.0);
        trial->state = TX_TRIAL_COMPLETE;
    }
}

static double best_of(tx_method method, uint64_t seed, bool greater)
{
    tx_study study;
    open_study(&study, method, seed, landscape);
    study.greater = greater;
    run_study(&study, TRIALS);
    const double best = fabs(study.trial[tx_study_best(&study)].value);
    tx_study_free(&study);
    return best;
}

/* Fixed seeds: the outcome is the same in every run. With a chance of one half each, 15 of 20 would come about once in
 * 48 times. */
static void test_tpe_beats_random(void **state)
{
    double sum[2] = {0.0, 0.0};
    int wins = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const double tpe = best_of(TX_METHOD_TPE, seed, false), random = best_of(TX_METHOD_RANDOM, seed, false);
        wins += tpe < random;
        sum[0] += tpe;
        sum[1] += random;
    }
    printf("TPE is better in %d of %d seeds; mean distance %.4f and %.4f\n", wins, SEEDS, sum[0] / SEEDS,
           sum[1] / SEEDS);
    assert_true(wins >= 15);
    assert_true(sum[0] < 0.6 * sum[1]);
}

/* The direction changes no suggestion. */
static void test_direction(void **state)
{
    const double least = best_of(TX_METHOD_TPE, 3, false), most = best_of(TX_METHOD_TPE, 3, true);
    assert_memory_equal(&least, &most, sizeof least);
}

/* Every suggestion is within its range, on a step if there are steps, and depends only on the seed. */
static void test_ranges(void **state)
{
    static const char text[] = "learning_rate=loguniform:1e-5:1e-2,weight_decay=uniform:0:0.3:0.1,seed=int:3:11:4,"
                               "max_steps=logint:1:1000,optim=choice:sgd,adamw_torch";
    tx_study one, two;
    bool seen[5] = {false};
    open_study(&one, TX_METHOD_TPE, 7, text);
    open_study(&two, TX_METHOD_TPE, 7, text);
    for (int32_t i = 0; i < 60; i++) {
        tx_trial *a, *b;
        double p[TX_SPACE_MOST] = {0.0}, q[TX_SPACE_MOST] = {0.0};
        assert_ok(tx_study_suggest(&one, i, p));
        assert_ok(tx_study_suggest(&two, i, q));
        assert_memory_equal(p, q, 5 * sizeof *p);
        assert_true(p[0] >= 1e-5 && p[0] <= 1e-2);
        const double tenths = p[1] * 10.0;
        assert_true(fabs(tenths - round(tenths)) < 1e-9 && tenths > -1e-9 && tenths < 3.0 + 1e-9);
        assert_true((p[2] - 3.0) / 4.0 == floor((p[2] - 3.0) / 4.0) && p[2] >= 3.0 && p[2] <= 11.0);
        assert_true(p[3] == floor(p[3]) && p[3] >= 1.0 && p[3] <= 1000.0);
        assert_true(p[4] == 0.0 || p[4] == 1.0);
        seen[(int)((p[2] - 3.0) / 4.0)] = true;
        seen[3 + (int)p[4]] = true;
        assert_ok(tx_study_add(&one, &a));
        assert_ok(tx_study_add(&two, &b));
        memcpy(a->point, p, sizeof p);
        memcpy(b->point, p, sizeof p);
        a->state = b->state = i % 7 == 6 ? TX_TRIAL_FAILED : TX_TRIAL_COMPLETE;
        a->value = b->value = p[0] + p[1];
    }
    assert_true(seen[0] && seen[1] && seen[2] && seen[3] && seen[4]);
    tx_study_free(&one);
    tx_study_free(&two);
}

static void test_grid(void **state)
{
    tx_study study;
    double point[TX_SPACE_MOST], before = 0.0;
    open_study(&study, TX_METHOD_GRID, 0,
               "learning_rate=loguniform:1e-6:1e-2,seed=int:1:3,optim=choice:sgd,adamw_torch");
    assert_int_equal(tx_study_grid_size(&study), 5 * 3 * 2);
    for (int32_t i = 0; i < 30; i++) {
        assert_ok(tx_study_suggest(&study, i, point));
        assert_true(fabs(log10(point[0]) + 6.0 - i / 6) < 1e-9);
        assert_true(point[1] == 1 + i / 2 % 3 && point[2] == i % 2);
        const double key = 100.0 * (i / 6) + 10.0 * point[1] + point[2];
        assert_true(key > before);
        before = key;
    }
    tx_study_free(&study);
}

/* ---- Halving ----------------------------------------------------------------------------------------------------- */

/* Runs trials whose value at every rung is that of `values`, lower being better. Returns the trials that continued, a
 * bit each. */
static uint32_t halve(const double *values, int32_t count, int64_t factor)
{
    tx_study study;
    uint32_t on = 0;
    open_study(&study, TX_METHOD_RANDOM, 0, "seed=int:1:40");
    study.rung = 10;
    study.factor = factor;
    for (int32_t i = 0; i < count; i++) {
        tx_trial *trial;
        assert_ok(tx_study_add(&study, &trial));
        trial->rung[trial->rungs++] = values[i];
        if (tx_halving_goes_on(&study, trial, 0))
            on |= 1u << i;
    }
    assert_int_equal(tx_halving_step(&study, 0), 10);
    assert_int_equal(tx_halving_step(&study, 3), 10 * factor * factor * factor);
    assert_int_equal(tx_halving_step(&study, 31), factor == 2 ? INT64_C(10) << 31 : INT64_MAX);
    tx_study_free(&study);
    return on;
}

static void test_halving(void **state)
{
    /* The first continues, then each that is the best so far; from the eighth on, with 4, the second best, too. */
    assert_int_equal(halve((double[]){5, 6, 4, 7}, 4, 4), 5);
    assert_int_equal(halve((double[]){1, 2, 3, 4, 5, 6, 7, 1.5}, 8, 4), 1 | 128);
    assert_int_equal(halve((double[]){1, 2, 3, 1.5}, 4, 2), 1 | 8);
}

/* ---- Importance -------------------------------------------------------------------------------------------------- */

static void test_importance(void **state)
{
    tx_study study;
    tx_importance importance[TX_SPACE_MOST];
    open_study(&study, TX_METHOD_RANDOM, 1, landscape);
    run_study(&study, 3);
    assert_ok(tx_study_importance(&study, importance));
    assert_true(isnan(importance[0].share) && isnan(importance[3].correlation));
    tx_study_free(&study);
    open_study(&study, TX_METHOD_RANDOM, 1,
               "learning_rate=loguniform:1e-6:1e-2,weight_decay=uniform:0:1,seed=int:1:40,"
               "optim=choice:sgd,adamw_torch,lion_32bit");
    for (int32_t i = 0; i < 200; i++) {
        double point[TX_SPACE_MOST] = {0.0};
        tx_trial *trial;
        assert_ok(tx_study_suggest(&study, i, point));
        assert_ok(tx_study_add(&study, &trial));
        memcpy(trial->point, point, sizeof point);
        trial->state = TX_TRIAL_COMPLETE;
        trial->value = -log10(point[0]) + 0.3 * (point[3] == 1.0);
    }
    assert_ok(tx_study_importance(&study, importance));
    assert_true(importance[0].share > 0.9 && importance[0].correlation < -0.95);
    assert_true(importance[1].share < 0.1 && fabs(importance[1].correlation) < 0.2);
    assert_true(importance[2].share < 0.1 && fabs(importance[2].correlation) < 0.2);
    assert_true(importance[3].share < 0.2 && isnan(importance[3].correlation));
    tx_study_free(&study);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tpe_beats_random), cmocka_unit_test(test_direction),
        cmocka_unit_test(test_ranges),           cmocka_unit_test(test_grid),
        cmocka_unit_test(test_halving),          cmocka_unit_test(test_importance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
