/* SPDX-License-Identifier: Apache-2.0
 * Weights of a model folder: one file or shards; loading into and saving from a model. */
#include "models/files/weights.h"

#include "api/file.h"
#include "api/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SINGLE "model.safetensors"
#define INDEX SINGLE ".index.json"
/* An index names each tensor once: a generous bound. */
#define INDEX_LIMIT ((int64_t)64 << 20)

typedef struct tx_weights_tensor {
    int32_t shard, index; /* which file, which tensor in it */
} tx_weights_tensor;

struct tx_weights {
    char *folder;
    int32_t shards;
    tx_st_file **shard;
    int32_t count;
    tx_weights_tensor *tensor;
};

/* ---- Opening ------------------------------------------------------------------------------------- */

static tx_status open_shard(tx_weights *w, const char *name)
{
    tx_st_file **larger = realloc(w->shard, ((size_t)w->shards + 1) * sizeof(tx_st_file *));
    char *path = tx_path_join(w->folder, name);
    if (larger)
        w->shard = larger;
    tx_status status = larger && path ? tx_st_open(path, &w->shard[w->shards])
                                      : tx_fail(TX_MEMORY, "%s/%s: no memory to open it", w->folder, name);
    if (!status)
        w->shards++;
    free(path);
    return status;
}

static tx_status open_single(tx_weights *w)
{
    tx_status status = open_shard(w, SINGLE);
    if (status)
        return status;
    w->count = tx_st_count(w->shard[0]);
    w->tensor = calloc((size_t)w->count + 1, sizeof *w->tensor);
    if (!w->tensor)
        return tx_fail(TX_MEMORY, "%s: no memory for its list of tensors", w->folder);
    for (int32_t i = 0; i < w->count; i++)
        w->tensor[i].index = i;
    return TX_OK;
}

/* The shard of that name, opened at its first use. A name may not lead out of the folder. */
static tx_status find_shard(tx_weights *w, const char *name, int32_t *shard)
{
    if (name[0] == '\0' || strchr(name, '/') || strchr(name, '\\') || strstr(name, ".."))
        return tx_fail(TX_FORMAT, "the shard \"%.100s\" is not the plain name of a file in the folder", name);
    for (int32_t i = 0; i < w->shards; i++) {
        const char *slash = strrchr(tx_st_path(w->shard[i]), '/');
        if (slash && strcmp(slash + 1, name) == 0) {
            *shard = i;
            return TX_OK;
        }
    }
    tx_status status = open_shard(w, name);
    *shard = w->shards - 1;
    return status;
}

/* weight_map: {tensor: shard}. Every tensor of a shard must be listed, and none twice (the parser sees to that). */
static tx_status read_map(tx_weights *w, const tx_json *map)
{
    int64_t in_shards = 0;
    tx_status status = TX_OK;
    w->tensor = calloc(tx_json_size(map) + 1, sizeof *w->tensor);
    if (!w->tensor)
        return tx_fail(TX_MEMORY, "no memory for the list of tensors");
    for (void *i = tx_json_first(map); i && !status; i = tx_json_next(map, i)) {
        tx_weights_tensor *t = &w->tensor[w->count++];
        const char *file;
        status = tx_json_as_string(tx_json_value(i), tx_json_key(i), &file);
        if (!status)
            status = find_shard(w, file, &t->shard);
        if (!status)
            status = tx_st_find(w->shard[t->shard], tx_json_key(i), &t->index);
    }
    for (int32_t i = 0; i < w->shards && !status; i++)
        in_shards += tx_st_count(w->shard[i]);
    if (!status && in_shards != w->count)
        status =
            tx_fail(TX_FORMAT, "weight_map lists %" PRId32 " tensors, the shards hold %" PRId64, w->count, in_shards);
    return status;
}

static tx_status open_sharded(tx_weights *w, const char *path)
{
    tx_json *index, *map;
    tx_status status = tx_json_read(path, INDEX_LIMIT, &index);
    if (status)
        return status;
    status = tx_json_get(index, "weight_map", TX_JSON_OBJECT, &map);
    if (!status)
        status = read_map(w, map);
    if (status)
        status = tx_fail_in(status == TX_NOT_FOUND ? TX_FORMAT : status, "%s", path);
    tx_json_free(index);
    return status;
}

/* Neither form is there: says what was looked for, and what other form was seen. */
static tx_status fail_absent(const char *folder)
{
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
                                         "flax_model.msgpack", "model.gguf"};
    if (!tx_file_exists(folder))
        return tx_fail(TX_NOT_FOUND, "%s: no such folder", folder);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char *path = tx_path_join(folder, others[i]);
        bool there = path && tx_file_exists(path);
        free(path);
        if (there)
            return tx_fail(TX_UNSUPPORTED,
                           "%s: holds %s but no " SINGLE ": convert it (save_pretrained with "
                           "safe_serialization does)",
                           folder, others[i]);
    }
    return tx_fail(TX_NOT_FOUND, "%s: holds neither " SINGLE " nor " INDEX, folder);
}

