/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward passes over many texts of different lengths. They are sorted by length and computed in batches. Each shape of
 * a batch has a compiled plan. Used by classifier.c and embedder.c. */
#ifndef TX_GENERATE_PASSES_H
#define TX_GENERATE_PASSES_H

#include "models/arch/pass.h"
#include "models/generate/lm.h"
#include "models/tokenizer/joined.h"

enum { TX_PASSES_PLANS = 16 };

typedef struct tx_passes {
    tx_lm *lm;
    const tx_pooling *pooling; /* NULL for logits */
    int64_t most;              /* tokens of a text */
    int64_t pad;               /* the padding of a decoder's classifier, or -1 */
    struct tx_passes_plan {
        tx_pass *pass;
        int64_t rows, length, used; /* `used` is the number of the last run */
    } plan[TX_PASSES_PLANS];
    int64_t used; /* number of runs */
    tx_joiner joiner;
    /* The model inputs of the current call: ids and types of all texts, one after the other. */
    tx_ids ids, types;
    struct tx_passes_text {
        size_t begin;
        int64_t count, prompt; /* tokens, and those of a prompt */
        int64_t index;
    } * text;
    size_t texts, room;
} tx_passes;

/* Opens the model of `options` for the passes. The caller calls tx_passes_close, also after a failure. */
tx_status tx_passes_open(const tx_lm_options *options, tx_passes *passes);
/* Opens the tokenizer. `most` is the largest number of tokens of a text; 0 means that of the tokenizer and the model.
 */
tx_status tx_passes_begin(tx_passes *passes, int64_t most);
void tx_passes_close(tx_passes *passes); /* {0} is fine */

/* Removes all texts. */
void tx_passes_clear(tx_passes *passes);
/* Ends the model input of the next text, whose ids and types have been appended. */
tx_status tx_passes_add(tx_passes *passes, int64_t prompt);

/* Receives the output of text `index`: a row of columns for each position, or one row if
 * the head or the pooling has one row for each text. */
typedef void tx_passes_take(void *context, int64_t index, const float *output);
/* Computes all texts. */
tx_status tx_passes_run(tx_passes *passes, tx_passes_take *take, void *context);

#endif
