/* SPDX-License-Identifier: Apache-2.0
 * The built-in rewards. Texts of a model are read as data, never executed. */
#include "models/reward/reward.h"

#include "api/base/number.h"
#include "models/tokenizer/regex.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Part of a text. */
typedef struct span {
    const char *text;
    size_t size;
} span;

static span stripped(span s)
{
    while (s.size && isspace((unsigned char)*s.text)) {
        s.text++;
        s.size--;
    }
    while (s.size && isspace((unsigned char)s.text[s.size - 1]))
        s.size--;
    return s;
}

/* The position of `what` in a span from `from` on, or its size. */
static size_t find(span s, const char *what, size_t from)
{
    const size_t size = strlen(what);
    for (size_t i = from; i + size <= s.size; i++)
        if (memcmp(s.text + i, what, size) == 0)
            return i;
    return s.size;
}

static int32_t count_of(span s, const char *what)
{
    int32_t count = 0;
    for (size_t i = find(s, what, 0); i < s.size; i = find(s, what, i + 1))
        count++;
    return count;
}

/* The column of the sample as text, which the caller frees. NULL without an error if it is null. */
static tx_status column_of(const tx_reward_settings *o, const tx_reward_sample *s, char **text)
{
    const tx_json *value = tx_json_find(s->object, o->column);
    const char *string;
    size_t size;
    *text = NULL;
    if (!value)
        return tx_fail(TX_INVALID, "a row of the data has no column \"%s\": name it as \"column\" in --reward_config",
                       o->column);
    if (tx_json_type_of(value) == TX_JSON_NULL)
        return TX_OK;
    if (tx_json_type_of(value) != TX_JSON_STRING)
        *text = tx_json_text(value, TX_JSON_LINE);
    else if (!tx_json_as_text(value, o->column, &string, &size))
        *text = strndup(string, size);
    return *text ? TX_OK : tx_fail(TX_MEMORY, "no memory for a reward");
}

tx_status tx_reward_exact(const tx_reward_settings *o, tx_reward_state *state, const tx_reward_sample *s,
                          double *reward)
{
    char *text;
    (void)state;
    TX_TRY(column_of(o, s, &text));
    span own = {s->text, s->size}, wanted = {text, text ? strlen(text) : 0};
    if (text && o->strip) {
        own = stripped(own);
        wanted = stripped(wanted);
    }
    if (text)
        *reward = own.size == wanted.size && (o->ignore_case ? strncasecmp(own.text, wanted.text, own.size)
                                                             : memcmp(own.text, wanted.text, own.size)) == 0;
    free(text);
    return TX_OK;
}

/* ---- Numbers ---------------------------------------------------------------------------------------------- */

/* The digits at the beginning of a span, with commas and a fraction, and a sign and $ before them. Sets *used to its
 * bytes, 0 if there are none. */
static double read_digits(span s, size_t *used)
{
    char digits[64];
    size_t at = 0, count = 0, figures = 0;
    if (at < s.size && (s.text[at] == '-' || s.text[at] == '+'))
        digits[count++] = s.text[at++];
    at += at < s.size && s.text[at] == '$';
    for (; at < s.size && count < sizeof digits - 1; at++) {
        const unsigned char c = (unsigned char)s.text[at];
        const bool follows = at + 1 < s.size && isdigit((unsigned char)s.text[at + 1]);
        if (isdigit(c) || (c == '.' && follows && !memchr(digits, '.', count))) {
            digits[count++] = (char)c;
            figures += isdigit(c) != 0;
        } else if (!(c == ',' && figures && follows))
            break;
    }
    digits[count] = '\0';
    *used = figures ? at : 0;
    return figures ? tx_number_read(digits, &(char *){NULL}) : (double)NAN;
}

