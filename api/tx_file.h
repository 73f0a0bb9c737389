/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: whole reads with a limit, and writes that appear under their final name complete or not at all.
 * Every failure message names the path and gives the system's reason. */
#ifndef TX_FILE_H
#define TX_FILE_H

#include "tx_base.h"

TX_API_BEGIN

/* Whether a file or folder exists at `path`. Links are followed. */
bool tx_file_exists(const char *path);
bool tx_is_folder(const char *path);

/* Fails with "path: cannot <doing>: " and the text of errno. Returns TX_NOT_FOUND if the file does not exist, TX_MEMORY
 * if memory or descriptors ran out, otherwise TX_IO. */
tx_status tx_file_fail(const char *path, const char *doing);

/* Opens a regular file with the flags of open(2). Anything else fails with TX_FORMAT, without waiting for a pipe or a
 * device. Links are followed; a writer passes O_NOFOLLOW to refuse one. `*size`, unless NULL, receives the file's
 * bytes. The caller closes `*descriptor`. */
tx_status tx_file_open(const char *path, int flags, int *descriptor, int64_t *size);

/* Reads a whole file and appends a NUL after the `*size` bytes, so that text can be used as a string. A file over
 * `limit` bytes, or anything that tx_file_open refuses except a pipe at /dev/stdin, fails with TX_FORMAT. A missing
 * file fails with TX_NOT_FOUND. The caller frees `*data`. */
tx_status tx_file_read(const char *path, int64_t limit, char **data, size_t *size);
/* Like tx_file_read, for text: a file that contains a NUL fails with TX_FORMAT. */
tx_status tx_file_read_text(const char *path, int64_t limit, char **text, size_t *size);
/* Like tx_file_read, for standard input without a limit. */
tx_status tx_file_read_input(char **data, size_t *size);

/* Writes a file whose name TX chooses, as in a model's folder. A symbolic link is replaced and its target is not
 * changed, because it may belong to a cache of models. A folder, a pipe, a socket or a device fails with TX_FORMAT. The
 * old file stays complete until the new one is flushed to disk. */
tx_status tx_file_write(const char *path, const void *data, size_t size);
/* Writes a file whose name the user gives. A symbolic link is kept and its target is written, as a shell's redirection
 * does. A regular file is replaced as a whole. A pipe, a device and the file of standard output or error are written
 * directly: the call waits for a pipe's reader, and data written before a failure stay. A folder or a socket fails with
 * TX_FORMAT. */
tx_status tx_file_write_output(const char *path, const void *data, size_t size);

TX_API_END
#endif
