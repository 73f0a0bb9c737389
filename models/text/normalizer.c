/* SPDX-License-Identifier: Apache-2.0
 * Normalizers: what a text becomes before it is cut into words. */
#include "models/text/normalizer.h"
#include "models/text/unicode.h"
#include "models/text/utf8.h"

/* ---- Normal forms, case, accents ------------------------------------------------------------------- */

#define FORM(form, name)                                                                                           \
    static tx_status name(const tx_step *step, tx_matcher *matcher, const char *text, size_t size, tx_buffer *out) \
    {                                                                                                              \
        (void)step;                                                                                                \
        (void)matcher;                                                                                             \
        return tx_unicode_normalize(form, text, size, out);                                                        \
    }
FORM(TX_NFC, nfc)
FORM(TX_NFD, nfd)
FORM(TX_NFKC, nfkc)
FORM(TX_NFKD, nfkd)

/* Leaves out the characters that `drop` is true of (NULL: none), and lowers the others if that is wanted. */
static tx_status filter(const char *text, size_t size, bool (*drop)(uint32_t code), bool lower, tx_buffer *out)
{
    tx_status status = TX_OK;
    for (size_t at = 0, length; at < size && !status; at += length) {
        uint32_t code;
        length = tx_utf8_read(text + at, size - at, &code);
        if (drop && drop(code))
            continue;
        status = lower ? tx_unicode_lower(code, out) : tx_buffer_add(out, text + at, length);
    }
    return status;
}

static tx_status lowercase(const tx_step *step, tx_matcher *matcher, const char *text, size_t size, tx_buffer *out)
{
    (void)step;
    (void)matcher;
    return filter(text, size, NULL, true, out);
}

static tx_status strip_accents(const tx_step *step, tx_matcher *matcher, const char *text, size_t size, tx_buffer *out)
{
    (void)step;
    (void)matcher;
    return filter(text, size, tx_unicode_is_mark, false, out);
}

/* ---- Texts ----------------------------------------------------------------------------------------- */

enum { LEFT, RIGHT };

static tx_status read_strip(tx_step *step, const tx_json *json)
{
    tx_status status = tx_step_flag(json, "strip_left", true, &step->flag[LEFT]);
    return status ? status : tx_step_flag(json, "strip_right", true, &step->flag[RIGHT]);
}

static tx_status strip(const tx_step *step, tx_matcher *matcher, const char *text, size_t size, tx_buffer *out)
{
    (void)matcher;
    uint32_t code;
    size_t length;
    while (step->flag[LEFT] && (length = tx_utf8_read(text, size, &code)) && tx_unicode_is_space(code)) {
        text += length;
        size -= length;
    }
    while (step->flag[RIGHT] && (length = tx_utf8_read_last(text, size, &code)) && tx_unicode_is_space(code))
        size -= length;
    return tx_buffer_add(out, text, size);
}

static tx_status read_prepend(tx_step *step, const tx_json *json)
{
    return tx_step_text(step, json, "prepend");
}

static tx_status prepend(const tx_step *step, tx_matcher *matcher, const char *text, size_t size, tx_buffer *out)
{
    (void)matcher;
    tx_status status = size ? tx_buffer_add(out, step->text, strlen(step->text)) : TX_OK;
    return status ? status : tx_buffer_add(out, text, size);
}

/* ---- BERT ------------------------------------------------------------------------------------------ */

enum { CLEAN, CHINESE, ACCENTS, LOWER };

static tx_status read_bert(tx_step *step, const tx_json *json)
{
    tx_status status = tx_step_flag(json, "clean_text", true, &step->flag[CLEAN]);
    if (!status)
        status = tx_step_flag(json, "handle_chinese_chars", true, &step->flag[CHINESE]);
    if (!status)
        status = tx_step_flag(json, "lowercase", true, &step->flag[LOWER]);
    step->flag[ACCENTS] = step->flag[LOWER];
    return status ? status : tx_step_flag(json, "strip_accents", false, &step->flag[ACCENTS]);
}

/* The ranges of Hugging Face's tokenizers, whose 2B920 was meant to be 2B820. */
static bool is_chinese(uint32_t code)
{
    static const uint32_t ranges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                         {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                         {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (code >= ranges[i][0] && code <= ranges[i][1])
            return true;
    return false;
}

static bool is_dirt(uint32_t code)
{
    return code == 0 || code == 0xFFFD || (code != '\t' && code != '\n' && code != '\r' && tx_unicode_is_control(code));
}

/* Drops what is no text, makes all spaces ' ', and puts spaces around Chinese characters. */
static tx_status clean(const tx_step *step, const char *text, size_t size, tx_buffer *out)
{
    tx_status status = TX_OK;
    for (size_t at = 0, length; at < size && !status; at += length) {
        uint32_t code;
        length = tx_utf8_read(text + at, size - at, &code);
        if (step->flag[CLEAN] && is_dirt(code))
            continue;
        const bool apart = step->flag[CHINESE] && is_chinese(code);
        if (apart)
            status = tx_buffer_add(out, " ", 1);
        if (!status)
            status = step->flag[CLEAN] && tx_unicode_is_space(code) ? tx_buffer_add(out, " ", 1)
                                                                    : tx_buffer_add(out, text + at, length);
        if (!status && apart)
            status = tx_buffer_add(out, " ", 1);
    }
    return status;
}

static tx_status bert(const tx_step *step, tx_matcher *matcher, const char *text, size_t size, tx_buffer *out)
{
    (void)matcher;
    tx_buffer cleaned = {0}, apart = {0};
    tx_status status = clean(step, text, size, &cleaned);
    const tx_buffer *last = &cleaned;
    if (!status && step->flag[ACCENTS]) {
        status = tx_unicode_normalize(TX_NFD, cleaned.data, cleaned.size, &apart);
        last = &apart;
    }
    if (!status)
        status =
            filter(last->data, last->size, step->flag[ACCENTS] ? tx_unicode_is_accent : NULL, step->flag[LOWER], out);
    free(cleaned.data);
    free(apart.data);
    return status;
}

/* ---- The part -------------------------------------------------------------------------------------- */

static const tx_step_kind kinds[] = {
    {"NFC", NULL, nfc, NULL},
    {"NFD", NULL, nfd, NULL},
    {"NFKC", NULL, nfkc, NULL},
    {"NFKD", NULL, nfkd, NULL},
    {"Lowercase", NULL, lowercase, NULL},
    {"StripAccents", NULL, strip_accents, NULL},
    {"Strip", read_strip, strip, NULL},
    {"Replace", tx_step_replace, tx_step_replace_all, NULL},
    {"Prepend", read_prepend, prepend, NULL},
    {"BertNormalizer", read_bert, bert, NULL},
};

tx_status tx_normalizer_read(tx_steps *steps, const tx_json *json)
{
    return tx_steps_read(steps, json, "normalizers", kinds, sizeof kinds / sizeof kinds[0]);
}

tx_status tx_normalizer_run(const tx_steps *steps, tx_matcher *matcher, tx_buffer scratch[2], const char **text,
                            size_t *size)
{
    const size_t limit = tx_buffer_limit(*size);
    tx_status status = TX_OK;
    for (int32_t i = 0; i < steps->count && !status; i++) {
        const tx_step *step = &steps->at[i];
        tx_buffer *out = &scratch[i % 2];
        out->size = 0;
        out->limit = limit;
        status = step->kind->normalize(step, matcher, *text, *size, out);
        *text = out->data;
        *size = out->size;
    }
    return status;
}
