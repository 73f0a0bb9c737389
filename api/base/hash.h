/* SPDX-License-Identifier: Apache-2.0
 * FNV-1a, 64 bits (Fowler, Noll, Vo): distinguishes values; it is not a cryptographic hash. */
#ifndef TX_HASH_H
#define TX_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TX_HASH_START UINT64_C(0xCBF29CE484222325)
#define TX_HASH_PRIME UINT64_C(0x100000001B3)

/* Continues `hash` with `data`. */
static inline uint64_t tx_hash(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * TX_HASH_PRIME;
    return hash;
}

/* Continues a hash with floats or other 4-byte words, a word at a time. It is four times as fast as tx_hash and gives
 * other hashes. */
static inline uint64_t tx_hash_words(uint64_t hash, const void *data, int64_t count)
{
    const unsigned char *at = data;
    uint32_t word;
    for (int64_t i = 0; i < count; i++) {
        memcpy(&word, at + i * (int64_t)sizeof word, sizeof word);
        hash = (hash ^ word) * TX_HASH_PRIME;
    }
    return hash;
}

#endif
