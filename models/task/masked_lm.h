/* SPDX-License-Identifier: Apache-2.0
 *
 * Masked language modelling (Devlin et al., BERT, 2019), as in run_mlm. In each row a share of the tokens is selected
 * for prediction. 80 % of these are replaced by the mask token, 10 % by a random token of the tokenizer, and 10 % do
 * not change. The fields are input_ids [rows, block], attention_lengths [rows] and labels [rows, block], in this order.
 * The metrics are loss and perplexity over the selected tokens.
 *
 * Rows are blocks of the concatenated texts. With line_by_line each text is a row, truncated to a block including its
 * special tokens. The selection depends only on (seed, epoch, sample, position). Special tokens are never selected. In
 * a row without selected tokens one is selected, so that every step has labels. */
#ifndef TX_TASK_MASKED_LM_H
#define TX_TASK_MASKED_LM_H

#include "models/task/task.h"

extern const tx_task tx_masked_lm;

#endif
