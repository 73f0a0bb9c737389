/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders that a program is about to write to. */
#ifndef TX_TOOLS_OUTPUT_H
#define TX_TOOLS_OUTPUT_H

#include "tx.h"

bool tx_is_folder(const char *path);
/* Makes the folder, or checks that it is empty (unless `overwrite`), can be written to, and has room for `bytes` twice:
 * a file is written beside the one that it replaces. */
tx_status tx_output_prepare(const char *folder, bool overwrite, int64_t bytes);

#endif
