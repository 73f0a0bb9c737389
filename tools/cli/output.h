/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON and HTML pages that programs write. */
#ifndef TX_TOOLS_OUTPUT_H
#define TX_TOOLS_OUTPUT_H

#include "tx_json.h"

/* Prints a value as one line of JSON. */
tx_status tx_print_json(const tx_json *json);
/* Replaces @DATA@ in the page by the data as one line of JSON and writes the page to `path`; "-" is standard output.
 * The page must contain @DATA@ once. A file is replaced as a whole or left unchanged. */
tx_status tx_page_write(const char *path, const unsigned char *page, const tx_json *data);

/* The same in memory. The caller frees `*text`. */
tx_status tx_page_text(const unsigned char *page, const tx_json *data, char **text, size_t *size);

#endif
