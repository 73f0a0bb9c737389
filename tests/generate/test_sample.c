/* SPDX-License-Identifier: Apache-2.0
 * Choosing tokens: against the definitions of transformers' processors and warpers, written out plainly. */
#include "models/generate/sample.h"
#include "tests/scratch.h"

enum { VOCAB = 60, DRAWS = 20000 };
static float logits[VOCAB];
static const int32_t before[] = {3, 17, 3, 59, 17, 20};
static const tx_history history = {before, 6, 3, 11, NULL};

static int set_up(void **state)
{
    uint64_t x = 5;
    for (int i = 0; i < VOCAB; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        logits[i] = (float)((double)(x >> 40) / (1 << 24) * 6.0 - 3.0);
    }
    logits[20] = logits[41]; /* equal ones */
    logits[7] = logits[8] = logits[9] = 2.5f;
    return 0;
}

static tx_status choose(const tx_generation *how, const tx_history *h, const float *scores, int32_t *id)
{
    tx_choice choice = {0};
    assert_int_equal(tx_choice_create(VOCAB, &choice), TX_OK);
    tx_status status = tx_sample(how, h, scores, &choice, id);
    tx_choice_free(&choice);
    return status;
}

static int32_t draw(const tx_generation *how, uint64_t sample)
{
    tx_history h = history;
    int32_t id = -1;
    h.sample = sample;
    assert_int_equal(choose(how, &h, logits, &id), TX_OK);
    assert_in_range(id, 0, VOCAB - 1);
    return id;
}

/* ---- The definitions -------------------------------------------------------------------------------- */

static double softmax(const double *score, double *p)
{
    double sum = 0.0;
    for (int i = 0; i < VOCAB; i++)
        sum += p[i] = exp(score[i]);
    for (int i = 0; i < VOCAB; i++)
        p[i] /= sum;
    return sum;
}

/* Probabilities of the tokens: each step as transformers describes it. */
static void probabilities(const tx_generation *g, const tx_history *h, double p[VOCAB])
{
    double score[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        score[i] = (double)logits[i];
        bool there = false;
        for (int64_t k = 0; k < h->count; k++)
            there = there || h->ids[k] == i;
        if (there)
            score[i] = score[i] < 0 ? score[i] * g->repetition_penalty : score[i] / g->repetition_penalty;
        for (int64_t k = h->count - h->generated, times = 0; k < h->count; k++)
            if (h->ids[k] == i)
                score[i] -= g->frequency_penalty + (times++ ? 0.0 : g->presence_penalty);
        for (int k = 0; k < g->bias_count; k++)
            score[i] += g->logit_bias[k].id == i ? (double)g->logit_bias[k].bias : 0.0;
        for (int k = 0; k < g->eos_count && h->generated < g->min_new_tokens; k++)
            if (g->eos_token_id[k] == i)
                score[i] = -INFINITY;
        score[i] /= g->temperature;
    }
    double kept[VOCAB];
    for (int i = 0; i < VOCAB; i++) { /* top_k: as many larger ones as k are too many */
        int larger = 0;
        for (int k = 0; k < VOCAB; k++)
            larger += score[k] > score[i];
        kept[i] = g->top_k > 0 && larger >= g->top_k ? -INFINITY : score[i];
    }
    softmax(kept, p);
    if (g->top_p < 1.0) { /* those whose probability, with all smaller ones, reaches no more than 1 - p, go */
        double least[VOCAB];
        for (int i = 0; i < VOCAB; i++) {
            double sum = 0.0;
            for (int k = 0; k < VOCAB; k++)
                sum += p[k] < p[i] || (p[k] <= p[i] && k >= i) ? p[k] : 0.0;
            least[i] = sum <= 1.0 - g->top_p ? -INFINITY : kept[i];
        }
        softmax(least, p);
    }
    double largest = 0.0, all = 0.0;
    for (int i = 0; i < VOCAB; i++)
        largest = fmax(largest, p[i]);
    for (int i = 0; i < VOCAB; i++)
        all += p[i] = p[i] < g->min_p * largest ? 0.0 : p[i];
    for (int i = 0; i < VOCAB; i++)
        p[i] /= all;
}

/* Counts of many draws are within five standard deviations of the expected ones. */
static void check(tx_generation how)
{
    int count[VOCAB] = {0};
    double p[VOCAB];
    how.do_sample = true;
    probabilities(&how, &history, p);
    for (int i = 0; i < DRAWS; i++)
        count[draw(&how, (uint64_t)i)]++;
    for (int i = 0; i < VOCAB; i++) {
        double off = fabs(count[i] - DRAWS * p[i]), allowed = 5.0 * sqrt(DRAWS * p[i] * (1.0 - p[i]));
        if (!(off <= allowed))
            fail_msg("token %d: %d of %d draws, expected %.0f", i, count[i], DRAWS, DRAWS * p[i]);
    }
}

static tx_generation plain(uint64_t seed)
{
    tx_generation g = tx_generation_defaults(-1);
    g.top_k = 0;
    g.seed = seed;
    return g;
}

