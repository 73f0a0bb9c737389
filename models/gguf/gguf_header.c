/* SPDX-License-Identifier: Apache-2.0
 * Reads the header of a GGUF file. Every count and size is compared with the remaining bytes before memory is
 * allocated.
 */
#include "models/gguf/gguf_header.h"

#include "api/base/arithmetic.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "GGUF"
/* Bytes; a vocabulary and its merges require some tens of MB. */
#define HEADER_LIMIT ((int64_t)512 << 20)
#define MAX_VALUES 65536
#define MAX_TENSORS 1048576
#define MAX_KEY 65535
#define MAX_NAME 64
#define MAX_ALIGNMENT 65536
/* Bytes per reading. */
#define PIECE ((int64_t)1 << 20)
/* Minimum bytes of a value and of a tensor: lengths, type, and the smallest contents. */
#define LEAST_VALUE 13
#define LEAST_TENSOR 32

int64_t tx_gguf_value_bytes(tx_gguf_value type)
{
    switch (type) {
#define X(name, number, bytes) \
    case TX_GGUF_VALUE_##name: \
        return bytes;
        TX_GGUF_VALUE_MAP(X)
#undef X
    }
    return 0;
}

#define NUMBER(type)                        \
    do {                                    \
        type value;                         \
        memcpy(&value, data, sizeof value); \
        *number = (double)value;            \
        return true;                        \
    } while (0)

bool tx_gguf_number(tx_gguf_value type, const char *data, double *number)
{
    switch (type) {
    case TX_GGUF_VALUE_U8:
        NUMBER(uint8_t);
    case TX_GGUF_VALUE_I8:
        NUMBER(int8_t);
    case TX_GGUF_VALUE_U16:
        NUMBER(uint16_t);
    case TX_GGUF_VALUE_I16:
        NUMBER(int16_t);
    case TX_GGUF_VALUE_U32:
        NUMBER(uint32_t);
    case TX_GGUF_VALUE_I32:
        NUMBER(int32_t);
    case TX_GGUF_VALUE_F32:
        NUMBER(float);
    case TX_GGUF_VALUE_U64:
        NUMBER(uint64_t);
    case TX_GGUF_VALUE_I64:
        NUMBER(int64_t);
    case TX_GGUF_VALUE_F64:
        NUMBER(double);
    default:
        return false;
    }
}

/* ---- Bytes ------------------------------------------------------------------------------------------- */

/* A cursor in the header, which is read on demand. Positions are offsets, because `bytes` may be reallocated. */
typedef struct cursor {
    const tx_data_file *file;
    char *bytes;
    size_t room;
    int64_t size, at; /* bytes read, position of the cursor */
} cursor;

/* Makes sure that the next `bytes` bytes are in memory. */
static tx_status require(cursor *w, uint64_t bytes)
{
    if (bytes > (uint64_t)(w->file->size - w->at))
        return tx_fail(TX_FORMAT, "cut off: expected %" PRIu64 " bytes after byte %" PRId64 " of %" PRId64, bytes,
                       w->at, w->file->size);
    if (w->at + (int64_t)bytes > HEADER_LIMIT)
        return tx_fail(TX_UNSUPPORTED, "its header is larger than %" PRId64 " MB", HEADER_LIMIT >> 20);
    if (w->at + (int64_t)bytes <= w->size)
        return TX_OK;
    int64_t wanted = w->at + (int64_t)bytes + PIECE;
    if (wanted > w->file->size)
        wanted = w->file->size;
    TX_TRY(tx_array_reserve(&w->bytes, &w->room, (size_t)wanted, 1, "bytes of its header"));
    TX_TRY(tx_data_file_read(w->file, w->size, w->bytes + w->size, (size_t)(wanted - w->size)));
    w->size = wanted;
    return TX_OK;
}

static tx_status read_bytes(cursor *w, void *value, size_t bytes)
{
    TX_TRY(require(w, bytes));
    memcpy(value, w->bytes + w->at, bytes);
    w->at += (int64_t)bytes;
    return TX_OK;
}

static tx_status read_u32(cursor *w, uint32_t *value)
{
    return read_bytes(w, value, sizeof *value);
}

static tx_status read_u64(cursor *w, uint64_t *value)
{
    return read_bytes(w, value, sizeof *value);
}

