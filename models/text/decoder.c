/* SPDX-License-Identifier: Apache-2.0
 * The kinds of decoders. */
#include "models/text/decoder.h"
#include "models/text/utf8.h"

#include <ctype.h>

/* ---- Texts ----------------------------------------------------------------------------------------- */

/* The bytes that were added since the last text are one. */
static tx_status close_text(tx_texts *texts)
{
    texts->count++;
    return tx_buffer_add(&texts->ends, (const char *)&texts->bytes.size, sizeof texts->bytes.size);
}

static tx_status add_text(tx_texts *texts, const char *text, size_t size)
{
    tx_status status = tx_buffer_add(&texts->bytes, text, size);
    return status ? status : close_text(texts);
}

static const char *get_text(const tx_texts *texts, size_t number, size_t *size)
{
    const size_t *ends = (const void *)texts->ends.data;
    const size_t begin = number ? ends[number - 1] : 0;
    *size = ends[number] - begin;
    return texts->bytes.data ? texts->bytes.data + begin : "";
}

static void clear(tx_texts *texts)
{
    texts->bytes.size = texts->ends.size = texts->count = 0;
}

static bool begins_with(const char *text, size_t size, const char *prefix)
{
    return size >= strlen(prefix) && memcmp(text, prefix, strlen(prefix)) == 0;
}

static bool ends_with(const char *text, size_t size, const char *suffix)
{
    const size_t length = strlen(suffix);
    return size >= length && memcmp(text + size - length, suffix, length) == 0;
}

/* ---- WordPiece ------------------------------------------------------------------------------------- */

static tx_status read_word_piece(tx_step *step, const tx_json *json)
{
    tx_status status = tx_step_text(step, json, "prefix");
    return status ? status : tx_step_flag(json, "cleanup", true, &step->flag[0]);
}

/* Replaces one text by another, in place: it is never longer. */
static void replace(tx_buffer *text, size_t from, const char *old, const char *new)
{
    size_t used = from;
    for (size_t at = from; at < text->size;) {
        const bool found = begins_with(text->data + at, text->size - at, old);
        if (found)
            memcpy(text->data + used, new, strlen(new));
        else
            text->data[used] = text->data[at];
        used += found ? strlen(new) : 1;
        at += found ? strlen(old) : 1;
    }
    text->size = used;
}

static tx_status word_piece(const tx_step *step, tx_spelling *s)
{
    static const char *const clean[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    tx_status status = TX_OK;
    for (size_t i = 0; i < s->in.count && !status; i++) {
        size_t size;
        const char *text = get_text(&s->in, i, &size);
        const size_t from = s->out.bytes.size;
        if (i > 0 || !s->whole) {
            const bool goes_on = begins_with(text, size, step->text);
            text += goes_on ? strlen(step->text) : 0;
            size -= goes_on ? strlen(step->text) : 0;
            status = goes_on ? TX_OK : tx_buffer_add(&s->out.bytes, " ", 1);
        }
        if (!status)
            status = tx_buffer_add(&s->out.bytes, text, size);
        for (size_t k = 0; k < sizeof clean / sizeof clean[0] && !status && step->flag[0]; k++)
            replace(&s->out.bytes, from, clean[k][0], clean[k][1]);
        if (!status)
            status = close_text(&s->out);
    }
    return status;
}

/* ---- Metaspace ------------------------------------------------------------------------------------- */

static tx_status metaspace(const tx_step *step, tx_spelling *s)
{
    tx_status status = TX_OK;
    for (size_t i = 0; i < s->in.count && !status; i++) {
        const bool drop = i == 0 && s->whole && step->prepend != TX_PREPEND_NEVER;
        size_t size;
        const char *text = get_text(&s->in, i, &size);
        for (size_t at = 0; at < size && !status;) {
            const bool mark = begins_with(text + at, size - at, step->text);
            if (!mark || !drop)
                status = tx_buffer_add(&s->out.bytes, mark ? " " : text + at, 1);
            at += mark ? strlen(step->text) : 1;
        }
        if (!status)
            status = close_text(&s->out);
    }
    return status;
}

/* ---- ByteFallback ---------------------------------------------------------------------------------- */

/* Whether a token is the name of a byte, <0xNN>. */
static bool is_byte(const char *text, size_t size, char *byte)
{
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || !isxdigit((unsigned char)text[3]) ||
        !isxdigit((unsigned char)text[4]))
        return false;
    *byte = (char)strtol((const char[]){text[3], text[4], '\0'}, NULL, 16);
    return true;
}

/* Bytes that are no characters become U+FFFD, one for each. One from the middle of a text may be part of a character.
 */
static tx_status add_bytes(tx_spelling *s, const tx_buffer *bytes)
{
    tx_status status = TX_OK;
    if (!s->whole || tx_utf8_prefix(bytes->data, bytes->size) == bytes->size)
        return bytes->size ? add_text(&s->out, bytes->data, bytes->size) : TX_OK;
    for (size_t i = 0; i < bytes->size && !status; i++)
        status = add_text(&s->out, "\xEF\xBF\xBD", 3);
    return status;
}

