/* SPDX-License-Identifier: Apache-2.0
 * Tests the model of data-parallel training: figures computed by other programs and by hand, the engine's buckets and
 * their ready times, and properties that hold for any figures. */
#include "comm/comm.h"
#include "tests/scratch.h"
#include "tools/research/scale.h"

#include <math.h>
#include <stdlib.h>

#define MB INT64_C(1000000)

static void assert_near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-9 * fabs(wanted)))
        fail_msg("%.15g, not %.15g", value, wanted);
}

static tx_scale_link link_of(double gbit)
{
    return (tx_scale_link){.latency = 10e-6, .rate = 0.94e9 / 8.0 * gbit, .host_ranks = 1, .local_rate = 20e9};
}

/* 497 MB in 20 equal buckets that become ready evenly during the backward pass, two thirds of `compute` seconds. */
static tx_scale_schedule even_schedule(tx_scale_bucket bucket[20], double compute)
{
    for (int i = 0; i < 20; i++)
        bucket[i] = (tx_scale_bucket){compute * (1.0 + (i + 1) / 10.0) / 3.0, 497 * MB / 20, 497 * MB / 20};
    return (tx_scale_schedule){compute, bucket, 20};
}

/* Returns the step time of one rank over that of `ranks`. */
static double efficiency(const tx_scale_schedule *s, const tx_scale_link *link, int algorithm, int64_t ranks,
                         bool overlap)
{
    double communication, exposed;
    tx_scale_predict(s, link, algorithm, ranks, overlap, &communication, &exposed);
    return s->seconds / (s->seconds + exposed);
}

/* ---- Against figures computed elsewhere -------------------------------------------------------------------- */

typedef struct row {
    double gbit;
    int64_t ranks;
    long ring_ms;         /* communication of 20 buckets */
    double ring;          /* efficiency, 2 digits */
    long rabenseifner_ms; /* communication of all of them in one message */
    double rabenseifner;
} row;

static const row rows[] = {
    {10, 8, 743, 0.35, 740, 0.35}, {10, 64, 858, 0.31, 833, 0.32}, {10, 1024, 1254, 0.22, 845, 0.31},
    {100, 8, 77, 0.99, 74, 0.99},  {100, 64, 108, 0.98, 83, 0.99}, {100, 1024, 494, 0.50, 85, 0.99},
    {400, 8, 21, 1.00, 19, 1.00},  {400, 64, 46, 0.99, 21, 1.00},  {400, 1024, 430, 0.56, 21, 1.00},
};

static double rounded(double value)
{
    return round(100.0 * value) / 100.0;
}

static void test_table(void **state)
{
    tx_scale_bucket bucket[20];
    const tx_scale_schedule s = even_schedule(bucket, 0.3);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        const tx_scale_link link = link_of(r->gbit);
        double ring, rabenseifner, exposed;
        tx_scale_predict(&s, &link, TX_RING, r->ranks, true, &ring, &exposed);
        tx_scale_predict(&s, &link, TX_RABENSEIFNER, r->ranks, true, &rabenseifner, &exposed);
        const tx_scale_bucket whole = {0.0, 497 * MB, 497 * MB};
        const double once = tx_scale_sum(&link, TX_RABENSEIFNER, r->ranks, &whole);
        assert_int_equal(lround(1e3 * ring), r->ring_ms);
        assert_near(rounded(efficiency(&s, &link, TX_RING, r->ranks, true)), r->ring);
        assert_int_equal(lround(1e3 * once), r->rabenseifner_ms);
        assert_near(rounded(efficiency(&s, &link, TX_RABENSEIFNER, r->ranks, true)), r->rabenseifner);
        /* 20 buckets wait for 20 latencies. */
        assert_near(rabenseifner, once + 19.0 * 2.0 * log2((double)r->ranks) * link.latency);
    }
}

static void test_table_without_overlap(void **state)
{
    tx_scale_bucket bucket[20];
    const int64_t ranks[] = {8, 64, 1024};
    const double after[] = {0.80, 0.78, 0.77}, longer[] = {0.90, 0.83, 0.82};
    const tx_scale_link fast = link_of(100), slow = link_of(10);
    for (int i = 0; i < 3; i++) {
        tx_scale_schedule s = even_schedule(bucket, 0.3);
        assert_near(rounded(efficiency(&s, &fast, TX_RABENSEIFNER, ranks[i], false)), after[i]);
        s = even_schedule(bucket, 1.0);
        assert_near(rounded(efficiency(&s, &slow, TX_RABENSEIFNER, ranks[i], true)), longer[i]);
    }
}

