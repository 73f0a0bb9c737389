/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalizers: tokenizer.json's part of that name. */
#ifndef TX_TEXT_NORMALIZER_H
#define TX_TEXT_NORMALIZER_H

#include "models/text/steps.h"

/* `json` may be NULL: no steps. */
tx_status tx_normalizer_read(tx_steps *steps, const tx_json *json);
/* Makes a text of whole characters what the steps make of it, one after the other; it then lies in `scratch`.
 * The matcher has begun. */
tx_status tx_normalizer_run(const tx_steps *steps, tx_matcher *matcher, tx_buffer scratch[2], const char **text,
                            size_t *size);

#endif
