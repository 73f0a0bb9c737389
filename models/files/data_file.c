/* SPDX-License-Identifier: Apache-2.0
 * Reads regular files in pieces. */
#include "models/files/data_file.h"

#include "api/base/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes per reading for a digest. */
#define PIECE ((int64_t)1 << 18)

tx_status tx_data_file_open(const char *path, tx_data_file *file)
{
    tx_data_file result = {.path = strdup(path)};
    tx_status status = result.path ? tx_file_open(path, O_RDONLY, &result.descriptor, &result.size)
                                   : tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    if (status)
        free(result.path);
    else
        *file = result;
    return status;
}

void tx_data_file_close(tx_data_file *file)
{
    if (file->path)
        close(file->descriptor);
    free(file->path);
    *file = (tx_data_file){0};
}

tx_status tx_data_file_read(const tx_data_file *file, int64_t at, void *data, size_t bytes)
{
    return tx_file_read_at(file->descriptor, file->path, file->begin + at, data, (int64_t)bytes);
}

tx_status tx_data_file_digest(const tx_data_file *file, int64_t at, int64_t end, tx_digest *digest,
                              const tx_reporter *report)
{
    char *piece = malloc(PIECE);
    tx_status status = piece ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory to read it", file->path);
    for (int64_t bytes; at < end && !status; at += bytes) {
        bytes = end - at < PIECE ? end - at : PIECE;
        status = tx_data_file_read(file, at, piece, (size_t)bytes);
        TX_THEN(status, tx_digest_add(digest, piece, (size_t)bytes));
        tx_report_progress(report, file->path, at, file->size);
    }
    free(piece);
    return tx_digest_fail(digest, status);
}
