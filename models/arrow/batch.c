/* SPDX-License-Identifier: Apache-2.0
 * Reads the buffers of record batches (Message.fbs). rows.c calls it. */
#include "api/base/arithmetic.h"
#include "models/arrow/columns.h"
#include "models/parquet/unpack.h"

#include <stdlib.h>

/* Bounds of a decompressed buffer, so that a small file cannot exhaust the memory: bytes of any buffer, and more for
 * each stored byte. */
#define BUFFER_BYTES ((int64_t)4 << 20)
#define BUFFER_RATIO 1024
/* Values of a column that has no buffers, at most. */
#define LENGTH_MOST ((int64_t)1 << 31)

enum { BATCH_LENGTH, BATCH_NODES, BATCH_BUFFERS, BATCH_COMPRESSION, BATCH_PARTS };
enum { NODE_BYTES = 16, BUFFER_ENTRY = 16, PART_ENTRY = 8 };

/* The parts of a batch that are still to be used. */
typedef struct reading {
    tx_arrow_schema *columns;
    const uint8_t *node, *node_end, *buffer, *buffer_end;
    const uint8_t *parts, *parts_end; /* the number of parts of each column of views */
    tx_arrow_memory *memory;
    int64_t codec; /* -1 for none */
} reading;

static tx_status fail(const tx_arrow_column *c, const char *fault)
{
    return tx_fail(TX_FORMAT, "column %s: %s", c->leaf.name ? c->leaf.name : "of all rows", fault);
}

void tx_arrow_memory_free(tx_arrow_memory *memory)
{
    for (size_t i = 0; i < memory->count; i++)
        free(memory->converted[i]);
    free(memory->converted);
    free(memory->stored.data);
    *memory = (tx_arrow_memory){0};
}

/* Allocates memory that is freed with that of the batch. */
static tx_status allocate(tx_arrow_memory *m, size_t bytes, void **created)
{
    TX_TRY(tx_array_reserve(&m->converted, &m->room, m->count + 1, sizeof *m->converted, "buffers"));
    *created = malloc(bytes + 1);
    if (!*created)
        return tx_fail(TX_MEMORY, "no memory for a buffer of %zu bytes", bytes);
    m->converted[m->count++] = *created;
    return TX_OK;
}

/* Decompresses a buffer, which begins with its size. A size of -1 means that it is stored as it is. */
static tx_status unpack(reading *r, const tx_arrow_column *c, const uint8_t **data, int64_t *bytes)
{
    void *created;
    if (*bytes < 8)
        return fail(c, "a buffer is damaged");
    const int64_t size = (int64_t)tx_fixed_read(*data, 8);
    *data += 8;
    *bytes -= 8;
    if (size == -1)
        return TX_OK;
    if (size < 0 || size > BUFFER_BYTES + BUFFER_RATIO * *bytes)
        return fail(c, "the size of a compressed buffer is damaged");
    TX_TRY(allocate(r->memory, (size_t)size, &created));
    if (!tx_pq_unpack(r->codec ? TX_PQ_ZSTD : TX_PQ_LZ4_FRAME, *data, (size_t)*bytes, created, (size_t)size))
        return fail(c, "its compressed data are damaged");
    *data = created;
    *bytes = size;
    return TX_OK;
}

/* Finds the next buffer. It is NULL if it has no bytes. */
static tx_status next_buffer(reading *r, const tx_arrow_column *c, const uint8_t **data, int64_t *bytes)
{
    if (r->buffer == r->buffer_end)
        return fail(c, "the batch has too few buffers");
    const uint64_t at = tx_fixed_read(r->buffer, 8), size = tx_fixed_read(r->buffer + 8, 8);
    const uint64_t all = r->memory->stored.size;
    r->buffer += BUFFER_ENTRY;
    if (at > all || size > all - at)
        return fail(c, "a buffer is outside of the batch");
    *data = size ? (const uint8_t *)r->memory->stored.data + at : NULL;
    *bytes = (int64_t)size;
    if (size && r->codec >= 0)
        TX_TRY(unpack(r, c, data, bytes));
    if (!*bytes)
        *data = NULL;
    return TX_OK;
}

static tx_status read_column(reading *r, int32_t index);

static tx_status read_children(reading *r, const tx_arrow_column *c)
{
    int32_t child = c->child;
    for (int32_t i = 0; i < c->count; i++) {
        TX_TRY(read_column(r, child));
        child = r->columns->column[child].next;
    }
    return TX_OK;
}

/* Reads the buffers that hold the bytes of views. */
static tx_status read_parts(reading *r, tx_arrow_column *c)
{
    void *created;
    if (r->parts == r->parts_end)
        return fail(c, "the batch has too few numbers of parts");
    const uint64_t count = tx_fixed_read(r->parts, PART_ENTRY);
    r->parts += PART_ENTRY;
    if (count > (uint64_t)(r->buffer_end - r->buffer) / BUFFER_ENTRY)
        return fail(c, "the batch has too few buffers");
    TX_TRY(allocate(r->memory, count * sizeof *c->part, &created));
    c->part = created;
    for (; c->parts < (int64_t)count; c->parts++)
        TX_TRY(next_buffer(r, c, &c->part[c->parts].data, &c->part[c->parts].bytes));
    return TX_OK;
}

