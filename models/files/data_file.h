/* SPDX-License-Identifier: Apache-2.0
 *
 * A regular file that is read in pieces. It is not mapped, so a file that becomes shorter while in use causes an error
 * instead of a signal. Any number of threads may read. */
#ifndef TX_FILES_DATA_FILE_H
#define TX_FILES_DATA_FILE_H

#include "models/files/digest.h"
#include "models/report.h"
#include "tx.h"

typedef struct tx_data_file {
    char *path; /* NULL if no file is open */
    int descriptor;
    int64_t size;  /* when it was opened */
    int64_t begin; /* its first byte in the file on disk: not 0 if it is stored in a larger file */
} tx_data_file;

/* Fails like tx_file_open. */
tx_status tx_data_file_open(const char *path, tx_data_file *file);
/* Accepts {0}, and sets `*file` to {0}. */
void tx_data_file_close(tx_data_file *file);
/* Reads `bytes` bytes from byte `at` on, which must be within `size`. TX_IO if the file has become shorter. */
tx_status tx_data_file_read(const tx_data_file *file, int64_t at, void *data, size_t bytes);
/* Adds the bytes from `at` up to `end` to a digest, and reports progress. The digest keeps a failure. */
tx_status tx_data_file_digest(const tx_data_file *file, int64_t at, int64_t end, tx_digest *digest,
                              const tx_reporter *report);

#endif
