/* SPDX-License-Identifier: Apache-2.0
 * Regular expressions of tokenizer files are written for Oniguruma (Ruby's syntax). TX runs PCRE2. Common syntax is
 * copied, syntax with an exact equivalent is translated, and all other syntax is refused. */
#include "models/tokenizer/regex.h"
#include "models/tokenizer/utf8.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS_MAX 32
/* Maximum length of a translated item. */
#define ITEM_MAX 64

typedef struct translation {
    const char *at;
    char *translated;
    size_t used;
    bool caseless[GROUPS_MAX]; /* by depth of groups */
    int depth;
} translation;

static tx_status refuse(const char *what, size_t length)
{
    return tx_fail(TX_UNSUPPORTED, "regular expression: \"%.*s\" is not supported", (int)length, what);
}

static void append(translation *t, const char *text, size_t length)
{
    memcpy(t->translated + t->used, text, length);
    t->used += length;
}

static void copy(translation *t, size_t length)
{
    append(t, t->at, length);
    t->at += length;
}

/* \p{...} and \P{...}: general categories have the same names. The name of a script must exclude script extensions. */
static tx_status property(translation *t)
{
    const char *name = t->at + 3;
    size_t length = t->at[2] == '{' ? strcspn(name + (*name == '^'), "}") + (*name == '^') : 0;
    if (!length || !name[length] || length > ITEM_MAX - 16)
        return refuse(t->at, 3);
    const char *bare = name + (*name == '^');
    size_t bare_length = length - (*name == '^');
    for (size_t i = 0; i < bare_length; i++)
        if (!isalpha((unsigned char)bare[i]) && bare[i] != '_')
            return refuse(t->at, length + 4);
    bool category = bare_length <= 2 && strchr("CLMNPSZ", *bare);
    /* Oniguruma ignores case here, PCRE2 10.42 does not. */
    if (t->caseless[t->depth] && category && *bare == 'L')
        if (bare_length == 2 && strchr("ult", bare[1]))
            return refuse(t->at, length + 4);
    append(t, t->at, 3);
    if (*name == '^')
        append(t, "^", 1);
    if (!category)
        append(t, "sc:", 3);
    append(t, bare, bare_length);
    append(t, "}", 1);
    t->at = name + length + 1;
    return TX_OK;
}

/* \xHH of ASCII, \x{H...} and \uHHHH. */
static tx_status code_point(translation *t)
{
    const char *digits = t->at + 2;
    bool braces = t->at[1] == 'x' && *digits == '{';
    digits += braces;
    size_t length = strspn(digits, "0123456789ABCDEFabcdef"), wanted = t->at[1] == 'x' ? 2 : 4;
    if (!braces && length > wanted)
        length = wanted;
    if (braces ? length < 1 || length > 6 || digits[length] != '}' : length != wanted)
        return refuse(t->at, 2);
    if (!braces && wanted == 2 && *digits >= '8') /* a byte of a multibyte character */
        return refuse(t->at, 4);
    append(t, "\\x{", 3);
    append(t, digits, length);
    append(t, "}", 1);
    t->at = digits + length + (braces ? 1 : 0);
    return TX_OK;
}

static tx_status replace(translation *t, size_t length, const char *text)
{
    append(t, text, strlen(text));
    t->at += length;
    return TX_OK;
}

static tx_status escape(translation *t, bool anchors)
{
    static const struct {
        char letter;
        const char *text;
    } equivalents[] = {
        /* PCRE2's \s also matches U+180E. The others have the same meaning. */
        {'s', "\\p{White_Space}"},
        {'S', "\\P{White_Space}"},
        {'d', "\\p{Nd}"},
        {'D', "\\P{Nd}"},
        {'n', "\\n"},
        {'r', "\\r"},
        {'t', "\\t"},
        {'f', "\\f"},
        {'v', "\\x{0B}"},
    };
    char c = t->at[1];
    if (c == 'p' || c == 'P')
        return property(t);
    if (c == 'x' || c == 'u')
        return code_point(t);
    for (size_t i = 0; i < sizeof equivalents / sizeof equivalents[0]; i++)
        if (c == equivalents[i].letter)
            return replace(t, 2, equivalents[i].text);
    if (anchors && (c == 'A' || c == 'z' || c == 'Z')) {
        copy(t, 2);
        return TX_OK;
    }
    if (!ispunct((unsigned char)c) && c != ' ')
        return refuse(t->at, c ? 2 : 1);
    copy(t, 2);
    return TX_OK;
}

