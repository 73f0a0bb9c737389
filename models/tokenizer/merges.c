/* SPDX-License-Identifier: Apache-2.0
 * Merges: their index, and merging of words. */
#include "api/base/needs.h"
#include "models/heap.h"
#include "models/tokenizer/bpe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a long word that are merged at a time, if that is enough. */
#define WINDOW ((size_t)1 << 16)

static bool same_pair(const void *merges, uint32_t rank, const void *pair)
{
    const tx_merge *merge = (const tx_merge *)merges + rank;
    const int32_t *wanted = pair;
    return merge->left == wanted[0] && merge->right == wanted[1];
}

uint32_t tx_merges_rank(const tx_merges *merges, int32_t left, int32_t right)
{
    const int32_t pair[] = {left, right};
    return tx_index_find(&merges->index, tx_hash_pair(left, right), same_pair, merges->at, pair);
}

tx_status tx_merges_add(tx_merges *merges, tx_merge merge)
{
    const uint32_t rank = tx_merges_rank(merges, merge.left, merge.right);
    if (rank != TX_NO_RANK)
        return tx_fail(TX_FORMAT, "the pair has a merge already, number %" PRIu32, rank);
    TX_TRY(tx_array_reserve(&merges->at, &merges->room, merges->count + 1, sizeof merge, "merges"));
    TX_TRY(tx_index_add(&merges->index, tx_hash_pair(merge.left, merge.right), merges->count));
    merges->at[merges->count++] = merge;
    return TX_OK;
}

/* If the parts of every merge have lower ranks than the merge, then merging a word means applying the ranks in order,
 * each from left to right. Consider a position up to which nothing depends on the bytes after it, at the end of a
 * symbol. A rank can move that position left by at most this symbol, which is then the left part of the rank's pair (a
 * run of equal symbols is merged from its left end). So the dependence reaches at most the sum of the sizes of all left
 * parts. */
tx_status tx_merges_seal(tx_merges *merges, const tx_vocab *vocab)
{
    int64_t *rank = malloc((size_t)vocab->count * sizeof *rank); /* the highest rank that produces each token */
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
        reach += vocab->token[m->left].size ? vocab->token[m->left].size : 1; /* at least the number of its symbols */
    }
    free(rank);
    merges->reach = reach;
    merges->window = !ordered ? 0 : reach > WINDOW / 4 ? 4 * reach : WINDOW;
    return TX_OK;
}

void tx_merges_free(tx_merges *merges)
{
    free(merges->at);
    free(merges->index.slot);
}

/* Minimum number of ids to drain. */
#define DRAINED 16384

tx_status tx_ids_reserve(tx_ids *ids, size_t count)
{
    TX_NEEDS(ids, TX_INVALID);
    if (count <= ids->room - ids->count)
        return TX_OK;
    if (ids->drain && ids->count >= DRAINED) {
        tx_status status = ids->drain(ids->context, ids);
        if (status || count <= ids->room)
            return status;
    }
    return tx_array_reserve(&ids->id, &ids->room, ids->count + count, sizeof *ids->id, "ids");
}

static int32_t id_at(const tx_symbols *symbols, size_t place)
{
    return symbols->id[symbols->bytes ? (unsigned char)symbols->bytes[place] : place];
}

/* ---- Short words: linear search for the lowest rank ------------------------------------------------ */

#define SHORT 48

static void merge_short(const tx_merges *merges, int32_t *id, size_t *count)
{
    uint32_t rank[SHORT];
    size_t n = *count;
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = tx_merges_rank(merges, id[i], id[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == TX_NO_RANK)
            break;
        id[best] = merges->at[rank[best]].id;
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
        if (n > best + 2) /* the last symbol has no pair */
            memmove(rank + best + 1, rank + best + 2, (n - best - 2) * sizeof *rank);
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++)
            rank[i] = tx_merges_rank(merges, id[i], id[i + 1]);
    }
    *count = n;
}

/* ---- Long words: a heap of pairs ------------------------------------------------------------------- */