/* The same with a divisor: a/b. */
static double read_number(span s, size_t *used)
{
    double value = read_digits(s, used);
    size_t more = 0;
    if (*used && *used + 1 < s.size && s.text[*used] == '/' && isdigit((unsigned char)s.text[*used + 1])) {
        value /= read_digits((span){s.text + *used + 1, s.size - *used - 1}, &more);
        *used += 1 + more;
    }
    return value;
}

/* The last number of a span. NaN if there is none. */
static double last_number(span s)
{
    double value = (double)NAN;
    for (size_t at = 0, used; at < s.size; at += used ? used : 1) {
        const double next = read_number((span){s.text + at, s.size - at}, &used);
        value = used ? next : value;
    }
    return value;
}

/* The span after the last `begin`, up to `end`. False if there is none. */
static bool between(span s, const char *begin, const char *end, span *inside)
{
    size_t last = s.size;
    for (size_t i = find(s, begin, 0); i < s.size; i = find(s, begin, i + 1))
        last = i;
    if (last == s.size)
        return false;
    last += strlen(begin);
    *inside = (span){s.text + last, find(s, end, last) - last};
    return true;
}

/* The number of a text: in \boxed{}, after ####, in <answer>, or the last one. */
static double number_of(const char *from, span s)
{
    const struct {
        const char *word, *begin, *end;
    } places[] = {{"boxed", "\\boxed{", "}"}, {"hash", "####", "\n"}, {"tag", "<answer>", "</answer>"}};
    const bool any = strcmp(from, "auto") == 0;
    span inside;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if ((any || strcmp(from, places[i].word) == 0) && between(s, places[i].begin, places[i].end, &inside))
            return last_number(inside);
    return any || strcmp(from, "last") == 0 ? last_number(s) : (double)NAN;
}

tx_status tx_reward_number(const tx_reward_settings *o, tx_reward_state *state, const tx_reward_sample *s,
                           double *reward)
{
    char *text;
    (void)state;
    TX_TRY(column_of(o, s, &text));
    if (!text)
        return TX_OK;
    const double wanted = number_of("auto", (span){text, strlen(text)});
    const double own = number_of(o->from, (span){s->text, s->size});
    free(text);
    if (isnan(wanted))
        return tx_fail(TX_INVALID, "column \"%s\" of a row of the data has no number", o->column);
    *reward = fabs(own - wanted) <= o->tolerance * fmax(1.0, fabs(wanted));
    return TX_OK;
}

/* ---- Forms ------------------------------------------------------------------------------------------------ */

struct tx_reward_state {
    tx_regex regex;
    tx_matcher *matcher;
};

tx_status tx_reward_state_open(const char *pattern, tx_reward_state **state)
{
    tx_reward_state *s = calloc(1, sizeof *s);
    tx_status status = s ? tx_regex_compile(pattern, &s->regex) : tx_fail(TX_MEMORY, "no memory for a reward");
    TX_THEN(status, tx_matcher_create(&s->matcher));
    return TX_RETURN(status, s, state, tx_reward_state_free);
}

void tx_reward_state_free(tx_reward_state *state)
{
    if (!state)
        return;
    tx_matcher_free(state->matcher);
    tx_regex_close(&state->regex);
    free(state);
}

tx_status tx_reward_regex(const tx_reward_settings *o, tx_reward_state *state, const tx_reward_sample *s,
                          double *reward)
{
    size_t begin, end;
    (void)o;
    tx_matcher_begin(state->matcher, s->size);
    TX_TRY(tx_matcher_next(state->matcher, &state->regex, s->text, s->size, 0, &begin, &end));
    *reward = end > begin;
    return TX_OK;
}

tx_status tx_reward_think_format(const tx_reward_settings *o, tx_reward_state *state, const tx_reward_sample *s,
                                 double *reward)
{
    const span text = {s->text, s->size};
    (void)o;
    (void)state;
    *reward = find(text, "<think>", 0) == 0 && count_of(text, "<think>") == 1 && count_of(text, "</think>") > 0;
    return TX_OK;
}