static tx_status open_folder(tx_weights *w)
{
    char *single = tx_path_join(w->folder, SINGLE), *index = tx_path_join(w->folder, INDEX);
    tx_status status;
    if (!single || !index)
        status = TX_MEMORY;
    else if (tx_file_exists(single))
        status = open_single(w);
    else if (tx_file_exists(index))
        status = open_sharded(w, index);
    else
        status = fail_absent(w->folder);
    free(single);
    free(index);
    return status;
}

tx_status tx_weights_open(const char *folder, tx_weights **weights)
{
    tx_weights *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", folder);
    made->folder = strdup(folder);
    tx_status status = made->folder ? open_folder(made) : tx_fail(TX_MEMORY, "%s: no memory to open it", folder);
    if (status) {
        tx_weights_close(made);
        return status;
    }
    *weights = made;
    return TX_OK;
}

void tx_weights_close(tx_weights *weights)
{
    if (!weights)
        return;
    for (int32_t i = 0; i < weights->shards; i++)
        tx_st_close(weights->shard[i]);
    free(weights->shard);
    free(weights->tensor);
    free(weights->folder);
    free(weights);
}

int32_t tx_weights_count(const tx_weights *weights)
{
    return weights->count;
}

const char *tx_weights_folder(const tx_weights *weights)
{
    return weights->folder;
}

const tx_st_tensor *tx_weights_tensor_at(const tx_weights *weights, int32_t index)
{
    const tx_weights_tensor *t = &weights->tensor[index];
    return tx_st_tensor_at(weights->shard[t->shard], t->index);
}

tx_status tx_weights_read_f32(const tx_weights *weights, int32_t index, int64_t first, int64_t count, float *data)
{
    const tx_weights_tensor *t = &weights->tensor[index];
    return tx_st_read_f32(weights->shard[t->shard], t->index, first, count, data);
}

/* ---- Loading ------------------------------------------------------------------------------------- */

/* A list of faults for one message; further ones are counted. */
typedef struct tx_faults {
    char text[640];
    size_t used;
    int32_t count, left_out;
} tx_faults;

static void add_fault(tx_faults *f, const char *what, const char *name, const char *detail)
{
    char one[TX_WEIGHTS_NAME + 200];
    int length = snprintf(one, sizeof one, "%s%s %.200s%s", f->count ? "; " : "", what, name, detail);
    f->count++;
    if (f->left_out || length < 0 || (size_t)length >= sizeof f->text - f->used) {
        f->left_out++;
        return;
    }
    memcpy(f->text + f->used, one, (size_t)length + 1);
    f->used += (size_t)length;
}

/* The shape of the file's tensor; rank 0 is a single element. */
static tx_shape shape_of(const tx_st_tensor *t)
{
    tx_shape shape = {.rank = t->rank ? t->rank : 1, .dim = {1}};
    for (int32_t i = 0; i < t->rank && i < TX_MAX_RANK; i++)
        shape.dim[i] = t->dim[i];
    return shape;
}

static const tx_shape *logical_shape(const tx_param_spec *spec)
{
    return spec->logical.rank ? &spec->logical : &spec->shape;
}

static void check_tensor(const tx_st_tensor *t, const tx_param_spec *spec, tx_faults *faults)
{
    char have[96], want[96], detail[200];
    tx_shape shape = shape_of(t);
    if (t->rank > TX_MAX_RANK || !tx_shape_equal(&shape, logical_shape(spec))) {
        snprintf(detail, sizeof detail, " (%s, the configuration asks for %s)",
                 tx_shape_text(&shape, have, sizeof have), tx_shape_text(logical_shape(spec), want, sizeof want));
        add_fault(faults, "wrong shape", t->name, detail);
    } else if (t->dtype != TX_ST_F32 && t->dtype != TX_ST_F16 && t->dtype != TX_ST_BF16 && t->dtype != TX_ST_F64) {
        snprintf(detail, sizeof detail, " (%s, not F32, F16, BF16 or F64)", tx_st_dtype_name(t->dtype));
        add_fault(faults, "wrong type", t->name, detail);
    }
}

