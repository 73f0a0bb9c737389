/* SPDX-License-Identifier: Apache-2.0
 * Arguments of calls, global functions, and methods of dicts, lists and loops. */
#include "models/jinja/method.h"

#include "api/base/number.h"
#include "models/tokenizer/unicode.h"

#include <string.h>
#include <time.h>

/* ---- Arguments ------------------------------------------------------------------------------------------ */

tx_jinja_value tx_jinja_argument_of(const tx_jinja_call *c, size_t index, const char *name)
{
    for (size_t i = 0; i < c->count; i++) {
        const tx_jinja_string *n = &c->at[i].name;
        if (n->size ? n->size == strlen(name) && memcmp(n->bytes, name, n->size) == 0 : i == index)
            return c->at[i].value;
    }
    return TX_JINJA_NOTHING;
}

int64_t tx_jinja_integer_of(const tx_jinja_call *c, size_t index, const char *name, int64_t usual)
{
    const tx_jinja_value v = tx_jinja_argument_of(c, index, name);
    if (v.kind == TX_JINJA_UNDEFINED || v.kind == TX_JINJA_NONE)
        return usual;
    if (v.kind != TX_JINJA_INTEGER && v.kind != TX_JINJA_BOOL)
        tx_jinja_fail(c->arena, TX_FORMAT, "%s must be an integer, not a %s", name, tx_jinja_kind_name(v));
    return v.kind == TX_JINJA_INTEGER ? v.integer : v.kind == TX_JINJA_BOOL && v.truth;
}

const tx_jinja_string *tx_jinja_string_of(const tx_jinja_call *c, size_t index, const char *name)
{
    const tx_jinja_value v = tx_jinja_argument_of(c, index, name);
    if (v.kind != TX_JINJA_STRING && v.kind != TX_JINJA_UNDEFINED && v.kind != TX_JINJA_NONE)
        tx_jinja_fail(c->arena, TX_FORMAT, "%s must be a str, not a %s", name, tx_jinja_kind_name(v));
    return v.kind == TX_JINJA_STRING ? v.string : NULL;
}

const tx_jinja_string *tx_jinja_needed(const tx_jinja_call *c, size_t index, const char *name)
{
    static const tx_jinja_string empty = {.bytes = ""};
    const tx_jinja_string *s = tx_jinja_string_of(c, index, name);
    if (!s)
        tx_jinja_fail(c->arena, TX_FORMAT, "argument %s is missing", name);
    return s ? s : &empty;
}

bool tx_jinja_is_space(uint32_t code)
{
    return tx_unicode_is_space(code) || (code >= 0x1C && code <= 0x1F);
}

const tx_jinja_string *tx_jinja_self(const tx_jinja_call *c)
{
    return tx_jinja_str(c->arena, c->self);
}

/* ---- Functions ------------------------------------------------------------------------------------------ */

/* Copies the pairs of a positional dict, then adds the named arguments. */
tx_jinja_value tx_jinja_do_dict(const tx_jinja_call *c)
{
    const tx_jinja_value result = tx_jinja_dict_new(c->arena);
    for (size_t i = 0; i < c->count && !c->arena->status; i++) {
        const tx_jinja_argument *of = &c->at[i];
        if (of->name.size)
            tx_jinja_put(c->arena, result.dict, tx_jinja_share(c->arena, of->name.bytes, of->name.size, NULL, 0),
                         of->value);
        else if (of->value.kind != TX_JINJA_DICT)
            tx_jinja_fail(c->arena, TX_FORMAT, "dict: the argument must be a dict, not a %s",
                          tx_jinja_kind_name(of->value));
        for (size_t k = 0; of->value.kind == TX_JINJA_DICT && !of->name.size && k < of->value.dict->count; k++)
            tx_jinja_put(c->arena, result.dict, of->value.dict->at[k].key, of->value.dict->at[k].value);
    }
    return result;
}

tx_jinja_value tx_jinja_do_namespace(const tx_jinja_call *c)
{
    tx_jinja_value result = tx_jinja_do_dict(c);
    for (size_t i = 0; i < result.dict->count && !c->arena->status; i++)
        if (result.dict->at[i].key.kind == TX_JINJA_STRING && result.dict->at[i].key.string->bytes[0] == '_')
            tx_jinja_fail(c->arena, TX_FORMAT, "a namespace has no attribute that begins with \"_\"");
    result.kind = result.kind == TX_JINJA_DICT ? TX_JINJA_NAMESPACE : result.kind;
    return result;
}

