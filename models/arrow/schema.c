/* SPDX-License-Identifier: Apache-2.0
 * Reads the schema of Arrow files (Schema.fbs). rows.c calls it. */
#include "models/arrow/columns.h"

#include <stdlib.h>
#include <string.h>

/* Columns of a schema, with all that are nested. A damaged one may contain itself. */
#define COLUMNS_MOST 65536

/* Tables and their fields, numbered as in Schema.fbs. */
enum { SCHEMA_ENDIANNESS, SCHEMA_FIELDS };
enum { FIELD_NAME, FIELD_NULLABLE, FIELD_KIND, FIELD_TYPE, FIELD_DICTIONARY, FIELD_CHILDREN };
enum { DICTIONARY_ID, DICTIONARY_INDEX };
enum {
    NO_TYPE,
    NULL_TYPE,
    INT,
    FLOAT,
    BINARY,
    UTF8,
    BOOL,
    DECIMAL,
    DATE,
    TIME,
    TIMESTAMP,
    INTERVAL,
    LIST,
    STRUCT,
    UNION,
    FIXED_BINARY,
    FIXED_LIST,
    MAP,
    DURATION,
    LARGE_BINARY,
    LARGE_UTF8,
    LARGE_LIST,
    RUN_END,
    BINARY_VIEW,
    UTF8_VIEW,
    LIST_VIEW,
    LARGE_LIST_VIEW,
    TYPES
};

static tx_status damaged(void)
{
    return tx_fail(TX_FORMAT, "its schema is damaged");
}

/* ---- Types ------------------------------------------------------------------------------------------------------ */

static tx_status set_int(tx_flat *f, tx_flat_at type, tx_arrow_column *c)
{
    const int64_t bits = tx_flat_int(f, type, 0, 4, 0);
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
        return damaged();
    c->width = (int32_t)bits / 8;
    c->leaf.type = TX_PQ_INT64;
    c->leaf.meaning = tx_flat_int(f, type, 1, 1, 0) ? TX_PQ_PLAIN : TX_PQ_UNSIGNED;
    return TX_OK;
}

static tx_status set_float(tx_flat *f, tx_flat_at type, tx_arrow_column *c)
{
    static const tx_pq_type types[] = {TX_PQ_FIXED_BYTES, TX_PQ_FLOAT, TX_PQ_DOUBLE};
    const int64_t precision = tx_flat_int(f, type, 0, 2, 0);
    if (precision < 0 || precision > 2)
        return damaged();
    c->leaf.type = types[precision];
    c->leaf.meaning = precision ? TX_PQ_PLAIN : TX_PQ_HALF;
    c->width = 2 << precision;
    return TX_OK;
}

static tx_status set_decimal(tx_flat *f, tx_flat_at type, tx_arrow_column *c)
{
    const int64_t scale = tx_flat_int(f, type, 1, 4, 0), bits = tx_flat_int(f, type, 2, 4, 128);
    if (scale < 0 || scale > INT32_MAX || (bits != 32 && bits != 64 && bits != 128 && bits != 256))
        return tx_fail(TX_UNSUPPORTED, "column %s: a decimal of an unknown form", c->leaf.name);
    c->leaf.type = TX_PQ_FIXED_BYTES;
    c->leaf.meaning = TX_PQ_DECIMAL;
    c->leaf.scale = (int32_t)scale;
    c->width = (int32_t)bits / 8;
    return TX_OK;
}

/* Dates, times and timestamps. `unit` is 0 for seconds, 1 for milliseconds and so on. */
static tx_status set_time(tx_flat *f, tx_flat_at type, int64_t kind, tx_arrow_column *c)
{
    const int64_t unit = tx_flat_int(f, type, 0, 2, kind == TIMESTAMP ? 0 : 1);
    if (unit < 0 || unit > 3)
        return damaged();
    c->leaf.type = TX_PQ_INT64;
    c->leaf.meaning = kind == DATE ? TX_PQ_DATE : kind == TIME ? TX_PQ_TIME : TX_PQ_TIMESTAMP;
    c->leaf.second = unit > 1 ? 3 * (int32_t)unit : 3;
    c->leaf.utc = kind == TIMESTAMP && tx_flat_table(f, type, 1);
    c->width = 8;
    if (kind == DATE) { /* days or milliseconds */
        c->width = unit ? 8 : 4;
        c->ticks = unit ? -86400000 : 1;
    } else {
        c->ticks = unit ? 1 : 1000;
        c->width = kind == TIME && tx_flat_int(f, type, 1, 4, 32) == 32 ? 4 : 8;
    }
    return TX_OK;
}

static tx_status set_size(int64_t size, tx_arrow_column *c, int32_t *to)
{
    if (size < 0 || size > INT32_MAX)
        return damaged();
    c->leaf.type = TX_PQ_FIXED_BYTES;
    *to = (int32_t)size;
    return TX_OK;
}

