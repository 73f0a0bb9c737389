/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of squares of the inputs of a model's matrices over a text. gguf_calibrate.c makes importance matrices of them.
 */
#ifndef TX_GENERATE_INPUTS_H
#define TX_GENERATE_INPUTS_H

#include "models/generate/lm.h"

/* Those of a parameter. */
typedef struct tx_input_sums {
    int64_t width, matrices; /* 0 if it is no matrix of a block */
    double *squares;         /* [matrices, width]: for each column of inputs */
    double *rows;            /* [matrices]: number of inputs; an expert has those of its tokens */
} tx_input_sums;

typedef struct tx_inputs {
    int64_t length, windows; /* tokens of a window; number of windows */
    int32_t params;
    tx_input_sums *of; /* [params] */
} tx_inputs;

/* Runs a causal language model over windows of 512 tokens, or of its positions if they are fewer. Windows follow each
 * other, and tokens after the last whole one are left out. The first token of each becomes `begin`, unless it is
 * negative. TX_INVALID if there is no whole window. Memory does not depend on the length of the text. */
tx_status tx_lm_sum_inputs(tx_lm *lm, const int32_t *ids, int64_t count, int32_t begin, tx_inputs **inputs);
void tx_inputs_free(tx_inputs *inputs); /* NULL is fine */

#endif
