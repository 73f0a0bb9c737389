/* SPDX-License-Identifier: Apache-2.0
 * The model of data-parallel training: against figures computed elsewhere and by hand, the list of buckets, and what
 * must hold whatever the figures are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/scratch.h"
#include "tools/bench/scale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* 497 MB in 20 equal buckets that get ready evenly during the backward, two thirds of `compute` seconds. */
static tx_scale_schedule even_schedule(tx_scale_bucket bucket[20], double compute)
{
    tx_scale_schedule s = {compute / 3.0, 2.0 * compute / 3.0, 0.0, bucket, 20};
    for (int i = 0; i < 20; i++)
        bucket[i] = (tx_scale_bucket){s.forward + s.backward * (i + 1) / 20.0, 497 * MB / 20, 497 * MB / 20};
    return s;
}

static tx_config *gpt2(void)
{
    tx_config *config = NULL;
    assert_ok(tx_config_preset("gpt2", &config));
    return config;
}

/* ---- Against figures computed elsewhere -------------------------------------------------------------------- */

typedef struct row {
    double gbit;
    int64_t ranks;
    long ring_ms;         /* of 20 buckets */
    double ring;          /* efficiency, 2 digits */
    long rabenseifner_ms; /* of one message of them all */
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
    (void)state;
    tx_scale_bucket bucket[20];
    const tx_scale_schedule s = even_schedule(bucket, 0.3);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        const tx_scale_link link = link_of(r->gbit);
        const tx_scale_step ring = tx_scale_predict(&s, &link, TX_SCALE_RING, r->ranks, true);
        const tx_scale_step rab = tx_scale_predict(&s, &link, TX_SCALE_RABENSEIFNER, r->ranks, true);
        const tx_scale_bucket whole = {0.0, 497 * MB, 497 * MB};
        const double once = tx_scale_sum(&link, TX_SCALE_RABENSEIFNER, r->ranks, &whole);
        assert_int_equal(lround(1e3 * ring.communication), r->ring_ms);
        assert_near(rounded(ring.efficiency), r->ring);
        assert_int_equal(lround(1e3 * once), r->rabenseifner_ms);
        assert_near(rounded(rab.efficiency), r->rabenseifner);
        /* 20 buckets wait for 20 latencies. */
        assert_near(rab.communication, once + 19.0 * 2.0 * log2((double)r->ranks) * link.latency);
    }
}

static void test_table_without_overlap(void **state)
{
    (void)state;
    tx_scale_bucket bucket[20];
    const int64_t ranks[] = {8, 64, 1024};
    const double after[] = {0.80, 0.78, 0.77}, longer[] = {0.90, 0.83, 0.82};
    const tx_scale_link fast = link_of(100), slow = link_of(10);
    for (int i = 0; i < 3; i++) {
        tx_scale_schedule s = even_schedule(bucket, 0.3);
        tx_scale_step step = tx_scale_predict(&s, &fast, TX_SCALE_RABENSEIFNER, ranks[i], false);
        assert_near(rounded(step.efficiency), after[i]);
        s = even_schedule(bucket, 1.0);
        step = tx_scale_predict(&s, &slow, TX_SCALE_RABENSEIFNER, ranks[i], true);
        assert_near(rounded(step.efficiency), longer[i]);
    }
}

/* ---- By hand --------------------------------------------------------------------------------------------- */

