/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiple choice, as run_swag.py of transformers trains it: a sample is a context with several endings, of which one
 * is right. A row has a sequence for each ending; labels [rows] are the numbers of the right endings. */
#ifndef TX_TASK_CHOICE_H
#define TX_TASK_CHOICE_H

#include "models/task/task.h"

/* Reads columns sent1, sent2 and ending0, ending1, ..; and label, 0 for ending0. The first text of a pair is sent1, the
 * second is sent2 and an ending. Opened data have a task of their own, with as many sequences as there are endings. */
extern const tx_task tx_multiple_choice;

#endif
