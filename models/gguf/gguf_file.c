/* SPDX-License-Identifier: Apache-2.0
 * Reads GGUF files: tensor data and values. */
#include "models/gguf/gguf_file.h"

#include "api/base/half.h"
#include "api/base/number.h"
#include "models/files/data_file.h"
#include "models/gguf/gguf_header.h"
#include "models/names.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements per conversion, a multiple of all block sizes. */
#define CHUNK 4096
/* The ends of the names of a split model's files, and the most files. */
#define PART "-%05" PRId64 "-of-%05" PRId64 ".gguf"
#define PART_ROOM 32
#define MAX_PARTS 65535

/* ---- Opening ---------------------------------------------------------------------------------------- */

bool tx_gguf_is_name(const char *path)
{
    return tx_ends_with(path, ".gguf");
}

struct tx_gguf_file {
    tx_data_file file;
    tx_gguf_header header; /* of a split model with the tensors of all files */
    tx_gguf_file **others; /* the other files of a split model */
    int64_t parts;         /* number of its files, or 1 */
};

static tx_status open_one(const char *path, tx_gguf_file **file)
{
    tx_gguf_file *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    created->parts = 1;
    tx_status status = tx_data_file_open(path, &created->file);
    TX_THEN(status, tx_fail_in(tx_gguf_header_read(&created->file, &created->header), "%s", path));
    TX_THEN(status, TX_GGUF_OPTIONAL(int, created, "split.count", 0, MAX_PARTS, &created->parts));
    return TX_RETURN(status, created, file, tx_gguf_close);
}

/* Opens file `number` of a split model, whose names begin with `path` up to `stem`. */
static tx_status open_part(const char *path, size_t stem, int64_t number, int64_t parts, tx_gguf_file **file)
{
    const size_t room = stem + PART_ROOM;
    tx_gguf_file *created = NULL;
    int64_t has = -1;
    char *name = malloc(room);
    if (!name)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    snprintf(name, room, "%.*s" PART, (int)stem, path, number + 1, parts);
    tx_status status = open_one(name, &created);
    TX_THEN(status, tx_gguf_get_int(created, "split.no", 0, MAX_PARTS, &has));
    if (!status && (has != number || created->parts != parts))
        status = tx_fail(TX_FORMAT, "%s: is part %" PRId64 " of %" PRId64, name, has + 1, created->parts);
    free(name);
    return TX_RETURN(status, created, file, tx_gguf_close);
}

/* Moves the tensors of the other files to the header of the first. */
static tx_status join_parts(tx_gguf_file *f)
{
    tx_gguf_header *h = &f->header;
    int64_t count = h->tensors, expected;
    for (int64_t i = 0; i + 1 < f->parts; i++)
        count += f->others[i]->header.tensors;
    expected = count;
    TX_TRY(TX_GGUF_OPTIONAL(int, f, "split.tensors.count", 0, INT32_MAX, &expected));
    if (count != expected)
        return tx_fail(TX_FORMAT, "%s: its parts have %" PRId64 " tensors, not %" PRId64, f->file.path, count,
                       expected);
    tx_gguf_entry *all = realloc(h->tensor, ((size_t)count + 1) * sizeof *all);
    h->tensor = all ? all : h->tensor;
    tx_named *names = realloc(h->tensor_names, ((size_t)count + 1) * sizeof *names);
    h->tensor_names = names ? names : h->tensor_names;
    if (!all || !names)
        return tx_fail(TX_MEMORY, "%s: no memory for its header", f->file.path);
    for (int64_t i = 0; i + 1 < f->parts; i++) {
        tx_gguf_header *from = &f->others[i]->header;
        memcpy(all + h->tensors, from->tensor, (size_t)from->tensors * sizeof *all);
        h->tensors += from->tensors;
        from->tensors = 0;
    }
    for (int32_t i = 0; i < h->tensors; i++)
        names[i] = (tx_named){all[i].name, i};
    return tx_fail_in(tx_gguf_sort_names(names, h->tensors), "%s", f->file.path);
}

static tx_status open_all(const char *path, int64_t parts, tx_gguf_file **file)
{
    char suffix[PART_ROOM];
    tx_gguf_file *created = NULL;
    int64_t number = 0;
    snprintf(suffix, sizeof suffix, "-of-%05" PRId64 ".gguf", parts);
    const size_t size = strlen(path), digits = strlen(suffix) + 6;
    if (size < digits || !tx_ends_with(path, suffix) || path[size - digits] != '-')
        return tx_fail(TX_FORMAT,
                       "%s: is a part of %" PRId64 ": its name must end with -NNNNN%s, as those of the others", path,
                       parts, suffix);
    TX_TRY(open_part(path, size - digits, 0, parts, &created));
    created->others = calloc((size_t)parts, sizeof(tx_gguf_file *));
    tx_status status = created->others ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    while (!status && ++number < parts)
        status = open_part(path, size - digits, number, parts, &created->others[number - 1]);
    TX_THEN(status, join_parts(created));
    return TX_RETURN(status, created, file, tx_gguf_close);
}

