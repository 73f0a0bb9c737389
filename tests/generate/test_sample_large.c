/* SPDX-License-Identifier: Apache-2.0
 * Choosing from large vocabularies: the token is that of a plain sort, to the bit of each sum. */
#include "models/generate/sample.h"
#include "models/tokenizer/hash.h"
#include "tests/unit.h"

enum { LARGEST = 60000, SHAPES = 9, DRAWS = 60 };

static uint64_t state_of = 7;

static double random_of(void)
{
    state_of = state_of * 6364136223846793005u + 1442695040888963407u;
    return (double)(state_of >> 11) * 0x1p-53;
}

/* Logits of several shapes: flat, peaked, with ties, with many equal ones, far apart, near each other. */
static void fill(float *logits, int count, int shape)
{
    for (int i = 0; i < count; i++) {
        const double r = random_of(), normal = random_of() + random_of() + random_of() + random_of() - 2.0;
        logits[i] = (float)(shape == 0   ? 6.0 * r - 3.0
                            : shape == 1 ? 7.0 * normal
                            : shape == 2 ? floor(8.0 * r) - 4.0 /* few values, and 0 */
                            : shape == 3 ? (i % 3 ? 1.5 : r)
                            : shape == 4 ? 2.5 /* all are equal */
                            : shape == 5 ? (r - 0.5) * 6e38
                            : shape == 6 ? 20.0 + 1e-5 * r
                            : shape == 7 ? -3.0 * log(r + 1e-12) /* a long tail */
                                         : (i % 2 ? 0.0 : -0.0));
    }
}

/* ---- A plain sort ---------------------------------------------------------------------------------------- */

typedef struct token {
    double key, weight, information;
    int32_t id;
} token;

static int by_key(const void *a, const void *b)
{
    const token *x = a, *y = b;
    return x->key > y->key ? -1 : x->key < y->key ? 1 : (x->id > y->id) - (x->id < y->id);
}

/* Keeps the tokens of a sorted list that pass top_k, top_p and min_p. */
static int cut(const tx_generation *g, const token *list, int count, double all)
{
    const bool limited = g->top_k > 0 && g->top_k < count;
    double sum = 0.0, wanted = g->top_p * all;
    int kept = 0, top = 0;
    if (limited) {
        while (top < count && (top < g->top_k || list[top].key >= list[g->top_k - 1].key))
            sum += list[top++].weight;
        wanted = g->top_p * sum;
        count = top;
    }
    wanted = g->top_p < 1.0 ? wanted : INFINITY;
    for (sum = 0.0; kept < count && (kept == 0 || (sum < wanted && list[kept].weight >= g->min_p)); kept++)
        sum += list[kept].weight;
    return kept;
}

/* Keeps the tokens nearest to the mean information, up to typical_p. Their sums begin with the least likely one. */
static int cut_typical(const tx_generation *g, token *list, int count, bool sorted)
{
    double all = 0.0, mean = 0.0, sum = 0.0;
    int kept = 0;
    for (int i = 0; i < count; i++) {
        const token *t = &list[sorted ? count - 1 - i : i];
        all += t->weight;
        mean += t->weight > 0.0 ? t->weight * t->information : 0.0;
    }
    for (int i = 0; i < count; i++)
        list[i].key = (double)(float)-fabs(list[i].information - mean / all);
    qsort(list, (size_t)count, sizeof *list, by_key);
    for (; kept < count && (kept == 0 || sum < g->typical_p * all || list[kept].key >= list[kept - 1].key); kept++)
        sum += list[kept].weight;
    return kept;
}

/* The token that `u` draws. */
static int32_t expected(const tx_generation *g, const float *logits, int count, double u, token *list)
{
    double largest = -INFINITY, all = 0.0, sum = 0.0;
    const bool cuts = (g->top_k > 0 && g->top_k < count) || g->top_p < 1.0 || g->min_p > 0.0;
    int32_t best = 0;
    for (int i = 0; i < count; i++)
        if ((double)logits[i] > largest) {
            largest = (double)logits[i];
            best = i;
        }
    for (int i = 0; i < count; i++) {
        const double information = ((double)logits[i] - largest) * (1.0 / g->temperature);
        list[i] = (token){(double)logits[i], exp(information), information, i};
        all += list[i].weight;
    }
    if (cuts) {
        qsort(list, (size_t)count, sizeof *list, by_key);
        count = cut(g, list, count, all);
    }
    if (g->typical_p < 1.0)
        count = cut_typical(g, list, count, cuts);
    for (int i = 0; i < count; i++)
        sum += list[i].weight;
    sum *= u;
    for (int i = 0; i < count; i++)
        if ((sum -= list[i].weight) < 0.0)
            return list[i].id;
    return best;
}

/* ---- Tests ------------------------------------------------------------------------------------------------ */

/* The number in [0, 1) that a draw uses. */
static double number_of(uint64_t seed, uint64_t sample)
{
    const uint64_t stream = tx_hash_splitmix(seed * 0xD1342543DE82EF95u + sample * TX_HASH_GOLDEN);
    return (double)(tx_hash_splitmix(stream + TX_HASH_GOLDEN) >> 11) * 0x1p-53;
}

