/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders as checkpoints need them: listed in a fixed order, files taken along from one to another, and removed without
 * leaving them through a link. */
#ifndef TX_FILES_FOLDER_H
#define TX_FILES_FOLDER_H

#include "tx.h"

#include <limits.h>

/* Room for a path, and for one more byte than the system takes. */
#define TX_PATH_ROOM (PATH_MAX + 1)

/* Writes "folder/name"; returns `path`. One that is too long is cut to a length that every call of the system refuses.
 */
char *tx_path_in(char path[TX_PATH_ROOM], const char *folder, const char *name);
/* The same, in memory that lasts as long as the block in which it is asked for. */
#define TX_PATH(folder, name) tx_path_in((char[TX_PATH_ROOM]){0}, folder, name)

typedef struct tx_names {
    char **name;
    size_t count;
} tx_names;

/* What lies in a folder ("." and ".." left out), sorted by bytes. */
tx_status tx_folder_list(const char *folder, tx_names *names);
void tx_names_free(tx_names *names);

/* Whether two paths lead to the same folder, which is there. Fails where that cannot be told. */
tx_status tx_folder_same(const char *a, const char *b, bool *same);

/* Copies from/name, of at most `limit` bytes, to to/name, whole or not at all; nothing where there is none. */
tx_status tx_folder_copy_file(const char *from, const char *to, const char *name, int64_t limit);

/* Removes parent/name with all that is in it. Links are removed, never followed; what is gone already is fine. */
tx_status tx_folder_remove(const char *parent, const char *name);

#endif
