/* SPDX-License-Identifier: Apache-2.0
 * Opens the weights of a model folder, one file or shards, and finds and reads their tensors. */
#include "models/files/weights.h"

#include "api/base/file.h"
#include "models/files/dcp.h"
#include "models/files/folder.h"
#include "models/gguf/gguf_file.h"
#include "models/names.h"
#include "tx_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Bytes of an index, which names each tensor once. */
#define INDEX_LIMIT ((int64_t)64 << 20)
/* Longest name that a file can have. */
#define NAME_LIMIT 255

typedef struct tx_weights_tensor {
    int32_t shard, index; /* file, and index of the tensor in it */
} tx_weights_tensor;

struct tx_weights {
    char *path;   /* as given; messages start with it */
    char *folder; /* that contains the files */
    int32_t shards;
    tx_st_file **shard;
    int32_t count;
    tx_weights_tensor *tensor;
    tx_weights_source source; /* used instead of files, or {0} */
};

/* ---- Pieces ---------------------------------------------------------------------------------------- */

int32_t tx_weights_piece_count(const char *name, const tx_param_spec *spec)
{
    return (strchr(name, '|') ? spec->sections.count : 1) * (strchr(name, '*') ? (int32_t)spec->shape.dim[0] : 1);
}

void tx_weights_piece_name(const char *name, int32_t number, int32_t section, char text[TX_WEIGHTS_NAME])
{
    const char *word = strchr(name, '|');
    size_t used = 0;
    while (word && word > name && word[-1] != '.')
        word--;
    for (const char *at = name; *at && used < TX_WEIGHTS_NAME; at++) {
        if (at == word) {
            for (int32_t i = 0; i < section; i++)
                at += strcspn(at, "|.") + 1;
            used += (size_t)snprintf(text + used, TX_WEIGHTS_NAME - used, "%.*s", (int)strcspn(at, "|."), at);
            at = word + strcspn(word, ".") - 1;
        } else if (*at == '*') {
            used += (size_t)snprintf(text + used, TX_WEIGHTS_NAME - used, "%" PRId32, number);
        } else {
            used += (size_t)snprintf(text + used, TX_WEIGHTS_NAME - used, "%c", *at);
        }
    }
}

int32_t tx_weights_pieces(const char *name, const tx_param_spec *spec, int32_t param, int32_t room,
                          tx_weights_piece *piece)
{
    tx_shape shape = spec->logical.rank ? spec->logical : spec->shape;
    const int32_t all = tx_weights_piece_count(name, spec), count = all < room ? all : room;
    const int32_t sections = strchr(name, '|') ? spec->sections.count : 1;
    int64_t first = 0;
    if (spec->turned)
        tx_weights_turn(&shape);
    if (strchr(name, '*'))
        memmove(shape.dim, shape.dim + 1, (size_t)--shape.rank * sizeof shape.dim[0]);
    for (int32_t i = 0; i < count; i++) {
        piece[i] = (tx_weights_piece){
            .shape = shape, .param = param, .first = first, .turned = spec->turned, .scalar = spec->scalar};
        tx_weights_piece_name(name, i / sections, i % sections, piece[i].name);
        if (sections > 1)
            piece[i].shape.dim[0] = spec->sections.size[i % sections];
        first += tx_shape_count(&piece[i].shape);
    }
    return count;
}

static tx_status fill_pieces(const tx_model *model, bool (*is_elsewhere)(const void *context, const char *param),
                             const void *context, tx_weights_piece *pieces, int32_t *count)
{
    *count = 0;
    for (int32_t p = 0; p < tx_model_param_count(model); p++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(model, p, &name, &spec));
        if (is_elsewhere && is_elsewhere(context, name))
            continue;
        *count +=
            pieces ? tx_weights_pieces(name, spec, p, INT32_MAX, pieces + *count) : tx_weights_piece_count(name, spec);
    }
    return TX_OK;
}

