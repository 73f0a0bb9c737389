/* SPDX-License-Identifier: Apache-2.0
 * Pages of Parquet columns: headers, compression, levels, dictionaries. */
#include "models/parquet/pages.h"

#include "models/parquet/thrift.h"
#include "models/parquet/unpack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <zlib.h>

/* Bytes that are read for a page's header first, and at most. Statistics within it may be long. */
#define HEADER_FIRST 256
#define HEADER_MOST (1 << 24)
/* Bounds of a page's size, so that a small file cannot exhaust the memory: bytes and entries of any page, and more for
 * each stored byte. Writers make pages of about 1 MiB, and row groups of up to 2^20 rows. */
#define PAGE_BYTES ((int64_t)4 << 20)
#define PAGE_RATIO 1024
#define ENTRIES ((int64_t)3 << 19)
#define ENTRY_RATIO 64

enum { DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 };

typedef struct page {
    int64_t type, bytes, stored_bytes, crc;
    bool has_crc, compressed;
    int64_t entries, encoding, def_encoding, rep_encoding, def_bytes, rep_bytes;
} page;

static tx_status fail(const tx_pq_column *c, const char *fault)
{
    return tx_fail(TX_FORMAT, "%s: column %s, page at byte %" PRId64 ": %s", c->file->path, c->leaf->name, c->at,
                   fault);
}

/* ---- Headers ------------------------------------------------------------------------------------------------- */

/* The part of a header that belongs to the kind of page; the numbers of its fields differ by kind. */
static void read_kind(tx_thrift *t, tx_thrift_field field, bool second, page *p)
{
    tx_thrift_struct(t, field);
    int64_t *const numbers[2][7] = {
        {[1] = &p->entries, [2] = &p->encoding, [3] = &p->def_encoding, [4] = &p->rep_encoding},
        {[1] = &p->entries, [4] = &p->encoding, [5] = &p->def_bytes, [6] = &p->rep_bytes}};
    for (tx_thrift_field f = {0}; tx_thrift_next(t, &f);)
        if (f.id == 7 && second)
            p->compressed = tx_thrift_bool(t, f);
        else if (f.id == 3 && f.type != TX_THRIFT_I32) /* of a dictionary: whether it is sorted */
            tx_thrift_skip(t, f);
        else
            tx_thrift_take(t, f, numbers[second], 7);
}

static void parse_header(tx_thrift *t, page *p)
{
    *p = (page){.type = -1, .compressed = true, .def_encoding = TX_PQ_RLE, .rep_encoding = TX_PQ_RLE, .entries = -1};
    int64_t *const numbers[] = {[1] = &p->type, [2] = &p->bytes, [3] = &p->stored_bytes, [4] = &p->crc};
    for (tx_thrift_field f = {0}; tx_thrift_next(t, &f);) {
        p->has_crc |= f.id == 4;
        if (f.id == 5 || f.id == 7 || f.id == 8)
            read_kind(t, f, f.id == 8, p);
        else
            tx_thrift_take(t, f, numbers, sizeof numbers / sizeof numbers[0]);
    }
}

/* Reads the header at c->at and the bytes of the page after it, and moves on. */
static tx_status read_page(tx_pq_column *c, page *p)
{
    const int64_t left = c->chunk.end - c->at;
    for (int64_t bytes = HEADER_FIRST;; bytes *= 4) {
        const int64_t ahead = bytes < left ? bytes : left;
        if (ahead <= 0)
            return fail(c, "the column ends too early");
        tx_buffer_clear(&c->stored);
        TX_TRY(tx_buffer_reserve(&c->stored, (size_t)ahead));
        TX_TRY(tx_data_file_read(c->file, c->at, c->stored.data, (size_t)ahead));
        const uint8_t *data = (const uint8_t *)c->stored.data;
        tx_thrift t = {.at = data, .end = data + ahead};
        parse_header(&t, p);
        if (t.bad && ahead < left && ahead < HEADER_MOST)
            continue;
        const int64_t size = t.at - data;
        if (t.bad || p->bytes < 0 || p->stored_bytes < 0 || p->stored_bytes > left - size ||
            p->bytes > PAGE_BYTES + PAGE_RATIO * p->stored_bytes)
            return fail(c, "its header is damaged");
        tx_buffer_clear(&c->stored);
        TX_TRY(tx_buffer_reserve(&c->stored, (size_t)p->stored_bytes + 1));
        TX_TRY(tx_data_file_read(c->file, c->at + size, c->stored.data, (size_t)p->stored_bytes));
        c->stored.size = (size_t)p->stored_bytes;
        if (p->has_crc && (uint32_t)p->crc != (uint32_t)crc32(0, (const Bytef *)c->stored.data, (uInt)p->stored_bytes))
            return fail(c, "its checksum is wrong: the file is damaged");
        c->at += size + p->stored_bytes;
        return TX_OK;
    }
}

