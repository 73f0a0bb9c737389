/* SPDX-License-Identifier: Apache-2.0
 * Splits a text into words by the steps of a pre-tokenizer. Each invalid UTF-8 byte is a word. */
#include "models/tokenizer/bpe.h"
#include "models/tokenizer/pre_tokenizer.h"
#include "models/tokenizer/utf8.h"

struct tx_cutter {
    const tx_tokenizer_steps *steps;
    tx_word_sink sink;
    void *context; /* of the sink */
    tx_matcher *matcher;
    bool unmarked;                             /* the text follows an invalid byte: add no marks */
    tx_buffer changed[TX_TOKENIZER_STEPS_MAX]; /* by step: its text with the mark, or in letters */
    tx_letters letters;                        /* of the steps after ByteLevel */
    tx_buffer word;                            /* their bytes */
};

tx_status tx_cutter_create(const tx_tokenizer_steps *steps, tx_word_sink sink, void *context, tx_cutter **cutter)
{
    tx_cutter *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for cutting texts into words");
    *created = (tx_cutter){.steps = steps, .sink = sink, .context = context};
    tx_letters_make(&created->letters);
    tx_status status = tx_matcher_create(&created->matcher);
    return TX_RETURN(status, created, cutter, tx_cutter_free);
}

void tx_cutter_free(tx_cutter *cutter)
{
    if (!cutter)
        return;
    tx_matcher_free(cutter->matcher);
    for (int i = 0; i < TX_TOKENIZER_STEPS_MAX; i++)
        free(cutter->changed[i].data);
    free(cutter->word.data);
    free(cutter);
}

tx_matcher *tx_cutter_matcher(tx_cutter *cutter)
{
    return cutter->matcher;
}

static tx_status split(tx_cutter *c, int32_t stage, const char *text, size_t size, bool first);

/* Replaces spaces by the step's mark, and adds one before the text if the step requires it. */
static void mark(const tx_tokenizer_step *step, bool first, const char *text, size_t size, tx_buffer *out)
{
    const size_t length = strlen(step->text);
    const bool begins = *text == ' ' || (size >= length && memcmp(text, step->text, length) == 0);
    tx_buffer_clear(out);
    if (!begins && (step->prepend == TX_PREPEND_ALWAYS || (step->prepend == TX_PREPEND_FIRST && first)))
        tx_buffer_add(out, step->text, length);
    while (size) {
        const char *space = memchr(text, ' ', size);
        const size_t before = space ? (size_t)(space - text) : size;
        tx_buffer_add(out, text, before);
        if (space)
            tx_buffer_add(out, step->text, length);
        text += before + (space != NULL);
        size -= before + (space != NULL);
    }
}

/* Writes the letters of a text, which are at most twice as many bytes. */
static void spell(const tx_letters *letters, const char *text, size_t size, tx_buffer *out)
{
    tx_buffer_clear(out);
    if (!tx_buffer_reserve(out, 2 * size + 1)) {
        tx_letters_write(letters, text, size, out->data);
        out->size = strlen(out->data);
    }
}

/* Passes a word to the sink, in bytes. */
static tx_status emit(tx_cutter *c, const char *word, size_t size)
{
    if (!c->steps->letters)
        return c->sink(c->context, word, size);
    size_t count = 0;
    tx_buffer_clear(&c->word);
    TX_TRY(tx_buffer_reserve(&c->word, size));
    tx_letters_read(&c->letters, word, size, c->word.data, &count);
    return c->sink(c->context, c->word.data, count);
}

/* Runs a step on a text: adds marks or spells its letters, then splits. */
static tx_status run_step(tx_cutter *c, int32_t stage, const char *text, size_t size, bool first);

/* Passes the bytes from begin to end to the next step, or to the sink after the last step. */
static inline tx_status pass_on(tx_cutter *c, int32_t stage, const char *text, size_t begin, size_t end, bool first)
{
    if (begin == end)
        return TX_OK;
    return stage == c->steps->count ? emit(c, text + begin, end - begin)
                                    : run_step(c, stage, text + begin, end - begin, first && begin == 0);
}

static tx_status run_step(tx_cutter *c, int32_t stage, const char *text, size_t size, bool first)
{
    const tx_tokenizer_step *step = &c->steps->at[stage];
    const bool marks = step->mark && !c->unmarked, spells = stage > 0 && stage == c->steps->letters;
    tx_buffer *changed = &c->changed[stage];
    if (marks)
        mark(step, first, text, size, changed);
    if (spells)
        spell(&c->letters, text, size, changed);
    if (marks || spells) {
        TX_TRY(changed->status);
        text = changed->data;
        size = changed->size;
    }
    return step->regex.code ? split(c, stage, text, size, first) : pass_on(c, stage + 1, text, 0, size, first);
}

/* Joins the parts of a text according to a mode. The last part is held, because the next one may be joined to it. */
typedef struct parts {
    tx_split_mode mode;
    bool any, matched; /* there was a part before; it was a match */
    size_t begin, end; /* of the held part */
    bool first;        /* the text is at the beginning */
} parts;

/* Returns true if a part is joined to the held one. */
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
    if (begin == end)
        return TX_OK;
    if (joins(p, matched)) {
        p->end = end;
    } else {
        TX_TRY(pass_on(c, stage + 1, text, p->begin, p->end, p->first));
        p->begin = matched && p->mode == TX_SPLIT_REMOVED ? end : begin;
        p->end = end;
    }
    p->any = true;
    p->matched = matched;
    return TX_OK;
}

static tx_status split(tx_cutter *c, int32_t stage, const char *text, size_t size, bool first)
{
    const tx_tokenizer_step *s = &c->steps->at[stage];
    parts p = {.mode = s->mode, .first = first};
    for (size_t at = 0, begin = 0, end = 0; at < size; at = end) {
        TX_TRY(tx_matcher_next(c->matcher, &s->regex, text, size, at, &begin, &end));
        if (p.mode == TX_SPLIT_ISOLATED) { /* nothing is joined */
            TX_TRY(pass_on(c, stage + 1, text, at, begin, first));
            TX_TRY(pass_on(c, stage + 1, text, begin, end, first));
            continue;
        }
        TX_TRY(add_part(c, stage, &p, text, at, begin, s->invert));
        TX_TRY(add_part(c, stage, &p, text, begin, end, !s->invert));
    }
    return pass_on(c, stage + 1, text, p.begin, p.end, first);
}

tx_status tx_cutter_run(tx_cutter *cutter, const char *text, size_t size, bool first)
{
    for (size_t at = 0; at < size; at++) {
        size_t good = tx_utf8_prefix(text + at, size - at);
        cutter->unmarked = at > 0;
        TX_TRY(pass_on(cutter, 0, text, at, at + good, first));
        at += good;
        if (at < size)
            TX_TRY(cutter->sink(cutter->context, text + at, 1));
    }
    return TX_OK;
}
