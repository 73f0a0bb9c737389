/* SPDX-License-Identifier: Apache-2.0
 * Decoders: convert the texts of tokens to a text. */
#include "models/tokenizer/decoder.h"
#include "models/tokenizer/utf8.h"

#include <ctype.h>

/* ---- Texts ----------------------------------------------------------------------------------------- */

/* Makes the bytes added since the last text a text. */
static void close_text(tx_texts *texts)
{
    texts->count++;
    tx_buffer_add(&texts->ends, (const char *)&texts->bytes.size, sizeof texts->bytes.size);
    if (texts->ends.status)
        texts->bytes.status = texts->ends.status;
}

static void add_text(tx_texts *texts, const char *text, size_t size)
{
    tx_buffer_add(&texts->bytes, text, size);
    close_text(texts);
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
    tx_buffer_clear(&texts->bytes);
    tx_buffer_clear(&texts->ends);
    texts->count = 0;
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

static tx_status read_word_piece(tx_tokenizer_step *step, const tx_json *json)
{
    TX_TRY(tx_tokenizer_step_text(step, json, "prefix"));
    return tx_json_get_bool(json, "cleanup", &step->flag[0]);
}

/* Replaces all occurrences of a text in place. `new` must not be longer than `old`. */
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

static void word_piece(const tx_tokenizer_step *step, tx_spelling *s)
{
    static const char *const clean[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < s->in.count; i++) {
        size_t size;
        const char *text = get_text(&s->in, i, &size);
        const size_t from = s->out.bytes.size;
        if (i > 0 || !s->whole) {
            const bool is_inside = begins_with(text, size, step->text);
            text += is_inside ? strlen(step->text) : 0;
            size -= is_inside ? strlen(step->text) : 0;
            tx_buffer_add(&s->out.bytes, " ", is_inside ? 0 : 1);
        }
        tx_buffer_add(&s->out.bytes, text, size);
        for (size_t k = 0; k < sizeof clean / sizeof clean[0] && step->flag[0]; k++)
            replace(&s->out.bytes, from, clean[k][0], clean[k][1]);
        close_text(&s->out);
    }
}

/* ---- BPEDecoder ------------------------------------------------------------------------------------ */

static tx_status read_bpe(tx_tokenizer_step *step, const tx_json *json)
{
    TX_TRY(tx_tokenizer_step_text(step, json, "suffix"));
    return *step->text ? TX_OK : tx_fail(TX_UNSUPPORTED, "an empty suffix is not supported");
}

/* The suffix of a word's last token becomes a space, except at the end of the text. */
static void bpe(const tx_tokenizer_step *step, tx_spelling *s)
{
    for (size_t i = 0; i < s->in.count; i++) {
        size_t size;
        const char *text = get_text(&s->in, i, &size);
        const size_t from = s->out.bytes.size;
        tx_buffer_add(&s->out.bytes, text, size);
        replace(&s->out.bytes, from, step->text, s->whole && i + 1 == s->in.count ? "" : " ");
        close_text(&s->out);
    }
}

/* ---- Metaspace ------------------------------------------------------------------------------------- */

static void metaspace(const tx_tokenizer_step *step, tx_spelling *s)
{
    for (size_t i = 0; i < s->in.count; i++) {
        const bool drop = i == 0 && s->whole && step->prepend != TX_PREPEND_NEVER;
        size_t size;
        const char *text = get_text(&s->in, i, &size);
        for (size_t at = 0; at < size;) {
            const bool mark = begins_with(text + at, size - at, step->text);
            if (!mark || !drop)
                tx_buffer_add(&s->out.bytes, mark ? " " : text + at, 1);
            at += mark ? strlen(step->text) : 1;
        }
        close_text(&s->out);
    }
}

/* ---- ByteFallback ---------------------------------------------------------------------------------- */

/* Returns true if a token is the name of a byte, <0xNN>. */
static bool is_byte(const char *text, size_t size, char *byte)
{
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || !isxdigit((unsigned char)text[3]) ||
        !isxdigit((unsigned char)text[4]))
        return false;
    *byte = (char)strtol((const char[]){text[3], text[4], '\0'}, NULL, 16);
    return true;
}

/* Appends bytes. Each byte becomes U+FFFD if they are not valid UTF-8, except in a part of a text, whose bytes may
 * belong to a character. */
static void add_bytes(tx_spelling *s, const tx_buffer *bytes)
{
    const bool good = !s->whole || tx_utf8_prefix(bytes->data, bytes->size) == bytes->size;
    if (good && bytes->size)
        add_text(&s->out, bytes->data, bytes->size);
    for (size_t i = 0; i < bytes->size && !good; i++)
        add_text(&s->out, "\xEF\xBF\xBD", 3);
    if (bytes->status)
        s->out.bytes.status = bytes->status;
}

static void byte_fallback(const tx_tokenizer_step *step, tx_spelling *s)
{
    (void)step;
    tx_buffer bytes = {0};
    for (size_t i = 0; i < s->in.count; i++) {
        size_t size;
        char byte;
        const char *text = get_text(&s->in, i, &size);
        if (is_byte(text, size, &byte)) {
            tx_buffer_add(&bytes, &byte, 1);
            continue;
        }
        add_bytes(s, &bytes);
        tx_buffer_clear(&bytes);
        add_text(&s->out, text, size);
    }
    add_bytes(s, &bytes);
    free(bytes.data);
}

