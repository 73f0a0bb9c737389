/* SPDX-License-Identifier: Apache-2.0
 * Saves the parameters of a model to one weight file, or to shards with an index, as transformers does. */
#include "models/files/weights.h"

#include "api/base/half.h"
#include "models/files/folder.h"
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
    int32_t pieces, shards;
    tx_weights_piece *piece;
    tx_st_tensor *tensor; /* for each piece */
    int32_t *shard;       /* for each piece its shard, ascending */
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

/* Divides the pieces into shards. A shard ends before the piece that would exceed the limit. */
static tx_status cut_shards(tx_save *s, int64_t shard_bytes)
{
    const char *name;
    const tx_param_spec *spec;
    int64_t used = 0;
    for (int32_t i = 0; i < s->pieces; i++) {
        TX_TRY(tx_model_param(s->model, s->piece[i].param, &name, &spec));
        s->tensor[i] = tx_weights_part(s->piece[i].name, spec->dtype, &s->piece[i].shape);
        const int64_t bytes = tx_st_bytes(&s->tensor[i]);
        if (used > 0 && bytes > shard_bytes - used) {
            s->shards++;
            used = 0;
        }
        used += bytes;
        s->shard[i] = s->shards;
    }
    s->shards++;
    return TX_OK;
}

tx_status tx_weights_append(tx_model *model, tx_param_role part, int32_t param, int64_t first,
                            const tx_st_tensor *tensor, float *buffer, tx_st_writer *writer)
{
    const int64_t count = tx_st_elements(tensor);
    for (int64_t at = 0; at < count; at += TX_WEIGHTS_CHUNK) {
        int64_t now = count - at < TX_WEIGHTS_CHUNK ? count - at : TX_WEIGHTS_CHUNK;
        TX_TRY(tx_model_read_range(model, part, param, first + at, now, buffer));
        if (tensor->dtype != TX_ST_F32) /* exact, because the values came from that type */
            tx_from_f32(tx_st_stored(tensor->dtype), buffer, now, buffer);
        TX_TRY(tx_st_append(writer, buffer, (size_t)(now * tx_st_dtype_bits(tensor->dtype) / 8)));
    }
    return TX_OK;
}

/* Compares a tensor in a file with its piece. */
static tx_status compare_tensor(const tx_save *s, const tx_st_file *file, int32_t i)
{
    const tx_weights_piece *piece = &s->piece[i];
    const int64_t count = tx_st_elements(&s->tensor[i]), most = TX_WEIGHTS_CHUNK / 2;
    float *own = s->buffer, *read = s->buffer + most;
    int32_t index;
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

/* Writes pieces first .. end - 1. */
static tx_status write_shard(const tx_save *s, int32_t first, int32_t end)
{
    char name[SHARD_NAME];
    tx_st_writer *writer;
    shard_name(s, s->shard[first], name);
    const char *path = TX_PATH(s->folder, name);
    TX_TRY(tx_st_create(path, s->tensor + first, end - first, NULL, &writer));
    tx_status status = TX_OK;
    for (int32_t p = first; p < end && !status; p++)
        status = tx_weights_append(s->model, TX_PARAM_WEIGHT, s->piece[p].param, s->piece[p].first, &s->tensor[p],
                                   s->buffer, writer);
    if (status)
        tx_st_discard(writer);
    else
        status = tx_st_commit(writer);
    TX_THEN(status, verify_shard(s, path, first, end));
    return status;
}

static tx_status fill_index(const tx_save *s, tx_json *index)
{
    int64_t elements = 0, bytes = 0;
    tx_json *map = tx_json_object(); /* `index` owns it before it is filled, so a failure leaks nothing */
    TX_TRY(tx_json_set(index, "weight_map", map));
    for (int32_t p = 0; p < s->pieces; p++) {
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
    for (int32_t first = 0, end = 0; first < s->pieces; first = end) {
        while (end < s->pieces && s->shard[end] == s->shard[first])
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

tx_status tx_weights_save(tx_model *model, const char *folder, int64_t shard_bytes)
{
    tx_save s = {.model = model, .folder = folder};
    const int32_t params = tx_model_param_count(model);
    if (params == 0 || shard_bytes < 1)
        return tx_fail(TX_INVALID, "%s: %s", folder,
                       params ? "a shard must have at least 1 byte" : "the model has no parameters to save");
    TX_TRY(tx_weights_list(model, is_teachers, NULL, &s.piece, &s.pieces));
    s.tensor = calloc((size_t)s.pieces + 1, sizeof *s.tensor);
    s.shard = calloc((size_t)s.pieces + 1, sizeof *s.shard);
    s.buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *s.buffer);
    tx_status status = s.tensor && s.shard && s.buffer ? cut_shards(&s, shard_bytes)
                                                       : tx_fail(TX_MEMORY, "%s: no memory to save a model", folder);
    TX_THEN(status, save(&s));
    free(s.piece);
    free(s.tensor);
    free(s.shard);
    free(s.buffer);
    return status;
}
