/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing folders, and copying files from one to another. */
#ifndef TX_FILES_FOLDER_H
#define TX_FILES_FOLDER_H

#include "models/tx_folder.h"

/* Checks whether two paths lead to the same existing folder. Fails if that cannot be determined. */
tx_status tx_folder_same(const char *a, const char *b, bool *same);

/* Copies from/name, of at most `limit` bytes, to to/name, atomically. Does nothing if it does not exist. */
tx_status tx_folder_copy_file(const char *from, const char *to, const char *name, int64_t limit);

/* Lists names as tx_folder_list does, but instead of each folder its contents, as "folder/name". Links are not
 * followed, and folders are listed one level deep. The caller frees the names with tx_names_free. */
tx_status tx_folder_files(const char *folder, tx_names *names);

#endif
