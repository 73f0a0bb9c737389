/* SPDX-License-Identifier: Apache-2.0
 * The performance model of hybrid sharding, by hand: 16 ranks on two hosts. Weights are gathered within a host, and the
 * all-reduce of a rank's gradients crosses hosts once a step. A rank has an eighth of the states. */
#include "models/split/split.h"
#include "tests/unit.h"

#include <math.h>

enum { LAYERS = 4, MICRO = 4 };

static const tx_split_machine machine = {.peak = 1e15,
                                         .rate = 6e20, /* work hides no transfer */
                                         .moving = 4e20,
                                         .memory = 141e9,
                                         .host = 8,
                                         .inside = {400e9, 0.0},
                                         .outside = {1e9, 0.0}};

static tx_split_model make_model(void)
{
    tx_split_model m = {
        .layers = LAYERS, .width = 64, .kv_width = 64, .heads = 4, .kv_heads = 4, .vocab = 1, .block = 8, .tensor = 1};
    m.layer[0][0].bytes[TX_MEMORY_WEIGHTS] = m.layer[0][0].bytes[TX_MEMORY_GRADIENTS] = 1e6;
    m.layer[0][0].bytes[TX_MEMORY_OPTIMIZER] = 2e6;
    m.layer[0][0].flops = 1.0;
    return m;
}

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-6 * wanted))
        fail_msg("%.9g, not %.9g", value, wanted);
}

static void test_terms(void **state)
{
    tx_split_model m = make_model();
    const double bytes = LAYERS * 1e6, inside = 7.0 / 8.0 * bytes / 400e9, between = 0.5 * bytes / 8.0 / 1e9;
    for (int32_t i = 0; i < 6; i++) {
        const int32_t zero = 1 + i / 2;
        const double share = i % 2 ? 0.25 : 1.0; /* of the bytes of gradients, between hosts */
        const double kept = i % 2 ? 0.5 : 0.25;  /* of the weights at the turn of a pass: a bucket */
        m.sent = i % 2 ? 1.0 : 0.0;
        m.bucket = i % 2 ? 2e6 : 0.0; /* two layers, or one */
        tx_split_figures full, hybrid;
        tx_split s = {16, 1, 1, 1, 1, zero, TX_PIPELINE_1F1B, 1, 1, MICRO, false, false};
        /* Reduce-scatters and gathers of a step, in halves of an all-reduce. Gathers in fp32. */
        const double scatters = zero == 1 ? 1.0 : MICRO, gathers = zero == 3 ? 2.0 * MICRO * (1.0 - kept) + kept : 1.0;
        assert_int_equal(tx_split_shards(&machine, &s), 16);
        tx_split_predict(&m, &machine, &s, &full);
        near(full.term[TX_SPLIT_T_DATA], scatters * (inside + share * between) + gathers * (inside + between));
        near(full.bytes[TX_MEMORY_OPTIMIZER], 2.0 * bytes / 16.0);
        s.hybrid = true;
        assert_int_equal(tx_split_shards(&machine, &s), 8);
        tx_split_predict(&m, &machine, &s, &hybrid);
        near(hybrid.term[TX_SPLIT_T_DATA], (scatters + gathers) * inside + 2.0 * share * between);
        near(hybrid.bytes[TX_MEMORY_OPTIMIZER], 2.0 * bytes / 8.0);
    }
}

/* Two ranks sum during the backward pass. No work overlaps with the last bucket. */
static void test_overlap(void **state)
{
    tx_split_model m = make_model();
    tx_split_machine slow = machine;
    tx_split_figures f;
    const tx_split s = {2, 1, 1, 1, 1, 0, TX_PIPELINE_1F1B, 1, 1, 1, false, false};
    const double sum = LAYERS * 1e6 / 1e9;
    slow.host = 1;
    slow.rate = LAYERS / (0.75 * sum);                    /* the backward pass takes half of the time of the sum */
    for (int layers = 1; layers <= LAYERS; layers *= 2) { /* of a bucket */
        const double last = (double)layers / LAYERS;
        m.bucket = layers * 1e6;
        tx_split_predict(&m, &slow, &s, &f);
        near(f.term[TX_SPLIT_T_DATA], sum * last + (1.0 - last) * 0.5 * sum);
    }
}

/* The search takes it only between hosts of several ranks, and if it may. */
static void test_search(void **state)
{
    const tx_split_model m = make_model();
    tx_split_machine one_host = machine, apart = machine;
    tx_split_limits limits = {.devices = 16,
                              .tokens = 16 * MICRO * 8,
                              .tensor = 1,
                              .pipeline = 1,
                              .expert = 1,
                              .context = 1,
                              .batch = 1,
                              .zero = 3,
                              .again = 0,
                              .hybrid = -1};
    tx_split_search search;
    one_host.host = 16;
    apart.host = 1;
    tx_split_search_all(&m, &machine, &limits, &search);
    assert_int_equal(search.count, 2);
    assert_true(search.found[0].split.hybrid && !search.found[1].split.hybrid);
    tx_split_search_all(&m, &one_host, &limits, &search);
    assert_true(search.count == 1 && !search.found[0].split.hybrid);
    tx_split_search_all(&m, &apart, &limits, &search);
    assert_true(search.count == 1 && !search.found[0].split.hybrid);
    limits.hybrid = 0;
    tx_split_search_all(&m, &machine, &limits, &search);
    assert_true(search.count == 1 && !search.found[0].split.hybrid);
    limits.hybrid = 1;
    tx_split_search_all(&m, &machine, &limits, &search);
    assert_true(search.count == 1 && search.found[0].split.hybrid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_terms), cmocka_unit_test(test_overlap),
                                       cmocka_unit_test(test_search)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
