/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of Mamba-2 layers and attention in GGUF files (mamba_gguf.c). */
#ifndef TX_MODELS_MAMBA_H
#define TX_MODELS_MAMBA_H

#include "models/gguf/gguf_family.h"

extern const tx_gguf_family tx_granitehybrid_gguf, tx_bamba_gguf, tx_falcon_h1_gguf;

#endif
