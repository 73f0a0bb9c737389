/* SPDX-License-Identifier: Apache-2.0
 * Growing arrays, and the clock for durations. */
#include "api/base/clock.h"
#include "api/base/needs.h"

#include <stdlib.h>
#include <string.h>

tx_status tx_array_reserve(void *array, size_t *room, size_t count, size_t size, const char *what)
{
    TX_NEEDS(array && room && size && what, TX_INVALID);
    if (count <= *room)
        return TX_OK;
    const size_t twice = *room < 8 ? 16 : 2 * *room, more = count < twice ? twice : count;
    void *memory;
    memcpy(&memory, array, sizeof memory);
    void *larger = more <= SIZE_MAX / size ? realloc(memory, more * size) : NULL;
    if (!larger)
        return tx_fail(TX_MEMORY, "no memory for %zu %s", more, what);
    memcpy(array, &larger, sizeof larger);
    *room = more;
    return TX_OK;
}

double tx_now(void)
{
    return tx_seconds(CLOCK_MONOTONIC);
}
