/* SPDX-License-Identifier: Apache-2.0
 * Reads the table of tensors of files by torch.save(), see safetensors_header.h. */
#include "models/files/safetensors_header.h"

#include "models/files/pickle.h"
#include "models/files/zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most bytes of a pickle. That of a model with 10,000 tensors has 3 MB. */
#define PICKLE_LIMIT ((int64_t)8 << 20)

/* The magic number of old files, a pickled integer, and the pickles before the table. */
static const char old_magic[] = "\x80\x02\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
enum { OLD_MAGIC = sizeof old_magic - 1, BEFORE_TABLE = 3 };

typedef struct reader {
    const tx_data_file *file;
    bool old;   /* without an archive */
    tx_zip zip; /* the storages of an old file, too */
    char *text; /* the pickle, or the beginning of an old file */
    tx_pickle table;
    tx_st_header header;
} reader;

static const struct {
    const char *name;
    tx_st_dtype dtype;
} storages[] = {{"FloatStorage", TX_ST_F32},  {"HalfStorage", TX_ST_F16}, {"BFloat16Storage", TX_ST_BF16},
                {"DoubleStorage", TX_ST_F64}, {"LongStorage", TX_ST_I64}, {"IntStorage", TX_ST_I32},
                {"ShortStorage", TX_ST_I16},  {"CharStorage", TX_ST_I8},  {"ByteStorage", TX_ST_U8},
                {"BoolStorage", TX_ST_BOOL},  {NULL, TX_ST_COUNT}};

static tx_st_dtype dtype_of(const tx_pickle_value *type)
{
    int i = 0;
    while (storages[i].name && !tx_pickle_is(type, TX_PICKLE_GLOBAL, storages[i].name))
        i++;
    return storages[i].dtype;
}

/* ---- Storages ---------------------------------------------------------------------------------------- */

static tx_status find_storage(const reader *r, const tx_pickle_value *key, tx_zip_member *storage)
{
    char name[128];
    if (!key || key->kind != TX_PICKLE_TEXT || key->size > 100)
        return tx_fail(TX_FORMAT, "its storage has no key");
    snprintf(name, sizeof name, "%s%.*s", r->old ? "" : "data/", (int)key->size, key->text);
    return tx_zip_find(&r->zip, name, storage);
}

/* ---- Tensors ----------------------------------------------------------------------------------------- */

/* Reads the shape, and checks that the elements follow one another. */
static tx_status read_shape(const tx_pickle *p, const tx_pickle_value *size, const tx_pickle_value *stride,
                            tx_st_tensor *tensor)
{
    const tx_pickle_value *dim;
    while (tensor->rank < TX_ST_MAX_RANK && (dim = tx_pickle_at(p, size, tensor->rank)) != NULL) {
        if (dim->kind != TX_PICKLE_INT || dim->number < 0)
            return tx_fail(TX_FORMAT, "its shape has no sizes");
        tensor->dim[tensor->rank++] = dim->number;
    }
    if (tx_pickle_at(p, size, tensor->rank))
        return tx_fail(TX_UNSUPPORTED, "it has more than %d dimensions", TX_ST_MAX_RANK);
    int64_t bytes, step = 1;
    TX_TRY(tx_st_size(tensor, &bytes));
    for (int32_t i = tensor->rank - 1; i >= 0 && bytes > 0; step *= tensor->dim[i--]) {
        const tx_pickle_value *s = tx_pickle_at(p, stride, i);
        if (!s || s->kind != TX_PICKLE_INT || (tensor->dim[i] > 1 && s->number != step))
            return tx_fail(TX_UNSUPPORTED, "its elements are not stored in order: save a contiguous copy");
    }
    return TX_OK;
}

