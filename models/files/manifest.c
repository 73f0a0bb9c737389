/* SPDX-License-Identifier: Apache-2.0
 * Writes and checks the manifest of a checkpoint:
 * {"format": 1, "step": N, "files": {NAME: {"size": BYTES, "sha256": DIGITS}}}.
 * NAME is "name" or "folder/name": models that embed texts have a folder for each module. */
#define _GNU_SOURCE /* O_DIRECT */
#include "models/files/checkpoint_files.h"

#include "api/base/file.h"
#include "models/files/data_file.h"
#include "tx_json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FORMAT 1
/* Bytes of a reading around the cache, and the multiple that it needs of places in memory and in the file. */
#define PIECE ((int64_t)1 << 20)
#define ALIGNMENT 4096
/* Longest name that a file can have. */
#define NAME_LIMIT 255

/* ---- One file ------------------------------------------------------------------------------------ */

/* Opens a regular file, not a link. */
static tx_status open_file(char *path, tx_data_file *file)
{
    *file = (tx_data_file){.path = path};
    return tx_file_open(path, O_RDONLY | O_NOFOLLOW, &file->descriptor, &file->size);
}

static tx_status digest_file(const tx_data_file *file, const tx_reporter *report, char text[TX_DIGEST_TEXT])
{
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_data_file_digest(file, 0, file->size, digest, report);
    return tx_digest_finish(digest, text);
}

static tx_status fail_other(const char *path)
{
    return tx_fail(TX_IO, "%s: differs from the data written: the disk is faulty", path);
}

static tx_status flush(const tx_data_file *file)
{
    return fsync(file->descriptor) == 0 ? TX_OK : tx_file_fail(file->path, "flush to disk");
}

/* Drops the pages from the cache, if the system can, so that later reads come from the disk. */
static void drop(const tx_data_file *file)
{
    (void)posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_DONTNEED);
}

/* For file systems that read only through the cache. */
static tx_status digest_twice(const tx_data_file *file, char digest[TX_DIGEST_TEXT])
{
    char written[TX_DIGEST_TEXT];
    TX_TRY(digest_file(file, NULL, written));
    TX_TRY(flush(file));
    drop(file);
    TX_TRY(digest_file(file, NULL, digest));
    return strcmp(written, digest) == 0 ? TX_OK : fail_other(file->path);
}

/* Compares the data on disk with those `written`, or if NULL with those in the cache, piece by piece, and adds them to
 * the digest. `*whole` is false if the file system did not read a whole piece past the cache. */
static tx_status compare(const tx_data_file *file, const char *written, int disk, char *cached, char *read,
                         tx_digest *digest, bool *whole)
{
    *whole = true;
    for (int64_t at = 0, bytes; at < file->size; at += bytes) {
        bytes = file->size - at < PIECE ? file->size - at : PIECE;
        if (!written)
            TX_TRY(tx_data_file_read(file, at, cached, (size_t)bytes));
        const ssize_t got = pread(disk, read, (size_t)PIECE, (off_t)at);
        *whole = got == bytes || (got < 0 && errno == EIO);
        if (!*whole)
            return TX_OK;
        if (got < 0)
            return tx_file_fail(file->path, "read from disk");
        if (memcmp(written ? written + at : cached, read, (size_t)bytes) != 0)
            return fail_other(file->path);
        TX_TRY(tx_digest_add(digest, read, (size_t)bytes));
    }
    return TX_OK;
}

/* Flushes a file and computes the digest of its data on disk. They must be those that were `written`, or if NULL those
 * in the cache. */
static tx_status flush_and_digest(const tx_data_file *file, const char *written, char digest[TX_DIGEST_TEXT])
{
    tx_digest *made = NULL;
    const int disk = open(file->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_DIRECT);
    if (disk < 0)
        return digest_twice(file, digest);
    char *buffers = aligned_alloc(ALIGNMENT, 2 * (size_t)PIECE);
    bool whole = true;
    tx_status status = buffers ? flush(file) : tx_fail(TX_MEMORY, "%s: no memory to read it", file->path);
    TX_THEN(status, tx_digest_create(&made));
    if (!status) {
        tx_digest_fail(made, compare(file, written, disk, buffers, buffers + PIECE, made, &whole));
        status = tx_digest_finish(made, digest);
    }
    free(buffers);
    close(disk);
    if (!status && !whole)
        return digest_twice(file, digest);
    drop(file);
    return status;
}

/* ---- Writing ------------------------------------------------------------------------------------- */

