/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal language modelling: each position of a block of tokens guesses the token after it. Fields input_ids and labels
 * [rows, block], in this order, the labels already shifted; metrics loss and perplexity. */
#ifndef TX_TASK_CAUSAL_LM_H
#define TX_TASK_CAUSAL_LM_H

#include "models/task/task.h"
#include "models/tx_text.h"

/* Places of the fields. */
enum { TX_CAUSAL_LM_INPUT_IDS, TX_CAUSAL_LM_LABELS };

extern const tx_task tx_causal_lm;

/* Scalar loss of logits by "labels", and the metrics of it. */
tx_tensor *tx_causal_lm_loss(tx_graph *graph, const tx_config *config, tx_tensor *logits, float smoothing);
extern const tx_metric tx_causal_lm_metrics[];

/* How a text is read for these options: as blocks of tokens. Other tasks of texts change what they want otherwise. */
tx_dataset_options tx_causal_lm_reading(const tx_data_options *options);

/* The blocks of a dataset, which must outlive them; NULL: none. */
tx_samples tx_causal_lm_samples(const tx_dataset *dataset);

#endif
