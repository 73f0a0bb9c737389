/* SPDX-License-Identifier: Apache-2.0
 * Tokenised texts kept in a folder: one file a text and tokenizer, named by the digest of both, and verified by its own
 * digest whenever it is read. */
#include "models/text/tokens.h"

#include "api/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Changes with the layout below and with every rule by which texts become tokens. */
#define CACHE_VERSION 1
#define CACHE_MAGIC "TXTOKENS"
#define MESSAGE_BYTES 1024

/* The file: this, the ids (padded to whole uint32), the lengths of the texts. Little-endian. */
typedef struct cache_header {
    char magic[8];
    uint32_t version, width;
    uint64_t count, texts, bad, first_bad;
    char key[TX_DIGEST_TEXT - 1];    /* also in the file's name */
    char digest[TX_DIGEST_TEXT - 1]; /* of the whole file, with zeros in this place */
    char reserved[16];
} cache_header;

_Static_assert(sizeof(cache_header) == 192, "the layout of the file");

/* What decides the tokens: the text, how it is split, the tokenizer, these rules. */
static tx_status make_key(const tx_view *view, tx_text_form form, const tx_tokenizer *tokenizer,
                          char key[TX_DIGEST_TEXT])
{
    tx_digest *digest = NULL;
    char rules[64 + TX_DIGEST_TEXT];
    int length = snprintf(rules, sizeof rules, "version %d, form %d, tokenizer %s\n", CACHE_VERSION, (int)form,
                          tx_tokenizer_digest(tokenizer));
    tx_status status = tx_digest_create(&digest);
    if (!status)
        status = tx_digest_add(digest, rules, (size_t)length);
    if (!status)
        status = tx_digest_add(digest, view->data, view->size);
    if (status) {
        tx_digest_free(digest);
        return status;
    }
    return tx_digest_finish(digest, key);
}

static size_t padded(size_t bytes)
{
    return (bytes + sizeof(uint32_t) - 1) / sizeof(uint32_t) * sizeof(uint32_t);
}

typedef struct piece {
    const void *data;
    size_t size;
} piece;

/* Digest of a header, which has none yet, and of what follows it. */
static tx_status digest_file(const cache_header *header, const piece *pieces, size_t count, char text[TX_DIGEST_TEXT])
{
    tx_digest *digest = NULL;
    tx_status status = tx_digest_create(&digest);
    if (!status)
        status = tx_digest_add(digest, header, sizeof *header);
    for (size_t i = 0; i < count && !status; i++)
        status = tx_digest_add(digest, pieces[i].data, pieces[i].size);
    if (status) {
        tx_digest_free(digest);
        return status;
    }
    return tx_digest_finish(digest, text);
}

/* ---- Reading --------------------------------------------------------------------------------------- */

/* What is wrong with a header, or NULL; its counts then fit the file. */
static const char *fault_of_header(const cache_header *h, size_t size, const char *key)
{
    if (size < sizeof *h)
        return "it is shorter than its header";
    if (memcmp(h->magic, CACHE_MAGIC, sizeof h->magic) != 0 || h->version != CACHE_VERSION)
        return "it is no such file";
    if (memcmp(h->key, key, sizeof h->key) != 0)
        return "it belongs to another text or tokenizer";
    uint64_t rest = size - sizeof *h;
    if ((h->width != 2 && h->width != 4) || h->count > rest / h->width || h->texts > rest / sizeof(uint32_t) ||
        h->bad > INT64_MAX || h->first_bad > INT64_MAX ||
        padded((size_t)h->count * h->width) + h->texts * sizeof(uint32_t) != rest)
        return "its counts do not fit its size";
    return NULL;
}

/* Takes the file's view into `tokens`; the message of a failure says what is wrong with the file. */
static tx_status verify(tx_view *view, const char *key, tx_tokens *tokens)
{
    const cache_header *h = (const void *)view->data;
    const char *fault = fault_of_header(h, view->size, key);
    char digest[TX_DIGEST_TEXT];
    if (fault)
        return tx_fail(TX_FORMAT, "%s", fault);
    cache_header blank = *h;
    memset(blank.digest, 0, sizeof blank.digest);
    tx_status status = digest_file(&blank, &(piece){h + 1, view->size - sizeof *h}, 1, digest);
    if (status)
        return status;
    if (memcmp(digest, h->digest, sizeof h->digest) != 0)
        return tx_fail(TX_FORMAT, "its contents do not match its digest");
    const char *ids = view->data + sizeof *h;
    tx_tokens made = {
        .ids = ids,
        .width = (int32_t)h->width,
        .count = (int64_t)h->count,
        .lengths = (const void *)(ids + padded((size_t)h->count * h->width)),
        .texts = (int64_t)h->texts,
        .bad = (int64_t)h->bad,
        .first_bad = (int64_t)h->first_bad,
    };
    uint64_t sum = 0;
    for (int64_t i = 0; i < made.texts; i++)
        sum += made.lengths[i];
    if (sum != h->count)
        return tx_fail(TX_FORMAT, "the lengths of its texts do not add up");
    made.view = *view;
    *view = (tx_view){0};
    *tokens = made;
    return TX_OK;
}