static tx_generation settings_of(int i)
{
    static const double top_p[] = {0.95, 0.5, 0.999, 0.01, 0.0, 1.0}, min_p[] = {0.0, 0.0, 0.05, 1e-4, 1.0};
    static const double typical[] = {1.0, 1.0, 1.0, 0.95, 0.2, 0.9999};
    static const double temperature[] = {1.0, 0.7, 3.0, 0.01, 1.3, 100.0};
    tx_generation g = tx_generation_defaults(-1);
    g.do_sample = true;
    g.seed = 3;
    g.top_k = i % 9 == 8 ? 1 + i % 70 : 0;
    g.top_p = top_p[i % 6];
    g.min_p = min_p[i / 2 % 5];
    g.typical_p = typical[i / 3 % 6];
    g.temperature = temperature[i / 5 % 6];
    return g;
}

static void equals_a_plain_sort(void **state)
{
    static const int counts[] = {2, 300, 4096, 4097, 20011, LARGEST};
    float *logits = malloc(LARGEST * sizeof *logits);
    token *list = malloc(LARGEST * sizeof *list);
    assert_true(logits && list);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        tx_choice choice = {0};
        assert_int_equal(tx_choice_create(counts[c], &choice), TX_OK);
        for (int i = 0; i < SHAPES * DRAWS; i++) {
            const tx_generation g = settings_of(i / SHAPES);
            const tx_history history = {NULL, 0, 0, (uint64_t)i, NULL};
            int32_t id = -1;
            fill(logits, counts[c], i % SHAPES);
            assert_int_equal(tx_sample(&g, &history, logits, &choice, &id), TX_OK);
            const int32_t want = expected(&g, logits, counts[c], number_of(g.seed, (uint64_t)i), list);
            if (id != want)
                fail_msg("%d tokens, shape %d, settings %d: token %d, expected %d", counts[c], i % SHAPES, i / SHAPES,
                         (int)id, (int)want);
        }
        tx_choice_free(&choice);
    }
    free(logits);
    free(list);
}

/* Equal weights whose sum is exactly the wanted part: only exact sums decide. */
static void exact_parts(void **state)
{
    enum { COUNT = 1 << 14 };
    float *logits = calloc(COUNT, sizeof *logits);
    token *list = malloc(COUNT * sizeof *list);
    tx_choice choice = {0};
    tx_generation g = settings_of(0);
    assert_true(logits && list);
    assert_int_equal(tx_choice_create(COUNT, &choice), TX_OK);
    for (int i = 0; i < 200; i++) {
        const tx_history history = {NULL, 0, 0, (uint64_t)i, NULL};
        int32_t id = -1;
        g.top_p = (i % 8 + 1) / 8.0;
        g.typical_p = i % 3 == 0 ? 0.25 : 1.0;
        assert_int_equal(tx_sample(&g, &history, logits, &choice, &id), TX_OK);
        assert_int_equal(id, expected(&g, logits, COUNT, number_of(g.seed, (uint64_t)i), list));
    }
    tx_choice_free(&choice);
    free(logits);
    free(list);
}

/* Buckets decide nearly all draws, so that few need the sort; they never decide within the margin. */
static void buckets_decide(void **state)
{
    enum { COUNT = 20000 };
    float *scores = malloc(COUNT * sizeof *scores);
    double *weights = malloc(COUNT * sizeof *weights), *sums = malloc(TX_BUCKETS * sizeof *sums);
    tx_scored *items = malloc(COUNT * sizeof *items), *spare = malloc(COUNT * sizeof *spare);
    const tx_ranked ranked = {scores, weights, COUNT, 0.0, sums, items, spare};
    tx_ranked_place place;
    int decided = 0;
    assert_true(scores && weights && sums && items && spare);
    for (int shape = 0; shape < 2; shape++) {
        fill(scores, COUNT, shape);
        for (int i = 0; i < COUNT; i++)
            weights[i] = exp((double)scores[i]);
        const double all = tx_ranked_sum(&ranked);
        for (int i = 0; i < 100; i++)
            decided += tx_ranked_find(&ranked, all * i / 100.0, 1e-10 * all, false, &place);
        assert_true(tx_ranked_find(&ranked, 0.5 * all, 1e-10 * all, false, &place));
        const double edge = place.sum;
        assert_false(tx_ranked_find(&ranked, edge, 1e-10 * all, false, &place));
        assert_false(tx_ranked_find(&ranked, edge - 1e-11 * all, 1e-10 * all, false, &place));
        assert_false(tx_ranked_find(&ranked, edge + 1e-11 * all, 1e-10 * all, false, &place));
        assert_false(tx_ranked_find(&ranked, all, 1e-10 * all, false, &place));
    }
    assert_in_range(decided, 198, 200);
    free(scores);
    free(weights);
    free(sums);
    free(items);
    free(spare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_a_plain_sort),
        cmocka_unit_test(exact_parts),
        cmocka_unit_test(buckets_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
