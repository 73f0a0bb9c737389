/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the header of a GGUF file into checked tables. */
#ifndef TX_FILES_GGUF_HEADER_H
#define TX_FILES_GGUF_HEADER_H

#include "models/files/data_file.h"
#include "models/files/safetensors_header.h"
#include "models/gguf/gguf_file.h"

#define TX_GGUF_ALIGNMENT_KEY "general.alignment"
#define TX_GGUF_ALIGNMENT 32 /* default */

typedef struct tx_gguf_entry {
    tx_gguf_tensor tensor;
    char *name; /* tensor.name, owned */
    int64_t at; /* of its data in the file */
    const tx_data_file *file;
} tx_gguf_entry;

typedef struct tx_gguf_entry_value {
    char *key;
    tx_gguf_value type, of; /* `of` is the type of an array's elements */
    int64_t count;          /* bytes of a string, elements of an array */
    int64_t at;             /* of its data in the header's bytes */
} tx_gguf_entry_value;

typedef struct tx_gguf_header {
    char *bytes; /* the first bytes of the file, which include the header */
    int32_t values, tensors;
    tx_gguf_entry_value *value;
    tx_gguf_entry *tensor;
    tx_named *value_names, *tensor_names; /* sorted */
} tx_gguf_header;

/* Reads and checks a header. The caller frees it, also after a failure. */
tx_status tx_gguf_header_read(const tx_data_file *file, tx_gguf_header *header);
void tx_gguf_header_free(tx_gguf_header *header);
/* Sorts names. Fails if one occurs twice. */
tx_status tx_gguf_sort_names(tx_named *names, int32_t count);

/* Bytes of a value; 0 for strings, arrays and unknown types. */
int64_t tx_gguf_value_bytes(tx_gguf_value type);
/* Reads the number at `data`. False if the type is not numeric. Integers beyond 2^53 are rounded. */
bool tx_gguf_number(tx_gguf_value type, const char *data, double *number);

#endif
