/* SPDX-License-Identifier: Apache-2.0
 *
 * Extractive question answering, as run_qa.py of transformers trains it: the answer is a part of a context. A long
 * context is divided into windows that overlap by doc_stride tokens, and each window is a sample, a feature. Fields are
 * input_ids and token_type_ids [rows, block], attention_lengths [rows], and labels [rows, 2], the positions of the
 * first and the last token of the answer. Both are 0, the position of the first special token, if the window lacks the
 * answer. The columns are those of SQuAD: question, context, and answers {"text": [..], "answer_start": [..]}. */
#ifndef TX_TASK_QUESTION_H
#define TX_TASK_QUESTION_H

#include "models/task/text_samples.h"
#include "models/tokenizer/offsets.h"

extern const tx_task tx_question_answering;

/* A question with its context. */
typedef struct tx_question {
    char *context;
    char **answer; /* [answers]: texts that are right; none if the question has no answer */
    size_t answers;
    int64_t first, features; /* its first feature, and their number */
} tx_question;

typedef struct tx_question_data {
    tx_text_samples texts; /* the features; per_sample is 1 */
    tx_offset *offset;     /* of each id; begin > end for tokens that are not of the context */
    size_t offset_room;
    int32_t *label; /* [count, 2] */
    size_t label_room;
    tx_question *question;
    int64_t questions;
    bool unanswered;        /* some questions have no answer, as in SQuAD 2 */
    int64_t longest_answer; /* tokens of an answer: --max_answer_length */
} tx_question_data;

/* Reads a file (question_data.c). */
tx_status tx_question_data_read(tx_samples *samples, const char *path, const tx_data_options *options);
void tx_question_data_release(void *data);

#endif
