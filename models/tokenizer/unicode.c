/* SPDX-License-Identifier: Apache-2.0
 * Unicode properties and normal forms, using utf8proc. */
#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

#include <utf8proc.h>

const char *tx_unicode_version(void)
{
    return utf8proc_unicode_version();
}

static void add_character(uint32_t code, tx_buffer *out)
{
    char text[TX_UTF8_MAX];
    tx_buffer_add(out, text, tx_utf8_write(code, text));
}

/* ---- Normal forms ---------------------------------------------------------------------------------- */

typedef struct codes {
    utf8proc_int32_t *at;
    size_t count, room;
} codes;

/* Maximum length of the decomposition of one character: U+FDFA has 18. */
#define DECOMPOSED_MOST 32

static tx_status decompose(const char *text, size_t size, utf8proc_option_t options, codes *c)
{
    int boundary = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code;
        at += tx_utf8_read(text + at, size - at, &code);
        TX_TRY(tx_array_reserve(&c->at, &c->room, c->count + DECOMPOSED_MOST, sizeof *c->at, "characters"));
        const utf8proc_ssize_t result =
            utf8proc_decompose_char((utf8proc_int32_t)code, c->at + c->count, DECOMPOSED_MOST, options, &boundary);
        if (result < 0 || result > DECOMPOSED_MOST)
            return tx_fail(TX_INTERNAL, "cannot compute the normal form of U+%04X", (unsigned)code);
        c->count += (size_t)result;
    }
    return TX_OK;
}

static unsigned class_of(utf8proc_int32_t code)
{
    return (unsigned)utf8proc_get_property(code)->combining_class;
}

/* Sorts a run of marks by their combining classes; the sort is stable. */
static void sort_marks(utf8proc_int32_t *code, size_t count, utf8proc_int32_t *sorted)
{
    size_t place[257] = {0};
    for (size_t i = 0; i < count; i++)
        place[class_of(code[i]) + 1]++;
    for (size_t k = 1; k < 257; k++)
        place[k] += place[k - 1];
    for (size_t i = 0; i < count; i++)
        sorted[place[class_of(code[i])]++] = code[i];
    memcpy(code, sorted, count * sizeof *code);
}

/* Establishes the canonical order. utf8proc's own function needs quadratic time in the length of a run. */
static tx_status order(codes *c)
{
    utf8proc_int32_t *scratch = malloc((c->count + 1) * sizeof *scratch);
    if (!scratch)
        return tx_fail(TX_MEMORY, "no memory for the normal form of %zu characters", c->count);
    size_t begin = 0; /* of the run */
    bool sorted = true;
    unsigned before = 0;
    for (size_t i = 0; i <= c->count; i++) {
        const unsigned class = i < c->count ? class_of(c->at[i]) : 0;
        if (class == 0) {
            if (!sorted)
                sort_marks(c->at + begin, i - begin, scratch);
            begin = i + 1;
            sorted = true;
        }
        sorted = sorted && (class == 0 || class >= before);
        before = class;
    }
    free(scratch);
    return TX_OK;
}

void tx_unicode_normalize(tx_unicode_form form, const char *text, size_t size, tx_buffer *out)
{
    const bool compose = form == TX_NFC || form == TX_NFKC;
    const utf8proc_option_t options = UTF8PROC_DECOMPOSE | (form == TX_NFKC || form == TX_NFKD ? UTF8PROC_COMPAT : 0);
    size_t ascii = 0;
    while (ascii < size && (unsigned char)text[ascii] < 0x80)
        ascii++;
    if (ascii == size) {
        tx_buffer_add(out, text, size);
        return;
    }
    codes c = {0};
    tx_status status = decompose(text, size, options, &c);
    TX_THEN(status, order(&c));
    if (!status && compose) {
        const utf8proc_ssize_t left =
            utf8proc_normalize_utf32(c.at, (utf8proc_ssize_t)c.count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        c.count = left > 0 ? (size_t)left : 0;
    }
    for (size_t i = 0; i < c.count && !status; i++)
        add_character((uint32_t)c.at[i], out);
    if (status)
        out->status = status;
    free(c.at);
}

/* ---- Characters ------------------------------------------------------------------------------------ */

void tx_unicode_lower(uint32_t code, tx_buffer *out)
{
    if (code == 0x130) /* the only one that becomes two: i and a dot above */
        tx_buffer_add(out, "i\xCC\x87", 3);
    else
        add_character((uint32_t)utf8proc_tolower((utf8proc_int32_t)code), out);
}

void tx_unicode_upper(uint32_t code, tx_buffer *out)
{
    if (code == 0xDF) /* sharp s becomes two letters */
        tx_buffer_add(out, "SS", 2);
    else
        add_character((uint32_t)utf8proc_toupper((utf8proc_int32_t)code), out);
}

static utf8proc_category_t category(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

bool tx_unicode_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= '\t' && code <= '\r');
    const utf8proc_category_t c = category(code);
    return code == 0x85 || c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

bool tx_unicode_is_mark(uint32_t code)
{
    const utf8proc_category_t c = category(code);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

bool tx_unicode_is_accent(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_MN;
}

bool tx_unicode_is_control(uint32_t code)
{
    const utf8proc_category_t c = category(code);
    return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
}

bool tx_unicode_is_upper(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_LU;
}

bool tx_unicode_is_lower(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_LL;
}

bool tx_unicode_is_letter(uint32_t code)
{
    const utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool tx_unicode_is_number(uint32_t code)
{
    const utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}
