/* SPDX-License-Identifier: Apache-2.0
 * The types of tensors in quantized files against those of llama.cpp's quantizer (llama-cpp-python 0.3.36), which
 * converted files of the same shapes. */
#include "models/gguf/gguf_mix.h"
#include "tests/unit.h"

/* A letter for each type. */
static char letter_of(tx_gguf_dtype dtype)
{
    static const char letters[TX_GGUF_DTYPES] = {
        [TX_GGUF_F32] = 'f',  [TX_GGUF_F16] = 'h',    [TX_GGUF_BF16] = 'o',   [TX_GGUF_Q2_K] = '2',
        [TX_GGUF_Q3_K] = '3', [TX_GGUF_Q4_K] = '4',   [TX_GGUF_Q5_K] = '5',   [TX_GGUF_Q6_K] = '6',
        [TX_GGUF_Q8_0] = '8', [TX_GGUF_Q4_0] = 'a',   [TX_GGUF_Q4_1] = 'b',   [TX_GGUF_Q5_0] = 'c',
        [TX_GGUF_Q5_1] = 'd', [TX_GGUF_IQ4_NL] = 'n', [TX_GGUF_IQ4_XS] = 'x', [TX_GGUF_MXFP4] = 'm'};
    return letters[dtype];
}

static const struct {
    tx_gguf_model model;
    int64_t width, inner;
} llama = {{.architecture = "llama", .layers = 12, .heads = 8, .kv_heads = 2, .values = 12}, 256, 512},
  mixtral = {{.architecture = "llama", .layers = 16, .heads = 8, .kv_heads = 2, .experts = 8, .values = 16}, 256, 256},
  large = {{.architecture = "llama", .layers = 80, .heads = 8, .kv_heads = 1, .values = 80}, 256, 256},
  falcon = {{.architecture = "falcon", .layers = 32, .heads = 4, .kv_heads = 1, .values = 32, .tied = true}, 256, 1024},
  narrow = {{.architecture = "qwen3", .layers = 33, .heads = 4, .kv_heads = 2, .values = 33}, 160, 512};

/* The type of "blk.LAYER.NAME.weight". */
static char type_in(const tx_gguf_model *m, tx_convert_type type, const char *name, int64_t layer, int64_t width)
{
    char full[64];
    const bool experts = m->experts && strstr(name, "ffn");
    snprintf(full, sizeof full, "blk.%d.%s%s.weight", (int)layer, name, experts ? "_exps" : "");
    const tx_gguf_tensor t = {full, TX_GGUF_F32, experts ? 3 : 2, {64, experts ? 64 : width, width}};
    return letter_of(tx_gguf_choose(m, type, &t, (int32_t)layer));
}

static void compare(const tx_gguf_model *m, int64_t width, int64_t inner, tx_convert_type type, const char *tables,
                    const char *each, const char *values, const char *down)
{
    static const char *const names[] = {"attn_q", "attn_k", "attn_output", "ffn_up"};
    const tx_gguf_tensor table = {"token_embd.weight", TX_GGUF_F32, 2, {257, width}};
    const tx_gguf_tensor head = {"output.weight", TX_GGUF_F32, 2, {257, width}};
    assert_int_equal(letter_of(tx_gguf_choose(m, type, &table, 0)), tables[0]);
    if (!m->tied)
        assert_int_equal(letter_of(tx_gguf_choose(m, type, &head, 0)), tables[1]);
    for (int i = 0; i < 4; i++)
        if (each[i] != '-')
            assert_int_equal(type_in(m, type, names[i], 0, width), each[i]);
    for (int64_t i = 0; i < m->layers; i++) {
        assert_int_equal(type_in(m, type, each[0] == '-' ? "attn_qkv" : "attn_v", i, width), values[i]);
        assert_int_equal(type_in(m, type, "ffn_down", i, inner), down[i]);
    }
}

#define COMPARE(of, type, ...) compare(&(of).model, (of).width, (of).inner, TX_CONVERT_##type, __VA_ARGS__)

static void test_mixes(void **state)
{
    static const char fives[] = "55555555555555555555555555555555555555555555555555555555555555555555555555555555",
                      threes[] = "33333333333333333333333333333333333333333333333333333333333333333333333333333333";
    COMPARE(llama, Q4_K_M, "46", "4444", "644644644666", "644644644666");
    COMPARE(llama, Q3_K_M, "36", "3343", "554444444444", "444444444444");
    COMPARE(llama, IQ4_XS, "x6", "xxxx", "555555555555", "5xxxxxxxxxxx");
    COMPARE(mixtral, Q4_K_M, "46", "4854", "8888888888888888", "6644644644644666");
    COMPARE(mixtral, Q3_K_L, "36", "3833", "8888888888888888", "5555555555555555");
    COMPARE(mixtral, MXFP4_MOE, "88", "888m", "8888888888888888", "mmmmmmmmmmmmmmmm");
    COMPARE(large, Q2_K, "26", "2232", fives, threes);
    COMPARE(large, Q4_K_M, "46", "4444",
            "66666666665565565565565565565565565565565565565565565565565565565565566666666666",
            "66666666664464464464464464464464464464464464464464464464464464464464466666666666");
    COMPARE(falcon, Q3_K_M, "8-", "--33", "55444444444444444444444444444444", "55443343343343343343343343344444");
    COMPARE(falcon, Q4_K_M, "8-", "--44", "66664464464464464464464464466666", "66554454454454454454454454455555");
    COMPARE(narrow, Q5_K_M, "d8", "dddd", "8888dd8dd8dd8dd8dd8dd8dd8dd888888", "666655655655655655655655655666666");
    COMPARE(narrow, Q4_K_M, "c8", "cccc", "8888cc8cc8cc8cc8cc8cc8cc8cc888888", "666644644644644644644644644666666");
}

/* Tensors that stay F32, rows that are no blocks, and a rule that depends on importance. */
static void test_exceptions(void **state)
{
    static const char *const plain[] = {"blk.0.attn_norm.weight",      "position_embd.weight",
                                        "blk.3.ffn_gate_inp.weight",   "blk.0.attn_q_norm.weight",
                                        "enc.blk.0.attn_rel_b.weight", "blk.0.shortconv.conv.weight",
                                        "blk.1.ssm_conv1d.weight"};
    tx_gguf_model model = llama.model;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        const tx_gguf_tensor t = {plain[i], TX_GGUF_F32, i == 0 ? 1 : 2, {256, 256}};
        assert_int_equal(tx_gguf_choose(&model, TX_CONVERT_Q4_K_M, &t, 0), TX_GGUF_F32);
    }
    assert_int_equal(type_in(&model, TX_CONVERT_Q4_K_M, "attn_q", 0, 48), 'h');
    assert_int_equal(type_in(&model, TX_CONVERT_BF16, "attn_q", 0, 48), 'o');
    assert_int_equal(type_in(&model, TX_CONVERT_Q4_0, "ffn_down", 0, 512), 'a');
    model.weighted = true;
    assert_int_equal(type_in(&model, TX_CONVERT_Q4_0, "ffn_down", 0, 512), 'b');
    assert_int_equal(type_in(&model, TX_CONVERT_IQ4_XS, "ffn_down", 0, 512), 'x');
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mixes), cmocka_unit_test(test_exceptions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
