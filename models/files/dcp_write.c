/* SPDX-License-Identifier: Apache-2.0
 * Writes distributed checkpoints of PyTorch, see dcp.h. */
#include "models/files/dcp.h"

#include "api/base/file.h"
#include "models/tx_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* The signatures and fixed parts of records of zip archives, and their version, which has 64-bit sizes. */
enum { LOCAL = 0x04034b50, DESCRIPTOR = 0x08074b50, CENTRAL = 0x02014b50, END_64 = 0x06064b50, LOCATOR = 0x07064b50 };
enum { END = 0x06054b50, VERSION = 45, CRC_FOLLOWS = 8, REST_OF_END_64 = 44, SIZES_64 = 16 };
#define IN_64 UINT32_MAX /* a size that the 64-bit field has */
#define FILE_NAME 32

static const struct type {
    tx_st_dtype dtype;
    const char *name, *storage;
} types[] = {{TX_ST_F32, "float32", "Float"},  {TX_ST_F16, "float16", "Half"}, {TX_ST_BF16, "bfloat16", "BFloat16"},
             {TX_ST_F64, "float64", "Double"}, {TX_ST_I64, "int64", "Long"},   {TX_ST_I32, "int32", "Int"},
             {TX_ST_I16, "int16", "Short"},    {TX_ST_I8, "int8", "Char"},     {TX_ST_U8, "uint8", "Byte"},
             {TX_ST_BOOL, "bool", "Bool"}};

/* Where a part is stored. `bytes` is 0 if the rank has none of the tensor. */
typedef struct place {
    int64_t at, bytes;
} place;

/* Bytes in memory. */
typedef struct stream {
    FILE *to;
    char *text;
    size_t size;
} stream;

typedef struct writer {
    const tx_weights *weights, *states; /* no states: NULL */
    const char *folder;
    int32_t ranks, tensors;
    place *place; /* of each tensor for each rank */
    char *buffer; /* for TX_WEIGHTS_CHUNK elements */
    tx_file *file;
    int64_t written; /* to it */
    stream pickle, records;
} writer;

static const struct type *type_of(tx_st_dtype dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype)
            return &types[i];
    return NULL;
}

/* The tensors are the weights, and then the states. `*from` has the tensor as number `*at`. */
static void find(const writer *w, int32_t index, const tx_weights **from, int32_t *at)
{
    const int32_t weights = tx_weights_count(w->weights);
    *from = index < weights ? w->weights : w->states;
    *at = index < weights ? index : index - weights;
}

static const tx_st_tensor *tensor_at(const writer *w, int32_t index)
{
    const tx_weights *from;
    find(w, index, &from, &index);
    return tx_weights_tensor_at(from, index);
}

/* The rows of a tensor that a rank has, as FSDP divides them. A tensor without dimensions is on rank 0. */
static int64_t part_of(const writer *w, const tx_st_tensor *whole, int32_t rank, tx_st_tensor *part)
{
    *part = *whole;
    if (whole->rank == 0)
        return rank == 0 ? 0 : -1;
    const int64_t rows = whole->dim[0], most = (rows + w->ranks - 1) / w->ranks, first = most * rank;
    part->dim[0] = first >= rows ? 0 : first + most > rows ? rows - first : most;
    return part->dim[0] > 0 ? first : -1;
}

/* ---- Pickles --------------------------------------------------------------------------------------- */

static void put(FILE *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        putc((int)(value >> 8 * i & 0xFF), to);
}

static void put_number(FILE *to, int64_t value)
{
    fputs("\x8a\x08", to);
    put(to, (uint64_t)value, 8);
}

static void put_text(FILE *to, const char *text)
{
    putc('X', to);
    put(to, strlen(text), 4);
    fputs(text, to);
}

/* A tuple of sizes or, with `strides`, of the steps between elements. */
static void put_tuple(FILE *to, const tx_st_tensor *t, const int64_t *size, bool strides)
{
    putc('(', to);
    for (int32_t i = 0; i < t->rank; i++) {
        int64_t step = 1;
        for (int32_t k = i + 1; k < t->rank && strides; k++)
            step *= size[k];
        put_number(to, strides ? step : size[i]);
    }
    putc('t', to);
}

static void put_size(FILE *to, const char *name, const tx_st_tensor *t, const int64_t *size)
{
    put_text(to, name);
    fputs("ctorch\nSize\n", to);
    put_tuple(to, t, size, false);
    fputs("\x85R", to);
}

/* Begins an object of a class without arguments, whose attributes follow. */
static void put_object(FILE *to, const char *module, const char *name)
{
    fprintf(to, "ctorch.distributed.checkpoint.%s\n%s\n)\x81}(", module, name);
}

