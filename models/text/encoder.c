/* SPDX-License-Identifier: Apache-2.0
 * From text to ids: added tokens, splitters, words, and the cache that spares most words the merging. */
#include "models/text/bpe.h"
#include "models/text/hash.h"
#include "models/text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* The cache holds words of at most so many bytes and ids, one at each place: a word takes the place of the one that was
 * there. An entry is one line of a processor's cache. */
#define CACHED_BYTES 32
#define CACHED_IDS 7
#define CACHE_PLACES 32768

typedef struct cached {
    uint64_t key[CACHED_BYTES / 8]; /* the word, and zeros */
    int32_t id[CACHED_IDS];
    uint8_t size, count; /* size 0: an empty place */
    uint16_t unused;
} cached;

/* Stack of PCRE2's machine code. */
#define STACK_LEAST ((size_t)32 << 10)
#define STACK_MOST ((size_t)16 << 20)

struct tx_encoder {
    const tx_tokenizer *tokenizer;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    cached *cache;
    char *prefixed; /* a text with the space that is put before it */
    size_t prefixed_room;
};

tx_status tx_encoder_create(const tx_tokenizer *tokenizer, tx_encoder **encoder)
{
    tx_encoder *made = calloc(1, sizeof *made);
    if (made) {
        made->tokenizer = tokenizer;
        made->match = pcre2_match_data_create(1, NULL);
        made->context = pcre2_match_context_create(NULL);
        made->stack = pcre2_jit_stack_create(STACK_LEAST, STACK_MOST, NULL);
        made->cache = calloc(CACHE_PLACES, sizeof *made->cache);
    }
    if (!made || !made->match || !made->context || !made->stack || !made->cache) {
        tx_encoder_free(made);
        return tx_fail(TX_MEMORY, "no memory for an encoder");
    }
    /* A match is as long as the text wants it: the limits are for expressions that a stranger sends. */
    pcre2_set_match_limit(made->context, UINT32_MAX);
    pcre2_set_depth_limit(made->context, UINT32_MAX);
    pcre2_set_heap_limit(made->context, UINT32_MAX);
    pcre2_jit_stack_assign(made->context, NULL, made->stack);
    *encoder = made;
    return TX_OK;
}

void tx_encoder_free(tx_encoder *encoder)
{
    if (!encoder)
        return;
    pcre2_match_data_free(encoder->match);
    pcre2_match_context_free(encoder->context);
    pcre2_jit_stack_free(encoder->stack);
    free(encoder->cache);
    free(encoder->prefixed);
    free(encoder);
}

/* ---- Words --------------------------------------------------------------------------------------- */

static tx_status encode_word(const tx_tokenizer *t, const char *word, size_t size, tx_ids *ids)
{
    int32_t whole = t->ignore_merges ? tx_vocab_find(&t->vocab, word, size) : -1;
    if (whole < 0)
        return tx_merges_apply(&t->merges, t->vocab.byte_ids, word, size, ids);
    tx_status status = tx_ids_reserve(ids, 1);
    if (!status)
        ids->id[ids->count++] = whole;
    return status;
}

static tx_status add_word(tx_encoder *e, const char *word, size_t size, tx_ids *ids)
{
    if (size > CACHED_BYTES)
        return encode_word(e->tokenizer, word, size, ids);
    uint64_t key[CACHED_BYTES / 8] = {0};
    memcpy(key, word, size);
    uint64_t hash = key[0] ^ size;
    for (size_t i = 1; 8 * i < size; i++)
        hash = tx_hash_mix(hash) ^ key[i];
    cached *c = &e->cache[tx_hash_mix(hash) & (CACHE_PLACES - 1)];
    if (c->size == size && memcmp(c->key, key, sizeof key) == 0) {
        tx_status status = tx_ids_reserve(ids, CACHED_IDS);
        if (status)
            return status;
        memcpy(ids->id + ids->count, c->id, sizeof c->id);
        ids->count += c->count;
        return TX_OK;
    }
    size_t before = ids->count;
    tx_status status = encode_word(e->tokenizer, word, size, ids);
    size_t count = ids->count - before;
    if (!status && count <= CACHED_IDS) {
        memcpy(c->key, key, sizeof key);
        memcpy(c->id, ids->id + before, count * sizeof *c->id);
        c->size = (uint8_t)size;
        c->count = (uint8_t)count;
    }
    return status;
}

/* ---- Splitters ------------------------------------------------------------------------------------- */

static tx_status split(tx_encoder *e, int32_t stage, const char *text, size_t size, tx_ids *ids);

/* Whole characters, to which the prefix has been added where there is one. */
static tx_status after_prefix(tx_encoder *e, int32_t stage, const char *text, size_t size, tx_ids *ids)
{
    return stage == e->tokenizer->splitters.count ? add_word(e, text, size, ids) : split(e, stage, text, size, ids);
}