static tx_status byte_fallback(const tx_step *step, tx_spelling *s)
{
    (void)step;
    tx_buffer bytes = {0};
    tx_status status = TX_OK;
    for (size_t i = 0; i < s->in.count && !status; i++) {
        size_t size;
        char byte;
        const char *text = get_text(&s->in, i, &size);
        if (is_byte(text, size, &byte)) {
            status = tx_buffer_add(&bytes, &byte, 1);
            continue;
        }
        status = add_bytes(s, &bytes);
        bytes.size = 0;
        if (!status)
            status = add_text(&s->out, text, size);
    }
    if (!status)
        status = add_bytes(s, &bytes);
    free(bytes.data);
    return status;
}

/* ---- Fuse, Replace, Strip -------------------------------------------------------------------------- */

static tx_status fuse(const tx_step *step, tx_spelling *s)
{
    (void)step;
    s->fused = true;
    return add_text(&s->out, s->in.bytes.data, s->in.bytes.size);
}

static tx_status replace_all(const tx_step *step, tx_spelling *s)
{
    tx_status status = TX_OK;
    if (!s->matcher) {
        status = tx_matcher_create(&s->matcher);
        if (!status)
            tx_matcher_begin(s->matcher, s->size ? s->size : s->in.bytes.size);
    }
    for (size_t i = 0; i < s->in.count && !status; i++) {
        size_t size;
        const char *text = get_text(&s->in, i, &size);
        const size_t good = tx_utf8_prefix(text, size); /* all, but in a byte that fell back */
        status = tx_step_replace_all(step, s->matcher, text, good, &s->out.bytes);
        if (!status)
            status = add_text(&s->out, text + good, size - good);
    }
    return status;
}

static tx_status read_strip(tx_step *step, const tx_json *json)
{
    tx_status status = tx_step_text(step, json, "content");
    if (!status && (!*step->text || tx_utf8_read(step->text, strlen(step->text), NULL) != strlen(step->text)))
        status = tx_fail(TX_FORMAT, "content %.40s: expected one character", step->text);
    if (!status)
        status = tx_json_get_int(json, "start", 0, INT32_MAX, &step->cut[0]);
    return status ? status : tx_json_get_int(json, "stop", 0, INT32_MAX, &step->cut[1]);
}

static tx_status strip(const tx_step *step, tx_spelling *s)
{
    const size_t length = strlen(step->text);
    tx_status status = TX_OK;
    for (size_t i = 0; i < s->in.count && !status; i++) {
        size_t size;
        const char *text = get_text(&s->in, i, &size);
        const bool cut = s->whole || !s->fused;
        for (int64_t n = 0; cut && n < step->cut[0] && begins_with(text, size, step->text); n++) {
            text += length;
            size -= length;
        }
        for (int64_t n = 0; cut && n < step->cut[1] && ends_with(text, size, step->text); n++)
            size -= length;
        status = add_text(&s->out, text, size);
    }
    return status;
}

/* ---- The part -------------------------------------------------------------------------------------- */

static const tx_step_kind kinds[] = {
    {"ByteLevel", NULL, NULL, NULL},
    {"WordPiece", read_word_piece, NULL, word_piece},
    {"Metaspace", tx_step_metaspace, NULL, metaspace},
    {"ByteFallback", NULL, NULL, byte_fallback},
    {"Fuse", NULL, NULL, fuse},
    {"Replace", tx_step_replace, NULL, replace_all},
    {"Strip", read_strip, NULL, strip},
};

tx_status tx_decoder_read(tx_steps *steps, const tx_json *json, bool *bytes)
{
    tx_status status = tx_steps_read(steps, json, "decoders", kinds, sizeof kinds / sizeof kinds[0]);
    *bytes = false;
    for (int32_t i = 0; i < steps->count; i++)
        *bytes = *bytes || !steps->at[i].kind->decode;
    return status;
}

tx_status tx_spelling_add(tx_spelling *spelling, const char *text, size_t size)
{
    return add_text(&spelling->in, text, size);
}

/* What there is without steps: a space between tokens. */
static tx_status add_spaces(const tx_texts *texts, bool whole, tx_buffer *out)
{
    tx_status status = TX_OK;
    for (size_t i = 0; i < texts->count && !status; i++) {
        size_t size;
        const char *text = get_text(texts, i, &size);
        status = i > 0 || !whole ? tx_buffer_add(out, " ", 1) : TX_OK;
        if (!status)
            status = tx_buffer_add(out, text, size);
    }
    return status;
}

tx_status tx_spelling_run(tx_spelling *spelling, const tx_steps *steps, tx_buffer *out)
{
    tx_status status = TX_OK;
    const size_t limit = tx_buffer_limit(spelling->in.bytes.size);
    spelling->fused = false;
    for (int32_t i = 0; i < steps->count && !status; i++) {
        clear(&spelling->out);
        spelling->out.bytes.limit = limit;
        status = steps->at[i].kind->decode(&steps->at[i], spelling);
        const tx_texts made = spelling->out;
        spelling->out = spelling->in;
        spelling->in = made;
    }
    if (!status)
        status = steps->count ? tx_buffer_add(out, spelling->in.bytes.data, spelling->in.bytes.size)
                              : add_spaces(&spelling->in, spelling->whole, out);
    clear(&spelling->in);
    return status;
}

void tx_spelling_free(tx_spelling *spelling)
{
    free(spelling->in.bytes.data);
    free(spelling->in.ends.data);
    free(spelling->out.bytes.data);
    free(spelling->out.ends.data);
    tx_matcher_free(spelling->matcher);
}
