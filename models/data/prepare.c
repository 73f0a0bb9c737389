/* SPDX-License-Identifier: Apache-2.0
 * Several data files as one. */
#include "models/data/prepare.h"

#include "api/base/file.h"
#include "models/data/encoding.h"
#include "models/data/rows.h"
#include "models/files/data_file.h"
#include "models/files/folder.h"
#include "models/names.h"
#include "models/text/buffer.h"
#include "models/text/hash.h"
#include "tx_file.h"
#include "tx_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Changes with every rule by which rows are prepared. */
#define VERSION 2
/* Bytes that are written at a time. */
#define PIECE ((size_t)1 << 20)
/* Bytes of the description of a prepared file. */
#define DESCRIPTION_MOST 4096

/* A file that is being made. */
typedef struct writer {
    const tx_prepare_options *options;
    tx_file *file;
    tx_digest *digest;
    tx_buffer piece;
    int64_t rows, bytes;
} writer;

static tx_status flush(writer *w)
{
    tx_digest_add(w->digest, w->piece.data, w->piece.size);
    w->bytes += (int64_t)w->piece.size;
    TX_TRY(tx_file_append(w->file, w->piece.data, w->piece.size));
    tx_buffer_clear(&w->piece);
    return TX_OK;
}

static tx_status write_bytes(writer *w, const char *text, size_t size)
{
    tx_buffer_add(&w->piece, text, size);
    TX_TRY(w->piece.status);
    return w->piece.size < PIECE ? TX_OK : flush(w);
}

/* ---- Columns ------------------------------------------------------------------------------------------------- */

/* Sets `to`.text to the texts of the named columns of a row, joined. A single column may also be a list of words. */
static tx_status set_text(tx_json *to, const tx_json *row, const char *columns, const char *delimiter)
{
    tx_buffer text = {0};
    char names[TX_PATH_ROOM], *rest = NULL;
    tx_json *words = tx_json_find(row, columns);
    if (tx_json_type_of(words) == TX_JSON_ARRAY)
        return tx_json_set(to, "text", tx_json_copy(words));
    snprintf(names, sizeof names, "%s", columns);
    tx_status status = TX_OK;
    for (char *name = strtok_r(names, ",", &rest); name && !status; name = strtok_r(NULL, ",", &rest)) {
        const char *value = NULL;
        size_t size = 0;
        status = tx_json_get_text(row, name, &value, &size);
        if (name != names)
            tx_buffer_add(&text, delimiter, strlen(delimiter));
        tx_buffer_add(&text, value, size);
    }
    TX_THEN(status, text.status);
    TX_THEN(status, tx_json_set_text(to, "text", text.data ? text.data : "", text.size));
    free(text.data);
    return status;
}

/* TX_NOT_FOUND with the keys that the row has. */
static tx_status fail_column(const tx_json *row, const char *name)
{
    char keys[512];
    tx_list_keys(row, keys, sizeof keys);
    return tx_fail(TX_FORMAT, "no column %s; there are %s", name, keys);
}

static tx_status map_row(const tx_prepare_options *o, const tx_json *row, tx_json *to)
{
    if (o->text_columns) {
        const tx_status status = set_text(to, row, o->text_columns, o->delimiter ? o->delimiter : " ");
        if (status == TX_NOT_FOUND)
            return fail_column(row, o->text_columns);
        TX_TRY(status);
    }
    for (void *i = tx_json_first(row); i && !o->text_columns; i = tx_json_next(row, i))
        TX_TRY(tx_json_set(to, tx_json_key(i), tx_json_copy(tx_json_value(i))));
    const char *label = o->label_column ? o->label_column : "label";
    tx_json *value = tx_json_find(row, label);
    if (!value)
        return o->label_column ? fail_column(row, label) : TX_OK;
    return tx_json_set(to, "label", tx_json_copy(value));
}

static tx_status write_mapped(writer *w, const char *text, size_t size)
{
    tx_json *row = NULL, *to = tx_json_object();
    tx_status status = tx_json_parse_line(text, size, "row", &row);
    TX_THEN(status, map_row(w->options, row, to));
    char *line = status ? NULL : tx_json_text(to, TX_JSON_LINE);
    if (!status && !line)
        status = TX_MEMORY;
    TX_THEN(status, write_bytes(w, line, strlen(line)));
    tx_json_free(row);
    tx_json_free(to);
    free(line);
    return status;
}