/* Drops the bracket that begins or ends a class within a class: the outer class has the characters of both. Refuses
 * brackets that have another meaning, and those next to "-", since they separate it from the bounds of a range. */
static tx_status bracket(translation *t, bool *nested)
{
    const bool begins = *t->at == '[';
    if (begins ? *nested || strchr("^:[]", t->at[1]) || t->at[-1] == '-' : t->at[1] == '-')
        return refuse(t->at, strnlen(t->at, 2));
    *nested = begins;
    t->at++;
    return TX_OK;
}

static bool is_and(const char *at)
{
    return at[0] == '&' && at[1] == '&';
}

/* The items of a class that begins at `begin`, up to its end or &&. */
static tx_status class_items(translation *t, const char *begin)
{
    bool nested = false;
    while (nested || (*t->at != ']' && !is_and(t->at))) {
        if (!*t->at)
            return tx_fail(TX_FORMAT, "regular expression: \"%.20s\": ] is missing", begin);
        if (is_and(t->at))
            return refuse(t->at, 2);
        if (*t->at == '[' || *t->at == ']')
            TX_TRY(bracket(t, &nested));
        else if (*t->at == '\\')
            TX_TRY(escape(t, false));
        else
            copy(t, 1);
    }
    return TX_OK;
}

/* An operand of an intersection: items, or only a negated class. */
static tx_status operand(translation *t, const char *begin)
{
    const bool negated = strncmp(t->at, "[^", 2) == 0;
    if (negated)
        copy(t, 2);
    else
        append(t, "[", 1);
    if (*t->at == '^' || *t->at == ']' || is_and(t->at))
        return refuse(begin, (size_t)(t->at - begin) + 1);
    TX_TRY(class_items(t, begin));
    append(t, "]", 1);
    if (negated && *t->at++ != ']')
        return refuse(t->at - 1, 2);
    return *t->at == ']' || is_and(t->at) ? TX_OK : refuse(begin, (size_t)(t->at - begin) + 1);
}

/* [a&&b]: one character before which all operands match. PCRE2 has no intersections. */
static tx_status intersection(translation *t, const char *begin, bool negated)
{
    append(t, "(?:(?!", negated ? 6 : 3);
    for (bool more = true; more; t->at += more ? 2 : 1) {
        append(t, "(?=", 3);
        TX_TRY(operand(t, begin));
        append(t, ")", 1);
        more = is_and(t->at);
    }
    append(t, negated ? ")\\p{Any})" : "\\p{Any})", negated ? 9 : 8);
    return TX_OK;
}

/* Whether a class has && outside the classes within it. */
static bool intersects(const char *at)
{
    int depth = 0;
    for (; *at && depth >= 0; at++) {
        if (depth == 0 && is_and(at))
            return true;
        depth += (*at == '[') - (*at == ']');
        at += *at == '\\' && at[1];
    }
    return false;
}

/* [...] */
static tx_status class(translation *t)
{
    const char *begin = t->at;
    const size_t length = begin[1] == '^' ? 2 : 1;
    if (begin[length] == ']')
        return refuse(begin, length + 1);
    if (intersects(begin + length)) {
        t->at += length;
        return intersection(t, begin, length == 2);
    }
    copy(t, length);
    TX_TRY(class_items(t, begin));
    copy(t, 1);
    return TX_OK;
}

static tx_status group(translation *t)
{
    static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
    size_t length = t->at[1] == '?' || t->at[1] == '*' ? 0 : 1;
    bool caseless = t->caseless[t->depth];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && length != 1; i++)
        if (strncmp(t->at, kinds[i], strlen(kinds[i])) == 0) {
            length = strlen(kinds[i]);
            caseless |= kinds[i][2] == 'i';
        }
    if (length == 0)
        return refuse(t->at, strnlen(t->at, 4));
    if (t->depth + 1 == GROUPS_MAX)
        return tx_fail(TX_UNSUPPORTED, "regular expression: more than %d nested groups", GROUPS_MAX - 1);
    t->caseless[++t->depth] = caseless;
    copy(t, length);
    return TX_OK;
}

