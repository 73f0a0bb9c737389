/* SPDX-License-Identifier: Apache-2.0
 * The digest of all that decides the ids of texts. */
#include "models/text/bpe.h"
#include "models/text/unicode.h"

#include <inttypes.h>
#include <stdio.h>

/* Adds a text, its length before it. */
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

/* Adds numbers, as text: the digest is the same on every machine. */
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
    ADD_NUMBERS(digest, t->bytes, t->ignore_merges, t->unk, t->byte_fallback, t->fuse_unk, t->longest);
    add_text(digest, t->model->name);
    add_text(digest, t->prefix);
}

static void add_steps(tx_digest *digest, const tx_steps *steps)
{
    ADD_NUMBERS(digest, steps->count);
    for (int32_t i = 0; i < steps->count; i++) {
        const tx_step *s = &steps->at[i];
        ADD_NUMBERS(digest, s->mode, s->invert, s->mark, s->prepend, s->flag[0], s->flag[1], s->flag[2], s->flag[3]);
        add_text(digest, s->kind->name);
        add_text(digest, s->regex.pattern);
        add_text(digest, s->text);
    }
}

tx_status tx_tokenizer_make_digest(tx_tokenizer *t)
{
    char version[64] = ""; /* of Unicode, as PCRE2 knows it, and utf8proc */
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
    return tx_digest_finish(digest, t->digest);
}
