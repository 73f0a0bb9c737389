/* SPDX-License-Identifier: Apache-2.0
 * The task of extractive question answering: rows, loss, predictions. */
#include "models/task/question.h"

#include <string.h>

enum { LABELS = TX_SEVERAL_OWN, MASK };

/* What padding adds to its logits. */
#define MASKED (-1e9f)

static const tx_field fields[] = {
    TX_SEVERAL_FIELDS,
    [LABELS] = {"labels", TX_I32, 2, .padding = TX_IGNORE_LABEL},
    [MASK] = {"answer_mask", TX_F32, TX_FIELD_BLOCK, .padding = MASKED},
    {.name = NULL},
};

static tx_status row(const tx_samples *samples, int64_t number, uint64_t epoch, const tx_batch *to)
{
    const tx_question_data *d = samples->data;
    (void)epoch;
    TX_TRY(tx_several_row(&d->several, number, samples->block, to));
    const int64_t length = tx_several_longest(samples, number);
    float *mask = to->field[MASK];
    for (int64_t t = 0; t < samples->block; t++)
        mask[t] = t < length ? 0.0f : MASKED;
    memcpy(to->field[LABELS], d->label + 2 * number, 2 * sizeof *d->label);
    return TX_OK;
}

/* The mean of the cross-entropies of the first and the last position, over the tokens of the row. (run_qa.py includes
 * padding.) */
static tx_tensor *loss(const tx_loss_operands *of, tx_tensor **kept)
{
    tx_graph *graph = of->graph;
    tx_tensor *output = of->output;
    (void)kept;
    if (!output)
        return NULL;
    const tx_shape *shape = tx_tensor_shape(output);
    const int64_t rows = shape->dim[0], block = shape->dim[1];
    tx_tensor *masked = tx_add(output, tx_broadcast(tx_find_input(graph, "answer_mask"), *shape, TX_AXIS_LAST));
    /* [rows, T, 2] -> [rows, 2, T] */
    tx_tensor *logits = tx_transpose(tx_reshape(masked, TX_SHAPE(rows, block, 2, 1)));
    logits = tx_reshape(logits, TX_SHAPE(rows, 2, block));
    return tx_mean_loss(
        tx_cross_entropy_smoothed(logits, tx_find_input(graph, "labels"), block, (float)of->set->smoothing));
}

static void keep(const float *output, int64_t columns, float *kept)
{
    memcpy(kept, output, (size_t)columns * sizeof *kept);
}

/* Writes the best answer of this feature. */
static tx_status tell(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                      tx_file *file)
{
    const tx_question_data *d = samples->data;
    const tx_question *q = d->question;
    (void)config;
    while (number >= q->first + q->features)
        q++;
    tx_question one = *q;
    one.first = number;
    one.features = 1;
    /* `output` has the values of this feature only. */
    const tx_offset answer = tx_question_answer(d, &one, output - 2 * number * samples->block, samples->block);
    for (size_t i = answer.begin; i < answer.end; i++) {
        const char byte = q->context[i] == '\n' || q->context[i] == '\t' ? ' ' : q->context[i];
        TX_TRY(tx_file_append(file, &byte, 1));
    }
    return TX_OK;
}

const tx_task tx_question_answering = {
    .name = "question answering",
    .head = TX_HEAD_QUESTION_ANSWERING,
    .of_texts = true,
    .data_size = sizeof(tx_question_data),
    .read = tx_question_data_read,
    .release = tx_question_data_release,
    .fields = fields,
    .row = row,
    .length = tx_several_longest,
    .loss = loss,
    .keep = keep,
    .kept = 2,
    .measure = tx_question_measure,
    .tell = tell,
    .metrics = tx_question_metrics,
};