static tx_status write_row(writer *w, const char *text, size_t size)
{
    const bool mapped = w->options->text_columns || w->options->label_column;
    TX_TRY(mapped ? write_mapped(w, text, size) : write_bytes(w, text, size));
    w->rows++;
    return write_bytes(w, "\n", 1);
}

/* ---- Sources -------------------------------------------------------------------------------------------------- */

/* The rows of a dataset, file after file. */
typedef struct reading {
    const tx_names *files;
    size_t next; /* file to open */
    tx_rows *rows;
    int64_t row; /* of the file that is open */
    bool ended;  /* once at least */
} reading;

/* 0 bytes at the end of the dataset, which then begins again. */
static tx_status next_row(reading *r, const char **row, size_t *size)
{
    for (*size = 0; *size == 0;) {
        if (!r->rows && r->next == r->files->count) {
            r->next = 0;
            r->ended = true;
            return TX_OK;
        }
        if (!r->rows) {
            TX_TRY(tx_rows_open(r->files->name[r->next++], &r->rows));
            r->row = 0;
        }
        TX_TRY(tx_rows_next(r->rows, row, size));
        r->row++;
        if (*size == 0) {
            tx_rows_close(r->rows);
            r->rows = NULL;
        }
    }
    return TX_OK;
}

static tx_status copy_row(writer *w, const reading *r, const char *row, size_t size)
{
    return tx_fail_in(write_row(w, row, size), "%s: row %" PRId64, r->files->name[r->next - 1], r->row);
}

static tx_status write_in_turn(writer *w, reading *readings, size_t count)
{
    const char *row = NULL;
    size_t size;
    for (size_t i = 0; i < count; i++)
        do {
            TX_TRY(next_row(&readings[i], &row, &size));
            if (size)
                TX_TRY(copy_row(w, &readings[i], row, size));
        } while (size);
    return TX_OK;
}

/* The dataset of draw number `draw`: a function of the seed. */
static size_t draw_source(const tx_data_source *sources, size_t count, uint64_t seed, uint64_t draw)
{
    double at = (double)(tx_hash_draw(tx_hash_draw(seed) ^ draw) >> 11) * 0x1p-53, sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += sources[i].probability;
    at *= sum;
    for (size_t i = 0; i + 1 < count; i++) {
        at -= sources[i].probability;
        if (at < 0)
            return i;
    }
    return count - 1;
}

static bool all_ended(const reading *readings, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!readings[i].ended)
            return false;
    return true;
}

/* Writes rows of datasets that are drawn one by one. A dataset ends when a row of it is drawn that does not exist. */
static tx_status write_interleaved(writer *w, const tx_data_source *sources, reading *readings, size_t count)
{
    for (uint64_t draw = 0;; draw++) {
        reading *r = &readings[draw_source(sources, count, w->options->seed, draw)];
        const char *row = NULL;
        size_t size = 0;
        TX_TRY(next_row(r, &row, &size));
        if (size == 0) {
            if (!w->options->all_exhausted || all_ended(readings, count))
                return TX_OK;
            TX_TRY(next_row(r, &row, &size));
            if (size == 0)
                return tx_fail(TX_FORMAT, "%s: no rows", r->files->name[0]);
        }
        TX_TRY(copy_row(w, r, row, size));
    }
}

/* Text files one after the other; each but the last gets the newline that its last line lacks. */
static tx_status write_text(writer *w, const tx_data_source *sources, size_t count)
{
    char last = '\n';
    for (size_t i = 0; i < count; i++)
        for (size_t f = 0; f < sources[i].files.count; f++) {
            tx_data_file file = {0};
            char *piece = malloc(PIECE);
            tx_status status = piece ? tx_data_file_open(sources[i].files.name[f], &file)
                                     : tx_fail(TX_MEMORY, "%s: no memory to read it", sources[i].files.name[f]);
            if (!status && last != '\n')
                status = write_bytes(w, "\n", 1);
            for (int64_t at = 0; at < file.size && !status; at += (int64_t)PIECE) {
                const size_t size = file.size - at < (int64_t)PIECE ? (size_t)(file.size - at) : PIECE;
                status = tx_data_file_read(&file, at, piece, size);
                TX_THEN(status, write_bytes(w, piece, size));
                last = piece[size - 1];
            }
            tx_data_file_close(&file);
            free(piece);
            TX_TRY(status);
        }
    return TX_OK;
}

