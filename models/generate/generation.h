/* SPDX-License-Identifier: Apache-2.0
 *
 * How to generate (tx_generation): its defaults, and what generation_config.json says. */
#ifndef TX_GENERATE_GENERATION_H
#define TX_GENERATE_GENERATION_H

#include "models/report.h"
#include "models/tx_generate.h"

/* transformers' defaults; eos_token_id is that of the model (-1: none). */
tx_generation tx_generation_defaults(int64_t eos_token_id);
/* Overwrites what generation_config.json of the folder says, if there is one, by the names of the fields; seed and
 * stop_strings are the caller's. Keys that would change the text in a way that TX does not have are reported; others
 * (pad_token_id, use_cache
 * ...) are left alone. */
tx_status tx_generation_read(const char *folder, tx_generation *generation, const tx_reporter *reporter);
/* New tokens behind a prompt of so many; below 1 where max_length has no room for any, or nothing is said. */
int64_t tx_generation_limit(const tx_generation *generation, int64_t prompt);
bool tx_generation_ends(const tx_generation *generation, int32_t id);

#endif
