/* SPDX-License-Identifier: Apache-2.0
 * Makes and queries tokenizers, decodes ids, and computes digests. */
#include "models/tokenizer/bpe.h"

#include "api/base/needs.h"
#include "api/base/number.h"
#include "models/tokenizer/unicode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Creating ------------------------------------------------------------------------------------ */

tx_status tx_tokenizer_new(tx_tokenizer **tokenizer)
{
    tx_tokenizer *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for a tokenizer");
    for (int i = 0; i < 256; i++)
        created->vocab.byte_ids[i] = -1;
    created->model = &tx_bpe;
    created->unk = -1;
    created->begin = created->end = -1;
    *tokenizer = created;
    return TX_OK;
}

void tx_tokenizer_free(tx_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    tx_vocab_free(&tokenizer->vocab);
    tx_merges_free(&tokenizer->merges);
    tx_additions_free(&tokenizer->additions);
    tx_tokenizer_steps_free(&tokenizer->normalizer);
    tx_tokenizer_steps_free(&tokenizer->pre_tokenizer);
    tx_tokenizer_steps_free(&tokenizer->decoder);
    tx_post_processor_free(&tokenizer->post_processor);
    tx_trie_free(&tokenizer->trie);
    free(tokenizer->score);
    free(tokenizer->prefix);
    free(tokenizer->suffix);
    free(tokenizer->piece);
    free(tokenizer->piece_at);
    for (int i = 0; i < TX_SOURCES; i++)
        free(tokenizer->source[i].data);
    free(tokenizer->older.data);
    free(tokenizer->model_config.data);
    free(tokenizer->tools.data);
    free(tokenizer);
}

tx_status tx_tokenizer_add_special(tx_tokenizer *tokenizer, const char *text, int32_t id)
{
    tx_vocab *vocab = &tokenizer->vocab;
    if (id >= vocab->count || vocab->token[id].kind == TX_TOKEN_NONE)
        TX_TRY(tx_vocab_put(vocab, id, TX_TOKEN_WORD, text, strlen(text)));
    return tx_tokenizer_add(tokenizer, &(tx_added){.id = id, .special = true}, text);
}

/* With ByteLevel every byte must have a token, unless characters get affixes: then it is often unknown without one. */
static tx_status seal_bytes(tx_vocab *vocab, bool has_affix)
{
    for (int32_t id = 0; id < vocab->count; id++) {
        const tx_token *token = &vocab->token[id];
        if (token->kind == TX_TOKEN_WORD && token->size == 1)
            vocab->byte_ids[(unsigned char)vocab->bytes.data[token->at]] = id;
    }
    for (int byte = 0; byte < 256 && !has_affix; byte++)
        if (vocab->byte_ids[byte] < 0)
            return tx_fail(TX_UNSUPPORTED,
                           "the vocabulary has no token for byte 0x%02X, so texts with it cannot be encoded", byte);
    return TX_OK;
}

/* Decodes each token as in the middle of a text. */
static tx_status spell_pieces(tx_tokenizer *t)
{
    tx_spelling spelling = {.size = t->vocab.bytes.size};
    tx_buffer pieces = {.limit = tx_buffer_limit(t->vocab.bytes.size)};
    t->piece_at = malloc(((size_t)t->vocab.count + 1) * sizeof *t->piece_at);
    tx_status status = t->piece_at ? tx_buffer_reserve(&pieces, 1) : tx_fail(TX_MEMORY, "no memory for the pieces");
    for (int32_t id = 0; id < t->vocab.count && !status; id++) {
        const tx_token *token = &t->vocab.token[id];
        t->piece_at[id] = pieces.size;
        tx_spelling_add(&spelling, t->vocab.bytes.data + token->at, token->size);
        status = tx_spelling_run(&spelling, &t->decoder, &pieces);
    }
    if (!status)
        t->piece_at[t->vocab.count] = pieces.size;
    t->piece = pieces.data;
    tx_spelling_free(&spelling);
    return status;
}

tx_status tx_tokenizer_seal(tx_tokenizer *tokenizer)
{
    tx_vocab *vocab = &tokenizer->vocab;
    TX_TRY(tokenizer->bytes ? seal_bytes(vocab, tx_bpe_has_affix(tokenizer)) : spell_pieces(tokenizer));
    TX_TRY(tx_merges_seal(&tokenizer->merges, vocab));
    TX_TRY(tx_additions_seal(&tokenizer->additions, &tokenizer->normalizer));
    TX_TRY(tx_post_processor_seal(&tokenizer->post_processor, vocab->count));
    return tx_tokenizer_make_digest(tokenizer);
}

