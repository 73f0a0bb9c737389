/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory of a zip archive whose members are stored without compression, as torch.save() writes it. It says at
 * which place in the file the bytes of each member lie. (APPNOTE.TXT of PKWARE, with the 64-bit records.) */
#ifndef TX_FILES_ZIP_H
#define TX_FILES_ZIP_H

#include "models/files/data_file.h"
#include "models/names.h"

typedef struct tx_zip_member {
    const char *name;
    int64_t at, bytes; /* in the file */
} tx_zip_member;

typedef struct tx_zip {
    tx_zip_member *member;
    tx_named *by_name; /* sorted */
    int32_t count;
    char *directory; /* owns the names */
} tx_zip;

/* TX_FORMAT for a damaged archive, TX_UNSUPPORTED for a compressed member. Messages do not have the path. The caller
 * frees, also after a failure. */
tx_status tx_zip_open(const tx_data_file *file, tx_zip *zip);
/* Accepts {0}. */
void tx_zip_free(tx_zip *zip);

/* Sorts the names of the members, which must be set. */
tx_status tx_zip_sort(tx_zip *zip);
/* Finds a member. TX_FORMAT if there is none. */
tx_status tx_zip_find(const tx_zip *zip, const char *name, tx_zip_member *member);

#endif
