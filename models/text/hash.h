/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashes for tables with open addressing. */
#ifndef TX_TEXT_HASH_H
#define TX_TEXT_HASH_H

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

/* A pair of ids as the key of a table. */
static inline uint64_t tx_hash_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}
/* No pair of ids: an empty place. */
#define TX_HASH_NO_PAIR UINT64_MAX

/* Places of a table of `count` entries: a power of two, at most half of it used. */
static inline size_t tx_hash_places(size_t count)
{
    size_t places = 16;
    while (places / 2 < count)
        places *= 2;
    return places;
}

#endif
