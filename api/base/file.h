/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: functions that complete tx_file.h for the library and its programs. */
#ifndef TX_API_FILE_H
#define TX_API_FILE_H

#include "tx.h"
#include "tx_file.h"

/* Reads `bytes` bytes from byte `at` on. If the file is shorter, it was truncated after it was opened; the call fails
 * with TX_IO and both sizes. */
tx_status tx_file_read_at(int descriptor, const char *path, int64_t at, void *data, int64_t bytes);

/* Creates a folder and its missing parents, and flushes their names. An existing folder is not an error. */
tx_status tx_folder_create(const char *path);
/* Flushes the names in a folder to disk, so that they survive a power failure. */
tx_status tx_folder_flush(const char *path);
/* While true, this thread flushes neither the files that it writes nor their folders, since a flush can wait for all
 * data of a disk. Whoever sets it flushes them later, as tx_checkpoint_commit does. */
extern _Thread_local bool tx_file_defers_flush;

/* Returns "folder/name", which the caller frees; or NULL, with the message set, if memory runs out. */
char *tx_path_join(const char *folder, const char *name);

/* A file that is being written, under a temporary name in the folder of `path`. tx_file_commit flushes it to disk and
 * renames it to `path`. Until then the old file at `path` is complete. */
typedef struct tx_file tx_file;

/* Whether `name` is that of a temporary file, of the file `of` if that is not NULL: OF.PID-NUMBER.tmp. A process that
 * writes one locks it, and the next that writes the same file removes those of killed processes. */
bool tx_file_is_temporary(const char *name, const char *of);
/* Start a file as tx_file_write and tx_file_write_output do. */
tx_status tx_file_create(const char *path, tx_file **file);
tx_status tx_file_create_output(const char *path, tx_file **file);
/* Returns the path of the file that tx_file_write_output writes. The caller frees it. Returns NULL, with the message
 * set, if memory runs out. */
char *tx_file_target(const char *path);
tx_status tx_file_append(tx_file *file, const void *data, size_t size);
/* Flushes the file to disk, renames it and flushes the folder. Always frees `file`. After a failure no temporary file
 * remains. */
tx_status tx_file_commit(tx_file *file);
/* Removes the temporary file and frees `file`, which may be NULL. Keeps the thread's error message. */
void tx_file_discard(tx_file *file);
/* Commits the file, or if `status` is a failure discards it and returns the failure. */
tx_status tx_file_end(tx_file *file, tx_status status);

#endif
