/* SPDX-License-Identifier: Apache-2.0
 *
 * The type of each tensor of an exported file. gguf_export.c calls it. */
#ifndef TX_GGUF_MIX_H
#define TX_GGUF_MIX_H

#include "models/gguf/gguf_file.h"
#include "models/tx_convert.h"

/* The properties of a model on which the types of its tensors depend. */
typedef struct tx_gguf_model {
    const char *architecture;
    int64_t layers, heads, kv_heads, experts;
    int32_t values; /* number of tensors of attention values, for whose layers rules count */
    bool tied;      /* the file has no output head */
    bool weighted;  /* the importance of columns is known */
} tx_gguf_model;

/* The value of general.file_type. */
int64_t tx_gguf_file_type(tx_convert_type type);
/* Returns true if the tensor is of attention values. */
bool tx_gguf_is_values(const char *name);
/* The type of a tensor, `values` after as many tensors of attention values. Vectors, and the tables and routers that
 * llama.cpp expects so, are F32; the others get the types that llama.cpp's quantizer chooses, or F16 if rows are not
 * whole blocks. */
tx_gguf_dtype tx_gguf_choose(const tx_gguf_model *model, tx_convert_type type, const tx_gguf_tensor *tensor,
                             int32_t values);

/* Converts `rows` rows of `width` elements (tx_gguf_encode) on all cores. `importance` has a weight of each column, or
 * is NULL. */
void tx_gguf_encode_rows(tx_gguf_dtype dtype, const float *data, const float *importance, int64_t rows, int64_t width,
                         void *bytes);

#endif