/* Writes one file in UTF-8. */
static tx_status write_converted(writer *w, const tx_data_source *sources, size_t count)
{
    tx_data_file file = {0};
    tx_encoding *encoding = NULL;
    (void)count;
    TX_TRY(tx_encoding_open(w->options->encoding, &encoding));
    char *piece = malloc(PIECE);
    tx_status status = piece ? tx_data_file_open(sources->files.name[0], &file)
                             : tx_fail(TX_MEMORY, "%s: no memory to read it", sources->files.name[0]);
    for (int64_t at = 0; at < file.size && !status; at += (int64_t)PIECE) {
        const size_t size = file.size - at < (int64_t)PIECE ? (size_t)(file.size - at) : PIECE;
        status = tx_data_file_read(&file, at, piece, size);
        TX_THEN(status, tx_fail_in(tx_encoding_add(encoding, piece, size, &w->piece), "%s", file.path));
        TX_THEN(status, write_bytes(w, NULL, 0));
    }
    TX_THEN(status, tx_fail_in(tx_encoding_end(encoding), "%s", file.path));
    tx_encoding_close(encoding);
    tx_data_file_close(&file);
    free(piece);
    return status;
}

static tx_status write_rows(writer *w, const tx_data_source *sources, size_t count)
{
    reading *readings = calloc(count, sizeof *readings);
    if (!readings)
        return tx_fail(TX_MEMORY, "no memory for %zu datasets", count);
    for (size_t i = 0; i < count; i++)
        readings[i].files = &sources[i].files;
    const tx_status status =
        w->options->interleave ? write_interleaved(w, sources, readings, count) : write_in_turn(w, readings, count);
    for (size_t i = 0; i < count; i++)
        tx_rows_close(readings[i].rows);
    free(readings);
    return status;
}

