/* SPDX-License-Identifier: Apache-2.0
 * Thrift's compact protocol (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md). */
#include "models/parquet/thrift.h"

#include "models/files/varint.h"

/* Structs within structs that are skipped; Parquet's headers have fewer than ten. */
#define DEPTH 32

static uint8_t read_byte(tx_thrift *t)
{
    if (t->at == t->end)
        t->bad = true;
    return t->bad ? 0 : *t->at++;
}

static uint64_t read_varint(tx_thrift *t)
{
    uint64_t value = 0;
    t->bad = t->bad || !tx_varint_read(&t->at, t->end, &value);
    return t->bad ? 0 : value;
}

bool tx_thrift_next(tx_thrift *t, tx_thrift_field *field)
{
    const uint8_t header = read_byte(t);
    if (t->bad || header == 0)
        return false;
    field->type = header & 0x0F;
    const int64_t id = header >> 4 ? field->id + (header >> 4) : tx_zigzag(read_varint(t));
    t->bad |= id < 0 || id > INT16_MAX;
    field->id = (int16_t)id;
    return !t->bad;
}

int64_t tx_thrift_int(tx_thrift *t, tx_thrift_field field)
{
    if (field.type == TX_THRIFT_BYTE)
        return (int8_t)read_byte(t);
    t->bad |= field.type < TX_THRIFT_I16 || field.type > TX_THRIFT_I64;
    return t->bad ? 0 : tx_zigzag(read_varint(t));
}

bool tx_thrift_bool(tx_thrift *t, tx_thrift_field field)
{
    t->bad |= field.type != TX_THRIFT_TRUE && field.type != TX_THRIFT_FALSE;
    return !t->bad && field.type == TX_THRIFT_TRUE;
}

static const uint8_t *read_bytes(tx_thrift *t, uint64_t size)
{
    if (size > (uint64_t)(t->end - t->at))
        t->bad = true;
    if (t->bad)
        return NULL;
    const uint8_t *bytes = t->at;
    t->at += size;
    return bytes;
}

const uint8_t *tx_thrift_binary(tx_thrift *t, tx_thrift_field field, size_t *size)
{
    t->bad |= field.type != TX_THRIFT_BINARY;
    const uint64_t bytes = t->bad ? 0 : read_varint(t);
    const uint8_t *data = read_bytes(t, bytes);
    *size = data ? (size_t)bytes : 0;
    return data;
}

size_t tx_thrift_list(tx_thrift *t, tx_thrift_field field, tx_thrift_field *element)
{
    t->bad |= field.type != TX_THRIFT_LIST && field.type != TX_THRIFT_SET;
    const uint8_t header = t->bad ? 0 : read_byte(t);
    uint64_t count = header >> 4;
    if (count == 15)
        count = read_varint(t);
    *element = (tx_thrift_field){.type = header & 0x0F};
    t->bad |= count > (uint64_t)(t->end - t->at);
    return t->bad ? 0 : (size_t)count;
}

void tx_thrift_struct(tx_thrift *t, tx_thrift_field field)
{
    t->bad |= field.type != TX_THRIFT_STRUCT;
}

static void skip(tx_thrift *t, uint8_t type, int depth);

/* Elements have a truth in a byte of its own, fields have it in their header. */
static void skip_element(tx_thrift *t, uint8_t type, int depth)
{
    if (type == TX_THRIFT_TRUE || type == TX_THRIFT_FALSE)
        read_byte(t);
    else
        skip(t, type, depth);
}

static void skip_map(tx_thrift *t, int depth)
{
    const uint64_t count = read_varint(t);
    const uint8_t types = count ? read_byte(t) : 0;
    for (uint64_t i = 0; i < count && !t->bad; i++) {
        skip_element(t, types >> 4, depth);
        skip_element(t, types & 0x0F, depth);
    }
}

static void skip_list(tx_thrift *t, int depth)
{
    tx_thrift_field element;
    const size_t count = tx_thrift_list(t, (tx_thrift_field){.type = TX_THRIFT_LIST}, &element);
    for (size_t i = 0; i < count && !t->bad; i++)
        skip_element(t, element.type, depth);
}

static void skip_struct(tx_thrift *t, int depth)
{
    tx_thrift_field field = {0};
    while (tx_thrift_next(t, &field))
        skip(t, field.type, depth);
}

static void skip(tx_thrift *t, uint8_t type, int depth)
{
    t->bad |= depth == DEPTH;
    if (t->bad)
        return;
    switch (type) {
    case TX_THRIFT_TRUE:
    case TX_THRIFT_FALSE:
        break;
    case TX_THRIFT_BYTE:
        read_byte(t);
        break;
    case TX_THRIFT_I16:
    case TX_THRIFT_I32:
    case TX_THRIFT_I64:
        read_varint(t);
        break;
    case TX_THRIFT_DOUBLE:
        read_bytes(t, 8);
        break;
    case TX_THRIFT_BINARY:
        read_bytes(t, read_varint(t));
        break;
    case TX_THRIFT_LIST:
    case TX_THRIFT_SET:
        skip_list(t, depth + 1);
        break;
    case TX_THRIFT_MAP:
        skip_map(t, depth + 1);
        break;
    case TX_THRIFT_STRUCT:
        skip_struct(t, depth + 1);
        break;
    default:
        t->bad = true;
        break;
    }
}

void tx_thrift_skip(tx_thrift *t, tx_thrift_field field)
{
    skip(t, field.type, 0);
}

void tx_thrift_take(tx_thrift *t, tx_thrift_field field, int64_t *const *to, size_t count)
{
    if ((size_t)field.id < count && to[field.id])
        *to[field.id] = tx_thrift_int(t, field);
    else
        tx_thrift_skip(t, field);
}
