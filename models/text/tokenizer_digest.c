/* SPDX-License-Identifier: Apache-2.0
 * The digest of all that decides the ids of texts. */
#include "models/text/bpe.h"
#include "models/text/unicode.h"

#include <inttypes.h>
#include <stdio.h>

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
            status = digest_text(digest, t->vocab.bytes.data + token->at, token->size);
    }
    for (size_t i = 0; i < t->merges.count && !status; i++)
        status =
            digest_numbers(digest, 3, (int64_t[]){t->merges.at[i].left, t->merges.at[i].right, t->merges.at[i].id});
    return status;
}

static tx_status digest_string(tx_digest *digest, const char *text)
{
    return digest_text(digest, text ? text : "", text ? strlen(text) : 0);
}

static tx_status digest_model(tx_digest *digest, const tx_tokenizer *t)
{
    tx_status status = digest_numbers(
        digest, 6, (int64_t[]){t->bytes, t->ignore_merges, t->unk, t->byte_fallback, t->fuse_unk, t->longest});
    if (!status)
        status = digest_string(digest, t->model->name);
    return status ? status : digest_string(digest, t->prefix);
}

static tx_status digest_steps(tx_digest *digest, const tx_steps *steps)
{
    tx_status status = digest_numbers(digest, 1, (int64_t[]){steps->count});
    for (int32_t i = 0; i < steps->count && !status; i++) {
        const tx_step *s = &steps->at[i];
        status = digest_numbers(
            digest, 8,
            (int64_t[]){s->mode, s->invert, s->mark, s->prepend, s->flag[0], s->flag[1], s->flag[2], s->flag[3]});
        if (!status)
            status = digest_string(digest, s->kind->name);
        if (!status)
            status = digest_string(digest, s->regex.pattern);
        if (!status)
            status = digest_string(digest, s->text);
    }
    return status;
}

static tx_status digest_added(tx_digest *digest, const tx_additions *additions)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < additions->count && !status; i++) {
        const tx_added *a = &additions->at[i];
        status = digest_numbers(digest, 6,
                                (int64_t[]){a->id, a->special, a->single_word, a->lstrip, a->rstrip, a->normalized});
        if (!status)
            status = digest_text(digest, a->text, a->size);
    }
    return status;
}

/* The versions of Unicode that PCRE2 and utf8proc know. */
static tx_status digest_unicode(tx_digest *digest)
{
    char version[64] = "";
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    tx_status status = digest_string(digest, version);
    return status ? status : digest_string(digest, tx_unicode_version());
}

tx_status tx_tokenizer_make_digest(tx_tokenizer *t)
{
    tx_digest *digest;
    tx_status status = tx_digest_create(&digest);
    if (status)
        return status;
    status = digest_unicode(digest);
    if (!status)
        status = digest_vocab(digest, t);
    if (!status)
        status = digest_model(digest, t);
    if (!status)
        status = digest_steps(digest, &t->normalizer);
    if (!status)
        status = digest_steps(digest, &t->pre_tokenizer);
    if (!status)
        status = digest_added(digest, &t->additions);
    if (!status)
        return tx_digest_finish(digest, t->digest);
    tx_digest_free(digest);
    return status;
}
