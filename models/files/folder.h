/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders compared, and files taken along from one to another. */
#ifndef TX_FILES_FOLDER_H
#define TX_FILES_FOLDER_H

#include "models/tx_folder.h"

/* Whether two paths lead to the same folder, which is there. Fails where that cannot be told. */
tx_status tx_folder_same(const char *a, const char *b, bool *same);

/* Copies from/name, of at most `limit` bytes, to to/name, whole or not at all; nothing where there is none. */
tx_status tx_folder_copy_file(const char *from, const char *to, const char *name, int64_t limit);

#endif