/* Adds "name": {"size": ..., "sha256": ...} for folder/name. */
static tx_status describe(const char *folder, const char *name, const tx_stage *stage, tx_json *files)
{
    char digest[TX_DIGEST_TEXT], *path = TX_PATH(folder, name);
    tx_data_file file;
    if (strcmp(name, TX_CHECKPOINT_MANIFEST) == 0)
        return tx_fail(TX_INVALID, "%s: the name %s is reserved", folder, name);
    TX_TRY(open_file(path, &file));
    tx_status status = flush_and_digest(&file, stage ? tx_stage_data(stage, path) : NULL, digest);
    if (close(file.descriptor) != 0 && !status)
        status = tx_file_fail(path, "close");
    TX_TRY(status);
    const char *slash = strchr(name, '/');
    if (slash) { /* the manifest flushes the names in `folder` itself */
        char inner[NAME_LIMIT + 1];
        snprintf(inner, sizeof inner, "%.*s", (int)(slash - name), name);
        TX_TRY(tx_folder_flush(TX_PATH(folder, inner)));
    }
    return tx_fail_in(tx_json_set(files, name, tx_json_pack("{s:I, s:s}", "size", file.size, "sha256", digest)), "%s",
                      folder);
}

static tx_status describe_all(const char *folder, const tx_stage *stage, tx_json *files)
{
    tx_names names;
    TX_TRY(tx_folder_files(folder, &names));
    tx_status status = names.count ? TX_OK : tx_fail(TX_INVALID, "%s: a checkpoint must have files", folder);
    for (size_t i = 0; i < names.count && !status; i++)
        status = describe(folder, names.name[i], stage, files);
    tx_names_free(&names);
    return status;
}

static tx_status write_and_read(const char *path, const tx_json *manifest)
{
    char *text = tx_json_text(manifest, TX_JSON_PRETTY), *read = NULL;
    size_t size = 0;
    tx_status status = text ? tx_json_write(path, manifest, TX_JSON_PRETTY) : TX_MEMORY;
    TX_THEN(status, tx_file_read(path, TX_CHECKPOINT_MANIFEST_LIMIT, &read, &size));
    if (!status && (size != strlen(text) + 1 || memcmp(read, text, size - 1) != 0))
        status = fail_other(path);
    free(read);
    free(text);
    return status;
}

tx_status tx_manifest_write(const char *folder, int64_t step, const tx_stage *stage)
{
    tx_json *manifest = tx_json_pack("{s:i, s:I, s:{}}", "format", FORMAT, "step", step, "files");
    tx_status status = manifest ? describe_all(folder, stage, tx_json_find(manifest, "files")) : TX_MEMORY;
    /* It is written last, because this also flushes the folder with the names of all files. */
    TX_THEN(status, write_and_read(TX_PATH(folder, TX_CHECKPOINT_MANIFEST), manifest));
    tx_json_free(manifest);
    return status;
}

/* ---- Checking ------------------------------------------------------------------------------------ */

/* Returns true for the first `length` characters of `name` if they can be the name of a file or a folder. */
static bool is_plain_name(const char *name, size_t length)
{
    const bool dots = length <= 2 && strspn(name, ".") >= length;
    return length > 0 && length <= NAME_LIMIT && !dots;
}

/* Returns true for "name" and "folder/name", which stay within the checkpoint. */
static bool is_inside(const char *path)
{
    const char *slash = strchr(path, '/');
    if (!slash)
        return is_plain_name(path, strlen(path)) && strcmp(path, TX_CHECKPOINT_MANIFEST) != 0;
    return is_plain_name(path, (size_t)(slash - path)) && !strchr(slash + 1, '/') &&
           is_plain_name(slash + 1, strlen(slash + 1));
}

/* Compares a file with its entry in the manifest. */
static tx_status check_file(char *path, int64_t size, const char *digest, const tx_reporter *report)
{
    char found[TX_DIGEST_TEXT];
    tx_data_file file;
    tx_status status = open_file(path, &file);
    if (status == TX_NOT_FOUND)
        return tx_fail(TX_FORMAT, "%s: missing", path);
    if (status)
        return status;
    if (file.size != size)
        status =
            tx_fail(TX_FORMAT, "%s: has %" PRId64 " bytes, had %" PRId64 " when it was saved", path, file.size, size);
    else
        status = digest_file(&file, report, found);
    if (!status && strcmp(found, digest) != 0)
        status =
            tx_fail(TX_FORMAT, "%s: its contents differ from those that were saved (SHA-256 %.12s..., was %.12s...)",
                    path, found, digest);
    close(file.descriptor);
    return status;
}

static tx_status check_entry(const char *folder, const char *name, const tx_json *entry, const tx_reporter *report)
{
    int64_t size = 0;
    const char *digest = NULL;
    if (!is_inside(name))
        return tx_fail(TX_FORMAT, "%s/%s: names \"%.80s\", which is not a file of this folder", folder,
                       TX_CHECKPOINT_MANIFEST, name);
    tx_status status = tx_json_get_int(entry, "size", 0, INT64_MAX, &size);
    TX_THEN(status, tx_json_get_string(entry, "sha256", &digest));
    if (!status && strlen(digest) != TX_DIGEST_TEXT - 1)
        status = tx_fail(TX_FORMAT, "sha256: does not have %d digits", TX_DIGEST_TEXT - 1);
    if (status)
        return tx_fail_in(status == TX_NOT_FOUND ? TX_FORMAT : status, "%s/%s: file %.80s", folder,
                          TX_CHECKPOINT_MANIFEST, name);
    return check_file(TX_PATH(folder, name), size, digest, report);
}

