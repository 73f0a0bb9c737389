/* SPDX-License-Identifier: Apache-2.0
 * The model BPE, for bytes or for characters. A character without a token becomes the tokens of its bytes, or the
 * unknown token. */
#include "models/tokenizer/bpe.h"
#include "models/names.h"
#include "models/tokenizer/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading ------------------------------------------------------------------------------------- */

tx_status tx_bpe_read_vocab(tx_tokenizer *tokenizer, const tx_json *vocab)
{
    tx_letters letters;
    tx_letters_make(&letters);
    tx_status status = TX_OK;
    const int64_t words = (int64_t)tx_json_size(vocab);
    tokenizer->words = words < TX_VOCAB_LIMIT ? (int32_t)words : TX_VOCAB_LIMIT;
    for (void *i = tx_json_first(vocab); i && !status; i = tx_json_next(vocab, i)) {
        const char *key = tx_json_key(i);
        size_t size = strlen(key), count;
        int64_t id;
        char *bytes = malloc(size + 1);
        if (!bytes)
            return tx_fail(TX_MEMORY, "no memory for a token of %zu bytes", size);
        status = tx_json_as_int(tx_json_value(i), key, 0, TX_VOCAB_LIMIT - 1, &id);
        if (!status && id >= words) /* ids are unique, so ids below `words` have no gaps */
            status = tx_fail(TX_FORMAT, "%.64s: id %" PRId64 " among %" PRId64 " words: some smaller id has no word",
                             key, id, words);
        else if (!status && tokenizer->bytes && !tx_letters_read(&letters, key, size, bytes, &count))
            status = tx_vocab_put(&tokenizer->vocab, id, TX_TOKEN_FOREIGN, key, size);
        else if (!status)
            status = tokenizer->bytes ? tx_vocab_put(&tokenizer->vocab, id, TX_TOKEN_WORD, bytes, count)
                                      : tx_vocab_put(&tokenizer->vocab, id, TX_TOKEN_WORD, key, size);
        free(bytes);
    }
    return tx_fail_in(status, "vocab");
}

int32_t tx_vocab_id(const tx_json *vocab, const char *text)
{
    int64_t id = -1;
    return tx_json_get_int(vocab, text, 0, TX_VOCAB_LIMIT - 1, &id) ? -1 : (int32_t)id;
}

/* Length of a word in a message. */
static int shown(size_t size)
{
    return size < 64 ? (int)size : 64;
}

/* Bytes of a prefix or suffix that a tokenizer may have. */
static size_t affix_size(const char *affix)
{
    return affix ? strlen(affix) : 0;
}

bool tx_bpe_has_affix(const tx_tokenizer *t)
{
    return t->model == &tx_bpe && affix_size(t->prefix) + affix_size(t->suffix) > 0;
}

tx_status tx_bpe_read_merge(tx_tokenizer *tokenizer, const tx_json *vocab, const char *left, size_t left_size,
                            const char *right, size_t right_size)
{
    if (left_size == 0 || right_size == 0)
        return tx_fail(TX_FORMAT, "expected two words with a blank between them");
    const size_t prefix = affix_size(tokenizer->prefix); /* the merged token does not repeat it */
    if (right_size < prefix)
        return tx_fail(TX_FORMAT, "%.*s has no continuing_subword_prefix", shown(right_size), right);
    char *text = malloc(left_size + right_size + 1);
    if (!text)
        return tx_fail(TX_MEMORY, "no memory for a merge");
    tx_merge merge;
    memcpy(text, right, right_size);
    text[right_size] = '\0';
    merge.right = tx_vocab_id(vocab, text);
    memcpy(text, left, left_size);
    text[left_size] = '\0';
    merge.left = tx_vocab_id(vocab, text);
    memcpy(text + left_size, right + prefix, right_size - prefix);
    text[left_size + right_size - prefix] = '\0';
    merge.id = tx_vocab_id(vocab, text);
    free(text);
    if (merge.left < 0)
        return tx_fail(TX_FORMAT, "%.*s is not in the vocabulary", shown(left_size), left);
    if (merge.right < 0)
        return tx_fail(TX_FORMAT, "%.*s is not in the vocabulary", shown(right_size), right);
    if (merge.id < 0)
        return tx_fail(TX_FORMAT, "%.*s and %.*s together are not in the vocabulary", shown(left_size), left,
                       shown(right_size), right);
    return tx_merges_add(&tokenizer->merges, merge);
}