/* {n}, {n,} and {n,m}. In Ruby a + after it repeats it, and a ? after {n} makes it optional; both are refused. */
static tx_status repetition(translation *t)
{
    size_t digits = strspn(t->at + 1, "0123456789"), length = 1 + digits;
    bool range = t->at[length] == ',';
    if (range)
        length += 1 + strspn(t->at + length + 1, "0123456789");
    if (digits == 0 || t->at[length] != '}' || t->at[length + 1] == '+' || (!range && t->at[length + 1] == '?'))
        return refuse(t->at, strnlen(t->at, length + 2));
    copy(t, length + 1);
    return TX_OK;
}

static tx_status item(translation *t)
{
    switch (*t->at) {
    case '\\':
        return escape(t, true);
    case '[':
        return class(t);
    case '(':
        return group(t);
    case '{':
        return repetition(t);
    case '^': /* they match at lines in Ruby, at the text in PCRE2; Ruby has no line after the last newline */
        return replace(t, 1, "(?:\\A|(?<=\\n)(?!\\z))");
    case '$':
        return replace(t, 1, "(?=\\n|\\z)");
    case ')':
        if (t->depth == 0)
            return tx_fail(TX_FORMAT, "regular expression: ) without (");
        t->depth--;
        break;
    default:
        break;
    }
    copy(t, 1);
    return TX_OK;
}

tx_status tx_regex_translate(const char *pattern, char **translated)
{
    size_t size = strlen(pattern), room = 24 * size + ITEM_MAX; /* ^ becomes 23 bytes */
    if (tx_utf8_prefix(pattern, size) != size)
        return tx_fail(TX_FORMAT, "regular expression: not UTF-8");
    translation t = {.at = pattern, .translated = malloc(room)};
    tx_status status = t.translated ? TX_OK : tx_fail(TX_MEMORY, "no memory for a regular expression");
    while (!status && *t.at)
        status = item(&t);
    if (status) {
        free(t.translated);
        return status;
    }
    t.translated[t.used] = '\0';
    *translated = t.translated;
    return TX_OK;
}

/* Compiles a PCRE2 expression. `name` is the original one for messages and digests. */
static tx_status compile(const char *pattern, const char *name, tx_regex *regex)
{
    int error;
    PCRE2_SIZE place;
    uint32_t empty = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return tx_fail(TX_MEMORY, "no memory for a regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    tx_regex result = {.code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                                             &place, context)};
    pcre2_compile_context_free(context);
    if (!result.code) {
        char text[128];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
        return tx_fail(TX_UNSUPPORTED, "regular expression: %s: \"%.40s\"", text, pattern + place);
    }
    pcre2_pattern_info(result.code, PCRE2_INFO_MATCHEMPTY, &empty);
    result.pattern = strdup(name);
    if (empty || !result.pattern) {
        tx_regex_close(&result);
        return empty ? tx_fail(TX_UNSUPPORTED,
                               "regular expression: one that matches the empty text is not supported: \"%.200s\"",
                               pattern)
                     : tx_fail(TX_MEMORY, "no memory for a regular expression");
    }
    result.compiled = pcre2_jit_compile(result.code, PCRE2_JIT_COMPLETE) == 0;
    *regex = result;
    return TX_OK;
}

tx_status tx_regex_compile(const char *pattern, tx_regex *regex)
{
    return compile(pattern, pattern, regex);
}

/* Published expressions that need quadratic time in a run of spaces, and equivalents that do not. If such an expression
 * does not match at the beginning of a run, it does not match inside it. */
static const char *const linear[][2] = {
    {"\\s+$", "(?<!\\s)\\s+$"},
    {" +$", "(?<! ) +$"},
    {"\\A +| +\\z", "\\A +|(?<! ) +\\z"},
};

tx_status tx_regex_open(const char *pattern, tx_regex *regex)
{
    char *translated;
    const char *wanted = pattern;
    for (size_t i = 0; i < sizeof linear / sizeof linear[0]; i++)
        wanted = strcmp(pattern, linear[i][0]) == 0 ? linear[i][1] : wanted;
    TX_TRY(tx_regex_translate(wanted, &translated));
    const tx_status status = compile(translated, pattern, regex);
    free(translated);
    return status;
}

void tx_regex_close(tx_regex *regex)
{
    free(regex->pattern);
    pcre2_code_free(regex->code);
    *regex = (tx_regex){0};
}