/* Reads a count of items of at least `least` bytes, which the rest of the file must be able to hold. */
static tx_status read_count(cursor *w, uint64_t least, uint64_t most, const char *what, uint64_t *count)
{
    TX_TRY(read_u64(w, count));
    if (*count > most || *count > (uint64_t)(w->file->size - w->at) / least)
        return tx_fail(TX_FORMAT, "%" PRIu64 " %s are too many, or more than a file of %" PRId64 " bytes can hold",
                       *count, what, w->file->size);
    return TX_OK;
}

/* Reads a name into allocated memory. */
static tx_status read_name(cursor *w, uint64_t most, char **name)
{
    uint64_t size;
    TX_TRY(read_u64(w, &size));
    if (size == 0 || size > most)
        return tx_fail(TX_FORMAT, "byte %" PRId64 ": a name of %" PRIu64 " bytes", w->at, size);
    TX_TRY(require(w, size));
    if (memchr(w->bytes + w->at, '\0', (size_t)size))
        return tx_fail(TX_FORMAT, "byte %" PRId64 ": a name that contains NUL", w->at);
    *name = strndup(w->bytes + w->at, (size_t)size);
    w->at += (int64_t)size;
    return *name ? TX_OK : tx_fail(TX_MEMORY, "no memory for a name");
}

/* ---- Values ------------------------------------------------------------------------------------------ */

static tx_status skip_string(cursor *w, uint64_t *size)
{
    TX_TRY(read_u64(w, size));
    TX_TRY(require(w, *size));
    w->at += (int64_t)*size;
    return TX_OK;
}

static tx_status read_array(cursor *w, tx_gguf_entry_value *value)
{
    uint32_t of;
    uint64_t count, size;
    TX_TRY(read_u32(w, &of));
    value->of = (tx_gguf_value)of;
    const int64_t bytes = tx_gguf_value_bytes(value->of);
    if (!bytes && of != TX_GGUF_VALUE_STRING)
        return tx_fail(TX_UNSUPPORTED, "an array of type %" PRIu32, of);
    TX_TRY(read_count(w, bytes ? (uint64_t)bytes : sizeof size, INT64_MAX, "elements", &count));
    value->count = (int64_t)count;
    value->at = w->at;
    for (uint64_t i = 0; i < count && !bytes; i++)
        TX_TRY(skip_string(w, &size));
    TX_TRY(require(w, count * (uint64_t)bytes));
    w->at += (int64_t)count * bytes;
    return TX_OK;
}

static tx_status read_value(cursor *w, tx_gguf_entry_value *value)
{
    uint32_t type = 0;
    uint64_t size;
    TX_TRY(read_name(w, MAX_KEY, &value->key));
    tx_status status = read_u32(w, &type);
    value->type = (tx_gguf_value)type;
    const int64_t bytes = status ? 0 : tx_gguf_value_bytes(value->type);
    value->at = w->at;
    if (!status && bytes) {
        status = require(w, (uint64_t)bytes);
        w->at += bytes;
    } else if (!status && type == TX_GGUF_VALUE_STRING) {
        status = skip_string(w, &size);
        value->count = status ? 0 : (int64_t)size;
        value->at += (int64_t)sizeof size;
    } else if (!status) {
        status = type == TX_GGUF_VALUE_ARRAY ? read_array(w, value)
                                             : tx_fail(TX_FORMAT, "unknown value type %" PRIu32 "", type);
    }
    return tx_fail_in(status, "%.64s", value->key);
}

/* ---- Tensors ----------------------------------------------------------------------------------------- */

/* ggml's names of all its types, for messages. */
static const char *const dtype_names[] = {
    "F32",        "F16",        "Q4_0",       "Q4_1",  "Q4_2",     "Q4_3",     "Q5_0",     "Q5_1",    "Q8_0",
    "Q8_1",       "Q2_K",       "Q3_K",       "Q4_K",  "Q5_K",     "Q6_K",     "Q8_K",     "IQ2_XXS", "IQ2_XS",
    "IQ3_XXS",    "IQ1_S",      "IQ4_NL",     "IQ3_S", "IQ2_S",    "IQ4_XS",   "I8",       "I16",     "I32",
    "I64",        "F64",        "IQ1_M",      "BF16",  "Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",   "TQ2_0",
    "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4", "NVFP4",    "Q1_0"};

