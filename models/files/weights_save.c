/* SPDX-License-Identifier: Apache-2.0
 * Saves the parameters of a model to one weight file, or to shards with an index, as transformers does. */
#include "models/files/weights.h"

#include "api/base/file.h"
#include "api/base/half.h"
#include "models/files/folder.h"
#include "models/files/stacked.h"
#include "tx_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The name of a shard, and its buffer size. */
#define SHARD_FORMAT "model-%05" PRId32 "-of-%05" PRId32 ".safetensors"
#define SHARD_NAME 64

typedef struct tx_save {
    tx_model *model;
    const char *folder;
    const tx_weights_form *form; /* or NULL */
    int32_t pieces, tensors, shards;
    tx_weights_piece *piece;
    tx_st_tensor *tensor; /* all tensors of the files */
    int32_t *from;        /* for each tensor its piece, or -1 - i for tensor i of the form's files */
    int32_t *shard;       /* for each tensor its shard, ascending */
    float *buffer;
} tx_save;

static void shard_name(const tx_save *s, int32_t shard, char name[SHARD_NAME])
{
    if (s->shards == 1)
        snprintf(name, SHARD_NAME, TX_WEIGHTS_SINGLE);
    else
        snprintf(name, SHARD_NAME, SHARD_FORMAT, shard + 1, s->shards);
}

tx_st_tensor tx_weights_part(const char *name, tx_dtype dtype, const tx_shape *shape)
{
    static const tx_st_dtype types[TX_DTYPE_COUNT] = {
        [TX_F32] = TX_ST_F32, [TX_BF16] = TX_ST_BF16, [TX_F16] = TX_ST_F16, [TX_U8] = TX_ST_U8};
    tx_st_tensor tensor = {.name = name, .dtype = types[tx_dtype_packed(dtype) ? TX_F32 : dtype], .rank = shape->rank};
    memcpy(tensor.dim, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
    return tensor;
}

/* Appends the tensors whose elements have `bits` bits. */
static tx_status list_width(tx_save *s, int32_t bits)
{
    const char *name;
    const tx_param_spec *spec;
    for (int32_t i = 0; i < s->pieces; i++) {
        TX_TRY(tx_model_param(s->model, s->piece[i].param, &name, &spec));
        s->tensor[s->tensors] = tx_weights_part(s->piece[i].name, spec->dtype, &s->piece[i].shape);
        s->from[s->tensors] = i;
        if (s->piece[i].scalar)
            s->tensor[s->tensors].rank = 0;
        s->tensors += tx_st_dtype_bits(s->tensor[s->tensors].dtype) == bits;
    }
    for (int32_t i = 0; s->form && i < tx_weights_count(s->form->files); i++) {
        const tx_st_tensor *t = tx_weights_tensor_at(s->form->files, i);
        if (tx_st_dtype_bits(t->dtype) != bits || !s->form->is_copied(s->form->context, t->name))
            continue;
        s->tensor[s->tensors] = *t;
        s->from[s->tensors++] = -1 - i;
    }
    return TX_OK;
}

static const tx_st_tensor *find_in_form(const void *context, const char *piece)
{
    const tx_weights_form *form = context;
    char name[TX_WEIGHTS_NAME];
    form->name(form->context, piece, name);
    const int32_t index = tx_weights_find(form->files, NULL, name);
    return index < 0 ? NULL : tx_weights_tensor_at(form->files, index);
}

/* Lists all tensors, the pieces under their names in the files. */
static tx_status list_tensors(tx_save *s)
{
    const size_t most = (size_t)s->pieces + (size_t)(s->form ? tx_weights_count(s->form->files) : 0) + 1;
    s->tensor = calloc(most, sizeof *s->tensor);
    s->from = calloc(most, sizeof *s->from);
    s->shard = calloc(most, sizeof *s->shard);
    s->buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *s->buffer);
    if (!s->tensor || !s->from || !s->shard || !s->buffer)
        return tx_fail(TX_MEMORY, "%s: no memory to save a model", s->folder);
    if (s->form)
        tx_stacked_join(s->piece, &s->pieces, find_in_form, s->form);
    for (int32_t i = 0; s->form && i < s->pieces; i++) {
        char name[TX_WEIGHTS_NAME];
        s->form->name(s->form->context, s->piece[i].name, name);
        memcpy(s->piece[i].name, name, sizeof name);
    }
    for (int32_t bits = 64; bits > 0; bits--)
        TX_TRY(list_width(s, bits));
    return TX_OK;
}