static void draws_follow_the_definitions(void **state)
{
    tx_generation g = plain(1);
    check(g);
    g.temperature = 0.5;
    check(g);
    g.temperature = 2.0;
    for (int64_t k = 1; k <= 64; k *= 4) {
        g.top_k = k;
        check(g);
    }
    g = plain(6);
    g.temperature = 3.0; /* so that unlikely tokens are drawn as well */
    g.repetition_penalty = 4.0;
    check(g);
    static const double top_p[] = {0.02, 0.3, 0.75, 0.99};
    for (int i = 0; i < 4; i++) {
        g = plain((uint64_t)i);
        g.top_p = top_p[i];
        check(g);
        g.top_k = 9;
        g.repetition_penalty = 1.7;
        check(g);
    }
    g = plain(3);
    for (int i = 0; i < 4; i++) {
        g.min_p = 0.07 * i;
        g.top_p = i % 2 ? 0.7 : 1.0;
        g.top_k = i == 3 ? 12 : 0;
        g.presence_penalty = i * 0.4;
        g.frequency_penalty = 0.9 - i * 0.6;
        g.logit_bias = (tx_logit_bias[]){{59, 2.5f}, {7, -100.0f}};
        g.bias_count = i / 2 * 2;
        check(g);
    }
    g = plain(5);
    g.repetition_penalty = 0.6;
    g.min_new_tokens = 4;
    g.eos_token_id[0] = 7;
    g.eos_token_id[1] = 41;
    g.eos_count = 2;
    check(g);
}

/* Every token of the small vocabulary is number `step` * id of a large one, whose other tokens are never drawn. */
static void draw_from_large(int step)
{
    const int count = (VOCAB - 1) * step + 1;
    float *scores = malloc((size_t)count * sizeof *scores);
    int32_t ids[6], large = -1;
    tx_history h = {ids, 6, 3, 0, NULL};
    tx_choice choice = {0};
    assert_non_null(scores);
    for (int i = 0; i < count; i++)
        scores[i] = i % step == 0 ? logits[i / step] : -600.0f;
    for (int i = 0; i < 6; i++)
        ids[i] = before[i] * step;
    assert_ok(tx_choice_create(count, &choice));
    for (int i = 0; i < 400; i++) {
        tx_generation g = plain(9);
        g.do_sample = i >= 10;
        g.temperature = i % 3 + 0.5;
        g.top_k = i % 5 * 7;
        g.top_p = i % 2 ? 1.0 : i % 7 * 0.16;
        g.repetition_penalty = i % 4 ? 1.0 : 1.5;
        g.min_p = i % 11 == 0 ? 0.1 : 0.0;
        g.typical_p = i % 13 == 0 ? 0.6 : 1.0;
        g.xtc_probability = i % 8 == 0 ? 0.5 : 0.0;
        h.sample = (uint64_t)i;
        assert_ok(tx_sample(&g, &h, scores, &choice, &large));
        assert_int_equal(large, draw(&g, h.sample) * step);
    }
    tx_choice_free(&choice);
    free(scores);
}

static void other_tokens_change_nothing(void **state)
{
    draw_from_large(37);  /* several in a block of scores, the last in a part of one */
    draw_from_large(128); /* the first of each block */
    draw_from_large(131);
}

static void equal_ones_at_the_limit_of_top_k_stay(void **state)
{
    tx_generation g = plain(4);
    bool seen[VOCAB] = {false};
    g.do_sample = true;
    g.temperature = 0.01;
    logits[7] = logits[8] = logits[9] = 9.0f;
    g.top_k = 1;
    for (uint64_t i = 0; i < 200; i++)
        seen[draw(&g, i)] = true;
    for (int i = 0; i < VOCAB; i++)
        assert_int_equal(seen[i], i >= 7 && i <= 9);
    set_up(NULL);
}

static void greedy(void **state)
{
    tx_generation g = plain(1);
    for (int round = 0; round < 2; round++) {
        g.repetition_penalty = round ? 3.0 : 1.0;
        double p[VOCAB];
        probabilities(&g, &history, p);
        int best = 0;
        for (int i = 1; i < VOCAB; i++)
            best = p[i] > p[best] ? i : best;
        assert_int_equal(draw(&g, 0), best);
        g.do_sample = true; /* without temperature nothing is drawn */
        g.temperature = 0.0;
        assert_int_equal(draw(&g, 1), best);
        g = plain(1);
    }
}

static void draws_depend_on_seed_and_text_alone(void **state)
{
    tx_generation a = plain(7), b = plain(8);
    int same = 0, neighbours = 0;
    a.do_sample = b.do_sample = true;
    for (uint64_t i = 0; i < 200; i++) {
        assert_int_equal(draw(&a, i), draw(&a, i));
        same += draw(&a, i) == draw(&b, i);
        neighbours += draw(&a, i) == draw(&a, i + 1);
    }
    assert_in_range(same, 0, 60);
    assert_in_range(neighbours, 0, 60);
}

static void damaged_logits_are_refused(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++)
        for (int at = 0; at < VOCAB; at += VOCAB - 1) {
            float damaged[VOCAB];
            int32_t id = -1;
            char text[32];
            memcpy(damaged, logits, sizeof damaged);
            damaged[at] = bad[i];
            tx_generation g = plain(1);
            assert_int_equal(choose(&g, &history, damaged, &id), TX_INVALID);
            assert_int_equal(id, -1);
            snprintf(text, sizeof text, "logit %d is", at);
            assert_non_null(strstr(tx_error(), text));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_definitions),          cmocka_unit_test(other_tokens_change_nothing),
        cmocka_unit_test(equal_ones_at_the_limit_of_top_k_stay), cmocka_unit_test(greedy),
        cmocka_unit_test(draws_depend_on_seed_and_text_alone),   cmocka_unit_test(damaged_logits_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