static tx_status read_buffers(reading *r, tx_arrow_column *c, int64_t nulls)
{
    const bool views = c->kind == TX_ARROW_LIST_VIEW;
    const bool offsets = c->kind == TX_ARROW_BYTES || c->kind == TX_ARROW_LIST || c->kind == TX_ARROW_MAP || views;
    const bool values = c->kind == TX_ARROW_FIXED || c->kind == TX_ARROW_VIEW || views;
    const bool data = c->kind == TX_ARROW_BYTES || c->kind == TX_ARROW_BOOL || values;
    int64_t bytes = 0;
    TX_TRY(next_buffer(r, c, &c->valid, &bytes));
    if (nulls ? bytes < tx_ceil_div(c->length, 8) : c->valid && bytes < tx_ceil_div(c->length, 8))
        return fail(c, "too few bits say which values are null");
    if (offsets) {
        TX_TRY(next_buffer(r, c, &c->offsets, &bytes));
        if (c->length && bytes / c->width < c->length + !views)
            return fail(c, "it has too few offsets");
    }
    if (!data)
        return TX_OK;
    TX_TRY(next_buffer(r, c, &c->data, &c->bytes));
    if (c->kind == TX_ARROW_BOOL ? c->bytes < tx_ceil_div(c->length, 8)
                                 : values && c->width && c->bytes / c->width < c->length)
        return fail(c, "it has too few values");
    return c->kind == TX_ARROW_VIEW ? read_parts(r, c) : TX_OK;
}

static tx_status read_column(reading *r, int32_t index)
{
    tx_arrow_column *c = &r->columns->column[index];
    if (r->node == r->node_end)
        return fail(c, "the batch has too few columns");
    const int64_t length = (int64_t)tx_fixed_read(r->node, 8), nulls = (int64_t)tx_fixed_read(r->node + 8, 8);
    r->node += NODE_BYTES;
    if (length < 0 || length > LENGTH_MOST || nulls < 0 || nulls > length)
        return fail(c, "its length is damaged");
    c->length = length;
    c->valid = c->offsets = c->data = NULL;
    c->bytes = c->parts = 0;
    if (c->kind != TX_ARROW_NULL && (c->kind != TX_ARROW_RUNS || r->columns->old))
        TX_TRY(read_buffers(r, c, nulls));
    if (c->dictionary >= 0)
        return TX_OK;
    TX_TRY(read_children(r, c));
    for (int32_t i = 0, child = c->child; i < c->count; i++, child = r->columns->column[child].next) {
        const int64_t wanted = c->kind == TX_ARROW_STRUCT       ? length
                               : c->kind == TX_ARROW_FIXED_LIST ? length * c->size
                                                                : 0;
        if (r->columns->column[child].length < wanted)
            return fail(c, "a column below it is too short");
    }
    return TX_OK;
}

tx_status tx_arrow_read_batch(tx_flat *flat, tx_flat_at batch, tx_arrow_schema *columns, int32_t column,
                              tx_arrow_memory *memory)
{
    size_t nodes, buffers, parts;
    const tx_flat_at node = tx_flat_vector(flat, batch, BATCH_NODES, NODE_BYTES, &nodes);
    const tx_flat_at buffer = tx_flat_vector(flat, batch, BATCH_BUFFERS, BUFFER_ENTRY, &buffers);
    const tx_flat_at part = tx_flat_vector(flat, batch, BATCH_PARTS, PART_ENTRY, &parts);
    const tx_flat_at compression = tx_flat_table(flat, batch, BATCH_COMPRESSION);
    reading r = {.columns = columns,
                 .node = flat->data + node,
                 .node_end = flat->data + node + nodes * NODE_BYTES,
                 .buffer = flat->data + buffer,
                 .buffer_end = flat->data + buffer + buffers * BUFFER_ENTRY,
                 .parts = flat->data + part,
                 .parts_end = flat->data + part + parts * PART_ENTRY,
                 .memory = memory,
                 .codec = compression ? tx_flat_int(flat, compression, 0, 1, 0) : -1};
    const int64_t length = tx_flat_int(flat, batch, BATCH_LENGTH, 8, 0);
    tx_arrow_column *c = &columns->column[column];
    if (flat->bad || !batch || r.codec > 1 || length < 0 || length > LENGTH_MOST)
        return tx_fail(TX_FORMAT, "a record batch is damaged");
    if (column) /* a dictionary */
        return read_column(&r, column);
    c->length = length;
    TX_TRY(read_children(&r, c));
    for (int32_t i = 0, child = c->child; i < c->count; i++, child = columns->column[child].next)
        if (columns->column[child].length != length)
            return fail(&columns->column[child], "its length is not that of the batch");
    return TX_OK;
}
