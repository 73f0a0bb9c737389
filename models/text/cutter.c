/* SPDX-License-Identifier: Apache-2.0
 * Cutting a text into words: splitters, one after the other, and what is no UTF-8. */
#include "models/text/bpe.h"
#include "models/text/utf8.h"

#include <stdlib.h>
#include <string.h>

struct tx_cutter {
    const tx_splitters *splitters;
    tx_word_sink sink;
    void *context; /* of the sink */
    tx_matcher *matcher;
    char *prefixed; /* a text with the space that is put before it */
    size_t prefixed_room;
};

tx_status tx_cutter_create(const tx_splitters *splitters, tx_word_sink sink, void *context, tx_cutter **cutter)
{
    tx_cutter *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for cutting texts into words");
    *made = (tx_cutter){.splitters = splitters, .sink = sink, .context = context};
    tx_status status = tx_matcher_create(&made->matcher);
    if (status) {
        tx_cutter_free(made);
        return status;
    }
    *cutter = made;
    return TX_OK;
}

void tx_cutter_free(tx_cutter *cutter)
{
    if (!cutter)
        return;
    tx_matcher_free(cutter->matcher);
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
        status = tx_matcher_next(c->matcher, &s->regex, text, size, at, &begin, &end);
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
    tx_matcher_begin(cutter->matcher, size);
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