/* Divides the tensors into shards. A shard ends before the tensor that would exceed the limit. */
static void cut_shards(tx_save *s, int64_t shard_bytes)
{
    int64_t used = 0;
    for (int32_t i = 0; i < s->tensors; i++) {
        const int64_t bytes = tx_st_bytes(&s->tensor[i]);
        if (used > 0 && bytes > shard_bytes - used) {
            s->shards++;
            used = 0;
        }
        used += bytes;
        s->shard[i] = s->shards;
    }
    s->shards++;
}

tx_status tx_weights_append(tx_model *model, tx_param_role part, int32_t param, int64_t first,
                            const tx_st_tensor *tensor, float *buffer, tx_st_writer *writer)
{
    const int64_t count = tx_st_elements(tensor);
    for (int64_t at = 0; at < count; at += TX_WEIGHTS_CHUNK) {
        int64_t now = count - at < TX_WEIGHTS_CHUNK ? count - at : TX_WEIGHTS_CHUNK;
        const size_t bytes = (size_t)(now * tx_st_dtype_bits(tensor->dtype) / 8);
        float *place = tensor->dtype == TX_ST_F32 ? tx_st_next(writer, bytes) : NULL, *to = place ? place : buffer;
        TX_TRY(tx_model_read_range(model, part, param, first + at, now, to));
        if (tensor->dtype != TX_ST_F32) /* exact, because the values came from that type */
            tx_from_f32(tx_st_stored(tensor->dtype), buffer, now, buffer);
        TX_TRY(tx_st_append(writer, to, bytes));
    }
    return TX_OK;
}

/* Elements of any type that half of the buffer holds, whole bytes of each type. */
#define COPIED (TX_WEIGHTS_CHUNK / 4)

/* Reads elements of tensor i from the source files, and compares them with those in `file`, if not NULL. */
static tx_status read_copied(const tx_save *s, int32_t i, int64_t at, int64_t count, const tx_st_file *file)
{
    const int32_t other = -1 - s->from[i];
    void *const again = s->buffer + TX_WEIGHTS_CHUNK / 2;
    int32_t index;
    TX_TRY(tx_weights_read_stored(s->form->files, other, at, count, s->buffer));
    if (!file)
        return TX_OK;
    TX_TRY(tx_st_find(file, s->tensor[i].name, &index));
    TX_TRY(tx_st_read(file, index, at, count, again));
    return memcmp(s->buffer, again, (size_t)(count * tx_st_dtype_bits(s->tensor[i].dtype) / 8)) == 0
               ? TX_OK
               : tx_fail(TX_IO, "%s: %s differs from the data written: the disk is faulty", tx_st_path(file),
                         s->tensor[i].name);
}

/* Copies tensor i from the form's files, or with a `file` compares it. */
static tx_status copy_tensor(const tx_save *s, int32_t i, tx_st_writer *writer, const tx_st_file *file)
{
    const int64_t count = tx_st_elements(&s->tensor[i]);
    for (int64_t at = 0; at < count; at += COPIED) {
        const int64_t now = count - at < COPIED ? count - at : COPIED;
        TX_TRY(read_copied(s, i, at, now, file));
        if (writer)
            TX_TRY(tx_st_append(writer, s->buffer, (size_t)(now * tx_st_dtype_bits(s->tensor[i].dtype) / 8)));
    }
    return TX_OK;
}

