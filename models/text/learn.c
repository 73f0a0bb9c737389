/* SPDX-License-Identifier: Apache-2.0
 * Learning merges: the most frequent pair first, of equally frequent ones the smaller pair of ids, until the vocabulary
 * is full (Sennrich et al., 2016). The counts of pairs are kept up to date by the words in which something was merged;
 * a queue holds each pair with the words it was seen in, and learns of falling counts when the pair comes up. */
#include "models/text/train.h"

#include "models/text/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of words, in ascending order. */
typedef struct places {
    size_t *at, count, room;
} places;

typedef struct pair {
    uint64_t key; /* tx_hash_pair */
    int64_t count;
    places seen; /* words in which it came up since it was queued last */
    bool touched;
} pair;

typedef struct queued {
    uint64_t key;
    int64_t count;
    places seen;
} queued;

typedef struct learner {
    tx_counted *word; /* words of ids */
    size_t words;
    int32_t *ids;
    pair *pair; /* open addressing */
    size_t pairs, mask;
    uint64_t *touched; /* pairs that are to be queued */
    size_t touches, touched_room;
    queued *queue; /* a heap */
    size_t queue_count, queue_room;
} learner;

/* ---- Pairs --------------------------------------------------------------------------------------- */

static pair *look_up(const learner *l, uint64_t key)
{
    size_t place = (size_t)tx_hash_mix(key) & l->mask;
    while (l->pair[place].key != key && l->pair[place].key != TX_HASH_NO_PAIR)
        place = (place + 1) & l->mask;
    return &l->pair[place];
}

