/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that is written for another text, as run_summarization.py and run_translation.py of transformers train it: the
 * encoder reads the source, the decoder learns the target. Fields are input_ids [rows, block] and attention_lengths
 * [rows] of the source, and decoder_input_ids and labels of the target: the labels, shifted right after the token with
 * which the decoder begins. The target has its own number of positions. The data are objects with two texts, or with a
 * member translation of a text for each language. */
#ifndef TX_TASK_SEQ2SEQ_H
#define TX_TASK_SEQ2SEQ_H

#include "models/task/task.h"

enum { TX_SEQ2SEQ_INPUT_IDS, TX_SEQ2SEQ_LENGTHS, TX_SEQ2SEQ_DECODER, TX_SEQ2SEQ_LABELS };

extern const tx_task tx_seq2seq; /* its targets have as many positions as its sources */

/* Makes the task for targets of at most `target` tokens. With `writes` evaluations and predictions read the ids of
 * written texts, with -1 after the end, instead of the model's output. */
void tx_seq2seq_sized(tx_own_task *own, int64_t target, bool writes);

#endif
