/* SPDX-License-Identifier: Apache-2.0
 * Tests, which are applied by "is". */
#include "models/jinja/method.h"

#include "models/tokenizer/unicode.h"

#define KIND_TEST(name, condition)                            \
    tx_jinja_value tx_jinja_do_##name(const tx_jinja_call *c) \
    {                                                         \
        const tx_jinja_value v = c->self;                     \
        return tx_jinja_bool(condition);                      \
    }

KIND_TEST(is_boolean, v.kind == TX_JINJA_BOOL)
KIND_TEST(is_defined, v.kind != TX_JINJA_UNDEFINED)
KIND_TEST(is_undefined, v.kind == TX_JINJA_UNDEFINED)
KIND_TEST(is_none, v.kind == TX_JINJA_NONE)
KIND_TEST(is_true, v.kind == TX_JINJA_BOOL && v.truth)
KIND_TEST(is_false, v.kind == TX_JINJA_BOOL && !v.truth)
KIND_TEST(is_integer, v.kind == TX_JINJA_INTEGER)
KIND_TEST(is_float, v.kind == TX_JINJA_NUMBER)
KIND_TEST(is_a_number, tx_jinja_is_number(v))
KIND_TEST(is_string, v.kind == TX_JINJA_STRING)
KIND_TEST(is_mapping, v.kind == TX_JINJA_DICT)
/* Jinja's undefined has __len__, __iter__ and __call__. */
KIND_TEST(is_callable, v.kind == TX_JINJA_MACRO || v.kind == TX_JINJA_METHOD || v.kind == TX_JINJA_UNDEFINED)
KIND_TEST(is_iterable, v.kind == TX_JINJA_UNDEFINED || (v.kind >= TX_JINJA_STRING && v.kind <= TX_JINJA_DICT))
KIND_TEST(is_sequence, v.kind == TX_JINJA_UNDEFINED || (v.kind >= TX_JINJA_STRING && v.kind <= TX_JINJA_DICT))

static int64_t remainder_of(const tx_jinja_call *c, int64_t by)
{
    const int64_t value =
        c->self.kind == TX_JINJA_INTEGER ? c->self.integer : c->self.kind == TX_JINJA_BOOL && c->self.truth;
    if ((c->self.kind != TX_JINJA_INTEGER && c->self.kind != TX_JINJA_BOOL) || by == 0) {
        tx_jinja_fail(c->arena, TX_FORMAT, "a %s cannot be divided", tx_jinja_kind_name(c->self));
        return 1;
    }
    return by == -1 ? 0 : value % by;
}

tx_jinja_value tx_jinja_do_is_even(const tx_jinja_call *c)
{
    return tx_jinja_bool(remainder_of(c, 2) == 0);
}

tx_jinja_value tx_jinja_do_is_odd(const tx_jinja_call *c)
{
    return tx_jinja_bool(remainder_of(c, 2) != 0);
}

tx_jinja_value tx_jinja_do_is_divisible(const tx_jinja_call *c)
{
    return tx_jinja_bool(remainder_of(c, tx_jinja_integer_of(c, 0, "num", 0)) == 0);
}

#define OTHER tx_jinja_argument_of(c, 0, "other")
#define ORDER_TEST(name, condition)                           \
    tx_jinja_value tx_jinja_do_##name(const tx_jinja_call *c) \
    {                                                         \
        return tx_jinja_bool(condition);                      \
    }

ORDER_TEST(is_equal, tx_jinja_equal(c->arena, c->self, OTHER))
ORDER_TEST(is_other, !tx_jinja_equal(c->arena, c->self, OTHER))
ORDER_TEST(is_lt, tx_jinja_compare(c->arena, c->self, OTHER) < 0)
ORDER_TEST(is_le, tx_jinja_compare(c->arena, c->self, OTHER) <= 0)
ORDER_TEST(is_gt, tx_jinja_compare(c->arena, c->self, OTHER) > 0)
ORDER_TEST(is_ge, tx_jinja_compare(c->arena, c->self, OTHER) >= 0)
ORDER_TEST(is_in, tx_jinja_contains(c->arena, OTHER, c->self))
ORDER_TEST(is_same, c->self.kind == OTHER.kind && tx_jinja_equal(c->arena, c->self, OTHER))

/* Returns true if there are cased letters and all are lower case (or upper case). */
static bool has_case(const tx_jinja_call *c, bool upper)
{
    const tx_jinja_string *s = tx_jinja_self(c);
    bool found = false;
    for (size_t at = 0, size; at < s->size && tx_jinja_step(c->arena, 1); at += size) {
        uint32_t code = 0;
        size = tx_jinja_read(s, at, &code);
        const bool is_upper = tx_unicode_is_upper(code), is_lower = tx_unicode_is_lower(code);
        if (upper ? is_lower : is_upper)
            return false;
        found = found || (upper ? is_upper : is_lower);
    }
    return found;
}

tx_jinja_value tx_jinja_do_is_lower(const tx_jinja_call *c)
{
    return tx_jinja_bool(has_case(c, false));
}

tx_jinja_value tx_jinja_do_is_upper(const tx_jinja_call *c)
{
    return tx_jinja_bool(has_case(c, true));
}
