/* SPDX-License-Identifier: Apache-2.0
 *
 * A regular file that is read by pieces. Nothing is mapped: a file that becomes shorter while it is in use is an error
 * and no signal. Any number of threads may read. */
#ifndef TX_FILES_DATA_FILE_H
#define TX_FILES_DATA_FILE_H

#include "models/files/digest.h"
#include "models/report.h"
#include "tx.h"

typedef struct tx_data_file {
    char *path; /* NULL: none is open */
    int descriptor;
    int64_t size; /* when it was opened */
} tx_data_file;

/* Fails as tx_file_open does. */
tx_status tx_data_file_open(const char *path, tx_data_file *file);
/* Leaves {0}, of which it may be called as well. */
void tx_data_file_close(tx_data_file *file);
/* Reads `bytes` bytes from byte `at` on, all of which the file had when it was opened; TX_IO where it has them no more.
 */
tx_status tx_data_file_read(const tx_data_file *file, int64_t at, void *data, size_t bytes);
/* Adds the bytes from `at` up to `end` to a digest, and reports how far it is. A failure lasts in the digest. */
tx_status tx_data_file_digest(const tx_data_file *file, int64_t at, int64_t end, tx_digest *digest,
                              const tx_reporter *report);

#endif
