/* SPDX-License-Identifier: Apache-2.0
 * Tests, which are applied by "is". */
#include "models/jinja/method.h"

#include "models/tokenizer/unicode.h"

#define OTHER tx_jinja_argument_of(c, 0, "other")
#define TEST(name, condition)                                 \
    tx_jinja_value tx_jinja_do_##name(const tx_jinja_call *c) \
    {                                                         \
        return tx_jinja_bool(condition);                      \
    }

TEST(is_boolean, c->self.kind == TX_JINJA_BOOL)
TEST(is_defined, c->self.kind != TX_JINJA_UNDEFINED)
TEST(is_undefined, c->self.kind == TX_JINJA_UNDEFINED)
TEST(is_none, c->self.kind == TX_JINJA_NONE)
TEST(is_true, c->self.kind == TX_JINJA_BOOL && c->self.truth)
TEST(is_false, c->self.kind == TX_JINJA_BOOL && !c->self.truth)
TEST(is_integer, c->self.kind == TX_JINJA_INTEGER)
TEST(is_float, c->self.kind == TX_JINJA_NUMBER)
TEST(is_a_number, tx_jinja_is_number(c->self))
TEST(is_string, c->self.kind == TX_JINJA_STRING)
TEST(is_mapping, c->self.kind == TX_JINJA_DICT)
/* Jinja's undefined has __len__, __iter__ and __call__. */
TEST(is_callable,
     c->self.kind == TX_JINJA_MACRO || c->self.kind == TX_JINJA_METHOD || c->self.kind == TX_JINJA_UNDEFINED)
TEST(is_iterable,
     c->self.kind == TX_JINJA_UNDEFINED || (c->self.kind >= TX_JINJA_STRING && c->self.kind <= TX_JINJA_DICT))

TEST(is_equal, tx_jinja_equal(c->arena, c->self, OTHER))
TEST(is_other, !tx_jinja_equal(c->arena, c->self, OTHER))
TEST(is_lt, tx_jinja_compare(c->arena, c->self, OTHER) < 0)
TEST(is_le, tx_jinja_compare(c->arena, c->self, OTHER) <= 0)
TEST(is_gt, tx_jinja_compare(c->arena, c->self, OTHER) > 0)
TEST(is_ge, tx_jinja_compare(c->arena, c->self, OTHER) >= 0)
TEST(is_in, tx_jinja_contains(c->arena, OTHER, c->self))
TEST(is_same, c->self.kind == OTHER.kind && tx_jinja_equal(c->arena, c->self, OTHER))

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

tx_jinja_value tx_jinja_do_is_odd(const tx_jinja_call *c)
{
    return tx_jinja_bool((remainder_of(c, 2) != 0) == c->form);
}

tx_jinja_value tx_jinja_do_is_divisible(const tx_jinja_call *c)
{
    return tx_jinja_bool(remainder_of(c, tx_jinja_integer_of(c, 0, "num", 0)) == 0);
}

/* Returns true if there are cased letters and all are lower case (or upper case). */
tx_jinja_value tx_jinja_do_is_case(const tx_jinja_call *c)
{
    const bool upper = c->form == TX_JINJA_UPPER;
    const tx_jinja_string *s = tx_jinja_self(c);
    bool found = false;
    for (size_t at = 0, size; at < s->size && tx_jinja_step(c->arena, 1); at += size) {
        uint32_t code = 0;
        size = tx_jinja_read(s, at, &code);
        const bool is_upper = tx_unicode_is_upper(code), is_lower = tx_unicode_is_lower(code);
        if (upper ? is_lower : is_upper)
            return tx_jinja_bool(false);
        found = found || (upper ? is_upper : is_lower);
    }
    return tx_jinja_bool(found);
}
