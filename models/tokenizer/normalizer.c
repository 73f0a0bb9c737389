/* SPDX-License-Identifier: Apache-2.0
 * Normalizers, which change a text before it is split into words. */
#include "models/tokenizer/steps.h"
#include "models/tokenizer/unicode.h"
#include "models/tokenizer/utf8.h"

/* ---- Normal forms, case, accents ------------------------------------------------------------------- */

static void normal_form(const tx_tokenizer_step *step, const char *text, size_t size, tx_buffer *out)
{
    tx_unicode_normalize((tx_unicode_form)step->kind->form, text, size, out);
}

/* Removes the characters for which `drop` (may be NULL) returns true, and converts the others to lower case if
 * requested. */
static void filter(const char *text, size_t size, bool (*drop)(uint32_t code), bool lower, tx_buffer *out)
{
    for (size_t at = 0, length; at < size; at += length) {
        uint32_t code;
        length = tx_utf8_read(text + at, size - at, &code);
        if (drop && drop(code))
            continue;
        if (lower)
            tx_unicode_lower(code, out);
        else
            tx_buffer_add(out, text + at, length);
    }
}

static void lowercase(const tx_tokenizer_step *step, const char *text, size_t size, tx_buffer *out)
{
    (void)step;
    filter(text, size, NULL, true, out);
}

static void strip_accents(const tx_tokenizer_step *step, const char *text, size_t size, tx_buffer *out)
{
    (void)step;
    filter(text, size, tx_unicode_is_mark, false, out);
}

/* ---- Texts ----------------------------------------------------------------------------------------- */

enum { LEFT, RIGHT };

static tx_status read_strip(tx_tokenizer_step *step, const tx_json *json)
{
    TX_TRY(tx_json_get_bool(json, "strip_left", &step->flag[LEFT]));
    return tx_json_get_bool(json, "strip_right", &step->flag[RIGHT]);
}

static void strip(const tx_tokenizer_step *step, const char *text, size_t size, tx_buffer *out)
{
    uint32_t code;
    size_t length;
    while (step->flag[LEFT] && (length = tx_utf8_read(text, size, &code)) && tx_unicode_is_space(code)) {
        text += length;
        size -= length;
    }
    while (step->flag[RIGHT] && (length = tx_utf8_read_last(text, size, &code)) && tx_unicode_is_space(code))
        size -= length;
    tx_buffer_add(out, text, size);
}

static tx_status read_prepend(tx_tokenizer_step *step, const tx_json *json)
{
    return tx_tokenizer_step_text(step, json, "prepend");
}

static void prepend(const tx_tokenizer_step *step, const char *text, size_t size, tx_buffer *out)
{
    if (size)
        tx_buffer_add(out, step->text, strlen(step->text));
    tx_buffer_add(out, text, size);
}

/* ---- SentencePiece --------------------------------------------------------------------------------- */

static tx_status read_precompiled(tx_tokenizer_step *step, const tx_json *json)
{
    const char *text;
    size_t size;
    TX_TRY(tx_json_get_text(json, "precompiled_charsmap", &text, &size));
    return tx_charsmap_read(text, size, &step->map);
}

static void precompiled(const tx_tokenizer_step *step, const char *text, size_t size, tx_buffer *out)
{
    tx_charsmap_run(step->map, text, size, out);
}

