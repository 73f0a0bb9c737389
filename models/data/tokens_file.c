/* SPDX-License-Identifier: Apache-2.0
 * Files of the tokens of texts. The tokens are written while the texts are tokenised and read on demand, so that a text
 * may be larger than memory. */
#include "models/data/tokens_file.h"

#include "api/base/file.h"
#include "models/files/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CACHE_MAGIC "TXTOKENS"

/* The layout of a file: the ids (padded to whole uint32), the lengths of the texts, this trailer. Little-endian. */
typedef struct cache_trailer {
    char magic[8];
    uint32_t version, width;
    uint64_t count, texts, bad, first_bad;
    char key[TX_DIGEST_TEXT - 1];    /* also in the file's name */
    char digest[TX_DIGEST_TEXT - 1]; /* of the whole file, with zeros in this member */
    uint32_t ids_end;                /* see tx_tokens */
    char reserved[12];
} cache_trailer;

_Static_assert(sizeof(cache_trailer) == 192, "the layout of the file");

static size_t padded(size_t bytes)
{
    return (bytes + sizeof(uint32_t) - 1) / sizeof(uint32_t) * sizeof(uint32_t);
}

/* ---- Reading --------------------------------------------------------------------------------------- */

/* Returns the fault of a trailer, or NULL if its counts match the file's size. */
static const char *fault_of_trailer(const cache_trailer *t, int64_t size, const char *key)
{
    if (size < (int64_t)sizeof *t)
        return "it is shorter than its trailer";
    if (memcmp(t->magic, CACHE_MAGIC, sizeof t->magic) != 0 || t->version != TX_TOKENS_VERSION)
        return "it is not a token cache";
    if (memcmp(t->key, key, sizeof t->key) != 0)
        return "it belongs to another text or tokenizer";
    uint64_t rest = (uint64_t)size - sizeof *t;
    if ((t->width != 2 && t->width != 4) || t->count > rest / t->width || t->texts > rest / sizeof(uint32_t) ||
        t->bad > INT64_MAX || t->first_bad > INT64_MAX ||
        padded((size_t)t->count * t->width) + t->texts * sizeof(uint32_t) != rest)
        return "its counts do not fit its size";
    return NULL;
}

/* Compares the file with the digest in its trailer. */
static tx_status check_digest(const tx_data_file *file, const cache_trailer *t, const tx_reporter *report)
{
    char text[TX_DIGEST_TEXT];
    cache_trailer blank = *t;
    memset(blank.digest, 0, sizeof blank.digest);
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_data_file_digest(file, 0, file->size - (int64_t)sizeof blank, digest, report);
    tx_digest_add(digest, &blank, sizeof blank);
    TX_TRY(tx_digest_finish(digest, text));
    if (memcmp(text, t->digest, sizeof t->digest) != 0)
        return tx_fail(TX_FORMAT, "its contents do not match its digest");
    return TX_OK;
}

static tx_status check_lengths(const tx_tokens *tokens)
{
    uint32_t lengths[TX_TOKENS_PIECE];
    int64_t sum = 0;
    for (int64_t at = 0, count; at < tokens->texts; at += count) {
        count = tokens->texts - at < TX_TOKENS_PIECE ? tokens->texts - at : TX_TOKENS_PIECE;
        TX_TRY(tx_tokens_lengths(tokens, at, count, lengths));
        for (int64_t i = 0; i < count; i++)
            sum += lengths[i];
    }
    return sum == tokens->count ? TX_OK : tx_fail(TX_FORMAT, "the lengths of its texts do not add up");
}

/* Checks the file and moves it into `tokens`. The message of a failure is the reason. The contents of a file that this
 * process wrote are `trusted`. */