/* Hands the bytes from begin to end to the next stage. */
static tx_status hand_on(tx_encoder *e, int32_t stage, const char *text, size_t begin, size_t end, tx_ids *ids)
{
    const char *piece = text + begin;
    size_t size = end - begin;
    if (size == 0)
        return TX_OK;
    if (stage != e->tokenizer->splitters.prefix || *piece == ' ')
        return after_prefix(e, stage, piece, size, ids);
    if (e->prefixed_room < size + 1) {
        char *larger = realloc(e->prefixed, size + 1);
        if (!larger)
            return tx_fail(TX_MEMORY, "no memory for a text of %zu bytes", size + 1);
        e->prefixed = larger;
        e->prefixed_room = size + 1;
    }
    e->prefixed[0] = ' ';
    memcpy(e->prefixed + 1, piece, size);
    return after_prefix(e, stage, e->prefixed, size + 1, ids);
}

/* The next match from `from` on; an empty one at the end where there is none. */
static tx_status next_match(tx_encoder *e, const tx_splitter *s, const char *text, size_t size, size_t from,
                            size_t *begin, size_t *end)
{
    int found = s->compiled ? pcre2_jit_match(s->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, e->match,
                                              e->context)
                            : pcre2_match(s->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, e->match,
                                          e->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps what it must remember on the heap */
        found = pcre2_match(s->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, e->match,
                            e->context);
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
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(e->match);
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

static tx_status add_part(tx_encoder *e, int32_t stage, parts *p, const char *text, size_t begin, size_t end,
                          bool matched, tx_ids *ids)
{
    tx_status status = TX_OK;
    if (begin == end)
        return TX_OK;
    if (joins(p, matched)) {
        p->end = end;
    } else {
        status = hand_on(e, stage + 1, text, p->begin, p->end, ids);
        p->begin = matched && p->mode == TX_SPLIT_REMOVED ? end : begin;
        p->end = end;
    }
    p->any = true;
    p->matched = matched;
    return status;
}

static tx_status split(tx_encoder *e, int32_t stage, const char *text, size_t size, tx_ids *ids)
{
    const tx_splitter *s = &e->tokenizer->splitters.at[stage];
    parts p = {.mode = s->mode};
    tx_status status = TX_OK;
    for (size_t at = 0, begin = 0, end = 0; at < size && !status; at = end) {
        status = next_match(e, s, text, size, at, &begin, &end);
        if (status)
            break;
        if (p.mode == TX_SPLIT_ISOLATED) { /* nothing to hold */
            status = hand_on(e, stage + 1, text, at, begin, ids);
            if (!status)
                status = hand_on(e, stage + 1, text, begin, end, ids);
            continue;
        }
        status = add_part(e, stage, &p, text, at, begin, s->invert, ids);
        if (!status)
            status = add_part(e, stage, &p, text, begin, end, !s->invert, ids);
    }
    return status ? status : hand_on(e, stage + 1, text, p.begin, p.end, ids);
}

/* ---- Texts ----------------------------------------------------------------------------------------- */

/* Text without added tokens. What is no UTF-8 becomes the ids of its bytes. */
static tx_status add_text(tx_encoder *e, const char *text, size_t size, tx_ids *ids)
{
    tx_status status = TX_OK;
    for (size_t at = 0; at < size && !status; at++) {
        size_t good = tx_utf8_prefix(text + at, size - at);
        if (good && at == 0)
            status = hand_on(e, 0, text, 0, good, ids);
        else if (good) /* goes on after a byte: no prefix */
            status = after_prefix(e, 0, text + at, good, ids);
        at += good;
        if (!status && at < size)
            status = encode_word(e->tokenizer, text + at, 1, ids);
    }
    return status;
}

/* Text from which the added tokens of the tries before `trie` have been taken. */
static tx_status add_texts(tx_encoder *e, int trie, const char *text, size_t size, bool special, tx_ids *ids)
{
    tx_status status = TX_OK;
    if (trie == 2)
        return add_text(e, text, size, ids);
    if (!e->tokenizer->additions.trie[trie])
        return add_texts(e, trie + 1, text, size, special, ids);
    tx_found found = {0};
    do {
        size_t from = found.end;
        tx_additions_find(&e->tokenizer->additions, trie, text, size, special, e->match, &found);
        if (found.begin > from)
            status = add_texts(e, trie + 1, text + from, found.begin - from, special, ids);
        if (!status && found.added)
            status = tx_ids_reserve(ids, 1);
        if (!status && found.added)
            ids->id[ids->count++] = found.added->id;
    } while (!status && found.added);
    return status;
}

tx_status tx_encoder_run(tx_encoder *encoder, const char *text, size_t size, bool special, tx_ids *ids)
{
    size_t before = ids->count;
    tx_status status = add_texts(encoder, 0, text, size, special, ids);
    if (status)
        ids->count = before;
    return status;
}
