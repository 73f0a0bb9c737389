/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF files, versions 2 and 3: a strict reader and a streaming writer (ggml-org/ggml, docs/gguf.md).
 *
 * A file is "GGUF", its version, the numbers of tensors and of values, the values (key, type, content), a list of the
 * tensors (name, dimensions, type, offset), and the tensors' data, each aligned to general.alignment. All numbers are
 * little-endian. The reader compares each count and size with the rest of the file before it allocates memory. It
 * refuses tensors with gaps between them, overlaps or data beyond the end. It reads data by position, so a file that
 * becomes shorter causes an error instead of a signal. */
#ifndef TX_FILES_GGUF_H
#define TX_FILES_GGUF_H

#include "api/base/blocks.h"
#include "tx.h"

/* X(NAME, number, bytes): types of values. STRING and ARRAY have no fixed size. */
#define TX_GGUF_VALUE_MAP(X) \
    X(U8, 0, 1)              \
    X(I8, 1, 1)              \
    X(U16, 2, 2)             \
    X(I16, 3, 2)             \
    X(U32, 4, 4)             \
    X(I32, 5, 4)             \
    X(F32, 6, 4)             \
    X(BOOL, 7, 1)            \
    X(STRING, 8, 0)          \
    X(ARRAY, 9, 0)           \
    X(U64, 10, 8)            \
    X(I64, 11, 8)            \
    X(F64, 12, 8)

typedef enum tx_gguf_value {
#define X(name, number, bytes) TX_GGUF_VALUE_##name = (number),
    TX_GGUF_VALUE_MAP(X)
#undef X
} tx_gguf_value;

/* X(NAME, number, elements, bytes, name): types of tensors, with elements and bytes of a block (api/base/blocks.h). */
#define TX_GGUF_DTYPE_MAP(X) TX_BLOCK_PLAIN_MAP(X) TX_BLOCK_MAP(X) TX_BLOCK_FILE_MAP(X)

typedef enum tx_gguf_dtype {
#define X(name, number, elements, bytes, lower) TX_GGUF_##name,
    TX_GGUF_DTYPE_MAP(X)
#undef X
        TX_GGUF_DTYPES
} tx_gguf_dtype;

/* Elements of a block; the length of a row is a multiple of it. */
int64_t tx_gguf_block(tx_gguf_dtype dtype);
int64_t tx_gguf_block_bytes(tx_gguf_dtype dtype);
/* The number of the type in files. */
int32_t tx_gguf_type_number(tx_gguf_dtype dtype);

#define TX_GGUF_MAX_RANK 4

typedef struct tx_gguf_tensor {
    const char *name;
    tx_gguf_dtype dtype;
    int32_t rank;                  /* at least 1 */
    int64_t dim[TX_GGUF_MAX_RANK]; /* the last dimension is contiguous, as in all of TX; files list it first */
} tx_gguf_tensor;

int64_t tx_gguf_elements(const tx_gguf_tensor *tensor);
int64_t tx_gguf_bytes(const tx_gguf_tensor *tensor);

/* The same type of TX, or TX_DTYPE_COUNT for blocks that occur only in files. */
tx_dtype tx_gguf_stored(tx_gguf_dtype dtype);
/* Converts `count` elements, a multiple of the block, from the format of files, which is exact. */
void tx_gguf_decode(tx_gguf_dtype dtype, const void *bytes, int64_t count, float *data);

/* Converts a row of `count` elements, a multiple of the block, to the format of files; `bytes` may be `data` for types
 * without blocks. `importance` has a weight of each column's errors, or is NULL. Types without blocks may also get
 * several rows. */
void tx_gguf_encode(tx_gguf_dtype dtype, const float *data, const float *importance, int64_t count, void *bytes);

/* ---- Reading ----------------------------------------------------------------------------------- */

typedef struct tx_gguf_file tx_gguf_file;

/* Returns true if the path ends with ".gguf". */
bool tx_gguf_is_name(const char *path);

/* Opens and checks a file. A model may be divided into files NAME-00001-of-00003.gguf by llama.cpp's gguf-split: any of
 * them opens all, with the values of the first. TX_FORMAT names the fault. TX_UNSUPPORTED for unsupported versions,
 * byte orders and types of tensors. The caller closes. */
tx_status tx_gguf_open(const char *path, tx_gguf_file **file);
void tx_gguf_close(tx_gguf_file *file); /* NULL is fine */
const char *tx_gguf_path(const tx_gguf_file *file);

