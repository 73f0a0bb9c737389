/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that torch.save() wrote: pytorch_model.bin, adapter_model.bin. The file is a zip archive with a pickle of the
 * names and shapes, or in old files the pickles and then the data. Both give the table of a safetensors header. */
#ifndef TX_FILES_TORCH_FILE_H
#define TX_FILES_TORCH_FILE_H

#include "models/files/data_file.h"
#include "models/files/safetensors_header.h"

/* Whether the file begins like one of torch.save(). */
bool tx_torch_is(const tx_data_file *file);
/* Reads the table of tensors. `begin` and `end` count from the start of the file; tensors may share data. TX_FORMAT for
 * a damaged file, TX_UNSUPPORTED for contents other than a dictionary of tensors. Messages start with the path. After a
 * failure nothing needs to be freed. */
tx_status tx_torch_read(const tx_data_file *file, tx_st_header *header);

#endif