tx_status tx_weights_list(const tx_model *model, bool (*is_elsewhere)(const void *context, const char *param),
                          const void *context, tx_weights_piece **pieces, int32_t *count)
{
    TX_TRY(fill_pieces(model, is_elsewhere, context, NULL, count));
    tx_weights_piece *created = malloc(((size_t)*count + 1) * sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for the list of tensors");
    const tx_status status = fill_pieces(model, is_elsewhere, context, created, count);
    return TX_RETURN(status, created, pieces, free);
}

/* ---- Opening ------------------------------------------------------------------------------------- */

static tx_status open_shard(tx_weights *w, const char *path)
{
    tx_st_file **larger = realloc(w->shard, ((size_t)w->shards + 1) * sizeof(tx_st_file *));
    if (!larger)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    w->shard = larger;
    TX_TRY(tx_st_open(path, &w->shard[w->shards]));
    w->shards++;
    return TX_OK;
}

static tx_status open_single(tx_weights *w, const char *path)
{
    TX_TRY(open_shard(w, path));
    w->count = tx_st_count(w->shard[0]);
    w->tensor = calloc((size_t)w->count + 1, sizeof *w->tensor);
    if (!w->tensor)
        return tx_fail(TX_MEMORY, "%s: no memory for its list of tensors", path);
    for (int32_t i = 0; i < w->count; i++)
        w->tensor[i].index = i;
    return TX_OK;
}

/* Finds the shard of that name, and opens it at its first use. The name must not lead out of the folder. */
static tx_status find_shard(tx_weights *w, const char *name, int32_t *shard)
{
    if (name[0] == '\0' || strlen(name) > NAME_LIMIT || strchr(name, '/') || strchr(name, '\\') || strstr(name, ".."))
        return tx_fail(TX_FORMAT, "the shard \"%.100s\" is not the plain name of a file in the folder", name);
    for (int32_t i = 0; i < w->shards; i++) {
        const char *slash = strrchr(tx_st_path(w->shard[i]), '/');
        if (slash && strcmp(slash + 1, name) == 0) {
            *shard = i;
            return TX_OK;
        }
    }
    TX_TRY(open_shard(w, TX_PATH(w->folder, name)));
    *shard = w->shards - 1;
    return TX_OK;
}

/* Reads weight_map: {tensor: shard}. It must list every tensor of the shards. The parser rejects duplicates. */
static tx_status read_map(tx_weights *w, const tx_json *map)
{
    int64_t in_shards = 0;
    w->tensor = calloc(tx_json_size(map) + 1, sizeof *w->tensor);
    if (!w->tensor)
        return tx_fail(TX_MEMORY, "no memory for the list of tensors");
    for (void *i = tx_json_first(map); i; i = tx_json_next(map, i)) {
        tx_weights_tensor *t = &w->tensor[w->count++];
        const char *file;
        TX_TRY(tx_json_as_string(tx_json_value(i), tx_json_key(i), &file));
        TX_TRY(find_shard(w, file, &t->shard));
        TX_TRY(tx_st_find(w->shard[t->shard], tx_json_key(i), &t->index));
    }
    for (int32_t i = 0; i < w->shards; i++)
        in_shards += tx_st_count(w->shard[i]);
    if (in_shards != w->count)
        return tx_fail(TX_FORMAT, "weight_map lists %" PRId32 " tensors, the shards hold %" PRId64, w->count,
                       in_shards);
    return TX_OK;
}

static tx_status open_sharded(tx_weights *w, const char *path)
{
    tx_json *index, *map;
    TX_TRY(tx_json_read(path, INDEX_LIMIT, &index));
    tx_status status = tx_json_get(index, "weight_map", TX_JSON_OBJECT, &map);
    TX_THEN(status, read_map(w, map));
    status = tx_fail_in(status == TX_NOT_FOUND ? TX_FORMAT : status, "%s", path);
    tx_json_free(index);
    return status;
}

#define TORCH_SINGLE "pytorch_model.bin"
#define TORCH_INDEX TORCH_SINGLE ".index.json"

/* Fails with the files that were expected, or with a file of another format that was found. */
static tx_status fail_absent(const char *folder)
{
    static const char *const others[] = {"tf_model.h5", "flax_model.msgpack", "model.gguf"};
    if (!tx_file_exists(folder))
        return tx_fail(TX_NOT_FOUND, "%s: no such file or folder", folder);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (tx_file_exists(TX_PATH(folder, others[i])) && tx_gguf_is_name(others[i]))
            return tx_fail(TX_UNSUPPORTED, "%s: holds %s: give the file itself as the model", folder, others[i]);
        else if (tx_file_exists(TX_PATH(folder, others[i])))
            return tx_fail(TX_UNSUPPORTED,
                           "%s: holds %s but no " TX_WEIGHTS_SINGLE ": convert it (save_pretrained with "
                           "safe_serialization does)",
                           folder, others[i]);
    return tx_fail(TX_NOT_FOUND, "%s: holds neither " TX_WEIGHTS_SINGLE " nor " TX_WEIGHTS_INDEX " nor " TORCH_SINGLE,
                   folder);
}

static tx_status open_folder(tx_weights *w)
{
    static const char *const names[] = {TX_WEIGHTS_SINGLE, TX_WEIGHTS_INDEX, TORCH_SINGLE, TORCH_INDEX,
                                        TX_DCP_METADATA};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (tx_file_exists(TX_PATH(w->folder, names[i])))
            return i % 2 == 0 ? open_single(w, TX_PATH(w->folder, names[i]))
                              : open_sharded(w, TX_PATH(w->folder, names[i]));
    return fail_absent(w->folder);
}

static tx_status open_any(tx_weights *w)
{
    struct stat info;
    if (stat(w->path, &info) != 0 || S_ISDIR(info.st_mode)) {
        w->folder = strdup(w->path);
        return w->folder ? open_folder(w) : tx_fail(TX_MEMORY, "%s: no memory to open it", w->path);
    }
    if (!tx_ends_with(w->path, ".json"))
        return open_single(w, w->path);
    const char *slash = strrchr(w->path, '/');
    w->folder = slash ? strndup(w->path, (size_t)(slash - w->path) + 1) : strdup(".");
    return w->folder ? open_sharded(w, w->path) : tx_fail(TX_MEMORY, "%s: no memory to open it", w->path);
}

tx_status tx_weights_open(const char *path, tx_weights **weights)
{
    tx_weights *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    created->path = strdup(path);
    tx_status status = created->path ? open_any(created) : tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    return TX_RETURN(status, created, weights, tx_weights_close);
}

tx_status tx_weights_of_source(const char *path, const tx_weights_source *source, tx_weights **weights)
{
    tx_weights *created = calloc(1, sizeof *created);
    char *copy = strdup(path);
    if (!created || !copy) {
        free(created);
        free(copy);
        source->close(source->context);
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    }
    *created = (tx_weights){.path = copy, .count = source->count, .source = *source};
    *weights = created;
    return TX_OK;
}

void tx_weights_close(tx_weights *weights)
{
    if (!weights)
        return;
    if (weights->source.close)
        weights->source.close(weights->source.context);
    for (int32_t i = 0; i < weights->shards; i++)
        tx_st_close(weights->shard[i]);
    free(weights->shard);
    free(weights->tensor);
    free(weights->folder);
    free(weights->path);
    free(weights);
}

int32_t tx_weights_count(const tx_weights *weights)
{
    return weights->count;
}

int32_t tx_weights_find(const tx_weights *weights, const tx_weights_names *names, const char *name)
{
    char param[TX_WEIGHTS_NAME];
    for (int32_t i = 0; i < weights->count; i++) {
        const char *tensor = tx_weights_tensor_at(weights, i)->name;
        if (names)
            names->rename(names->context, tensor, param);
        if (strcmp(names ? param : tensor, name) == 0)
            return i;
    }
    return -1;
}

bool tx_weights_of_teacher(const char *param)
{
    return tx_begins_with(param, TX_WEIGHTS_TEACHER) || tx_begins_with(param, TX_WEIGHTS_REWARD);
}

const char *tx_weights_path(const tx_weights *weights)
{
    return weights->path;
}

const tx_st_tensor *tx_weights_tensor_at(const tx_weights *weights, int32_t index)
{
    if (weights->source.tensor)
        return &weights->source.tensor[index];
    const tx_weights_tensor *t = &weights->tensor[index];
    return tx_st_tensor_at(weights->shard[t->shard], t->index);
}

tx_dtype tx_weights_stored(const tx_weights *weights, int32_t index, bool turned)
{
    const tx_weights_source *source = &weights->source;
    if (turned != (source->turned && source->turned[index]))
        return TX_DTYPE_COUNT;
    if (!source->read)
        return tx_st_stored(tx_weights_tensor_at(weights, index)->dtype);
    return source->stored ? source->stored[index] : TX_DTYPE_COUNT;
}

tx_status tx_weights_read_stored(const tx_weights *weights, int32_t index, int64_t first, int64_t count, void *data)
{
    if (weights->source.read)
        return weights->source.read_stored(weights->source.context, index, first, count, data);
    const tx_weights_tensor *t = &weights->tensor[index];
    return tx_st_read(weights->shard[t->shard], t->index, first, count, data);
}

tx_status tx_weights_read_f32(const tx_weights *weights, int32_t index, int64_t first, int64_t count, float *data)
{
    if (weights->source.read)
        return weights->source.read(weights->source.context, index, first, count, data);
    const tx_weights_tensor *t = &weights->tensor[index];
    return tx_st_read_f32(weights->shard[t->shard], t->index, first, count, data);
}
