/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a YAML file as JSON. tx_option_read uses it for files of options. */
#ifndef TX_OPTIONS_YAML_H
#define TX_OPTIONS_YAML_H

#include "tx_json.h"

/* Reads a file of at most `limit` bytes that holds one document. ${NAME} in a value becomes the value of that
 * environment variable. Plain words become null (null, ~, nothing), truths (true, false), numbers, or strings; yes, no,
 * on and off stay strings. TX_FORMAT names the line of a fault, of a key that is there twice, and of a variable that is
 * not set; anchors, aliases and tags are not supported. The caller frees `*json`. */
tx_status tx_yaml_read(const char *path, int64_t limit, tx_json **json);

#endif
