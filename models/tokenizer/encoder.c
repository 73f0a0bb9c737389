/* SPDX-License-Identifier: Apache-2.0
 * Converts texts to ids: added tokens, normalizer, pre-tokenizer, model. A cache of short words avoids most merging. */
#include "models/tokenizer/bpe.h"

#include "api/base/needs.h"
#include "models/tokenizer/hash.h"
#include "models/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

/* The cache is direct-mapped: a word replaces another one with the same hash. It holds words of at most this many bytes
 * and ids, so that an entry fills one cache line of the processor. */
#define CACHED_BYTES 32
#define CACHED_IDS 7
#define CACHE_PLACES 32768

typedef struct cached {
    uint64_t key[CACHED_BYTES / 8]; /* the word, padded with zeros */
    int32_t id[CACHED_IDS];
    uint8_t size, count; /* size 0 marks an empty entry */
    uint16_t unused;
} cached;

struct tx_encoder {
    const tx_tokenizer *tokenizer;
    tx_cutter *cutter;
    tx_buffer normal[2], scratch;
    pcre2_match_data *match; /* for characters next to added tokens */
    cached *cache;
    tx_ids *ids;           /* the output of the current text */
    const tx_marks *marks; /* of the current text; may be NULL */
    bool first_counts;     /* the pre-tokenizer treats the beginning of the text in a special way */
};

static tx_status add_word(void *context, const char *word, size_t size);

tx_status tx_encoder_create(const tx_tokenizer *tokenizer, tx_encoder **encoder)
{
    TX_NEEDS(tokenizer && encoder, TX_INVALID);
    tx_encoder *created = calloc(1, sizeof *created);
    if (created) {
        created->tokenizer = tokenizer;
        created->match = pcre2_match_data_create(1, NULL);
        for (int32_t i = 0; i < tokenizer->pre_tokenizer.count; i++)
            created->first_counts = created->first_counts || tokenizer->pre_tokenizer.at[i].prepend == TX_PREPEND_FIRST;
        created->cache = calloc(CACHE_PLACES, sizeof *created->cache);
    }
    tx_status status =
        created && created->match && created->cache ? TX_OK : tx_fail(TX_MEMORY, "no memory for an encoder");
    TX_THEN(status, tx_cutter_create(&tokenizer->pre_tokenizer, add_word, created, &created->cutter));
    return TX_RETURN(status, created, encoder, tx_encoder_free);
}

void tx_encoder_free(tx_encoder *encoder)
{
    if (!encoder)
        return;
    tx_cutter_free(encoder->cutter);
    free(encoder->normal[0].data);
    free(encoder->normal[1].data);
    free(encoder->scratch.data);
    pcre2_match_data_free(encoder->match);
    free(encoder->cache);
    free(encoder);
}

/* ---- Words --------------------------------------------------------------------------------------- */

static tx_status add_word(void *context, const char *word, size_t size)
{
    tx_encoder *e = context;
    tx_ids *ids = e->ids;
    if (size > CACHED_BYTES)
        return e->tokenizer->model->encode(e->tokenizer, &e->scratch, word, size, ids);
    TX_TRY(tx_ids_reserve(ids, CACHED_BYTES)); /* before `count` is read, because this may drain `ids` */
    uint64_t key[CACHED_BYTES / 8] = {0};
    memcpy(key, word, size);
    uint64_t hash = key[0] ^ size;
    for (size_t i = 1; 8 * i < size; i++)
        hash = tx_hash_mix(hash) ^ key[i];
    cached *c = &e->cache[tx_hash_mix(hash) & (CACHE_PLACES - 1)];
    if (c->size == size && memcmp(c->key, key, sizeof key) == 0) {
        memcpy(ids->id + ids->count, c->id, sizeof c->id);
        ids->count += c->count;
        return TX_OK;
    }
    size_t before = ids->count;
    TX_TRY(e->tokenizer->model->encode(e->tokenizer, &e->scratch, word, size, ids));
    size_t count = ids->count - before;
    if (count <= CACHED_IDS) {
        memcpy(c->key, key, sizeof key);
        memcpy(c->id, ids->id + before, count * sizeof *c->id);
        c->size = (uint8_t)size;
        c->count = (uint8_t)count;
    }
    return TX_OK;
}

