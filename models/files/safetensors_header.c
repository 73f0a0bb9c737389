/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses safetensors headers. The outermost object is parsed here, and each entry is passed to the JSON parser
 * separately. Thus duplicate names are detected, and a hostile header of 100 MB cannot use a multiple of its size in
 * memory. */
#include "models/files/safetensors_header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Maximum bytes of the parts of a header. */
#define NAME_LIMIT ((size_t)1 << 20)
#define ENTRY_LIMIT ((size_t)1 << 16)
#define METADATA_LIMIT ((size_t)4 << 20)

typedef struct tx_dtype_row {
    const char *name;
    int32_t bits;
} tx_dtype_row;

static const tx_dtype_row dtype_rows[TX_ST_COUNT] = {
#define X(name, bits) [TX_ST_##name] = {#name, bits},
    TX_SAFETENSORS_DTYPE_MAP(X)
#undef X
};

const char *tx_st_dtype_name(tx_st_dtype dtype)
{
    return dtype < TX_ST_COUNT ? dtype_rows[dtype].name : "none";
}

int32_t tx_st_dtype_bits(tx_st_dtype dtype)
{
    return dtype < TX_ST_COUNT ? dtype_rows[dtype].bits : 0;
}

tx_dtype tx_st_stored(tx_st_dtype dtype)
{
    int type = 0;
    while (type < TX_DTYPE_COUNT && strcmp(tx_dtype_name((tx_dtype)type), tx_st_dtype_name(dtype)) != 0)
        type++;
    return (tx_dtype)type;
}

int64_t tx_st_elements(const tx_st_tensor *tensor)
{
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->rank; i++)
        count *= tensor->dim[i];
    return count;
}

int64_t tx_st_bytes(const tx_st_tensor *tensor)
{
    return tx_st_elements(tensor) * tx_st_dtype_bits(tensor->dtype) / 8;
}

tx_shape tx_st_shape(const tx_st_tensor *tensor)
{
    const int32_t rank = tensor->rank < TX_MAX_RANK ? tensor->rank : TX_MAX_RANK;
    tx_shape shape = {.rank = rank ? rank : 1, .dim = {1}};
    memcpy(shape.dim, tensor->dim, (size_t)rank * sizeof shape.dim[0]);
    return shape;
}

bool tx_st_multiply(int64_t a, int64_t b, int64_t *product)
{
    if (b != 0 && a > INT64_MAX / b)
        return false;
    *product = a * b;
    return true;
}

tx_status tx_st_size(const tx_st_tensor *tensor, int64_t *bytes)
{
    int64_t bits = 1;
    bool fits = true;
    for (int32_t i = 0; i < tensor->rank && fits; i++)
        fits = tx_st_multiply(bits, tensor->dim[i], &bits);
    fits = fits && tx_st_multiply(bits, tx_st_dtype_bits(tensor->dtype), &bits);
    if (!fits)
        return tx_fail(TX_FORMAT, "the size of its shape is over 2^63 bits");
    if (bits % 8 != 0)
        return tx_fail(TX_FORMAT, "%" PRId64 " bits do not end on a byte", bits);
    *bytes = bits / 8;
    return TX_OK;
}

/* ---- One entry --------------------------------------------------------------------------------- */

static tx_status parse_dtype(const tx_json *json, tx_st_dtype *dtype)
{
    const char *name;
    TX_TRY(tx_json_get_string(json, "dtype", &name));
    for (int32_t i = 0; i < TX_ST_COUNT; i++)
        if (strcmp(name, dtype_rows[i].name) == 0) {
            *dtype = (tx_st_dtype)i;
            return TX_OK;
        }
    return tx_fail(TX_FORMAT, "unknown dtype %.40s", name);
}

static tx_status parse_shape(const tx_json *json, tx_st_tensor *tensor)
{
    tx_json *shape;
    TX_TRY(tx_json_get(json, "shape", TX_JSON_ARRAY, &shape));
    size_t rank = tx_json_size(shape);
    if (rank > TX_ST_MAX_RANK)
        return tx_fail(TX_UNSUPPORTED, "%zu dimensions, more than the %d supported", rank, TX_ST_MAX_RANK);
    tensor->rank = (int32_t)rank;
    for (size_t i = 0; i < rank; i++)
        TX_TRY(tx_json_as_int(tx_json_at(shape, i), "shape", 0, INT64_MAX, &tensor->dim[i]));
    return TX_OK;
}

