/* SPDX-License-Identifier: Apache-2.0
 * The tokenizer as a whole: making, asking, decoding. */
#include "models/text/bpe.h"
#include "models/text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making -------------------------------------------------------------------------------------- */

tx_status tx_tokenizer_new(tx_tokenizer **tokenizer)
{
    tx_tokenizer *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for a tokenizer");
    for (int i = 0; i < 256; i++)
        made->vocab.byte_ids[i] = -1;
    made->end = -1;
    made->splitters.prefix = -1;
    *tokenizer = made;
    return TX_OK;
}

void tx_tokenizer_free(tx_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    tx_vocab_free(&tokenizer->vocab);
    tx_merges_free(&tokenizer->merges);
    tx_additions_free(&tokenizer->additions);
    tx_splitters_free(&tokenizer->splitters);
    for (int i = 0; i < TX_SOURCES; i++)
        free(tokenizer->source[i].data);
    free(tokenizer);
}

tx_status tx_tokenizer_add_special(tx_tokenizer *tokenizer, const char *text, int32_t id)
{
    tx_added added = {.id = id, .size = strlen(text), .special = true};
    char *copy = strdup(text);
    if (!copy)
        return tx_fail(TX_MEMORY, "no memory for a token");
    added.text = copy;
    tx_vocab *vocab = &tokenizer->vocab;
    tx_status status = TX_OK;
    if (id >= vocab->count || vocab->token[id].kind == TX_TOKEN_NONE)
        status = tx_vocab_put(vocab, id, TX_TOKEN_WORD, text, added.size);
    if (!status)
        status = tx_additions_put(&tokenizer->additions, &added);
    if (!status)
        vocab->token[id].special = true;
    free(copy);
    return status;
}

/* Adds to the digest a text and, before it, its length. */
static tx_status digest_text(tx_digest *digest, const char *text, size_t size)
{
    char head[32];
    int length = snprintf(head, sizeof head, "%zu:", size);
    tx_status status = tx_digest_add(digest, head, (size_t)length);
    return status ? status : tx_digest_add(digest, text, size);
}

/* Adds numbers, as text: the digest is the same on every machine. */
static tx_status digest_numbers(tx_digest *digest, int count, const int64_t *numbers)
{
    char text[128];
    int length = 0;
    for (int i = 0; i < count; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%" PRId64 ",", numbers[i]);
    return tx_digest_add(digest, text, (size_t)length);
}

static tx_status digest_vocab(tx_digest *digest, const tx_tokenizer *t)
{
    tx_status status = TX_OK;
    for (int32_t id = 0; id < t->vocab.count && !status; id++) {
        const tx_token *token = &t->vocab.token[id];
        status = digest_numbers(digest, 2, (int64_t[]){id, token->kind});
        if (!status)
            status = digest_text(digest, t->vocab.bytes + token->at, token->size);
    }
    for (size_t i = 0; i < t->merges.count && !status; i++)
        status =
            digest_numbers(digest, 3, (int64_t[]){t->merges.at[i].left, t->merges.at[i].right, t->merges.at[i].id});
    return status ? status : digest_numbers(digest, 1, (int64_t[]){t->ignore_merges});
}

static tx_status digest_rest(tx_digest *digest, const tx_tokenizer *t)
{
    tx_status status = digest_numbers(digest, 2, (int64_t[]){t->splitters.count, t->splitters.prefix});
    for (int32_t i = 0; i < t->splitters.count && !status; i++) {
        const tx_splitter *s = &t->splitters.at[i];
        status = digest_numbers(digest, 2, (int64_t[]){s->mode, s->invert});
        if (!status)
            status = digest_text(digest, s->regex.pattern, strlen(s->regex.pattern));
    }
    for (int32_t i = 0; i < t->additions.count && !status; i++) {
        const tx_added *a = &t->additions.at[i];
        status = digest_numbers(digest, 6,
                                (int64_t[]){a->id, a->special, a->single_word, a->lstrip, a->rstrip, a->normalized});
        if (!status)
            status = digest_text(digest, a->text, a->size);
    }
    return status;
}

/* Of all that decides the ids, the version of Unicode that PCRE2 knows included. */
static tx_status make_digest(tx_tokenizer *t)
{
    char unicode[64] = "";
    tx_digest *digest;
    tx_status status = tx_digest_create(&digest);
    if (status)
        return status;
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, unicode);
    status = digest_text(digest, unicode, strlen(unicode));
    if (!status)
        status = digest_vocab(digest, t);
    if (!status)
        status = digest_rest(digest, t);
    if (!status)
        return tx_digest_finish(digest, t->digest);
    tx_digest_free(digest);
    return status;
}

