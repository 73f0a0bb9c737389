/* SPDX-License-Identifier: Apache-2.0
 * An index of items by their hashes. */
#include "models/tokenizer/hash.h"

#include <stdlib.h>

/* Index of the first empty slot for a hash. */
static size_t empty_slot(const tx_index *index, uint32_t hash)
{
    size_t at = hash & (index->slots - 1);
    while (index->slot[at].number != TX_INDEX_NONE)
        at = (at + 1) & (index->slots - 1);
    return at;
}

static tx_status grow(tx_index *index)
{
    tx_index result = {.slots = index->slots ? 2 * index->slots : 16, .used = index->used};
    result.slot = malloc(result.slots * sizeof *result.slot);
    if (!result.slot)
        return tx_fail(TX_MEMORY, "no memory for an index of %zu slots", result.slots);
    memset(result.slot, 0xFF, result.slots * sizeof *result.slot); /* all empty */
    for (size_t i = 0; i < index->slots; i++)
        if (index->slot[i].number != TX_INDEX_NONE)
            result.slot[empty_slot(&result, index->slot[i].hash)] = index->slot[i];
    free(index->slot);
    *index = result;
    return TX_OK;
}

tx_status tx_index_add(tx_index *index, uint64_t hash, size_t number)
{
    if (number >= TX_INDEX_NONE)
        return tx_fail(TX_UNSUPPORTED, "an index of more than %zu entries", number);
    if (2 * (index->used + 1) > index->slots)
        TX_TRY(grow(index));
    const size_t at = empty_slot(index, (uint32_t)hash);
    index->slot[at] = (tx_index_slot){(uint32_t)hash, (uint32_t)number};
    index->used++;
    return TX_OK;
}
