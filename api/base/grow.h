/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that grow by one element at a time. */
#ifndef TX_GROW_H
#define TX_GROW_H

#include <stdint.h>
#include <stdlib.h>

/* Returns the array with room for one more than its `count` elements of `size` bytes. The capacity is the next power of
 * 2, at least 64. Returns NULL if memory runs out; the array is then unchanged. */
static inline void *tx_grown(void *array, int32_t count, size_t size)
{
    if (count > 0 && (count < 64 || (count & (count - 1)) != 0))
        return array;
    return realloc(array, (count < 64 ? 64 : 2 * (size_t)count) * size);
}

/* Returns the capacity of an array of `count` elements that tx_grown may enlarge. */
static inline size_t tx_room(int32_t count)
{
    size_t room = 64;
    while (room < (size_t)count)
        room *= 2;
    return room;
}

#endif