static void test_sums(void **state)
{
    (void)state;
    tx_scale_link link = {.latency = 1.0, .rate = 2.0, .gap = 0.0, .host_ranks = 1, .local_rate = 8.0};
    const tx_scale_bucket b = {0.0, 48, 48};
    assert_near(tx_scale_sum(&link, TX_SCALE_RING, 6, &b), 10.0 * (1.0 + 4.0));
    assert_near(tx_scale_sum(&link, TX_SCALE_TREE, 4, &b), 4.0 * (1.0 + 24.0));
    assert_near(tx_scale_sum(&link, TX_SCALE_TREE, 6, &b), 6.0 * (1.0 + 24.0));
    assert_near(tx_scale_sum(&link, TX_SCALE_RABENSEIFNER, 4, &b), 4.0 + 36.0);
    assert_near(tx_scale_sum(&link, TX_SCALE_RABENSEIFNER, 6, &b), 4.0 + 36.0 + 2.0 * (1.0 + 24.0));
    assert_near(tx_scale_sum(&link, TX_SCALE_EXCHANGE, 6, &b), 2.0 + 40.0);
    link.gap = 5.0; /* more than the 4 that a slice takes */
    assert_near(tx_scale_sum(&link, TX_SCALE_EXCHANGE, 6, &b), 2.0 + 50.0);
    /* Two ranks a host: 12 within it, then three hosts, to which 16 bits go. */
    link.host_ranks = 2;
    assert_near(tx_scale_sum(&link, TX_SCALE_RING, 6, &b), 12.0 + 4.0 * (1.0 + 8.0));
    const tx_scale_bucket half = {0.0, 48, 24};
    assert_near(tx_scale_sum(&link, TX_SCALE_RING, 5, &half), 12.0 + 4.0 * (1.0 + 4.0));
    assert_near(tx_scale_sum(&link, TX_SCALE_RING, 2, &b), 12.0);
    assert_near(tx_scale_sum(&link, TX_SCALE_RING, 1, &b), 0.0);
}

/* The second bucket waits for the first, the third for its gradients, and what is left over for the end. */
static void test_overlap(void **state)
{
    (void)state;
    tx_scale_bucket bucket[] = {{4.0, 8, 8}, {5.0, 4, 4}, {12.0, 6, 6}};
    const tx_scale_schedule s = {3.0, 9.0, 2.0, bucket, 3};
    const tx_scale_link link = {.latency = 0.0, .rate = 2.0, .host_ranks = 1};
    /* Among two ranks M / B: 4 to 8, 8 to 10, 12 to 15. */
    const tx_scale_step step = tx_scale_predict(&s, &link, TX_SCALE_RING, 2, true);
    assert_near(step.communication, 9.0);
    assert_near(step.exposed, 3.0);
    assert_near(step.seconds, 17.0);
    assert_near(step.efficiency, 14.0 / 17.0);
    const tx_scale_step after = tx_scale_predict(&s, &link, TX_SCALE_RING, 2, false);
    assert_near(after.exposed, 9.0);
    assert_near(after.seconds, 23.0);
}

/* ---- Layers and buckets ------------------------------------------------------------------------------------ */

static void test_divide(void **state)
{
    (void)state;
    tx_config *config = gpt2();
    assert_int_equal(tx_scale_layers(config), 14);
    assert_int_equal(tx_scale_layer_of(config, "transformer.wte.weight"), 0);
    assert_int_equal(tx_scale_layer_of(config, "transformer.wpe.weight"), 0);
    assert_int_equal(tx_scale_layer_of(config, "transformer.h.0.ln_1.bias"), 1);
    assert_int_equal(tx_scale_layer_of(config, "transformer.h.11.mlp.c_proj.bias"), 12);
    assert_int_equal(tx_scale_layer_of(config, "transformer.ln_f.weight"), 13);
    tx_scale_layer layer[14];
    tx_scale_divide(config, 256, 3.0, layer);
    double forward = 0.0, backward = 0.0;
    for (int i = 0; i < 14; i++) {
        forward += layer[i].forward;
        backward += layer[i].backward;
    }
    assert_near(forward, 1.0);
    assert_near(backward, 2.0);
    /* 12 x 768^2 + 2 x 256 x 768 in a block, 768 x 50304 in the head. */
    assert_near(layer[13].forward / layer[12].forward, 38633472.0 / 7471104.0);
    assert_near(layer[1].backward, layer[12].backward);
    tx_config_free(config);
}

static tx_scale_schedule make(const tx_config *config, int64_t cap, int64_t accumulation, bool bf16)
{
    tx_scale_layer layer[64];
    tx_scale_schedule s;
    const tx_scale_split split = {cap, bf16, accumulation, 0.01};
    assert_true(tx_scale_layers(config) <= 64);
    tx_scale_divide(config, 256, 0.3, layer);
    assert_ok(tx_scale_schedule_make(config, layer, &split, &s));
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
        assert_true(b->ready > s->forward);
        bytes += b->bytes;
    }
    assert_int_equal(bytes, 497903616); /* the arena of GPT-2 124M */
    assert_true(s->buckets[s->count - 1].ready == s->forward + s->backward);
}

