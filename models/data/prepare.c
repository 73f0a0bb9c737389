/* SPDX-License-Identifier: Apache-2.0
 * Several data files as one. */
#include "models/data/prepare.h"

#include "models/data/encoding.h"
#include "models/data/prepared.h"
#include "models/data/rows.h"
#include "models/files/data_file.h"
#include "models/files/packed.h"
#include "models/names.h"
#include "models/tokenizer/hash.h"
#include "tx_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that are read at a time. */
#define PIECE ((size_t)1 << 20)

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

static tx_status write_mapped(tx_prepared *w, tx_rows *rows)
{
    const tx_json *row;
    tx_json *to = tx_json_object();
    tx_status status = tx_rows_object(rows, &row);
    TX_THEN(status, map_row(w->options, row, to));
    char *line = status ? NULL : tx_json_text(to, TX_JSON_LINE);
    if (!status && !line)
        status = TX_MEMORY;
    TX_THEN(status, tx_prepared_write(w, line, strlen(line)));
    tx_json_free(to);
    free(line);
    return status;
}

static tx_status write_row(tx_prepared *w, tx_rows *rows)
{
    const char *text = "";
    size_t size = 0;
    if (w->options->text_columns || w->options->label_column) {
        TX_TRY(write_mapped(w, rows));
    } else {
        TX_TRY(tx_rows_line(rows, &text, &size));
        TX_TRY(tx_prepared_write(w, text, size));
    }
    w->rows++;
    return tx_prepared_write(w, "\n", 1);
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

/* Moves to the next row. `*more` is false at the end of the dataset, which then begins again. */
static tx_status next_row(reading *r, bool *more)
{
    for (*more = false; !*more;) {
        if (!r->rows && r->next == r->files->count) {
            r->next = 0;
            r->ended = true;
            return TX_OK;
        }
        if (!r->rows) {
            TX_TRY(tx_rows_open(r->files->name[r->next++], &r->rows));
            r->row = 0;
        }
        TX_TRY(tx_rows_next(r->rows, more));
        r->row++;
        if (!*more) {
            tx_rows_close(r->rows);
            r->rows = NULL;
        }
    }
    return TX_OK;
}

static tx_status copy_row(tx_prepared *w, const reading *r)
{
    return tx_fail_in(write_row(w, r->rows), "%s: row %" PRId64, r->files->name[r->next - 1], r->row);
}

static tx_status write_in_turn(tx_prepared *w, reading *readings, size_t count)
{
    bool more;
    for (size_t i = 0; i < count; i++)
        do {
            TX_TRY(next_row(&readings[i], &more));
            TX_TRY(more ? copy_row(w, &readings[i]) : TX_OK);
        } while (more);
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
static tx_status write_interleaved(tx_prepared *w, const tx_data_source *sources, reading *readings, size_t count)
{
    for (uint64_t draw = 0;; draw++) {
        reading *r = &readings[draw_source(sources, count, w->options->seed, draw)];
        bool more;
        TX_TRY(next_row(r, &more));
        if (!more) {
            if (!w->options->all_exhausted || all_ended(readings, count))
                return TX_OK;
            TX_TRY(next_row(r, &more));
            if (!more)
                return tx_fail(TX_FORMAT, "%s: no rows", r->files->name[0]);
        }
        TX_TRY(copy_row(w, r));
    }
}

/* Text files one after the other; each but the last gets the newline that its last line lacks. */
static tx_status write_text(tx_prepared *w, const tx_data_source *sources, size_t count)
{
    char last = '\n';
    for (size_t i = 0; i < count; i++)
        for (size_t f = 0; f < sources[i].files.count; f++) {
            tx_data_file file = {0};
            char *piece = malloc(PIECE);
            tx_status status = piece ? tx_data_file_open(sources[i].files.name[f], &file)
                                     : tx_fail(TX_MEMORY, "%s: no memory to read it", sources[i].files.name[f]);
            if (!status && last != '\n')
                status = tx_prepared_write(w, "\n", 1);
            for (int64_t at = 0; at < file.size && !status; at += (int64_t)PIECE) {
                const size_t size = file.size - at < (int64_t)PIECE ? (size_t)(file.size - at) : PIECE;
                status = tx_data_file_read(&file, at, piece, size);
                TX_THEN(status, tx_prepared_write(w, piece, size));
                last = piece[size - 1];
            }
            tx_data_file_close(&file);
            free(piece);
            TX_TRY(status);
        }
    return TX_OK;
}

/* Writes one file in UTF-8. */
static tx_status write_converted(tx_prepared *w, const tx_data_source *sources, size_t count)
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
        TX_THEN(status, tx_prepared_write(w, NULL, 0));
    }
    TX_THEN(status, tx_fail_in(tx_encoding_end(encoding), "%s", file.path));
    tx_encoding_close(encoding);
    tx_data_file_close(&file);
    free(piece);
    return status;
}

