/* SPDX-License-Identifier: Apache-2.0
 * Values: creation, comparison, search. */
#include "models/jinja/value.h"

#include "models/tokenizer/utf8.h"

#include <math.h>
#include <string.h>

/* ---- Making -------------------------------------------------------------------------------------------- */

/* Makes room for one more element of `size` bytes; false after a failure. */
static bool grow(tx_jinja_arena *a, void *array, size_t *room, size_t count, size_t size)
{
    void **at = array;
    if (count < *room)
        return true;
    const size_t more = *room ? 2 * *room : 8;
    void *taken = tx_jinja_take(a, more, size);
    if (!taken)
        return false;
    if (count)
        memcpy(taken, *at, count * size);
    *at = taken;
    *room = more;
    return true;
}

tx_jinja_value tx_jinja_bool(bool truth)
{
    return (tx_jinja_value){TX_JINJA_BOOL, {.truth = truth}};
}

tx_jinja_value tx_jinja_integer(int64_t integer)
{
    return (tx_jinja_value){TX_JINJA_INTEGER, {.integer = integer}};
}

tx_jinja_value tx_jinja_number(double number)
{
    return (tx_jinja_value){TX_JINJA_NUMBER, {.number = number}};
}

tx_jinja_value tx_jinja_share(tx_jinja_arena *a, const char *bytes, size_t size, const uint8_t *flags, uint8_t all)
{
    tx_jinja_string *s = tx_jinja_take(a, 1, sizeof *s);
    if (!s)
        return TX_JINJA_NOTHING;
    *s = (tx_jinja_string){bytes, size, flags, all, false};
    return (tx_jinja_value){TX_JINJA_STRING, {.string = s}};
}

tx_jinja_value tx_jinja_cut(tx_jinja_arena *a, const tx_jinja_string *s, size_t begin, size_t end)
{
    begin = begin < end ? begin : end;
    return tx_jinja_share(a, s->bytes + begin, end - begin, s->flags ? s->flags + begin : NULL, s->all);
}

static void copy_flags(uint8_t *to, const tx_jinja_string *s)
{
    if (s->flags)
        memcpy(to, s->flags, s->size);
    else
        memset(to, s->all, s->size);
}

static void add_to_tail(tx_jinja_arena *a, const tx_jinja_string *s)
{
    tx_jinja_tail *t = &a->tail;
    if (s->size) {
        memcpy(t->bytes + t->size, s->bytes, s->size);
        copy_flags(t->flags + t->size, s);
    }
    t->size += s->size;
    tx_jinja_step(a, s->size / 64);
}

#define LONG 4096u /* a sum of so many bytes gets room for more */

tx_jinja_value tx_jinja_joined(tx_jinja_arena *a, const tx_jinja_string *x, const tx_jinja_string *y)
{
    const size_t size = x->size + y->size, room = size < LONG ? size : 2 * size;
    tx_jinja_tail *t = &a->tail, last = *t;
    if (last.bytes != x->bytes || last.size != x->size || last.room < size) {
        char *bytes = tx_jinja_take(a, room, 2);
        if (!bytes)
            return TX_JINJA_NOTHING;
        *t = (tx_jinja_tail){.bytes = bytes, .flags = (uint8_t *)bytes + room, .room = room};
        add_to_tail(a, x);
    }
    add_to_tail(a, y);
    const tx_jinja_value result = tx_jinja_share(a, t->bytes, size, t->flags, 0);
    if (room == size) /* a short sum is not the tail of a long one */
        *t = last;
    return result;
}

tx_jinja_value tx_jinja_list_new(tx_jinja_arena *a, bool tuple)
{
    tx_jinja_list *list = tx_jinja_take(a, 1, sizeof *list);
    return list ? (tx_jinja_value){tuple ? TX_JINJA_TUPLE : TX_JINJA_LIST, {.list = list}} : TX_JINJA_NOTHING;
}

void tx_jinja_append(tx_jinja_arena *a, tx_jinja_list *list, tx_jinja_value value)
{
    if (!a->status && grow(a, &list->at, &list->room, list->count, sizeof *list->at))
        list->at[list->count++] = value;
}

tx_jinja_value tx_jinja_dict_new(tx_jinja_arena *a)
{
    tx_jinja_dict *dict = tx_jinja_take(a, 1, sizeof *dict);
    return dict ? (tx_jinja_value){TX_JINJA_DICT, {.dict = dict}} : TX_JINJA_NOTHING;
}

