/* SPDX-License-Identifier: Apache-2.0
 *
 * A small model with everything that matters to a checkpoint: a padded table, a tied one, weight decay and none, and
 * gradients that differ from step to step. Its loop depends only on the step's number, so that it can resume at any
 * step. */
#ifndef TX_TESTS_TINY_H
#define TX_TESTS_TINY_H

#include "tx.h"

typedef struct tiny {
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_plan *train, *update;
    tx_tensor *tokens, *labels;
} tiny;

/* `choices` (or NULL) is passed to tx_engine_choose first. tiny_free may be called after a failure, too. */
tx_status tiny_create(const char *device, const tx_optimizer_options *optimizer, const char *choices, tiny *t);
void tiny_free(tiny *t);

/* Steps first .. last - 1; `results` (or NULL) are those after the last. */
tx_status tiny_train(tiny *t, int first, int last, tx_results *results);

/* Saves weights, optimizer states and `results` to `folder`; loads them. */
tx_status tiny_save(tiny *t, const char *folder);
tx_status tiny_load(tiny *t, const char *folder);

/* All parameters and the optimizer states that there are, one after the other; NULL when out of memory. The caller
 * frees it. */
float *tiny_read(tiny *t, int64_t *count);

#endif
