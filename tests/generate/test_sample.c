/* SPDX-License-Identifier: Apache-2.0
 * Drawing tokens: greedy, frequencies, top-k, and logits that are no numbers. */
#include "models/generate/generate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { VOCAB = 6, DRAWS = 20000 };
static const float logits[VOCAB] = {1.0f, -0.5f, 2.0f, 0.25f, 2.0f, -3.0f};

static int32_t draw(const tx_sampling *sampling, uint64_t place)
{
    float scratch[VOCAB];
    int32_t id = -1;
    assert_int_equal(tx_sample(logits, VOCAB, sampling, place, scratch, &id), TX_OK);
    assert_in_range(id, 0, VOCAB - 1);
    return id;
}

static void zero_temperature_is_greedy(void **state)
{
    (void)state;
    tx_sampling greedy = {0};
    assert_int_equal(draw(&greedy, 0), 2); /* the first of two that are equal */
}

/* Counts of many draws lie within five standard deviations of what softmax says. */
static void check_frequencies(const tx_sampling *sampling, const bool kept[VOCAB])
{
    int count[VOCAB] = {0};
    double sum = 0.0;
    for (int i = 0; i < VOCAB; i++)
        sum += kept[i] ? exp((double)logits[i] / sampling->temperature) : 0.0;
    for (int i = 0; i < DRAWS; i++)
        count[draw(sampling, (uint64_t)i)]++;
    for (int i = 0; i < VOCAB; i++) {
        double p = kept[i] ? exp((double)logits[i] / sampling->temperature) / sum : 0.0;
        double off = fabs(count[i] - DRAWS * p), allowed = 5.0 * sqrt(DRAWS * p * (1.0 - p));
        if (!(off <= allowed))
            fail_msg("token %d: %d of %d draws, expected %.0f", i, count[i], DRAWS, DRAWS * p);
    }
}

static void draws_follow_softmax(void **state)
{
    (void)state;
    const bool all[VOCAB] = {true, true, true, true, true, true};
    const bool three[VOCAB] = {true, false, true, false, true, false};
    const bool two[VOCAB] = {false, false, true, false, true, false};
    check_frequencies(&(tx_sampling){.temperature = 1.0, .seed = 1}, all);
    check_frequencies(&(tx_sampling){.temperature = 0.5, .seed = 2}, all);
    check_frequencies(&(tx_sampling){.temperature = 2.0, .seed = 3, .top_k = 3}, three);
    /* Two tokens share the first place, so that both stay. */
    check_frequencies(&(tx_sampling){.temperature = 1.0, .seed = 4, .top_k = 1}, two);
    check_frequencies(&(tx_sampling){.temperature = 1.0, .seed = 5, .top_k = 100}, all);
}

static void draws_depend_on_seed_and_place_alone(void **state)
{
    (void)state;
    tx_sampling a = {.temperature = 1.0, .seed = 7}, b = {.temperature = 1.0, .seed = 8};
    int same = 0;
    for (uint64_t i = 0; i < 200; i++) {
        assert_int_equal(draw(&a, i), draw(&a, i));
        same += draw(&a, i) == draw(&b, i);
    }
    assert_in_range(same, 0, 150);
}

static void damaged_logits_are_refused(void **state)
{
    (void)state;
    float bad[VOCAB] = {0.0f, NAN}, scratch[VOCAB];
    int32_t id = -1;
    assert_int_equal(tx_sample(bad, VOCAB, &(tx_sampling){0}, 0, scratch, &id), TX_INVALID);
    assert_int_equal(id, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_temperature_is_greedy),
        cmocka_unit_test(draws_follow_softmax),
        cmocka_unit_test(draws_depend_on_seed_and_place_alone),
        cmocka_unit_test(damaged_logits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