const tx_jinja_value *tx_jinja_find(tx_jinja_arena *a, const tx_jinja_dict *dict, tx_jinja_value key)
{
    tx_jinja_step(a, dict->count);
    for (size_t i = 0; i < dict->count && !a->status; i++)
        if (tx_jinja_equal(a, dict->at[i].key, key))
            return &dict->at[i].value;
    return NULL;
}

const tx_jinja_value *tx_jinja_find_name(const tx_jinja_dict *dict, const char *name)
{
    for (size_t i = 0; i < dict->count; i++)
        if (tx_jinja_is_text(dict->at[i].key, name))
            return &dict->at[i].value;
    return NULL;
}

void tx_jinja_put(tx_jinja_arena *a, tx_jinja_dict *dict, tx_jinja_value key, tx_jinja_value value)
{
    if (a->status)
        return;
    if (key.kind == TX_JINJA_LIST || key.kind == TX_JINJA_DICT) {
        tx_jinja_fail(a, TX_FORMAT, "a %s cannot be a key", tx_jinja_kind_name(key));
        return;
    }
    const tx_jinja_value *old = tx_jinja_find(a, dict, key);
    if (old)
        dict->at[(const tx_jinja_pair *)((const char *)old - offsetof(tx_jinja_pair, value)) - dict->at].value = value;
    else if (grow(a, &dict->at, &dict->room, dict->count, sizeof *dict->at))
        dict->at[dict->count++] = (tx_jinja_pair){key, value};
}

/* A role is treated as the template's own word, because it may be a part of the template's tokens ("<|user|>"). */
static uint8_t flags_of(const char *key, const tx_json *value, uint8_t flags)
{
    const char *text = NULL;
    if (strcmp(key, "role") != 0 || tx_json_type_of(value) != TX_JSON_STRING || tx_json_as_string(value, key, &text))
        return flags;
    return strlen(text) <= 32 && text[strspn(text, "abcdefghijklmnopqrstuvwxyz_")] == '\0' ? 0 : flags;
}

static tx_jinja_value from_object(tx_jinja_arena *a, const tx_json *json, uint8_t flags)
{
    const tx_jinja_value result = tx_jinja_dict_new(a);
    tx_jinja_pair *pair = tx_jinja_take(a, tx_json_size(json), sizeof *pair);
    if (pair)
        *result.dict = (tx_jinja_dict){.at = pair, .room = tx_json_size(json)};
    for (void *i = tx_json_first(json); i && !a->status; i = tx_json_next(json, i)) {
        const char *key = tx_json_key(i);
        *pair = (tx_jinja_pair){tx_jinja_share(a, key, strlen(key), NULL, flags),
                                tx_jinja_from_json(a, tx_json_value(i), flags_of(key, tx_json_value(i), flags))};
        result.dict->count = (size_t)(++pair - result.dict->at); /* keys of an object are unique */
    }
    return result;
}

static tx_jinja_value from_array(tx_jinja_arena *a, const tx_json *json, uint8_t flags)
{
    const tx_jinja_value result = tx_jinja_list_new(a, false);
    tx_jinja_value *at = tx_jinja_take(a, tx_json_size(json), sizeof *at);
    if (at)
        *result.list = (tx_jinja_list){.at = at, .room = tx_json_size(json)};
    for (size_t i = 0; i < tx_json_size(json) && !a->status; i++)
        tx_jinja_append(a, result.list, tx_jinja_from_json(a, tx_json_at(json, i), flags));
    return result;
}

static tx_jinja_value from_text(tx_jinja_arena *a, const tx_json *json, uint8_t flags)
{
    const char *bytes = "";
    size_t size = 0;
    a->status = tx_json_as_text(json, "a text", &bytes, &size);
    return tx_jinja_share(a, bytes, size, NULL, flags);
}

tx_jinja_value tx_jinja_from_json(tx_jinja_arena *a, const tx_json *json, uint8_t flags)
{
    int64_t integer = 0;
    double number = 0;
    bool truth = false;
    if (!tx_jinja_step(a, 1))
        return TX_JINJA_NOTHING;
    switch (tx_json_type_of(json)) {
    case TX_JSON_BOOL:
        tx_json_as_bool(json, "", &truth);
        return tx_jinja_bool(truth);
    case TX_JSON_INTEGER:
        tx_json_as_int(json, "", INT64_MIN, INT64_MAX, &integer);
        return tx_jinja_integer(integer);
    case TX_JSON_NUMBER:
        tx_json_as_number(json, "", -HUGE_VAL, HUGE_VAL, &number);
        return tx_jinja_number(number);
    case TX_JSON_STRING:
        return from_text(a, json, flags);
    case TX_JSON_ARRAY:
        return from_array(a, json, flags);
    case TX_JSON_OBJECT:
        return from_object(a, json, flags);
    default:
        return (tx_jinja_value){TX_JINJA_NONE, {0}};
    }
}

