/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: the parts of tx_file.h. */
#ifndef TX_API_FILE_H
#define TX_API_FILE_H

#include "tx.h"
#include "tx_file.h"

/* Reads `bytes` bytes from byte `at` on, of a file that was that long: where it ends before, it was shortened since,
 * and the message (TX_IO) has both sizes. */
tx_status tx_file_read_at(int descriptor, const char *path, int64_t at, void *data, int64_t bytes);

/* Makes a folder and its missing parents, and flushes their names; one that is there already is fine. */
tx_status tx_folder_create(const char *path);
/* Flushes the names in a folder to disk, so that they last through a loss of power. */
tx_status tx_folder_flush(const char *path);

/* "folder/name", allocated; NULL when out of memory (the message is set). The caller frees it. */
char *tx_path_join(const char *folder, const char *name);

/* A file in the making: written to a temporary name in the folder of `path`, renamed to `path` by
 * tx_file_commit after it has been flushed to disk. What was at `path` stays whole until then. */
typedef struct tx_file tx_file;

/* For tx_file_write, and for tx_file_write_output. */
tx_status tx_file_create(const char *path, tx_file **file);
tx_status tx_file_create_output(const char *path, tx_file **file);
/* The path of the file that tx_file_write_output writes; the caller frees it. NULL when out of memory (the message is
 * set). */
char *tx_file_target(const char *path);
tx_status tx_file_append(tx_file *file, const void *data, size_t size);
/* Flushes the file to disk, renames it and flushes the folder. Frees `file` whatever the outcome; after a
 * failure nothing temporary is left behind. */
tx_status tx_file_commit(tx_file *file);
/* Removes the temporary file and frees `file` (NULL is fine). Keeps the thread's error message. */
void tx_file_discard(tx_file *file);

#endif
