/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders that a program is about to write to. */
#ifndef TX_TOOLS_OUTPUT_H
#define TX_TOOLS_OUTPUT_H

#include "tx.h"

bool tx_is_folder(const char *path);
/* Fails where the folder holds anything but what an earlier start leaves (lock and cache); one that is not there is
 * fine. Nothing is changed. */
tx_status tx_output_check(const char *folder);
/* Makes the folder, or checks that it can be written to. */
tx_status tx_output_prepare(const char *folder);

#endif