tx_status tx_gguf_open(const char *path, tx_gguf_file **file)
{
    tx_gguf_file *created = NULL;
    TX_TRY(open_one(path, &created));
    const int64_t parts = created->parts;
    if (parts < 2) {
        *file = created;
        return TX_OK;
    }
    tx_gguf_close(created);
    return open_all(path, parts, file);
}

void tx_gguf_close(tx_gguf_file *file)
{
    if (!file)
        return;
    for (int64_t i = 0; file->others && i + 1 < file->parts; i++)
        tx_gguf_close(file->others[i]);
    free(file->others);
    tx_gguf_header_free(&file->header);
    tx_data_file_close(&file->file);
    free(file);
}

const char *tx_gguf_path(const tx_gguf_file *file)
{
    return file->file.path;
}

int32_t tx_gguf_count(const tx_gguf_file *file)
{
    return file->header.tensors;
}

const tx_gguf_tensor *tx_gguf_tensor_at(const tx_gguf_file *file, int32_t index)
{
    return &file->header.tensor[index].tensor;
}

int32_t tx_gguf_find(const tx_gguf_file *file, const char *name)
{
    return tx_named_find(file->header.tensor_names, (size_t)file->header.tensors, name);
}

/* Finds the place of elements in the file. */
static tx_status place_of(const tx_gguf_file *file, int32_t index, int64_t first, int64_t count, int64_t *at)
{
    const tx_gguf_entry *entry = &file->header.tensor[index];
    const int64_t elements = tx_gguf_elements(&entry->tensor), block = tx_gguf_block(entry->tensor.dtype);
    if (first < 0 || count < 0 || first > elements || count > elements - first || first % block || count % block)
        return tx_fail(TX_INVALID, "%s: tensor %s has %" PRId64 " elements, %" PRId64 " from %" PRId64 " on requested",
                       file->file.path, entry->tensor.name, elements, count, first);
    *at = entry->at + first / block * tx_gguf_block_bytes(entry->tensor.dtype);
    return TX_OK;
}

tx_status tx_gguf_read_bytes(const tx_gguf_file *file, int32_t index, int64_t first, int64_t count, void *bytes)
{
    const tx_gguf_dtype dtype = file->header.tensor[index].tensor.dtype;
    int64_t at = 0;
    TX_TRY(place_of(file, index, first, count, &at));
    return tx_data_file_read(file->header.tensor[index].file, at, bytes,
                             (size_t)(count / tx_gguf_block(dtype) * tx_gguf_block_bytes(dtype)));
}

tx_status tx_gguf_read_f32(const tx_gguf_file *file, int32_t index, int64_t first, int64_t count, float *data)
{
    const tx_gguf_dtype dtype = file->header.tensor[index].tensor.dtype;
    float raw[CHUNK];
    if (dtype == TX_GGUF_F32)
        return tx_gguf_read_bytes(file, index, first, count, data);
    for (int64_t done = 0; done < count; done += CHUNK) {
        const int64_t now = count - done < CHUNK ? count - done : CHUNK;
        TX_TRY(tx_gguf_read_bytes(file, index, first + done, now, raw));
        tx_gguf_decode(dtype, raw, now, data + done);
    }
    return TX_OK;
}

/* ---- Values ------------------------------------------------------------------------------------------ */

static const char *data_of(const tx_gguf_file *file, const tx_gguf_entry_value *entry)
{
    return file->header.bytes + entry->at;
}

static tx_status find_value(const tx_gguf_file *file, const char *key, const tx_gguf_entry_value **value)
{
    const int32_t index = tx_named_find(file->header.value_names, (size_t)file->header.values, key);
    if (index < 0)
        return tx_fail(TX_NOT_FOUND, "%s: has no %s", file->file.path, key);
    *value = &file->header.value[index];
    return TX_OK;
}

static tx_status fail_type(const tx_gguf_file *file, const char *key, const char *expected)
{
    return tx_fail(TX_FORMAT, "%s: %s: expected %s", file->file.path, key, expected);
}

bool tx_gguf_has(const tx_gguf_file *file, const char *key)
{
    return tx_named_find(file->header.value_names, (size_t)file->header.values, key) >= 0;
}