/* ---- Fuse, Replace, Strip -------------------------------------------------------------------------- */

static void fuse(const tx_tokenizer_step *step, tx_spelling *s)
{
    (void)step;
    s->fused = true;
    add_text(&s->out, s->in.bytes.data, s->in.bytes.size);
}

static void replace_all(const tx_tokenizer_step *step, tx_spelling *s)
{
    if (!s->matcher) {
        s->out.bytes.status = tx_matcher_create(&s->matcher);
        if (s->out.bytes.status)
            return;
        tx_matcher_begin(s->matcher, s->size ? s->size : s->in.bytes.size);
    }
    for (size_t i = 0; i < s->in.count && !s->out.bytes.status; i++) {
        size_t size;
        const char *text = get_text(&s->in, i, &size);
        const size_t good = tx_utf8_prefix(text, size); /* less than `size` only for fallback bytes */
        tx_tokenizer_step_replace_all(step, s->matcher, text, good, &s->out.bytes);
        add_text(&s->out, text + good, size - good);
    }
}

static tx_status read_strip(tx_tokenizer_step *step, const tx_json *json)
{
    TX_TRY(tx_tokenizer_step_text(step, json, "content"));
    if ((!*step->text || tx_utf8_read(step->text, strlen(step->text), NULL) != strlen(step->text)))
        return tx_fail(TX_FORMAT, "content %.40s: expected one character", step->text);
    TX_TRY(tx_json_get_int(json, "start", 0, INT32_MAX, &step->cut[0]));
    return tx_json_get_int(json, "stop", 0, INT32_MAX, &step->cut[1]);
}

static void strip(const tx_tokenizer_step *step, tx_spelling *s)
{
    const size_t length = strlen(step->text);
    const bool cut = s->whole || !s->fused;
    for (size_t i = 0; i < s->in.count; i++) {
        size_t size;
        const char *text = get_text(&s->in, i, &size);
        for (int64_t n = 0; cut && n < step->cut[0] && begins_with(text, size, step->text); n++) {
            text += length;
            size -= length;
        }
        for (int64_t n = 0; cut && n < step->cut[1] && ends_with(text, size, step->text); n++)
            size -= length;
        add_text(&s->out, text, size);
    }
}

/* ---- Table ----------------------------------------------------------------------------------------- */

static const tx_tokenizer_step_kind kinds[] = {
    {"ByteLevel", .read = NULL},
    {"WordPiece", .read = read_word_piece, .decode = word_piece},
    {"BPEDecoder", .read = read_bpe, .decode = bpe},
    {"Metaspace", .read = tx_tokenizer_step_metaspace, .decode = metaspace},
    {"ByteFallback", .decode = byte_fallback},
    {"Fuse", .decode = fuse},
    {"Replace", .read = tx_tokenizer_step_replace, .decode = replace_all},
    {"Strip", .read = read_strip, .decode = strip},
};

tx_status tx_decoder_read(tx_tokenizer_steps *steps, const tx_json *json, bool *bytes)
{
    TX_TRY(tx_tokenizer_steps_read(steps, json, "decoders", kinds, sizeof kinds / sizeof kinds[0]));
    *bytes = false;
    for (int32_t i = 0; i < steps->count; i++)
        *bytes = *bytes || !steps->at[i].kind->decode;
    return TX_OK;
}

void tx_spelling_add(tx_spelling *spelling, const char *text, size_t size)
{
    add_text(&spelling->in, text, size);
}

/* Without steps, tokens are separated by spaces. */
static void add_spaces(const tx_texts *texts, bool whole, tx_buffer *out)
{
    for (size_t i = 0; i < texts->count; i++) {
        size_t size;
        const char *text = get_text(texts, i, &size);
        tx_buffer_add(out, " ", i > 0 || !whole ? 1 : 0);
        tx_buffer_add(out, text, size);
    }
}

tx_status tx_spelling_run(tx_spelling *spelling, const tx_tokenizer_steps *steps, tx_buffer *out)
{
    const size_t limit = tx_buffer_limit(spelling->in.bytes.size);
    spelling->fused = false;
    for (int32_t i = 0; i < steps->count && !spelling->in.bytes.status; i++) {
        clear(&spelling->out);
        spelling->out.bytes.limit = limit;
        steps->at[i].kind->decode(&steps->at[i], spelling);
        const tx_texts result = spelling->out;
        spelling->out = spelling->in;
        spelling->in = result;
    }
    const tx_status status = spelling->in.bytes.status;
    if (!status && steps->count)
        tx_buffer_add(out, spelling->in.bytes.data, spelling->in.bytes.size);
    else if (!status)
        add_spaces(&spelling->in, spelling->whole, out);
    clear(&spelling->in);
    return status ? status : out->status;
}

void tx_spelling_free(tx_spelling *spelling)
{
    free(spelling->in.bytes.data);
    free(spelling->in.ends.data);
    free(spelling->out.bytes.data);
    free(spelling->out.ends.data);
    tx_matcher_free(spelling->matcher);
}
