/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2 (Radford et al., Language Models are Unsupervised Multitask Learners, 2019) as Hugging Face stores and computes
 * it.
 *
 * Pre-norm blocks; learned positions; projections y = x W + b with W [in, out]; the output head is the token
 * embedding. */
#ifndef TX_MODELS_GPT2_H
#define TX_MODELS_GPT2_H

#include "models/arch/families.h"

/* X(NAME, "name in config.json") */
#define TX_GPT2_ACTIVATION_MAP(X)                                               \
    X(GELU_NEW, "gelu_new")                   /* tanh approximation */          \
    X(GELU_PYTORCH_TANH, "gelu_pytorch_tanh") /* the same, as the next three */ \
    X(GELU_PYTHON_TANH, "gelu_python_tanh")                                     \
    X(GELU_FAST, "gelu_fast")                                                   \
    X(GELU_ACCURATE, "gelu_accurate")                                           \
    X(GELU, "gelu")               /* exact, with erf */                         \
    X(GELU_PYTHON, "gelu_python") /* the same */                                \
    X(SILU, "silu")                                                             \
    X(SWISH, "swish") /* the same */

typedef enum tx_gpt2_activation {
#define X(name, text) TX_GPT2_##name,
    TX_GPT2_ACTIVATION_MAP(X)
#undef X
        TX_GPT2_ACTIVATION_COUNT
} tx_gpt2_activation;

/* The keys of config.json under their own names. */
typedef struct tx_gpt2_config {
    tx_config base;
    int64_t n_inner;             /* 0 means 4 n_embd (null in the file) */
    int32_t activation_function; /* a tx_gpt2_activation */
    double layer_norm_epsilon, initializer_range;
    double resid_pdrop, embd_pdrop, attn_pdrop;
    bool scale_attn_weights;              /* multiply scores by 1 / sqrt(head size) */
    bool scale_attn_by_inverse_layer_idx; /* and by 1 / (layer + 1) */
    bool reorder_and_upcast_attn;         /* attention in fp32; has no effect in TX, kept for the file */
} tx_gpt2_config;

static inline const tx_gpt2_config *tx_gpt2_of(const tx_config *config)
{
    return (const tx_gpt2_config *)config;
}

#endif