/* The tensor that torch.save() writes. */
static void put_tensor(FILE *to, const tx_st_tensor *t)
{
    fputs("\x80\x02"
          "ctorch._utils\n_rebuild_tensor_v2\n((",
          to);
    put_text(to, "storage");
    fprintf(to, "ctorch\n%sStorage\n", type_of(t->dtype)->storage);
    put_text(to, "0");
    put_text(to, "cpu");
    put_number(to, tx_st_elements(t));
    fputs("tQ", to);
    put_number(to, 0);
    put_tuple(to, t, t->dim, false);
    put_tuple(to, t, t->dim, true);
    fputs("\x89"
          "ccollections\nOrderedDict\n)RtR.",
          to);
}

/* ---- Archives -------------------------------------------------------------------------------------- */

typedef struct member {
    const char *name, *data; /* no data: those of the tensor */
    uint64_t bytes, at;
    uint32_t crc;
} member;

static tx_status append(writer *w, const void *data, size_t bytes)
{
    w->written += (int64_t)bytes;
    return tx_file_append(w->file, data, bytes);
}

/* Completes the text of a stream. The next text replaces it. */
static tx_status end_stream(stream *s)
{
    if (fflush(s->to) || ferror(s->to))
        return tx_fail(TX_MEMORY, "no memory for the tables of a checkpoint");
    rewind(s->to);
    return TX_OK;
}

static tx_status append_records(writer *w)
{
    TX_TRY(end_stream(&w->records));
    return append(w, w->records.text, w->records.size);
}

/* The fields that a local header and an entry of the directory share. */
static void put_fields(FILE *to, const member *m)
{
    put(to, VERSION, 2);
    put(to, m->data ? 0 : CRC_FOLLOWS, 2);
    put(to, 0, 2 + 4); /* not compressed; no date */
    put(to, m->crc, 4);
    put(to, IN_64, 4);
    put(to, IN_64, 4);
    put(to, strlen(m->name), 2);
    put(to, 4 + SIZES_64, 2);
}

static void put_name(FILE *to, const member *m)
{
    fputs(m->name, to);
    put(to, 1, 2);
    put(to, SIZES_64, 2);
    put(to, m->bytes, 8);
    put(to, m->bytes, 8);
}

/* The directory, which starts at `start`, and the records of its end. */
static void put_directory(FILE *to, const member *m, uint64_t count, uint64_t start)
{
    for (uint64_t i = 0; i < count; i++) {
        put(to, CENTRAL, 4);
        put(to, VERSION, 2);
        put_fields(to, &m[i]);
        put(to, 0, 2 + 2 + 2 + 4); /* no comment; on disk 0; no attributes */
        put(to, m[i].at, 4);
        put_name(to, &m[i]);
    }
    const uint64_t size = (uint64_t)ftell(to);
    put(to, END_64, 4);
    put(to, REST_OF_END_64, 8);
    put(to, VERSION, 2);
    put(to, VERSION, 2);
    put(to, 0, 8); /* on disk 0 */
    put(to, count, 8);
    put(to, count, 8);
    put(to, size, 8);
    put(to, start, 8);
    put(to, LOCATOR, 4);
    put(to, 0, 4);
    put(to, start + size, 8);
    put(to, 1, 4);
    put(to, END, 4);
    put(to, 0, 4);
    put(to, count, 2);
    put(to, count, 2);
    put(to, size, 4);
    put(to, IN_64, 4);
    put(to, 0, 2);
}

/* Copies elements of a tensor, and computes their checksum. */
static tx_status copy_data(writer *w, int32_t index, int64_t first, int64_t count, uint32_t *crc)
{
    const int64_t width = tx_st_dtype_bits(tensor_at(w, index)->dtype) / 8;
    const tx_weights *from;
    int32_t at;
    find(w, index, &from, &at);
    for (int64_t now; count > 0; count -= now, first += now) {
        now = count < TX_WEIGHTS_CHUNK ? count : TX_WEIGHTS_CHUNK;
        TX_TRY(tx_weights_read_stored(from, at, first, now, w->buffer));
        *crc = (uint32_t)crc32(*crc, (const Bytef *)w->buffer, (uInt)(now * width));
        TX_TRY(append(w, w->buffer, (size_t)(now * width)));
    }
    return TX_OK;
}

