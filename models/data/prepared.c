/* SPDX-License-Identifier: Apache-2.0
 * Files that are made once and kept, named by a digest. */
#include "models/data/prepared.h"

#include "api/base/number.h"
#include "models/files/data_file.h"
#include "models/files/hub.h"
#include "tx_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Changes with every rule by which rows are prepared. */
#define VERSION 2
/* Bytes that are written at a time. */
#define PIECE ((size_t)1 << 20)
/* Bytes of the description of a file. */
#define DESCRIPTION_MOST 4096

/* ---- Writing ------------------------------------------------------------------------------------------------- */

static tx_status flush(tx_prepared *w)
{
    tx_digest_add(w->digest, w->piece.data, w->piece.size);
    w->bytes += (int64_t)w->piece.size;
    TX_TRY(tx_file_append(w->file, w->piece.data, w->piece.size));
    tx_buffer_clear(&w->piece);
    return TX_OK;
}

tx_status tx_prepared_write(tx_prepared *w, const char *text, size_t size)
{
    tx_buffer_add(&w->piece, text, size);
    TX_TRY(w->piece.status);
    return w->piece.size < PIECE ? TX_OK : flush(w);
}

/* ---- Names and digests ----------------------------------------------------------------------------------------- */

/* The digest of all that decides the prepared file. */
static tx_status make_key(const tx_data_source *sources, size_t count, const tx_prepare_options *o,
                          char key[TX_DIGEST_TEXT])
{
    tx_digest *digest;
    char rules[1024];
    TX_TRY(tx_digest_create(&digest));
    const int size =
        snprintf(rules, sizeof rules, "version %d\nencoding %.64s\ntext %.300s\ndelimiter %.300s\nlabel %.300s\n",
                 VERSION, o->encoding ? o->encoding : "UTF-8", o->text_columns ? o->text_columns : "",
                 o->delimiter ? o->delimiter : " ", o->label_column ? o->label_column : "");
    tx_digest_add(digest, rules, (size_t)size);
    for (size_t i = 0; i < count; i++) {
        const int more = tx_format(rules, sizeof rules, "dataset %.17g, %d, %d, %" PRIu64 "\n", sources[i].probability,
                                   o->interleave, o->all_exhausted, o->interleave ? o->seed : 0);
        tx_digest_add(digest, rules, (size_t)more);
        for (size_t f = 0; f < sources[i].files.count; f++) {
            tx_data_file file;
            tx_status status = tx_data_file_open(sources[i].files.name[f], &file);
            if (!status) {
                tx_digest_add(digest, &file.size, sizeof file.size);
                status = tx_data_file_digest(&file, 0, file.size, digest, &o->report);
                tx_data_file_close(&file);
            }
            if (status) {
                tx_digest_free(digest);
                return status;
            }
        }
    }
    return tx_digest_finish(digest, key);
}

/* Whether the file at `path` has this key and is intact, by its description. */
static bool is_whole(const char *path, const char *description, const char *key, const tx_reporter *report)
{
    tx_json *json = NULL;
    tx_data_file file = {0};
    tx_digest *digest = NULL;
    const char *wanted = "", *made_of = "";
    char found[TX_DIGEST_TEXT];
    tx_status status = tx_json_read(description, DESCRIPTION_MOST, &json);
    TX_THEN(status, tx_json_get_string(json, "sha256", &wanted));
    TX_THEN(status, tx_json_get_string(json, "key", &made_of));
    TX_THEN(status, tx_data_file_open(path, &file));
    TX_THEN(status, tx_digest_create(&digest));
    if (!status) {
        tx_data_file_digest(&file, 0, file.size, digest, report);
        status = tx_digest_finish(digest, found);
    }
    const bool whole = !status && strcmp(wanted, found) == 0 && strcmp(made_of, key) == 0;
    tx_data_file_close(&file);
    tx_json_free(json);
    return whole;
}

/* Commits the file, then its description, without which it is not used. */
static tx_status finish(tx_prepared *w, const char *description)
{
    char digest[TX_DIGEST_TEXT];
    tx_status status = flush(w);
    const tx_status digested = tx_digest_finish(w->digest, digest);
    w->digest = NULL;
    TX_THEN(status, digested);
    tx_json *json = status ? NULL
                           : tx_json_pack("{s:I, s:I, s:s, s:s}", "rows", w->rows, "bytes", w->bytes, "sha256", digest,
                                          "key", w->key);
    TX_THEN(status, json ? TX_OK : TX_MEMORY);
    if (!status) {
        status = tx_file_commit(w->file);
        w->file = NULL;
    }
    TX_THEN(status, tx_json_write(description, json, TX_JSON_LINE));
    tx_json_free(json);
    return status;
}

static tx_status make_file(const tx_data_source *sources, size_t count, tx_prepared_contents *write,
                           const tx_prepare_options *options, const char *key, const char *path,
                           const char *description)
{
    tx_prepared w = {.options = options, .key = key};
    TX_TRY(tx_folder_create(options->folder));
    TX_TRY(tx_file_create(path, &w.file));
    tx_status status = tx_digest_create(&w.digest);
    TX_THEN(status, write(&w, sources, count));
    TX_THEN(status, finish(&w, description));
    tx_digest_free(w.digest);
    tx_file_discard(w.file);
    free(w.piece.data);
    return status;
}

/* The path of a prepared file and that of its description; the caller frees both. */
static tx_status name_files(const char *folder, const char *first, const char *key, const char *extension, char **file,
                            char **description)
{
    const char *slash = strrchr(first, '/'), *base = slash ? slash + 1 : first;
    char name[128];
    snprintf(name, sizeof name, "%.60s", base);
    int stem = (int)strcspn(name, ".");
    stem += snprintf(name + stem, sizeof name - (size_t)stem, "-%.16s.", key);
    snprintf(name + stem, sizeof name - (size_t)stem, "%.32s", extension);
    *file = tx_path_join(folder, name);
    snprintf(name + stem, sizeof name - (size_t)stem, "prepared.json");
    *description = tx_path_join(folder, name);
    return *description && *file ? TX_OK : TX_MEMORY;
}

/* Looks for the file in a folder: `*path` is NULL if it is not there. */
static tx_status look_in(const char *folder, const char *first, const char *key, const char *extension,
                         const tx_reporter *report, char **path)
{
    char *file = NULL, *description = NULL;
    const tx_status status = name_files(folder, first, key, extension, &file, &description);
    const bool found = !status && is_whole(file, description, key, report);
    free(description);
    *path = found ? file : NULL;
    if (!found)
        free(file);
    return status;
}

tx_status tx_prepared_find(const tx_data_source *sources, size_t count, tx_prepared_contents *write,
                           const tx_prepare_options *options, const char *extension, char **path)
{
    const char *first = sources[0].files.name[0], *folder = options->folder;
    char key[TX_DIGEST_TEXT], packed[TX_PATH_ROOM], *description = NULL;
    if (!folder || !*folder)
        return tx_fail(TX_INVALID, "%s: no folder to keep its rows in: set TX_HOME, or give an output folder", first);
    TX_TRY(make_key(sources, count, options, key));
    TX_TRY(look_in(folder, first, key, extension, &options->report, path));
    if (!*path && !tx_hub_cache(packed))
        TX_TRY(look_in(packed, first, key, extension, &options->report, path));
    if (*path)
        return TX_OK;
    tx_status status = name_files(folder, first, key, extension, path, &description);
    TX_THEN(status, make_file(sources, count, write, options, key, *path, description));
    free(description);
    if (status) {
        free(*path);
        *path = NULL;
    }
    return status;
}
