/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of JSON Lines files that hold a text. */
#ifndef TX_TEXT_JSONL_H
#define TX_TEXT_JSONL_H

#include "api/base/json.h"

/* The text of the line {"text": ..., ...}, to the letter as strict as tx_json_parse_line; TX_FORMAT says what is wrong.
 * A long text is spelled out within the line, which is changed where it succeeds, and not copied. `where` starts the
 * messages. `*text` lives as long as the line and `*json`, which the caller frees. */
tx_status tx_jsonl_text(char *line, size_t size, const char *where, tx_json **json, const char **text, size_t *length);

#endif
