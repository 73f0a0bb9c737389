/* SPDX-License-Identifier: Apache-2.0
 *
 * DRY ("Don't Repeat Yourself", p-e-w, text-generation-webui, 2024, with llama.cpp's settings): a token that would
 * continue a repetition of n tokens loses dry_multiplier * dry_base ^ (n - dry_allowed_length). */
#ifndef TX_GENERATE_DRY_H
#define TX_GENERATE_DRY_H

#include "models/generate/sample.h"

/* Whether the settings have penalties. */
bool tx_dry_is_on(const tx_generation *how);
/* Subtracts the penalties from scores [vocab]. TX_MEMORY if there is no memory for the lengths of repetitions. */
tx_status tx_dry_apply(const tx_generation *how, const tx_history *history, int64_t vocab, float *scores);

#endif
