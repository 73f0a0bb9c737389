/* SPDX-License-Identifier: Apache-2.0
 * Blocks of small integers against ggml: hashes of the bytes that its reference quantizers write for numbers made here,
 * with and without importance of columns, and of the values that it reads from them (llama-cpp-python 0.3.36, built
 * without contracted multiply-adds). Numbers at the edges of what blocks hold. */
#include "api/base/blocks.h"
#include "api/base/hash.h"
#include "tests/unit.h"

#define ROWS 4
#define WIDTH 512

/* splitmix64 (Steele, Lea and Flood, 2014). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* About normal, of sub-blocks of many sizes with zeros between them, of one sign and constant, and with heavy tails. */
static float value_of(int row, int i, double s)
{
    if (row == 0)
        return (float)ldexp(s, -20);
    if (row == 1)
        return (i >= 48 && i < 64) || (i >= 128 && i < 160) || i >= 480 ? 0.0f
                                                                        : (float)ldexp(s, -(14 + 5 * (i / 16) % 13));
    if (row == 3)
        return (float)ldexp(s * s * s, -53);
    return (float)(i < 256   ? ldexp(fabs(s) + 4096, -20)
                   : i < 384 ? ldexp(floor(s / 16384), -5)
                   : i < 416 ? 0.0625
                   : i < 448 ? -0.0625
                             : -ldexp(fabs(s), -22));
}

static void fill(float x[ROWS * WIDTH], float v[WIDTH])
{
    uint64_t state = 1;
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const uint64_t z = next(&state);
        const double s = (double)((z & 65535) + (z >> 16 & 65535) + (z >> 32 & 65535) + (z >> 48)) - 131070;
        x[i] = value_of(i / WIDTH, i % WIDTH, s);
    }
    state = 2;
    for (int i = 0; i < WIDTH; i++) {
        v[i] = (float)ldexp((double)(next(&state) & 65535) + 1, i % 61 == 0 ? -6 : -12);
        if ((i >= 96 && i < 112) || (i >= 256 && i < 288))
            v[i] = 0.0f;
    }
}

static const struct {
    int64_t values, bytes;
    void (*write)(const float *x, const float *v, int64_t count, uint8_t *to);
    void (*read)(const uint8_t *b, float *restrict to);
} types[] = {
#define X(name, number, values, bytes, lower) {values, bytes, tx_block_write_##lower, tx_block_read_##lower},
    TX_BLOCK_MAP(X) TX_BLOCK_FILE_MAP(X)
#undef X
};
#define TYPES ((int)(sizeof types / sizeof types[0]))

/* Of bytes, of bytes with importance, of values. */
static const struct {
    const char *name;
    uint64_t plain, weighted, values;
} hashes[TYPES] = {
    {"q4_0", UINT64_C(0x67ba0ee7a2abb5ee), UINT64_C(0xd6f9280e92382b4b), UINT64_C(0xc2e9061cd2a17d1b)},
    {"q8_0", UINT64_C(0xe2dea5cc583ed6fb), UINT64_C(0xe2dea5cc583ed6fb), UINT64_C(0x2e26570ea5086796)},
    {"q4_k", UINT64_C(0xc0fd1a2b70a84be5), UINT64_C(0x725065ca32d7ddf), UINT64_C(0xd1c1852217cc540e)},
    {"q6_k", UINT64_C(0x8e83afb6387f60b8), UINT64_C(0x49b8d43e8fe3a63f), UINT64_C(0x6ed497f613be93aa)},
    {"q4_1", UINT64_C(0x1f57050a9997423d), UINT64_C(0x6bf85cb1963ee6f0), UINT64_C(0xd9090eaf9a7e0ac)},
    {"q5_0", UINT64_C(0x851d4ce0564217d1), UINT64_C(0x4c2ef6261e996bb7), UINT64_C(0xc81bd137e43c91ff)},
    {"q5_1", UINT64_C(0xa89bbd3d5c6ca14f), UINT64_C(0xdd0c380721ce430f), UINT64_C(0xcff1a71bacae7aef)},
    {"q2_k", UINT64_C(0x95b217654b32c52d), UINT64_C(0xfc69d89d95aedd7e), UINT64_C(0xf899fb8bf73b0aeb)},
    {"q3_k", UINT64_C(0x21b03055f8905d21), UINT64_C(0xca5c430198f9f3ba), UINT64_C(0x8eab366ad4de0441)},
    {"q5_k", UINT64_C(0xe491c35faaf15a52), UINT64_C(0x6a8430a8ed219602), UINT64_C(0xfe6ea6a50f282cb6)},
    {"iq4_nl", UINT64_C(0x1fb1757dbcb54685), UINT64_C(0x8f5b964e8cb761b), UINT64_C(0x860a244863ad804f)},
    {"iq4_xs", UINT64_C(0x36750ce2e6227158), UINT64_C(0xd38370f9e7412273), UINT64_C(0xa0b3481175fc6688)},
    {"mxfp4", UINT64_C(0x368777bd8c1fe2ed), UINT64_C(0x368777bd8c1fe2ed), UINT64_C(0xed601078c452edf7)},
};

