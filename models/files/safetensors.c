/* SPDX-License-Identifier: Apache-2.0
 * Reads safetensors files, those of torch.save() and distributed checkpoints, and recognizes files of other kinds. */
#include "models/files/safetensors.h"

#include "api/base/half.h"
#include "models/files/data_file.h"
#include "models/files/dcp.h"
#include "models/files/safetensors_header.h"
#include "models/files/varint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors data are little-endian and copied unchanged; this machine is big-endian"
#endif

/* Maximum length of a header, as the format defines it. */
#define HEADER_LIMIT 100000000
/* Elements per conversion. */
#define CHUNK 4096

struct tx_st_file {
    tx_data_file file;
    int64_t data_at; /* offset of the data in the file */
    tx_st_header header;
    tx_dcp *parts; /* of a distributed checkpoint, which hold the data; or NULL */
};

/* ---- Bytes of the file ---------------------------------------------------------------------------- */

static tx_status read_at(const tx_st_file *file, int64_t at, void *data, int64_t bytes)
{
    return file->parts ? tx_dcp_read(file->parts, at, data, bytes)
                       : tx_data_file_read(&file->file, at, data, (size_t)bytes);
}

typedef struct tx_magic {
    const char *begin;
    const char *what;
} tx_magic;

/* Files that are often found instead of weights. */
static const tx_magic magics[] = {
    {"version https://git-lfs", "a git-LFS pointer, not the file itself: fetch it with git lfs pull"},
    {"<", "a web page or XML document (a failed download?), not weights"},
    {"\x80\x02", "a Python pickle: convert it to safetensors"},
    {"\x80\x03", "a Python pickle: convert it to safetensors"},
    {"\x80\x04", "a Python pickle: convert it to safetensors"},
    {"\x80\x05", "a Python pickle: convert it to safetensors"},
    {"GGUF", "a GGUF file, not safetensors: txconvert makes a model folder of it"},
    {"\x89HDF", "an HDF5 file, not safetensors"},
    {"\x1f\x8b", "gzip-compressed: unpack it first"},
};

/* Fails with the kind of the file if it is recognized, else with `why`. Call it only if the header is impossible,
 * because the length of a valid header may start with the same bytes as a page or a pickle. */
static tx_status fail_no_header(const tx_st_file *file, int64_t size, const char *why)
{
    char begin[32] = {0};
    TX_TRY(read_at(file, 0, begin, size < (int64_t)sizeof begin - 1 ? size : (int64_t)sizeof begin - 1));
    const char *text =
        begin + strspn(begin, "\xef\xbb\xbf \t\r\n"); /* a page may start with a byte order mark and blanks */
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++)
        if (strncmp(text, magics[i].begin, strlen(magics[i].begin)) == 0)
            return tx_fail(TX_FORMAT, "%s: %s", file->file.path, magics[i].what);
    return tx_fail(TX_FORMAT, "%s: %s", file->file.path, why);
}

/* ---- Opening ------------------------------------------------------------------------------------ */

static tx_status read_header(tx_st_file *file, int64_t size)
{
    unsigned char prefix[8];
    char why[128];
    if (size < (int64_t)sizeof prefix) {
        snprintf(why, sizeof why, "%" PRId64 " bytes: too short for a safetensors file", size);
        return fail_no_header(file, size, why);
    }
    TX_TRY(read_at(file, 0, prefix, sizeof prefix));
    const uint64_t length = tx_fixed_read(prefix, sizeof prefix);
    if (length > HEADER_LIMIT) {
        snprintf(why, sizeof why,
                 "the header would be %" PRIu64 " bytes long, over the limit of %d: not a safetensors file", length,
                 HEADER_LIMIT);
        return fail_no_header(file, size, why);
    }
    file->data_at = (int64_t)sizeof prefix + (int64_t)length;
    if (file->data_at > size)
        return tx_fail(TX_FORMAT,
                       "%s: the header would end at byte %" PRId64 ", the file ends at %" PRId64 ": it is cut off",
                       file->file.path, file->data_at, size);
    char *text = malloc((size_t)length + 1);
    if (!text)
        return tx_fail(TX_MEMORY, "%s: no memory for its header of %" PRIu64 " bytes", file->file.path, length);
    tx_status status = read_at(file, (int64_t)sizeof prefix, text, (int64_t)length);
    TX_THEN(status, tx_st_header_parse(file->file.path, text, (size_t)length, size - file->data_at, &file->header));
    free(text);
    return status;
}

