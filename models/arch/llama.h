/* SPDX-License-Identifier: Apache-2.0
 * The Llama family: rows of the table of architectures. */
#ifndef TX_MODELS_LLAMA_H
#define TX_MODELS_LLAMA_H

#include "models/arch/arch.h"

extern const tx_architecture tx_llama, tx_mistral, tx_qwen2, tx_qwen3, tx_mixtral, tx_qwen2_moe, tx_qwen3_moe;
extern const tx_architecture tx_phi3, tx_olmo2, tx_smollm3, tx_granite, tx_gemma3_text, tx_gpt_neox, tx_stablelm;

#endif
