/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the JSON text of a safetensors header into a checked table. It does not access the file. */
#ifndef TX_FILES_SAFETENSORS_HEADER_H
#define TX_FILES_SAFETENSORS_HEADER_H

#include "models/files/data_file.h"
#include "models/files/safetensors.h"
#include "models/names.h"

typedef struct tx_st_entry {
    tx_st_tensor tensor;
    char *name;         /* tensor.name, owned */
    int64_t begin, end; /* bytes, from the start of the data */
} tx_st_entry;

typedef struct tx_st_header {
    int32_t count;
    tx_st_entry *entry; /* in the order of the data */
    tx_named *by_name;  /* sorted names of the entries */
} tx_st_header;

/* Parses and checks a header whose data are `data_bytes` long. Messages start with `path`. Memory is bounded by a small
 * multiple of the text. After a failure nothing needs to be freed. */
tx_status tx_st_header_parse(const char *path, const char *text, size_t size, int64_t data_bytes, tx_st_header *header);
void tx_st_header_free(tx_st_header *header);

/* Sorts entries by their data, and their names for look-up. Fails if a name occurs twice. */
tx_status tx_st_header_sort(tx_st_header *header);

/* Computes *product = a * b for nonnegative numbers; false if that exceeds INT64_MAX. */
bool tx_st_multiply(int64_t a, int64_t b, int64_t *product);
/* Computes the bytes of a tensor. TX_FORMAT if the size overflows or is not a whole number of bytes. */
tx_status tx_st_size(const tx_st_tensor *tensor, int64_t *bytes);

/* ---- Files of torch.save() (torch_file.c) ---------------------------------------------------- */

/* Weights that torch.save() wrote: pytorch_model.bin, adapter_model.bin. The file is a zip archive with a pickle of the
 * names and shapes, or in old files the pickles and then the data. Both give the table of a safetensors header. */

/* Whether the file begins like one of torch.save(). */
bool tx_torch_is(const tx_data_file *file);
/* Reads the table of tensors. `begin` and `end` count from the start of the file; tensors may share data. TX_FORMAT for
 * a damaged file, TX_UNSUPPORTED for contents other than a dictionary of tensors. Messages start with the path. After a
 * failure nothing needs to be freed. */
tx_status tx_torch_read(const tx_data_file *file, tx_st_header *header);
/* Reads a file that holds one tensor, which has no name. Messages do not have the path. */
tx_status tx_torch_read_tensor(const tx_data_file *file, tx_st_entry *entry);

#endif