static tx_status find_dtype(uint32_t number, tx_gguf_dtype *dtype)
{
    char list[128] = "";
    switch (number) {
#define X(name, number, elements, bytes, lower) \
    case number:                                \
        *dtype = TX_GGUF_##name;                \
        return TX_OK;
        TX_GGUF_DTYPE_MAP(X)
#undef X
    default:
#define X(name, number, elements, bytes, lower) tx_list_add(list, sizeof list, ", ", "%s", #name);
        TX_GGUF_DTYPE_MAP(X)
#undef X
        return tx_fail(TX_UNSUPPORTED, "type %s (%" PRIu32 ") is not supported, only %s",
                       number < sizeof dtype_names / sizeof dtype_names[0] ? dtype_names[number] : "unknown", number,
                       list);
    }
}

static tx_status check_size(const tx_gguf_tensor *t)
{
    int64_t product = 4; /* maximum bytes of an element, so that the number of bytes cannot overflow */
    for (int32_t i = 0; i < t->rank; i++)
        if (t->dim[i] < 1 || !tx_st_multiply(product, t->dim[i], &product))
            return tx_fail(TX_FORMAT, "dimensions that are 0 or too large");
    if (t->dim[t->rank - 1] % tx_gguf_block(t->dtype) != 0)
        return tx_fail(TX_FORMAT, "rows of %" PRId64 " elements are not a multiple of the block size",
                       t->dim[t->rank - 1]);
    return TX_OK;
}

static tx_status read_tensor_rest(cursor *w, tx_gguf_entry *e)
{
    uint32_t rank, type;
    uint64_t offset;
    TX_TRY(read_u32(w, &rank));
    if (rank < 1 || rank > TX_GGUF_MAX_RANK)
        return tx_fail(TX_FORMAT, "%" PRIu32 " dimensions", rank);
    e->tensor.rank = (int32_t)rank;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t size;
        TX_TRY(read_u64(w, &size));
        e->tensor.dim[rank - 1 - i] = size > INT64_MAX ? -1 : (int64_t)size;
    }
    TX_TRY(read_u32(w, &type));
    TX_TRY(read_u64(w, &offset));
    TX_TRY(find_dtype(type, &e->tensor.dtype));
    e->at = offset > INT64_MAX ? -1 : (int64_t)offset;
    return check_size(&e->tensor);
}

static tx_status read_tensor(cursor *w, tx_gguf_entry *e)
{
    TX_TRY(read_name(w, MAX_NAME, &e->name));
    e->tensor.name = e->name;
    e->file = w->file;
    return tx_fail_in(read_tensor_rest(w, e), "tensor %s", e->name);
}

/* Converts offsets to positions in the file. Each tensor must start at the end of the one before, rounded up to
 * the alignment. */
static tx_status resolve_offsets(const cursor *w, int64_t alignment, tx_gguf_header *h)
{
    const int64_t data = tx_round_up(w->at, alignment);
    int64_t next = 0;
    for (int32_t i = 0; i < h->tensors; i++) {
        tx_gguf_entry *e = &h->tensor[i];
        const int64_t bytes = tx_gguf_bytes(&e->tensor);
        if (e->at != next)
            return tx_fail(TX_FORMAT, "tensor %s: its offset is not %" PRId64 ", the end of the one before it", e->name,
                           next);
        if (data > w->file->size || bytes > w->file->size - data - next)
            return tx_fail(TX_FORMAT, "tensor %s ends beyond the file, which has %" PRId64 " bytes: it is cut off",
                           e->name, w->file->size);
        e->at = data + next;
        next = tx_round_up(next + bytes, alignment);
        if (next > w->file->size - data)
            next = w->file->size - data; /* only padding is missing, so no other tensor can follow */
    }
    return TX_OK;
}

/* ---- The whole header --------------------------------------------------------------------------------- */

tx_status tx_gguf_sort_names(tx_named *names, int32_t count)
{
    const char *twice = tx_named_sort(names, (size_t)count);
    return twice ? tx_fail(TX_FORMAT, "%.64s occurs twice", twice) : TX_OK;
}