/* Writes the archive of a part to the file. */
static tx_status write_archive(writer *w, int32_t index, const tx_st_tensor *part, int64_t first)
{
    const int64_t begin = w->written, elements = tx_st_elements(part);
    FILE *const to = w->records.to;
    put_tensor(w->pickle.to, part);
    TX_TRY(end_stream(&w->pickle));
    member m[] = {{"archive/data.pkl", w->pickle.text, w->pickle.size, 0, 0},
                  {"archive/byteorder", "little", strlen("little"), 0, 0},
                  {"archive/version", "3\n", strlen("3\n"), 0, 0},
                  {"archive/data/0", NULL, (uint64_t)tx_st_bytes(part), 0, 0}};
    const int count = sizeof m / sizeof *m;
    for (int i = 0; i < count; i++) {
        m[i].at = (uint64_t)(w->written - begin);
        if (m[i].data)
            m[i].crc = (uint32_t)crc32(0, (const Bytef *)m[i].data, (uInt)m[i].bytes);
        put(to, LOCAL, 4);
        put_fields(to, &m[i]);
        put_name(to, &m[i]);
        TX_TRY(append_records(w));
        TX_TRY(m[i].data ? append(w, m[i].data, m[i].bytes) : copy_data(w, index, first, elements, &m[i].crc));
    }
    put(to, DESCRIPTOR, 4);
    put(to, m[count - 1].crc, 4);
    put(to, m[count - 1].bytes, 8);
    put(to, m[count - 1].bytes, 8);
    TX_TRY(append_records(w));
    put_directory(to, m, (uint64_t)count, (uint64_t)(w->written - begin));
    return append_records(w);
}

/* ---- Metadata -------------------------------------------------------------------------------------- */

/* The name of a tensor in the checkpoint: after those of its dictionaries. */
static void put_fqn(FILE *to, const writer *w, int32_t index)
{
    char name[TX_WEIGHTS_NAME + sizeof "optimizer.state."];
    const bool is_weight = index < tx_weights_count(w->weights);
    snprintf(name, sizeof name, "%s%s", is_weight ? "model." : "optimizer.state.", tensor_at(w, index)->name);
    put_text(to, name);
}

/* How the names of a tensor are nested. The name of a state is that of its parameter and its own. */
static void put_path(FILE *to, const writer *w, int32_t index)
{
    char name[TX_WEIGHTS_NAME];
    snprintf(name, sizeof name, "%s", tensor_at(w, index)->name);
    putc('(', to);
    if (index < tx_weights_count(w->weights)) {
        put_text(to, "model");
        put_text(to, name);
    } else {
        char *dot = strrchr(name, '.');
        *dot = '\0';
        put_text(to, "optimizer");
        put_text(to, "state");
        put_text(to, name);
        put_text(to, dot + 1);
    }
    putc('t', to);
}

/* The file of a rank. */
static void name_file(int32_t rank, char name[FILE_NAME])
{
    snprintf(name, FILE_NAME, "__%" PRId32 "_0.distcp", rank);
}

static void put_tensor_metadata(FILE *to, const writer *w, int32_t index)
{
    const tx_st_tensor *t = tensor_at(w, index);
    put_fqn(to, w, index);
    put_object(to, "metadata", "TensorStorageMetadata");
    put_text(to, "properties");
    fputs("ctorch.distributed.checkpoint.metadata\nTensorProperties\n)\x81(", to);
    fprintf(to, "ctorch\n%s\nctorch.serialization\n_get_layout\n", type_of(t->dtype)->name);
    put_text(to, "torch.strided");
    fputs("\x85R\x89"
          "ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\nK",
          to);
    put(to, 0, 1);
    fputs("\x85R\x89tb", to);
    put_size(to, "size", t, t->dim);
    put_text(to, "chunks");
    fputs("](", to);
    for (int32_t r = 0; r < w->ranks; r++) {
        tx_st_tensor part;
        const int64_t offset[TX_ST_MAX_RANK] = {part_of(w, t, r, &part)};
        if (offset[0] < 0)
            continue;
        put_object(to, "metadata", "ChunkStorageMetadata");
        put_size(to, "offsets", t, offset);
        put_size(to, "sizes", t, part.dim);
        fputs("ub", to);
    }
    fputs("eub", to);
}

/* Where each part is stored. */
static void put_storage(FILE *to, const writer *w, int32_t index)
{
    const tx_st_tensor *t = tensor_at(w, index);
    for (int32_t r = 0, parts = 0; r < w->ranks; r++) {
        tx_st_tensor part;
        const int64_t offset[TX_ST_MAX_RANK] = {part_of(w, t, r, &part)};
        const place *at = &w->place[(int64_t)r * w->tensors + index];
        char name[FILE_NAME];
        name_file(r, name);
        if (offset[0] < 0)
            continue;
        put_object(to, "metadata", "MetadataIndex");
        put_text(to, "fqn");
        put_fqn(to, w, index);
        put_text(to, "index");
        put_number(to, parts++);
        put_size(to, "offset", t, offset);
        fputs("ub", to);
        put_object(to, "filesystem", "_StorageInfo");
        put_text(to, "relative_path");
        put_text(to, name);
        put_text(to, "offset");
        put_number(to, at->at);
        put_text(to, "length");
        put_number(to, at->bytes);
        fputs("ub", to);
    }
}