/* ---- By hand --------------------------------------------------------------------------------------------- */

static void test_sums(void **state)
{
    tx_scale_link link = {.latency = 1.0, .rate = 2.0, .gap = 0.0, .host_ranks = 1, .local_rate = 8.0};
    const tx_scale_bucket b = {0.0, 48, 48};
    assert_near(tx_scale_sum(&link, TX_RING, 6, &b), 10.0 * (1.0 + 4.0));
    assert_near(tx_scale_sum(&link, TX_TREE, 4, &b), 4.0 * (1.0 + 24.0));
    assert_near(tx_scale_sum(&link, TX_TREE, 6, &b), 6.0 * (1.0 + 24.0));
    assert_near(tx_scale_sum(&link, TX_RABENSEIFNER, 4, &b), 4.0 + 36.0);
    assert_near(tx_scale_sum(&link, TX_RABENSEIFNER, 6, &b), 4.0 + 36.0 + 2.0 * (1.0 + 24.0));
    assert_near(tx_scale_sum(&link, TX_EXCHANGE, 6, &b), 2.0 + 40.0);
    link.gap = 5.0; /* more than the 4 of a slice */
    assert_near(tx_scale_sum(&link, TX_EXCHANGE, 6, &b), 2.0 + 50.0);
    /* Two ranks on each host: 12 within it, then a ring of three hosts, with 16-bit gradients. */
    link.host_ranks = 2;
    assert_near(tx_scale_sum(&link, TX_RING, 6, &b), 12.0 + 4.0 * (1.0 + 8.0));
    const tx_scale_bucket half = {0.0, 48, 24};
    assert_near(tx_scale_sum(&link, TX_RING, 5, &half), 12.0 + 4.0 * (1.0 + 4.0));
    assert_near(tx_scale_sum(&link, TX_RING, 2, &b), 12.0);
    assert_near(tx_scale_sum(&link, TX_RING, 1, &b), 0.0);
}

/* The second bucket waits for the first, and the third for its gradients. The rest is exposed at the end. */
static void test_overlap(void **state)
{
    tx_scale_bucket bucket[] = {{4.0, 8, 8}, {5.0, 4, 4}, {12.0, 6, 6}};
    const tx_scale_schedule s = {12.0, bucket, 3};
    const tx_scale_link link = {.latency = 0.0, .rate = 2.0, .host_ranks = 1};
    double communication, exposed;
    /* Among two ranks M / B: 4 to 8, 8 to 10, 12 to 15. */
    tx_scale_predict(&s, &link, TX_RING, 2, true, &communication, &exposed);
    assert_near(communication, 9.0);
    assert_near(exposed, 3.0);
    tx_scale_predict(&s, &link, TX_RING, 2, false, &communication, &exposed);
    assert_near(exposed, 9.0);
}

/* ---- Buckets --------------------------------------------------------------------------------------------- */

/* Makes the schedule of GPT-2 124M for a step of 0.3 s with 4 rows of 256 tokens. */
static tx_scale_schedule make(int64_t cap, int64_t accumulation, bool bf16)
{
    const tx_engine_options engine = {.size = sizeof engine, .threads = 1};
    tx_config *config = NULL;
    tx_bench_training training;
    tx_scale_schedule s;
    assert_ok(tx_config_preset("gpt2", &config));
    tx_trainer_options options = tx_bench_trainer_options(config, 4, 256);
    assert_ok(tx_comm_self()->open(NULL, NULL, &options.comm));
    options.parallel.bucket_bytes = cap;
    assert_ok(tx_bench_training_open(&engine, config, &options, &training));
    assert_ok(tx_scale_schedule_make(&training, 0.3, accumulation, bf16, &s));
    tx_bench_training_close(&training);
    options.comm->table->close(options.comm);
    tx_config_free(config);
    return s;
}