static void read_all(int t, const uint8_t *bytes, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i += types[t].values, bytes += types[t].bytes)
        types[t].read(bytes, to + i);
}

static void test_bytes(void **state)
{
    static float x[ROWS * WIDTH], v[WIDTH], back[ROWS * WIDTH];
    static uint8_t plain[ROWS * WIDTH * 2], weighted[ROWS * WIDTH * 2];
    fill(x, v);
    assert_true(tx_hash(TX_HASH_START, x, sizeof x) == UINT64_C(0x1c697bf0f2356e0b));
    assert_true(tx_hash(TX_HASH_START, v, sizeof v) == UINT64_C(0xcce8694115faffb3));
    for (int t = 0; t < TYPES; t++) {
        const int64_t run = WIDTH / types[t].values * types[t].bytes;
        for (int row = 0; row < ROWS; row++) {
            types[t].write(x + row * WIDTH, NULL, WIDTH, plain + row * run);
            types[t].write(x + row * WIDTH, v, WIDTH, weighted + row * run);
        }
        read_all(t, plain, ROWS * WIDTH, back);
        if (tx_hash(TX_HASH_START, plain, (size_t)(ROWS * run)) != hashes[t].plain)
            fail_msg("%s: other bytes than ggml's", hashes[t].name);
        if (tx_hash(TX_HASH_START, weighted, (size_t)(ROWS * run)) != hashes[t].weighted)
            fail_msg("%s: other bytes than ggml's with importance", hashes[t].name);
        if (tx_hash(TX_HASH_START, back, sizeof back) != hashes[t].values)
            fail_msg("%s: other values than ggml's", hashes[t].name);
    }
}

/* Zeros, constants, tiny, huge, one outlier: values come back finite, and within the step of the coarsest type. */
static void test_edges(void **state)
{
    static const float sizes[] = {0.0f, 1e-38f, 1e-20f, 1.0f, 6e4f};
    float x[256], v[256], back[256];
    uint8_t bytes[512];
    for (int t = 0; t < TYPES; t++)
        for (int c = 0; c < 30; c++) {
            const float size = sizes[c % 5];
            for (int i = 0; i < 256; i++) {
                x[i] = c / 5 % 3 == 0   ? size
                       : c / 5 % 3 == 1 ? size * (float)(i % 7 - 3) / 3.0f
                       : i == 77        ? -size
                                        : 0.0f;
                v[i] = c < 15 ? 0.0f : 1.0f; /* also columns that were never active */
            }
            types[t].write(x, c < 15 && c % 2 ? NULL : v, 256, bytes);
            read_all(t, bytes, 256, back);
            for (int i = 0; i < 256; i++) {
                const bool exact = size > 1e-3f && (c >= 15 || c % 2);
                if (!isfinite(back[i]) || (exact && !(fabsf(back[i] - x[i]) <= 0.5f * size)))
                    fail_msg("%s, case %d, value %d: %g for %g", hashes[t].name, c, i, (double)back[i], (double)x[i]);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes), cmocka_unit_test(test_edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
