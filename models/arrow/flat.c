/* SPDX-License-Identifier: Apache-2.0
 * Reads tables of FlatBuffers. schema.c and batch.c call it. */
#include "models/arrow/flat.h"

#include "models/parquet/decode.h"

/* The bytes at a position, or NULL if they are outside. */
static const uint8_t *bytes_at(tx_flat *f, size_t at, size_t count)
{
    if (f->bad || at > f->size || count > f->size - at) {
        f->bad = true;
        return NULL;
    }
    return f->data + at;
}

static uint64_t read(tx_flat *f, size_t at, int bytes)
{
    const uint8_t *from = bytes_at(f, at, (size_t)bytes);
    return from ? tx_fixed_read(from, bytes) : 0;
}

/* The position to which the offset at `at` points. */
static tx_flat_at follow(tx_flat *f, size_t at)
{
    const size_t to = at + (size_t)read(f, at, 4);
    return bytes_at(f, to, 4) ? to : 0;
}

/* The position of a field of a table. A table begins with the distance back to its list of fields. */
static size_t find(tx_flat *f, tx_flat_at table, int field)
{
    if (!table)
        return 0;
    const int64_t list = (int64_t)table - (int32_t)(uint32_t)read(f, table, 4);
    if (list < 0 || f->bad) {
        f->bad = true;
        return 0;
    }
    const size_t entry = 4 + 2 * (size_t)field;
    if (entry + 2 > (size_t)read(f, (size_t)list, 2))
        return 0;
    const size_t offset = (size_t)read(f, (size_t)list + entry, 2);
    return offset ? table + offset : 0;
}

tx_flat_at tx_flat_root(tx_flat *flat)
{
    return follow(flat, 0);
}

int64_t tx_flat_int(tx_flat *flat, tx_flat_at table, int field, int bytes, int64_t otherwise)
{
    const size_t at = find(flat, table, field);
    const uint64_t value = at ? read(flat, at, bytes) : 0;
    if (!at || flat->bad)
        return otherwise;
    const int unused = 64 - 8 * bytes;
    return (int64_t)(value << unused) >> unused;
}

tx_flat_at tx_flat_table(tx_flat *flat, tx_flat_at table, int field)
{
    const size_t at = find(flat, table, field);
    return at ? follow(flat, at) : 0;
}

tx_flat_at tx_flat_vector(tx_flat *flat, tx_flat_at table, int field, size_t bytes, size_t *count)
{
    const tx_flat_at at = tx_flat_table(flat, table, field);
    *count = at ? (size_t)read(flat, at, 4) : 0;
    if (!at || !bytes_at(flat, at + 4, *count * bytes)) {
        *count = 0;
        return 0;
    }
    return at + 4;
}

tx_flat_at tx_flat_item(tx_flat *flat, tx_flat_at items, size_t index)
{
    return items ? follow(flat, items + 4 * index) : 0;
}
