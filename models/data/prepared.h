/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are made of data sources once, and kept for the next run. */
#ifndef TX_DATA_PREPARED_H
#define TX_DATA_PREPARED_H

#include "api/base/file.h"
#include "models/data/prepare.h"
#include "models/files/digest.h"
#include "models/tokenizer/buffer.h"

/* A file that is being made. */
typedef struct tx_prepared {
    const tx_prepare_options *options;
    tx_file *file;
    tx_digest *digest;
    tx_buffer piece;
    int64_t rows, bytes;
    const char *key; /* the digest of all that decides its contents */
} tx_prepared;

tx_status tx_prepared_write(tx_prepared *file, const char *text, size_t size);

/* Writes the contents of a file that is made of the sources. */
typedef tx_status tx_prepared_contents(tx_prepared *file, const tx_data_source *sources, size_t count);

/* Makes a file, unless it is there, or in the folder of `txtok pack`, and intact. Its name is that of the first source,
 * a part of the key, and `extension`. The caller frees `*path`. */
tx_status tx_prepared_find(const tx_data_source *sources, size_t count, tx_prepared_contents *write,
                           const tx_prepare_options *options, const char *extension, char **path);

#endif
