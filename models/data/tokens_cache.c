/* SPDX-License-Identifier: Apache-2.0
 * Caches tokenised texts in a folder. There is one file for each text and tokenizer, named by the digest of both. Its
 * own digest is verified unless this process wrote it. A text may also be tokenised in parts, each a file of the same
 * layout, which are put together at last. */
#include "api/base/arithmetic.h"
#include "api/base/file.h"
#include "models/data/lines.h"
#include "models/data/tokens_file.h"
#include "models/files/hub.h"
#include "models/names.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Size of the name of a part. */
#define PART_ROOM (TX_PATH_ROOM + 64)

/* The key is the digest of all that affects the tokens: the text, its form, the tokenizer, the rules' version. */
static tx_status make_key(const tx_text_range *texts, const tx_dataset_options *options, char key[TX_DIGEST_TEXT])
{
    tx_digest *digest;
    char rules[64 + TX_DIGEST_TEXT];
    int length = snprintf(rules, sizeof rules, "version %d, form %d, tokenizer %s\n", TX_TOKENS_VERSION,
                          (int)texts->form, tx_tokenizer_digest(options->tokenizer));
    TX_TRY(tx_digest_create(&digest));
    tx_digest_add(digest, rules, (size_t)length);
    tx_data_file_digest(texts->file, 0, texts->file->size, digest, &options->report);
    return tx_digest_finish(digest, key);
}

/* Locks a file. Returns -1 without a lock, in a folder that cannot be written or on a file system that has no locks,
 * and -2 if another process has it and `wait` is false. */
static int lock(const char *folder, const char *path, bool wait)
{
    int descriptor = -1;
    if (tx_folder_create(folder) || tx_file_open(path, O_RDWR | O_CREAT, &descriptor, NULL))
        return -1;
    while (flock(descriptor, wait ? LOCK_EX : LOCK_EX | LOCK_NB) != 0)
        if (errno == EWOULDBLOCK) {
            close(descriptor);
            return -2;
        } else if (errno != EINTR) {
            break;
        }
    return descriptor;
}

static void unlock(int descriptor)
{
    if (descriptor >= 0)
        close(descriptor);
}

/* ---- Parts ----------------------------------------------------------------------------------------- */

/* A file of tokens that is made of parts. */
typedef struct parts {
    const tx_text_range *texts;
    const tx_dataset_options *options;
    const char *path, *key;
    int64_t count;
} parts;

static void name_part(const parts *p, int64_t number, const char *extension, char name[PART_ROOM])
{
    snprintf(name, PART_ROOM, "%s.part-%" PRId64 "-%" PRId64 "%s", p->path, p->options->part, number, extension);
}

static tx_status make_part(const parts *p, int64_t number, const char *name)
{
    const tx_text_range *whole = p->texts;
    const int64_t size = p->options->part;
    tx_text_range range = *whole;
    tx_status written;
    if (number > 0)
        TX_TRY(tx_lines_after(whole->file, number * size, &range.begin));
    if (number + 1 < p->count)
        TX_TRY(tx_lines_after(whole->file, (number + 1) * size, &range.end));
    return tx_tokens_file_write(&range, p->options, name, p->key, &written);
}

/* Makes a part, unless it is there. Without `wait` leaves it to another process that makes it now. */
static tx_status find_part(const parts *p, int64_t number, bool wait)
{
    char name[PART_ROOM], locking[PART_ROOM];
    tx_status status = TX_OK;
    name_part(p, number, "", name);
    name_part(p, number, ".lock", locking);
    const int locked = lock(p->options->cache, locking, wait);
    if (locked != -2 && !tx_file_exists(name) && !tx_file_exists(p->path))
        status = make_part(p, number, name);
    unlock(locked);
    return status;
}

static tx_status find_parts(const parts *p)
{
    for (int64_t i = 0; i < 2 * p->count; i++)
        TX_TRY(find_part(p, i % p->count, i >= p->count));
    return TX_OK;
}

