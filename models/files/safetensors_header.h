/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a safetensors file: from JSON text to a checked table, without touching the file. */
#ifndef TX_FILES_SAFETENSORS_HEADER_H
#define TX_FILES_SAFETENSORS_HEADER_H

#include "models/files/safetensors.h"
#include "models/names.h"
#include "tx_json.h"

typedef struct tx_st_entry {
    tx_st_tensor tensor;
    char *name;         /* tensor.name, owned */
    int64_t begin, end; /* bytes, from the start of the data */
} tx_st_entry;

typedef struct tx_st_header {
    int32_t count;
    tx_st_entry *entry; /* in the order of their data */
    tx_named *by_name;  /* entries, sorted */
} tx_st_header;

/* Parses and checks a header whose data are `data_bytes` long; `path` starts the messages. Memory stays within a
 * small multiple of the text, whatever the text. Frees its own work on failure. */
tx_status tx_st_header_parse(const char *path, const char *text, size_t size, int64_t data_bytes, tx_st_header *header);
void tx_st_header_free(tx_st_header *header);

/* *product = a * b of numbers that are not negative; false if that is over INT64_MAX. */
bool tx_st_multiply(int64_t a, int64_t b, int64_t *product);
/* Bytes of a tensor; TX_FORMAT when its size wraps or ends within a byte. */
tx_status tx_st_size(const tx_st_tensor *tensor, int64_t *bytes);

#endif
