/* SPDX-License-Identifier: Apache-2.0
 * Elements of values by number or key. */
#include "models/jinja/value.h"

bool tx_jinja_as_index(tx_jinja_value v, int64_t *index)
{
    *index = v.kind == TX_JINJA_INTEGER ? v.integer : v.kind == TX_JINJA_BOOL && v.truth;
    return v.kind == TX_JINJA_INTEGER || v.kind == TX_JINJA_BOOL;
}

static tx_jinja_value element(tx_jinja_arena *a, tx_jinja_value of, int64_t index)
{
    const bool text = of.kind == TX_JINJA_STRING;
    const int64_t count = (int64_t)(text ? tx_jinja_length(of.string) : of.list->count);
    index += index < 0 ? count : 0;
    tx_jinja_step(a, text ? of.string->size / 64 : 0);
    if (index < 0 || index >= count)
        return TX_JINJA_NOTHING;
    if (!text)
        return of.list->at[index];
    const size_t begin = tx_jinja_place(of.string, (size_t)index);
    return tx_jinja_cut(a, of.string, begin, tx_jinja_place(of.string, (size_t)index + 1));
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