/* "a b" or ["a", "b"]. */
static tx_status read_merge(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *json)
{
    const char *left, *right;
    if (tx_json_type_of(json) != TX_JSON_ARRAY) {
        TX_TRY(tx_json_as_string(json, "a merge", &left));
        const char *blank = strchr(left, ' ');
        if (!blank || strchr(blank + 1, ' '))
            return tx_fail(TX_FORMAT, "expected two words with a blank between them");
        return tx_bpe_read_merge(tokenizer, vocab, left, (size_t)(blank - left), blank + 1, strlen(blank + 1));
    }
    if (tx_json_size(json) != 2)
        return tx_fail(TX_FORMAT, "expected two words, found %zu", tx_json_size(json));
    TX_TRY(tx_json_as_string(tx_json_at(json, 0), "its first word", &left));
    TX_TRY(tx_json_as_string(tx_json_at(json, 1), "its second word", &right));
    return tx_bpe_read_merge(tokenizer, vocab, left, strlen(left), right, strlen(right));
}

static tx_status read_merges(tx_tokenizer *tokenizer, const tx_json *vocab, const tx_json *model)
{
    tx_json *merges;
    TX_TRY(tx_json_get(model, "merges", TX_JSON_ARRAY, &merges));
    for (size_t i = 0; i < tx_json_size(merges); i++)
        TX_TRY(tx_fail_in(read_merge(tokenizer, vocab, tx_json_at(merges, i)), "merges[%zu]", i));
    return TX_OK;
}

/* Reads a text that the model adds to characters; "" if it is absent. */
static tx_status read_affix(const tx_tokenizer *t, const tx_json *model, const char *key, char **affix)
{
    const char *text = "";
    TX_TRY(TX_JSON_OPTIONAL(string, model, key, &text));
    for (const char *c = text; t->bytes && *c; c++)
        if (*c < 33 || *c > 126) /* the letters of other bytes have more bytes */
            return tx_fail(TX_UNSUPPORTED, "%s \"%.40s\" with ByteLevel: only ASCII is supported", key, text);
    return tx_copy_text(text, affix);
}

tx_status tx_model_read_unk(tx_tokenizer *tokenizer, const tx_json *model, const tx_json *vocab)
{
    const char *text;
    TX_TRY(tx_json_get_string(model, "unk_token", &text));
    tokenizer->unk = tx_vocab_id(vocab, text);
    return tokenizer->unk < 0 ? tx_fail(TX_FORMAT, "unk_token %.64s is not in the vocabulary", text) : TX_OK;
}

tx_status tx_model_read_fallback(tx_tokenizer *t, const tx_json *model)
{
    TX_TRY(TX_JSON_OPTIONAL(bool, model, "byte_fallback", &t->byte_fallback));
    for (int byte = 0; byte < 256 && t->byte_fallback; byte++) {
        char text[8];
        const int length = snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        t->vocab.byte_ids[byte] = tx_vocab_find(&t->vocab, TX_TOKEN_WORD, text, (size_t)length);
    }
    return TX_OK;
}

/* Reads the options for characters without a token. They have no effect if all bytes have tokens. */
static tx_status read_unknown(tx_tokenizer *t, const tx_json *model, const tx_json *vocab)
{
    if (tx_json_has(model, "unk_token"))
        TX_TRY(tx_model_read_unk(t, model, vocab));
    TX_TRY(TX_JSON_OPTIONAL(bool, model, "fuse_unk", &t->fuse_unk));
    return tx_model_read_fallback(t, model);
}

