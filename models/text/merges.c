/* SPDX-License-Identifier: Apache-2.0
 * Merges: their index, and the merging of a word's bytes. */
#include "models/text/bpe.h"
#include "models/text/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a long word that are merged at a time, where that suffices. */
#define WINDOW ((size_t)1 << 16)

/* The place of a pair, or the empty one where it would be. */
static tx_pair *look_up(const tx_merges *merges, uint64_t key)
{
    size_t place = (size_t)tx_hash_mix(key) & merges->mask;
    while (merges->index[place].key != key && merges->index[place].key != TX_HASH_NO_PAIR)
        place = (place + 1) & merges->mask;
    return &merges->index[place];
}

tx_status tx_merges_reserve(tx_merges *merges, size_t count)
{
    if (count >= TX_NO_RANK)
        return tx_fail(TX_UNSUPPORTED, "%zu merges", count);
    size_t places = tx_hash_places(count);
    merges->at = malloc((count + 1) * sizeof *merges->at);
    merges->index = malloc(places * sizeof *merges->index);
    if (!merges->at || !merges->index)
        return tx_fail(TX_MEMORY, "no memory for %zu merges", count);
    for (size_t i = 0; i < places; i++)
        merges->index[i] = (tx_pair){TX_HASH_NO_PAIR, TX_NO_RANK, -1};
    merges->room = count;
    merges->mask = places - 1;
    return TX_OK;
}

tx_status tx_merges_add(tx_merges *merges, tx_merge merge)
{
    if (merges->count == merges->room)
        return tx_fail(TX_INTERNAL, "more than the %zu merges announced", merges->room);
    uint64_t key = tx_hash_pair(merge.left, merge.right);
    tx_pair *place = look_up(merges, key);
    if (place->key == key)
        return tx_fail(TX_FORMAT, "the pair has a merge already, number %" PRIu32, place->rank);
    *place = (tx_pair){key, (uint32_t)merges->count, merge.id};
    merges->at[merges->count++] = merge;
    return TX_OK;
}

bool tx_merges_has(const tx_merges *merges, int32_t left, int32_t right)
{
    return look_up(merges, tx_hash_pair(left, right))->key != TX_HASH_NO_PAIR;
}

/* Where the parts of every merge have lower ranks than itself, merging a word is going through the ranks, each from the
 * left to the right. Let a symbol end at a place up to which nothing depends on what follows. A rank moves that place
 * to the left at most by that symbol, and then it is the left part of the rank's pair: a run of a pair of equals is
 * merged from its left end. So nothing depends on what follows at a distance of the sum of all left parts. */
tx_status tx_merges_seal(tx_merges *merges, const tx_vocab *vocab)
{
    int64_t *rank = malloc((size_t)vocab->count * sizeof *rank); /* the highest by which a token is made */
    if (!rank)
        return tx_fail(TX_MEMORY, "no memory for %" PRId32 " tokens", vocab->count);
    for (int32_t id = 0; id < vocab->count; id++)
        rank[id] = -1;
    for (size_t i = 0; i < merges->count; i++)
        rank[merges->at[i].id] = (int64_t)i;
    bool ordered = true;
    size_t reach = 0;
    for (size_t i = 0; i < merges->count; i++) {
        const tx_merge *m = &merges->at[i];
        ordered = ordered && rank[m->left] < (int64_t)i && rank[m->right] < (int64_t)i;
        reach += vocab->token[m->left].size ? vocab->token[m->left].size : 1; /* no less than its symbols */
    }
    free(rank);
    merges->reach = reach;
    merges->window = !ordered ? 0 : reach > WINDOW / 4 ? 4 * reach : WINDOW;
    return TX_OK;
}

void tx_merges_free(tx_merges *merges)
{
    free(merges->at);
    free(merges->index);
}

/* So many ids are worth draining. */
#define DRAINED 16384

tx_status tx_ids_reserve(tx_ids *ids, size_t count)
{
    if (count <= ids->room - ids->count)
        return TX_OK;
    if (ids->drain && ids->count >= DRAINED) {
        tx_status status = ids->drain(ids->context, ids);
        if (status || count <= ids->room)
            return status;
    }
    size_t room = 2 * ids->count + count + 64;
    int32_t *id = room <= SIZE_MAX / sizeof *id ? realloc(ids->id, room * sizeof *id) : NULL;
    if (!id)
        return tx_fail(TX_MEMORY, "no memory for %zu ids", room);
    ids->id = id;
    ids->room = room;
    return TX_OK;
}

static int32_t id_at(const tx_symbols *symbols, size_t place)
{
    return symbols->id[symbols->bytes ? (unsigned char)symbols->bytes[place] : place];
}

/* ---- Short words: the lowest rank is looked for anew after each merge ---------------------------- */

#define SHORT 48

static void merge_short(const tx_merges *merges, int32_t *id, size_t *count)
{
    uint32_t rank[SHORT];
    int32_t made[SHORT];
    size_t n = *count;
    for (size_t i = 0; i + 1 < n; i++) {
        const tx_pair *pair = look_up(merges, tx_hash_pair(id[i], id[i + 1]));
        rank[i] = pair->rank;
        made[i] = pair->id;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == TX_NO_RANK)
            break;
        id[best] = made[best];
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
        if (n > best + 2) { /* the last symbol has no pair */
            memmove(rank + best + 1, rank + best + 2, (n - best - 2) * sizeof *rank);
            memmove(made + best + 1, made + best + 2, (n - best - 2) * sizeof *made);
        }
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const tx_pair *pair = look_up(merges, tx_hash_pair(id[i], id[i + 1]));
            rank[i] = pair->rank;
            made[i] = pair->id;
        }
    }
    *count = n;
}

