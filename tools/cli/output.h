/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders and pages that a program is about to write to. */
#ifndef TX_TOOLS_OUTPUT_H
#define TX_TOOLS_OUTPUT_H

#include "api/base/json.h"

bool tx_is_folder(const char *path);
/* Fails where the folder holds anything but what an earlier start leaves (lock and cache); one that is not there is
 * fine. Nothing is changed. */
tx_status tx_output_check(const char *folder);
/* Makes the folder, or checks that it can be written to. */
tx_status tx_output_prepare(const char *folder);

/* Writes a page whose text holds @DATA@ once, with the data there as one line of JSON, whole or not at all; "-" is
 * standard output. */
tx_status tx_page_write(const char *path, const unsigned char *page, const tx_json *data);

#endif
