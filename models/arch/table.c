/* SPDX-License-Identifier: Apache-2.0
 * The table of architectures. It is a separate file so that a program can bring its own table. */
#include "models/arch/bert.h"
#include "models/arch/gpt2.h"
#include "models/arch/llama.h"
#include "models/arch/t5.h"

#define LM(name) &name, &name##_classifier
#define BERT(name) \
    &name##_masked_lm, &name##_classifier, &name##_token_classifier, &name##_choice, &name##_question, &name##_base

const tx_architecture *const tx_architectures[] = {LM(tx_gpt2),
                                                   LM(tx_llama),
                                                   LM(tx_mistral),
                                                   LM(tx_qwen2),
                                                   LM(tx_qwen3),
                                                   &tx_mixtral,
                                                   &tx_qwen2_moe,
                                                   &tx_qwen3_moe,
                                                   &tx_phi3,
                                                   &tx_olmo2,
                                                   &tx_smollm3,
                                                   &tx_granite,
                                                   &tx_gemma2,
                                                   &tx_gemma3_text,
                                                   &tx_gpt_neox,
                                                   &tx_gpt_oss,
                                                   &tx_stablelm,
                                                   &tx_gemma,
                                                   &tx_seed_oss,
                                                   &tx_exaone4,
                                                   &tx_starcoder2,
                                                   &tx_phi,
                                                   &tx_ernie4_5,
                                                   &tx_hunyuan_v1_dense,
                                                   &tx_olmo3,
                                                   &tx_olmoe,
                                                   &tx_arcee,
                                                   &tx_cohere,
                                                   &tx_granitemoe,
                                                   &tx_helium,
                                                   &tx_nemotron,
                                                   &tx_opt,
                                                   &tx_gpt_neo,
                                                   &tx_gpt_bigcode,
                                                   &tx_gptj,
                                                   &tx_glm,
                                                   &tx_glm4,
                                                   &tx_falcon,
                                                   &tx_bloom,
                                                   &tx_mpt,
                                                   BERT(tx_bert),
                                                   BERT(tx_roberta),
                                                   BERT(tx_xlm_roberta),
                                                   BERT(tx_camembert),
                                                   BERT(tx_distilbert),
                                                   BERT(tx_electra),
                                                   BERT(tx_mpnet),
                                                   BERT(tx_deberta_v2),
                                                   BERT(tx_modernbert),
                                                   &tx_t5,
                                                   &tx_mt5,
                                                   NULL};
