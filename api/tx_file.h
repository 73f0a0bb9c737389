/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: whole reads with a limit, and writes that appear under their final name complete or not at all.
 * Every failure message names the path and gives the system's reason. */
#ifndef TX_FILE_H
#define TX_FILE_H

#include "tx_base.h"

TX_API_BEGIN

/* Whether a file or folder, or the target of a link, exists at `path`. */
bool tx_file_exists(const char *path);
bool tx_is_folder(const char *path);

/* Fails with "path: cannot <doing>: " and the meaning of errno: TX_NOT_FOUND if nothing is there, TX_MEMORY if memory
 * or descriptors ran out, TX_IO otherwise. */
tx_status tx_file_fail(const char *path, const char *doing);

/* Opens a regular file with the flags of open(2). TX_FORMAT refuses and names anything else, without waiting for a pipe
 * or a device. Reading follows a link. A writer passes O_NOFOLLOW, which refuses one. `*size`, unless NULL, receives
 * the bytes of the file. The caller closes `*descriptor`. */
tx_status tx_file_open(const char *path, int flags, int *descriptor, int64_t *size);

/* Reads a whole file. A NUL follows the `*size` bytes, so that text can be used as a string. TX_FORMAT refuses a file
 * over `limit` bytes, and all that tx_file_open refuses except a pipe at /dev/stdin; a missing file is TX_NOT_FOUND.
 * The caller frees `*data`. */
tx_status tx_file_read(const char *path, int64_t limit, char **data, size_t *size);
/* tx_file_read for a file that is used as a string: TX_FORMAT also if it holds a NUL. */
tx_status tx_file_read_text(const char *path, int64_t limit, char **text, size_t *size);
/* tx_file_read for standard input, whatever its length. */
tx_status tx_file_read_input(char **data, size_t *size);

/* Writes a file whose name TX chooses, as in the folder of a model. A symbolic link is replaced and its target stays as
 * it is: it may belong to a cache of models. TX_FORMAT refuses a folder, a pipe, a socket and a device. The old file
 * stays whole until the new one is flushed to disk. */
tx_status tx_file_write(const char *path, const void *data, size_t size);
/* Writes a file whose name the user gives. A symbolic link stays and its target is written, as by a shell's
 * redirection. A regular file is replaced as a whole. A pipe, a device and the file that is standard output or error
 * are written directly: the call waits until the pipe has a reader, and data stay written after a failure. TX_FORMAT
 * refuses a folder and a socket. */
tx_status tx_file_write_output(const char *path, const void *data, size_t size);

TX_API_END
#endif
