/* SPDX-License-Identifier: Apache-2.0
 * Metrics of classification and regression, computed as scikit-learn and SciPy do. */
#include "models/task/sequence.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- Labels ------------------------------------------------------------------------------------------- */

tx_status tx_sequence_measure(const tx_samples *samples, const float *outputs, int64_t columns,
                              double sums[TX_SUMS_MAX])
{
    const tx_sequence_data *d = samples->data;
    double count = 0.0, right = 0.0, of[2][2] = {{0.0}}; /* confusion matrix [label][prediction], 1 is positive */
    for (int64_t r = 0; r < samples->count; r++) {
        if (d->label[r] == TX_IGNORE_LABEL)
            continue;
        const int64_t best = tx_task_best(outputs + r * columns, columns);
        count++;
        right += best == d->label[r];
        of[d->label[r] == 1][best == 1]++;
    }
    const double product =
        (of[1][1] + of[0][1]) * (of[1][1] + of[1][0]) * (of[0][0] + of[0][1]) * (of[0][0] + of[1][0]);
    double *own = sums + TX_SUM_OWN;
    own[TX_ACCURACY] = tx_task_ratio(right, count);
    own[TX_F1] = tx_task_ratio(2.0 * of[1][1], 2.0 * of[1][1] + of[0][1] + of[1][0]);
    own[TX_COMBINED] = 0.5 * (own[TX_ACCURACY] + own[TX_F1]);
    own[TX_MATTHEWS] = tx_task_ratio(of[1][1] * of[0][0] - of[0][1] * of[1][0], sqrt(product));
    return TX_OK;
}

/* ---- Numbers ------------------------------------------------------------------------------------------- */

typedef struct ranked {
    double value;
    int64_t index;
} ranked;

static int by_value(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Replaces values by their ranks. Equal values get the mean of their ranks. */
static void rank(double *values, ranked *room, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        room[i] = (ranked){values[i], i};
    qsort(room, (size_t)count, sizeof *room, by_value);
    for (int64_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && room[end].value == room[i].value;)
            end++;
        for (int64_t k = i; k < end; k++)
            values[room[k].index] = 0.5 * (double)(i + end - 1);
    }
}

/* NaN if all values of one side are equal. */
static double correlation(const double *x, const double *y, int64_t count)
{
    bool x_differs = false, y_differs = false; /* needed because rounding can make the sums below positive */
    double mean_x = 0.0, mean_y = 0.0, xx = 0.0, yy = 0.0, xy = 0.0;
    for (int64_t i = 0; i < count; i++) {
        mean_x += x[i] / (double)count;
        mean_y += y[i] / (double)count;
    }
    for (int64_t i = 0; i < count; i++) {
        x_differs = x_differs || x[i] > x[0] || x[i] < x[0];
        y_differs = y_differs || y[i] > y[0] || y[i] < y[0];
        xx += (x[i] - mean_x) * (x[i] - mean_x);
        yy += (y[i] - mean_y) * (y[i] - mean_y);
        xy += (x[i] - mean_x) * (y[i] - mean_y);
    }
    return x_differs && y_differs ? xy / sqrt(xx * yy) : (double)NAN;
}

tx_status tx_sequence_correlate(const float *outputs, const float *targets, const int32_t *labels, int64_t most,
                                double sums[TX_SUMS_MAX])
{
    int64_t count = 0;
    double *x = malloc(2 * (size_t)most * sizeof *x), *y = x ? x + most : NULL, squares = 0.0;
    ranked *room = malloc((size_t)most * sizeof *room);
    if (!x || !room) {
        free(x);
        free(room);
        return tx_fail(TX_MEMORY, "no memory for the ranks of %" PRId64 " numbers", most);
    }
    for (int64_t r = 0; r < most; r++) {
        if (labels && labels[r] == TX_IGNORE_LABEL)
            continue;
        x[count] = (double)outputs[r];
        y[count] = (double)targets[r];
        squares += (x[count] - y[count]) * (x[count] - y[count]);
        count++;
    }
    double *own = sums + TX_SUM_OWN;
    own[TX_SQUARED_ERROR] = squares / (double)count;
    own[TX_PEARSON] = correlation(x, y, count);
    rank(x, room, count);
    rank(y, room, count);
    own[TX_SPEARMAN] = correlation(x, y, count);
    own[TX_COMBINED] = 0.5 * (own[TX_PEARSON] + own[TX_SPEARMAN]);
    free(x);
    free(room);
    return TX_OK;
}

tx_status tx_sequence_measure_numbers(const tx_samples *samples, const float *outputs, int64_t columns,
                                      double sums[TX_SUMS_MAX])
{
    const tx_sequence_data *d = samples->data;
    return tx_sequence_correlate(outputs, d->target, d->values > 1 ? NULL : d->label, samples->count * columns, sums);
}

/* ---- Names --------------------------------------------------------------------------------------------- */

const tx_metric tx_metrics_ACCURACY[] = {
    TX_METRIC_LOSS, TX_METRIC_GREATER("eval_accuracy", TX_ACCURACY), {.name = NULL}};
const tx_metric tx_metrics_F1[] = {TX_METRIC_LOSS,
                                   TX_METRIC_GREATER("eval_accuracy", TX_ACCURACY),
                                   TX_METRIC_GREATER("eval_f1", TX_F1),
                                   TX_METRIC_GREATER("eval_combined_score", TX_COMBINED),
                                   {.name = NULL}};
const tx_metric tx_metrics_MATTHEWS[] = {
    TX_METRIC_LOSS, TX_METRIC_GREATER("eval_matthews_correlation", TX_MATTHEWS), {.name = NULL}};
const tx_metric tx_metrics_CORRELATION[] = {TX_METRIC_LOSS,
                                            TX_METRIC_GREATER("eval_pearson", TX_PEARSON),
                                            TX_METRIC_GREATER("eval_spearmanr", TX_SPEARMAN),
                                            TX_METRIC_GREATER("eval_combined_score", TX_COMBINED),
                                            {.name = NULL}};
const tx_metric tx_metrics_SIMILARITY[] = {TX_METRIC_LOSS,
                                           TX_METRIC_GREATER("eval_pearson_cosine", TX_PEARSON),
                                           TX_METRIC_GREATER("eval_spearman_cosine", TX_SPEARMAN),
                                           {.name = NULL}};
const tx_metric tx_metrics_NEARER[] = {
    TX_METRIC_LOSS, TX_METRIC_GREATER("eval_cosine_accuracy", TX_ACCURACY), {.name = NULL}};
const tx_metric tx_metrics_LOSS[] = {TX_METRIC_LOSS, {.name = NULL}};
const tx_metric tx_metrics_ERROR[] = {TX_METRIC_LOSS, TX_METRIC_LESS("eval_mse", TX_SQUARED_ERROR), {.name = NULL}};