tx_status tx_reward_tag_count(const tx_reward_settings *o, tx_reward_state *state, const tx_reward_sample *s,
                              double *reward)
{
    static const char *const tags[] = {"<think>", "</think>", "<answer>", "</answer>"};
    (void)o;
    (void)state;
    *reward = 0.0;
    for (int i = 0; i < 4; i++)
        *reward += count_of((span){s->text, s->size}, tags[i]) == 1 ? 0.25 : 0.0;
    return TX_OK;
}

static bool has_type(const tx_json *value, const char *type)
{
    const struct {
        const char *word;
        uint32_t types;
    } types[] = {{"null", 1u << TX_JSON_NULL},       {"boolean", 1u << TX_JSON_BOOL},
                 {"integer", 1u << TX_JSON_INTEGER}, {"number", 1u << TX_JSON_INTEGER | 1u << TX_JSON_NUMBER},
                 {"string", 1u << TX_JSON_STRING},   {"array", 1u << TX_JSON_ARRAY},
                 {"object", 1u << TX_JSON_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(type, types[i].word) == 0)
            return types[i].types & 1u << tx_json_type_of(value);
    return false;
}

/* Whether a value has the type, the required keys and one of the values of `enum` of a schema. */
static bool fits(const tx_json *value, const tx_json *schema)
{
    const char *type, *key;
    tx_json *list;
    if (!tx_json_get_string(schema, "type", &type) && !has_type(value, type))
        return false;
    for (size_t i = 0; !tx_json_get(schema, "required", TX_JSON_ARRAY, &list) && i < tx_json_size(list); i++)
        if (tx_json_as_string(tx_json_at(list, i), "required", &key) || !tx_json_find(value, key))
            return false;
    if (tx_json_get(schema, "enum", TX_JSON_ARRAY, &list))
        return true;
    bool found = false;
    char *own = tx_json_text(value, TX_JSON_LINE);
    for (size_t i = 0; own && i < tx_json_size(list) && !found; i++) {
        char *other = tx_json_text(tx_json_at(list, i), TX_JSON_LINE);
        found = other && strcmp(own, other) == 0;
        free(other);
    }
    free(own);
    return found;
}

tx_status tx_reward_json(const tx_reward_settings *o, tx_reward_state *state, const tx_reward_sample *s, double *reward)
{
    tx_json *value = NULL;
    (void)state;
    *reward = tx_json_parse(s->text, s->size, "completion", &value) == TX_OK && fits(value, o->schema);
    tx_json_free(value);
    return TX_OK;
}

/* ---- Lengths ---------------------------------------------------------------------------------------------- */

tx_status tx_reward_length(const tx_reward_settings *o, tx_reward_state *state, const tx_reward_sample *s,
                           double *reward)
{
    (void)state;
    *reward = -fabs((double)s->count - o->target) / o->target;
    return TX_OK;
}

/* Soft overlong punishment (Yu et al., DAPO, 2025, equation 13). */
tx_status tx_reward_overlong(const tx_reward_settings *o, tx_reward_state *state, const tx_reward_sample *s,
                             double *reward)
{
    const double over = (double)s->count - (o->max - o->cache);
    (void)state;
    *reward = over <= 0.0 ? 0.0 : over > o->cache ? -1.0 : -over / o->cache;
    return TX_OK;
}

tx_status tx_reward_repetition(const tx_reward_settings *o, tx_reward_state *state, const tx_reward_sample *s,
                               double *reward)
{
    const int64_t n = (int64_t)o->ngram, all = s->count - n + 1;
    int64_t repeated = 0;
    (void)state;
    for (int64_t i = 1; i < all; i++) {
        bool seen = false;
        for (int64_t k = 0; k < i && !seen; k++)
            seen = memcmp(s->ids + i, s->ids + k, (size_t)n * sizeof *s->ids) == 0;
        repeated += seen;
    }
    *reward = all > 0 ? o->penalty * (double)repeated / (double)all : 0.0;
    return TX_OK;
}
