/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2 (Radford et al., Language Models are Unsupervised Multitask Learners, 2019) as Hugging Face
 * stores and computes it: configuration, graph, weights.
 *
 * Pre-norm blocks; learned positions; projections of the form y = x W + b with W [in, out]; the output head
 * is the token embedding. */
#ifndef TX_MODELS_GPT2_H
#define TX_MODELS_GPT2_H

#include "api/base/json.h"
#include "models/files/weights.h"
#include "tx.h"

/* X(NAME, "name in config.json") */
#define TX_GPT2_ACTIVATION_MAP(X)                                               \
    X(GELU_NEW, "gelu_new")                   /* by tanh */                     \
    X(GELU_PYTORCH_TANH, "gelu_pytorch_tanh") /* the same, as the next three */ \
    X(GELU_PYTHON_TANH, "gelu_python_tanh")                                     \
    X(GELU_FAST, "gelu_fast")                                                   \
    X(GELU_ACCURATE, "gelu_accurate")                                           \
    X(GELU, "gelu")               /* by erf */                                  \
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
    int64_t vocab_size, n_positions, n_embd, n_layer, n_head;
    int64_t n_inner;                    /* 0: 4 n_embd (null in the file) */
    int64_t bos_token_id, eos_token_id; /* -1: none */
    tx_gpt2_activation activation_function;
    double layer_norm_epsilon, initializer_range;
    double resid_pdrop, embd_pdrop, attn_pdrop;
    bool scale_attn_weights;              /* scores times 1 / sqrt(head size) */
    bool scale_attn_by_inverse_layer_idx; /* and times 1 / (layer + 1) */
    bool reorder_and_upcast_attn;         /* attention in fp32; changes nothing here, kept for the file */
    tx_json *source;                      /* the file it was read from, whose other keys are kept; or NULL */
} tx_gpt2_config;

/* ---- Configuration ------------------------------------------------------------------------------- */

/* "gpt2", "gpt2-medium", "gpt2-large" or "gpt2-xl". */
tx_status tx_gpt2_config_preset(const char *name, tx_gpt2_config *config);
/* Checks ranges and divisibility; the message names the key. */
tx_status tx_gpt2_config_check(const tx_gpt2_config *config);
/* Reads config.json. Absent keys take transformers' defaults; wrong types and values, and keys that change the
 * mathematics in a way that is not implemented, are refused by name. Release with tx_gpt2_config_free. */
tx_status tx_gpt2_config_read(const char *path, tx_gpt2_config *config);
/* Changes keys as "n_layer=4,n_embd=64,activation_function=gelu". An unknown key, a wrong value or sizes that do not
 * fit are refused by name, and nothing is changed. */
tx_status tx_gpt2_config_override(tx_gpt2_config *config, const char *text);
/* Writes config.json, with the other keys of the file it came from. */
tx_status tx_gpt2_config_write(const tx_gpt2_config *config, const char *path);
/* The same as JSON; the caller frees. */
tx_status tx_gpt2_config_json(const tx_gpt2_config *config, tx_json **json);
void tx_gpt2_config_free(tx_gpt2_config *config);

/* ---- Parameters ------------------------------------------------------------------------------------ */

#define TX_GPT2_NAME 64
/* The vocabulary is padded to a multiple of this in memory: 50257 -> 50304. */
#define TX_GPT2_VOCAB_MULTIPLE 128
int64_t tx_gpt2_padded_vocab(const tx_gpt2_config *config);

/* Number of parameters (named arrays), and name and spec of each, in layer order. */
int32_t tx_gpt2_params(const tx_gpt2_config *config);
tx_status tx_gpt2_param(const tx_gpt2_config *config, int32_t index, char name[TX_GPT2_NAME], tx_param_spec *spec);
/* Number of trainable numbers, the tied head counted once, padding left out: 124,439,808 for gpt2. */
int64_t tx_gpt2_param_count(const tx_gpt2_config *config);

/* ---- Graph ----------------------------------------------------------------------------------------- */

typedef struct tx_gpt2_options {
    size_t size;   /* sizeof(tx_gpt2_options) */
    bool train;    /* dropout as the configuration says */
    int64_t cache; /* 0: none; else positions in the key-value caches, states "cache.h.<layer>.key" and ".value" */
    tx_tensor *positions; /* with caches: I32 [B], where the first token of each row stands */
    tx_tensor *sources;   /* with caches: I32 [B], the row whose cache each row goes on with (beams); NULL: its own */
    tx_tensor *lengths;   /* I32 [B]: keys from lengths[b] on are masked; NULL: none are */
    tx_tensor *rows;      /* I32 [R], indices into the B * T positions: logits of these alone, [R, V']; NULL: all */
} tx_gpt2_options;

/* tokens I32 [B, T] -> logits [B, T, V'], V' the padded vocabulary: columns from vocab_size on mean nothing.
 * Declares the parameters where they are not yet. `options` NULL: evaluation, no cache. NULL on error. */
tx_tensor *tx_gpt2_logits(tx_graph *graph, const tx_gpt2_config *config, tx_tensor *tokens,
                          const tx_gpt2_options *options);
/* Scalar training loss: mean cross-entropy over the labels (I32 [B, T], already shifted: labels[b][t] follows
 * tokens[b][t]; TX_IGNORE_LABEL counts not) by control INVERSE_LABELS. */
tx_tensor *tx_gpt2_loss(tx_tensor *logits, const tx_gpt2_config *config, tx_tensor *labels);

/* ---- Files ------------------------------------------------------------------------------------------- */

/* Reads the weights (tx_weights_open) into a model whose graph has been built; `options` may be NULL. Accepts the
 * published files: names without "transformer.", the buffers attn.bias and attn.masked_bias, an lm_head.weight equal to
 * wte. */
tx_status tx_gpt2_load(tx_model *model, const tx_gpt2_config *config, const char *folder,
                       const tx_load_options *options);
/* Whether tx_gpt2_load would take the weights, all values included, without a model. */
tx_status tx_gpt2_check(const tx_gpt2_config *config, const char *folder);
/* Writes config.json and model.safetensors (or shards, where it is over TX_WEIGHTS_SHARD bytes), as transformers'
 * AutoModelForCausalLM loads them. */
tx_status tx_gpt2_save(tx_model *model, const tx_gpt2_config *config, const char *folder);

#endif
