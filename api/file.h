/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: whole reads with a limit, and writes that appear under their final name complete or not at all.
 * Every failure message names the path and what the system said. */
#ifndef TX_API_FILE_H
#define TX_API_FILE_H

#include "tx.h"

/* Fails with "path: cannot <doing>: " and what errno says: TX_NOT_FOUND where nothing is there, TX_MEMORY where
 * memory or descriptors ran out, TX_IO otherwise. */
tx_status tx_file_fail(const char *path, const char *doing);

/* Reads a whole file. A NUL follows the `*size` bytes, so that text can be used as a string. Files over
 * `limit` bytes are refused (TX_FORMAT), a missing one is TX_NOT_FOUND. The caller frees `*data`. */
tx_status tx_file_read(const char *path, int64_t limit, char **data, size_t *size);

/* The same for standard input, whatever its length. */
tx_status tx_file_read_input(char **data, size_t *size);

/* Whether something lies at `path` (a file, folder or what a link points to). */
bool tx_file_exists(const char *path);

/* Makes a folder and its missing parents, and flushes their names; one that is there already is fine. */
tx_status tx_folder_create(const char *path);
/* Flushes the names in a folder to disk, so that they last through a loss of power. */
tx_status tx_folder_flush(const char *path);

/* "folder/name", allocated; NULL when out of memory (the message is set). The caller frees it. */
char *tx_path_join(const char *folder, const char *name);

/* A file in the making: written to a temporary name in the folder of `path`, renamed to `path` by
 * tx_file_commit after it has been flushed to disk. What was at `path` stays whole until then. */
typedef struct tx_file tx_file;

tx_status tx_file_create(const char *path, tx_file **file);
tx_status tx_file_append(tx_file *file, const void *data, size_t size);
/* Flushes the file to disk, renames it and flushes the folder. Frees `file` whatever the outcome; after a
 * failure nothing temporary is left behind. */
tx_status tx_file_commit(tx_file *file);
/* Removes the temporary file and frees `file` (NULL is fine). Keeps the thread's error message. */
void tx_file_discard(tx_file *file);

/* The three above for data that is all there. */
tx_status tx_file_write(const char *path, const void *data, size_t size);

#endif