/* ---- Kept files ----------------------------------------------------------------------------------------------- */

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
        const int more = snprintf(rules, sizeof rules, "dataset %.17g, %d, %d, %" PRIu64 "\n", sources[i].probability,
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

/* Whether the file at `path` is intact, by its description. */
static bool is_whole(const char *path, const char *description, const tx_reporter *report)
{
    tx_json *json = NULL;
    tx_data_file file = {0};
    tx_digest *digest = NULL;
    const char *wanted = "";
    char found[TX_DIGEST_TEXT];
    tx_status status = tx_json_read(description, DESCRIPTION_MOST, &json);
    TX_THEN(status, tx_json_get_string(json, "sha256", &wanted));
    TX_THEN(status, tx_data_file_open(path, &file));
    TX_THEN(status, tx_digest_create(&digest));
    if (!status) {
        tx_data_file_digest(&file, 0, file.size, digest, report);
        status = tx_digest_finish(digest, found);
    }
    const bool whole = !status && strcmp(wanted, found) == 0;
    tx_data_file_close(&file);
    tx_json_free(json);
    return whole;
}

/* Commits the file, then its description, without which it is not used. */
static tx_status finish(writer *w, const char *description)
{
    char digest[TX_DIGEST_TEXT];
    tx_json *json = tx_json_object();
    tx_status status = flush(w);
    const tx_status digested = tx_digest_finish(w->digest, digest);
    w->digest = NULL;
    TX_THEN(status, digested);
    TX_THEN(status, tx_json_set_int(json, "rows", w->rows));
    TX_THEN(status, tx_json_set_int(json, "bytes", w->bytes));
    TX_THEN(status, tx_json_set_string(json, "sha256", digest));
    if (!status) {
        status = tx_file_commit(w->file);
        w->file = NULL;
    }
    TX_THEN(status, tx_json_write(description, json, TX_JSON_LINE));
    tx_json_free(json);
    return status;
}

/* Writes the contents of a file that is made of the sources. */
typedef tx_status contents(writer *w, const tx_data_source *sources, size_t count);

static tx_status make_file(const tx_data_source *sources, size_t count, contents *write,
                           const tx_prepare_options *options, const char *path, const char *description)
{
    writer w = {.options = options};
    TX_TRY(tx_folder_create(options->folder));
    TX_TRY(tx_file_create(path, &w.file));
    tx_status status = tx_digest_create(&w.digest);
    TX_THEN(status, write(&w, sources, count));
    if (!status && w.rows == 0 && write == write_rows)
        status = tx_fail(TX_FORMAT, "%s: no rows", sources[0].files.name[0]);
    TX_THEN(status, finish(&w, description));
    tx_digest_free(w.digest);
    tx_file_discard(w.file);
    free(w.piece.data);
    return status;
}

/* Makes a file, unless it is there and intact. `ending` is that of its name. */
static tx_status find_or_make(const tx_data_source *sources, size_t count, contents *write,
                              const tx_prepare_options *options, const char *ending, char **path)
{
    char key[TX_DIGEST_TEXT], name[TX_DIGEST_TEXT + 48];
    if (!options->folder || !*options->folder)
        return tx_fail(TX_INVALID, "%s: no folder to keep its rows in: set TX_HOME, or give an output folder",
                       sources[0].files.name[0]);
    TX_TRY(make_key(sources, count, options, key));
    snprintf(name, sizeof name, "rows-%s.json", key);
    char *description = tx_path_join(options->folder, name);
    snprintf(name, sizeof name, "rows-%s.%.32s", key, ending);
    char *file = tx_path_join(options->folder, name);
    tx_status status = description && file ? TX_OK : TX_MEMORY;
    if (!status && !is_whole(file, description, &options->report))
        status = make_file(sources, count, write, options, file, description);
    if (status)
        free(file);
    else
        *path = file;
    free(description);
    return status;
}

/* ---- All ------------------------------------------------------------------------------------------------------ */

/* Whether all files are plain text, which is put together as it is. */
static bool are_text(const tx_data_source *sources, size_t count, const tx_prepare_options *o)
{
    for (size_t i = 0; i < count; i++)
        for (size_t f = 0; f < sources[i].files.count; f++)
            if (!tx_rows_is_text(sources[i].files.name[f]))
                return false;
    return !o->interleave && !o->text_columns && !o->label_column;
}

/* Prepares files in UTF-8. */
static tx_status prepare(const tx_data_source *sources, size_t count, const tx_prepare_options *options, char **path)
{
    const char *first = sources[0].files.name[0];
    const bool single = count == 1 && sources[0].files.count == 1;
    const bool text = are_text(sources, count, options);
    if (single && !options->text_columns && !options->label_column && !options->rows && !tx_rows_is_binary(first))
        return tx_copy_text(first, path);
    return find_or_make(sources, count, text ? write_text : write_rows, options, text ? "txt" : "jsonl", path);
}

/* Replaces a path by that of the file in UTF-8. */
static tx_status convert(const tx_prepare_options *options, char **path)
{
    const tx_data_source one = {.files = {.name = path, .count = 1}};
    const tx_prepare_options only = {
        .encoding = options->encoding, .folder = options->folder, .report = options->report};
    const char *slash = strrchr(*path, '/'), *dot = strrchr(slash ? slash : *path, '.');
    char *converted = NULL;
    if (tx_rows_is_binary(*path) || tx_ends_with(*path, ".bin"))
        return tx_fail(TX_INVALID, "--encoding is for files of text; %s has none", *path);
    TX_TRY(find_or_make(&one, 1, write_converted, &only, dot ? dot + 1 : "txt", &converted));
    free(*path);
    *path = converted;
    return TX_OK;
}

tx_status tx_data_prepare(tx_data_source *sources, size_t count, const tx_prepare_options *options, char **path)
{
    for (size_t i = 0; options->encoding && i < count; i++)
        for (size_t f = 0; f < sources[i].files.count; f++)
            TX_TRY(convert(options, &sources[i].files.name[f]));
    return prepare(sources, count, options, path);
}