static tx_status check_version(cursor *w)
{
    uint32_t version;
    if (require(w, sizeof MAGIC - 1) || memcmp(w->bytes, MAGIC, sizeof MAGIC - 1) != 0)
        return tx_fail(TX_FORMAT, "not a GGUF file");
    w->at = sizeof MAGIC - 1;
    TX_TRY(read_u32(w, &version));
    if (version != 2 && version != 3)
        return tx_fail(TX_UNSUPPORTED, "GGUF of version %" PRIu32 "%s: only versions 2 and 3 are supported", version,
                       version > 0xFFFF ? ", or its byte order is that of another machine" : "");
    return TX_OK;
}

static tx_status read_values(cursor *w, int32_t count, tx_gguf_header *h)
{
    tx_status status = TX_OK;
    while (h->values < count && !status) {
        status = read_value(w, &h->value[h->values]);
        h->values += h->value[h->values].key != NULL; /* counted so that it is freed */
    }
    for (int32_t i = 0; i < h->values; i++)
        h->value_names[i] = (tx_named){h->value[i].key, i};
    TX_TRY(status);
    return tx_gguf_sort_names(h->value_names, h->values);
}

static tx_status read_tensors(cursor *w, int32_t count, tx_gguf_header *h)
{
    tx_status status = TX_OK;
    while (h->tensors < count && !status) {
        status = read_tensor(w, &h->tensor[h->tensors]);
        h->tensors += h->tensor[h->tensors].name != NULL;
    }
    for (int32_t i = 0; i < h->tensors; i++)
        h->tensor_names[i] = (tx_named){h->tensor[i].name, i};
    TX_TRY(status);
    return tx_gguf_sort_names(h->tensor_names, h->tensors);
}

static tx_status find_alignment(const tx_gguf_header *h, const char *bytes, int64_t *alignment)
{
    const int32_t index = tx_named_find(h->value_names, (size_t)h->values, TX_GGUF_ALIGNMENT_KEY);
    uint32_t given = TX_GGUF_ALIGNMENT;
    if (index >= 0 && h->value[index].type == TX_GGUF_VALUE_U32)
        memcpy(&given, bytes + h->value[index].at, sizeof given);
    else if (index >= 0)
        return tx_fail(TX_FORMAT, TX_GGUF_ALIGNMENT_KEY ": expected a U32");
    if (given == 0 || given > MAX_ALIGNMENT || given & (given - 1))
        return tx_fail(TX_FORMAT, TX_GGUF_ALIGNMENT_KEY ": %" PRIu32 " is not a power of two up to %d", given,
                       MAX_ALIGNMENT);
    *alignment = given;
    return TX_OK;
}

static tx_status read_all(cursor *w, tx_gguf_header *h)
{
    uint64_t tensors, values;
    int64_t alignment = TX_GGUF_ALIGNMENT;
    TX_TRY(check_version(w));
    TX_TRY(read_count(w, LEAST_TENSOR, MAX_TENSORS, "tensors", &tensors));
    TX_TRY(read_count(w, LEAST_VALUE, MAX_VALUES, "values", &values));
    h->value = calloc(values + 1, sizeof *h->value);
    h->value_names = calloc(values + 1, sizeof *h->value_names);
    h->tensor = calloc(tensors + 1, sizeof *h->tensor);
    h->tensor_names = calloc(tensors + 1, sizeof *h->tensor_names);
    if (!h->value || !h->value_names || !h->tensor || !h->tensor_names)
        return tx_fail(TX_MEMORY, "no memory for its header");
    TX_TRY(read_values(w, (int32_t)values, h));
    TX_TRY(read_tensors(w, (int32_t)tensors, h));
    TX_TRY(find_alignment(h, w->bytes, &alignment));
    return resolve_offsets(w, alignment, h);
}

tx_status tx_gguf_header_read(const tx_data_file *file, tx_gguf_header *header)
{
    cursor w = {.file = file};
    const tx_status status = read_all(&w, header);
    header->bytes = w.bytes;
    return status;
}

void tx_gguf_header_free(tx_gguf_header *header)
{
    for (int32_t i = 0; i < header->values; i++)
        free(header->value[i].key);
    for (int32_t i = 0; i < header->tensors; i++)
        free(header->tensor[i].name);
    free(header->value);
    free(header->tensor);
    free(header->value_names);
    free(header->tensor_names);
    free(header->bytes);
}