static tx_status read(tx_tokenizer *tokenizer, const tx_json *model, const tx_json *vocab)
{
    double dropout = 0;
    TX_TRY(TX_JSON_OPTIONAL(number, model, "dropout", 0, 1, &dropout));
    if (dropout > 0)
        return tx_fail(TX_UNSUPPORTED, "dropout %g is not supported", dropout);
    TX_TRY(read_affix(tokenizer, model, "continuing_subword_prefix", &tokenizer->prefix));
    TX_TRY(read_affix(tokenizer, model, "end_of_word_suffix", &tokenizer->suffix));
    TX_TRY(TX_JSON_OPTIONAL(bool, model, "ignore_merges", &tokenizer->ignore_merges));
    if (!tokenizer->bytes || tx_bpe_has_affix(tokenizer))
        TX_TRY(read_unknown(tokenizer, model, vocab));
    if (tokenizer->bytes && tokenizer->byte_fallback)
        return tx_fail(TX_UNSUPPORTED, "byte_fallback and end_of_word_suffix with ByteLevel are not supported");
    return read_merges(tokenizer, vocab, model);
}

/* ---- Encoding ------------------------------------------------------------------------------------ */

/* The ids of a word's characters. Consecutive unknown characters may share one unknown token. As in Hugging Face's
 * tokenizers it is appended when the next known character follows, after the bytes of characters that fell back to
 * them.
 */
typedef struct symbols {
    int32_t *id; /* room for as many as the word has bytes */
    size_t count;
    bool pending; /* an unknown token is to be appended */
} symbols;

static void end_pending(const tx_tokenizer *t, symbols *s)
{
    if (s->pending)
        s->id[s->count++] = t->unk;
    s->pending = false;
}

static void add_character(const tx_tokenizer *t, const char *text, size_t size, symbols *s)
{
    const int32_t id = tx_vocab_find(&t->vocab, TX_TOKEN_WORD, text, size);
    if (id >= 0) {
        end_pending(t, s);
        s->id[s->count++] = id;
        return;
    }
    size_t known = 0;
    while (t->byte_fallback && known < size && t->vocab.byte_ids[(unsigned char)text[known]] >= 0)
        known++;
    if (known == size) {
        for (size_t i = 0; i < size; i++)
            s->id[s->count++] = t->vocab.byte_ids[(unsigned char)text[i]];
    } else if (t->unk >= 0) {
        if (!t->fuse_unk)
            end_pending(t, s);
        s->pending = true;
    }
}

/* Encodes characters or, with ByteLevel, bytes: those after the first one with the prefix, the last one with the
 * suffix.
 */
static tx_status encode_characters(const tx_tokenizer *t, tx_buffer *scratch, const char *word, size_t size,
                                   tx_ids *ids)
{
    const size_t prefix = affix_size(t->prefix), suffix = affix_size(t->suffix);
    const size_t each = prefix + 1, most = size < SIZE_MAX / 8 / each ? size * each + suffix : SIZE_MAX / 8;
    tx_buffer_clear(scratch);
    TX_TRY(tx_buffer_reserve(scratch, most * sizeof(int32_t) + prefix + TX_UTF8_MAX + suffix));
    symbols s = {.id = (void *)scratch->data};
    char *with = scratch->data + most * sizeof(int32_t);
    for (size_t at = 0, length; at < size; at += length) {
        length = t->bytes ? 1 : tx_utf8_read(word + at, size - at, NULL);
        const size_t before = at ? prefix : 0, after = at + length == size ? suffix : 0;
        if (before + after == 0) {
            add_character(t, word + at, length, &s);
            continue;
        }
        memcpy(with, t->prefix, before);
        memcpy(with + before, word + at, length);
        memcpy(with + before + length, t->suffix, after);
        add_character(t, with, before + length + after, &s);
    }
    end_pending(t, &s);
    return s.count ? tx_merges_apply(&t->merges, &(tx_symbols){s.id, NULL, s.count}, ids) : TX_OK;
}

static tx_status encode(const tx_tokenizer *t, tx_buffer *scratch, const char *word, size_t size, tx_ids *ids)
{
    int32_t whole = t->ignore_merges ? tx_vocab_find(&t->vocab, TX_TOKEN_WORD, word, size) : -1;
    if (whole < 0)
        return t->bytes && !tx_bpe_has_affix(t)
                   ? tx_merges_apply(&t->merges, &(tx_symbols){t->vocab.byte_ids, word, size}, ids)
                   : encode_characters(t, scratch, word, size, ids);
    TX_TRY(tx_ids_reserve(ids, 1));
    ids->id[ids->count++] = whole;
    return TX_OK;
}

const tx_model_kind tx_bpe = {"BPE", read, encode, false};
