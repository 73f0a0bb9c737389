/* SPDX-License-Identifier: Apache-2.0
 * Learns merges: repeatedly the most frequent pair, ties by the smaller pair of ids, until the vocabulary is full
 * (Sennrich et al., 2016). Counts of pairs are updated in the words that contain the merged pair. A priority queue
 * holds each pair with the words it was seen in. Decreased counts are corrected when the pair reaches the best. */
#include "models/tokenizer/train.h"

#include "models/heap.h"

#include <stdlib.h>
#include <string.h>

/* Indices of words, ascending. */
typedef struct places {
    size_t *at, count, room;
} places;

typedef struct pair {
    int32_t id[2];
    int64_t count;
    places seen;  /* words in which it occurred since it was last queued */
    bool touched; /* it is in learner.touched */
} pair;

typedef struct queued {
    uint32_t pair;
    int32_t id[2];
    int64_t count;
    places seen;
} queued;

typedef struct learner {
    tx_counted *word; /* words of ids */
    size_t words;
    int32_t *ids;
    pair *pair;
    size_t pairs, pair_room;
    tx_index index;    /* of the pairs */
    uint32_t *touched; /* pairs to be queued */
    size_t touches, touched_room;
    queued *queue; /* a heap */
    size_t queue_count, queue_room;
    tx_merge *merge; /* the learned merges */
    size_t merges, merge_room;
} learner;

/* ---- Pairs --------------------------------------------------------------------------------------- */

static bool same_pair(const void *pairs, uint32_t number, const void *id)
{
    return memcmp(((const pair *)pairs)[number].id, id, sizeof(pair){0}.id) == 0;
}

/* Finds the number of a pair, or adds the pair. */
static tx_status find_pair(learner *l, int32_t left, int32_t right, uint32_t *number)
{
    const pair wanted = {.id = {left, right}};
    const uint64_t hash = tx_hash_pair(left, right);
    *number = tx_index_find(&l->index, hash, same_pair, l->pair, wanted.id);
    if (*number != TX_INDEX_NONE)
        return TX_OK;
    TX_TRY(tx_array_reserve(&l->pair, &l->pair_room, l->pairs + 1, sizeof wanted, "pairs"));
    TX_TRY(tx_index_add(&l->index, hash, l->pairs));
    *number = (uint32_t)l->pairs;
    l->pair[l->pairs++] = wanted;
    return TX_OK;
}

/* Changes the count of a pair because of a word. */
static tx_status count_pair(learner *l, int32_t left, int32_t right, int64_t change, size_t word)
{
    uint32_t number;
    TX_TRY(find_pair(l, left, right, &number));
    pair *p = &l->pair[number];
    places *seen = &p->seen;
    p->count += change;
    if (change < 0)
        return TX_OK;
    if (!p->touched) {
        TX_TRY(tx_array_reserve(&l->touched, &l->touched_room, l->touches + 1, sizeof number, "pairs"));
        l->touched[l->touches++] = number;
        p->touched = true;
    }
    if (seen->count && seen->at[seen->count - 1] == word)
        return TX_OK;
    TX_TRY(tx_array_reserve(&seen->at, &seen->room, seen->count + 1, sizeof word, "words of a pair"));
    seen->at[seen->count++] = word;
    return TX_OK;
}

/* ---- The queue ----------------------------------------------------------------------------------- */

static bool before(const void *a, const void *b)
{
    const queued *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count;
    return x->id[0] != y->id[0] ? x->id[0] < y->id[0] : x->id[1] < y->id[1];
}

static tx_status push(learner *l, queued item)
{
    TX_TRY(tx_array_reserve(&l->queue, &l->queue_room, l->queue_count + 1, sizeof item, "pairs"));
    tx_heap_push(l->queue, l->queue_count++, sizeof item, before, &item);
    return TX_OK;
}

/* Queues the pairs whose counts increased, with the words of the increases. */
static tx_status queue_touched(learner *l)
{
    tx_status status = TX_OK;
    for (size_t i = 0; i < l->touches && !status; i++) {
        pair *p = &l->pair[l->touched[i]];
        p->touched = false;
        if (p->count > 0) {
            status = push(l, (queued){l->touched[i], {p->id[0], p->id[1]}, p->count, p->seen});
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

/* Merges a pair in a word, from left to right, and updates the counts of adjacent pairs. */
static tx_status merge_in(learner *l, size_t number, int32_t left, int32_t right, int32_t result)
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
            TX_THEN(status, count_pair(l, id[used - 1], result, w->count, number));
        }
        if (i + 2 < w->size && !status) {
            status = count_pair(l, right, id[i + 2], -w->count, number);
            TX_THEN(status, count_pair(l, result, id[i + 2], w->count, number));
        }
        id[used++] = result;
        i++;
    }
    w->size = used;
    return status;
}

