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

/* Opens a regular file with the flags of open(2), and nothing else: a pipe or a device is not waited for, written to or
 * read, a folder not opened; TX_FORMAT says what lies there instead. A link is followed for reading; whoever writes
 * gives O_NOFOLLOW, and it is refused. `*size` (or NULL) receives the bytes of the file. The caller closes
 * `*descriptor`. */
tx_status tx_file_open(const char *path, int flags, int *descriptor, int64_t *size);
/* Reads `bytes` bytes from byte `at` on, of a file that was that long: where it ends before, it was shortened since,
 * and the message (TX_IO) has both sizes. */
tx_status tx_file_read_at(int descriptor, const char *path, int64_t at, void *data, int64_t bytes);

/* Reads a whole file. A NUL follows the `*size` bytes, so that text can be used as a string. Files over
 * `limit` bytes are refused (TX_FORMAT), as is what tx_file_open refuses, but that /dev/stdin may be a pipe; a missing
 * one is TX_NOT_FOUND. The caller frees `*data`. */
tx_status tx_file_read(const char *path, int64_t limit, char **data, size_t *size);

/* The same for a file that is used as a string: TX_FORMAT also if it holds a NUL. */
tx_status tx_file_read_text(const char *path, int64_t limit, char **text, size_t *size);

/* tx_file_read for standard input, whatever its length. */
tx_status tx_file_read_input(char **data, size_t *size);

/* Whether something lies at `path` (a file, folder or what a link points to). */
bool tx_file_exists(const char *path);
bool tx_is_folder(const char *path);

/* Makes a folder and its missing parents, and flushes their names; one that is there already is fine. */
tx_status tx_folder_create(const char *path);
/* Flushes the names in a folder to disk, so that they last through a loss of power. */
tx_status tx_folder_flush(const char *path);

/* "folder/name", allocated; NULL when out of memory (the message is set). The caller frees it. */
char *tx_path_join(const char *folder, const char *name);

/* A file in the making: written to a temporary name in the folder of `path`, renamed to `path` by
 * tx_file_commit after it has been flushed to disk. What was at `path` stays whole until then. */
typedef struct tx_file tx_file;

/* For names that TX chooses, as in the folder of a model. A symbolic link is replaced and its target stays as it is: it
 * may belong to a cache of models. TX_FORMAT refuses a folder, a pipe, a socket and a device. */
tx_status tx_file_create(const char *path, tx_file **file);
/* For names that a user gives. A symbolic link stays and its target is written, as by a shell's redirection. A regular
 * file is replaced as a whole. A pipe, a device and the file that is standard output or error are written directly: the
 * call waits until the pipe has a reader, and data stay written after a failure. TX_FORMAT refuses a folder and a
 * socket. */
tx_status tx_file_create_output(const char *path, tx_file **file);
/* The path of the file that such a name leads to; the caller frees it. NULL when out of memory (the message is set). */
char *tx_file_target(const char *path);
tx_status tx_file_append(tx_file *file, const void *data, size_t size);
/* Flushes the file to disk, renames it and flushes the folder. Frees `file` whatever the outcome; after a
 * failure nothing temporary is left behind. */
tx_status tx_file_commit(tx_file *file);
/* Removes the temporary file and frees `file` (NULL is fine). Keeps the thread's error message. */
void tx_file_discard(tx_file *file);

/* Create, append and commit in one call. */
tx_status tx_file_write(const char *path, const void *data, size_t size);
tx_status tx_file_write_output(const char *path, const void *data, size_t size);

#endif
