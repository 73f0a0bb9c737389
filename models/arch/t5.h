/* SPDX-License-Identifier: Apache-2.0
 *
 * T5 (Raffel et al., T5, 2020), T5 1.1 and FLAN-T5, and mT5 (Xue et al., mT5, 2021). An encoder reads the source, and a
 * decoder writes the target. Graphs (tx_arch_logits) have these inputs:
 *
 * Whole rows. input_ids [B, S] and attention_lengths [B] of the source, decoder_input_ids [B, T].
 *
 * The source for caches. input_ids, attention_lengths, positions [B] of zeros, optional slots; the option `cache` is S.
 * The graph writes keys and values to caches. It returns the encoder's states.
 *
 * A token with caches. input_ids [B, 1], positions [B], optional sources. F32 source_mask [B, S] is 0 or
 * TX_RELATIVE_MASKED for padding. I32 bias_rows [B, cache] are those of tx_t5_bias_rows. */
#ifndef TX_MODELS_T5_H
#define TX_MODELS_T5_H

#include "models/arch/families.h"
#include "models/arch/stack.h"

/* The dense layers: the activation, gated or not. */
enum {
    TX_T5_RELU,
    TX_T5_GELU,
    TX_T5_GELU_NEW,
    TX_T5_SILU,
    TX_T5_GATED_GELU,
    TX_T5_GATED_GELU_NEW,
    TX_T5_GATED_SILU,
    TX_T5_DENSE_KINDS
};

typedef struct tx_t5_config {
    tx_config base;
    int64_t d_kv, d_ff, num_layers, num_decoder_layers; /* 0 decoder layers: as many as the encoder has */
    int64_t buckets, farthest, decoder_start_token_id, pad_token_id;
    int32_t dense;
    bool tie_word_embeddings, scale_decoder_outputs; /* as the file has them */
    bool never_scales;                               /* mT5 */
    bool gated, untied;                              /* follow from keys */
    double dropout_rate, layer_norm_epsilon, initializer_factor;
} tx_t5_config;

/* Slots of parameters. */
enum {
    TX_T5_NO_BIAS = -1,
    TX_T5_EMBED,
    TX_T5_ENCODER_BIAS,
    TX_T5_DECODER_BIAS,
    TX_T5_SELF_NORM, /* then query, key | value, output */
    TX_T5_CROSS_NORM = TX_T5_SELF_NORM + 4,
    TX_T5_FF_NORM = TX_T5_CROSS_NORM + 4,
    TX_T5_FF_IN,
    TX_T5_FF_OUT,
    TX_T5_ENCODER_NORM,
    TX_T5_DECODER_NORM,
    TX_T5_LM_HEAD
};

static inline const tx_t5_config *tx_t5_of(const tx_config *config)
{
    return (const tx_t5_config *)config;
}

/* The token with which the decoder begins. */
int64_t tx_t5_begin(const tx_config *config);
/* The rows of the decoder's table of biases for keys 0, 1, .. of a token at `position`; -1 for later ones. */
void tx_t5_bias_rows(const tx_config *config, int64_t position, int64_t count, int32_t *rows);
/* The graph of tx_arch_logits (t5_graph.c). */
tx_tensor *tx_t5_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options);

/* The parameters (t5.c). */
extern const tx_stack_row tx_t5_rows[];

#endif