/* Writes the transposes of the matrices of a piece, or with a `file` compares them. */
static tx_status write_turned(const tx_save *s, int32_t i, tx_st_writer *writer, const tx_st_file *file)
{
    const tx_weights_piece *piece = &s->piece[s->from[i]];
    const tx_shape *shape = &piece->shape;
    const int64_t rows = tx_shape_last(shape), columns = shape->dim[shape->rank - 2], count = rows * columns;
    const size_t bytes = (size_t)(count * tx_st_dtype_bits(s->tensor[i].dtype) / 8);
    float *matrix = malloc((size_t)count * sizeof *matrix), *turned = malloc((size_t)count * sizeof *turned);
    int32_t index = 0;
    tx_status status = matrix && turned ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory to save a model", s->folder);
    if (file)
        TX_THEN(status, tx_st_find(file, piece->name, &index));
    for (int64_t e = 0; e < tx_shape_count(shape) / count && !status; e++) {
        status = tx_model_read_range(s->model, TX_PARAM_WEIGHT, piece->param, piece->first + e * count, count, matrix);
        tx_stacked_transpose(matrix, rows, columns, turned);
        if (s->tensor[i].dtype != TX_ST_F32)
            tx_from_f32(tx_st_stored(s->tensor[i].dtype), turned, count, turned);
        if (file)
            TX_THEN(status, tx_st_read(file, index, e * count, count, matrix));
        else
            TX_THEN(status, tx_st_append(writer, turned, bytes));
        if (file && !status && memcmp(matrix, turned, bytes) != 0)
            status = tx_fail(TX_IO, "%s: %s differs from the data written: the disk is faulty", tx_st_path(file),
                             piece->name);
    }
    free(matrix);
    free(turned);
    return status;
}

/* Compares a tensor in a file with its origin. */
static tx_status compare_tensor(const tx_save *s, const tx_st_file *file, int32_t i)
{
    const int64_t count = tx_st_elements(&s->tensor[i]), most = TX_WEIGHTS_CHUNK / 2;
    float *own = s->buffer, *read = s->buffer + most;
    int32_t index;
    if (s->from[i] < 0)
        return copy_tensor(s, i, NULL, file);
    const tx_weights_piece *piece = &s->piece[s->from[i]];
    if (piece->turned)
        return write_turned(s, i, NULL, file);
    TX_TRY(tx_st_find(file, piece->name, &index));
    for (int64_t at = 0; at < count; at += most) {
        const int64_t now = count - at < most ? count - at : most;
        TX_TRY(tx_st_read_f32(file, index, at, now, read));
        TX_TRY(tx_model_read_range(s->model, TX_PARAM_WEIGHT, piece->param, piece->first + at, now, own));
        if (memcmp(own, read, (size_t)now * sizeof *own) != 0)
            return tx_fail(TX_IO, "%s: %s differs from the data written: the disk is faulty", tx_st_path(file),
                           piece->name);
    }
    return TX_OK;
}

/* Reads a shard back and compares it. */
static tx_status verify_shard(const tx_save *s, const char *path, int32_t first, int32_t end)
{
    tx_st_file *file;
    TX_TRY(tx_st_open(path, &file));
    tx_status status = TX_OK;
    for (int32_t p = first; p < end && !status; p++)
        status = compare_tensor(s, file, p);
    tx_st_close(file);
    return status;
}

static tx_status write_tensor(const tx_save *s, int32_t i, tx_st_writer *writer)
{
    if (s->from[i] < 0)
        return copy_tensor(s, i, writer, NULL);
    const tx_weights_piece *piece = &s->piece[s->from[i]];
    if (piece->turned)
        return write_turned(s, i, writer, NULL);
    return tx_weights_append(s->model, TX_PARAM_WEIGHT, piece->param, piece->first, &s->tensor[i], s->buffer, writer);
}

/* Writes tensors first .. end - 1. */
static tx_status write_shard(const tx_save *s, int32_t first, int32_t end)
{
    char name[SHARD_NAME];
    tx_st_writer *writer;
    shard_name(s, s->shard[first], name);
    const char *path = TX_PATH(s->folder, name);
    TX_TRY(tx_st_create(path, s->tensor + first, end - first, &writer));
    tx_status status = TX_OK;
    for (int32_t p = first; p < end && !status; p++)
        status = write_tensor(s, p, writer);
    status = tx_st_end(writer, status);
    if (!tx_file_defers_flush) /* else the file is verified when it is flushed */
        TX_THEN(status, verify_shard(s, path, first, end));
    return status;
}

