/* SPDX-License-Identifier: Apache-2.0
 * The tasks of sequence classification and regression: rows, losses, predictions. With multi-label classification a
 * text has any number of the model's labels, as in run_classification.py of transformers, and the field "labels" holds
 * 1 or 0 for each label. */
#include "models/task/sequence.h"

#include "api/base/number.h"
#include "models/arch/labels.h"
#include "models/task/tasks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS                                                                              \
    TX_TEXTS_FIELDS, [TX_SEQUENCE_LABELS] = {"labels", TX_I32, .padding = TX_IGNORE_LABEL}, \
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

/* Writes 1 or 0 for each label of the model. */
static void write_labels(const tx_sequence_data *d, int64_t number, int64_t labels, int32_t *to)
{
    for (int64_t i = 0; i < labels; i++)
        to[i] = d->labels_end ? 0 : TX_IGNORE_LABEL;
    if (d->labels_end)
        for (int64_t i = tx_sample_begin(d->labels_end, number); i < d->labels_end[number]; i++)
            to[d->labels.id[i]] = 1;
}

static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const tx_sequence_data *d = samples->data;
    const int64_t length = tx_text_samples_length(&d->texts, number, 0);
    TX_TRY(tx_text_samples_row(&d->texts, number, samples->block, to));
    const int64_t labels = samples->task->fields[TX_SEQUENCE_LABELS].width;
    if (labels)
        write_labels(d, number, labels, to->field[TX_SEQUENCE_LABELS]);
    else
        *(int32_t *)to->field[TX_SEQUENCE_LABELS] = d->label[number];
    tx_mark_last_token(to->field[TX_SEQUENCE_INPUT_IDS], length, d->pad, samples->block, to->field[TX_SEQUENCE_LAST]);
    if (samples->task->fields[TX_SEQUENCE_TARGETS].name)
        memcpy(to->field[TX_SEQUENCE_TARGETS], d->target + number * d->values, (size_t)d->values * sizeof *d->target);
    return TX_OK;
}

static tx_status predict_class(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                               tx_file *file)
{
    (void)samples;
    (void)number;
    return tx_task_write_label(config, tx_task_best(output, config->labels), file);
}

static tx_status predict_numbers(const tx_samples *samples, int64_t number, const tx_config *config,
                                 const float *output, tx_file *file)
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

static tx_status read(tx_samples *samples, const char *path, const tx_data_options *options);

#define ROW(title, METRICS, list, formula, taught, measured, predicted) \
    .task = {.name = title,                                             \
             .fields = list,                                            \
             .of_texts = true,                                          \
             .head = TX_HEAD_SEQUENCE_CLASSIFICATION,                   \
             .data_size = sizeof(tx_sequence_data),                     \
             .read = read,                                              \
             .release = tx_sequence_data_release,                       \
             .row = row,                                                \
             .length = tx_text_samples_longest,                         \
             .loss = formula,                                           \
             .distills = taught,                                        \
             .measure = measured,                                       \
             .metrics = tx_metrics_##METRICS,                           \
             .predict = predicted}
#define CLASSES(title, METRICS) \
    ROW(title, METRICS, classes, tx_task_label_loss, true, tx_sequence_measure, predict_class)
#define NUMBERS(title, METRICS) \
    ROW(title, METRICS, numbers, number_loss, false, tx_sequence_measure_numbers, predict_numbers)
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

/* ---- Several labels ------------------------------------------------------------------------------------- */

/* Indices of the task's own values: F1 over all labels of all texts (average "micro" of scikit-learn), and the share of
 * texts whose labels are all right. */
enum { F1, ACCURACY };

/* Binary cross-entropy with logits: the cross-entropy of the pair (0, logit) for each label. */
static tx_tensor *binary_loss(const tx_loss_operands *of, tx_tensor **rows)
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

static tx_status measure_labels(const tx_samples *samples, const float *outputs, int64_t columns,
                                double sums[TX_SUMS_MAX])
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
            const bool predicted = outputs[s * columns + i] > 0.0f;
            positive += truth[i] + predicted;
            right += predicted && truth[i];
            same = same && predicted == (truth[i] == 1);
        }
        right_texts += same;
    }
    sums[TX_SUM_OWN + F1] = tx_task_ratio(2.0 * right, positive);
    sums[TX_SUM_OWN + ACCURACY] = d->labels_end ? tx_task_ratio(right_texts, (double)samples->count) : 0.0;
    free(truth);
    return TX_OK;
}

/* Writes a list of the labels whose logits are positive, as JSON. */
static tx_status predict_labels(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
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

static const tx_metric label_metrics[] = {
    TX_METRIC_LOSS, TX_METRIC_GREATER("eval_f1", F1), TX_METRIC_GREATER("eval_accuracy", ACCURACY), {.name = NULL}};

/* The task of data of the model's problem. It may be their own. */
static const tx_task *task_of(tx_sequence_data *d, const tx_config *config)
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
    own->task.loss = binary_loss;
    own->task.distills = false;
    own->task.measure = measure_labels;
    own->task.predict = predict_labels;
    own->task.metrics = label_metrics;
    return &own->task;
}

static tx_status read(tx_samples *samples, const char *path, const tx_data_options *options)
{
    TX_TRY(tx_sequence_data_read(samples, path, options));
    if (!((const tx_sequence_task *)samples->task)->labels)
        samples->task = task_of(samples->own, options->config);
    return TX_OK;
}