tx_status tx_tokenizer_bytes(tx_tokenizer **tokenizer)
{
    TX_NEEDS(tokenizer, TX_INVALID);
    tx_tokenizer *created = NULL;
    TX_TRY(tx_tokenizer_new(&created));
    tx_status status = TX_OK;
    created->bytes = true;
    for (int byte = 0; byte < 256 && !status; byte++)
        status = tx_vocab_put(&created->vocab, byte, TX_TOKEN_WORD, &(char){(char)byte}, 1);
    TX_THEN(status, tx_tokenizer_add_special(created, TX_END_OF_TEXT, TX_BYTES_END));
    TX_THEN(status, tx_pre_tokenizer_gpt2(&created->pre_tokenizer, false));
    TX_THEN(status, tx_tokenizer_seal(created));
    if (status) {
        tx_tokenizer_free(created);
        return status;
    }
    created->end = TX_BYTES_END;
    *tokenizer = created;
    return TX_OK;
}

/* ---- Queries --------------------------------------------------------------------------------------- */

int64_t tx_tokenizer_size(const tx_tokenizer *tokenizer)
{
    TX_NEEDS(tokenizer, 0);
    return tokenizer->vocab.count;
}

int32_t tx_tokenizer_find(const tx_tokenizer *tokenizer, const char *text)
{
    TX_NEEDS(tokenizer && text, -1);
    const int32_t id = tx_vocab_find(&tokenizer->vocab, TX_TOKEN_FOREIGN, text, strlen(text));
    return id >= 0 ? id : tx_vocab_find(&tokenizer->vocab, TX_TOKEN_WORD, text, strlen(text));
}

int32_t tx_tokenizer_end(const tx_tokenizer *tokenizer)
{
    TX_NEEDS(tokenizer, -1);
    return tokenizer->end;
}

int32_t tx_tokenizer_pad(const tx_tokenizer *tokenizer)
{
    TX_NEEDS(tokenizer, -1);
    return tokenizer->pad >= 0 ? tokenizer->pad : tokenizer->end;
}

const char *tx_tokenizer_digest(const tx_tokenizer *tokenizer)
{
    TX_NEEDS(tokenizer, NULL);
    return tokenizer->digest;
}

/* ---- Decoding -------------------------------------------------------------------------------------- */

tx_status tx_tokenizer_piece(const tx_tokenizer *tokenizer, int32_t id, bool skip_special, const char **bytes,
                             size_t *size)
{
    TX_NEEDS(tokenizer && bytes && size, TX_INVALID);
    const tx_vocab *vocab = &tokenizer->vocab;
    if (id < 0 || id >= vocab->count)
        return tx_fail(TX_INVALID, "id %" PRId32 " is not in the vocabulary (0 to %" PRId32 ")", id, vocab->count - 1);
    const tx_token *token = &vocab->token[id];
    if (token->kind == TX_TOKEN_NONE)
        return tx_fail(TX_INVALID, "id %" PRId32 " has no token in the vocabulary", id);
    *bytes = tokenizer->piece ? tokenizer->piece + tokenizer->piece_at[id] : vocab->bytes.data + token->at;
    *size = tokenizer->piece ? tokenizer->piece_at[id + 1] - tokenizer->piece_at[id] : token->size;
    if (skip_special && token->special)
        *size = 0;
    return TX_OK;
}

/* Appends the tokens' bytes, or the text that the decoder makes of them. */
static tx_status decode(const tx_tokenizer *t, const int32_t *ids, size_t count, bool skip_special,
                        tx_spelling *spelling, tx_buffer *text)
{
    for (size_t i = 0; i < count; i++) {
        const char *bytes = NULL;
        size_t size = 0;
        TX_TRY(tx_fail_in(tx_tokenizer_piece(t, ids[i], skip_special, &bytes, &size), "id number %zu", i + 1));
        const tx_token *token = &t->vocab.token[ids[i]];
        if (t->bytes)
            tx_buffer_add(text, bytes, size);
        else if (!skip_special || !token->special)
            tx_spelling_add(spelling, t->vocab.bytes.data + token->at, token->size);
    }
    return t->bytes ? TX_OK : tx_spelling_run(spelling, &t->decoder, text);
}

tx_status tx_tokenizer_decode(const tx_tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special,
                              char **text, size_t *size)
{
    TX_NEEDS(tokenizer && text && size && (ids || !count), TX_INVALID);
    tx_spelling spelling = {.whole = true};
    tx_buffer result = {0};
    tx_status status = decode(tokenizer, ids, count, skip_special, &spelling, &result);
    tx_buffer_add(&result, "", 1);
    tx_spelling_free(&spelling);
    if (status || result.status) {
        free(result.data);
        return status ? status : result.status;
    }
    *text = result.data;
    *size = result.size - 1;
    return TX_OK;
}

/* ---- Joining --------------------------------------------------------------------------------------- */