static tx_status fill_index(const tx_save *s, tx_json *index)
{
    int64_t elements = 0, bytes = 0;
    tx_json *map = tx_json_object(); /* `index` owns it before it is filled, so a failure leaks nothing */
    TX_TRY(tx_json_set(index, "weight_map", map));
    for (int32_t p = 0; p < s->tensors; p++) {
        char name[SHARD_NAME];
        shard_name(s, s->shard[p], name);
        elements += tx_st_elements(&s->tensor[p]);
        bytes += tx_st_bytes(&s->tensor[p]);
        TX_TRY(tx_json_set_string(map, s->tensor[p].name, name));
    }
    return tx_json_set(index, "metadata",
                       tx_json_pack("{s:I, s:I}", "total_parameters", elements, "total_size", bytes));
}

static tx_status write_index(const tx_save *s)
{
    tx_json *index = tx_json_object();
    tx_status status = fill_index(s, index);
    TX_THEN(status, tx_json_write(TX_PATH(s->folder, TX_WEIGHTS_INDEX), index, TX_JSON_SORTED));
    tx_json_free(index);
    return status;
}

static tx_status remove_file(const tx_save *s, const char *name)
{
    const char *path = TX_PATH(s->folder, name);
    if (unlink(path) != 0 && errno != ENOENT)
        return tx_fail(TX_IO, "%s: cannot remove the old weights: %s", path, strerror(errno));
    return TX_OK;
}

/* Returns true if the name is that of a weight file which this save did not write. */
static bool is_former(const tx_save *s, const char *name)
{
    int32_t shard, shards;
    char exact[SHARD_NAME];
    if (strcmp(name, TX_WEIGHTS_SINGLE) == 0)
        return s->shards > 1;
    if (strcmp(name, TX_WEIGHTS_INDEX) == 0)
        return s->shards == 1;
    if (sscanf(name, "model-%5" SCNd32 "-of-%5" SCNd32, &shard, &shards) != 2 || shards == s->shards)
        return false;
    snprintf(exact, sizeof exact, SHARD_FORMAT, shard, shards);
    return strcmp(name, exact) == 0;
}

static tx_status remove_former(const tx_save *s)
{
    tx_names names;
    TX_TRY(tx_folder_list(s->folder, &names));
    tx_status status = TX_OK;
    for (size_t i = 0; i < names.count && !status; i++)
        if (is_former(s, names.name[i]))
            status = remove_file(s, names.name[i]);
    tx_names_free(&names);
    return status;
}

static tx_status save(const tx_save *s)
{
    /* Shards of the same names are replaced one by one. Without an index the mixture is not mistaken for a model. */
    if (s->shards > 1)
        TX_TRY(remove_file(s, TX_WEIGHTS_INDEX));
    for (int32_t first = 0, end = 0; first < s->tensors; first = end) {
        while (end < s->tensors && s->shard[end] == s->shard[first])
            end++;
        TX_TRY(write_shard(s, first, end));
    }
    if (s->shards > 1)
        TX_TRY(write_index(s));
    return remove_former(s);
}

static bool is_teachers(const void *context, const char *param)
{
    (void)context;
    return tx_weights_of_teacher(param);
}

tx_status tx_weights_save_as(tx_model *model, const tx_weights_form *form, const char *folder, int64_t shard_bytes)
{
    tx_save s = {.model = model, .folder = folder, .form = form};
    const bool empty = model ? tx_model_param_count(model) == 0 : !form;
    if (empty || shard_bytes < 1)
        return tx_fail(TX_INVALID, "%s: %s", folder,
                       empty ? "the model has no parameters to save" : "a shard must have at least 1 byte");
    if (model)
        TX_TRY(tx_weights_list(model, is_teachers, NULL, &s.piece, &s.pieces));
    tx_status status = list_tensors(&s);
    if (!status) {
        cut_shards(&s, shard_bytes);
        status = save(&s);
    }
    free(s.piece);
    free(s.tensor);
    free(s.from);
    free(s.shard);
    free(s.buffer);
    return status;
}

tx_status tx_weights_save(tx_model *model, const char *folder, int64_t shard_bytes)
{
    return tx_weights_save_as(model, NULL, folder, shard_bytes);
}
