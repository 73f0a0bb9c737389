/* SPDX-License-Identifier: Apache-2.0
 *
 * Importance matrices: the mean square of each input of a model's matrices over a text, as llama.cpp's llama-imatrix
 * collects them. gguf_export.c rounds weights with it. */
#ifndef TX_GGUF_IMPORTANCE_H
#define TX_GGUF_IMPORTANCE_H

#include "models/gguf/gguf_file.h"

typedef struct tx_importance tx_importance;

/* Names in files: the ends of tensors' names, and keys. */
#define TX_IMPORTANCE_SUMS ".in_sum2"
#define TX_IMPORTANCE_COUNTS ".counts"
#define TX_IMPORTANCE_DATASETS "imatrix.datasets"
#define TX_IMPORTANCE_CHUNKS "imatrix.chunk_count"

/* Creates one without tensors, of a file and of a data set with so many chunks. The caller closes. */
tx_status tx_importance_create(const char *path, const char *dataset, int64_t chunks, tx_importance **importance);
/* Adds a tensor with `matrices` matrices of `width` columns: the sums of squares of each column, and the number of
 * inputs of each matrix. Matrices without inputs get 1 everywhere. TX_FORMAT if a sum is negative or not finite. */
tx_status tx_importance_add(tx_importance *importance, const char *tensor, int64_t width, int64_t matrices,
                            const float *sums, const float *counts);
/* Reads a file of llama-imatrix: GGUF, or the older .dat. TX_FORMAT names the fault. The caller closes. */
tx_status tx_importance_open(const char *path, tx_importance **importance);
void tx_importance_close(tx_importance *importance); /* NULL is fine */
int32_t tx_importance_count(const tx_importance *importance);

/* Finds the importance of a tensor's columns, for each of `experts` matrices, all at least a small positive number.
 * NULL if the file does not have the tensor. TX_FORMAT if it has another shape. It lives as long as `importance`. */
tx_status tx_importance_of(const tx_importance *importance, const char *tensor, int64_t width, int64_t experts,
                           const float **columns);
/* Writes the values quantize.imatrix.* with which llama.cpp describes the file. */
void tx_importance_put(const tx_importance *importance, tx_gguf_writer *writer);

#endif
