/* SPDX-License-Identifier: Apache-2.0
 * Rows of Arrow files and streams: messages, and the values of a row as text. */
#include "models/arrow/arrow.h"

#include "models/arrow/columns.h"
#include "models/files/data_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "ARROW1"
#define CONTINUES UINT32_C(0xFFFFFFFF)
/* Bytes of a row's text, and more for each byte of the file: lists may have the same items many times. */
#define ROW_BYTES ((size_t)24 << 20)
#define ROW_RATIO 64

enum { FILE_BEGIN = 8, FILE_END = 10 }; /* bytes around the stream of a file, which is followed by the footer */
enum { MESSAGE_VERSION, MESSAGE_KIND, MESSAGE_HEADER, MESSAGE_BODY };
enum { SCHEMA = 1, DICTIONARY, BATCH };
enum { DICTIONARY_ID, DICTIONARY_DATA, DICTIONARY_DELTA };

struct tx_arrow {
    tx_data_file file;
    int64_t at, end; /* the messages that are still to come */
    tx_arrow_schema columns;
    tx_buffer metadata;     /* of the current message */
    tx_arrow_memory memory; /* of the current batch */
    int64_t next;           /* row of the batch */
    int64_t row;            /* rows that were returned */
    tx_buffer text;
};

/* ---- Messages --------------------------------------------------------------------------------------------------- */

typedef struct message {
    tx_flat flat;
    int64_t kind; /* 0 at the end */
    int64_t version;
    tx_flat_at header;
    int64_t body; /* bytes */
} message;

static tx_status fail(const tx_arrow *a, const char *fault)
{
    return tx_fail(TX_FORMAT, "%s: %s", a->file.path, fault);
}

static tx_status read_number(tx_arrow *a, uint32_t *number)
{
    uint8_t bytes[4];
    TX_TRY(tx_data_file_read(&a->file, a->at, bytes, sizeof bytes));
    *number = (uint32_t)tx_fixed_read(bytes, sizeof bytes);
    a->at += (int64_t)sizeof bytes;
    return TX_OK;
}

static tx_status read_into(tx_arrow *a, int64_t bytes, tx_buffer *to)
{
    tx_buffer_clear(to);
    TX_TRY(tx_fail_in(tx_buffer_reserve(to, (size_t)bytes + 1), "%s", a->file.path));
    TX_TRY(tx_data_file_read(&a->file, a->at, to->data, (size_t)bytes));
    to->size = (size_t)bytes;
    a->at += bytes;
    return TX_OK;
}

/* Reads the metadata of the next message. Its body comes next. */
static tx_status next_message(tx_arrow *a, message *m)
{
    uint32_t size = 0;
    *m = (message){.kind = 0};
    if (a->end - a->at >= 4)
        TX_TRY(read_number(a, &size));
    if (size == CONTINUES) { /* versions before 0.15 have only the size */
        size = 0;
        if (a->end - a->at >= 4)
            TX_TRY(read_number(a, &size));
    }
    if (size == 0)
        return TX_OK;
    if (size > a->end - a->at)
        return fail(a, "it is cut off, or not an Arrow file or stream");
    TX_TRY(read_into(a, (int64_t)size, &a->metadata));
    m->flat = (tx_flat){.data = (const uint8_t *)a->metadata.data, .size = a->metadata.size};
    const tx_flat_at root = tx_flat_root(&m->flat);
    m->version = tx_flat_int(&m->flat, root, MESSAGE_VERSION, 2, 0) + 1;
    m->kind = tx_flat_int(&m->flat, root, MESSAGE_KIND, 1, 0);
    m->header = tx_flat_table(&m->flat, root, MESSAGE_HEADER);
    m->body = tx_flat_int(&m->flat, root, MESSAGE_BODY, 8, 0);
    if (m->flat.bad || !m->header || m->body < 0 || m->body > a->end - a->at)
        return fail(a, "a message is damaged or cut off");
    return TX_OK;
}

static tx_status read_dictionary(tx_arrow *a, message *m)
{
    const int64_t id = tx_flat_int(&m->flat, m->header, DICTIONARY_ID, 8, 0);
    tx_arrow_schema *all = &a->columns;
    if (tx_flat_int(&m->flat, m->header, DICTIONARY_DELTA, 1, 0))
        return tx_fail(TX_UNSUPPORTED, "%s: its dictionaries grow from batch to batch, which TX does not read",
                       a->file.path);
    for (size_t i = 0; i < all->dictionaries; i++) {
        tx_arrow_dictionary *d = &all->dictionary[i];
        if (d->id != id)
            continue;
        tx_arrow_memory_free(&d->memory);
        d->read = false;
        TX_TRY(read_into(a, m->body, &d->memory.stored));
        TX_TRY(tx_fail_in(tx_arrow_read_batch(&m->flat, tx_flat_table(&m->flat, m->header, DICTIONARY_DATA), all,
                                              d->column, &d->memory),
                          "%s", a->file.path));
        d->read = true;
        return TX_OK;
    }
    return fail(a, "it has a dictionary of no column");
}