static tx_status verify(tx_data_file *file, const char *key, bool trusted, const tx_reporter *report, tx_tokens *tokens)
{
    cache_trailer t = {.width = 0};
    const int64_t at = file->size - (int64_t)sizeof t;
    if (at >= 0)
        TX_TRY(tx_data_file_read(file, at, &t, sizeof t));
    const char *fault = fault_of_trailer(&t, file->size, key);
    if (fault)
        return tx_fail(TX_FORMAT, "%s", fault);
    if (!trusted)
        TX_TRY(check_digest(file, &t, report));
    tx_tokens result = {
        .file = *file,
        .width = (int32_t)t.width,
        .count = (int64_t)t.count,
        .of_texts = true,
        .texts = (int64_t)t.texts,
        .lengths_at = (int64_t)padded((size_t)t.count * t.width),
        .bad = (int64_t)t.bad,
        .first_bad = (int64_t)t.first_bad,
        .ids_end = t.ids_end,
    };
    if (!trusted)
        TX_TRY(check_lengths(&result));
    *file = (tx_data_file){0};
    *tokens = result;
    return TX_OK;
}

tx_status tx_tokens_file_read(const char *path, const char *key, bool trusted, const tx_reporter *report,
                              tx_tokens *tokens)
{
    tx_data_file file = {0};
    if (!tx_file_exists(path))
        return TX_NOT_FOUND;
    tx_status status = tx_data_file_open(path, &file);
    TX_THEN(status, verify(&file, key, trusted, report, tokens));
    tx_data_file_close(&file);
    if (!status || status == TX_MEMORY)
        return status;
    tx_reporter_print(report, "%.500s: the cached tokens cannot be used (%.1000s); the text is tokenised again", path,
                      tx_error());
    return TX_NOT_FOUND;
}

/* ---- Writing --------------------------------------------------------------------------------------- */

/* A file that is being written. */
typedef struct writer {
    tx_file *file;
    tx_digest *digest;
    const char *path;
    int descriptor;   /* of a file without a name that holds the lengths until all ids are written */
    size_t lengths;   /* bytes in it */
    uint32_t ids_end; /* see tx_tokens */
    tx_status status; /* of writing, as opposed to reading the text */
} writer;

/* The lengths go to a file that has no name, so that nothing remains of it if the process ends. */
static tx_status open_lengths(writer *w)
{
    char name[TX_PATH_ROOM];
    snprintf(name, sizeof name, "%s.lengths.%ld-0.tmp", w->path, (long)getpid());
    TX_TRY(tx_file_open(name, O_RDWR | O_CREAT | O_TRUNC, &w->descriptor, NULL));
    return unlink(name) == 0 ? TX_OK : tx_file_fail(name, "unlink");
}

static tx_status append(writer *w, const void *data, size_t size)
{
    tx_digest_add(w->digest, data, size);
    return tx_file_append(w->file, data, size);
}

