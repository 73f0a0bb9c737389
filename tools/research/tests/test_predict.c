/* SPDX-License-Identifier: Apache-2.0
 * Tests the performance model of products: properties that hold for any figures, and cards on which the kernels should
 * reach their aims. */
#include "tests/unit.h"

#include "tools/research/predict.h"

#include <math.h>
#include <string.h>

static const tx_card *card_of(const char *id)
{
    const tx_card *card;
    for (int i = 0; (card = tx_card_at(i)) != NULL; i++)
        if (strcmp(card->id, id) == 0)
            return card;
    fail_msg("no card %s", id);
    return NULL;
}

/* No rate exceeds the peak of the units, larger products take longer, and memory traffic is at most cache traffic. */
static void test_bounds(void **state)
{
    const tx_card *card;
    for (int i = 0; (card = tx_card_at(i)) != NULL; i++)
        for (int type = 0; type < TX_OPERAND_KINDS; type++)
            for (int transposes = 0; transposes < 4; transposes++) {
                double before = 0.0;
                for (int64_t size = 128; size <= 8192; size *= 2) {
                    const tx_predicted p = tx_predict_product(card, (tx_operands)type, transposes & 1, transposes & 2,
                                                              size, size, size, TX_EPILOGUE_NONE);
                    const double most = fmax(fmax(card->half, card->tf32), fmax(card->simt, card->fp32));
                    assert_true(p.seconds > before && p.seconds < INFINITY);
                    assert_true(p.tflops > 0.0 && p.tflops <= 1e-3 * most * card->units * card->ghz);
                    before = p.seconds;
                    if (strcmp(p.bound, "assumed") == 0)
                        continue;
                    const double all = 3.0 * (double)(size * size); /* elements */
                    assert_true(p.moved >= 2.0 * all && p.moved <= p.cached + 4.0 * all / 3.0);
                }
            }
}

/* With few tiles some units are idle, and with few terms prologues are not hidden. */
static void test_small(void **state)
{
    const tx_card *card = card_of("h200");
    const tx_predicted large = tx_predict_product(card, TX_IN_BF16, false, false, 8192, 8192, 8192, TX_EPILOGUE_NONE);
    const tx_predicted tiles = tx_predict_product(card, TX_IN_BF16, false, false, 256, 256, 512, TX_EPILOGUE_NONE);
    const tx_predicted terms = tx_predict_product(card, TX_IN_BF16, false, false, 8192, 8192, 64, TX_EPILOGUE_NONE);
    assert_true(tiles.tflops < 0.1 * large.tflops);
    assert_true(terms.tflops < 0.5 * large.tflops);
    assert_string_equal(tiles.bound, "waves");
    const tx_predicted many = tx_predict_product(card, TX_IN_BF16, true, false, 768, 768, 16384, TX_EPILOGUE_NONE);
    assert_true(many.parts > 1);
}

/* Copies of a single resident group are not hidden, unless several blocks are copied at a time. */
static void test_latency(void **state)
{
    const tx_card *mi300x = card_of("mi300x"), *rtx4090 = card_of("rtx4090");
    assert_true(tx_card_held(mi300x, 256.0, 148.0, 40960.0) == 1.0 &&
                tx_card_held(mi300x, 256.0, 148.0, 32768.0) == 2.0);
    assert_true(tx_card_held(rtx4090, 256.0, 240.0, 98304.0) == 1.0 &&
                tx_card_held(rtx4090, 128.0, 240.0, 49152.0) == 2.0);
    assert_true(tx_card_held(rtx4090, 1024.0, 255.0, 262144.0) == 1.0);
    const tx_predicted one =
        tx_predict_provider(rtx4090, "nvidia-mma-128x256", TX_IN_BF16, false, true, 4096, 4096, 4096, TX_EPILOGUE_NONE);
    const tx_predicted two =
        tx_predict_provider(rtx4090, "nvidia-mma-128x128", TX_IN_BF16, false, true, 4096, 4096, 4096, TX_EPILOGUE_NONE);
    assert_string_equal(one.bound, "latency");
    assert_true(one.clocks[TX_ROUND_LATENCY] >= one.clocks[TX_ROUND_UNITS] + 2.0 * TX_ROUND_CLOCKS);
    assert_true(two.clocks[TX_ROUND_LATENCY] < two.clocks[TX_ROUND_UNITS]);
}

/* The epilogues GELU and its gradient take time, but at most half as much again on cards that are bound by the cache.
 */
