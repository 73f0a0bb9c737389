/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages of HTML that programs write. */
#ifndef TX_TOOLS_OUTPUT_H
#define TX_TOOLS_OUTPUT_H

#include "tx_json.h"

/* Writes a page whose text holds @DATA@ once, with the data there as one line of JSON, whole or not at all; "-" is
 * standard output. */
tx_status tx_page_write(const char *path, const unsigned char *page, const tx_json *data);

#endif
