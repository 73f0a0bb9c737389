/* SPDX-License-Identifier: Apache-2.0
 * An index of items by their hashes. */
#include "models/tokenizer/hash.h"

#include <stdlib.h>

/* Index of the first empty slot for a hash. */
static size_t empty_place(const tx_index *index, uint32_t hash)
{
    size_t at = hash & (index->places - 1);
    while (index->place[at].number != TX_INDEX_NONE)
        at = (at + 1) & (index->places - 1);
    return at;
}

static tx_status grow(tx_index *index)
{
    tx_index made = {.places = index->places ? 2 * index->places : 16, .used = index->used};
    made.place = malloc(made.places * sizeof *made.place);
    if (!made.place)
        return tx_fail(TX_MEMORY, "no memory for an index of %zu slots", made.places);
    memset(made.place, 0xFF, made.places * sizeof *made.place); /* all empty */
    for (size_t i = 0; i < index->places; i++)
        if (index->place[i].number != TX_INDEX_NONE)
            made.place[empty_place(&made, index->place[i].hash)] = index->place[i];
    free(index->place);
    *index = made;
    return TX_OK;
}

tx_status tx_index_add(tx_index *index, uint64_t hash, size_t number)
{
    if (number >= TX_INDEX_NONE)
        return tx_fail(TX_UNSUPPORTED, "an index of more than %zu entries", number);
    if (2 * (index->used + 1) > index->places)
        TX_TRY(grow(index));
    const size_t at = empty_place(index, (uint32_t)hash);
    index->place[at] = (tx_index_place){(uint32_t)hash, (uint32_t)number};
    index->used++;
    return TX_OK;
}
