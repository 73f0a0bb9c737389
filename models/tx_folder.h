/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders: paths in them, their names in a fixed order, and removal that never leaves them through a link. */
#ifndef TX_FOLDER_H
#define TX_FOLDER_H

#include "tx_base.h"

#include <limits.h>

TX_API_BEGIN

/* Buffer size for a path: one byte more than the longest path that the system accepts. */
#define TX_PATH_ROOM (PATH_MAX + 1)

/* Writes "folder/name"; returns `path`. A longer result is cut to a length that every call of the system refuses. */
char *tx_path_in(char path[TX_PATH_ROOM], const char *folder, const char *name);
/* The same, in memory that lasts as long as the block that uses it. */
#define TX_PATH(folder, name) tx_path_in((char[TX_PATH_ROOM]){0}, folder, name)

typedef struct tx_names {
    char **name;
    size_t count;
} tx_names;

/* The names in a folder except "." and "..", sorted by bytes. The caller frees them by tx_names_free. */
tx_status tx_folder_list(const char *folder, tx_names *names);
void tx_names_free(tx_names *names); /* NULL is fine */

/* Removes parent/name with all that is in it. Links are removed, never followed. A missing one is no failure. */
tx_status tx_folder_remove(const char *parent, const char *name);

TX_API_END

#endif
