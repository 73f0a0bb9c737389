/* SPDX-License-Identifier: Apache-2.0
 * Penalties for repetitions (DRY), and the texts at which a repetition ends. */
#include "models/generate/dry.h"

#include "api/base/arithmetic.h"
#include "api/base/needs.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The largest numbers of bytes of a breaker, and of tokens after the one in which it begins. */
#define BREAKER_BYTES 40
#define TAIL_TOKENS 20

/* ---- Breakers ------------------------------------------------------------------------------------------- */

/* A breaker begins within a token, its head, and may end in later ones, its tail. Many heads have the same tail. */
struct tx_breakers {
    int64_t vocab;
    int32_t *first; /* [vocab + 1]: the tails of head i are those of link first[i] to first[i + 1] - 1 */
    int32_t *link;  /* numbers of tails */
    size_t links, links_room;
    struct tail {
        int32_t *id;
        int64_t count; /* 0 if the head has the whole breaker */
    } * tail;
    size_t count, room;
};

void tx_breakers_free(tx_breakers *breakers)
{
    if (!breakers)
        return;
    for (size_t i = 0; i < breakers->count; i++)
        free(breakers->tail[i].id);
    free(breakers->tail);
    free(breakers->link);
    free(breakers->first);
    free(breakers);
}

/* Adds the rest of a breaker. */
static tx_status add_tail(tx_breakers *b, tx_encoder *encoder, const char *rest)
{
    tx_ids ids = {0};
    TX_TRY(tx_array_reserve(&b->tail, &b->room, b->count + 1, sizeof *b->tail, "breakers"));
    tx_status status = *rest ? tx_encoder_run(encoder, rest, strlen(rest), false, &ids) : TX_OK;
    if (status) {
        free(ids.id);
        return status;
    }
    b->tail[b->count++] = (struct tail){ids.id, tx_min((int64_t)ids.count, TAIL_TOKENS)};
    return TX_OK;
}

static tx_status add_link(tx_breakers *b, size_t tail)
{
    TX_TRY(tx_array_reserve(&b->link, &b->links_room, b->links + 1, sizeof *b->link, "breakers"));
    b->link[b->links++] = (int32_t)tail;
    return TX_OK;
}

/* Links a token of these bytes to the tails of a breaker that begins in it. Tail `first` + i follows i + 1 bytes. */
static tx_status add_links(tx_breakers *b, const char *text, size_t first, const char *bytes, size_t size)
{
    const size_t length = strlen(text);
    for (size_t at = 0; at + length <= size; at++)
        if (memcmp(bytes + at, text, length) == 0)
            return add_link(b, first + length - 1);
    for (size_t at = size > length ? size - length : 0; at < size; at++)
        if (memcmp(bytes + at, text, size - at) == 0)
            TX_TRY(add_link(b, first + (size - at) - 1));
    return TX_OK;
}

static tx_status compile(tx_breakers *b, const tx_tokenizer *tokenizer, tx_encoder *encoder, const char *const *texts,
                         int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        for (const char *rest = texts[i]; *rest;)
            TX_TRY(add_tail(b, encoder, ++rest));
    for (int64_t id = 0; id < b->vocab; id++) {
        const char *bytes;
        size_t size, first = 0;
        b->first[id] = (int32_t)b->links;
        if (tx_tokenizer_piece(tokenizer, (int32_t)id, false, &bytes, &size))
            continue;
        for (int32_t i = 0; i < count; first += strlen(texts[i++]))
            TX_TRY(add_links(b, texts[i], first, bytes, size));
    }
    b->first[b->vocab] = (int32_t)b->links;
    return TX_OK;
}

tx_status tx_breakers_create(const tx_tokenizer *tokenizer, const char *const *texts, int32_t count,
                             tx_breakers **breakers)
{
    TX_NEEDS(tokenizer && breakers && count >= 0 && (texts || !count), TX_INVALID);
    for (int32_t i = 0; i < count; i++)
        if (!texts[i] || !*texts[i] || strlen(texts[i]) > BREAKER_BYTES)
            return tx_fail(TX_INVALID, "dry_sequence_breakers: text %d has %zu bytes, not 1 to %d", (int)i + 1,
                           texts[i] ? strlen(texts[i]) : 0, BREAKER_BYTES);
    tx_breakers *b = calloc(1, sizeof *b);
    if (!b)
        return tx_fail(TX_MEMORY, "no memory for breakers");
    tx_encoder *encoder = NULL;
    b->vocab = tx_tokenizer_size(tokenizer);
    b->first = calloc((size_t)b->vocab + 1, sizeof *b->first);
    tx_status status = b->first ? tx_encoder_create(tokenizer, &encoder) : tx_fail(TX_MEMORY, "no memory for breakers");
    TX_THEN(status, compile(b, tokenizer, encoder, texts, count));
    tx_encoder_free(encoder);
    return TX_RETURN(status, b, breakers, tx_breakers_free);
}