static tx_status parse_offsets(const tx_json *json, tx_st_entry *entry)
{
    tx_json *offsets;
    TX_TRY(tx_json_get(json, "data_offsets", TX_JSON_ARRAY, &offsets));
    if (tx_json_size(offsets) != 2)
        return tx_fail(TX_FORMAT, "data_offsets has %zu numbers, not 2", tx_json_size(offsets));
    TX_TRY(tx_json_as_int(tx_json_at(offsets, 0), "data_offsets", 0, INT64_MAX, &entry->begin));
    TX_TRY(tx_json_as_int(tx_json_at(offsets, 1), "data_offsets", 0, INT64_MAX, &entry->end));
    if (entry->end < entry->begin)
        return tx_fail(TX_FORMAT, "data_offsets end before they begin");
    return TX_OK;
}

static tx_status parse_entry(const tx_json *json, tx_st_entry *entry)
{
    TX_TRY(parse_dtype(json, &entry->tensor.dtype));
    TX_TRY(parse_shape(json, &entry->tensor));
    TX_TRY(parse_offsets(json, entry));
    /* All three exist, so another size means an additional field. */
    if (tx_json_size(json) != 3)
        return tx_fail(TX_FORMAT, "has a field other than dtype, shape and data_offsets");
    return TX_OK;
}

/* ---- The outermost object ------------------------------------------------------------------------ */

typedef struct tx_cursor {
    const char *path, *text;
    size_t size, at;
    size_t room; /* of header->entry */
    bool has_metadata;
    tx_st_header *header;
} tx_cursor;

static int skip_space(tx_cursor *c)
{
    while (c->at < c->size && c->text[c->at] && strchr(" \t\n\r", c->text[c->at]))
        c->at++;
    return c->at < c->size ? (unsigned char)c->text[c->at] : -1;
}

static tx_status fail_at(const tx_cursor *c, const char *expected)
{
    return tx_fail(TX_FORMAT, "%s: header, byte %zu: expected %s", c->path, c->at, expected);
}

/* Parses the value at the cursor, which must start with `open` and have at most `limit` bytes. */
static tx_status next_value(tx_cursor *c, char open, const char *expected, size_t limit, tx_json **json)
{
    if (skip_space(c) != open)
        return fail_at(c, expected);
    size_t rest = c->size - c->at, used = 0;
    TX_TRY(tx_fail_in(tx_json_parse_prefix(c->text + c->at, rest < limit ? rest : limit, "it", json, &used),
                      "%s: header, %s at byte %zu (at most %zu bytes)", c->path, expected, c->at, limit));
    c->at += used;
    return TX_OK;
}

static tx_status add_entry(tx_cursor *c, const char *name, const tx_json *json)
{
    tx_st_header *h = c->header;
    if (tx_array_reserve(&h->entry, &c->room, (size_t)h->count + 1, sizeof *h->entry, "tensors"))
        return tx_fail_in(TX_MEMORY, "%s", c->path);
    tx_st_entry entry = {0};
    tx_status status = parse_entry(json, &entry);
    if (status) /* a missing field means a malformed file, not a missing one */
        return tx_fail_in(status == TX_NOT_FOUND ? TX_FORMAT : status, "%s: tensor %.100s", c->path, name);
    entry.tensor.name = entry.name = strdup(name);
    if (!entry.name)
        return tx_fail(TX_MEMORY, "%s: no memory for its header", c->path);
    h->entry[h->count++] = entry;
    return TX_OK;
}

static tx_status check_metadata(tx_cursor *c, const tx_json *json)
{
    const char *text;
    if (c->has_metadata)
        return tx_fail(TX_FORMAT, "%s: header: __metadata__ occurs twice", c->path);
    for (void *i = tx_json_first(json); i; i = tx_json_next(json, i))
        TX_TRY(tx_fail_in(tx_json_as_string(tx_json_value(i), tx_json_key(i), &text), "%s: __metadata__", c->path));
    c->has_metadata = true;
    return TX_OK;
}

