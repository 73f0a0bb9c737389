/* SPDX-License-Identifier: Apache-2.0
 * UTF-8: every code, every short sequence of bytes, and the replacement of invalid bytes; normal forms. */
#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"
#include "tests/scratch.h"

#include <time.h>

static void test_codes(void **state)
{
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        char text[TX_UTF8_MAX + 1] = "";
        uint32_t back = 0;
        size_t size = tx_utf8_write(code, text);
        size_t wanted = code >= 0xD800 && code <= 0xDFFF ? 0 : size;
        if (tx_utf8_read(text, size, &back) != wanted || (wanted && back != code))
            fail_msg("U+%04X is not read back", code);
        if (size > 1 && tx_utf8_read(text, size - 1, NULL) != 0)
            fail_msg("U+%04X is read though it is cut off", code);
        if (wanted && tx_utf8_read_last(text, size, &back) != size)
            fail_msg("U+%04X is not found at the end", code);
        if (tx_utf8_prefix(text, size) != wanted)
            fail_msg("U+%04X is no prefix", code);
    }
}

/* The number of valid sequences of up to three bytes is the number of codes below U+10000. */
static void test_sequences(void **state)
{
    size_t found[TX_UTF8_MAX + 1] = {0};
    for (uint32_t i = 0; i < 1 << 24; i++) {
        char text[3] = {(char)(i >> 16), (char)(i >> 8), (char)i};
        found[tx_utf8_read(text, 3, NULL)]++;
    }
    assert_int_equal(found[1], 0x80 << 16);
    assert_int_equal(found[2], (0x800 - 0x80) << 8);
    assert_int_equal(found[3], 0x10000 - 0x800 - 0x800);
    assert_int_equal(found[4], 0);
    assert_int_equal(tx_utf8_read("\xF4\x90\x80\x80", 4, NULL), 0);
    assert_int_equal(tx_utf8_read("\xF0\x8F\xBF\xBF", 4, NULL), 0);
}

static void test_prefix(void **state)
{
    char text[64];
    for (size_t bad = 0; bad < sizeof text; bad++) {
        memset(text, 'a', sizeof text);
        text[bad] = '\xFF';
        assert_int_equal(tx_utf8_prefix(text, sizeof text), bad);
    }
    memset(text, 'a', sizeof text);
    for (size_t size = 0; size <= sizeof text; size++)
        assert_int_equal(tx_utf8_prefix(text, size), size);
}

static void test_replace(void **state)
{
#define MARK "\xEF\xBF\xBD"
    static const char *const cases[][2] = {
        {"", ""},
        {"a\xC3\xA9", "a\xC3\xA9"},
        {"\xFF\xFE", MARK MARK},
        {"\xE4\xB8", MARK}, /* the beginning of a character: one mark */
        {"\xE4\xB8z", MARK "z"},
        {"\xF0\x9F\x98\xF0\x9F\x98\x80", MARK "\xF0\x9F\x98\x80"},
        {"\xED\xA0\x80", MARK MARK MARK},
        {"\xC0\xAF", MARK MARK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *made;
        size_t size;
        assert_ok(tx_utf8_replace(cases[i][0], strlen(cases[i][0]), &made, &size));
        assert_string_equal(made, cases[i][1]);
        assert_int_equal(size, strlen(made));
        free(made);
    }
}

/* Normal forms of characters, and of a run of marks as long as a line can be, which must not take quadratic time. */
static void test_forms(void **state)
{
    static const struct {
        tx_unicode_form form;
        const char *text, *wanted;
    } cases[] = {
        {TX_NFC, "ascii", "ascii"},
        {TX_NFC, "e\xCC\x81\xE2\x84\xAB", "\xC3\xA9\xC3\x85"},
        {TX_NFD, "\xEA\xB0\x81\xC3\xA9",
         "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"
         "e\xCC\x81"},
        {TX_NFC, "\xEF\xAC\x81", "\xEF\xAC\x81"},
        {TX_NFKC, "\xEF\xAC\x81", "fi"},
        {TX_NFKD, "\xE1\xBA\x9B\xCC\xA3", "s\xCC\xA3\xCC\x87"},
        {TX_NFKC, "\xE1\xBA\x9B\xCC\xA3", "\xE1\xB9\xA9"},
        {TX_NFC, "", ""},
    };
    tx_buffer out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        out.size = 0;
        tx_unicode_normalize(cases[i].form, cases[i].text, strlen(cases[i].text), &out);
        assert_ok(out.status);
        assert_int_equal(out.size, strlen(cases[i].wanted));
        assert_true(out.size == 0 || memcmp(out.data, cases[i].wanted, out.size) == 0);
    }
    enum { RUN = 100000 };
    char *text = malloc(4 * RUN);
    for (size_t i = 0; i < RUN; i++)
        memcpy(text + 4 * i, "\xCC\x81\xCC\xA3", 4);
    out.size = 0;
    const clock_t start = clock();
    tx_unicode_normalize(TX_NFD, text, 4 * RUN, &out);
    assert_ok(out.status);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 1);
    assert_int_equal(out.size, 4 * RUN);
    for (size_t i = 0; i < 2 * RUN; i++)
        assert_memory_equal(out.data + 2 * i, i < RUN ? "\xCC\xA3" : "\xCC\x81", 2);
    free(text);
    free(out.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),   cmocka_unit_test(test_sequences), cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_replace), cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
