/* SPDX-License-Identifier: Apache-2.0
 * Caches tokenised texts in a folder. There is one file for each text and tokenizer, named by the digest of both. Its
 * own digest is verified whenever it is read. */
#include "models/text/tokens.h"

#include "api/base/file.h"
#include "models/files/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Increase it if the layout below or any rule of tokenising changes. */
#define CACHE_VERSION 1
#define CACHE_MAGIC "TXTOKENS"

/* The layout of a file: this header, the ids (padded to whole uint32), the lengths of the texts. Little-endian. */
typedef struct cache_header {
    char magic[8];
    uint32_t version, width;
    uint64_t count, texts, bad, first_bad;
    char key[TX_DIGEST_TEXT - 1];    /* also in the file's name */
    char digest[TX_DIGEST_TEXT - 1]; /* of the whole file, with zeros in this member */
    char reserved[16];
} cache_header;

_Static_assert(sizeof(cache_header) == 192, "the layout of the file");

/* The key is the digest of all that affects the tokens: the text, its form, the tokenizer, the rules' version. */
static tx_status make_key(const tx_data_file *file, tx_text_form form, const tx_dataset_options *options,
                          char key[TX_DIGEST_TEXT])
{
    tx_digest *digest;
    char rules[64 + TX_DIGEST_TEXT];
    int length = snprintf(rules, sizeof rules, "version %d, form %d, tokenizer %s\n", CACHE_VERSION, (int)form,
                          tx_tokenizer_digest(options->tokenizer));
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, rules, (size_t)length);
    tx_data_file_digest(file, 0, file->size, digest, &options->report);
    return tx_digest_finish(digest, key);
}

static size_t padded(size_t bytes)
{
    return (bytes + sizeof(uint32_t) - 1) / sizeof(uint32_t) * sizeof(uint32_t);
}

/* ---- Reading --------------------------------------------------------------------------------------- */

/* Returns the fault of a header, or NULL if its counts match the file's size. */
static const char *fault_of_header(const cache_header *h, int64_t size, const char *key)
{
    if (size < (int64_t)sizeof *h)
        return "it is shorter than its header";
    if (memcmp(h->magic, CACHE_MAGIC, sizeof h->magic) != 0 || h->version != CACHE_VERSION)
        return "it is not a token cache";
    if (memcmp(h->key, key, sizeof h->key) != 0)
        return "it belongs to another text or tokenizer";
    uint64_t rest = (uint64_t)size - sizeof *h;
    if ((h->width != 2 && h->width != 4) || h->count > rest / h->width || h->texts > rest / sizeof(uint32_t) ||
        h->bad > INT64_MAX || h->first_bad > INT64_MAX ||
        padded((size_t)h->count * h->width) + h->texts * sizeof(uint32_t) != rest)
        return "its counts do not fit its size";
    return NULL;
}

/* Compares the file with the digest in its header. */
static tx_status check_digest(const tx_data_file *file, const cache_header *h, const tx_reporter *report)
{
    char text[TX_DIGEST_TEXT];
    cache_header blank = *h;
    memset(blank.digest, 0, sizeof blank.digest);
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, &blank, sizeof blank);
    tx_data_file_digest(file, sizeof blank, file->size, digest, report);
    TX_TRY(tx_digest_finish(digest, text));
    if (memcmp(text, h->digest, sizeof h->digest) != 0)
        return tx_fail(TX_FORMAT, "its contents do not match its digest");
    return TX_OK;
}

static tx_status read_lengths(const tx_data_file *file, const cache_header *h, tx_tokens *tokens)
{
    const size_t bytes = (size_t)h->texts * sizeof *tokens->lengths;
    const int64_t at = (int64_t)(sizeof *h + padded((size_t)h->count * h->width));
    tokens->lengths = malloc(bytes + 1);
    if (!tokens->lengths)
        return tx_fail(TX_MEMORY, "no memory for the lengths of its texts");
    TX_TRY(tx_data_file_read(file, at, tokens->lengths, bytes));
    uint64_t sum = 0;
    for (int64_t i = 0; i < tokens->texts; i++)
        sum += tokens->lengths[i];
    if (sum != h->count)
        return tx_fail(TX_FORMAT, "the lengths of its texts do not add up");
    return TX_OK;
}