static void check_buckets(const tx_scale_schedule *s, int64_t cap)
{
    const int64_t table = 50304 * 768 * 4, matrix = 3072 * 768 * 4;
    int64_t bytes = 0;
    for (int i = 0; i < s->count; i++) {
        const tx_scale_bucket *b = &s->buckets[i];
        assert_true(b->bytes > 0 && b->sent == b->bytes);
        assert_true(b->bytes < cap + matrix || b->bytes == table);
        assert_true(i == 0 || b->ready >= s->buckets[i - 1].ready);
        assert_true(b->ready > 0.1 && b->ready <= 0.3); /* the forward pass is a third of the step */
        bytes += b->bytes;
    }
    assert_int_equal(bytes, 497903616); /* the arena of GPT-2 124M */
    assert_near(s->buckets[s->count - 1].ready, 0.3);
}

static void test_buckets(void **state)
{
    const int64_t block = (12 * 768 * 768 + 13 * 768) * 4;
    tx_scale_schedule s = make(0, 1, false);
    check_buckets(&s, 25 << 20);
    /* The first bucket has the final norm and the last block's last bias and matrix. Then one bucket for each block,
     * the token embedding, and the rest with the position embedding. */
    assert_int_equal(s.count, 14);
    assert_int_equal(s.buckets[0].bytes, (3 * 768 + 3072 * 768) * 4);
    for (int i = 1; i < 12; i++)
        assert_int_equal(s.buckets[i].bytes, block);
    /* Forward flops per token are 2 x 12 x 768^2 + 4 x 256 x 768 / 2 for a block, with half of attention's pairs, and
     * 2 x 768 x 50304 for the head. Backward has twice as many, and attention's scores once more. */
    const double matrices = 2.0 * 12.0 * 768.0 * 768.0, attention = 4.0 * 128.5 * 768.0, head = 2.0 * 768.0 * 50304.0;
    const double all = 12.0 * (3.0 * matrices + 3.5 * attention) + 3.0 * head;
    const double wanted = 0.3 * (2.0 * matrices + 2.5 * attention) / all;
    assert_true(fabs(s.buckets[6].ready - s.buckets[5].ready - wanted) < 0.02 * wanted);
    free(s.buckets);
    s = make(1 << 20, 1, false); /* each matrix is larger than a bucket; biases and norms are not */
    check_buckets(&s, 1 << 20);
    assert_true(s.count > 4 * 12 + 2);
    free(s.buckets);
    s = make(INT64_C(1) << 40, 1, false);
    check_buckets(&s, INT64_C(1) << 40);
    assert_int_equal(s.count, 1);
    free(s.buckets);
}

static void test_accumulation(void **state)
{
    tx_scale_schedule one = make(0, 1, false), four = make(0, 4, true);
    assert_int_equal(four.count, one.count);
    assert_near(four.seconds, 0.3);
    for (int i = 0; i < one.count; i++) {
        assert_near(four.buckets[i].ready, one.buckets[i].ready / 4.0 + 0.225);
        assert_int_equal(four.buckets[i].bytes, one.buckets[i].bytes);
        assert_int_equal(four.buckets[i].sent * 2, one.buckets[i].bytes);
    }
    free(one.buckets);
    free(four.buckets);
}

/* ---- Whatever the figures are -------------------------------------------------------------------------------- */

static void check_order(const tx_scale_schedule *s, int algorithm, double gbit)
{
    const tx_scale_link link = link_of(gbit), faster = link_of(2.0 * gbit);
    double before, exposed_before, communication, exposed, late, faster_one;
    tx_scale_predict(s, &link, algorithm, 1, true, &before, &exposed_before);
    assert_true(before == 0.0 && exposed_before == 0.0);
    for (int64_t ranks = 2; ranks <= 4096; ranks *= 2) {
        tx_scale_predict(s, &faster, algorithm, ranks, true, &communication, &faster_one);
        tx_scale_predict(s, &link, algorithm, ranks, false, &communication, &late);
        tx_scale_predict(s, &link, algorithm, ranks, true, &communication, &exposed);
        assert_true(communication > before && exposed >= exposed_before);
        assert_true(exposed <= late && late <= communication * (1.0 + 1e-12) && faster_one <= exposed);
        before = communication;
        exposed_before = exposed;
    }
}

static void test_order(void **state)
{
    tx_scale_schedule s = make(0, 1, false);
    for (int a = 0; a < TX_SCALE_ALGORITHMS; a++)
        for (double gbit = 1.0; gbit < 1000.0; gbit *= 10.0)
            check_order(&s, a, gbit);
    free(s.buckets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),   cmocka_unit_test(test_table_without_overlap),
        cmocka_unit_test(test_sums),    cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_buckets), cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