/* ---- Compression ----------------------------------------------------------------------------------------------- */

/* Decompresses `size` bytes of a page to exactly `room` bytes and appends them to `to`. */
static tx_status decompress(tx_pq_column *c, const uint8_t *from, size_t size, size_t room, tx_buffer *to)
{
    const char *unread = tx_pq_unread(c->chunk.codec);
    if (unread)
        return tx_fail(TX_UNSUPPORTED,
                       "%s: column %s is compressed with %s; TX reads snappy, gzip, zstd and lz4_raw: write the file "
                       "again with one of these",
                       c->file->path, c->leaf->name, unread);
    TX_TRY(tx_buffer_reserve(to, room + 1));
    if (!tx_pq_unpack((tx_pq_codec)c->chunk.codec, from, size, (uint8_t *)to->data + to->size, room))
        return fail(c, "its compressed data are damaged");
    to->size += room;
    return TX_OK;
}

/* ---- Values ---------------------------------------------------------------------------------------------------- */

static tx_status reserve_entries(tx_pq_column *c, int64_t count)
{
    const size_t room = (size_t)count + 1;
    tx_status status = tx_array_reserve(&c->def, &c->def_room, room, 1, "levels of a page");
    TX_THEN(status, tx_array_reserve(&c->rep, &c->rep_room, room, 1, "levels of a page"));
    TX_THEN(status, tx_array_reserve(&c->number, &c->number_room, room, sizeof *c->number, "levels of a page"));
    TX_THEN(status, tx_array_reserve(&c->value, &c->value_room, room, sizeof *c->value, "values of a page"));
    return tx_fail_in(status, "%s", c->file->path);
}

/* The entries of a dictionary of so many bytes, at most. */
static int64_t dictionary_most(const tx_pq_node *leaf, int64_t bytes)
{
    return leaf->type == TX_PQ_BOOLEAN ? 8 * bytes : leaf->type == TX_PQ_FIXED_BYTES ? bytes : bytes / 4;
}

static tx_status read_dictionary(tx_pq_column *c, const page *p)
{
    if (p->entries < 0 || p->entries > dictionary_most(c->leaf, p->bytes) ||
        (p->encoding != TX_PQ_PLAIN_ENCODING && p->encoding != TX_PQ_PLAIN_DICTIONARY))
        return fail(c, "its header is damaged");
    tx_buffer_clear(&c->dictionary_data);
    TX_TRY(decompress(c, (const uint8_t *)c->stored.data, c->stored.size, (size_t)p->bytes, &c->dictionary_data));
    TX_TRY(tx_fail_in(tx_array_reserve(&c->dictionary, &c->dictionary_room, (size_t)p->entries + 1,
                                       sizeof *c->dictionary, "values of a dictionary"),
                      "%s", c->file->path));
    const uint8_t *data = (const uint8_t *)c->dictionary_data.data;
    const char *fault = tx_pq_decode(c->leaf, TX_PQ_PLAIN_ENCODING, (tx_pq_bytes){data, data + p->bytes}, p->entries,
                                     c->dictionary, NULL);
    c->dictionary_count = fault ? 0 : p->entries;
    return fault ? fail(c, fault) : TX_OK;
}

/* Values of a page that stores numbers of the dictionary. */
static const char *look_up(tx_pq_column *c, tx_pq_bytes in, int64_t count)
{
    if (count == 0)
        return NULL;
    if (in.at == in.end || *in.at > 32)
        return "its values are damaged";
    const int bits = *in.at++;
    const char *fault = tx_pq_decode_runs(&in, bits, count, c->number);
    for (int64_t i = 0; i < count && !fault; i++)
        if (c->number[i] < c->dictionary_count)
            c->value[i] = c->dictionary[c->number[i]];
        else
            fault = "a value is not in the dictionary";
    return fault;
}