/* ---- Asking -------------------------------------------------------------------------------------------- */

const char *tx_jinja_kind_name(tx_jinja_value v)
{
    static const char *const names[] = {"undefined", "NoneType", "bool", "int",       "float", "str",
                                        "list",      "tuple",    "dict", "namespace", "macro", "function"};
    return names[v.kind];
}

bool tx_jinja_is_number(tx_jinja_value v)
{
    return v.kind == TX_JINJA_BOOL || v.kind == TX_JINJA_INTEGER || v.kind == TX_JINJA_NUMBER;
}

double tx_jinja_as_number(tx_jinja_value v)
{
    return v.kind == TX_JINJA_BOOL      ? (double)v.truth
           : v.kind == TX_JINJA_INTEGER ? (double)v.integer
           : v.kind == TX_JINJA_NUMBER  ? v.number
                                        : 0.0;
}

bool tx_jinja_truth(tx_jinja_value v)
{
    switch (v.kind) {
    case TX_JINJA_UNDEFINED:
    case TX_JINJA_NONE:
        return false;
    case TX_JINJA_BOOL:
    case TX_JINJA_INTEGER:
    case TX_JINJA_NUMBER:
        return tx_jinja_as_number(v) != 0.0;
    case TX_JINJA_STRING:
        return v.string->size > 0;
    case TX_JINJA_LIST:
    case TX_JINJA_TUPLE:
        return v.list->count > 0;
    case TX_JINJA_DICT:
        return v.dict->count > 0;
    default:
        return true;
    }
}

bool tx_jinja_is_text(tx_jinja_value v, const char *text)
{
    const size_t size = strlen(text);
    return v.kind == TX_JINJA_STRING && v.string->size == size && memcmp(v.string->bytes, text, size) == 0;
}

