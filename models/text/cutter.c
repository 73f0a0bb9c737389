/* SPDX-License-Identifier: Apache-2.0
 * Cutting a text into words: splitters, one after the other, and what is no UTF-8. */
#include "models/text/bpe.h"
#include "models/text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Stack of PCRE2's machine code. */
#define STACK_LEAST ((size_t)32 << 10)
#define STACK_MOST ((size_t)16 << 20)

struct tx_cutter {
    const tx_splitters *splitters;
    tx_word_sink sink;
    void *context; /* of the sink */
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
    char *prefixed; /* a text with the space that is put before it */
    size_t prefixed_room;
};

tx_status tx_cutter_create(const tx_splitters *splitters, tx_word_sink sink, void *context, tx_cutter **cutter)
{
    tx_cutter *made = calloc(1, sizeof *made);
    if (made) {
        *made = (tx_cutter){.splitters = splitters, .sink = sink, .context = context};
        made->match = pcre2_match_data_create(1, NULL);
        made->limits = pcre2_match_context_create(NULL);
        made->stack = pcre2_jit_stack_create(STACK_LEAST, STACK_MOST, NULL);
    }
    if (!made || !made->match || !made->limits || !made->stack) {
        tx_cutter_free(made);
        return tx_fail(TX_MEMORY, "no memory for cutting texts into words");
    }
    /* A match is as long as the text wants it: the limits are for expressions that a stranger sends. */
    pcre2_set_match_limit(made->limits, UINT32_MAX);
    pcre2_set_depth_limit(made->limits, UINT32_MAX);
    pcre2_set_heap_limit(made->limits, UINT32_MAX);
    pcre2_jit_stack_assign(made->limits, NULL, made->stack);
    *cutter = made;
    return TX_OK;
}

void tx_cutter_free(tx_cutter *cutter)
{
    if (!cutter)
        return;
    pcre2_match_data_free(cutter->match);
    pcre2_match_context_free(cutter->limits);
    pcre2_jit_stack_free(cutter->stack);
    free(cutter->prefixed);
    free(cutter);
}

static tx_status split(tx_cutter *c, int32_t stage, const char *text, size_t size);

/* Whole characters, to which the prefix has been added where there is one. */
static tx_status after_prefix(tx_cutter *c, int32_t stage, const char *text, size_t size)
{
    return stage == c->splitters->count ? c->sink(c->context, text, size) : split(c, stage, text, size);
}

/* Hands the bytes from begin to end to the next stage. */
static tx_status hand_on(tx_cutter *c, int32_t stage, const char *text, size_t begin, size_t end)
{
    const char *piece = text + begin;
    size_t size = end - begin;
    if (size == 0)
        return TX_OK;
    if (stage != c->splitters->prefix || *piece == ' ')
        return after_prefix(c, stage, piece, size);
    if (c->prefixed_room < size + 1) {
        char *larger = realloc(c->prefixed, size + 1);
        if (!larger)
            return tx_fail(TX_MEMORY, "no memory for a text of %zu bytes", size + 1);
        c->prefixed = larger;
        c->prefixed_room = size + 1;
    }
    c->prefixed[0] = ' ';
    memcpy(c->prefixed + 1, piece, size);
    return after_prefix(c, stage, c->prefixed, size + 1);
}

/* The next match from `from` on; an empty one at the end where there is none. */
static tx_status next_match(tx_cutter *c, const tx_splitter *s, const char *text, size_t size, size_t from,
                            size_t *begin, size_t *end)
{
    int found = s->compiled
                    ? pcre2_jit_match(s->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, c->match, c->limits)
                    : pcre2_match(s->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, c->match, c->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps what it must remember on the heap */
        found =
            pcre2_match(s->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, c->match, c->limits);
    if (found == PCRE2_ERROR_NOMATCH) {
        *begin = *end = size;
        return TX_OK;
    }
    if (found < 0) {
        char reason[128];
        pcre2_get_error_message(found, (PCRE2_UCHAR *)reason, sizeof reason);
        return tx_fail(found == PCRE2_ERROR_NOMEMORY ? TX_MEMORY : TX_INTERNAL, "splitting at byte %zu of %zu: %s",
                       from, size, reason);
    }
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(c->match);
    *begin = bounds[0];
    *end = bounds[1];
    return TX_OK;
}

/* The parts of a text as a mode joins them, one after the other: `held` is what the next part may yet join. */
typedef struct parts {
    tx_split_mode mode;
    bool any, matched; /* of the part before */
    size_t begin, end; /* of what is held */
} parts;

/* A part joins what is held (true), or what is held is done and the part held in its place. */
static bool joins(const parts *p, bool matched)
{
    switch (p->mode) {
    case TX_SPLIT_CONTIGUOUS:
        return p->any && matched == p->matched;
    case TX_SPLIT_MERGED_WITH_PREVIOUS:
        return p->any && matched && !p->matched;
    case TX_SPLIT_MERGED_WITH_NEXT:
        return p->any && !matched && p->matched;
    case TX_SPLIT_ISOLATED:
    case TX_SPLIT_REMOVED:
        break;
    }
    return false;
}

static tx_status add_part(tx_cutter *c, int32_t stage, parts *p, const char *text, size_t begin, size_t end,
                          bool matched)
{
    tx_status status = TX_OK;
    if (begin == end)
        return TX_OK;
    if (joins(p, matched)) {
        p->end = end;
    } else {
        status = hand_on(c, stage + 1, text, p->begin, p->end);
        p->begin = matched && p->mode == TX_SPLIT_REMOVED ? end : begin;
        p->end = end;
    }
    p->any = true;
    p->matched = matched;
    return status;
}

static tx_status split(tx_cutter *c, int32_t stage, const char *text, size_t size)
{
    const tx_splitter *s = &c->splitters->at[stage];
    parts p = {.mode = s->mode};
    tx_status status = TX_OK;
    for (size_t at = 0, begin = 0, end = 0; at < size && !status; at = end) {
        status = next_match(c, s, text, size, at, &begin, &end);
        if (status)
            break;
        if (p.mode == TX_SPLIT_ISOLATED) { /* nothing to hold */
            status = hand_on(c, stage + 1, text, at, begin);
            if (!status)
                status = hand_on(c, stage + 1, text, begin, end);
            continue;
        }
        status = add_part(c, stage, &p, text, at, begin, s->invert);
        if (!status)
            status = add_part(c, stage, &p, text, begin, end, !s->invert);
    }
    return status ? status : hand_on(c, stage + 1, text, p.begin, p.end);
}

tx_status tx_cutter_run(tx_cutter *cutter, const char *text, size_t size)
{
    tx_status status = TX_OK;
    for (size_t at = 0; at < size && !status; at++) {
        size_t good = tx_utf8_prefix(text + at, size - at);
        if (good && at == 0)
            status = hand_on(cutter, 0, text, 0, good);
        else if (good) /* goes on after a byte: no prefix */
            status = after_prefix(cutter, 0, text + at, good);
        at += good;
        if (!status && at < size)
            status = cutter->sink(cutter->context, text + at, 1);
    }
    return status;
}
