/* SPDX-License-Identifier: Apache-2.0
 *
 * Masked language modelling (Devlin et al., BERT, 2019) as run_mlm does it: of each row some tokens are to be guessed;
 * of these 80 of 100 are replaced by the mask token, 10 by any token of the tokenizer, and 10 stay. Fields input_ids
 * [rows, block], attention_lengths [rows] and labels [rows, block], in this order; metrics loss and perplexity, of what
 * is to be guessed.
 *
 * Rows are blocks of the texts end to end, or with line_by_line a text each, cut to a block with the tokens
 * that the tokenizer puts around it. What is drawn depends on (seed, epoch, sample, position) alone. A row of which
 * nothing is drawn gets one token to guess, so that no step is without; tokens that the tokenizer puts around texts are
 * never drawn. */
#ifndef TX_TASK_MASKED_LM_H
#define TX_TASK_MASKED_LM_H

#include "models/task/task.h"

extern const tx_task tx_masked_lm;

#endif