/* The shortest decimal number that rounds to this fp32 value: 1e-6 and not 9.99999997e-7. */
static double shortest(float value)
{
    char text[32];
    double read = (double)value;
    for (int digits = 6; digits <= 9; digits++) {
        tx_format(text, sizeof text, "%.*g", digits, (double)value);
        read = tx_number_read(text, NULL);
        if ((float)read == value)
            break;
    }
    return read;
}

tx_status tx_gguf_get_number(const tx_gguf_file *file, const char *key, double *value)
{
    const tx_gguf_entry_value *entry = NULL;
    TX_TRY(find_value(file, key, &entry));
    double number;
    if (!tx_gguf_number(entry->type, data_of(file, entry), &number) || !isfinite(number))
        return fail_type(file, key, "a number");
    *value = entry->type == TX_GGUF_VALUE_F32 ? shortest((float)number) : number;
    return TX_OK;
}

tx_status tx_gguf_get_int(const tx_gguf_file *file, const char *key, int64_t min, int64_t max, int64_t *value)
{
    const tx_gguf_entry_value *entry = NULL;
    double number;
    TX_TRY(find_value(file, key, &entry));
    if (entry->type == TX_GGUF_VALUE_F32 || entry->type == TX_GGUF_VALUE_F64 ||
        !tx_gguf_number(entry->type, data_of(file, entry), &number))
        return fail_type(file, key, "an integer");
    if (!(number >= (double)min && number <= (double)max))
        return tx_fail(TX_FORMAT, "%s: %s: %.0f is not from %" PRId64 " to %" PRId64, file->file.path, key, number, min,
                       max);
    *value = (int64_t)number;
    return TX_OK;
}

tx_status tx_gguf_get_bool(const tx_gguf_file *file, const char *key, bool *value)
{
    const tx_gguf_entry_value *entry = NULL;
    TX_TRY(find_value(file, key, &entry));
    if (entry->type != TX_GGUF_VALUE_BOOL)
        return fail_type(file, key, "true or false");
    *value = *data_of(file, entry) != 0;
    return TX_OK;
}

tx_status tx_gguf_get_string(const tx_gguf_file *file, const char *key, char **value, size_t *size)
{
    const tx_gguf_entry_value *entry = NULL;
    TX_TRY(find_value(file, key, &entry));
    if (entry->type != TX_GGUF_VALUE_STRING || memchr(data_of(file, entry), '\0', (size_t)entry->count))
        return fail_type(file, key, "a string");
    char *result = strndup(data_of(file, entry), (size_t)entry->count);
    if (!result)
        return tx_fail(TX_MEMORY, "%s: no memory for %s", file->file.path, key);
    *value = result;
    if (size)
        *size = (size_t)entry->count;
    return TX_OK;
}

/* The header was checked, so all elements are inside it. */
static void fill_texts(const char *at, tx_gguf_array *array)
{
    for (int64_t i = 0; i < array->count; i++) {
        uint64_t size;
        memcpy(&size, at, sizeof size);
        array->text[i] = at + sizeof size;
        array->size[i] = (size_t)size;
        at += sizeof size + size;
    }
}

tx_status tx_gguf_get_array(const tx_gguf_file *file, const char *key, bool texts, tx_gguf_array *array)
{
    const tx_gguf_entry_value *entry = NULL;
    TX_TRY(find_value(file, key, &entry));
    if (entry->type != TX_GGUF_VALUE_ARRAY || (entry->of == TX_GGUF_VALUE_STRING) != texts)
        return fail_type(file, key, texts ? "an array of strings" : "an array of numbers");
    const size_t room = (size_t)entry->count + 1;
    tx_gguf_array result = {.count = entry->count};
    if (texts) {
        result.text = malloc(room * sizeof(char *));
        result.size = malloc(room * sizeof *result.size);
    } else {
        result.number = malloc(room * sizeof *result.number);
    }
    if (texts ? !result.text || !result.size : !result.number) {
        tx_gguf_array_free(&result);
        return tx_fail(TX_MEMORY, "%s: no memory for %s", file->file.path, key);
    }
    if (texts)
        fill_texts(data_of(file, entry), &result);
    for (int64_t i = 0; i < entry->count && !texts; i++)
        if (!tx_gguf_number(entry->of, data_of(file, entry) + i * tx_gguf_value_bytes(entry->of), &result.number[i]))
            result.number[i] = data_of(file, entry)[i] != 0;
    *array = result;
    return TX_OK;
}

void tx_gguf_array_free(tx_gguf_array *array)
{
    free(array->text);
    free(array->size);
    free(array->number);
    *array = (tx_gguf_array){0};
}
