/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders as checkpoints need them: listed in a fixed order, and removed without leaving them through a link. */
#ifndef TX_FILES_FOLDER_H
#define TX_FILES_FOLDER_H

#include "tx.h"

typedef struct tx_names {
    char **name;
    size_t count;
} tx_names;

/* What lies in a folder ("." and ".." left out), sorted by bytes. */
tx_status tx_folder_list(const char *folder, tx_names *names);
void tx_names_free(tx_names *names);

/* Whether two paths lead to the same folder, which is there. Fails where that cannot be told. */
tx_status tx_folder_same(const char *a, const char *b, bool *same);

/* Removes parent/name with all that is in it. Links are removed, never followed; what is gone already is fine. */
tx_status tx_folder_remove(const char *parent, const char *name);

#endif
