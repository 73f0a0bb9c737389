/* SPDX-License-Identifier: Apache-2.0
 * Access to elements by index or key, and sorting. */
#include "models/jinja/value.h"

#include <string.h>

bool tx_jinja_as_index(tx_jinja_value v, int64_t *index)
{
    *index = v.kind == TX_JINJA_INTEGER ? v.integer : v.kind == TX_JINJA_BOOL && v.truth;
    return v.kind == TX_JINJA_INTEGER || v.kind == TX_JINJA_BOOL;
}

static tx_jinja_value element(tx_jinja_arena *a, tx_jinja_value of, int64_t index)
{
    const bool text = of.kind == TX_JINJA_STRING;
    const int64_t count = (int64_t)(text ? tx_jinja_length(a, of.string) : of.list->count);
    index += index < 0 ? count : 0;
    if (index < 0 || index >= count)
        return TX_JINJA_NOTHING;
    if (!text)
        return of.list->at[index];
    const size_t begin = tx_jinja_offset(a, of.string, (size_t)index);
    return tx_jinja_cut(a, of.string, begin, tx_jinja_offset(a, of.string, (size_t)index + 1));
}

tx_jinja_value tx_jinja_member(tx_jinja_arena *a, tx_jinja_value of, tx_jinja_value key)
{
    int64_t index;
    const bool list = of.kind == TX_JINJA_LIST || of.kind == TX_JINJA_TUPLE || of.kind == TX_JINJA_STRING;
    if (list && tx_jinja_as_index(key, &index))
        return element(a, of, index);
    const tx_jinja_value *found =
        of.kind == TX_JINJA_DICT || of.kind == TX_JINJA_NAMESPACE ? tx_jinja_find(a, of.dict, key) : NULL;
    return found ? *found : TX_JINJA_NOTHING;
}

/* ---- Order ---------------------------------------------------------------------------------------------- */

/* Merges two sorted halves. */
void tx_jinja_sort(tx_jinja_arena *a, tx_jinja_pair *at, tx_jinja_pair *scratch, size_t count, bool reverse)
{
    if (count < 2 || !tx_jinja_step(a, count))
        return;
    const size_t half = count / 2;
    tx_jinja_sort(a, at, scratch, half, reverse);
    tx_jinja_sort(a, at + half, scratch, count - half, reverse);
    memcpy(scratch, at, count * sizeof *at);
    for (size_t i = 0, x = 0, y = half; i < count; i++) {
        const int order = x == half ? 1 : y == count ? -1 : tx_jinja_compare(a, scratch[x].key, scratch[y].key);
        const bool first = x < half && (y == count || (reverse ? order >= 0 : order <= 0));
        at[i] = scratch[first ? x++ : y++];
    }
}

void tx_jinja_reverse(tx_jinja_list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        const tx_jinja_value swap = list->at[i];
        list->at[i] = list->at[list->count - 1 - i];
        list->at[list->count - 1 - i] = swap;
    }
}