static tx_status set_type(tx_flat *f, int64_t kind, tx_flat_at type, tx_arrow_column *c)
{
    static const tx_arrow_kind kinds[TYPES] = {[INT] = TX_ARROW_FIXED,
                                               [FLOAT] = TX_ARROW_FIXED,
                                               [BINARY] = TX_ARROW_BYTES,
                                               [UTF8] = TX_ARROW_BYTES,
                                               [BOOL] = TX_ARROW_BOOL,
                                               [DECIMAL] = TX_ARROW_FIXED,
                                               [DATE] = TX_ARROW_FIXED,
                                               [TIME] = TX_ARROW_FIXED,
                                               [TIMESTAMP] = TX_ARROW_FIXED,
                                               [LIST] = TX_ARROW_LIST,
                                               [STRUCT] = TX_ARROW_STRUCT,
                                               [FIXED_BINARY] = TX_ARROW_FIXED,
                                               [MAP] = TX_ARROW_MAP,
                                               [FIXED_LIST] = TX_ARROW_FIXED_LIST,
                                               [DURATION] = TX_ARROW_FIXED,
                                               [LARGE_BINARY] = TX_ARROW_BYTES,
                                               [LARGE_UTF8] = TX_ARROW_BYTES,
                                               [LARGE_LIST] = TX_ARROW_LIST,
                                               [RUN_END] = TX_ARROW_RUNS,
                                               [BINARY_VIEW] = TX_ARROW_VIEW,
                                               [UTF8_VIEW] = TX_ARROW_VIEW,
                                               [LIST_VIEW] = TX_ARROW_LIST_VIEW,
                                               [LARGE_LIST_VIEW] = TX_ARROW_LIST_VIEW};
    static const char *const others[TYPES] = {[INTERVAL] = "interval", [UNION] = "union"};
    if (kind <= NO_TYPE || kind >= TYPES || others[kind])
        return tx_fail(TX_UNSUPPORTED, "column %s has the type %s, which TX does not read", c->leaf.name,
                       kind > NO_TYPE && kind < TYPES ? others[kind] : "of a newer version of Arrow");
    c->kind = kinds[kind];
    const bool large = kind == LARGE_BINARY || kind == LARGE_UTF8 || kind == LARGE_LIST || kind == LARGE_LIST_VIEW;
    c->width = c->kind == TX_ARROW_VIEW ? 16 : large ? 8 : 4;
    c->leaf.type = kind == BOOL ? TX_PQ_BOOLEAN : TX_PQ_BYTES;
    c->leaf.meaning = kind == UTF8 || kind == LARGE_UTF8 || kind == UTF8_VIEW ? TX_PQ_STRING : TX_PQ_PLAIN;
    switch (kind) {
    case INT:
        return set_int(f, type, c);
    case FLOAT:
        return set_float(f, type, c);
    case DECIMAL:
        return set_decimal(f, type, c);
    case DATE:
    case TIME:
    case TIMESTAMP:
        return set_time(f, type, kind, c);
    case DURATION:
        c->leaf.type = TX_PQ_INT64;
        c->width = 8;
        return TX_OK;
    case FIXED_BINARY:
        return set_size(tx_flat_int(f, type, 0, 4, 0), c, &c->width);
    case FIXED_LIST:
        return set_size(tx_flat_int(f, type, 0, 4, 0), c, &c->size);
    default:
        return TX_OK;
    }
}

/* ---- Columns ---------------------------------------------------------------------------------------------------- */

static tx_status add_column(tx_arrow_schema *to, int32_t *index)
{
    if (to->count >= COLUMNS_MOST)
        return tx_fail(TX_UNSUPPORTED, "more than %d columns", COLUMNS_MOST);
    TX_TRY(tx_array_reserve(&to->column, &to->room, to->count + 1, sizeof *to->column, "columns"));
    to->column[to->count] = (tx_arrow_column){.ticks = 1, .dictionary = -1};
    *index = (int32_t)to->count++;
    return TX_OK;
}

static tx_status add_field(tx_flat *f, tx_flat_at field, int depth, tx_arrow_schema *to);

static tx_status add_children(tx_flat *f, tx_flat_at fields, size_t count, int depth, int32_t index,
                              tx_arrow_schema *to)
{
    to->column[index].child = (int32_t)to->count;
    for (size_t i = 0; i < count; i++)
        TX_TRY(add_field(f, tx_flat_item(f, fields, i), depth + 1, to));
    to->column[index].count = (int32_t)count;
    to->column[index].next = (int32_t)to->count;
    return TX_OK;
}

/* Whether the children are those of the kind. */
static bool has_children(const tx_arrow_schema *all, const tx_arrow_column *c)
{
    const tx_arrow_column *child = &all->column[c->child];
    if (c->kind == TX_ARROW_MAP)
        return c->count == 1 && child->kind == TX_ARROW_STRUCT && child->count == 2;
    if (c->kind == TX_ARROW_RUNS)
        return c->count == 2 && child->kind == TX_ARROW_FIXED && child->leaf.type == TX_PQ_INT64;
    if (c->kind == TX_ARROW_LIST || c->kind == TX_ARROW_LIST_VIEW || c->kind == TX_ARROW_FIXED_LIST)
        return c->count == 1;
    return c->kind == TX_ARROW_STRUCT || c->count == 0;
}

