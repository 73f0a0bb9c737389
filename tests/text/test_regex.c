/* SPDX-License-Identifier: Apache-2.0
 * Regular expressions of tokenizer files: what is translated for PCRE2, and what is refused, by what it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/text/bpe.h"

/* The longest pattern of groups in each other that is translated, and one more. */
#define OPEN_30 "((((((((((((((((((((((((((((((" /* 30 */
#define CLOSE_30 "))))))))))))))))))))))))))))))"

static const struct {
    const char *pattern, *made;
} translated[] = {
    {"'s|'t| ?\\p{L}+", "'s|'t| ?\\p{L}+"},
    {"\\s+(?!\\S)", "\\p{White_Space}+(?!\\P{White_Space})"},
    {"[^\\s\\p{Lu}\\d]", "[^\\p{White_Space}\\p{Lu}\\p{Nd}]"},
    {"\\P{N}\\p{^N}\\p{Han}\\p{^Greek}", "\\P{N}\\p{^N}\\p{sc:Han}\\p{^sc:Greek}"},
    {"\\x41\\x{1F600}\\u00e9", "\\x{41}\\x{1F600}\\x{00e9}"},
    {"\\n\\r\\t\\f\\v\\D", "\\n\\r\\t\\f\\x{0B}\\P{Nd}"},
    {"\\.\\ \\\\\\]", "\\.\\ \\\\\\]"},
    {"a{2}b{2,}c{2,3}?", "a{2}b{2,}c{2,3}?"},
    {"(?i:'s)(?>a)(?<=b)(?<!c)(?=d)(e)", "(?i:'s)(?>a)(?<=b)(?<!c)(?=d)(e)"},
    {"(?i:\\p{N})\\p{Lu}", "(?i:\\p{N})\\p{Lu}"},
    {OPEN_30 "(a)" CLOSE_30, OPEN_30 "(a)" CLOSE_30},
};

static const struct {
    const char *pattern, *message;
    tx_status status;
} refused[] = {
    {"^a", "\"^\" is not supported", TX_UNSUPPORTED},
    {"a$", "\"$\" is not supported", TX_UNSUPPORTED},
    {"\\b", "\"\\b\" is not supported", TX_UNSUPPORTED},
    {"a\\", "\"\\\" is not supported", TX_UNSUPPORTED},
    {"\\pL", "\"\\pL\" is not supported", TX_UNSUPPORTED},
    {"\\p{L", "\"\\p{\" is not supported", TX_UNSUPPORTED},
    {"\\p{}", "\"\\p{\" is not supported", TX_UNSUPPORTED},
    {"\\p{a=b}", "\"\\p{a=b}\" is not supported", TX_UNSUPPORTED},
    {"(?i:\\p{Lu})", "\"\\p{Lu}\" is not supported", TX_UNSUPPORTED},
    {"\\x4", "\"\\x\" is not supported", TX_UNSUPPORTED},
    {"\\xe9", "\"\\xe9\" is not supported", TX_UNSUPPORTED},
    {"\\x{}", "\"\\x\" is not supported", TX_UNSUPPORTED},
    {"\\u12", "\"\\u\" is not supported", TX_UNSUPPORTED},
    {"[]a]", "\"[]\" is not supported", TX_UNSUPPORTED},
    {"[a[b]]", "\"[b\" is not supported", TX_UNSUPPORTED},
    {"[a&&b]", "\"&&\" is not supported", TX_UNSUPPORTED},
    {"[abc", "\"[abc\": ] is missing", TX_FORMAT},
    {"(?<name>a)", "\"(?<n\" is not supported", TX_UNSUPPORTED},
    {"(*FAIL)", "\"(*FA\" is not supported", TX_UNSUPPORTED},
    {"a{2}+", "\"{2}+\" is not supported", TX_UNSUPPORTED},
    {"a{2}?", "\"{2}?\" is not supported", TX_UNSUPPORTED},
    {"a{,2}", "is not supported", TX_UNSUPPORTED},
    {"a)", ") without (", TX_FORMAT},
    {OPEN_30 "((a))" CLOSE_30, "more than 31 groups in each other", TX_UNSUPPORTED},
    {"a\xff", "not UTF-8", TX_FORMAT},
    {"(a", "missing closing parenthesis", TX_UNSUPPORTED},
    {"\\p{Klingon}", "unknown property", TX_UNSUPPORTED},
    {"a*", "one that matches the empty text", TX_UNSUPPORTED},
};

static void translates(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof translated / sizeof translated[0]; i++) {
        char *made = NULL;
        bool compiled;
        pcre2_code *code = NULL;
        if (tx_regex_translate(translated[i].pattern, &made))
            fail_msg("%s: %s", translated[i].pattern, tx_error());
        assert_string_equal(made, translated[i].made);
        if (tx_regex_compile(made, &code, &compiled))
            fail_msg("%s: %s", translated[i].pattern, tx_error());
        pcre2_code_free(code);
        free(made);
    }
}

static void refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char *made = NULL;
        bool compiled;
        pcre2_code *code = NULL;
        tx_status status = tx_regex_translate(refused[i].pattern, &made);
        if (!status)
            status = tx_regex_compile(made, &code, &compiled);
        if (status != refused[i].status || !strstr(tx_error(), refused[i].message))
            fail_msg("%s: status %d, %s", refused[i].pattern, (int)status, tx_error());
        free(made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(translates), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