/* The links of a token to its tails, as a range. */
static const int32_t *links_of(const tx_breakers *b, int32_t id, const int32_t **end)
{
    const bool has = b && id < b->vocab;
    *end = has ? b->link + b->first[id + 1] : NULL;
    return has ? b->link + b->first[id] : NULL;
}

/* The number of the last of `count` tokens that follow a breaker. */
static int64_t after_breaker(const tx_breakers *b, const int32_t *ids, int64_t count)
{
    for (int64_t after = 0; after < count && b; after++) {
        const int32_t *const next = ids + count - after; /* the token after the head */
        const int32_t *end;
        int64_t longest = -1;
        for (const int32_t *link = links_of(b, next[-1], &end); link < end; link++) {
            const struct tail *t = &b->tail[*link];
            if (t->count > longest && t->count <= after &&
                (!t->count || memcmp(t->id, next, (size_t)t->count * sizeof *next) == 0))
                longest = t->count;
        }
        if (longest >= 0)
            return after - longest;
    }
    return count;
}

static bool is_breaker(const tx_breakers *b, int32_t id)
{
    const int32_t *end, *link = links_of(b, id, &end);
    while (link < end && b->tail[*link].count)
        link++;
    return link < end;
}

/* ---- Penalties ------------------------------------------------------------------------------------------ */

bool tx_dry_is_on(const tx_generation *how)
{
    return how->dry_multiplier > 0.0 && how->dry_penalty_last_n > 0;
}

/* Sets repeat[k] to the length of the longest end of `ids` that also ends k tokens earlier, by the Z algorithm on the
 * ids in reverse order (Gusfield, Algorithms on Strings, Trees and Sequences, 1997). */
static void find_repeats(const int32_t *ids, int64_t count, int32_t *repeat)
{
    const int32_t *const last = ids + count - 1;
    int64_t first = 0, end = 0; /* the part that is known to repeat and reaches furthest */
    for (int64_t k = 1; k < count; k++) {
        int64_t same = k < end ? tx_min(end - k, repeat[k - first]) : 0;
        while (k + same < count && last[-same] == last[-same - k])
            same++;
        repeat[k] = (int32_t)same;
        if (k + same > end) {
            first = k;
            end = k + same;
        }
    }
}

/* A token that would continue a repetition, and its length. */
typedef struct continued {
    int32_t id, length;
} continued;

static int by_id(const void *a, const void *b)
{
    const continued *x = a, *y = b;
    return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : (x->length < y->length) - (x->length > y->length);
}

static float penalty_of(const tx_generation *how, int64_t length)
{
    const double exponent = (double)(length - how->dry_allowed_length);
    return (float)fmin(how->dry_multiplier * pow(how->dry_base, exponent), FLT_MAX);
}

tx_status tx_dry_apply(const tx_generation *how, const tx_history *history, int64_t vocab, float *scores)
{
    const int64_t count = tx_min(history->count, how->dry_penalty_last_n), least = how->dry_allowed_length;
    const int32_t *const ids = history->ids + history->count - count;
    const int64_t limit = after_breaker(how->dry_breakers, ids, count);
    if (count <= least || limit < least)
        return TX_OK;
    continued *next = malloc((size_t)count * (sizeof *next + sizeof(int32_t)));
    if (!next)
        return tx_fail(TX_MEMORY, "generate: no memory for repetitions");
    int32_t *repeat = (int32_t *)(next + count);
    int64_t found = 0;
    find_repeats(ids, count, repeat);
    for (int64_t k = 1; k < count; k++)
        if (tx_min(repeat[k], limit) >= least)
            next[found++] = (continued){ids[count - k], (int32_t)tx_min(repeat[k], limit)};
    qsort(next, (size_t)found, sizeof *next, by_id);
    for (int64_t i = 0; i < found; i++) /* the longest repetition of each token */
        if ((i == 0 || next[i].id != next[i - 1].id) && next[i].id < vocab &&
            !is_breaker(how->dry_breakers, next[i].id))
            scores[next[i].id] -= penalty_of(how, next[i].length);
    free(next);
    return TX_OK;
}