/* Reads a call of _rebuild_tensor_v2(storage, first element, sizes, strides, ...). */
static tx_status read_tensor(const reader *r, const tx_pickle_value *call, tx_st_entry *entry)
{
    const tx_pickle *p = &r->table;
    if (tx_pickle_is(tx_pickle_at(p, call, 0), TX_PICKLE_GLOBAL, "_rebuild_parameter"))
        call = tx_pickle_at(p, tx_pickle_at(p, call, 1), 0);
    const tx_pickle_value *function = tx_pickle_at(p, call, 0), *arguments = tx_pickle_at(p, call, 1);
    if (!call || call->kind != TX_PICKLE_CALL ||
        !(tx_pickle_is(function, TX_PICKLE_GLOBAL, "_rebuild_tensor_v2") ||
          tx_pickle_is(function, TX_PICKLE_GLOBAL, "_rebuild_tensor")))
        return tx_fail(TX_UNSUPPORTED, "it is not a tensor; save a model's state_dict()");
    const tx_pickle_value *storage = tx_pickle_at(p, arguments, 0), *first = tx_pickle_at(p, arguments, 1);
    const tx_pickle_value *id = storage && storage->kind == TX_PICKLE_PERSISTENT ? tx_pickle_at(p, storage, 0) : NULL;
    entry->tensor.dtype = dtype_of(tx_pickle_at(p, id, 1));
    if (entry->tensor.dtype == TX_ST_COUNT || !first || first->kind != TX_PICKLE_INT)
        return tx_fail(TX_UNSUPPORTED, "the type of its storage is unknown");
    TX_TRY(read_shape(p, tx_pickle_at(p, arguments, 2), tx_pickle_at(p, arguments, 3), &entry->tensor));
    tx_zip_member data;
    int64_t before;
    const int64_t width = tx_st_dtype_bits(entry->tensor.dtype) / 8, size = tx_st_bytes(&entry->tensor);
    TX_TRY(find_storage(r, tx_pickle_at(p, id, 2), &data));
    if (first->number < 0 || !tx_st_multiply(first->number, width, &before) || before > data.bytes ||
        size > data.bytes - before)
        return tx_fail(TX_FORMAT, "its data end after those of its storage: the file is cut off or damaged");
    entry->begin = data.at + before;
    entry->end = entry->begin + size;
    return TX_OK;
}

static tx_status add_tensor(reader *r, const tx_pickle_value *name, const tx_pickle_value *value)
{
    tx_st_entry *entry = &r->header.entry[r->header.count];
    if (name->kind != TX_PICKLE_TEXT)
        return tx_fail(TX_UNSUPPORTED, "its keys are no names of tensors");
    entry->name = strndup(name->text, (size_t)name->size);
    if (!entry->name)
        return tx_fail(TX_MEMORY, "no memory for its names");
    r->header.count++;
    entry->tensor.name = entry->name;
    return tx_fail_in(read_tensor(r, value, entry), "%.100s", entry->name);
}

/* The items of a dictionary, or of an OrderedDict that a call makes. */
static tx_status read_table(reader *r)
{
    const tx_pickle *p = &r->table;
    const tx_pickle_value *root = &p->value[p->root];
    const bool ordered =
        root->kind == TX_PICKLE_CALL && tx_pickle_is(tx_pickle_at(p, root, 0), TX_PICKLE_GLOBAL, "OrderedDict");
    if (!ordered && root->kind != TX_PICKLE_DICT)
        return tx_fail(TX_UNSUPPORTED, "it holds no dictionary of tensors; save a model's state_dict()");
    r->header.entry = calloc((size_t)p->items / 2 + 1, sizeof *r->header.entry);
    if (!r->header.entry)
        return tx_fail(TX_MEMORY, "no memory for its table");
    int32_t key = root->first;
    for (int i = 0; ordered && i < 2; i++)
        key = p->item[key].next;
    for (int32_t value; key >= 0; key = p->item[value].next) {
        value = p->item[key].next;
        if (value < 0)
            return tx_fail(TX_FORMAT, "a name has no value");
        TX_TRY(add_tensor(r, &p->value[p->item[key].value], &p->value[p->item[value].value]));
    }
    return TX_OK;
}

/* ---- Files ------------------------------------------------------------------------------------------- */

static tx_status read_text(reader *r, int64_t at, int64_t bytes)
{
    if (bytes > PICKLE_LIMIT)
        return tx_fail(TX_UNSUPPORTED, "its pickle has %" PRId64 " bytes, over the limit of %" PRId64, bytes,
                       PICKLE_LIMIT);
    r->text = malloc((size_t)bytes + 1);
    if (!r->text)
        return tx_fail(TX_MEMORY, "no memory for its pickle");
    return tx_data_file_read(r->file, at, r->text, (size_t)bytes);
}

static tx_status open_archive(reader *r)
{
    tx_zip_member pickle;
    TX_TRY(tx_zip_open(r->file, &r->zip));
    TX_TRY(tx_zip_find(&r->zip, "data.pkl", &pickle));
    TX_TRY(read_text(r, pickle.at, pickle.bytes));
    return tx_pickle_parse(r->text, (size_t)pickle.bytes, &r->table);
}

/* Lists the storages in the table: their keys, and their types as index. A NUL replaces the opcode that follows each
 * key. */