/* Reads messages up to the next record batch. The batch has no rows at the end. */
static tx_status next_batch(tx_arrow *a)
{
    message m;
    a->next = 0;
    a->columns.column[0].length = 0;
    while (true) {
        TX_TRY(next_message(a, &m));
        if (!m.kind) {
            a->end = a->at; /* the end of the stream */
            return TX_OK;
        }
        if (m.kind == BATCH)
            break;
        if (m.kind != DICTIONARY)
            return fail(a, "it has a message of an unknown kind");
        TX_TRY(read_dictionary(a, &m));
    }
    tx_arrow_memory_free(&a->memory);
    TX_TRY(read_into(a, m.body, &a->memory.stored));
    for (size_t i = 0; i < a->columns.dictionaries; i++)
        if (!a->columns.dictionary[i].read)
            return fail(a, "a dictionary is missing before a record batch");
    return tx_fail_in(tx_arrow_read_batch(&m.flat, m.header, &a->columns, 0, &a->memory), "%s", a->file.path);
}

/* ---- Values ----------------------------------------------------------------------------------------------------- */

static tx_status write_value(tx_arrow *a, int32_t column, int64_t index);

static tx_status fail_value(const tx_arrow *a, const tx_arrow_column *c, const char *fault)
{
    return tx_fail(TX_FORMAT, "%s: row %" PRId64 ", column %s: %s", a->file.path, a->row + 1, c->leaf.name, fault);
}

static bool bit(const uint8_t *bits, int64_t index)
{
    return bits[index / 8] >> (index % 8) & 1;
}

/* The range of the bytes or items of a value, within the first `most`. */
static tx_status find_range(const tx_arrow *a, const tx_arrow_column *c, int64_t index, int64_t most, int64_t *begin,
                            int64_t *end)
{
    const bool view = c->kind == TX_ARROW_LIST_VIEW;
    *begin = (int64_t)tx_fixed_read(c->offsets + index * c->width, c->width);
    *end = (int64_t)tx_fixed_read(view ? c->data + index * c->width : c->offsets + (index + 1) * c->width, c->width);
    if (view && __builtin_add_overflow(*end, *begin, end))
        *end = -1;
    return *begin < 0 || *end < *begin || *end > most ? fail_value(a, c, "its offsets are damaged") : TX_OK;
}

/* An integer of any width. */
static tx_status read_integer(const tx_arrow *a, const tx_arrow_column *c, int64_t index, int64_t *value)
{
    const int unused = 64 - 8 * c->width;
    const uint64_t bits = tx_fixed_read(c->data + index * c->width, c->width);
    *value = c->leaf.meaning == TX_PQ_UNSIGNED ? (int64_t)bits : (int64_t)(bits << unused) >> unused;
    if (c->ticks < 0)
        *value = *value / -c->ticks - (*value % -c->ticks < 0);
    else if (__builtin_mul_overflow(*value, c->ticks, value))
        return fail_value(a, c, "a time out of range");
    return TX_OK;
}

/* The bytes of a view: up to 12 are in it, more are in a part. */
static tx_status find_view(const tx_arrow *a, const tx_arrow_column *c, int64_t index, tx_pq_value *value)
{
    const uint8_t *view = c->data + index * c->width;
    const uint64_t size = tx_fixed_read(view, 4), part = tx_fixed_read(view + 8, 4), at = tx_fixed_read(view + 12, 4);
    value->bytes.data = view + 4;
    value->bytes.size = (uint32_t)size;
    if (size <= 12)
        return TX_OK;
    if (part >= (uint64_t)c->parts || at + size > (uint64_t)c->part[part].bytes)
        return fail_value(a, c, "its views are damaged");
    value->bytes.data = c->part[part].data + at;
    return TX_OK;
}