/* Tensors in the order of their data. They live as long as the file. */
int32_t tx_gguf_count(const tx_gguf_file *file);
const tx_gguf_tensor *tx_gguf_tensor_at(const tx_gguf_file *file, int32_t index);
/* Returns the index of a tensor, or -1. */
int32_t tx_gguf_find(const tx_gguf_file *file, const char *name);
/* Reads elements first..first+count-1 as fp32, which is exact. Both must be multiples of the block. */
tx_status tx_gguf_read_f32(const tx_gguf_file *file, int32_t index, int64_t first, int64_t count, float *data);
/* Reads the bytes of the same elements. Any number of threads may read. */
tx_status tx_gguf_read_bytes(const tx_gguf_file *file, int32_t index, int64_t first, int64_t count, void *bytes);

/* Values by their key. TX_NOT_FOUND if there is none; TX_FORMAT if it has another type or is out of range. The output
 * is then unchanged. tx_gguf_get_int accepts integers of every width, tx_gguf_get_number integers and floats. */
bool tx_gguf_has(const tx_gguf_file *file, const char *key);
tx_status tx_gguf_get_int(const tx_gguf_file *file, const char *key, int64_t min, int64_t max, int64_t *value);
tx_status tx_gguf_get_number(const tx_gguf_file *file, const char *key, double *value);
tx_status tx_gguf_get_bool(const tx_gguf_file *file, const char *key, bool *value);
/* tx_gguf_get_KIND for a value that may be absent: the output is then unchanged. */
#define TX_GGUF_OPTIONAL(kind, file, key, ...) \
    (tx_gguf_has(file, key) ? tx_gguf_get_##kind(file, key, __VA_ARGS__) : TX_OK)
/* Copies a string; the caller frees it. A string that contains NUL is refused. `size` may be NULL. */
tx_status tx_gguf_get_string(const tx_gguf_file *file, const char *key, char **value, size_t *size);

/* An array of strings or of numbers. Booleans are 0 or 1. */
typedef struct tx_gguf_array {
    int64_t count;
    const char **text; /* strings: their first bytes, without a NUL at the end; allocated */
    size_t *size;      /* strings: their bytes; allocated */
    double *number;    /* numbers; allocated */
} tx_gguf_array;

/* Pass `texts` for an array of strings. The caller frees it with tx_gguf_array_free. Strings live as long as the file.
 */
tx_status tx_gguf_get_array(const tx_gguf_file *file, const char *key, bool texts, tx_gguf_array *array);
void tx_gguf_array_free(tx_gguf_array *array); /* {0} is fine */

/* ---- Writing ----------------------------------------------------------------------------------- */

/* Call the functions in this order: values, tensors, data. A failure persists: tx_gguf_begin returns that of a value.
 */
typedef struct tx_gguf_writer tx_gguf_writer;

tx_status tx_gguf_create(tx_gguf_writer **writer);
void tx_gguf_put_int(tx_gguf_writer *writer, const char *key, int64_t value);   /* as U32; fails if out of range */
void tx_gguf_put_number(tx_gguf_writer *writer, const char *key, double value); /* as F32 */
void tx_gguf_put_bool(tx_gguf_writer *writer, const char *key, bool value);
void tx_gguf_put_string(tx_gguf_writer *writer, const char *key, const char *value, size_t size);
/* Starts an array of U8, BOOL, I32, F32 or STRING. Add its elements with the functions below. */
void tx_gguf_put_array(tx_gguf_writer *writer, const char *key, tx_gguf_value type, int64_t count);
void tx_gguf_add_bytes(tx_gguf_writer *writer, const char *bytes, size_t size);
void tx_gguf_add_i32(tx_gguf_writer *writer, int32_t value);
void tx_gguf_add_f32(tx_gguf_writer *writer, float value);
void tx_gguf_add_string(tx_gguf_writer *writer, const char *value, size_t size);

/* Creates the file under a temporary name and writes everything except the data of `tensors`, which must follow in this
 * order. */
tx_status tx_gguf_begin(tx_gguf_writer *writer, const char *path, const tx_gguf_tensor *tensors, int32_t count);
/* Writes the next bytes of data. A piece must not extend into the next tensor. */
tx_status tx_gguf_append(tx_gguf_writer *writer, const void *data, size_t bytes);
/* Checks that all data were written, flushes and renames. Always frees the writer. */
tx_status tx_gguf_commit(tx_gguf_writer *writer);
/* Removes the temporary file and frees the writer; NULL is fine. */
void tx_gguf_discard(tx_gguf_writer *writer);

#endif
