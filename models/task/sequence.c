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

/* The mean squared error. Rows without a target have the weight 0. */
static tx_tensor *number_loss(const tx_loss_operands *of, tx_tensor **rows)
{
    (void)rows;
    if (of->set->smoothing > 0.0) {
        tx_graph_fail(of->graph, tx_fail(TX_INVALID, "label_smoothing_factor is not supported for a regression"));
        return NULL;
    }
    if (!of->output)
        return NULL;
    const tx_shape *shape = tx_tensor_shape(of->output);
    tx_tensor *weight = tx_broadcast(tx_task_row_weights(of->graph), *shape, TX_AXIS_LAST);
    tx_tensor *target = tx_reshape(tx_find_input(of->graph, "targets"), *shape);
    tx_tensor *error = tx_mul(tx_add(of->output, tx_scale(target, -1.0f)), weight);
    tx_tensor *mean = tx_mean_loss(tx_mul(error, error)); /* over the samples */
    return shape->dim[1] > 1 ? tx_scale(mean, 1.0f / (float)shape->dim[1]) : mean;
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

static tx_status tell_class(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                            tx_file *file)
{
    char text[TX_PREDICTION];
    const int64_t best = tx_task_best(output, config->labels);
    (void)samples;
    (void)number;
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
             .data_size = sizeof(tx_sequence_data),                \
             .read = tx_sequence_data_read,                        \
             .release = tx_sequence_data_release,                  \
             .row = row,                                           \
             .length = tx_several_longest,                         \
             .loss = formula,                                      \
             .distills = taught,                                   \
             .measure = measured,                                  \
             .metrics = tx_metrics_##METRICS,                      \
             .tell = told}
#define CLASSES(title, METRICS) ROW(title, METRICS, classes, tx_task_label_loss, true, tx_sequence_measure, tell_class)
#define NUMBERS(title, METRICS) \
    ROW(title, METRICS, numbers, number_loss, false, tx_sequence_measure_numbers, tell_number)
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
