/* SPDX-License-Identifier: Apache-2.0
 * Writes GGUF files as a stream: the header from values and a list of tensors, then the data. */
#include "models/gguf/gguf_file.h"

#include "api/base/file.h"
#include "models/gguf/gguf_header.h"
#include "models/tokenizer/buffer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 3

struct tx_gguf_writer {
    tx_buffer values;
    uint64_t count;   /* of values */
    tx_status status; /* the first failure of a value */
    tx_file *file;
    int64_t *left;   /* bytes of data that each tensor still needs */
    int64_t written; /* of the current tensor */
    int32_t tensors, now;
};

static void add_u32(tx_buffer *to, uint32_t value)
{
    tx_buffer_add(to, (const char *)&value, sizeof value);
}

static void add_u64(tx_buffer *to, uint64_t value)
{
    tx_buffer_add(to, (const char *)&value, sizeof value);
}

static void add_string(tx_buffer *to, const char *value, size_t size)
{
    add_u64(to, size);
    tx_buffer_add(to, value, size);
}

/* ---- Values ------------------------------------------------------------------------------------------ */

tx_status tx_gguf_create(tx_gguf_writer **writer)
{
    tx_gguf_writer *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory to write a GGUF file");
    *writer = created;
    return TX_OK;
}

static void begin_value(tx_gguf_writer *w, const char *key, tx_gguf_value type)
{
    add_string(&w->values, key, strlen(key));
    add_u32(&w->values, (uint32_t)type);
    w->count++;
}

static void refuse(tx_gguf_writer *w, const char *key, double value)
{
    if (!w->status)
        w->status = tx_fail(TX_UNSUPPORTED, "%s: %g cannot be written to a GGUF file", key, value);
}

void tx_gguf_put_int(tx_gguf_writer *writer, const char *key, int64_t value)
{
    if (value < 0 || value > UINT32_MAX)
        refuse(writer, key, (double)value);
    begin_value(writer, key, TX_GGUF_VALUE_U32);
    add_u32(&writer->values, (uint32_t)value);
}

void tx_gguf_put_number(tx_gguf_writer *writer, const char *key, double value)
{
    if (!isfinite((float)value))
        refuse(writer, key, value);
    begin_value(writer, key, TX_GGUF_VALUE_F32);
    tx_gguf_add_f32(writer, (float)value);
}

void tx_gguf_put_bool(tx_gguf_writer *writer, const char *key, bool value)
{
    begin_value(writer, key, TX_GGUF_VALUE_BOOL);
    tx_buffer_add(&writer->values, value ? "\1" : "\0", 1);
}

void tx_gguf_put_string(tx_gguf_writer *writer, const char *key, const char *value, size_t size)
{
    begin_value(writer, key, TX_GGUF_VALUE_STRING);
    add_string(&writer->values, value, size);
}

void tx_gguf_put_array(tx_gguf_writer *writer, const char *key, tx_gguf_value type, int64_t count)
{
    begin_value(writer, key, TX_GGUF_VALUE_ARRAY);
    add_u32(&writer->values, (uint32_t)type);
    add_u64(&writer->values, (uint64_t)count);
}

void tx_gguf_add_bytes(tx_gguf_writer *writer, const char *bytes, size_t size)
{
    tx_buffer_add(&writer->values, bytes, size);
}

void tx_gguf_add_i32(tx_gguf_writer *writer, int32_t value)
{
    add_u32(&writer->values, (uint32_t)value);
}

void tx_gguf_add_f32(tx_gguf_writer *writer, float value)
{
    tx_buffer_add(&writer->values, (const char *)&value, sizeof value);
}

void tx_gguf_add_string(tx_gguf_writer *writer, const char *value, size_t size)
{
    add_string(&writer->values, value, size);
}

/* ---- The file ---------------------------------------------------------------------------------------- */

static int64_t padding(int64_t bytes)
{
    return (TX_GGUF_ALIGNMENT - bytes % TX_GGUF_ALIGNMENT) % TX_GGUF_ALIGNMENT;
}

static tx_status pad(tx_file *file, int64_t bytes)
{
    static const char zeros[TX_GGUF_ALIGNMENT];
    return tx_file_append(file, zeros, (size_t)padding(bytes));
}

static void add_tensors(const tx_gguf_tensor *tensors, int32_t count, tx_buffer *to)
{
    int64_t offset = 0;
    for (int32_t i = 0; i < count; i++) {
        const tx_gguf_tensor *t = &tensors[i];
        add_string(to, t->name, strlen(t->name));
        add_u32(to, (uint32_t)t->rank);
        for (int32_t d = t->rank - 1; d >= 0; d--)
            add_u64(to, (uint64_t)t->dim[d]);
        add_u32(to, (uint32_t)tx_gguf_type_number(t->dtype));
        add_u64(to, (uint64_t)offset);
        offset += tx_gguf_bytes(t) + padding(tx_gguf_bytes(t));
    }
}

static tx_status write_header(tx_gguf_writer *w, const char *path, const tx_gguf_tensor *tensors, int32_t count)
{
    tx_buffer header = {0};
    tx_buffer_add(&header, "GGUF", 4);
    add_u32(&header, VERSION);
    add_u64(&header, (uint64_t)count);
    add_u64(&header, w->count);
    tx_buffer_add(&header, w->values.data, w->values.size);
    add_tensors(tensors, count, &header);
    tx_status status = w->values.status ? w->values.status : header.status;
    TX_THEN(status, tx_file_create_output(path, &w->file));
    TX_THEN(status, tx_file_append(w->file, header.data, header.size));
    TX_THEN(status, pad(w->file, (int64_t)header.size));
    free(header.data);
    return status;
}

tx_status tx_gguf_begin(tx_gguf_writer *writer, const char *path, const tx_gguf_tensor *tensors, int32_t count)
{
    TX_TRY(writer->status);
    writer->left = calloc((size_t)count + 1, sizeof *writer->left);
    if (!writer->left)
        return tx_fail(TX_MEMORY, "%s: no memory to write it", path);
    for (int32_t i = 0; i < count; i++)
        writer->left[i] = tx_gguf_bytes(&tensors[i]);
    writer->tensors = count;
    TX_TRY(write_header(writer, path, tensors, count));
    free(writer->values.data);
    writer->values = (tx_buffer){0};
    return TX_OK;
}

tx_status tx_gguf_append(tx_gguf_writer *writer, const void *data, size_t bytes)
{
    int64_t *left = &writer->left[writer->now];
    if (writer->now >= writer->tensors || (int64_t)bytes > *left)
        return tx_fail(TX_INVALID, "GGUF writer: more data than tensor %" PRId32 " can hold", writer->now);
    TX_TRY(tx_file_append(writer->file, data, bytes));
    *left -= (int64_t)bytes;
    writer->written += (int64_t)bytes;
    if (*left > 0)
        return TX_OK;
    const int64_t written = writer->written;
    writer->written = 0;
    writer->now++;
    return pad(writer->file, written);
}

tx_status tx_gguf_commit(tx_gguf_writer *writer)
{
    tx_status status = TX_OK;
    if (writer->now < writer->tensors) {
        status = tx_fail(TX_INVALID, "GGUF writer: tensor %" PRId32 " of %" PRId32 " got no data", writer->now,
                         writer->tensors);
    } else {
        status = tx_file_commit(writer->file);
        writer->file = NULL;
    }
    tx_gguf_discard(writer);
    return status;
}

void tx_gguf_discard(tx_gguf_writer *writer)
{
    if (!writer)
        return;
    tx_file_discard(writer->file);
    free(writer->values.data);
    free(writer->left);
    free(writer);
}