static int compare_strings(tx_jinja_arena *a, const tx_jinja_string *x, const tx_jinja_string *y)
{
    const size_t least = x->size < y->size ? x->size : y->size;
    tx_jinja_step(a, least / 64);
    const int order = least ? memcmp(x->bytes, y->bytes, least) : 0;
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static int compare_numbers(tx_jinja_value x, tx_jinja_value y)
{
    if (x.kind == TX_JINJA_INTEGER && y.kind == TX_JINJA_INTEGER)
        return (x.integer > y.integer) - (x.integer < y.integer);
    const double p = tx_jinja_as_number(x), q = tx_jinja_as_number(y);
    return (p > q) - (p < q);
}

static bool is_list(tx_jinja_value v)
{
    return v.kind == TX_JINJA_LIST || v.kind == TX_JINJA_TUPLE;
}

static bool equal_dicts(tx_jinja_arena *a, const tx_jinja_dict *x, const tx_jinja_dict *y)
{
    bool equal = x->count == y->count;
    for (size_t i = 0; i < x->count && equal; i++) {
        const tx_jinja_value *other = tx_jinja_find(a, y, x->at[i].key);
        equal = other && tx_jinja_equal(a, x->at[i].value, *other);
    }
    return equal;
}

static bool equal_values(tx_jinja_arena *a, tx_jinja_value x, tx_jinja_value y)
{
    if (tx_jinja_is_number(x) && tx_jinja_is_number(y))
        return compare_numbers(x, y) == 0 && tx_jinja_as_number(x) == tx_jinja_as_number(y);
    if (x.kind != y.kind)
        return false;
    bool equal = true;
    switch (x.kind) {
    case TX_JINJA_UNDEFINED:
    case TX_JINJA_NONE:
        return true;
    case TX_JINJA_STRING:
        return x.string->size == y.string->size && compare_strings(a, x.string, y.string) == 0;
    case TX_JINJA_LIST:
    case TX_JINJA_TUPLE:
        equal = x.list->count == y.list->count;
        for (size_t i = 0; equal && i < x.list->count; i++)
            equal = tx_jinja_equal(a, x.list->at[i], y.list->at[i]);
        return equal;
    case TX_JINJA_DICT:
        return equal_dicts(a, x.dict, y.dict);
    default:
        return x.dict == y.dict;
    }
}

bool tx_jinja_equal(tx_jinja_arena *a, tx_jinja_value x, tx_jinja_value y)
{
    const bool equal = tx_jinja_enter_value(a) && equal_values(a, x, y);
    a->depth--;
    return equal;
}

int tx_jinja_compare(tx_jinja_arena *a, tx_jinja_value x, tx_jinja_value y)
{
    /* The first elements that differ decide, which may be lists again. */
    for (size_t i = 0; is_list(x) && x.kind == y.kind && tx_jinja_step(a, 1);) {
        const tx_jinja_list *p = x.list, *q = y.list;
        if (i == p->count || i == q->count)
            return (p->count > q->count) - (p->count < q->count);
        const bool equal = tx_jinja_equal(a, p->at[i], q->at[i]);
        x = equal ? x : p->at[i];
        y = equal ? y : q->at[i];
        i = equal ? i + 1 : 0;
    }
    if (tx_jinja_is_number(x) && tx_jinja_is_number(y))
        return compare_numbers(x, y);
    if (x.kind == TX_JINJA_STRING && y.kind == TX_JINJA_STRING)
        return compare_strings(a, x.string, y.string);
    tx_jinja_fail(a, TX_FORMAT, "%s and %s cannot be ordered", tx_jinja_kind_name(x), tx_jinja_kind_name(y));
    return 0;
}

bool tx_jinja_contains(tx_jinja_arena *a, tx_jinja_value in, tx_jinja_value x)
{
    switch (in.kind) {
    case TX_JINJA_STRING:
        if (x.kind != TX_JINJA_STRING)
            tx_jinja_fail(a, TX_FORMAT, "a str cannot contain a %s", tx_jinja_kind_name(x));
        return !a->status && tx_jinja_search(a, in.string, x.string, 0) >= 0;
    case TX_JINJA_LIST:
    case TX_JINJA_TUPLE:
        for (size_t i = 0; i < in.list->count && !a->status; i++)
            if (tx_jinja_equal(a, in.list->at[i], x))
                return true;
        return false;
    case TX_JINJA_DICT:
        return tx_jinja_find(a, in.dict, x) != NULL;
    case TX_JINJA_UNDEFINED:
        return false;
    default:
        tx_jinja_fail(a, TX_FORMAT, "a %s is not a container", tx_jinja_kind_name(in));
        return false;
    }
}

const tx_jinja_list *tx_jinja_elements(tx_jinja_arena *a, tx_jinja_value v)
{
    if (is_list(v))
        return v.list;
    tx_jinja_value result = tx_jinja_list_new(a, false);
    if (v.kind == TX_JINJA_DICT) {
        for (size_t i = 0; i < v.dict->count && tx_jinja_step(a, 1); i++)
            tx_jinja_append(a, result.list, v.dict->at[i].key);
    } else if (v.kind == TX_JINJA_STRING) {
        for (size_t at = 0, end; at < v.string->size && tx_jinja_step(a, 1); at = end) {
            end = at + tx_jinja_read(v.string, at, NULL);
            tx_jinja_append(a, result.list, tx_jinja_cut(a, v.string, at, end));
        }
    } else if (v.kind != TX_JINJA_UNDEFINED) {
        tx_jinja_fail(a, TX_FORMAT, "a %s has no elements", tx_jinja_kind_name(v));
    }
    return a->status ? NULL : result.list;
}

/* ---- Characters ---------------------------------------------------------------------------------------- */

static bool is_begin(char byte)
{
    return ((unsigned char)byte & 0xC0u) != 0x80u;
}

size_t tx_jinja_read(const tx_jinja_string *s, size_t at, uint32_t *code)
{
    if (code)
        *code = 0;
    const size_t size = tx_utf8_read(s->bytes + at, s->size - at, code);
    return size ? size : 1;
}

size_t tx_jinja_length(tx_jinja_arena *a, const tx_jinja_string *s)
{
    size_t count = 0;
    tx_jinja_step(a, s->size / 64);
    for (size_t i = 0; i < s->size; i++)
        count += is_begin(s->bytes[i]);
    return count;
}

size_t tx_jinja_offset(tx_jinja_arena *a, const tx_jinja_string *s, size_t index)
{
    size_t i = 0;
    for (; i < s->size; i++)
        if (is_begin(s->bytes[i]) && index-- == 0)
            break;
    tx_jinja_step(a, i / 64);
    return i;
}

int64_t tx_jinja_search(tx_jinja_arena *a, const tx_jinja_string *s, const tx_jinja_string *part, size_t from)
{
    if (!part->size)
        return from <= s->size ? (int64_t)from : -1;
    for (size_t at = from; at + part->size <= s->size && tx_jinja_step(a, 1 + part->size / 64); at++) {
        const char *found = memchr(s->bytes + at, part->bytes[0], s->size - part->size - at + 1);
        if (!found)
            return -1;
        tx_jinja_step(a, ((size_t)(found - s->bytes) - at) / 64);
        at = (size_t)(found - s->bytes);
        if (memcmp(found, part->bytes, part->size) == 0)
            return (int64_t)at;
    }
    return -1;
}