/* Reads a value that has no parts. `reversed` receives the bytes of a decimal. */
static tx_status read_leaf(const tx_arrow *a, const tx_arrow_column *c, int64_t index, uint8_t reversed[32],
                           tx_pq_value *value)
{
    const uint8_t *at = c->kind == TX_ARROW_FIXED && c->width ? c->data + index * c->width : c->data;
    int64_t begin = 0, end = c->width;
    float single;
    if (c->kind == TX_ARROW_BOOL) {
        value->integer = bit(c->data, index);
    } else if (c->kind == TX_ARROW_BYTES) {
        TX_TRY(find_range(a, c, index, c->bytes, &begin, &end));
        value->bytes.data = end > begin ? at + begin : (const uint8_t *)"";
        value->bytes.size = (uint32_t)(end - begin);
        if (end - begin > UINT32_MAX)
            return fail_value(a, c, "a text of more than 4 GiB");
    } else if (c->kind == TX_ARROW_VIEW) {
        return find_view(a, c, index, value);
    } else if (c->leaf.type == TX_PQ_INT64) {
        return read_integer(a, c, index, &value->integer);
    } else if (c->leaf.type == TX_PQ_FLOAT) {
        memcpy(&single, at, sizeof single);
        value->number = (double)single;
    } else if (c->leaf.type == TX_PQ_DOUBLE) {
        memcpy(&value->number, at, sizeof value->number);
    } else {
        for (int32_t i = 0; i < c->width && c->leaf.meaning == TX_PQ_DECIMAL; i++)
            reversed[i] = at[c->width - 1 - i]; /* Parquet's decimals are big-endian */
        value->bytes.data = c->leaf.meaning == TX_PQ_DECIMAL ? reversed : c->width ? at : (const uint8_t *)"";
        value->bytes.size = (uint32_t)c->width;
    }
    return TX_OK;
}

static tx_status write_leaf(tx_arrow *a, const tx_arrow_column *c, int64_t index, bool key)
{
    tx_pq_value value = {.integer = 0};
    uint8_t reversed[32];
    TX_TRY(read_leaf(a, c, index, reversed, &value));
    const char *fault =
        key && !tx_pq_is_key(&value) ? "a key with a NUL byte" : tx_pq_write_value(&a->text, &c->leaf, &value);
    return fault ? fail_value(a, c, fault) : TX_OK;
}

static tx_status write_items(tx_arrow *a, const tx_arrow_column *c, int64_t begin, int64_t end)
{
    tx_buffer_add(&a->text, "[", 1);
    for (int64_t i = begin; i < end; i++) {
        tx_buffer_add(&a->text, ", ", i > begin ? 2 : 0);
        TX_TRY(write_value(a, c->child, i));
    }
    tx_buffer_add(&a->text, "]", 1);
    return TX_OK;
}

static tx_status write_members(tx_arrow *a, const tx_arrow_column *c, int64_t index)
{
    tx_buffer_add(&a->text, "{", 1);
    for (int32_t i = 0, child = c->child; i < c->count; i++) {
        const tx_arrow_column *member = &a->columns.column[child];
        tx_buffer_add(&a->text, ", ", i ? 2 : 0);
        if (!tx_pq_write_string(&a->text, member->leaf.name, strlen(member->leaf.name)))
            return fail_value(a, member, "its name is no UTF-8 text");
        tx_buffer_add(&a->text, ": ", 2);
        TX_TRY(write_value(a, child, index));
        child = member->next;
    }
    tx_buffer_add(&a->text, "}", 1);
    return TX_OK;
}

/* A map is an object if its keys are strings. */
static tx_status write_map(tx_arrow *a, const tx_arrow_column *c, int64_t begin, int64_t end)
{
    const tx_arrow_column *entry = &a->columns.column[c->child], *key = &a->columns.column[entry->child];
    if (key->leaf.meaning != TX_PQ_STRING)
        return write_items(a, c, begin, end);
    tx_buffer_add(&a->text, "{", 1);
    for (int64_t i = begin; i < end; i++) {
        tx_buffer_add(&a->text, ", ", i > begin ? 2 : 0);
        if (key->valid && !bit(key->valid, i))
            return fail_value(a, c, "a key is null");
        TX_TRY(write_leaf(a, key, i, true));
        tx_buffer_add(&a->text, ": ", 2);
        TX_TRY(write_value(a, key->next, i));
    }
    tx_buffer_add(&a->text, "}", 1);
    return TX_OK;
}

/* The run of a value: the first whose end is after it. */
static tx_status find_run(const tx_arrow *a, const tx_arrow_column *c, int64_t index, int64_t *run)
{
    const tx_arrow_column *ends = &a->columns.column[c->child];
    int64_t last = ends->length;
    for (*run = 0; *run < last;) {
        const int64_t middle = *run + (last - *run) / 2;
        int64_t end;
        TX_TRY(read_integer(a, ends, middle, &end));
        if (end > index)
            last = middle;
        else
            *run = middle + 1;
    }
    return *run < ends->length && *run < a->columns.column[ends->next].length
               ? TX_OK
               : fail_value(a, c, "its runs are damaged");
}