static void test_buckets(void **state)
{
    (void)state;
    tx_config *config = gpt2();
    tx_scale_schedule s = make(config, 0, 1, false);
    check_buckets(&s, 25 << 20);
    /* The final norm, the last block's last bias and matrix; a block each; what is left with the positions; the tokens'
     * table alone. */
    assert_int_equal(s.count, 14);
    assert_int_equal(s.buckets[0].bytes, (3 * 768 + 3072 * 768) * 4);
    for (int i = 1; i < 12; i++)
        assert_int_equal(s.buckets[i].bytes, (12 * 768 * 768 + 13 * 768) * 4);
    assert_int_equal(s.buckets[13].bytes, 50304 * 768 * 4);
    free(s.buckets);
    s = make(config, 1 << 20, 1, false); /* each matrix is larger, but not biases and norms */
    check_buckets(&s, 1 << 20);
    assert_true(s.count > 4 * 12 + 2);
    assert_int_equal(s.buckets[0].bytes, 3 * 768 * 4);
    free(s.buckets);
    s = make(config, INT64_C(1) << 40, 1, false);
    check_buckets(&s, INT64_C(1) << 40);
    assert_int_equal(s.count, 1);
    free(s.buckets);
    tx_config_free(config);
}

static void test_accumulation(void **state)
{
    (void)state;
    tx_config *config = gpt2();
    tx_scale_schedule one = make(config, 0, 1, false), four = make(config, 0, 4, true);
    assert_int_equal(four.count, one.count);
    assert_near(four.forward, 0.4);
    assert_near(four.backward, 0.8);
    assert_near(four.update, 0.01);
    for (int i = 0; i < one.count; i++) {
        assert_near(four.buckets[i].ready, one.buckets[i].ready + 0.9);
        assert_int_equal(four.buckets[i].bytes, one.buckets[i].bytes);
        assert_int_equal(four.buckets[i].sent * 2, one.buckets[i].bytes);
    }
    free(one.buckets);
    free(four.buckets);
    tx_config_free(config);
}

static void test_write(void **state)
{
    (void)state;
    tx_scale_bucket bucket[] = {{0.25, 10, 5}, {1.0 / 3.0, INT64_C(6000000000), INT64_C(3000000000)}};
    const tx_scale_schedule s = {0.125, 0.25, 0.5, bucket, 2};
    char *folder = make_scratch(), *path = tx_path_join(folder, "schedule"), *text = NULL;
    size_t size;
    assert_ok(tx_scale_schedule_write(path, &s));
    assert_ok(tx_file_read(path, 4096, &text, &size));
    assert_string_equal(text, "compute 0.125 0.25 0.5\nbucket 0.25 5\nbucket 0.333333333 3000000000\n");
    free(text);
    free(path);
    remove_scratch(folder);
}

/* ---- Whatever the figures are -------------------------------------------------------------------------------- */

static void check_order(const tx_scale_schedule *s, tx_scale_algorithm algorithm, double gbit)
{
    const tx_scale_link link = link_of(gbit), faster = link_of(2.0 * gbit);
    tx_scale_step before = tx_scale_predict(s, &link, algorithm, 1, true);
    assert_true(before.communication == 0.0 && before.exposed == 0.0 && before.efficiency == 1.0);
    for (int64_t ranks = 2; ranks <= 4096; ranks *= 2) {
        const tx_scale_step step = tx_scale_predict(s, &link, algorithm, ranks, true);
        const tx_scale_step after = tx_scale_predict(s, &link, algorithm, ranks, false);
        assert_true(step.communication > before.communication && step.exposed >= before.exposed);
        assert_true(step.efficiency > 0.0 && step.efficiency <= before.efficiency);
        assert_true(step.exposed <= after.exposed && after.exposed <= after.communication * (1.0 + 1e-12));
        assert_true(tx_scale_predict(s, &faster, algorithm, ranks, true).seconds <= step.seconds);
        before = step;
    }
}

static void test_order(void **state)
{
    (void)state;
    tx_config *config = gpt2();
    tx_scale_schedule s = make(config, 0, 1, false);
    for (int a = 0; a < TX_SCALE_ALGORITHMS; a++)
        for (double gbit = 1.0; gbit < 1000.0; gbit *= 10.0)
            check_order(&s, (tx_scale_algorithm)a, gbit);
    free(s.buckets);
    tx_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),  cmocka_unit_test(test_table_without_overlap),
        cmocka_unit_test(test_sums),   cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_divide), cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_write),  cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
