/* SPDX-License-Identifier: Apache-2.0
 * Unicode through utf8proc. */
#include "models/text/unicode.h"
#include "models/text/utf8.h"

#include <utf8proc.h>

const char *tx_unicode_version(void)
{
    return utf8proc_unicode_version();
}

tx_status tx_unicode_normalize(tx_unicode_form form, const char *text, size_t size, tx_buffer *out)
{
    static const utf8proc_option_t options[] = {
        [TX_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [TX_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [TX_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [TX_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    size_t ascii = 0;
    while (ascii < size && (unsigned char)text[ascii] < 0x80)
        ascii++;
    if (ascii == size)
        return tx_buffer_add(out, text, size);
    utf8proc_uint8_t *made = NULL;
    const utf8proc_ssize_t made_size =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &made, options[form]);
    if (made_size < 0)
        return tx_fail(made_size == UTF8PROC_ERROR_INVALIDUTF8 ? TX_INTERNAL : TX_MEMORY,
                       "the normal form of a text of %zu bytes: %s", size, utf8proc_errmsg(made_size));
    tx_status status = tx_buffer_add(out, (const char *)made, (size_t)made_size);
    free(made);
    return status;
}

tx_status tx_unicode_lower(uint32_t code, tx_buffer *out)
{
    char text[TX_UTF8_MAX];
    if (code == 0x130) /* the one character that becomes two: i and a dot above */
        return tx_buffer_add(out, "i\xCC\x87", 3);
    return tx_buffer_add(out, text, tx_utf8_write((uint32_t)utf8proc_tolower((utf8proc_int32_t)code), text));
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