/* Opens a part. Makes it again if it is damaged. */
static tx_status open_part(void *context, int64_t number, tx_tokens *part)
{
    const parts *p = context;
    char name[PART_ROOM];
    name_part(p, number, "", name);
    const tx_status status = tx_tokens_file_read(name, p->key, false, &p->options->report, part);
    if (status != TX_NOT_FOUND)
        return status;
    TX_TRY(make_part(p, number, name));
    return tx_tokens_file_read(name, p->key, true, &p->options->report, part);
}

/* Removes the parts, their locks, and the files that processes left when they were killed. */
static void remove_parts(const parts *p)
{
    const char *folder = p->options->cache;
    char prefix[PART_ROOM];
    tx_names names = {0};
    snprintf(prefix, sizeof prefix, "%s.part-", strrchr(p->path, '/') + 1);
    if (tx_folder_list(folder, &names))
        return;
    for (size_t i = 0; i < names.count; i++)
        if (tx_begins_with(names.name[i], prefix))
            unlink(TX_PATH(folder, names.name[i]));
    tx_names_free(&names);
}

/* Puts the parts together and removes them. */
static tx_status join_parts(parts *p)
{
    TX_TRY(tx_tokens_file_join(p->options->cache, p->path, p->key, p->count, &(tx_tokens_parts){open_part, p}));
    remove_parts(p);
    return TX_OK;
}

/* ---- All ------------------------------------------------------------------------------------------- */

/* Tokenises the text and reads the file that was made. */
static tx_status make(parts *p, tx_tokens *tokens)
{
    const tx_dataset_options *o = p->options;
    tx_status written = TX_OK,
              status = o->part ? join_parts(p) : tx_tokens_file_write(p->texts, o, p->path, p->key, &written);
    TX_THEN(status, tx_tokens_file_read(p->path, p->key, true, &o->report, tokens));
    if (written || (status == TX_NOT_FOUND && !o->part)) {
        tx_reporter_print(&o->report,
                          "the tokens cannot be cached, so they are in memory, and the text is tokenised again next "
                          "time: %s",
                          tx_error());
        status = tx_tokens_of_text(p->texts, o, tokens);
    }
    return status;
}

/* Reads the tokens from the folder, or from that of `txtok pack`. */
static tx_status find(const parts *p, const char *name, tx_tokens *tokens)
{
    char folder[TX_PATH_ROOM], path[TX_PATH_ROOM];
    const tx_reporter *report = &p->options->report;
    const tx_status status = tx_tokens_file_read(p->path, p->key, false, report, tokens);
    if (status != TX_NOT_FOUND || p->options->part || tx_hub_cache(folder))
        return status;
    tx_path_in(path, folder, name);
    return tx_tokens_file_read(path, p->key, false, report, tokens);
}

tx_status tx_tokens_cached(const tx_text_range *texts, const tx_dataset_options *options, tx_tokens *tokens)
{
    char key[TX_DIGEST_TEXT], name[TX_DIGEST_TEXT + 16], kept[TX_PATH_ROOM], locking[TX_PATH_ROOM];
    parts p = {.texts = texts, .options = options, .path = kept, .key = key};
    TX_TRY(make_key(texts, options, key));
    snprintf(name, sizeof name, "tokens-%s.cache", key);
    tx_path_in(kept, options->cache, name);
    tx_path_in(locking, options->cache, ".lock");
    if (options->part) {
        p.count = tx_ceil_div(texts->end, options->part);
        TX_TRY(find_parts(&p));
    }
    const int locked = lock(options->cache, locking, true); /* the ranks tokenise a text once */
    tx_tokens result = {0};
    tx_status status = find(&p, name, &result);
    /* If there are more malformed lines than allowed now, read the text again to report the first one. */
    if (!status && result.bad > options->skip_bad) {
        tx_tokens_free(&result);
        status = TX_NOT_FOUND;
    }
    if (status == TX_NOT_FOUND)
        status = make(&p, &result);
    unlock(locked);
    if (!status)
        *tokens = result;
    return status;
}
