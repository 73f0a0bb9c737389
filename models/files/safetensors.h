/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors files: a strict reader and a streaming writer.
 *
 * A file is an 8-byte little-endian header length, that many bytes of JSON, and the tensors' data. The reader refuses
 * everything that the format forbids: sizes that overflow, gaps, overlaps, bytes that belong to no tensor, duplicate
 * names, invalid UTF-8. It reads data by position, so a file that becomes shorter causes an error instead of a signal.
 */
#ifndef TX_FILES_SAFETENSORS_H
#define TX_FILES_SAFETENSORS_H

#include "tx.h"

/* X(NAME, bits) */
#define TX_SAFETENSORS_DTYPE_MAP(X) \
    X(BOOL, 8)                      \
    X(F4, 4)                        \
    X(F6_E2M3, 6)                   \
    X(F6_E3M2, 6)                   \
    X(U8, 8)                        \
    X(I8, 8)                        \
    X(F8_E5M2, 8)                   \
    X(F8_E4M3, 8)                   \
    X(F8_E8M0, 8)                   \
    X(F8_E4M3FNUZ, 8)               \
    X(F8_E5M2FNUZ, 8)               \
    X(I16, 16)                      \
    X(U16, 16)                      \
    X(F16, 16)                      \
    X(BF16, 16)                     \
    X(I32, 32)                      \
    X(U32, 32)                      \
    X(F32, 32)                      \
    X(C64, 64)                      \
    X(F64, 64)                      \
    X(I64, 64)                      \
    X(U64, 64)

typedef enum tx_st_dtype {
#define X(name, bits) TX_ST_##name,
    TX_SAFETENSORS_DTYPE_MAP(X)
#undef X
        TX_ST_COUNT
} tx_st_dtype;

#define TX_ST_MAX_RANK 8

const char *tx_st_dtype_name(tx_st_dtype dtype);
int32_t tx_st_dtype_bits(tx_st_dtype dtype);
tx_dtype tx_st_stored(tx_st_dtype dtype); /* the same type of TX, or TX_DTYPE_COUNT */

typedef struct tx_st_tensor {
    const char *name;
    tx_st_dtype dtype;
    int32_t rank; /* 0 for a scalar */
    int64_t dim[TX_ST_MAX_RANK];
} tx_st_tensor;

int64_t tx_st_elements(const tx_st_tensor *tensor); /* product of the dimensions */
int64_t tx_st_bytes(const tx_st_tensor *tensor);
/* At most the first TX_MAX_RANK dimensions; a scalar is [1]. */
tx_shape tx_st_shape(const tx_st_tensor *tensor);

/* ---- Reading ----------------------------------------------------------------------------------- */

typedef struct tx_st_file tx_st_file;

/* Opens and checks a file. TX_FORMAT names the fault, or the kind of a file that is not safetensors (a git-LFS pointer,
 * a web page, a pickle). TX_NOT_FOUND if it does not exist. The caller closes. */
tx_status tx_st_open(const char *path, tx_st_file **file);
/* Opens the `.metadata` of a distributed checkpoint of PyTorch for its optimizer states, PARAM.exp_avg and others. */
tx_status tx_st_open_states(const char *metadata, tx_st_file **file);
void tx_st_close(tx_st_file *file);
const char *tx_st_path(const tx_st_file *file);

/* Tensors in the order of their data. They live as long as the file. */
int32_t tx_st_count(const tx_st_file *file);
const tx_st_tensor *tx_st_tensor_at(const tx_st_file *file, int32_t index);
tx_status tx_st_find(const tx_st_file *file, const char *name, int32_t *index);

/* Reads elements first..first+count-1 as stored: whole bytes. Any number of threads may read. */
tx_status tx_st_read(const tx_st_file *file, int32_t index, int64_t first, int64_t count, void *data);
/* Reads the same elements as fp32. F32, F16, BF16 and U8 are exact, F64 is rounded to nearest. TX_UNSUPPORTED for other
 * types. */
tx_status tx_st_read_f32(const tx_st_file *file, int32_t index, int64_t first, int64_t count, float *data);

/* ---- Writing ----------------------------------------------------------------------------------- */

typedef struct tx_st_writer tx_st_writer;

/* Creates a file under a temporary name. The data of `tensors` must follow in this order. If types have different
 * sizes, list the widest first to align every tensor. __metadata__ is {"format": "pt"}, which Hugging Face's loaders
 * require. */
tx_status tx_st_create(const char *path, const tx_st_tensor *tensors, int32_t count, tx_st_writer **writer);
/* Returns memory for the next bytes of data, which tx_st_append then does not copy; or NULL, for memory of your own. */
void *tx_st_next(const tx_st_writer *writer, size_t bytes);
/* Writes the next bytes of data. Pieces need not end at tensor boundaries. */
tx_status tx_st_append(tx_st_writer *writer, const void *data, size_t bytes);
/* Checks that all data were written, flushes and renames. Always frees the writer. */
tx_status tx_st_commit(tx_st_writer *writer);
/* Removes the temporary file and frees the writer; NULL is fine. */
void tx_st_discard(tx_st_writer *writer);
/* Commits after TX_OK, else discards, and returns the first failure. NULL is fine after a failure. */
tx_status tx_st_end(tx_st_writer *writer, tx_status status);

#endif