static double epilogue_seconds(const char *provider, tx_epilogue epilogue, bool trans_b)
{
    return tx_predict_provider(card_of("h200"), provider, TX_IN_BF16, false, trans_b, 16384, 3072, 768, epilogue)
        .seconds;
}

/* Epilogues take time unless they run while the next tile is multiplied. */
static void test_epilogues(void **state)
{
    static const tx_epilogue epilogues[] = {TX_EPILOGUE_GELU, TX_EPILOGUE_GELU_GRAD};
    for (int i = 0; i < 2; i++) {
        const double plain = epilogue_seconds("nvidia-wgmma-128x256", TX_EPILOGUE_NONE, i == 1),
                     more = epilogue_seconds("nvidia-wgmma-128x256", epilogues[i], i == 1),
                     overlap = epilogue_seconds("nvidia-wgmma-overlap-128x256", epilogues[i], i == 1);
        print_message("%.3f ms, with epilogue %d %.3f, overlapping %.3f\n", 1e3 * plain, (int)epilogues[i], 1e3 * more,
                      1e3 * overlap);
        assert_true(more > 1.02 * plain && more < 1.5 * plain && overlap < plain);
    }
}

/* Products of size 8192 reach 95 % of the aim. fp32 by three products of tf32 is faster if tf32 is more than three
 * times as fast as fp32. */
static void test_aims(void **state)
{
    static const char *const reaching[] = {"h200", "a100", "mi300x", "rx7900xtx"};
    for (size_t i = 0; i < sizeof reaching / sizeof reaching[0]; i++) {
        const tx_card *card = card_of(reaching[i]);
        const tx_predicted p = tx_predict_product(card, TX_IN_BF16, false, true, 8192, 8192, 8192, TX_EPILOGUE_NONE);
        print_message("%s %s: %.0f TFLOP/s of %.0f, bound by %s\n", card->id, p.provider, p.tflops, card->aim, p.bound);
        assert_true(p.tflops >= 0.95 * card->aim);
    }
    assert_true(
        tx_predict_product(card_of("h200"), TX_IN_BF16, false, false, 4096, 4096, 4096, TX_EPILOGUE_NONE).tflops >=
        600.0);
    for (int64_t size = 4096; size <= 8192; size *= 2) /* products without wgmma */
        for (int transposes = 0; transposes < 3; transposes++) {
            const tx_predicted p =
                tx_predict_provider(card_of("h200"), "nvidia-mma-128x256", TX_IN_BF16, transposes == 2, transposes == 1,
                                    size, size, size, TX_EPILOGUE_NONE);
            print_message("h200 %s: %.0f TFLOP/s, bound by %s\n", p.provider, p.tflops, p.bound);
            assert_true(p.tflops >= 450.0 && p.tflops <= 613.0); /* 612 is measured in a loop of registers */
        }
    assert_string_equal(
        tx_predict_product(card_of("a100"), TX_IN_FP32, false, false, 8192, 8192, 8192, TX_EPILOGUE_NONE).provider,
        "nvidia-mma-3xtf32");
    const char *planes[] = {"nvidia-wgmma-6xbf16", "nvidia-wgmma-3xbf16"};
    for (int i = 0; i < 2; i++) { /* the 758 TFLOP/s of wgmma, by six or three products */
        const tx_predicted p = tx_predict_provider(card_of("h100"), planes[i], i ? TX_IN_TF32 : TX_IN_FP32, false, true,
                                                   16384, 3072, 3072, TX_EPILOGUE_NONE);
        print_message("h100 %s: %.0f TFLOP/s, bound by %s\n", p.provider, p.tflops, p.bound);
        assert_true(p.tflops >= (i ? 180.0 : 90.0) && p.tflops <= 758.0 / (i ? 3.0 : 6.0));
    }
    assert_string_equal(
        tx_predict_product(card_of("h100"), TX_IN_FP32, false, true, 16384, 3072, 3072, TX_EPILOGUE_NONE).provider,
        planes[0]);
    assert_string_equal(
        tx_predict_product(card_of("rtx4090"), TX_IN_FP32, false, false, 8192, 8192, 8192, TX_EPILOGUE_NONE).provider,
        "portable-tile-128x128x8");
    assert_string_equal(
        tx_predict_product(card_of("a770"), TX_IN_FP32, false, false, 4096, 4096, 4096, TX_EPILOGUE_NONE).bound,
        "assumed");
}

/* Attention of GPT-2 124M by matrix units never exceeds their peak, takes longer for more tokens, and reaches at least
 * 300 TFLOP/s forward and 200 backward on an H200. */