/* "name": {...} */
static tx_status parse_member(tx_cursor *c)
{
    tx_json *key, *value = NULL;
    TX_TRY(next_value(c, '"', "a name", NAME_LIMIT, &key));
    const char *name = "";
    tx_status status = tx_json_as_string(key, c->path, &name);
    if (!status && skip_space(c) != ':')
        status = fail_at(c, "a colon");
    if (!status) {
        bool metadata = strcmp(name, "__metadata__") == 0;
        c->at++;
        status = next_value(c, '{', metadata ? "the object __metadata__" : "an object that describes a tensor",
                            metadata ? METADATA_LIMIT : ENTRY_LIMIT, &value);
        TX_THEN(status, metadata ? check_metadata(c, value) : add_entry(c, name, value));
    }
    tx_json_free(value);
    tx_json_free(key);
    return status;
}

static tx_status parse_object(tx_cursor *c)
{
    /* The format requires the brace as the first byte. */
    if (c->size == 0 || c->text[0] != '{')
        return fail_at(c, "{");
    c->at = 1;
    if (skip_space(c) != '}') {
        for (;; c->at++) {
            TX_TRY(parse_member(c));
            int next = skip_space(c);
            if (next == '}')
                break;
            if (next != ',')
                return fail_at(c, "a comma or }");
        }
    }
    c->at++;
    return skip_space(c) < 0 ? TX_OK : fail_at(c, "nothing but spaces after the closing brace");
}

/* ---- The whole header ------------------------------------------------------------------------------ */

static int by_offset(const void *a, const void *b)
{
    const tx_st_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->tensor.name, y->tensor.name);
}

/* The tensors, sorted by offset, must cover the data exactly. */
static tx_status check_tiling(const char *path, const tx_st_header *h, int64_t data_bytes)
{
    int64_t end = 0;
    for (int32_t i = 0; i < h->count; i++) {
        const tx_st_entry *e = &h->entry[i];
        if (e->begin != end)
            return tx_fail(TX_FORMAT,
                           "%s: tensor %.100s begins at byte %" PRId64 " of the data, the one before ends at %" PRId64
                           ": %s",
                           path, e->tensor.name, e->begin, end, e->begin < end ? "they overlap" : "a gap");
        int64_t bytes;
        tx_status status = tx_st_size(&e->tensor, &bytes);
        if (!status && bytes != e->end - e->begin)
            status =
                tx_fail(TX_FORMAT, "its dtype and shape require %" PRId64 " bytes, its data_offsets cover %" PRId64,
                        bytes, e->end - e->begin);
        if (status)
            return tx_fail_in(status, "%s: tensor %.100s", path, e->tensor.name);
        end = e->end;
    }
    if (end != data_bytes)
        return tx_fail(TX_FORMAT,
                       "%s: the header describes %" PRId64 " bytes of data, the file holds %" PRId64 ": it is %s", path,
                       end, data_bytes, end > data_bytes ? "cut off" : "followed by something else");
    return TX_OK;
}

tx_status tx_st_header_sort(tx_st_header *h)
{
    if (h->count > 0)
        qsort(h->entry, (size_t)h->count, sizeof *h->entry, by_offset);
    h->by_name = malloc(((size_t)h->count + 1) * sizeof *h->by_name);
    if (!h->by_name)
        return tx_fail(TX_MEMORY, "no memory for the header");
    for (int32_t i = 0; i < h->count; i++)
        h->by_name[i] = (tx_named){h->entry[i].tensor.name, i};
    const char *twice = tx_named_sort(h->by_name, (size_t)h->count);
    return twice ? tx_fail(TX_FORMAT, "header: tensor %.100s occurs twice", twice) : TX_OK;
}

tx_status tx_st_header_parse(const char *path, const char *text, size_t size, int64_t data_bytes, tx_st_header *header)
{
    tx_st_header result = {0};
    tx_cursor cursor = {.path = path, .text = text, .size = size, .header = &result};
    tx_status status = parse_object(&cursor);
    if (!status)
        status = tx_fail_in(tx_st_header_sort(&result), "%s", path);
    TX_THEN(status, check_tiling(path, &result, data_bytes));
    if (status)
        tx_st_header_free(&result);
    else
        *header = result;
    return status;
}

void tx_st_header_free(tx_st_header *header)
{
    for (int32_t i = 0; i < header->count; i++)
        free(header->entry[i].name);
    free(header->entry);
    free(header->by_name);
    *header = (tx_st_header){0};
}
