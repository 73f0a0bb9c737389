/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that other programs quantized, as fp32: bitsandbytes (NF4, FP4 and 8 bits), GPTQ (2, 4 and 8 bits) and AWQ
 * (4 bits), MXFP4 (mxfp4.h), and those with scales of their own (scaled.h). `quantization_config` of config.json
 * describes them. */
#ifndef TX_FILES_QUANTIZED_H
#define TX_FILES_QUANTIZED_H

#include "models/files/weights.h"
#include "tx_json.h"

/* Checks a quantization_config. TX_UNSUPPORTED names the key that TX does not implement. */
tx_status tx_quantized_check(const tx_json *quantization);
/* Replaces the weights of a file by those that its quantized tensors mean: X.weight [out, in] for X.qweight and its
 * companions. Takes ownership of `*weights`, also on failure. */
tx_status tx_quantized_open(const tx_json *quantization, tx_weights **weights);

#endif