static tx_status list_types(reader *r, tx_named **types, size_t *count)
{
    const tx_pickle *p = &r->table;
    tx_named *created = malloc(((size_t)p->values + 1) * sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for its storages");
    *types = created;
    for (int32_t i = 0; i < p->values; i++) {
        const tx_pickle_value *id = p->value[i].kind == TX_PICKLE_PERSISTENT ? tx_pickle_at(p, &p->value[i], 0) : NULL;
        const tx_pickle_value *type = tx_pickle_at(p, id, 1), *key = tx_pickle_at(p, id, 2);
        if (key && key->kind == TX_PICKLE_TEXT) {
            r->text[key->text - r->text + key->size] = '\0';
            created[(*count)++] = (tx_named){key->text, (int32_t)dtype_of(type)};
        }
    }
    tx_named_sort(created, *count);
    return TX_OK;
}

/* Places the storages of the list of keys. The number of elements precedes the data of each. */
static tx_status place_storages(reader *r, const tx_pickle *keys, int64_t at, const tx_named *types, size_t count)
{
    const tx_pickle_value *list = &keys->value[keys->root];
    r->zip.member = calloc((size_t)keys->items + 1, sizeof *r->zip.member);
    if (!r->zip.member)
        return tx_fail(TX_MEMORY, "no memory for its storages");
    for (int32_t i = list->first; i >= 0; i = keys->item[i].next) {
        const tx_pickle_value *key = &keys->value[keys->item[i].value];
        tx_zip_member *storage = &r->zip.member[r->zip.count];
        int64_t elements = 0;
        if (key->kind != TX_PICKLE_TEXT || r->zip.count == keys->items)
            return tx_fail(TX_FORMAT, "its list of storages is damaged");
        r->text[key->text - r->text + key->size] = '\0';
        const int32_t type = tx_named_find(types, count, key->text);
        const tx_st_dtype dtype = type < 0 ? TX_ST_COUNT : (tx_st_dtype)type;
        if (dtype == TX_ST_COUNT || at > r->file->size - (int64_t)sizeof elements)
            return tx_fail(TX_FORMAT, "storage %.100s has no type or no data: the file is damaged", key->text);
        TX_TRY(tx_data_file_read(r->file, at, &elements, sizeof elements));
        at += (int64_t)sizeof elements;
        if (elements < 0 || !tx_st_multiply(elements, tx_st_dtype_bits(dtype) / 8, &storage->bytes) ||
            storage->bytes > r->file->size - at)
            return tx_fail(TX_FORMAT, "storage %.100s ends after the file: it is cut off", key->text);
        storage->name = key->text;
        storage->at = at;
        at += storage->bytes;
        r->zip.count++;
    }
    return tx_zip_sort(&r->zip);
}

/* The pickles of an old file: magic number, version, machine, table, keys of the storages. */
static tx_status open_old(reader *r)
{
    const int64_t size = r->file->size < PICKLE_LIMIT ? r->file->size : PICKLE_LIMIT;
    tx_pickle keys = {0};
    tx_named *types = NULL;
    size_t at = 0, count = 0;
    TX_TRY(read_text(r, 0, size));
    for (int i = 0; i <= BEFORE_TABLE; i++) {
        tx_pickle_free(&r->table);
        TX_TRY(tx_pickle_parse(r->text + at, (size_t)size - at, &r->table));
        at += r->table.bytes;
    }
    TX_TRY(tx_pickle_parse(r->text + at, (size_t)size - at, &keys));
    tx_status status = list_types(r, &types, &count);
    TX_THEN(status, place_storages(r, &keys, (int64_t)(at + keys.bytes), types, count));
    free(types);
    tx_pickle_free(&keys);
    return status;
}

tx_status tx_torch_read_tensor(const tx_data_file *file, tx_st_entry *entry)
{
    reader r = {.file = file};
    tx_st_entry result = {0};
    tx_status status = open_archive(&r);
    TX_THEN(status, read_tensor(&r, &r.table.value[r.table.root], &result));
    free(r.text);
    tx_pickle_free(&r.table);
    tx_zip_free(&r.zip);
    if (!status)
        *entry = result;
    return status;
}

bool tx_torch_is(const tx_data_file *file)
{
    char begin[OLD_MAGIC] = {0}; /* byte 8 of a safetensors file, whose length comes first, is a brace */
    return file->size >= OLD_MAGIC && tx_data_file_read(file, 0, begin, OLD_MAGIC) == TX_OK && begin[8] != '{' &&
           (memcmp(begin, "PK\3\4", 4) == 0 || memcmp(begin, old_magic, OLD_MAGIC) == 0);
}

tx_status tx_torch_read(const tx_data_file *file, tx_st_header *header)
{
    char first = 0;
    reader r = {.file = file};
    tx_status status = tx_data_file_read(file, 0, &first, 1);
    r.old = first != 'P';
    TX_THEN(status, r.old ? open_old(&r) : open_archive(&r));
    TX_THEN(status, read_table(&r));
    TX_THEN(status, tx_st_header_sort(&r.header));
    free(r.text);
    tx_pickle_free(&r.table);
    tx_zip_free(&r.zip);
    if (status)
        tx_st_header_free(&r.header);
    else
        *header = r.header;
    return tx_fail_in(status, "%s", file->path);
}
