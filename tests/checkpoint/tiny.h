/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that is small and has what matters to a checkpoint: a padded table, a tied one, decay and none, gradients
 * that differ from step to step. Its loop knows nothing but the step's number, so it can go on from any. */
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

/* `choices` (or NULL) goes to tx_engine_choose first. After a failure tiny_free may be called all the same. */
tx_status tiny_create(const char *device, const tx_optimizer_options *optimizer, const char *choices, tiny *t);
void tiny_free(tiny *t);

/* Steps first .. last - 1; `results` (or NULL) are those after the last. */
tx_status tiny_train(tiny *t, int first, int last, tx_results *results);

/* Saves weights, optimizer states and what `results` says to `folder`; loads them. */
tx_status tiny_save(tiny *t, const char *folder);
tx_status tiny_load(tiny *t, const char *folder);

/* All parameters and the optimizer states that there are, one after the other; NULL when out of memory. The caller
 * frees it. */
float *tiny_read(tiny *t, int64_t *count);

#endif
