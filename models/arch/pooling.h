/* SPDX-License-Identifier: Apache-2.0
 *
 * Embeddings of texts: the modules of a folder of sentence-transformers after its transformer, in files and graphs. */
#ifndef TX_ARCH_POOLING_H
#define TX_ARCH_POOLING_H

#include "models/arch/arch.h"
#include "models/tx_folder.h"

/* Pooling modes, in the order in which sentence-transformers concatenates their results. */
typedef enum tx_pool_mode {
    TX_POOL_CLS, /* the first token */
    TX_POOL_MAX,
    TX_POOL_MEAN,
    TX_POOL_MEAN_SQRT, /* the sum divided by the square root of the number of tokens */
    TX_POOL_WEIGHTED,  /* the mean with weights 1, 2, .. */
    TX_POOL_LAST,      /* the last token */
    TX_POOL_MODES
} tx_pool_mode;

/* A module Dense. */
typedef struct tx_dense {
    int64_t in, out;
    bool tanh;            /* the activation; else none */
    float *weight, *bias; /* [out, in]; and [out] or NULL */
} tx_dense;

#define TX_DENSE_MOST 4

typedef struct tx_pooling {
    tx_pool_mode mode[TX_POOL_MODES];
    int32_t modes; /* number of modes whose results are concatenated */
    bool normalize;
    bool skips_prompt;      /* tokens of the prompt are not pooled */
    bool given;             /* the folder has modules.json */
    int64_t max_seq_length; /* 0 means that of the tokenizer and the model */
    char transformer[64];   /* the folder of the transformer in the folder of the modules; often "" */
    tx_json *prompts;       /* config_sentence_transformers.json, or NULL */
    int32_t dense_count;    /* modules Dense between pooling and normalization, which generation computes on the host */
    tx_dense dense[TX_DENSE_MOST];
} tx_pooling;

/* Reads a folder or a GGUF file. Without modules.json, or if `folder` is NULL, it is the default: mean pooling.
 * TX_UNSUPPORTED names a module or a key that is not implemented. The caller calls tx_pooling_free, also after a
 * failure. */
tx_status tx_pooling_read(const char *folder, tx_pooling *pooling);
void tx_pooling_free(tx_pooling *pooling); /* resets it to {0} */
/* Writes the files that make a folder with the weights of an encoder a folder of sentence-transformers. */
tx_status tx_pooling_write(const tx_pooling *pooling, int64_t width, int64_t max_seq_length, const char *folder);
/* See tx_embedder_prompt. */
tx_status tx_pooling_prompt(const tx_pooling *pooling, const char *name, const char **prompt);

/* Reads the folder of a module Dense (dense.c). The caller frees `dense`, also after a failure. */
tx_status tx_dense_read(const char *folder, tx_dense *dense);
void tx_dense_free(tx_dense *dense);
/* Computes the modules Dense, and the normalization after them, of pooled states [width]: embedding [tx_dense_width].
 */
tx_status tx_dense_apply(const tx_pooling *pooling, const float *pooled, int64_t width, float *embedding);

/* The number of values of an embedding, for hidden states of `width`, and before modules Dense. */
int64_t tx_dense_width(const tx_pooling *pooling, int64_t width);
int64_t tx_pooling_width(const tx_pooling *pooling, int64_t width);
/* The number of values of the input "pooling" for each row of `block` positions. */
int64_t tx_pooling_values(const tx_pooling *pooling, int64_t block);
/* Writes these values for a row of `length` tokens, of which the first `prompt` are the prompt's. */
void tx_pooling_fill(const tx_pooling *pooling, int64_t block, int64_t length, int64_t prompt, float *values);
/* Embeddings [B, tx_pooling_width] of hidden states [B, T, C] and input "pooling", F32 [B, tx_pooling_values]. NULL on
 * error. */
tx_tensor *tx_pooling_graph(tx_graph *graph, const tx_pooling *pooling, tx_tensor *states);
/* Divides each row of x [B, C] by its Euclidean norm, or by a tiny number if it is 0. */
tx_tensor *tx_unit_rows(tx_graph *graph, tx_tensor *x);

#endif