static bool is_nmt_control(uint32_t code)
{
    return (code >= 1 && code <= 8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F || code == 0x8F ||
           code == 0x9F;
}

static bool is_nmt_space(uint32_t code)
{
    return code == '\t' || code == '\n' || code == '\f' || code == '\r' || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 || code == 0xFEFF ||
           code == 0xFFFD;
}

/* Removes control characters and replaces other blanks by ' ', as SentencePiece's rules "nmt" do. */
static void nmt(const tx_tokenizer_step *step, const char *text, size_t size, tx_buffer *out)
{
    (void)step;
    for (size_t at = 0, length; at < size; at += length) {
        uint32_t code;
        length = tx_utf8_read(text + at, size - at, &code);
        if (is_nmt_space(code))
            tx_buffer_add(out, " ", 1);
        else if (!is_nmt_control(code))
            tx_buffer_add(out, text + at, length);
    }
}

/* ---- BERT ------------------------------------------------------------------------------------------ */

enum { CLEAN, CHINESE, ACCENTS, LOWER };

static tx_status read_bert(tx_tokenizer_step *step, const tx_json *json)
{
    TX_TRY(tx_json_get_bool(json, "clean_text", &step->flag[CLEAN]));
    TX_TRY(tx_json_get_bool(json, "handle_chinese_chars", &step->flag[CHINESE]));
    TX_TRY(tx_json_get_bool(json, "lowercase", &step->flag[LOWER]));
    step->flag[ACCENTS] = step->flag[LOWER];
    return TX_JSON_OPTIONAL(bool, json, "strip_accents", &step->flag[ACCENTS]);
}

tx_status tx_normalizer_follow_bert(tx_tokenizer_steps *steps, const tx_json *config)
{
    tx_tokenizer_step *step = &steps->at[0];
    if (steps->count != 1 || step->kind->read != read_bert)
        return TX_OK;
    step->flag[LOWER] = step->flag[CHINESE] = step->flag[CLEAN] = true;
    TX_TRY(TX_JSON_OPTIONAL(bool, config, "do_lower_case", &step->flag[LOWER]));
    TX_TRY(TX_JSON_OPTIONAL(bool, config, "tokenize_chinese_chars", &step->flag[CHINESE]));
    step->flag[ACCENTS] = step->flag[LOWER];
    return TX_JSON_OPTIONAL(bool, config, "strip_accents", &step->flag[ACCENTS]);
}

/* The ranges in Hugging Face's tokenizers, where 2B920 is a misprint for 2B820. */
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

static bool is_removed(uint32_t code)
{
    return code == 0 || code == 0xFFFD || (code != '\t' && code != '\n' && code != '\r' && tx_unicode_is_control(code));
}

/* Removes control and invalid characters, replaces all spaces by ' ', and adds spaces around Chinese characters. */
static void clean(const tx_tokenizer_step *step, const char *text, size_t size, tx_buffer *out)
{
    for (size_t at = 0, length; at < size; at += length) {
        uint32_t code;
        length = tx_utf8_read(text + at, size - at, &code);
        if (step->flag[CLEAN] && is_removed(code))
            continue;
        const bool apart = step->flag[CHINESE] && is_chinese(code);
        const bool space = step->flag[CLEAN] && tx_unicode_is_space(code);
        if (apart)
            tx_buffer_add(out, " ", 1);
        tx_buffer_add(out, space ? " " : text + at, space ? 1 : length);
        if (apart)
            tx_buffer_add(out, " ", 1);
    }
}

static void bert(const tx_tokenizer_step *step, const char *text, size_t size, tx_buffer *out)
{
    tx_buffer cleaned = {0}, apart = {0};
    clean(step, text, size, &cleaned);
    const tx_buffer *last = &cleaned;
    if (step->flag[ACCENTS] && !cleaned.status) {
        tx_unicode_normalize(TX_NFD, cleaned.data, cleaned.size, &apart);
        last = &apart;
    }
    out->status = last->status;
    filter(last->data, last->size, step->flag[ACCENTS] ? tx_unicode_is_accent : NULL, step->flag[LOWER], out);
    free(cleaned.data);
    free(apart.data);
}

/* ---- Table ----------------------------------------------------------------------------------------- */

static const tx_tokenizer_step_kind kinds[] = {
    {"NFC", .normalize = normal_form, .form = TX_NFC},
    {"NFD", .normalize = normal_form, .form = TX_NFD},
    {"NFKC", .normalize = normal_form, .form = TX_NFKC},
    {"NFKD", .normalize = normal_form, .form = TX_NFKD},
    {"Lowercase", .normalize = lowercase},
    {"StripAccents", .normalize = strip_accents},
    {"Strip", .read = read_strip, .normalize = strip},
    {"Replace", .read = tx_tokenizer_step_replace},
    {"Prepend", .read = read_prepend, .normalize = prepend},
    {"Precompiled", .read = read_precompiled, .normalize = precompiled},
    {"Nmt", .normalize = nmt},
    {"BertNormalizer", .read = read_bert, .normalize = bert},
    {.name = "ByteLevel"}, /* the pre-tokenizer spells letters */
};

tx_status tx_normalizer_read(tx_tokenizer_steps *steps, const tx_json *json, bool *bytes)
{
    TX_TRY(tx_tokenizer_steps_read(steps, json, "normalizers", kinds, sizeof kinds / sizeof kinds[0]));
    for (int32_t i = 0; i + 1 < steps->count; i++)
        if (tx_tokenizer_step_is(&steps->at[i], "ByteLevel"))
            return tx_fail(TX_UNSUPPORTED, "ByteLevel is supported only as the last step");
    *bytes = steps->count && tx_tokenizer_step_is(&steps->at[steps->count - 1], "ByteLevel");
    steps->count -= *bytes;
    return TX_OK;
}

/* Updates the size of the beginning of a text that came from the first character of the original text. As in Hugging
 * Face's tokenizers, a match of Replace counts as removed up to its last character. */
static tx_status follow_first(const tx_tokenizer_step *step, tx_matcher *matcher, const char *text, size_t size,
                              size_t *origin)
{
    tx_buffer out = {0};
    size_t begin = 0, end = 0;
    if (step->kind->normalize == strip && !step->flag[LEFT])
        return TX_OK;
    if (step->kind->normalize) {
        step->kind->normalize(step, text, *origin, &out);
        *origin = out.size;
        free(out.data);
        return out.status;
    }
    TX_TRY(tx_matcher_next(matcher, &step->regex, text, size, 0, &begin, &end));
    if (begin == 0 && end > 0)
        *origin = end <= *origin ? *origin - end + strlen(step->text) : 0;
    return TX_OK;
}

tx_status tx_normalizer_run(const tx_tokenizer_steps *steps, tx_matcher *matcher, tx_buffer scratch[2],
                            const char **text, size_t *size, bool *first)
{
    const size_t limit = tx_buffer_limit(*size);
    size_t origin = tx_utf8_read(*text, *size, NULL);
    for (int32_t i = 0; i < steps->count; i++) {
        const tx_tokenizer_step *step = &steps->at[i];
        tx_buffer *out = &scratch[i % 2];
        const bool follow = first && origin && *size;
        if (follow)
            TX_TRY(follow_first(step, matcher, *text, *size, &origin));
        tx_buffer_clear(out);
        out->limit = limit;
        if (step->kind->normalize)
            step->kind->normalize(step, *text, *size, out);
        else
            tx_tokenizer_step_replace_all(step, matcher, *text, *size, out);
        if (out->status)
            return out->status;
        *text = out->data;
        *size = out->size;
        if (follow && !origin && step->kind->normalize == precompiled)
            origin = tx_utf8_read(*text, *size, NULL); /* if it removes the first character, the next one counts */
    }
    if (first)
        *first = *first && origin;
    return TX_OK;
}