static tx_status make_pairs(learner *l, size_t room)
{
    size_t old_places = l->pair ? l->mask + 1 : 0;
    pair *old = l->pair, *made = malloc(room * sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for %zu pairs", room);
    for (size_t i = 0; i < room; i++)
        made[i] = (pair){.key = TX_HASH_NO_PAIR};
    l->pair = made;
    l->mask = room - 1;
    for (size_t i = 0; i < old_places; i++)
        if (old[i].key != TX_HASH_NO_PAIR)
            *look_up(l, old[i].key) = old[i];
    free(old);
    return TX_OK;
}

static tx_status append_place(places *p, size_t word)
{
    if (p->count && p->at[p->count - 1] == word)
        return TX_OK;
    if (p->count == p->room) {
        size_t room = 2 * p->room + 2;
        size_t *at = realloc(p->at, room * sizeof *at);
        if (!at)
            return tx_fail(TX_MEMORY, "no memory for the words of a pair");
        p->at = at;
        p->room = room;
    }
    p->at[p->count++] = word;
    return TX_OK;
}

/* Counts a pair up or down in a word. */
static tx_status count_pair(learner *l, int32_t left, int32_t right, int64_t change, size_t word)
{
    uint64_t key = tx_hash_pair(left, right);
    tx_status status = TX_OK;
    if (2 * (l->pairs + 1) > l->mask)
        status = make_pairs(l, 2 * (l->mask + 1));
    if (status)
        return status;
    pair *p = look_up(l, key);
    l->pairs += p->key == TX_HASH_NO_PAIR;
    p->key = key;
    p->count += change;
    if (change < 0)
        return TX_OK;
    if (!p->touched) {
        if (l->touches == l->touched_room) {
            size_t room = 2 * l->touched_room + 1024;
            uint64_t *touched = realloc(l->touched, room * sizeof *touched);
            if (!touched)
                return tx_fail(TX_MEMORY, "no memory for %zu pairs", room);
            l->touched = touched;
            l->touched_room = room;
        }
        l->touched[l->touches++] = key;
        p->touched = true;
    }
    return append_place(&p->seen, word);
}

/* ---- The queue ----------------------------------------------------------------------------------- */

static bool before(const queued *a, const queued *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static tx_status push(learner *l, queued item)
{
    if (l->queue_count == l->queue_room) {
        size_t room = 2 * l->queue_room + 1024;
        queued *queue = realloc(l->queue, room * sizeof *queue);
        if (!queue)
            return tx_fail(TX_MEMORY, "no memory for %zu pairs", room);
        l->queue = queue;
        l->queue_room = room;
    }
    size_t at = l->queue_count++;
    for (; at > 0 && before(&item, &l->queue[(at - 1) / 2]); at = (at - 1) / 2)
        l->queue[at] = l->queue[(at - 1) / 2];
    l->queue[at] = item;
    return TX_OK;
}

static queued pop(learner *l)
{
    queued first = l->queue[0], last = l->queue[--l->queue_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < l->queue_count; at = child) {
        if (child + 1 < l->queue_count && before(&l->queue[child + 1], &l->queue[child]))
            child++;
        if (!before(&l->queue[child], &last))
            break;
        l->queue[at] = l->queue[child];
    }
    if (l->queue_count)
        l->queue[at] = last;
    return first;
}

/* Queues the pairs that came up, each with the words where it did. */
static tx_status queue_touched(learner *l)
{
    tx_status status = TX_OK;
    for (size_t i = 0; i < l->touches && !status; i++) {
        pair *p = look_up(l, l->touched[i]);
        p->touched = false;
        if (p->count > 0) {
            status = push(l, (queued){p->key, p->count, p->seen});
            if (status)
                break;
        } else {
            free(p->seen.at);
        }
        p->seen = (places){0};
    }
    l->touches = 0;
    return status;
}

/* ---- Merging ------------------------------------------------------------------------------------- */

/* Merges a pair in a word, from left to right, and counts what that does to its neighbours. */
static tx_status merge_in(learner *l, size_t number, int32_t left, int32_t right, int32_t made)
{
    tx_counted *w = &l->word[number];
    int32_t *id = l->ids + w->at;
    size_t used = 0;
    tx_status status = TX_OK;
    for (size_t i = 0; i < w->size && !status; i++) {
        if (id[i] != left || i + 1 == w->size || id[i + 1] != right) {
            id[used++] = id[i];
            continue;
        }
        if (used > 0) {
            status = count_pair(l, id[used - 1], left, -w->count, number);
            if (!status)
                status = count_pair(l, id[used - 1], made, w->count, number);
        }
        if (i + 2 < w->size && !status) {
            status = count_pair(l, right, id[i + 2], -w->count, number);
            if (!status)
                status = count_pair(l, made, id[i + 2], w->count, number);
        }
        id[used++] = made;
        i++;
    }
    w->size = used;
    return status;
}

/* The id of the pair's bytes: two pairs may spell the same. */
static tx_status make_token(tx_vocab *vocab, int32_t left, int32_t right, int32_t *id)
{
    const tx_token a = vocab->token[left], b = vocab->token[right];
    size_t size = (size_t)a.size + b.size;
    char *bytes = malloc(size);
    if (!bytes)
        return tx_fail(TX_MEMORY, "no memory for a token of %zu bytes", size);
    memcpy(bytes, vocab->bytes + a.at, a.size);
    memcpy(bytes + a.size, vocab->bytes + b.at, b.size);
    tx_status status = TX_OK;
    *id = tx_vocab_find(vocab, bytes, size);
    if (*id < 0) {
        *id = vocab->count;
        status = tx_vocab_put(vocab, *id, TX_TOKEN_WORD, bytes, size);
    }
    free(bytes);
    return status;
}

typedef struct list {
    tx_merge *at;
    size_t count, room;
} list;

static tx_status append_merge(list *merges, tx_merge merge)
{
    if (merges->count == merges->room) {
        size_t room = 2 * merges->room + 1024;
        tx_merge *at = realloc(merges->at, room * sizeof *at);
        if (!at)
            return tx_fail(TX_MEMORY, "no memory for %zu merges", room);
        merges->at = at;
        merges->room = room;
    }
    merges->at[merges->count++] = merge;
    return TX_OK;
}

static tx_status merge_pair(learner *l, const queued *top, tx_vocab *vocab, list *merges)
{
    tx_merge merge = {(int32_t)(top->key >> 32), (int32_t)(uint32_t)top->key, -1};
    tx_status status = make_token(vocab, merge.left, merge.right, &merge.id);
    if (!status)
        status = append_merge(merges, merge);
    for (size_t i = 0; i < top->seen.count && !status; i++)
        status = merge_in(l, top->seen.at[i], merge.left, merge.right, merge.id);
    return status ? status : queue_touched(l);
}

static tx_status learn(learner *l, int64_t size, int64_t least, tx_vocab *vocab, list *merges)
{
    tx_status status = TX_OK;
    while (!status && vocab->count < size && l->queue_count) {
        queued top = pop(l);
        int64_t count = look_up(l, top.key)->count;
        if (top.count != count) {
            top.count = count;
            status = push(l, top);
            if (status)
                free(top.seen.at);
            continue;
        }
        bool enough = count >= 1 && count >= least;
        if (enough)
            status = merge_pair(l, &top, vocab, merges);
        free(top.seen.at);
        if (!enough)
            break;
    }
    return status;
}

/* ---- All together -------------------------------------------------------------------------------- */

/* The words as ids, and the pairs in them. */
static tx_status begin(learner *l, const tx_counts *counts, const tx_vocab *vocab)
{
    l->words = counts->count;
    l->word = malloc((counts->count + 1) * sizeof *l->word);
    l->ids = malloc((counts->used + 1) * sizeof *l->ids);
    if (!l->word || !l->ids)
        return tx_fail(TX_MEMORY, "no memory for %zu words", counts->count);
    for (size_t i = 0; i < counts->used; i++)
        l->ids[i] = vocab->byte_ids[(unsigned char)counts->bytes[i]];
    tx_status status = make_pairs(l, 1 << 16);
    for (size_t i = 0; i < counts->count && !status; i++) {
        const tx_counted *w = &counts->word[i];
        l->word[i] = *w;
        for (size_t j = 0; j + 1 < w->size && !status; j++)
            status = count_pair(l, l->ids[w->at + j], l->ids[w->at + j + 1], w->count, i);
    }
    return status ? status : queue_touched(l);
}

static void end(learner *l)
{
    for (size_t i = 0; i < l->queue_count; i++)
        free(l->queue[i].seen.at);
    for (size_t i = 0; l->pair && i <= l->mask; i++)
        free(l->pair[i].seen.at);
    free(l->queue);
    free(l->pair);
    free(l->touched);
    free(l->word);
    free(l->ids);
}

/* A pair that came up again after it had been merged is in the list twice: its last rank counts. */
static tx_status keep_last(const list *found, tx_merges *merges)
{
    tx_merges reversed = {0};
    tx_status status = tx_merges_reserve(&reversed, found->count);
    for (size_t i = found->count; i-- > 0 && !status;)
        if (!tx_merges_has(&reversed, found->at[i].left, found->at[i].right))
            status = tx_merges_add(&reversed, found->at[i]);
    if (!status)
        status = tx_merges_reserve(merges, reversed.count);
    for (size_t i = reversed.count; i-- > 0 && !status;)
        status = tx_merges_add(merges, reversed.at[i]);
    tx_merges_free(&reversed);
    return status;
}

tx_status tx_learn_merges(const tx_counts *counts, int64_t size, int64_t least, tx_vocab *vocab, tx_merges *merges)
{
    learner l = {0};
    list found = {0};
    tx_status status = begin(&l, counts, vocab);
    if (!status)
        status = learn(&l, size, least, vocab, &found);
    if (!status)
        status = keep_last(&found, merges);
    end(&l);
    free(found.at);
    return status;
}