/* TX_NOT_FOUND where there is no file, or a damaged one, which is told. */
static tx_status read_cache(const char *file, const char *key, const tx_reporter *report, tx_tokens *tokens)
{
    tx_view view = {0};
    if (!tx_file_exists(file))
        return TX_NOT_FOUND;
    tx_status status = tx_view_open(file, &view);
    if (!status)
        status = verify(&view, key, tokens);
    tx_view_close(&view);
    if (status && status != TX_MEMORY) {
        char message[MESSAGE_BYTES + 64];
        snprintf(message, sizeof message,
                 "%.500s: tokenised text that is kept here cannot be used (%s): it is made anew", file, tx_error());
        tx_report(report, message);
        status = TX_NOT_FOUND;
    }
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------------- */

static tx_status write_contents(tx_file *file, const char *key, const tx_tokens *tokens)
{
    static const char zeros[sizeof(uint32_t)] = {0};
    size_t ids = (size_t)tokens->count * (size_t)tokens->width, gap = padded(ids) - ids;
    size_t lengths = (size_t)tokens->texts * sizeof *tokens->lengths;
    const piece pieces[] = {{tokens->ids, ids}, {zeros, gap}, {tokens->lengths, lengths}};
    cache_header header = {
        .version = CACHE_VERSION,
        .width = (uint32_t)tokens->width,
        .count = (uint64_t)tokens->count,
        .texts = (uint64_t)tokens->texts,
        .bad = (uint64_t)tokens->bad,
        .first_bad = (uint64_t)tokens->first_bad,
    };
    char text[TX_DIGEST_TEXT];
    memcpy(header.magic, CACHE_MAGIC, sizeof header.magic);
    memcpy(header.key, key, sizeof header.key);
    tx_status status = digest_file(&header, pieces, 3, text);
    if (status)
        return status;
    memcpy(header.digest, text, sizeof header.digest);
    status = tx_file_append(file, &header, sizeof header);
    for (size_t i = 0; i < 3 && !status; i++)
        status = tx_file_append(file, pieces[i].data, pieces[i].size);
    return status;
}

static tx_status write_cache(const char *folder, const char *path, const char *key, const tx_tokens *tokens)
{
    tx_file *file;
    tx_status status = tx_folder_create(folder);
    if (!status)
        status = tx_file_create(path, &file);
    if (status)
        return status;
    status = write_contents(file, key, tokens);
    if (status) {
        tx_file_discard(file);
        return status;
    }
    return tx_file_commit(file);
}

tx_status tx_tokens_cached(const char *path, const tx_view *view, tx_text_form form, const tx_dataset_options *options,
                           tx_tokens *tokens)
{
    char key[TX_DIGEST_TEXT], name[TX_DIGEST_TEXT + 16];
    tx_status status = make_key(view, form, options->tokenizer, key);
    if (status)
        return status;
    snprintf(name, sizeof name, "tokens-%s.cache", key);
    char *file = tx_path_join(options->cache, name);
    if (!file)
        return TX_MEMORY;
    tx_tokens made = {0};
    status = read_cache(file, key, &options->report, &made);
    /* With more malformed lines than are allowed now, reading the text again tells which the first is. */
    if (!status && made.bad > options->skip_bad) {
        tx_tokens_free(&made);
        status = TX_NOT_FOUND;
    }
    if (status == TX_NOT_FOUND) {
        status = tx_tokens_of_text(path, view, form, options, &made);
        if (!status && write_cache(options->cache, file, key, &made)) {
            char message[MESSAGE_BYTES + 64];
            snprintf(message, sizeof message, "the tokenised text cannot be kept, and is made anew next time: %s",
                     tx_error());
            tx_report(&options->report, message);
        }
    }
    free(file);
    if (!status)
        *tokens = made;
    return status;
}
