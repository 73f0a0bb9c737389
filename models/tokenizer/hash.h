/* SPDX-License-Identifier: Apache-2.0
 *
 * Hash functions, and an index of items by their hashes. */
#ifndef TX_TOKENIZER_HASH_H
#define TX_TOKENIZER_HASH_H

#include "tx.h"

#include <string.h>

/* The finalizer of MurmurHash3 (Appleby). */
static inline uint64_t tx_hash_mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xFF51AFD7ED558CCD);
    x ^= x >> 33;
    x *= UINT64_C(0xC4CEB9FE1A85EC53);
    return x ^ x >> 33;
}

/* The finalizer of splitmix64 (Steele, Lea, Flood, 2014), the increment of its state, and its output for a state. */
static inline uint64_t tx_hash_splitmix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}
#define TX_HASH_GOLDEN UINT64_C(0x9E3779B97F4A7C15)

static inline uint64_t tx_hash_draw(uint64_t state)
{
    return tx_hash_splitmix(state + TX_HASH_GOLDEN);
}

static inline uint64_t tx_hash_bytes(const char *bytes, size_t size)
{
    uint64_t hash = size, eight;
    for (; size >= sizeof eight; bytes += sizeof eight, size -= sizeof eight) {
        memcpy(&eight, bytes, sizeof eight);
        hash = tx_hash_mix(hash ^ eight);
    }
    eight = 0;
    memcpy(&eight, bytes, size);
    return tx_hash_mix(hash ^ eight);
}

/* Hash of a pair of ids. */
static inline uint64_t tx_hash_pair(int32_t left, int32_t right)
{
    return tx_hash_mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}

/* ---- An index ------------------------------------------------------------------------------------- */

typedef struct tx_index_slot {
    uint32_t hash, number; /* number is TX_INDEX_NONE in an empty slot */
} tx_index_slot;

/* A hash table with open addressing, at most half full. It stores only the numbers of items; the caller's function
 * compares items. Begin with {0}, end with free(index.slot). */
typedef struct tx_index {
    tx_index_slot *slot;
    size_t slots, used;
} tx_index;

#define TX_INDEX_NONE UINT32_MAX

/* Returns true if item `number` of `things` has the key. */
typedef bool tx_index_same(const void *things, uint32_t number, const void *key);

/* The number of the item with a key, or TX_INDEX_NONE. */
static inline uint32_t tx_index_find(const tx_index *index, uint64_t hash, tx_index_same *same, const void *things,
                                     const void *key)
{
    for (size_t at = (uint32_t)hash;; at++) {
        if (index->used == 0 || index->slot[at &= index->slots - 1].number == TX_INDEX_NONE)
            return TX_INDEX_NONE;
        if (index->slot[at].hash == (uint32_t)hash && same(things, index->slot[at].number, key))
            return index->slot[at].number;
    }
}

/* Adds an item whose key is not in the index. */
tx_status tx_index_add(tx_index *index, uint64_t hash, size_t number);

#endif
