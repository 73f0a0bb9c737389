/* SPDX-License-Identifier: Apache-2.0
 *
 * A forward pass over a batch of texts: a compiled graph with its inputs and its output. The texts have at most
 * `length` tokens each. Used by classifiers and embedders (passes.c) and by reward models (scorer.c). */
#ifndef TX_ARCH_PASS_H
#define TX_ARCH_PASS_H

#include "models/arch/pooling.h"

/* A model and how a pass computes it. */
typedef struct tx_pass_spec {
    tx_model *model; /* which has the parameters of `config` */
    const tx_config *config;
    const tx_pooling *pooling; /* NULL for logits */
    int64_t pad;               /* the padding before which a decoder's classifier finds the last token, or -1 */
    tx_dtype autocast;         /* F32 means the type of the stored parameters */
    const char *name;          /* of the plan */
} tx_pass_spec;

typedef struct tx_pass tx_pass;

/* Compiles the pass. The spec's members must outlive it. */
tx_status tx_pass_create(const tx_pass_spec *spec, int64_t rows, int64_t length, tx_pass **pass);
void tx_pass_free(tx_pass *pass); /* NULL is fine */

/* A text of up to `length` tokens, of which the first `prompt` are a prompt's. Without types they are 0. */
typedef struct tx_pass_text {
    const int32_t *ids, *types;
    int64_t count, prompt;
} tx_pass_text;

/* Sets row `row` to a text; to one token if it has none. */
void tx_pass_set(tx_pass *pass, int64_t row, tx_pass_text text);
/* Computes all rows. The outputs, `*stride` values a row, belong to the pass until its next run. */
tx_status tx_pass_run(tx_pass *pass, const float **output, int64_t *stride);

#endif