static tx_status add_unpacked(void *to, const char *text, size_t size)
{
    return tx_prepared_write(to, text, size);
}

static tx_status write_unpacked(tx_prepared *w, const tx_data_source *sources, size_t count)
{
    (void)count;
    return tx_unpack(sources->files.name[0], add_unpacked, w);
}

static tx_status write_rows(tx_prepared *w, const tx_data_source *sources, size_t count)
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
    return status || w->rows ? status : tx_fail(TX_FORMAT, "%s: no rows", sources[0].files.name[0]);
}

/* ---- All ------------------------------------------------------------------------------------------------------ */

/* Whether all files are plain text, which is put together as it is. */
static bool are_text(const tx_data_source *sources, size_t count, const tx_prepare_options *o)
{
    for (size_t i = 0; i < count; i++)
        for (size_t f = 0; f < sources[i].files.count; f++)
            if (tx_rows_kind_of(sources[i].files.name[f]) != TX_ROWS_TEXT)
                return false;
    return !o->interleave && !o->text_columns && !o->label_column;
}

/* Prepares files in UTF-8. */
static tx_status prepare(const tx_data_source *sources, size_t count, const tx_prepare_options *options, char **path)
{
    const char *first = sources[0].files.name[0];
    const bool single = count == 1 && sources[0].files.count == 1;
    const bool text = are_text(sources, count, options);
    const tx_rows_kind kind = tx_rows_kind_of(first);
    const bool rows = kind == TX_ROWS_BINARY || (options->rows && kind == TX_ROWS_TABLE);
    if (single && !options->text_columns && !options->label_column && !rows)
        return tx_copy_text(first, path);
    return tx_prepared_find(sources, count, text ? write_text : write_rows, options, text ? "txt" : "jsonl", path);
}

/* Replaces a path by that of a file that is made of it. The ending is that of the first `size` bytes of the path. */
static tx_status replace(const tx_prepare_options *options, const char *encoding, tx_prepared_contents *write,
                         size_t size, char **path)
{
    const tx_data_source one = {.files = {.name = path, .count = 1}};
    const tx_prepare_options only = {.encoding = encoding, .folder = options->folder, .report = options->report};
    char extension[33] = "txt", *created = NULL;
    for (size_t at = size; at-- > 0 && (*path)[at] != '/';)
        if ((*path)[at] == '.') {
            snprintf(extension, sizeof extension, "%.*s", (int)(size - at - 1), *path + at + 1);
            break;
        }
    TX_TRY(tx_prepared_find(&one, 1, write, &only, extension, &created));
    free(*path);
    *path = created;
    return TX_OK;
}

/* Replaces a path by that of the unpacked file. */
static tx_status unpack(const tx_prepare_options *options, char **path)
{
    const size_t stem = tx_packed_stem(*path);
    return stem ? replace(options, NULL, write_unpacked, stem, path) : TX_OK;
}

/* Replaces a path by that of the file in UTF-8. */
static tx_status convert(const tx_prepare_options *options, char **path)
{
    if (!options->encoding)
        return TX_OK;
    if (tx_rows_kind_of(*path) == TX_ROWS_BINARY || tx_ends_with(*path, ".bin"))
        return tx_fail(TX_INVALID, "--encoding is for files of text; %s has none", *path);
    return replace(options, options->encoding, write_converted, strlen(*path), path);
}

tx_status tx_data_prepare(tx_data_source *sources, size_t count, const tx_prepare_options *options, char **path)
{
    for (size_t i = 0; i < count; i++)
        for (size_t f = 0; f < sources[i].files.count; f++) {
            TX_TRY(unpack(options, &sources[i].files.name[f]));
            TX_TRY(convert(options, &sources[i].files.name[f]));
        }
    return prepare(sources, count, options, path);
}