/* Finds or makes the token with the pair's bytes. Two pairs may have the same bytes. */
static tx_status make_token(tx_vocab *vocab, int32_t left, int32_t right, int32_t *id)
{
    const tx_token a = vocab->token[left], b = vocab->token[right];
    size_t size = (size_t)a.size + b.size;
    char *bytes = malloc(size);
    if (!bytes)
        return tx_fail(TX_MEMORY, "no memory for a token of %zu bytes", size);
    memcpy(bytes, vocab->bytes.data + a.at, a.size);
    memcpy(bytes + a.size, vocab->bytes.data + b.at, b.size);
    tx_status status = TX_OK;
    *id = tx_vocab_find(vocab, TX_TOKEN_WORD, bytes, size);
    if (*id < 0) {
        *id = vocab->count;
        status = tx_vocab_put(vocab, *id, TX_TOKEN_WORD, bytes, size);
    }
    free(bytes);
    return status;
}

static tx_status merge_pair(learner *l, const queued *best, tx_vocab *vocab)
{
    tx_merge merge = {best->id[0], best->id[1], -1};
    TX_TRY(make_token(vocab, merge.left, merge.right, &merge.id));
    TX_TRY(tx_array_reserve(&l->merge, &l->merge_room, l->merges + 1, sizeof merge, "merges"));
    l->merge[l->merges++] = merge;
    for (size_t i = 0; i < best->seen.count; i++)
        TX_TRY(merge_in(l, best->seen.at[i], merge.left, merge.right, merge.id));
    return queue_touched(l);
}

static tx_status learn(learner *l, int64_t size, int64_t least, tx_vocab *vocab)
{
    tx_status status = TX_OK;
    while (!status && vocab->count < size && l->queue_count) {
        queued best;
        tx_heap_pop(l->queue, l->queue_count--, sizeof best, before, &best);
        int64_t count = l->pair[best.pair].count;
        if (best.count != count) {
            best.count = count;
            status = push(l, best);
            if (status)
                free(best.seen.at);
            continue;
        }
        bool enough = count >= 1 && count >= least;
        if (enough)
            status = merge_pair(l, &best, vocab);
        free(best.seen.at);
        if (!enough)
            break;
    }
    return status;
}

/* ---- Learning ------------------------------------------------------------------------------------ */

/* Converts the words to ids, and counts their pairs. */
static tx_status begin(learner *l, const tx_counts *counts, const tx_vocab *vocab)
{
    l->words = counts->count;
    l->word = malloc((counts->count + 1) * sizeof *l->word);
    l->ids = malloc((counts->bytes.size + 1) * sizeof *l->ids);
    if (!l->word || !l->ids)
        return tx_fail(TX_MEMORY, "no memory for %zu words", counts->count);
    for (size_t i = 0; i < counts->bytes.size; i++)
        l->ids[i] = vocab->byte_ids[(unsigned char)counts->bytes.data[i]];
    for (size_t i = 0; i < counts->count; i++) {
        const tx_counted *w = &counts->word[i];
        l->word[i] = *w;
        for (size_t j = 0; j + 1 < w->size; j++)
            TX_TRY(count_pair(l, l->ids[w->at + j], l->ids[w->at + j + 1], w->count, i));
    }
    return queue_touched(l);
}

static void end(learner *l)
{
    for (size_t i = 0; i < l->queue_count; i++)
        free(l->queue[i].seen.at);
    for (size_t i = 0; i < l->pairs; i++)
        free(l->pair[i].seen.at);
    free(l->queue);
    free(l->pair);
    free(l->index.slot);
    free(l->touched);
    free(l->merge);
    free(l->word);
    free(l->ids);
}

/* A pair that reappeared after it was merged is listed twice: keep its last rank. */
static tx_status keep_last(const learner *l, tx_merges *merges)
{
    tx_merges reversed = {0};
    tx_status status = TX_OK;
    for (size_t i = l->merges; i-- > 0 && !status;)
        if (tx_merges_rank(&reversed, l->merge[i].left, l->merge[i].right) == TX_NO_RANK)
            status = tx_merges_add(&reversed, l->merge[i]);
    for (size_t i = reversed.count; i-- > 0 && !status;)
        status = tx_merges_add(merges, reversed.at[i]);
    tx_merges_free(&reversed);
    return status;
}

tx_status tx_learn_merges(const tx_counts *counts, int64_t size, int64_t least, tx_vocab *vocab, tx_merges *merges)
{
    learner l = {0};
    tx_status status = begin(&l, counts, vocab);
    TX_THEN(status, learn(&l, size, least, vocab));
    TX_THEN(status, keep_last(&l, merges));
    end(&l);
    return status;
}
