/* SPDX-License-Identifier: Apache-2.0
 * Filters of lists, dicts and numbers. */
#include "api/base/number.h"
#include "models/jinja/method.h"

#include <math.h>
#include <string.h>

/* ---- Parts ---------------------------------------------------------------------------------------------- */

tx_jinja_value tx_jinja_do_attr(const tx_jinja_call *c)
{
    return tx_jinja_member(c->arena, c->self, tx_jinja_argument_of(c, 0, "name"));
}

tx_jinja_value tx_jinja_do_length(const tx_jinja_call *c)
{
    const tx_jinja_value v = c->self;
    switch (v.kind) {
    case TX_JINJA_STRING:
        return tx_jinja_integer((int64_t)tx_jinja_length(c->arena, v.string));
    case TX_JINJA_LIST:
    case TX_JINJA_TUPLE:
        return tx_jinja_integer((int64_t)v.list->count);
    case TX_JINJA_DICT:
        return tx_jinja_integer((int64_t)v.dict->count);
    case TX_JINJA_UNDEFINED:
        return tx_jinja_integer(0);
    default:
        return tx_jinja_fail(c->arena, TX_FORMAT, "a %s has no length", tx_jinja_kind_name(v));
    }
}

tx_jinja_value tx_jinja_do_end_of(const tx_jinja_call *c)
{
    const tx_jinja_list *list = tx_jinja_elements(c->arena, c->self);
    return list && list->count ? list->at[c->form == TX_JINJA_BACK ? list->count - 1 : 0] : TX_JINJA_NOTHING;
}

tx_jinja_value tx_jinja_do_otherwise(const tx_jinja_call *c)
{
    const tx_jinja_value other = tx_jinja_argument_of(c, 0, "default_value");
    const bool all_false = tx_jinja_truth(tx_jinja_argument_of(c, 1, "boolean"));
    if (c->self.kind != TX_JINJA_UNDEFINED && (!all_false || tx_jinja_truth(c->self)))
        return c->self;
    return other.kind == TX_JINJA_UNDEFINED ? tx_jinja_share(c->arena, "", 0, NULL, 0) : other;
}

/* Makes a new list of the elements; undefined after a failure. */
static tx_jinja_value copy_list(const tx_jinja_call *c, tx_jinja_value of)
{
    const tx_jinja_list *list = c->arena->status ? NULL : tx_jinja_elements(c->arena, of);
    const tx_jinja_value result = tx_jinja_list_new(c->arena, false);
    for (size_t i = 0; list && i < list->count && tx_jinja_step(c->arena, 1); i++)
        tx_jinja_append(c->arena, result.list, list->at[i]);
    return c->arena->status ? TX_JINJA_NOTHING : result;
}

tx_jinja_value tx_jinja_do_list(const tx_jinja_call *c)
{
    return copy_list(c, c->self);
}

tx_jinja_value tx_jinja_do_reverse(const tx_jinja_call *c)
{
    const tx_jinja_value result = copy_list(c, c->self);
    if (c->arena->status)
        return result;
    tx_jinja_reverse(result.list);
    return c->self.kind == TX_JINJA_STRING ? tx_jinja_concatenated(c->arena, result.list) : result;
}

/* ---- Choosing ------------------------------------------------------------------------------------------- */

/* Calls the row of kind `kind` that argument `index` names, with the arguments after it. */
static tx_jinja_value call_named(const tx_jinja_call *c, tx_jinja_method_kind kind, size_t index, tx_jinja_value self)
{
    const tx_jinja_string *name = tx_jinja_string_of(c, index, "name");
    const tx_jinja_method *method = name ? c->find(kind, name) : NULL;
    if (!method && !c->arena->status)
        return tx_jinja_fail(c->arena, TX_UNSUPPORTED, "there is no %s of this name",
                             kind == TX_JINJA_A_TEST ? "test" : "filter");
    const tx_jinja_call call = {
        c->find, c->arena, self, c->at + index + 1, c->count - index - 1, method ? method->form : 0};
    return c->arena->status ? TX_JINJA_NOTHING : method->function(&call);
}

/* Reads an attribute by its name; "a.b" is attribute b of attribute a. */
static tx_jinja_value attribute_by(const tx_jinja_call *c, tx_jinja_value of, tx_jinja_value name)
{
    if (name.kind != TX_JINJA_STRING)
        return tx_jinja_member(c->arena, of, name);
    for (size_t begin = 0, end; begin <= name.string->size && of.kind != TX_JINJA_UNDEFINED; begin = end + 1) {
        for (end = begin; end < name.string->size && name.string->bytes[end] != '.';)
            end++;
        of = tx_jinja_member(c->arena, of, tx_jinja_cut(c->arena, name.string, begin, end));
    }
    return of;
}

/* The elements of `self`; NULL if it is false, as None is. */
static const tx_jinja_list *elements_if_any(const tx_jinja_call *c)
{
    return tx_jinja_truth(c->self) ? tx_jinja_elements(c->arena, c->self) : NULL;
}

