/* SPDX-License-Identifier: Apache-2.0
 * Matches regular expressions with limits on steps and memory. */
#include "models/tokenizer/regex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stack of PCRE2's machine code, in bytes. */
#define STACK_LEAST ((size_t)32 << 10)
#define STACK_MOST ((size_t)16 << 20)

/* Heap of PCRE2's interpreter, in KiB. It also limits the recursion depth. */
#define HEAP_MOST ((uint32_t)1 << 20)

/* Steps that every match may take. A match that needs more is repeated with STEPS_GROWTH times as many, which are taken
 * from the text's budget. Reasonable expressions need few steps, or about as many as the text has bytes. */
#define STEPS_FREE ((uint32_t)1 << 10)
#define STEPS_GROWTH 16
#define BUDGET_LEAST ((uint64_t)1 << 24)
#define BUDGET_BYTE 64 /* steps for each byte of the text */

struct tx_matcher {
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
    uint64_t budget;
};

tx_status tx_matcher_create(tx_matcher **matcher)
{
    tx_matcher *created = calloc(1, sizeof *created);
    if (created) {
        created->match = pcre2_match_data_create(1, NULL);
        created->limits = pcre2_match_context_create(NULL);
        created->stack = pcre2_jit_stack_create(STACK_LEAST, STACK_MOST, NULL);
    }
    if (!created || !created->match || !created->limits || !created->stack) {
        tx_matcher_free(created);
        return tx_fail(TX_MEMORY, "no memory for matching regular expressions");
    }
    pcre2_set_match_limit(created->limits, STEPS_FREE);
    pcre2_set_heap_limit(created->limits, HEAP_MOST);
    pcre2_set_depth_limit(created->limits, UINT32_MAX);
    pcre2_jit_stack_assign(created->limits, NULL, created->stack);
    *matcher = created;
    return TX_OK;
}

void tx_matcher_free(tx_matcher *matcher)
{
    if (!matcher)
        return;
    pcre2_match_data_free(matcher->match);
    pcre2_match_context_free(matcher->limits);
    pcre2_jit_stack_free(matcher->stack);
    free(matcher);
}

void tx_matcher_begin(tx_matcher *matcher, size_t size)
{
    matcher->budget = BUDGET_LEAST + BUDGET_BYTE * (uint64_t)size;
}

static int match_once(tx_matcher *m, const tx_regex *regex, const char *text, size_t size, size_t from)
{
    int found =
        regex->compiled
            ? pcre2_jit_match(regex->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, m->match, m->limits)
            : pcre2_match(regex->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, m->match, m->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter uses the heap instead */
        found = pcre2_match(regex->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->match,
                            m->limits);
    return found;
}

/* Repeats a match with more and more steps until the budget is used up. */
static int match_long(tx_matcher *m, const tx_regex *regex, const char *text, size_t size, size_t from)
{
    int found = PCRE2_ERROR_MATCHLIMIT;
    for (uint64_t steps = STEPS_FREE; found == PCRE2_ERROR_MATCHLIMIT && m->budget > 0; m->budget -= steps) {
        steps *= STEPS_GROWTH;
        if (steps > UINT32_MAX)
            steps = UINT32_MAX;
        if (steps > m->budget)
            steps = m->budget;
        pcre2_set_match_limit(m->limits, (uint32_t)steps);
        found = match_once(m, regex, text, size, from);
    }
    pcre2_set_match_limit(m->limits, STEPS_FREE);
    return found;
}

tx_status tx_matcher_next(tx_matcher *matcher, const tx_regex *regex, const char *text, size_t size, size_t from,
                          size_t *begin, size_t *end)
{
    int found = match_once(matcher, regex, text, size, from);
    if (found == PCRE2_ERROR_MATCHLIMIT)
        found = match_long(matcher, regex, text, size, from);
    if (found == PCRE2_ERROR_NOMATCH) {
        *begin = *end = size;
        return TX_OK;
    }
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_HEAPLIMIT)
        return tx_fail(TX_UNSUPPORTED,
                       "byte %zu of %zu: the regular expression \"%.64s\" takes too many steps to match here", from,
                       size, regex->pattern);
    if (found < 0) {
        char reason[128];
        pcre2_get_error_message(found, (PCRE2_UCHAR *)reason, sizeof reason);
        return tx_fail(found == PCRE2_ERROR_NOMEMORY ? TX_MEMORY : TX_INTERNAL, "matching at byte %zu of %zu: %s", from,
                       size, reason);
    }
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(matcher->match);
    *begin = bounds[0];
    *end = bounds[1];
    return TX_OK;
}

/* The line break at the end makes every match longer than nothing, as tx_regex_compile requires. */
tx_status tx_regex_fits(const char *pattern, const char *text, bool *fits)
{
    const size_t room = strlen(pattern) + strlen(text) + sizeof "\\A(?:)\\n\\z" + 1, size = strlen(text) + 1;
    char *anchored = malloc(room);
    tx_regex regex = {0};
    tx_matcher *matcher = NULL;
    size_t begin, end;
    tx_status status = anchored ? TX_OK : tx_fail(TX_MEMORY, "no memory for a regular expression");
    if (!status)
        snprintf(anchored, room, "\\A(?:%s)\\n\\z", pattern);
    TX_THEN(status, tx_regex_compile(anchored, &regex));
    TX_THEN(status, tx_matcher_create(&matcher));
    if (!status) {
        snprintf(anchored, room, "%s\n", text);
        tx_matcher_begin(matcher, size);
        status = tx_matcher_next(matcher, &regex, anchored, size, 0, &begin, &end);
        if (!status)
            *fits = begin < size;
    }
    tx_matcher_free(matcher);
    tx_regex_close(&regex);
    free(anchored);
    return status;
}
