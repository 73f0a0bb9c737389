/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in 4 or 8 bits with scales of their own, as bf16: fp8 (DeepSeek, fbgemm), compressed-tensors and modelopt.
 * quantized.c calls it. */
#ifndef TX_FILES_SCALED_H
#define TX_FILES_SCALED_H

#include "models/files/weights.h"
#include "tx_json.h"

/* Returns true if the method of a quantization_config is one of these. */
bool tx_scaled_is(const char *method);
/* Checks the settings. TX_UNSUPPORTED names the key that TX does not implement. */
tx_status tx_scaled_check(const tx_json *quantization);
/* Replaces the weights of a file by those that their scales give, rounded to bf16. Takes ownership of `*weights`, also
 * on failure. */
tx_status tx_scaled_open(const tx_json *quantization, tx_weights **weights);

#endif