tx_jinja_value tx_jinja_do_choose(const tx_jinja_call *c)
{
    const bool by_attribute = c->form & TX_JINJA_BY_ATTRIBUTE, wanted = c->form & TX_JINJA_TRUE_ONES;
    const tx_jinja_list *list = elements_if_any(c);
    const tx_jinja_value result = tx_jinja_list_new(c->arena, false);
    const size_t test = by_attribute ? 1 : 0;
    for (size_t i = 0; list && i < list->count && tx_jinja_step(c->arena, 1); i++) {
        tx_jinja_value of = list->at[i];
        if (by_attribute)
            of = attribute_by(c, of, tx_jinja_argument_of(c, 0, "attribute"));
        if (c->count > test)
            of = call_named(c, TX_JINJA_A_TEST, test, of);
        if (!c->arena->status && tx_jinja_truth(of) == wanted)
            tx_jinja_append(c->arena, result.list, list->at[i]);
    }
    return result;
}

tx_jinja_value tx_jinja_do_map(const tx_jinja_call *c)
{
    const tx_jinja_list *list = elements_if_any(c);
    const tx_jinja_value result = tx_jinja_list_new(c->arena, false);
    const tx_jinja_value name = tx_jinja_argument_of(c, SIZE_MAX, "attribute");
    const tx_jinja_value other = tx_jinja_argument_of(c, SIZE_MAX, "default");
    for (size_t i = 0; list && i < list->count && tx_jinja_step(c->arena, 1); i++) {
        tx_jinja_value v = name.kind == TX_JINJA_UNDEFINED ? call_named(c, TX_JINJA_A_FILTER, 0, list->at[i])
                                                           : attribute_by(c, list->at[i], name);
        v = v.kind == TX_JINJA_UNDEFINED ? other : v;
        tx_jinja_append(c->arena, result.list, v);
    }
    return result;
}

/* ---- Order ---------------------------------------------------------------------------------------------- */

/* The sort key of an element: its attribute, in lower case unless case_sensitive. */
static tx_jinja_value key_of(const tx_jinja_call *c, tx_jinja_value v, tx_jinja_value attribute, bool cased)
{
    if (attribute.kind != TX_JINJA_UNDEFINED && attribute.kind != TX_JINJA_NONE)
        v = attribute_by(c, v, attribute);
    const tx_jinja_call lower = {.arena = c->arena, .self = v, .form = TX_JINJA_LOWER};
    return v.kind == TX_JINJA_STRING && !cased ? tx_jinja_do_letters(&lower) : v;
}

static tx_jinja_value sorted(const tx_jinja_call *c, tx_jinja_value of, tx_jinja_value attribute, bool cased,
                             bool reverse)
{
    const tx_jinja_list *list = c->arena->status ? NULL : tx_jinja_elements(c->arena, of);
    const tx_jinja_value result = tx_jinja_list_new(c->arena, false);
    tx_jinja_pair *pair = list ? tx_jinja_take(c->arena, 2 * list->count, sizeof *pair) : NULL;
    for (size_t i = 0; pair && i < list->count; i++)
        pair[i] = (tx_jinja_pair){key_of(c, list->at[i], attribute, cased), list->at[i]};
    if (pair && !c->arena->status)
        tx_jinja_sort(c->arena, pair, pair + list->count, list->count, reverse);
    for (size_t i = 0; pair && i < list->count; i++)
        tx_jinja_append(c->arena, result.list, pair[i].value);
    return result;
}

tx_jinja_value tx_jinja_do_sort(const tx_jinja_call *c)
{
    return sorted(c, c->self, tx_jinja_argument_of(c, 2, "attribute"),
                  tx_jinja_truth(tx_jinja_argument_of(c, 1, "case_sensitive")),
                  tx_jinja_truth(tx_jinja_argument_of(c, 0, "reverse")));
}

tx_jinja_value tx_jinja_do_dictsort(const tx_jinja_call *c)
{
    const bool by_value = tx_jinja_is_text(tx_jinja_argument_of(c, 1, "by"), "value");
    const tx_jinja_call pairs = {.arena = c->arena, .self = c->self, .form = TX_JINJA_PAIRS};
    return sorted(c, tx_jinja_do_parts(&pairs), tx_jinja_integer(by_value),
                  tx_jinja_truth(tx_jinja_argument_of(c, 0, "case_sensitive")),
                  tx_jinja_truth(tx_jinja_argument_of(c, 2, "reverse")));
}

tx_jinja_value tx_jinja_do_extreme(const tx_jinja_call *c)
{
    const tx_jinja_value list =
        sorted(c, c->self, tx_jinja_argument_of(c, 1, "attribute"),
               tx_jinja_truth(tx_jinja_argument_of(c, 0, "case_sensitive")), c->form == TX_JINJA_BACK);
    return list.kind == TX_JINJA_LIST && list.list->count ? list.list->at[0] : TX_JINJA_NOTHING;
}