/* Checks the file and moves it into `tokens`. The message of a failure is the reason. */
static tx_status verify(tx_data_file *file, const char *key, const tx_reporter *report, tx_tokens *tokens)
{
    cache_header h = {.width = 0};
    if (file->size >= (int64_t)sizeof h)
        TX_TRY(tx_data_file_read(file, 0, &h, sizeof h));
    const char *fault = fault_of_header(&h, file->size, key);
    if (fault)
        return tx_fail(TX_FORMAT, "%s", fault);
    TX_TRY(check_digest(file, &h, report));
    tx_tokens made = {
        .header = sizeof h,
        .width = (int32_t)h.width,
        .count = (int64_t)h.count,
        .texts = (int64_t)h.texts,
        .bad = (int64_t)h.bad,
        .first_bad = (int64_t)h.first_bad,
    };
    tx_status status = read_lengths(file, &h, &made);
    if (status) {
        tx_tokens_free(&made);
        return status;
    }
    made.file = *file;
    *file = (tx_data_file){0};
    *tokens = made;
    return TX_OK;
}

/* TX_NOT_FOUND if there is no file, or a damaged one, of which the user is warned. */
static tx_status read_cache(const char *path, const char *key, const tx_reporter *report, tx_tokens *tokens)
{
    tx_data_file file = {0};
    if (!tx_file_exists(path))
        return TX_NOT_FOUND;
    tx_status status = tx_data_file_open(path, &file);
    TX_THEN(status, verify(&file, key, report, tokens));
    tx_data_file_close(&file);
    if (!status || status == TX_MEMORY)
        return status;
    tx_reporter_print(report, "%.500s: the cached tokens cannot be used (%.1000s); the text is tokenised again", path,
                      tx_error());
    return TX_NOT_FOUND;
}

/* ---- Writing --------------------------------------------------------------------------------------- */

typedef struct piece {
    const void *data;
    size_t size;
} piece;

/* Writes the header, whose digest covers the header without digest and the pieces, and then the pieces. */
static tx_status write_pieces(tx_file *file, cache_header *header, const piece *pieces, size_t count)
{
    char text[TX_DIGEST_TEXT];
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, header, sizeof *header);
    for (size_t i = 0; i < count; i++)
        tx_digest_add(digest, pieces[i].data, pieces[i].size);
    TX_TRY(tx_digest_finish(digest, text));
    memcpy(header->digest, text, sizeof header->digest);
    TX_TRY(tx_file_append(file, header, sizeof *header));
    for (size_t i = 0; i < count; i++)
        TX_TRY(tx_file_append(file, pieces[i].data, pieces[i].size));
    return TX_OK;
}

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
    memcpy(header.magic, CACHE_MAGIC, sizeof header.magic);
    memcpy(header.key, key, sizeof header.key);
    return write_pieces(file, &header, pieces, sizeof pieces / sizeof pieces[0]);
}

static tx_status write_cache(const char *folder, const char *path, const char *key, const tx_tokens *tokens)
{
    tx_file *file;
    TX_TRY(tx_folder_create(folder));
    TX_TRY(tx_file_create(path, &file));
    tx_status status = write_contents(file, key, tokens);
    if (status) {
        tx_file_discard(file);
        return status;
    }
    return tx_file_commit(file);
}

tx_status tx_tokens_cached(const tx_data_file *file, tx_text_form form, const tx_dataset_options *options,
                           tx_tokens *tokens)
{
    char key[TX_DIGEST_TEXT], name[TX_DIGEST_TEXT + 16], kept[TX_PATH_ROOM];
    TX_TRY(make_key(file, form, options, key));
    snprintf(name, sizeof name, "tokens-%s.cache", key);
    tx_path_in(kept, options->cache, name);
    tx_tokens made = {0};
    tx_status status = read_cache(kept, key, &options->report, &made);
    /* If there are more malformed lines than allowed now, read the text again to report the first one. */
    if (!status && made.bad > options->skip_bad) {
        tx_tokens_free(&made);
        status = TX_NOT_FOUND;
    }
    if (status == TX_NOT_FOUND) {
        status = tx_tokens_of_text(file, form, options, &made);
        if (!status && write_cache(options->cache, kept, key, &made))
            tx_reporter_print(&options->report,
                              "the tokens cannot be cached, so the text is tokenised again next time: %s", tx_error());
    }
    if (!status)
        *tokens = made;
    return status;
}