static tx_status append_length(writer *w, const void *data, size_t size)
{
    const char *next = data;
    while (size > 0) {
        const ssize_t done = write(w->descriptor, next, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return tx_file_fail(w->path, "write");
        next += done;
        size -= (size_t)done;
        w->lengths += (size_t)done;
    }
    return TX_OK;
}

static uint32_t find_ids_end(const tx_tokens_piece *piece)
{
    uint32_t end = 0;
    for (size_t i = 0; i < piece->count; i++) {
        const uint32_t id = piece->width == 2 ? ((const uint16_t *)piece->ids)[i] : ((const uint32_t *)piece->ids)[i];
        end = id >= end ? id + 1 : end;
    }
    return end;
}

static tx_status take(void *context, tx_tokens_piece *piece)
{
    writer *w = context;
    const uint32_t ids_end = find_ids_end(piece);
    w->ids_end = ids_end > w->ids_end ? ids_end : w->ids_end;
    w->status = append(w, piece->ids, piece->count * (size_t)piece->width);
    TX_THEN(w->status, append_length(w, piece->lengths, piece->texts * sizeof *piece->lengths));
    return w->status;
}

static tx_status copy_lengths(writer *w)
{
    char piece[1 << 16];
    for (size_t at = 0, size; at < w->lengths; at += size) {
        size = w->lengths - at < sizeof piece ? w->lengths - at : sizeof piece;
        TX_TRY(tx_file_read_at(w->descriptor, w->path, (int64_t)at, piece, (int64_t)size));
        TX_TRY(append(w, piece, size));
    }
    return TX_OK;
}

/* Writes what follows the ids. */
static tx_status finish(writer *w, const char *key, const tx_tokens *tokens)
{
    static const char zeros[sizeof(uint32_t)] = {0};
    char text[TX_DIGEST_TEXT];
    const size_t ids = (size_t)tokens->count * (size_t)tokens->width;
    cache_trailer trailer = {
        .version = TX_TOKENS_VERSION,
        .width = (uint32_t)tokens->width,
        .count = (uint64_t)tokens->count,
        .texts = (uint64_t)tokens->texts,
        .bad = (uint64_t)tokens->bad,
        .first_bad = (uint64_t)tokens->first_bad,
        .ids_end = w->ids_end,
    };
    memcpy(trailer.magic, CACHE_MAGIC, sizeof trailer.magic);
    memcpy(trailer.key, key, sizeof trailer.key);
    TX_TRY(append(w, zeros, padded(ids) - ids));
    TX_TRY(copy_lengths(w));
    tx_digest_add(w->digest, &trailer, sizeof trailer);
    const tx_status status = tx_digest_finish(w->digest, text);
    w->digest = NULL;
    TX_TRY(status);
    memcpy(trailer.digest, text, sizeof trailer.digest);
    TX_TRY(tx_file_append(w->file, &trailer, sizeof trailer));
    tx_file *file = w->file;
    w->file = NULL;
    return tx_file_commit(file);
}

static tx_status open_writer(writer *w, const char *folder)
{
    TX_TRY(tx_folder_create(folder));
    TX_TRY(tx_file_create(w->path, &w->file));
    TX_TRY(open_lengths(w));
    return tx_digest_create(&w->digest);
}

static void close_writer(writer *w)
{
    if (w->descriptor >= 0)
        close(w->descriptor);
    tx_digest_free(w->digest);
    tx_file_discard(w->file);
}

tx_status tx_tokens_file_write(const tx_text_range *texts, const tx_dataset_options *o, const char *path,
                               const char *key, tx_status *written)
{
    writer w = {.path = path, .descriptor = -1};
    const tx_tokens_sink sink = {take, &w};
    tx_tokens counted = {0};
    w.status = open_writer(&w, o->cache);
    tx_status status = w.status;
    TX_THEN(status, tx_tokens_stream(texts, o, &sink, &counted));
    if (!status)
        status = w.status = finish(&w, key, &counted);
    *written = w.status;
    close_writer(&w);
    return status;
}

/* ---- Joining --------------------------------------------------------------------------------------- */

/* Copies bytes of a file by one of the functions that append. */
static tx_status copy(writer *w, const tx_data_file *from, int64_t at, int64_t end,
                      tx_status (*to)(writer *w, const void *data, size_t size))
{
    char piece[1 << 16];
    for (int64_t size; at < end; at += size) {
        size = end - at < (int64_t)sizeof piece ? end - at : (int64_t)sizeof piece;
        TX_TRY(tx_data_file_read(from, at, piece, (size_t)size));
        TX_TRY(to(w, piece, (size_t)size));
    }
    return TX_OK;
}

static tx_status append_file(writer *w, const tx_tokens *part, tx_tokens *all)
{
    TX_TRY(copy(w, &part->file, 0, part->count * part->width, append));
    TX_TRY(copy(w, &part->file, part->lengths_at, part->lengths_at + part->texts * (int64_t)sizeof *part->lengths,
                append_length));
    all->width = part->width;
    all->count += part->count;
    all->texts += part->texts;
    all->first_bad = all->bad ? all->first_bad : part->first_bad;
    all->bad += part->bad;
    w->ids_end = part->ids_end > w->ids_end ? (uint32_t)part->ids_end : w->ids_end;
    return TX_OK;
}

tx_status tx_tokens_file_join(const char *folder, const char *path, const char *key, int64_t count,
                              const tx_tokens_parts *parts)
{
    writer w = {.path = path, .descriptor = -1};
    tx_tokens all = {0};
    tx_status status = open_writer(&w, folder);
    for (int64_t i = 0; i < count && !status; i++) {
        tx_tokens part = {0};
        status = parts->open(parts->context, i, &part);
        TX_THEN(status, append_file(&w, &part, &all));
        tx_tokens_free(&part);
    }
    TX_THEN(status, finish(&w, key, &all));
    close_writer(&w);
    return status;
}