static tx_status open_file(const char *path, bool states, tx_st_file *file)
{
    TX_TRY(tx_data_file_open(path, &file->file));
    if (tx_dcp_is(path))
        return tx_dcp_open(&file->file, states, &file->header, &file->parts);
    return tx_torch_is(&file->file) ? tx_torch_read(&file->file, &file->header) : read_header(file, file->file.size);
}

static tx_status create(const char *path, bool states, tx_st_file **file)
{
    tx_st_file *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    const tx_status status = open_file(path, states, created);
    return TX_RETURN(status, created, file, tx_st_close);
}

tx_status tx_st_open(const char *path, tx_st_file **file)
{
    return create(path, false, file);
}

tx_status tx_st_open_states(const char *metadata, tx_st_file **file)
{
    return create(metadata, true, file);
}

void tx_st_close(tx_st_file *file)
{
    if (!file)
        return;
    tx_dcp_close(file->parts);
    tx_data_file_close(&file->file);
    tx_st_header_free(&file->header);
    free(file);
}

/* ---- Tensors ------------------------------------------------------------------------------------- */

const char *tx_st_path(const tx_st_file *file)
{
    return file->file.path;
}

int32_t tx_st_count(const tx_st_file *file)
{
    return file->header.count;
}

const tx_st_tensor *tx_st_tensor_at(const tx_st_file *file, int32_t index)
{
    return index >= 0 && index < file->header.count ? &file->header.entry[index].tensor : NULL;
}

tx_status tx_st_find(const tx_st_file *file, const char *name, int32_t *index)
{
    int32_t found = tx_named_find(file->header.by_name, (size_t)file->header.count, name);
    if (found < 0)
        return tx_fail(TX_NOT_FOUND, "%s: has no tensor %s", file->file.path, name);
    *index = found;
    return TX_OK;
}

/* ---- Data ------------------------------------------------------------------------------------------ */

/* Finds the place of elements in the file, and their bytes. */
static tx_status find_elements(const tx_st_file *file, int32_t index, int64_t first, int64_t count, int64_t *at,
                               int64_t *bytes)
{
    if (!tx_st_tensor_at(file, index))
        return tx_fail(TX_INVALID, "%s: tensor index %d is out of range: there are %d", file->file.path, index,
                       file->header.count);
    const tx_st_entry *e = &file->header.entry[index];
    const int64_t elements = tx_st_elements(&e->tensor), bits = tx_st_dtype_bits(e->tensor.dtype);
    if (first < 0 || count < 0 || first > elements || count > elements - first || first * bits % 8 || count * bits % 8)
        return tx_fail(TX_INVALID, "%s: tensor %s has %" PRId64 " elements, %" PRId64 " from %" PRId64 " on requested",
                       file->file.path, e->tensor.name, elements, count, first);
    *at = file->data_at + e->begin + first * bits / 8;
    *bytes = count * bits / 8;
    return TX_OK;
}

tx_status tx_st_read(const tx_st_file *file, int32_t index, int64_t first, int64_t count, void *data)
{
    int64_t at = 0, bytes = 0;
    TX_TRY(find_elements(file, index, first, count, &at, &bytes));
    return read_at(file, at, data, bytes);
}

tx_status tx_st_read_f32(const tx_st_file *file, int32_t index, int64_t first, int64_t count, float *data)
{
    double raw[CHUNK];
    int64_t at = 0, bytes = 0;
    const tx_st_tensor *t = tx_st_tensor_at(file, index);
    const tx_dtype stored = t ? tx_st_stored(t->dtype) : TX_DTYPE_COUNT;
    if (t && t->dtype != TX_ST_F64 && (stored == TX_DTYPE_COUNT || stored == TX_I32))
        return tx_fail(TX_UNSUPPORTED, "%s: tensor %s is %s; only F32, F16, BF16, F64 and U8 can be read as numbers",
                       file->file.path, t->name, tx_st_dtype_name(t->dtype));
    TX_TRY(find_elements(file, index, first, count, &at, &bytes));
    if (stored == TX_F32)
        return read_at(file, at, data, bytes);
    for (int64_t now; count > 0; count -= now, data += now) {
        now = count < CHUNK ? count : CHUNK;
        bytes = now * tx_st_dtype_bits(t->dtype) / 8;
        TX_TRY(read_at(file, at, raw, bytes));
        at += bytes;
        if (t->dtype != TX_ST_F64)
            tx_to_f32(stored, raw, now, data);
        for (int64_t i = 0; i < now && t->dtype == TX_ST_F64; i++)
            data[i] = (float)raw[i];
    }
    return TX_OK;
}
