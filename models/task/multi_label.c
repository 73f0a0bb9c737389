/* SPDX-License-Identifier: Apache-2.0
 * Multi-label classification: a text has any number of the model's labels, as in run_classification.py of transformers.
 * The field "labels" holds 1 or 0 for each label. */
#include "models/arch/labels.h"
#include "models/task/sequence.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Indices of the task's own values: F1 over all labels of all texts (average "micro" of scikit-learn), and the share of
 * texts whose labels are all right. */
enum { F1, ACCURACY };

static void write_labels(const tx_sequence_data *d, int64_t number, int64_t labels, int32_t *to)
{
    for (int64_t i = 0; i < labels; i++)
        to[i] = d->labels_end ? 0 : TX_IGNORE_LABEL;
    if (d->labels_end)
        for (int64_t i = tx_sample_begin(d->labels_end, number); i < d->labels_end[number]; i++)
            to[d->labels.id[i]] = 1;
}

static tx_status row(const tx_samples *samples, int64_t number, uint64_t epoch, const tx_batch *to)
{
    const tx_sequence_data *d = samples->data;
    TX_TRY(tx_sequence_classification.task.row(samples, number, epoch, to)); /* the texts */
    write_labels(d, number, d->own.field[TX_SEQUENCE_LABELS].width, to->field[TX_SEQUENCE_LABELS]);
    return TX_OK;
}

/* Binary cross-entropy with logits: the cross-entropy of the pair (0, logit) for each label. */
static tx_tensor *loss(const tx_loss_operands *of, tx_tensor **rows)
{
    tx_graph *graph = of->graph;
    tx_tensor *logits = of->output;
    (void)rows;
    if (of->set->smoothing > 0.0) {
        tx_graph_fail(graph, tx_fail(TX_INVALID, "label_smoothing_factor is not supported for several labels"));
        return NULL;
    }
    if (!logits)
        return NULL;
    const int64_t count = tx_shape_count(tx_tensor_shape(logits));
    const tx_shape pairs = TX_SHAPE(count, 2);
    /* Gathers by the indices -1 and 0; a negative index gives 0. */
    tx_tensor *unit = tx_gather(tx_fill(graph, TX_SHAPE(1, 1), 1.0f), tx_range(graph, TX_SHAPE(2), -1, 1));
    unit = tx_broadcast(tx_reshape(unit, TX_SHAPE(2)), pairs, TX_AXIS_ROWS);
    tx_tensor *x = tx_broadcast(tx_reshape(logits, TX_SHAPE(count)), pairs, TX_AXIS_LAST);
    tx_tensor *labels = tx_reshape(tx_find_input(graph, "labels"), TX_SHAPE(count));
    return tx_mean_loss(tx_cross_entropy(tx_mul(x, unit), labels, 2));
}

static tx_status measure(const tx_samples *samples, const float *outputs, int64_t columns, double sums[TX_SUMS_MAX])
{
    const tx_sequence_data *d = samples->data;
    int32_t *truth = malloc((size_t)columns * sizeof *truth);
    if (!truth)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " labels", columns);
    double right = 0.0, positive = 0.0, right_texts = 0.0; /* labels, predicted and true; texts */
    for (int64_t s = 0; s < samples->count && d->labels_end; s++) {
        bool same = true;
        write_labels(d, s, columns, truth);
        for (int64_t i = 0; i < columns; i++) {
            const bool guess = outputs[s * columns + i] > 0.0f;
            positive += truth[i] + guess;
            right += guess && truth[i];
            same = same && guess == (truth[i] == 1);
        }
        right_texts += same;
    }
    sums[TX_SUM_OWN + F1] = tx_task_ratio(2.0 * right, positive);
    sums[TX_SUM_OWN + ACCURACY] = d->labels_end ? tx_task_ratio(right_texts, (double)samples->count) : 0.0;
    free(truth);
    return TX_OK;
}

/* Writes a list of the labels whose logits are positive, as JSON. */
static tx_status tell(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                      tx_file *file)
{
    tx_json *list = tx_json_array();
    tx_status status = TX_OK;
    (void)samples;
    (void)number;
    for (int64_t i = 0; i < config->labels && !status; i++) {
        const char *name = tx_label_name(config, i);
        if (output[i] > 0.0f)
            status = name ? tx_json_append_string(list, name) : tx_json_append_int(list, i);
    }
    char *text = status ? NULL : tx_json_text(list, TX_JSON_LINE);
    tx_json_free(list);
    if (!status && !text)
        status = TX_MEMORY;
    TX_THEN(status, tx_file_append(file, text, strlen(text)));
    free(text);
    return status;
}

/* ---- The task ------------------------------------------------------------------------------------------ */

static const tx_metric metrics[] = {
    TX_METRIC_LOSS, TX_METRIC_GREATER("eval_f1", F1), TX_METRIC_GREATER("eval_accuracy", ACCURACY), {.name = NULL}};

const tx_task *tx_sequence_task_of(tx_sequence_data *d, const tx_config *config)
{
    tx_own_task *own = &d->own;
    if (config->problem == TX_PROBLEM_CLASSES)
        return &tx_sequence_classification.task;
    if (config->problem == TX_PROBLEM_NUMBERS && d->values == 1)
        return &tx_sequence_regression.task;
    if (config->problem == TX_PROBLEM_NUMBERS) {
        tx_own_task_make(&tx_sequence_regression.task, own);
        own->field[TX_SEQUENCE_TARGETS].width = d->values;
        return &own->task;
    }
    tx_own_task_make(&tx_sequence_classification.task, own);
    own->field[TX_SEQUENCE_LABELS].width = config->labels;
    own->task.name = "multi-label classification";
    own->task.row = row;
    own->task.loss = loss;
    own->task.distills = false;
    own->task.measure = measure;
    own->task.tell = tell;
    own->task.metrics = metrics;
    return &own->task;
}