static tx_status set_name(tx_flat *f, tx_flat_at field, tx_arrow_column *c)
{
    size_t size;
    const tx_flat_at at = tx_flat_vector(f, field, FIELD_NAME, 1, &size);
    c->leaf.name = malloc(size + 1);
    if (!c->leaf.name)
        return tx_fail(TX_MEMORY, "no memory for the names of its columns");
    memcpy(c->leaf.name, at ? f->data + at : (const uint8_t *)"", size);
    c->leaf.name[size] = '\0';
    return TX_OK;
}

/* Adds a column with all that are below it. */
static tx_status add_type(tx_flat *f, tx_flat_at field, int depth, int32_t index, tx_arrow_schema *to)
{
    size_t count;
    const tx_flat_at children = tx_flat_vector(f, field, FIELD_CHILDREN, 4, &count);
    TX_TRY(
        set_type(f, tx_flat_int(f, field, FIELD_KIND, 1, 0), tx_flat_table(f, field, FIELD_TYPE), &to->column[index]));
    TX_TRY(add_children(f, children, count, depth, index, to));
    return f->bad || !has_children(to, &to->column[index]) ? damaged() : TX_OK;
}

/* The column has numbers of a dictionary. The type of the field is that of the dictionary's values. */
static tx_status add_dictionary(tx_flat *f, tx_flat_at field, tx_flat_at encoding, int depth, int32_t index,
                                tx_arrow_schema *to)
{
    const tx_flat_at numbers = tx_flat_table(f, encoding, DICTIONARY_INDEX);
    const int64_t id = tx_flat_int(f, encoding, DICTIONARY_ID, 8, 0);
    tx_arrow_column *c = &to->column[index];
    size_t known = 0;
    c->kind = TX_ARROW_FIXED;
    c->width = 4;
    c->leaf.type = TX_PQ_INT64;
    if (numbers)
        TX_TRY(set_int(f, numbers, c));
    c->next = index + 1;
    while (known < to->dictionaries && to->dictionary[known].id != id)
        known++;
    if (known < to->dictionaries) {
        c->dictionary = to->dictionary[known].column;
        return to->column[c->dictionary].next ? TX_OK : damaged(); /* not within itself */
    }
    TX_TRY(
        tx_array_reserve(&to->dictionary, &to->dictionaries_room, known + 1, sizeof *to->dictionary, "dictionaries"));
    int32_t values = 0;
    TX_TRY(add_column(to, &values));
    TX_TRY(set_name(f, field, &to->column[values]));
    to->dictionary[to->dictionaries++] = (tx_arrow_dictionary){.id = id, .column = values};
    to->column[index].dictionary = values;
    TX_TRY(add_type(f, field, depth, values, to));
    to->column[index].next = to->column[values].next;
    return TX_OK;
}

static tx_status add_field(tx_flat *f, tx_flat_at field, int depth, tx_arrow_schema *to)
{
    int32_t index = 0;
    if (!field || f->bad)
        return damaged();
    if (depth > TX_PQ_DEPTH)
        return tx_fail(TX_UNSUPPORTED, "its columns are nested more than %d levels deep", TX_PQ_DEPTH);
    TX_TRY(add_column(to, &index));
    TX_TRY(set_name(f, field, &to->column[index]));
    const tx_flat_at encoding = tx_flat_table(f, field, FIELD_DICTIONARY);
    return encoding ? add_dictionary(f, field, encoding, depth, index, to) : add_type(f, field, depth, index, to);
}

tx_status tx_arrow_read_schema(tx_flat *flat, tx_flat_at schema, tx_arrow_schema *columns)
{
    int32_t row = 0;
    size_t count;
    const tx_flat_at fields = tx_flat_vector(flat, schema, SCHEMA_FIELDS, 4, &count);
    if (tx_flat_int(flat, schema, SCHEMA_ENDIANNESS, 2, 0))
        return tx_fail(TX_UNSUPPORTED, "its numbers are big-endian, which TX does not read");
    TX_TRY(add_column(columns, &row));
    columns->column[row].kind = TX_ARROW_STRUCT;
    TX_TRY(add_children(flat, fields, count, 0, row, columns));
    return flat->bad ? damaged() : TX_OK;
}

void tx_arrow_columns_free(tx_arrow_schema *columns)
{
    for (size_t i = 0; i < columns->count; i++)
        free(columns->column[i].leaf.name);
    for (size_t i = 0; i < columns->dictionaries; i++)
        tx_arrow_memory_free(&columns->dictionary[i].memory);
    free(columns->column);
    free(columns->dictionary);
    *columns = (tx_arrow_schema){0};
}