/* Appends `count` ids, or with `same` the first one `count` times. */
static tx_status append(tx_ids *ids, const int32_t *id, size_t count, bool same)
{
    TX_TRY(tx_ids_reserve(ids, count));
    for (size_t i = 0; i < count; i++)
        ids->id[ids->count++] = id[same ? 0 : i];
    return TX_OK;
}

tx_status tx_tokenizer_join(const tx_tokenizer *tokenizer, const tx_ids *first, const tx_ids *second, tx_ids *ids,
                            tx_ids *types)
{
    TX_NEEDS(tokenizer && first && ids, TX_INVALID);
    const tx_template *template = &tokenizer->post_processor.of[second != NULL];
    for (size_t i = 0; i < template->count; i++) {
        const tx_template_item *item = &template->item[i];
        const tx_ids *text = item->id == TX_TEMPLATE_FIRST ? first : item->id == TX_TEMPLATE_SECOND ? second : NULL;
        const tx_ids one = {.id = &(int32_t){item->id}, .count = 1};
        if (item->id == TX_TEMPLATE_SECOND && !second)
            continue;
        if (!text)
            text = &one;
        TX_TRY(append(ids, text->id, text->count, false));
        TX_TRY(append(types, &item->type, text->count, true));
    }
    return TX_OK;
}

/* ---- The digest of all that affects the ids of texts ----------------------------------------------------- */

/* Adds a text, preceded by its length. */
static void add_bytes(tx_digest *digest, const char *text, size_t size)
{
    char head[32];
    tx_digest_add(digest, head, (size_t)snprintf(head, sizeof head, "%zu:", size));
    tx_digest_add(digest, text, size);
}

static void add_text(tx_digest *digest, const char *text)
{
    add_bytes(digest, text ? text : "", text ? strlen(text) : 0);
}

/* Adds numbers as text, so that the digest is the same on every platform. */
static void add_numbers(tx_digest *digest, int count, const int64_t *numbers)
{
    char text[128];
    int length = 0;
    for (int i = 0; i < count; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%" PRId64 ",", numbers[i]);
    tx_digest_add(digest, text, (size_t)length);
}
#define ADD_NUMBERS(digest, ...) \
    add_numbers(digest, (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static void add_model(tx_digest *digest, const tx_tokenizer *t)
{
    for (int32_t id = 0; id < t->vocab.count; id++) {
        const tx_token *token = &t->vocab.token[id];
        ADD_NUMBERS(digest, id, token->kind);
        add_bytes(digest, t->vocab.bytes.data + token->at, token->size);
    }
    for (size_t i = 0; i < t->merges.count; i++)
        ADD_NUMBERS(digest, t->merges.at[i].left, t->merges.at[i].right, t->merges.at[i].id);
    for (int32_t id = 0; t->score && id < t->words; id++) {
        char text[40];
        tx_digest_add(digest, text, (size_t)tx_format(text, sizeof text, "%.17g,", t->score[id]));
    }
    ADD_NUMBERS(digest, t->bytes, t->ignore_merges, t->unk, t->byte_fallback, t->fuse_unk, t->longest);
    add_text(digest, t->model->name);
    add_text(digest, t->prefix);
    if (t->suffix && *t->suffix)
        add_text(digest, t->suffix);
}

static void add_steps(tx_digest *digest, const tx_tokenizer_steps *steps)
{
    ADD_NUMBERS(digest, steps->count);
    for (int32_t i = 0; i < steps->count; i++) {
        const tx_tokenizer_step *s = &steps->at[i];
        ADD_NUMBERS(digest, s->mode, s->invert, s->mark, s->prepend, s->flag[0], s->flag[1], s->flag[2], s->flag[3]);
        add_text(digest, s->kind->name);
        add_text(digest, s->regex.pattern);
        add_text(digest, s->text);
        if (s->map)
            add_bytes(digest, s->map->data, s->map->size);
    }
}

tx_status tx_tokenizer_make_digest(tx_tokenizer *t)
{
    char version[64] = ""; /* of PCRE2's Unicode tables */
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    add_text(digest, version);
    add_text(digest, tx_unicode_version());
    add_model(digest, t);
    add_steps(digest, &t->normalizer);
    add_steps(digest, &t->pre_tokenizer);
    for (int32_t i = 0; i < t->additions.count; i++) {
        const tx_added *a = &t->additions.at[i];
        ADD_NUMBERS(digest, a->id, a->special, a->single_word, a->lstrip, a->rstrip, a->normalized);
        add_bytes(digest, a->text, a->size);
    }
    const tx_template *around = &t->post_processor.of[0];
    for (size_t i = 0; i < around->count && around->count > 1; i++)
        ADD_NUMBERS(digest, around->item[i].id);
    return tx_digest_finish(digest, t->digest);
}
