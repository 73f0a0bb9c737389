/* SPDX-License-Identifier: Apache-2.0
 * The tasks of sequence classification and regression: rows, losses, predictions. */
#include "models/task/sequence.h"

#include "api/base/number.h"
#include "models/arch/labels.h"
#include "models/task/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIELDS                                                                                \
    TX_SEVERAL_FIELDS, [TX_SEQUENCE_LABELS] = {"labels", TX_I32, .padding = TX_IGNORE_LABEL}, \
                       [TX_SEQUENCE_LAST] = {"last_token", TX_F32, TX_FIELD_BLOCK, .padding = 0}

static const tx_field classes[] = {FIELDS, {.name = NULL}};
static const tx_field numbers[] = {FIELDS, [TX_SEQUENCE_TARGETS] = {"targets", TX_F32, .padding = 0}, {.name = NULL}};

/* The mean squared error. Rows without a target have the weight 0, the result of a gather by a negative index. */
static tx_tensor *number_loss(tx_graph *graph, const tx_config *config, tx_tensor *output, float smoothing)
{
    (void)config;
    if (smoothing > 0.0f) {
        tx_graph_fail(graph, tx_fail(TX_INVALID, "label_smoothing_factor is not supported for a regression"));
        return NULL;
    }
    tx_tensor *weight = tx_gather(tx_fill(graph, TX_SHAPE(1, 1), 1.0f), tx_find_input(graph, "labels"));
    tx_tensor *target = output ? tx_reshape(tx_find_input(graph, "targets"), *tx_tensor_shape(output)) : NULL;
    if (!weight || !target)
        return NULL;
    const tx_shape *shape = tx_tensor_shape(output);
    const int64_t values = shape->dim[1];
    if (values > 1)
        weight = tx_broadcast(tx_reshape(weight, TX_SHAPE(shape->dim[0])), *shape, TX_AXIS_LAST);
    tx_tensor *error = tx_mul(tx_add(output, tx_scale(target, -1.0f)), weight);
    tx_tensor *mean = tx_mean_loss(tx_mul(error, error)); /* over the samples */
    return values > 1 ? tx_scale(mean, 1.0f / (float)values) : mean;
}

static tx_status row(const tx_samples *samples, int64_t number, uint64_t epoch, const tx_batch *to)
{
    const tx_sequence_data *d = samples->data;
    const int64_t length = tx_several_length(&d->several, number, 0);
    (void)epoch;
    TX_TRY(tx_several_row(&d->several, number, samples->block, to));
    *(int32_t *)to->field[TX_SEQUENCE_LABELS] = d->label[number];
    tx_mark_last_token(to->field[TX_SEQUENCE_INPUT_IDS], length, d->pad, samples->block, to->field[TX_SEQUENCE_LAST]);
    if (samples->task->fields[TX_SEQUENCE_TARGETS].name)
        memcpy(to->field[TX_SEQUENCE_TARGETS], d->target + number * d->values, (size_t)d->values * sizeof *d->target);
    return TX_OK;
}

static int64_t row_length(const tx_samples *samples, int64_t number)
{
    return tx_several_length(&((const tx_sequence_data *)samples->data)->several, number, 0);
}

tx_tensor *tx_sequence_loss(tx_graph *graph, const tx_config *config, tx_tensor *logits, float smoothing)
{
    return tx_mean_loss(tx_cross_entropy_smoothed(logits, tx_find_input(graph, "labels"), config->labels, smoothing));
}

static tx_status tell_class(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                            tx_file *file)
{
    char text[TX_PREDICTION];
    int64_t best = 0;
    (void)samples;
    (void)number;
    for (int64_t i = 1; i < config->labels; i++)
        best = output[i] > output[best] ? i : best;
    const char *name = tx_label_name(config, best);
    if (name)
        return tx_file_append(file, name, strlen(name));
    return tx_file_append(file, text, (size_t)snprintf(text, sizeof text, "%" PRId64, best));
}

static tx_status tell_number(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                             tx_file *file)
{
    char text[TX_PREDICTION];
    tx_status status = TX_OK;
    (void)samples;
    (void)number;
    for (int64_t i = 0; i < config->labels && !status; i++)
        status =
            tx_file_append(file, text, (size_t)tx_format(text, sizeof text, "%s%.3f", i ? " " : "", (double)output[i]));
    return status;
}

/* A masked language model gets a new head for data with labels. */
tx_status tx_sequence_detect(const tx_task *task, const tx_task_signs *signs, bool *is)
{
    *is = signs->head == task->head || (signs->head == TX_HEAD_MASKED_LM && signs->labelled && signs->trains);
    return TX_OK;
}

#define ROW(title, METRICS, list, formula, taught, measured, told) \
    .task = {.name = title,                                        \
             .fields = list,                                       \
             .of_texts = true,                                     \
             .head = TX_HEAD_SEQUENCE_CLASSIFICATION,              \
             .open = tx_sequence_open,                             \
             .close = tx_sequence_close,                           \
             .row = row,                                           \
             .length = row_length,                                 \
             .loss = formula,                                      \
             .distill = taught,                                    \
             .measure = measured,                                  \
             .metrics = tx_metrics_##METRICS,                      \
             .tell = told}
#define CLASSES(title, METRICS) \
    ROW(title, METRICS, classes, tx_sequence_loss, tx_task_distill, tx_sequence_measure, tell_class)
#define NUMBERS(title, METRICS) \
    ROW(title, METRICS, numbers, number_loss, NULL, tx_sequence_measure_numbers, tell_number)
#define ROW_ACCURACY(name) CLASSES(name, ACCURACY)
#define ROW_F1(name) CLASSES(name, F1)
#define ROW_MATTHEWS(name) CLASSES(name, MATTHEWS)
#define ROW_CORRELATION(name) NUMBERS(name, CORRELATION)

const tx_sequence_task tx_sequence_classification = {CLASSES("sequence classification", ACCURACY)};
const tx_sequence_task tx_sequence_regression = {NUMBERS("regression", ERROR)};

#define TX_GLUE(name, first, second, METRICS, ...) static const char *const name##_labels[] = {__VA_ARGS__, NULL};
#include "models/task/glue.def"

const tx_sequence_task tx_glue[] = {
#define TX_GLUE(name, first_, second_, METRICS, ...)                                    \
    {ROW_##METRICS(#name), .first = first_, .second = second_, .labels = name##_labels, \
     .label_count = sizeof name##_labels / sizeof *name##_labels - 1},
#include "models/task/glue.def"
    {.task = {.name = NULL}},
};