tx_status tx_tokenizer_seal(tx_tokenizer *tokenizer)
{
    tx_vocab *vocab = &tokenizer->vocab;
    for (int32_t id = 0; id < vocab->count; id++) {
        const tx_token *token = &vocab->token[id];
        if (token->kind == TX_TOKEN_WORD && token->size == 1)
            vocab->byte_ids[(unsigned char)vocab->bytes[token->at]] = id;
    }
    for (int byte = 0; byte < 256; byte++)
        if (vocab->byte_ids[byte] < 0)
            return tx_fail(TX_UNSUPPORTED, "the vocabulary has no token for byte 0x%02X: texts would lose it", byte);
    tx_status status = tx_merges_seal(&tokenizer->merges, vocab);
    if (!status && tokenizer->ignore_merges)
        status = tx_vocab_index(vocab, vocab->count);
    if (!status)
        status = tx_additions_seal(&tokenizer->additions);
    return status ? status : make_digest(tokenizer);
}

tx_status tx_tokenizer_bytes(tx_tokenizer **tokenizer)
{
    tx_tokenizer *made = NULL;
    tx_status status = tx_tokenizer_new(&made);
    if (status)
        return status;
    for (int byte = 0; byte < 256 && !status; byte++)
        status = tx_vocab_put(&made->vocab, byte, TX_TOKEN_WORD, &(char){(char)byte}, 1);
    if (!status)
        status = tx_tokenizer_add_special(made, TX_END_OF_TEXT, TX_BYTES_END);
    if (!status)
        status = tx_merges_reserve(&made->merges, 0);
    if (!status)
        status = tx_splitters_add(&made->splitters, tx_split_gpt2, TX_SPLIT_ISOLATED, false);
    if (!status)
        status = tx_tokenizer_seal(made);
    if (status) {
        tx_tokenizer_free(made);
        return status;
    }
    made->end = TX_BYTES_END;
    *tokenizer = made;
    return TX_OK;
}

/* ---- Asking ---------------------------------------------------------------------------------------- */

int64_t tx_tokenizer_size(const tx_tokenizer *tokenizer)
{
    return tokenizer->vocab.count;
}

int32_t tx_tokenizer_find(const tx_tokenizer *tokenizer, const char *text)
{
    const tx_vocab *vocab = &tokenizer->vocab;
    const size_t size = strlen(text);
    const tx_added *added = tx_additions_get(&tokenizer->additions, text);
    if (added)
        return added->id;
    for (int32_t id = 0; id < vocab->count; id++)
        if (vocab->token[id].kind != TX_TOKEN_NONE && vocab->token[id].size == size &&
            memcmp(vocab->bytes + vocab->token[id].at, text, size) == 0)
            return id;
    return -1;
}

int32_t tx_tokenizer_end(const tx_tokenizer *tokenizer)
{
    return tokenizer->end;
}

const char *tx_tokenizer_digest(const tx_tokenizer *tokenizer)
{
    return tokenizer->digest;
}

/* ---- Decoding -------------------------------------------------------------------------------------- */

tx_status tx_tokenizer_piece(const tx_tokenizer *tokenizer, int32_t id, bool skip_special, const char **bytes,
                             size_t *size)
{
    const tx_vocab *vocab = &tokenizer->vocab;
    if (id < 0 || id >= vocab->count)
        return tx_fail(TX_INVALID, "id %" PRId32 " is not in the vocabulary (0 to %" PRId32 ")", id, vocab->count - 1);
    const tx_token *token = &vocab->token[id];
    if (token->kind == TX_TOKEN_NONE)
        return tx_fail(TX_INVALID, "id %" PRId32 " has no token in the vocabulary", id);
    *bytes = vocab->bytes + token->at;
    *size = skip_special && token->special ? 0 : token->size;
    return TX_OK;
}

tx_status tx_tokenizer_decode(const tx_tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special,
                              char **text, size_t *size)
{
    const char *bytes = NULL;
    size_t total = 0, length = 0;
    for (size_t i = 0; i < count; i++) {
        tx_status status = tx_tokenizer_piece(tokenizer, ids[i], skip_special, &bytes, &length);
        if (status)
            return tx_fail_in(status, "id number %zu", i + 1);
        total += length;
    }
    char *made = malloc(total + 1), *at = made;
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for a text of %zu bytes", total);
    for (size_t i = 0; i < count; i++) {
        tx_tokenizer_piece(tokenizer, ids[i], skip_special, &bytes, &length);
        memcpy(at, bytes, length);
        at += length;
    }
    *at = '\0';
    *text = made;
    *size = total;
    return TX_OK;
}
