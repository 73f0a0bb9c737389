/* SPDX-License-Identifier: Apache-2.0
 *
 * Heaps in arrays: the first item comes before all others. Inline, so that `size` and `before` are constants of the
 * loops. */
#ifndef TX_MODELS_HEAP_H
#define TX_MODELS_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef bool tx_heap_before(const void *a, const void *b);

/* Adds an item to a heap of `count`, which has room for one more. */
static inline void tx_heap_push(void *heap, size_t count, size_t size, tx_heap_before *before, const void *item)
{
    char *items = heap;
    size_t at = count;
    for (; at > 0 && before(item, items + (at - 1) / 2 * size); at = (at - 1) / 2)
        memcpy(items + at * size, items + (at - 1) / 2 * size, size);
    memcpy(items + at * size, item, size);
}

/* Removes the first item of a heap of `count`, and copies it to `first`. */
static inline void tx_heap_pop(void *heap, size_t count, size_t size, tx_heap_before *before, void *first)
{
    char *items = heap;
    const char *last = items + (count - 1) * size;
    size_t at = 0;
    memcpy(first, items, size);
    for (size_t child; (child = 2 * at + 1) < count - 1; at = child) {
        if (child + 2 < count && before(items + (child + 1) * size, items + child * size))
            child++;
        if (!before(items + child * size, last))
            break;
        memcpy(items + at * size, items + child * size, size);
    }
    memmove(items + at * size, last, size);
}

#endif
