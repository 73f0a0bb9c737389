/* SPDX-License-Identifier: Apache-2.0
 *
 * The multipliers of Granite in GGUF files. */
#ifndef TX_MODELS_GRANITE_H
#define TX_MODELS_GRANITE_H

#include "models/arch/llama_family.h"

#define GRANITE_GGUF_SCALES                                                                               \
    TX_GGUF_MEMBER("attention.scale", offsetof(llama_config, attention.multiplier), NUMBER, NOTHING),     \
        TX_GGUF_MEMBER("embedding_scale", offsetof(llama_config, embedding.multiplier), NUMBER, NOTHING), \
        TX_GGUF_MEMBER("residual_scale", offsetof(llama_config, residual.multiplier), NUMBER, NOTHING),   \
        TX_GGUF_MEMBER("logit_scale", offsetof(llama_config, logits.divisor), NUMBER, NOTHING)

#endif
