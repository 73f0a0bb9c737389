/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequence classification and regression: a text, or two, has one of some labels, or a number. Fields input_ids and
 * token_type_ids [rows, block], attention_lengths [rows], labels [rows] (of regression 0 where there is a number) and,
 * of regression, targets F32 [rows]. The tasks of GLUE are rows of it that know their columns, labels and metrics. */
#ifndef TX_TASK_SEQUENCE_H
#define TX_TASK_SEQUENCE_H

#include "models/names.h"
#include "models/task/task.h"
#include "models/tx_text.h"

/* Places of the fields. */
enum {
    TX_SEQUENCE_INPUT_IDS,
    TX_SEQUENCE_TOKEN_TYPE_IDS,
    TX_SEQUENCE_LENGTHS,
    TX_SEQUENCE_LABELS,
    TX_SEQUENCE_TARGETS /* of regression */
};

/* What a task of GLUE knows besides. */
typedef struct tx_sequence_task {
    tx_task task;
    const char *first, *second; /* columns; NULL: any */
    const char *const *labels;  /* NULL: those of the data */
    int64_t label_count;
} tx_sequence_task;

/* Of any columns and labels. Opened data have the task that fits the labels: numbers that are not all whole make a
 * regression. */
extern const tx_sequence_task tx_sequence_classification, tx_sequence_regression;
/* Those of glue.def in its order, NULL in the name behind the last. */
extern const tx_sequence_task tx_glue[];

/* ---- Data (sequence_data.c) --------------------------------------------------------------------------- */

typedef struct tx_sequence_data {
    tx_ids ids, types; /* of all samples, one after the other */
    int64_t count;
    int64_t *end;   /* [count]: where a sample's ids end */
    int32_t *label; /* [count]; TX_IGNORE_LABEL: none */
    float *target;  /* [count], of regression */
    char digest[65];
} tx_sequence_data;

tx_status tx_sequence_open(const tx_task *task, const char *path, const tx_data_options *options, tx_samples *samples);
void tx_sequence_close(const tx_samples *samples);

/* ---- Labels (sequence_labels.c) ------------------------------------------------------------------------ */

/* The model's labels, sorted by name. Begin with {0}. */
typedef struct tx_label_index {
    tx_named *at;
    int64_t count, labels; /* those that have a name, and all */
    bool only_names;       /* a label is not found by its number */
} tx_label_index;

void tx_label_index_free(tx_label_index *index); /* leaves {0} */
/* TX_FORMAT says why a text can be no label: it is empty, a list, an object, or stands for a missing value. */
tx_status tx_label_check(const char *text, size_t size);
/* Gives the model its labels: those of the task, else, if it is trained, those of the data, and indexes them. */
tx_status tx_labels_resolve(const tx_sequence_task *task, const tx_data_options *options, const char *const *texts,
                            int64_t count, tx_label_index *index);
/* The label of a text, and its number in a regression. TX_FORMAT says why it has none. */
tx_status tx_label_read(const tx_config *config, const tx_label_index *index, const char *text, int32_t *label,
                        float *target);

/* ---- Metrics (sequence_metrics.c) ---------------------------------------------------------------------- */

/* Sums of an evaluation from TX_SUM_OWN on. */
enum { TX_SUM_ACCURACY = TX_SUM_OWN, TX_SUM_F1, TX_SUM_MATTHEWS };
enum { TX_SUM_PEARSON = TX_SUM_OWN, TX_SUM_SPEARMAN, TX_SUM_SQUARES };

void tx_sequence_measure(const tx_samples *samples, const float *outputs, int64_t columns, double sums[TX_SUMS_MAX]);
void tx_sequence_measure_numbers(const tx_samples *samples, const float *outputs, int64_t columns,
                                 double sums[TX_SUMS_MAX]);
/* loss and: accuracy; accuracy, F1 and their mean; Matthews' correlation; Pearson's and Spearman's and their mean; the
 * mean of squared errors. */
extern const tx_metric tx_metrics_ACCURACY[], tx_metrics_F1[], tx_metrics_MATTHEWS[], tx_metrics_CORRELATION[],
    tx_metrics_ERROR[];

#endif