#define NOWHERE UINT32_MAX

typedef struct symbol {
    int32_t id; /* -1 if merged into the previous symbol */
    uint32_t previous, next;
} symbol;

/* A heap of pairs by rank, then by position: rank << 32 | position of the left symbol. Outdated pairs are skipped when
 * they are popped. */
typedef struct word {
    const tx_merges *merges;
    symbol *symbols;
    uint64_t *heap;
    size_t count;
} word;

static bool before(const void *a, const void *b)
{
    return *(const uint64_t *)a < *(const uint64_t *)b;
}

/* Rank of the pair that begins at a symbol. */
static uint32_t rank_at(const word *w, uint32_t place)
{
    const symbol *left = &w->symbols[place];
    return left->id < 0 || left->next == NOWHERE ? TX_NO_RANK
                                                 : tx_merges_rank(w->merges, left->id, w->symbols[left->next].id);
}

static void push_pair(word *w, uint32_t place)
{
    const uint32_t rank = place == NOWHERE ? TX_NO_RANK : rank_at(w, place);
    if (rank != TX_NO_RANK)
        tx_heap_push(w->heap, w->count++, sizeof *w->heap, before, &(uint64_t){(uint64_t)rank << 32 | place});
}

static void merge_window(word *w, const tx_symbols *symbols, size_t from, uint32_t size)
{
    w->count = 0;
    for (uint32_t i = 0; i < size; i++)
        w->symbols[i] = (symbol){id_at(symbols, from + i), i - 1, i + 1 < size ? i + 1 : NOWHERE};
    for (uint32_t i = 0; i < size; i++)
        push_pair(w, i);
    while (w->count) {
        uint64_t item;
        tx_heap_pop(w->heap, w->count--, sizeof item, before, &item);
        const uint32_t place = (uint32_t)item, rank = (uint32_t)(item >> 32);
        if (rank_at(w, place) != rank)
            continue;
        symbol *left = &w->symbols[place], *right = &w->symbols[left->next];
        left->id = w->merges->at[rank].id;
        left->next = right->next;
        right->id = -1;
        if (left->next != NOWHERE)
            w->symbols[left->next].previous = place;
        push_pair(w, left->previous);
        push_pair(w, place);
    }
}

/* Merges window by window. Symbols within `reach` bytes of the end of a window may depend on later bytes. The next
 * window starts at the first of these symbols. */
static tx_status apply_windows(word *w, const tx_symbols *symbols, size_t window, tx_ids *ids)
{
    const size_t size = symbols->count;
    for (size_t at = 0; at < size;) {
        const size_t length = size - at < window ? size - at : window;
        const size_t final = at + length < size ? length - w->merges->reach : length;
        merge_window(w, symbols, at, (uint32_t)length);
        TX_TRY(tx_ids_reserve(ids, final));
        uint32_t i = 0;
        while (i != NOWHERE) {
            const uint32_t next = w->symbols[i].next;
            if ((next == NOWHERE ? length : next) > final)
                break;
            ids->id[ids->count++] = w->symbols[i].id;
            i = next;
        }
        at += i == NOWHERE ? length : i;
    }
    return TX_OK;
}

static tx_status apply_long(const tx_merges *merges, const tx_symbols *symbols, tx_ids *ids)
{
    const size_t size = symbols->count;
    const size_t window = merges->window && merges->window < size ? merges->window : size;
    if (window >= NOWHERE)
        return tx_fail(TX_UNSUPPORTED, "a word of %zu bytes: break the text into lines", size);
    /* Each pair is pushed at most once for each of its two symbols, so there are at most twice as many. */
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
    TX_TRY(tx_ids_reserve(ids, symbols->count));
    int32_t *id = ids->id + ids->count;
    size_t count = symbols->count;
    for (size_t i = 0; i < count; i++)
        id[i] = id_at(symbols, i);
    merge_short(merges, id, &count);
    ids->count += count;
    return TX_OK;
}