/* The levels of one kind. In pages of the first version their bytes begin with their number. */
static const char *read_levels(tx_pq_column *c, tx_pq_bytes *in, int32_t most, int64_t encoding, int64_t bytes,
                               int64_t count, uint8_t *levels)
{
    if (most == 0) {
        memset(levels, 0, (size_t)count);
        return NULL;
    }
    if (encoding != TX_PQ_RLE)
        return "its levels have an encoding that no writer of today uses";
    if (bytes < 0) {
        if (in->end - in->at < 4)
            return "its levels are cut off";
        bytes = (int64_t)tx_fixed_read(in->at, 4);
        in->at += 4;
    }
    if (bytes > in->end - in->at)
        return "its levels are cut off";
    tx_pq_bytes part = {in->at, in->at + bytes};
    in->at += bytes;
    const char *fault = tx_pq_decode_runs(&part, tx_pq_bits((uint32_t)most), count, c->number);
    for (int64_t i = 0; i < count && !fault; i++) {
        levels[i] = (uint8_t)c->number[i];
        if (c->number[i] > (uint32_t)most)
            fault = "its levels are damaged";
    }
    return fault;
}

/* Decompresses a data page. In the second version the levels come first and are never compressed. */
static tx_status unpack_page(tx_pq_column *c, const page *p)
{
    const uint8_t *stored = (const uint8_t *)c->stored.data;
    const int64_t levels = p->type == DATA_PAGE_V2 ? p->def_bytes + p->rep_bytes : 0;
    if (p->def_bytes < 0 || p->rep_bytes < 0 || levels > p->stored_bytes || levels > p->bytes)
        return fail(c, "its header is damaged");
    tx_buffer_clear(&c->data);
    tx_buffer_clear(&c->decoded);
    tx_buffer_add(&c->data, (const char *)stored, (size_t)levels);
    TX_TRY(c->data.status);
    if (p->compressed && p->stored_bytes > levels)
        return decompress(c, stored + levels, (size_t)(p->stored_bytes - levels), (size_t)(p->bytes - levels),
                          &c->data);
    tx_buffer_add(&c->data, (const char *)stored + levels, (size_t)(p->stored_bytes - levels));
    TX_TRY(tx_buffer_reserve(&c->data, 1));
    return TX_OK;
}

static tx_status read_data(tx_pq_column *c, const page *p)
{
    const bool second = p->type == DATA_PAGE_V2;
    if (p->entries < 0 || p->entries > c->left || p->entries > ENTRIES + ENTRY_RATIO * p->stored_bytes)
        return fail(c, "its header is damaged");
    TX_TRY(unpack_page(c, p));
    TX_TRY(reserve_entries(c, p->entries));
    const uint8_t *data = (const uint8_t *)c->data.data;
    tx_pq_bytes in = {data, data + c->data.size};
    const char *fault =
        read_levels(c, &in, c->leaf->rep, p->rep_encoding, second ? p->rep_bytes : -1, p->entries, c->rep);
    if (!fault)
        fault = read_levels(c, &in, c->leaf->def, p->def_encoding, second ? p->def_bytes : -1, p->entries, c->def);
    int64_t values = 0;
    for (int64_t i = 0; i < p->entries && !fault; i++)
        values += c->def[i] == c->leaf->def;
    if (!fault)
        fault = p->encoding == TX_PQ_PLAIN_DICTIONARY || p->encoding == TX_PQ_RLE_DICTIONARY
                    ? look_up(c, in, values)
                    : tx_pq_decode(c->leaf, (tx_pq_encoding)p->encoding, in, values, c->value, &c->decoded);
    if (fault)
        return fail(c, fault);
    c->count = p->entries;
    c->entry = c->next_value = 0;
    c->left -= p->entries;
    return TX_OK;
}

void tx_pq_column_begin(tx_pq_column *column, const tx_data_file *file, const tx_pq_node *leaf,
                        const tx_pq_chunk *chunk)
{
    column->file = file;
    column->leaf = leaf;
    column->chunk = *chunk;
    column->at = chunk->begin;
    column->left = chunk->values;
    column->count = column->entry = column->next_value = column->dictionary_count = 0;
}

tx_status tx_pq_column_fill(tx_pq_column *column)
{
    while (column->entry == column->count) {
        page p = {0};
        if (column->left == 0)
            return fail(column, "the column has fewer values than the row group has rows");
        TX_TRY(read_page(column, &p));
        if (p.type == DICTIONARY_PAGE)
            TX_TRY(read_dictionary(column, &p));
        else if (p.type == DATA_PAGE || p.type == DATA_PAGE_V2)
            TX_TRY(read_data(column, &p));
        else if (p.type != INDEX_PAGE)
            return fail(column, "its header is damaged");
    }
    return TX_OK;
}

void tx_pq_column_free(tx_pq_column *column)
{
    free(column->stored.data);
    free(column->data.data);
    free(column->decoded.data);
    free(column->dictionary_data.data);
    free(column->dictionary);
    free(column->def);
    free(column->rep);
    free(column->value);
    free(column->number);
}