/* source[p]: the tensor of the file for parameter p. All faults are collected before one is told. */
static tx_status match(const tx_weights *w, const tx_model *model, tx_weights_rename *rename, int32_t *source)
{
    tx_faults faults = {0};
    int32_t params = tx_model_param_count(model);
    for (int32_t p = 0; p < params; p++)
        source[p] = -1;
    for (int32_t i = 0; i < w->count; i++) {
        const tx_st_tensor *t = tx_weights_tensor_at(w, i);
        char name[TX_WEIGHTS_NAME];
        const char *found;
        const tx_param_spec *spec;
        int32_t p;
        rename(t->name, name);
        if (name[0] == '\0')
            continue;
        if (tx_model_find(model, name, &p) || tx_model_param(model, p, &found, &spec)) {
            add_fault(&faults, "unexpected", t->name, "");
        } else if (source[p] >= 0) {
            add_fault(&faults, "twice", t->name, "");
        } else {
            source[p] = i;
            check_tensor(t, spec, &faults);
        }
    }
    for (int32_t p = 0; p < params; p++) {
        const char *name;
        const tx_param_spec *spec;
        if (source[p] < 0 && !tx_model_param(model, p, &name, &spec))
            add_fault(&faults, "missing", name, "");
    }
    if (faults.left_out)
        return tx_fail(TX_FORMAT, "%s: the weights do not fit the model: %s; and %d more", w->folder, faults.text,
                       faults.left_out);
    return faults.count ? tx_fail(TX_FORMAT, "%s: the weights do not fit the model: %s", w->folder, faults.text)
                        : TX_OK;
}

/* Looks at elements first .. first + count - 1 of a tensor. */
static tx_status check_finite(const tx_weights *w, int32_t index, int64_t first, int64_t count, const float *data)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(data[i]))
            return tx_fail(TX_FORMAT, "%s: tensor %s holds %f at element %" PRId64 ": such weights cannot be used",
                           w->folder, tx_weights_tensor_at(w, index)->name, (double)data[i], first + i);
    return TX_OK;
}

/* Elements copied at a time: the file's weights are never in memory a second time. */
#define CHUNK (1 << 20)

static tx_status copy_in(const tx_weights *w, tx_model *model, const int32_t *source, float *buffer)
{
    tx_status status = TX_OK;
    for (int32_t p = 0; p < tx_model_param_count(model) && !status; p++) {
        int64_t count = tx_st_elements(tx_weights_tensor_at(w, source[p]));
        for (int64_t at = 0; at < count && !status; at += CHUNK) {
            int64_t now = count - at < CHUNK ? count - at : CHUNK;
            status = tx_weights_read_f32(w, source[p], at, now, buffer);
            if (!status)
                status = check_finite(w, source[p], at, now, buffer);
            if (!status)
                status = tx_model_write_range(model, TX_PART_WEIGHT, p, at, now, buffer);
        }
    }
    return status;
}

tx_status tx_weights_load(const tx_weights *weights, tx_model *model, tx_weights_rename *rename)
{
    int32_t params = tx_model_param_count(model);
    if (params == 0)
        return tx_fail(TX_INVALID, "%s: the model has no parameters yet: build its graph first", weights->folder);
    int32_t *source = malloc((size_t)params * sizeof *source);
    float *buffer = malloc(CHUNK * sizeof *buffer);
    tx_status status = source && buffer ? match(weights, model, rename, source)
                                        : tx_fail(TX_MEMORY, "%s: no memory for a tensor", weights->folder);
    if (!status)
        status = copy_in(weights, model, source, buffer);
    free(source);
    free(buffer);
    return status;
}

/* ---- Saving -------------------------------------------------------------------------------------- */

static tx_status list_params(tx_model *model, tx_st_tensor *list)
{
    tx_status status = TX_OK;
    for (int32_t p = 0; p < tx_model_param_count(model) && !status; p++) {
        const tx_param_spec *spec;
        status = tx_model_param(model, p, &list[p].name, &spec);
        if (status)
            return status;
        const tx_shape *shape = logical_shape(spec);
        list[p].dtype = TX_ST_F32;
        list[p].rank = shape->rank;
        memcpy(list[p].dim, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
    }
    return status;
}

static tx_status copy_out(tx_model *model, const tx_st_tensor *list, float *buffer, tx_st_writer *writer)
{
    tx_status status = TX_OK;
    for (int32_t p = 0; p < tx_model_param_count(model) && !status; p++) {
        int64_t count = tx_st_elements(&list[p]);
        for (int64_t at = 0; at < count && !status; at += CHUNK) {
            int64_t now = count - at < CHUNK ? count - at : CHUNK;
            status = tx_model_read_range(model, TX_PART_WEIGHT, p, at, now, buffer);
            if (!status)
                status = tx_st_append(writer, buffer, (size_t)now * sizeof *buffer);
        }
    }
    return status;
}

tx_status tx_weights_save(tx_model *model, const char *path)
{
    int32_t params = tx_model_param_count(model);
    tx_st_tensor *list = calloc((size_t)params + 1, sizeof *list);
    float *buffer = malloc(CHUNK * sizeof *buffer);
    tx_st_writer *writer = NULL;
    tx_status status =
        list && buffer ? list_params(model, list) : tx_fail(TX_MEMORY, "%s: no memory for a tensor", path);
    if (!status)
        status = tx_st_create(path, list, params, NULL, &writer);
    if (!status) {
        status = copy_out(model, list, buffer, writer);
        if (status)
            tx_st_discard(writer);
        else
            status = tx_st_commit(writer);
    }
    free(list);
    free(buffer);
    return status;
}
