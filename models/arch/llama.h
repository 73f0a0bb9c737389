/* SPDX-License-Identifier: Apache-2.0
 * The Llama family: rows of the table of architectures. */
#ifndef TX_MODELS_LLAMA_H
#define TX_MODELS_LLAMA_H

#include "models/arch/arch.h"

extern const tx_architecture tx_llama_classifier, tx_mistral_classifier, tx_qwen2_classifier, tx_qwen3_classifier;
extern const tx_architecture tx_llama, tx_mistral, tx_qwen2, tx_qwen3, tx_mixtral, tx_qwen2_moe, tx_qwen3_moe;
extern const tx_architecture tx_phi3, tx_olmo2, tx_smollm3, tx_granite, tx_gemma2, tx_gemma3_text, tx_gpt_neox;
extern const tx_architecture tx_stablelm, tx_gpt_oss, tx_gemma, tx_seed_oss, tx_exaone4, tx_starcoder2, tx_phi;
extern const tx_architecture tx_ernie4_5, tx_hunyuan_v1_dense, tx_olmo3, tx_olmoe;
extern const tx_architecture tx_arcee, tx_cohere, tx_granitemoe, tx_helium, tx_nemotron;
extern const tx_architecture tx_opt, tx_gpt_neo, tx_gpt_bigcode, tx_gptj, tx_glm, tx_glm4, tx_falcon;
extern const tx_architecture tx_bloom, tx_mpt;

#endif