static tx_status write_metadata(writer *w)
{
    FILE *const to = w->pickle.to;
    fputs("\x80\x02", to);
    put_object(to, "metadata", "Metadata");
    put_text(to, "state_dict_metadata");
    fputs("}(", to);
    for (int32_t i = 0; i < w->tensors; i++)
        put_tensor_metadata(to, w, i);
    putc('u', to);
    put_text(to, "planner_data");
    fputs("}(", to);
    for (int32_t i = 0; i < w->tensors; i++) {
        put_fqn(to, w, i);
        put_path(to, w, i);
    }
    putc('u', to);
    put_text(to, "storage_data");
    fputs("}(", to);
    for (int32_t i = 0; i < w->tensors; i++)
        put_storage(to, w, i);
    fputs("uub.", to);
    TX_TRY(end_stream(&w->pickle));
    return tx_file_write(TX_PATH(w->folder, TX_DCP_METADATA), w->pickle.text, w->pickle.size);
}

/* ---- Files ----------------------------------------------------------------------------------------- */

static tx_status write_parts(writer *w, int32_t rank, const tx_reporter *report, const char *path)
{
    for (int32_t i = 0; i < w->tensors; i++) {
        tx_st_tensor part;
        place *at = &w->place[(int64_t)rank * w->tensors + i];
        const tx_st_tensor *whole = tensor_at(w, i);
        const int64_t row = part_of(w, whole, rank, &part);
        if (row < 0)
            continue;
        at->at = w->written;
        TX_TRY(write_archive(w, i, &part, row > 0 ? row * (tx_st_elements(whole) / whole->dim[0]) : 0));
        at->bytes = w->written - at->at;
        tx_report_progress(report, path, (int64_t)rank * w->tensors + i + 1, (int64_t)w->ranks * w->tensors);
    }
    return TX_OK;
}

static tx_status write_rank(writer *w, int32_t rank, const tx_reporter *report)
{
    char name[FILE_NAME];
    name_file(rank, name);
    const char *path = TX_PATH(w->folder, name);
    TX_TRY(tx_file_create(path, &w->file));
    w->written = 0;
    const tx_status status = write_parts(w, rank, report, path);
    return tx_file_end(w->file, status);
}

static tx_status write_all(writer *w, const tx_reporter *report)
{
    if (tx_file_exists(TX_PATH(w->folder, TX_DCP_METADATA)))
        return tx_fail(TX_INVALID, "%s: already holds a checkpoint: choose another folder", w->folder);
    for (int32_t i = 0; i < w->tensors; i++) {
        const tx_st_tensor *t = tensor_at(w, i);
        if (!type_of(t->dtype) || strlen(t->name) >= TX_WEIGHTS_NAME)
            return tx_fail(TX_UNSUPPORTED, "%s: tensor %.100s of type %s: distributed checkpoints do not have it",
                           tx_weights_path(w->weights), t->name, tx_st_dtype_name(t->dtype));
    }
    w->place = calloc((size_t)w->ranks * (size_t)w->tensors + 1, sizeof *w->place);
    w->buffer = malloc(TX_WEIGHTS_CHUNK * sizeof(double));
    w->pickle.to = open_memstream(&w->pickle.text, &w->pickle.size);
    w->records.to = open_memstream(&w->records.text, &w->records.size);
    if (!w->place || !w->buffer || !w->pickle.to || !w->records.to)
        return tx_fail(TX_MEMORY, "%s: no memory to write a checkpoint", w->folder);
    TX_TRY(tx_folder_create(w->folder));
    for (int32_t r = 0; r < w->ranks; r++)
        TX_TRY(write_rank(w, r, report));
    return write_metadata(w);
}

static void close_stream(stream *s)
{
    if (s->to)
        fclose(s->to);
    free(s->text);
}

tx_status tx_dcp_write(const tx_weights *weights, const tx_weights *states, const char *folder, int32_t ranks,
                       const tx_reporter *report)
{
    writer w = {.weights = weights, .states = states, .folder = folder, .ranks = ranks};
    w.tensors = tx_weights_count(weights) + (states ? tx_weights_count(states) : 0);
    const tx_status status = write_all(&w, report);
    close_stream(&w.pickle);
    close_stream(&w.records);
    free(w.place);
    free(w.buffer);
    return status;
}
