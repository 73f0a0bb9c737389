/* SPDX-License-Identifier: Apache-2.0
 * Writes safetensors files as a stream: the header from a list of tensors, then the data. */
#include "models/files/safetensors_header.h"

#include "api/base/arithmetic.h"
#include "api/base/file.h"
#include "models/files/stage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The data start at a multiple of this. */
#define ALIGNMENT 8

struct tx_st_writer {
    tx_file *file;             /* or NULL with `next` */
    char *next;                /* the place of the next bytes in a stage, or NULL */
    int64_t expected, written; /* bytes of data */
};

/* Appends to the file, or to its place in a stage. tx_st_next may have put the data there. */
static tx_status append(tx_st_writer *writer, const void *data, size_t size)
{
    if (!writer->next)
        return tx_file_append(writer->file, data, size);
    if (data != writer->next)
        memcpy(writer->next, data, size);
    writer->next += size;
    return TX_OK;
}

/* Adds "name": {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}. The
 * shape gets its owner before it is filled, so that a failure leaks nothing. */
static tx_status describe(const tx_st_tensor *tensor, tx_json *header, int64_t *offset)
{
    int64_t bytes;
    if (tensor->rank < 0 || tensor->rank > TX_ST_MAX_RANK || tensor->dtype >= TX_ST_COUNT)
        return tx_fail(TX_INVALID, "tensor %s: no such dtype, or over %d dimensions", tensor->name, TX_ST_MAX_RANK);
    for (int32_t i = 0; i < tensor->rank; i++)
        if (tensor->dim[i] < 0)
            return tx_fail(TX_INVALID, "tensor %s: a negative dimension", tensor->name);
    TX_TRY(tx_fail_in(tx_st_size(tensor, &bytes), "tensor %s", tensor->name));
    if (bytes > INT64_MAX - *offset)
        return tx_fail(TX_INVALID, "tensor %s: all tensors together are over 2^63 bytes", tensor->name);
    tx_json *shape = tx_json_array(), *entry;
    entry = tx_json_pack("{s:s, s:o, s:[I, I]}", "dtype", tx_st_dtype_name(tensor->dtype), "shape", shape,
                         "data_offsets", *offset, *offset + bytes);
    TX_TRY(tx_json_set(header, tensor->name, entry));
    for (int32_t i = 0; i < tensor->rank; i++)
        TX_TRY(tx_json_append_int(shape, tensor->dim[i]));
    *offset += bytes;
    return TX_OK;
}

static tx_status build_header(const tx_st_tensor *tensors, int32_t count, tx_json *header, int64_t *bytes)
{
    TX_TRY(tx_json_set(header, "__metadata__", tx_json_pack("{s:s}", "format", "pt")));
    for (int32_t i = 0; i < count; i++) {
        if (tx_json_has(header, tensors[i].name))
            return tx_fail(TX_INVALID, "tensor %s occurs twice", tensors[i].name);
        TX_TRY(describe(&tensors[i], header, bytes));
    }
    return TX_OK;
}

/* Creates the file. Writes length and text, and pads with spaces to the next multiple of 8. */
static tx_status write_header(const char *path, tx_st_writer *writer, const char *text)
{
    const size_t size = strlen(text), padded = (size_t)tx_round_up((int64_t)size, ALIGNMENT);
    unsigned char length[8];
    for (size_t i = 0; i < sizeof length; i++)
        length[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    if (tx_stage_used)
        writer->next = tx_stage_place(tx_stage_used, path, (int64_t)(sizeof length + padded) + writer->expected);
    if (!writer->next)
        TX_TRY(tx_file_create(path, &writer->file));
    TX_TRY(append(writer, length, sizeof length));
    TX_TRY(append(writer, text, size));
    return append(writer, "       ", padded - size);
}

static tx_status begin(const char *path, const tx_json *header, tx_st_writer *writer)
{
    char *text = tx_json_text(header, TX_JSON_LINE);
    if (!text)
        return TX_MEMORY;
    const tx_status status = write_header(path, writer, text);
    free(text);
    return status;
}

tx_status tx_st_create(const char *path, const tx_st_tensor *tensors, int32_t count, tx_st_writer **writer)
{
    tx_st_writer *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "%s: no memory to write it", path);
    tx_json *header = tx_json_object();
    tx_status status = tx_fail_in(build_header(tensors, count, header, &created->expected), "%s", path);
    TX_THEN(status, begin(path, header, created));
    tx_json_free(header);
    return TX_RETURN(status, created, writer, tx_st_discard);
}

void *tx_st_next(const tx_st_writer *writer, size_t bytes)
{
    return (int64_t)bytes <= writer->expected - writer->written ? writer->next : NULL;
}

tx_status tx_st_append(tx_st_writer *writer, const void *data, size_t bytes)
{
    if ((int64_t)bytes > writer->expected - writer->written)
        return tx_fail(TX_INVALID, "safetensors writer: more data than the header declares (%" PRId64 " bytes)",
                       writer->expected);
    TX_TRY(append(writer, data, bytes));
    writer->written += (int64_t)bytes;
    return TX_OK;
}

tx_status tx_st_commit(tx_st_writer *writer)
{
    if (writer->written != writer->expected) {
        tx_fail(TX_INVALID, "safetensors writer: got %" PRId64 " bytes of data, the header declares %" PRId64,
                writer->written, writer->expected);
        tx_st_discard(writer);
        return TX_INVALID;
    }
    const tx_status status = writer->next ? TX_OK : tx_file_commit(writer->file);
    free(writer);
    return status;
}

void tx_st_discard(tx_st_writer *writer)
{
    if (!writer)
        return;
    tx_file_discard(writer->file);
    free(writer);
}

tx_status tx_st_end(tx_st_writer *writer, tx_status status)
{
    if (!status)
        return tx_st_commit(writer);
    tx_st_discard(writer);
    return status;
}