/* ---- Long words: a heap of pairs ------------------------------------------------------------------- */

#define NOWHERE UINT32_MAX

typedef struct symbol {
    int32_t id; /* -1: merged into the one before */
    uint32_t previous, next;
} symbol;

/* Pairs by rank, then by place: rank << 32 | place of the left symbol. Pairs that are gone stay until they are met. */
typedef struct word {
    const tx_merges *merges;
    symbol *symbols;
    uint64_t *heap;
    size_t count;
} word;

static void sift_down(word *w, size_t at)
{
    uint64_t item = w->heap[at];
    for (size_t child; (child = 2 * at + 1) < w->count; at = child) {
        if (child + 1 < w->count && w->heap[child + 1] < w->heap[child])
            child++;
        if (w->heap[child] >= item)
            break;
        w->heap[at] = w->heap[child];
    }
    w->heap[at] = item;
}

static void push(word *w, uint64_t item)
{
    size_t at = w->count++;
    for (; at > 0 && w->heap[(at - 1) / 2] > item; at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = item;
}

static uint64_t pop(word *w)
{
    uint64_t item = w->heap[0];
    w->heap[0] = w->heap[--w->count];
    if (w->count)
        sift_down(w, 0);
    return item;
}

/* The pair that begins at a symbol, or NULL. */
static const tx_pair *pair_at(const word *w, uint32_t place)
{
    const symbol *left = &w->symbols[place];
    if (left->id < 0 || left->next == NOWHERE)
        return NULL;
    const tx_pair *pair = look_up(w->merges, tx_hash_pair(left->id, w->symbols[left->next].id));
    return pair->rank == TX_NO_RANK ? NULL : pair;
}

static void push_pair(word *w, uint32_t place)
{
    const tx_pair *pair = place == NOWHERE ? NULL : pair_at(w, place);
    if (pair)
        push(w, (uint64_t)pair->rank << 32 | place);
}

static void merge_long(word *w)
{
    for (size_t i = w->count / 2; i-- > 0;)
        sift_down(w, i);
    while (w->count) {
        uint64_t item = pop(w);
        uint32_t place = (uint32_t)item;
        const tx_pair *pair = pair_at(w, place);
        if (!pair || pair->rank != (uint32_t)(item >> 32))
            continue;
        symbol *left = &w->symbols[place], *right = &w->symbols[left->next];
        left->id = pair->id;
        left->next = right->next;
        right->id = -1;
        if (left->next != NOWHERE)
            w->symbols[left->next].previous = place;
        push_pair(w, left->previous);
        push_pair(w, place);
    }
}

static void merge_window(word *w, const tx_symbols *symbols, size_t from, uint32_t size)
{
    w->count = 0;
    for (uint32_t i = 0; i < size; i++)
        w->symbols[i] = (symbol){id_at(symbols, from + i), i - 1, i + 1 < size ? i + 1 : NOWHERE};
    for (uint32_t i = 0; i < size; i++) {
        const tx_pair *pair = pair_at(w, i);
        if (pair)
            w->heap[w->count++] = (uint64_t)pair->rank << 32 | i;
    }
    merge_long(w);
}

/* Window by window. What stands within `reach` bytes of the end of one may depend on what follows: there the next
 * begins, where a symbol does. */
static tx_status apply_windows(word *w, const tx_symbols *symbols, size_t window, tx_ids *ids)
{
    const size_t size = symbols->count;
    tx_status status = TX_OK;
    for (size_t at = 0; at < size && !status;) {
        const size_t length = size - at < window ? size - at : window;
        const size_t settled = at + length < size ? length - w->merges->reach : length;
        merge_window(w, symbols, at, (uint32_t)length);
        status = tx_ids_reserve(ids, settled);
        uint32_t i = 0;
        while (!status && i != NOWHERE) {
            const uint32_t next = w->symbols[i].next;
            if ((next == NOWHERE ? length : next) > settled)
                break;
            ids->id[ids->count++] = w->symbols[i].id;
            i = next;
        }
        at += i == NOWHERE ? length : i;
    }
    return status;
}

static tx_status apply_long(const tx_merges *merges, const tx_symbols *symbols, tx_ids *ids)
{
    const size_t size = symbols->count;
    const size_t window = merges->window && merges->window < size ? merges->window : size;
    if (window >= NOWHERE)
        return tx_fail(TX_UNSUPPORTED, "a word of %zu bytes: break the text into lines", size);
    /* Each pair is pushed once by each of its two symbols at most: in all no more than twice as many. */
    word w = {merges, malloc(window * sizeof(symbol)), malloc(2 * window * sizeof(uint64_t)), 0};
    tx_status status = w.symbols && w.heap ? apply_windows(&w, symbols, window, ids)
                                           : tx_fail(TX_MEMORY, "no memory for a word of %zu bytes", size);
    free(w.symbols);
    free(w.heap);
    return status;
}

tx_status tx_merges_apply(const tx_merges *merges, const tx_symbols *symbols, tx_ids *ids)
{
    if (symbols->count > SHORT)
        return apply_long(merges, symbols, ids);
    tx_status status = tx_ids_reserve(ids, symbols->count);
    if (status)
        return status;
    int32_t *id = ids->id + ids->count;
    size_t count = symbols->count;
    for (size_t i = 0; i < count; i++)
        id[i] = id_at(symbols, i);
    merge_short(merges, id, &count);
    ids->count += count;
    return TX_OK;
}