tx_jinja_value tx_jinja_do_unique(const tx_jinja_call *c)
{
    const tx_jinja_list *list = tx_jinja_elements(c->arena, c->self);
    const tx_jinja_value result = tx_jinja_list_new(c->arena, false), seen = tx_jinja_list_new(c->arena, false);
    const bool cased = tx_jinja_truth(tx_jinja_argument_of(c, 0, "case_sensitive"));
    for (size_t i = 0; list && i < list->count && tx_jinja_step(c->arena, 1); i++) {
        const tx_jinja_value key = key_of(c, list->at[i], tx_jinja_argument_of(c, 1, "attribute"), cased);
        if (c->arena->status || tx_jinja_contains(c->arena, seen, key))
            continue;
        tx_jinja_append(c->arena, seen.list, key);
        tx_jinja_append(c->arena, result.list, list->at[i]);
    }
    return result;
}

/* ---- Numbers -------------------------------------------------------------------------------------------- */

tx_jinja_value tx_jinja_do_absolute(const tx_jinja_call *c)
{
    if (c->self.kind == TX_JINJA_INTEGER && c->self.integer > INT64_MIN)
        return tx_jinja_integer(c->self.integer < 0 ? -c->self.integer : c->self.integer);
    return tx_jinja_number(fabs(tx_jinja_as_number(c->self)));
}

tx_jinja_value tx_jinja_do_sum(const tx_jinja_call *c)
{
    const tx_jinja_list *list = tx_jinja_elements(c->arena, c->self);
    const tx_jinja_value start = tx_jinja_argument_of(c, 1, "start"), name = tx_jinja_argument_of(c, 0, "attribute");
    double sum = tx_jinja_as_number(start);
    bool whole = start.kind != TX_JINJA_NUMBER;
    for (size_t i = 0; list && i < list->count && tx_jinja_step(c->arena, 1); i++) {
        const tx_jinja_value v = name.kind == TX_JINJA_UNDEFINED ? list->at[i] : attribute_by(c, list->at[i], name);
        if (!tx_jinja_is_number(v))
            return tx_jinja_fail(c->arena, TX_FORMAT, "sum: a %s is not a number", tx_jinja_kind_name(v));
        whole = whole && v.kind != TX_JINJA_NUMBER;
        sum += tx_jinja_as_number(v);
    }
    return whole && fabs(sum) < 9e15 ? tx_jinja_integer((int64_t)sum) : tx_jinja_number(sum);
}

/* Reads a string as a number. False if it has other characters. */
static bool read_number(const tx_jinja_call *c, double *number)
{
    char text[64], *end;
    if (tx_jinja_is_number(c->self)) {
        *number = tx_jinja_as_number(c->self);
        return true;
    }
    if (c->self.kind != TX_JINJA_STRING || !c->self.string->size || c->self.string->size >= sizeof text)
        return false;
    memcpy(text, c->self.string->bytes, c->self.string->size);
    text[c->self.string->size] = '\0';
    *number = tx_number_read(text, &end);
    return !strpbrk(text, "xX") && end > text && end[strspn(end, " \t\n")] == '\0';
}

tx_jinja_value tx_jinja_do_as_float(const tx_jinja_call *c)
{
    double number;
    const tx_jinja_value other = tx_jinja_argument_of(c, 0, "default");
    if (read_number(c, &number))
        return tx_jinja_number(number);
    return other.kind == TX_JINJA_UNDEFINED ? tx_jinja_number(0.0) : other;
}

tx_jinja_value tx_jinja_do_as_int(const tx_jinja_call *c)
{
    double number;
    const tx_jinja_value other = tx_jinja_argument_of(c, 0, "default");
    if (c->self.kind == TX_JINJA_INTEGER)
        return c->self;
    if (read_number(c, &number) && fabs(number) < 9e18)
        return tx_jinja_integer((int64_t)number);
    return other.kind == TX_JINJA_UNDEFINED ? tx_jinja_integer(0) : other;
}

tx_jinja_value tx_jinja_do_rounded(const tx_jinja_call *c)
{
    const int64_t precision = tx_jinja_integer_of(c, 0, "precision", 0);
    const tx_jinja_value method = tx_jinja_argument_of(c, 1, "method");
    const double number = tx_jinja_as_number(c->self);
    char text[400];
    if (!tx_jinja_is_number(c->self) || precision < 0 || precision > 30)
        return tx_jinja_fail(c->arena, TX_FORMAT, "round: cannot round a %s", tx_jinja_kind_name(c->self));
    if (tx_jinja_is_text(method, "ceil") || tx_jinja_is_text(method, "floor")) {
        const double scale = pow(10.0, (double)precision);
        return tx_jinja_number((tx_jinja_is_text(method, "ceil") ? ceil : floor)(number * scale) / scale);
    }
    if (c->self.kind != TX_JINJA_NUMBER)
        return c->self;
    tx_format(text, sizeof text, "%.*f", (int)precision, number); /* to the nearest, as Python rounds */
    return tx_jinja_number(tx_number_read(text, NULL));
}