tx_jinja_value tx_jinja_do_raise_exception(const tx_jinja_call *c)
{
    const tx_jinja_string *text = tx_jinja_str(c->arena, tx_jinja_argument_of(c, 0, "message"));
    return tx_jinja_fail(c->arena, TX_FORMAT, "%.*s", (int)(text->size < 400 ? text->size : 400), text->bytes);
}

tx_jinja_value tx_jinja_do_range(const tx_jinja_call *c)
{
    const bool one = c->count == 1;
    const int64_t begin = one ? 0 : tx_jinja_integer_of(c, 0, "start", 0);
    const int64_t end = tx_jinja_integer_of(c, one ? 0 : 1, "stop", 0), step = tx_jinja_integer_of(c, 2, "step", 1);
    const tx_jinja_value result = tx_jinja_list_new(c->arena, false);
    if (step == 0)
        return tx_jinja_fail(c->arena, TX_FORMAT, "the step of a range must not be 0");
    for (int64_t i = begin; (step > 0 ? i < end : i > end) && tx_jinja_step(c->arena, 1);) {
        tx_jinja_append(c->arena, result.list, tx_jinja_integer(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return result;
}

tx_jinja_value tx_jinja_do_strftime_now(const tx_jinja_call *c)
{
    char format[64] = "", text[256];
    const tx_jinja_string *f = tx_jinja_string_of(c, 0, "format");
    const time_t now = time(NULL);
    struct tm parts;
    if (!f || f->size >= sizeof format)
        return tx_jinja_fail(c->arena, TX_FORMAT, "strftime_now needs a format");
    memcpy(format, f->bytes, f->size);
    localtime_r(&now, &parts);
    const size_t size = tx_format_time(text, sizeof text, format, &parts);
    char *copy = tx_jinja_take(c->arena, size, 1);
    return copy ? tx_jinja_share(c->arena, memcpy(copy, text, size), size, NULL, 0) : TX_JINJA_NOTHING;
}

/* ---- Methods -------------------------------------------------------------------------------------------- */

tx_jinja_value tx_jinja_do_get(const tx_jinja_call *c)
{
    const tx_jinja_value *found = tx_jinja_find(c->arena, c->self.dict, tx_jinja_argument_of(c, 0, "key"));
    const tx_jinja_value other = tx_jinja_argument_of(c, 1, "default");
    return found ? *found : other.kind == TX_JINJA_UNDEFINED ? (tx_jinja_value){TX_JINJA_NONE, {0}} : other;
}

/* Keys, values, or tuples of both. */
tx_jinja_value tx_jinja_do_parts(const tx_jinja_call *c)
{
    const tx_jinja_value result = tx_jinja_list_new(c->arena, false);
    if (c->self.kind == TX_JINJA_UNDEFINED)
        return result;
    if (c->self.kind != TX_JINJA_DICT)
        return tx_jinja_fail(c->arena, TX_FORMAT, "a %s has no items", tx_jinja_kind_name(c->self));
    for (size_t i = 0; i < c->self.dict->count && tx_jinja_step(c->arena, 1); i++) {
        const tx_jinja_pair *pair = &c->self.dict->at[i];
        tx_jinja_value item = c->form == TX_JINJA_KEYS ? pair->key : pair->value;
        if (c->form == TX_JINJA_PAIRS) {
            item = tx_jinja_list_new(c->arena, true);
            tx_jinja_append(c->arena, item.list, pair->key);
            tx_jinja_append(c->arena, item.list, pair->value);
        }
        tx_jinja_append(c->arena, result.list, item);
    }
    return result;
}

/* Only namespaces change, so a list or a dict is its own copy. */
tx_jinja_value tx_jinja_do_copy(const tx_jinja_call *c)
{
    return c->self;
}

tx_jinja_value tx_jinja_do_cycle(const tx_jinja_call *c)
{
    const tx_jinja_value *index = tx_jinja_find_name(c->self.dict, "index0");
    if (!index || !c->count)
        return tx_jinja_fail(c->arena, TX_FORMAT, "cycle works only in loops and needs values");
    return c->at[(size_t)index->integer % c->count].value;
}

tx_jinja_value tx_jinja_do_changed(const tx_jinja_call *c)
{
    static const char key[] = "changed values";
    const tx_jinja_value *old = tx_jinja_find_name(c->self.dict, key);
    const tx_jinja_value now = tx_jinja_list_new(c->arena, true);
    for (size_t i = 0; i < c->count; i++)
        tx_jinja_append(c->arena, now.list, c->at[i].value);
    const bool same = old && !c->arena->status && tx_jinja_equal(c->arena, *old, now);
    tx_jinja_put(c->arena, c->self.dict, tx_jinja_share(c->arena, key, sizeof key - 1, NULL, 0), now);
    return tx_jinja_bool(!same);
}