/* ---- Texts ----------------------------------------------------------------------------------------- */

static tx_status add_texts(tx_encoder *e, int finder, const char *text, size_t size, bool special, bool first);

/* Encodes text without the added tokens of the finders before `finder`. It is normalized before finder 1. */
static tx_status add_rest(tx_encoder *e, int finder, const char *text, size_t size, bool special, bool first)
{
    if (finder == 2)
        return tx_cutter_run(e->cutter, text, size, first);
    if (finder == 1)
        TX_TRY(tx_normalizer_run(&e->tokenizer->normalizer, tx_cutter_matcher(e->cutter), e->normal, &text, &size,
                                 e->first_counts ? &first : NULL));
    return add_texts(e, finder, text, size, special, first);
}

/* Splits a text at the added tokens of a finder. `first` is true if the text is at the beginning. */
static tx_status add_texts(tx_encoder *e, int finder, const char *text, size_t size, bool special, bool first)
{
    if (!e->tokenizer->additions.finder[finder])
        return add_rest(e, finder + 1, text, size, special, first);
    tx_found found = {0};
    do {
        size_t from = found.end;
        tx_additions_find(&e->tokenizer->additions, finder, text, size, special, e->marks, e->match, &found);
        if (found.begin > from)
            TX_TRY(add_rest(e, finder + 1, text + from, found.begin - from, special, first && from == 0));
        if (found.added) {
            TX_TRY(tx_ids_reserve(e->ids, 1));
            e->ids->id[e->ids->count++] = found.added->id;
        }
    } while (found.added);
    return TX_OK;
}

tx_status tx_encoder_run(tx_encoder *encoder, const char *text, size_t size, bool special, tx_ids *ids)
{
    TX_NEEDS(encoder && ids && (text || !size), TX_INVALID);
    const tx_tokenizer *t = encoder->tokenizer;
    size_t before = ids->count;
    char *mended = NULL;
    tx_status status = TX_OK;
    encoder->ids = ids;
    tx_matcher_begin(tx_cutter_matcher(encoder->cutter), size);
    /* Invalid bytes are words of their own only with ByteLevel and without a normalizer. */
    if ((!t->bytes || t->normalizer.count) && tx_utf8_prefix(text, size) < size) {
        status = tx_utf8_replace(text, size, &mended, &size);
        text = mended;
    }
    TX_THEN(status, add_texts(encoder, 0, text, size, special, true));
    free(mended);
    if (status)
        ids->count = before;
    return status;
}

tx_status tx_encoder_marked(tx_encoder *encoder, const char *text, size_t size, const tx_marks *marks, tx_ids *ids)
{
    encoder->marks = marks;
    tx_status status = tx_encoder_run(encoder, text, size, true, ids);
    encoder->marks = NULL;
    return status;
}

tx_status tx_encoder_text(tx_encoder *encoder, const char *text, size_t size, tx_ids *ids)
{
    TX_NEEDS(encoder && text && ids, TX_INVALID);
    const tx_template *template = &encoder->tokenizer->post_processor.of[0];
    for (size_t i = 0; i < template->count; i++) {
        const int32_t id = template->item[i].id;
        if (id == TX_TEMPLATE_FIRST) {
            TX_TRY(tx_encoder_run(encoder, text, size, true, ids));
        } else if (id != TX_TEMPLATE_SECOND) {
            TX_TRY(tx_ids_reserve(ids, 1));
            ids->id[ids->count++] = id;
        }
    }
    return TX_OK;
}