static void test_attention(void **state)
{
    const tx_card *card;
    double seconds[TX_ATTENTION_GRAD_KV + 1] = {0.0};
    for (int i = 0; (card = tx_card_at(i)) != NULL; i++)
        for (int pass = TX_ATTENTION_FORWARD; pass <= TX_ATTENTION_GRAD_KV; pass++) {
            double before = 0.0;
            for (int64_t tokens = 128; tokens <= 4096; tokens *= 2) {
                const tx_attention_shape shape = {16, tokens, 12, 64, true};
                tx_predicted_attention p;
                assert_true(tx_predict_attention(card, (tx_attention_pass)pass, &shape, &p));
                assert_true(p.seconds > before && p.seconds < INFINITY);
                assert_true(p.tflops > 0.0 && p.tflops <= 1e-3 * card->half * card->units * card->ghz);
                before = p.seconds;
                if (tokens == 1024 && card == card_of("h200"))
                    seconds[pass] = p.seconds;
            }
        }
    const double forward = 4e-12 * 16.0 * 12.0 * 64.0 * 1024.0 * 512.5; /* 10^12 floating-point operations */
    assert_true(forward / seconds[TX_ATTENTION_FORWARD] >= 300.0);
    assert_true(2.5 * forward / (seconds[TX_ATTENTION_GRAD_Q] + seconds[TX_ATTENTION_GRAD_KV]) >= 200.0);
}

/* Measured speeds reproduce the products of GPT-2 124M on the H100 (microseconds, of 16 rows of 1024 tokens) within a
 * sixth, and their sum within 5 %. */
static void test_measured(void **state)
{
    static const struct {
        int64_t m, n, k;
        tx_epilogue epilogue;
        bool bias, fp32;
        double measured;
    } products[] = {
        {16384, 2304, 768, TX_EPILOGUE_NONE, true, false, 142},
        {16384, 768, 768, TX_EPILOGUE_ADD, true, true, 103},
        {16384, 3072, 768, TX_EPILOGUE_GELU, true, false, 231},
        {16384, 768, 3072, TX_EPILOGUE_ADD, true, true, 166},
        {16384, 3072, 768, TX_EPILOGUE_GELU_GRAD, false, false, 337},
        {16384, 768, 3072, TX_EPILOGUE_NONE, false, false, 118},
        {16384, 768, 768, TX_EPILOGUE_NONE, false, false, 40},
        {16384, 768, 2304, TX_EPILOGUE_NONE, false, false, 91},
        {768, 3072, 16384, TX_EPILOGUE_NONE, false, true, 153},
        {3072, 768, 16384, TX_EPILOGUE_NONE, false, true, 160},
        {768, 2304, 16384, TX_EPILOGUE_NONE, false, true, 103},
        {768, 768, 16384, TX_EPILOGUE_NONE, false, true, 48},
    };
    double predicted = 0.0, measured = 0.0;
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        tx_command c = {.op = TX_OP_MATMUL, .attrs = {.epilogue = products[i].epilogue}};
        for (int k = 0; k < TX_MAX_IN; k++)
            c.in[k].dtype = TX_DTYPE_COUNT;
        c.in[0] = (tx_operand){.dtype = TX_BF16, .shape = TX_SHAPE(products[i].m, products[i].k)};
        c.in[1] = (tx_operand){.dtype = TX_BF16, .shape = TX_SHAPE(products[i].k, products[i].n)};
        c.in[2].dtype = products[i].bias ? TX_BF16 : TX_DTYPE_COUNT;
        c.out[0] =
            (tx_operand){.dtype = products[i].fp32 ? TX_F32 : TX_BF16, .shape = TX_SHAPE(products[i].m, products[i].n)};
        double seconds, whole, overlap;
        assert_true(tx_measured_seconds(card_of("h100"), "guarded", &c, &seconds));
        assert_true(tx_measured_seconds(card_of("h100"), "whole", &c, &whole));
        assert_true(tx_measured_seconds(card_of("h100"), "overlap", &c, &overlap));
        assert_true(overlap <= whole && whole <= seconds &&
                    fabs(1e6 * seconds / products[i].measured - 1.0) < 1.0 / 6.0);
        assert_false(tx_measured_seconds(card_of("a100"), "guarded", &c, &seconds));
        predicted += 1e6 * seconds;
        measured += products[i].measured;
    }
    print_message("%.0f us of products for %.0f measured\n", predicted, measured);
    assert_true(fabs(predicted / measured - 1.0) < 0.05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),    cmocka_unit_test(test_small), cmocka_unit_test(test_latency),
        cmocka_unit_test(test_epilogues), cmocka_unit_test(test_aims),  cmocka_unit_test(test_measured),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