/* Value `index` of a column, which has so many. */
static tx_status write_value(tx_arrow *a, int32_t column, int64_t index)
{
    const tx_arrow_column *c = &a->columns.column[column];
    int64_t begin = index * c->size, end = begin + c->size;
    if (a->text.status)
        return tx_fail(a->text.status, "%s: row %" PRId64 ": no memory, or more than %zu bytes of text", a->file.path,
                       a->row + 1, a->text.limit);
    if (c->kind == TX_ARROW_NULL || (c->valid && !bit(c->valid, index))) {
        tx_buffer_add(&a->text, "null", 4);
        return TX_OK;
    }
    if (c->dictionary >= 0) {
        TX_TRY(read_integer(a, c, index, &begin));
        if (begin < 0 || begin >= a->columns.column[c->dictionary].length)
            return fail_value(a, c, "a number outside of its dictionary");
        return write_value(a, c->dictionary, begin);
    }
    if (c->kind == TX_ARROW_RUNS) {
        TX_TRY(find_run(a, c, index, &begin));
        return write_value(a, a->columns.column[c->child].next, begin);
    }
    if (c->kind == TX_ARROW_LIST || c->kind == TX_ARROW_LIST_VIEW || c->kind == TX_ARROW_MAP)
        TX_TRY(find_range(a, c, index, a->columns.column[c->child].length, &begin, &end));
    switch (c->kind) {
    case TX_ARROW_LIST:
    case TX_ARROW_LIST_VIEW:
    case TX_ARROW_FIXED_LIST:
        return write_items(a, c, begin, end);
    case TX_ARROW_MAP:
        return write_map(a, c, begin, end);
    case TX_ARROW_STRUCT:
        return write_members(a, c, index);
    default:
        return write_leaf(a, c, index, false);
    }
}

tx_status tx_arrow_next(tx_arrow *file, const char **row, size_t *size)
{
    *size = 0;
    if (file->next == file->columns.column[0].length) {
        do
            TX_TRY(next_batch(file));
        while (!file->columns.column[0].length && file->end > file->at);
        if (!file->columns.column[0].length)
            return TX_OK;
    }
    tx_buffer_clear(&file->text);
    TX_TRY(write_members(file, &file->columns.column[0], file->next));
    TX_TRY(file->text.status);
    file->next++;
    file->row++;
    *row = file->text.data;
    *size = file->text.size;
    return TX_OK;
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* Finds the range of the messages: all of a stream, and the part of a file before its footer. */
static tx_status find_messages(tx_arrow *a)
{
    char begin[FILE_BEGIN] = "";
    uint8_t end[FILE_END];
    const int64_t size = a->file.size;
    a->end = size;
    if (size >= FILE_BEGIN)
        TX_TRY(tx_data_file_read(&a->file, 0, begin, sizeof begin));
    if (memcmp(begin, MAGIC, sizeof MAGIC - 1) != 0)
        return TX_OK;
    if (size < FILE_BEGIN + FILE_END)
        return fail(a, "it is cut off");
    TX_TRY(tx_data_file_read(&a->file, size - FILE_END, end, sizeof end));
    const int64_t footer = (int64_t)tx_fixed_read(end, 4);
    if (memcmp(end + 4, MAGIC, sizeof MAGIC - 1) != 0 || footer > size - FILE_BEGIN - FILE_END)
        return fail(a, "it is cut off");
    a->at = FILE_BEGIN;
    a->end = size - FILE_END - footer;
    return TX_OK;
}

static tx_status open_file(tx_arrow *a, const char *path)
{
    message m;
    TX_TRY(tx_data_file_open(path, &a->file));
    a->text.limit = ROW_BYTES + ROW_RATIO * (size_t)a->file.size;
    TX_TRY(find_messages(a));
    TX_TRY(next_message(a, &m));
    if (m.kind != SCHEMA)
        return fail(a, "it is not an Arrow file or stream");
    a->at += m.body;
    a->columns.old = m.version < 5;
    return tx_fail_in(tx_arrow_read_schema(&m.flat, m.header, &a->columns), "%s", path);
}

tx_status tx_arrow_open(const char *path, tx_arrow **file)
{
    tx_arrow *a = calloc(1, sizeof *a);
    if (!a)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    const tx_status status = open_file(a, path);
    return TX_RETURN(status, a, file, tx_arrow_close);
}

void tx_arrow_close(tx_arrow *file)
{
    if (!file)
        return;
    tx_arrow_columns_free(&file->columns);
    tx_arrow_memory_free(&file->memory);
    free(file->metadata.data);
    free(file->text.data);
    tx_data_file_close(&file->file);
    free(file);
}

int32_t tx_arrow_columns(const tx_arrow *file)
{
    return file->columns.column[0].count;
}
