/* SPDX-License-Identifier: Apache-2.0
 * Regular expressions of tokenizer files: the translation for PCRE2, and refusals with their messages. */
#include "models/tokenizer/regex.h"
#include "tests/scratch.h"

#include <time.h>

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
    {"^a$", "(?:\\A|(?<=\\n)(?!\\z))a(?=\\n|\\z)"},
    {"[^(\\s|[.,]c[)]]", "[^(\\p{White_Space}|.,c)]"},
    {"[\\p{L}&&[^\\p{Han}]]+", "(?:(?=[\\p{L}])(?=[^\\p{sc:Han}])\\p{Any})+"},
    {"[^[^\\s]&&a-z[0-9]]", "(?:(?!(?=[^\\p{White_Space}])(?=[a-z0-9]))\\p{Any})"},
    {"\\Aa\\z|b\\Z[$^]", "\\Aa\\z|b\\Z[$^]"},
    {OPEN_30 "(a)" CLOSE_30, OPEN_30 "(a)" CLOSE_30},
};

static const struct {
    const char *pattern, *message;
    tx_status status;
} refused[] = {
    {"^", "one that matches the empty text", TX_UNSUPPORTED},
    {"[\\A]", "\"\\A\" is not supported", TX_UNSUPPORTED},
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
    {"[a[^b]]", "\"[^\" is not supported", TX_UNSUPPORTED},
    {"[a[b[c]]]", "\"[c\" is not supported", TX_UNSUPPORTED},
    {"[a-[b]]", "\"[b\" is not supported", TX_UNSUPPORTED},
    {"[[a]-c]", "\"]-\" is not supported", TX_UNSUPPORTED},
    {"[a[b]", "] is missing", TX_FORMAT},
    {"[a[b&&c]]", "\"&&\" is not supported", TX_UNSUPPORTED},
    {"[a&&]", "\"[a&&]\" is not supported", TX_UNSUPPORTED},
    {"[a&&[^b]c]", "is not supported", TX_UNSUPPORTED},
    {"[abc", "\"[abc\": ] is missing", TX_FORMAT},
    {"(?<name>a)", "\"(?<n\" is not supported", TX_UNSUPPORTED},
    {"(*FAIL)", "\"(*FA\" is not supported", TX_UNSUPPORTED},
    {"a{2}+", "\"{2}+\" is not supported", TX_UNSUPPORTED},
    {"a{2}?", "\"{2}?\" is not supported", TX_UNSUPPORTED},
    {"a{,2}", "is not supported", TX_UNSUPPORTED},
    {"a)", ") without (", TX_FORMAT},
    {OPEN_30 "((a))" CLOSE_30, "more than 31 nested groups", TX_UNSUPPORTED},
    {"a\xff", "not UTF-8", TX_FORMAT},
    {"(a", "missing closing parenthesis", TX_UNSUPPORTED},
    {"\\p{Klingon}", "unknown property", TX_UNSUPPORTED},
    {"a*", "one that matches the empty text", TX_UNSUPPORTED},
};

static void translates(void **state)
{
    for (size_t i = 0; i < sizeof translated / sizeof translated[0]; i++) {
        char *made = NULL;
        tx_regex regex = {0};
        if (tx_regex_translate(translated[i].pattern, &made))
            fail_msg("%s: %s", translated[i].pattern, tx_error());
        assert_string_equal(made, translated[i].made);
        if (tx_regex_compile(made, &regex))
            fail_msg("%s: %s", translated[i].pattern, tx_error());
        tx_regex_close(&regex);
        free(made);
    }
}

static void refuses(void **state)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char *made = NULL;
        tx_regex regex = {0};
        tx_status status = tx_regex_translate(refused[i].pattern, &made);
        TX_THEN(status, tx_regex_compile(made, &regex));
        if (status != refused[i].status || !strstr(tx_error(), refused[i].message))
            fail_msg("%s: status %d, %s", refused[i].pattern, (int)status, tx_error());
        free(made);
    }
}

/* The matches of an expression in `count` times a text, one after the other. */
static tx_status match_all(const char *pattern, const char *text, size_t count, size_t *matches)
{
    tx_regex regex;
    tx_matcher *matcher;
    tx_status status = TX_OK;
    size_t piece = strlen(text), size = count * piece, end = 0;
    char *whole = malloc(size);
    for (size_t i = 0; i < size; i++)
        whole[i] = text[i % piece];
    assert_int_equal(tx_regex_open(pattern, &regex), TX_OK);
    assert_int_equal(tx_matcher_create(&matcher), TX_OK);
    tx_matcher_begin(matcher, size);
    *matches = 0;
    for (size_t begin; end < size && !status; *matches += !status && begin < end)
        status = tx_matcher_next(matcher, &regex, whole, size, end, &begin, &end);
    tx_matcher_free(matcher);
    tx_regex_close(&regex);
    free(whole);
    return status;
}

/* An expression that needs hours or gigabytes is refused within a second; a long text gets the memory that it needs. */
static void limits(void **state)
{
    static const struct {
        const char *pattern, *text;
        size_t count, matches; /* matches is 0 if the expression is refused */
    } cases[] = {
        {"(a|aa)+x|y", "a", 64, 0},
        {"(a|aa)+x|y", "a", 100000, 0},
        {"[ab]*[ac]*[ad]*[ae]*[af]*[ag]*[ah]*x|y", "a", 200, 0},
        {"(?:a?){30}a{30}x|y", "a", 64, 0},
        {"[ab]*[ac]*[ad]*x|.", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", 100000, 0},
        {"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", " ", 1 << 20, 1},
        {"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "   x", 1 << 18, 1 << 19},
        {"(?:ab|a)+", "a", 1 << 20, 1},
        {"[ab]*[ac]*[ad]*x|.", "aaa", 20, 60},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t matches;
        const clock_t start = clock();
        const tx_status status = match_all(cases[i].pattern, cases[i].text, cases[i].count, &matches);
        const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (status != (cases[i].matches ? TX_OK : TX_UNSUPPORTED) || (!status && matches != cases[i].matches))
            fail_msg("%s: status %d, %zu matches", cases[i].pattern, (int)status, matches);
        if (status && !strstr(tx_error(), "takes too many steps"))
            fail_msg("%s: %s", cases[i].pattern, tx_error());
        if (!(seconds < 1))
            fail_msg("%s: %.2f s", cases[i].pattern, seconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(translates), cmocka_unit_test(refuses),
                                       cmocka_unit_test(limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
