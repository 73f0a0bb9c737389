/* SPDX-License-Identifier: Apache-2.0
 *
 * Integers of variable length, as Protocol Buffers, Thrift and Parquet store them: 7 bits a byte, the lowest first.
 * Integers of fixed length, the lowest byte first. */
#ifndef TX_FILES_VARINT_H
#define TX_FILES_VARINT_H

#include <stdbool.h>
#include <stdint.h>

/* Reads an integer and moves `*at` after it. False if it does not end before `end`, or has more than 10 bytes. */
static inline bool tx_varint_read(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        const uint8_t byte = *(*at)++;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* Reads an integer of up to 8 bytes. */
static inline uint64_t tx_fixed_read(const void *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | ((const uint8_t *)at)[i];
    return value;
}

/* The signed integer of an unsigned one: 0, -1, 1, -2, ... */
static inline int64_t tx_zigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

#endif