static tx_status fail_unnamed(const char *folder, const char *name)
{
    return tx_fail(TX_FORMAT, "%s/%s: was not saved with this checkpoint (%s does not name it)", folder, name,
                   TX_CHECKPOINT_MANIFEST);
}

/* The folder must not contain files that the manifest does not name: they could change how the checkpoint is loaded. */
static tx_status check_names(const char *folder, const tx_json *files)
{
    tx_names names;
    TX_TRY(tx_folder_files(folder, &names));
    tx_status status = TX_OK;
    for (size_t i = 0; i < names.count && !status; i++)
        if (strcmp(names.name[i], TX_CHECKPOINT_MANIFEST) != 0 && !tx_json_has(files, names.name[i]))
            status = fail_unnamed(folder, names.name[i]);
    tx_names_free(&names);
    return status;
}

/* Checks one file. If the manifest does not name it, it must be missing. */
static tx_status check_only(const char *folder, const char *name, const tx_json *files)
{
    tx_json *entry = NULL;
    if (!tx_json_has(files, name))
        return tx_file_exists(TX_PATH(folder, name)) ? fail_unnamed(folder, name) : TX_OK;
    TX_TRY(tx_json_get(files, name, TX_JSON_OBJECT, &entry));
    return check_entry(folder, name, entry, NULL);
}

static tx_status check_manifest(const char *folder, int64_t step, const tx_json *manifest, const char *only,
                                const tx_reporter *report)
{
    int64_t format = 0, named = -1;
    tx_json *files = NULL;
    tx_status status = tx_json_get_int(manifest, "format", INT64_MIN, INT64_MAX, &format);
    if (!status && format != FORMAT)
        status = tx_fail(TX_UNSUPPORTED, "format %" PRId64 ", but this version of TX supports only format %d", format,
                         FORMAT);
    TX_THEN(status, tx_json_get_int(manifest, "step", 0, INT64_MAX, &named));
    if (!status && step >= 0 && named != step)
        status = tx_fail(TX_FORMAT, "belongs to step %" PRId64, named);
    TX_THEN(status, tx_json_get(manifest, "files", TX_JSON_OBJECT, &files));
    if (!status && tx_json_size(files) == 0)
        status = tx_fail(TX_FORMAT, "names no files");
    if (status)
        return tx_fail_in(status == TX_NOT_FOUND ? TX_FORMAT : status, "%s/%s", folder, TX_CHECKPOINT_MANIFEST);
    if (only)
        return check_only(folder, only, files);
    status = check_names(folder, files);
    for (void *i = tx_json_first(files); i && !status; i = tx_json_next(files, i))
        status = check_entry(folder, tx_json_key(i), tx_json_value(i), report);
    return status;
}

static tx_status check_once(const char *folder, int64_t step, const char *only, const tx_reporter *report)
{
    tx_json *manifest = NULL;
    tx_data_file file;
    char *path = TX_PATH(folder, TX_CHECKPOINT_MANIFEST);
    tx_status status = open_file(path, &file);
    if (!status)
        close(file.descriptor);
    TX_THEN(status, tx_json_read(path, TX_CHECKPOINT_MANIFEST_LIMIT, &manifest));
    if (status == TX_NOT_FOUND)
        return tx_fail(TX_FORMAT, "%s: not a complete checkpoint: it has no %s", folder, TX_CHECKPOINT_MANIFEST);
    TX_THEN(status, check_manifest(folder, step, manifest, only, report));
    tx_json_free(manifest);
    return status;
}

tx_status tx_manifest_check(const char *folder, int64_t step, const char *only, const tx_reporter *report)
{
    const tx_status status = check_once(folder, step, only, report);
    /* Check again: real damage is found twice. Otherwise a read failed, or jansson ran out of memory, after which it
     * continues with half of a string. */
    return status == TX_OK || status == TX_MEMORY ? status : check_once(folder, step, only, report);
}

tx_status tx_checkpoint_saved_step(const char *folder, int64_t *step)
{
    tx_json *manifest = NULL;
    const char *path = TX_PATH(folder, TX_CHECKPOINT_MANIFEST);
    tx_status status = tx_json_read(path, TX_CHECKPOINT_MANIFEST_LIMIT, &manifest);
    if (!status && tx_json_get_int(manifest, "step", 0, INT64_MAX, step))
        status = tx_fail_in(TX_FORMAT, "%s", path);
    tx_json_free(manifest);
    return status;
}
