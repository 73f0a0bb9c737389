/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal language modelling: each position of a block of tokens predicts the next token. The fields are input_ids and
 * labels [rows, block], in this order; the labels are shifted already. The metrics are loss and perplexity. */
#ifndef TX_TASK_CAUSAL_LM_H
#define TX_TASK_CAUSAL_LM_H

#include "models/task/task.h"
#include "models/tx_text.h"

/* Indices of the fields. */
enum { TX_CAUSAL_LM_INPUT_IDS, TX_CAUSAL_LM_LABELS };

extern const tx_task tx_causal_lm;

/* The metrics of the cross-entropy of tokens. */
extern const tx_metric tx_causal_lm_metrics[];
double tx_causal_lm_perplexity(const double sums[TX_SUMS_MAX]);

/* The options for reading a text as blocks of tokens. Other tasks start from them. */
tx_dataset_options tx_causal_lm_reading(const tx_data_options *options);

/* The blocks of a dataset, which must outlive them. No samples if `dataset` is NULL. */
tx_samples tx_causal_lm_samples(const tx_dataset *dataset);

#endif
