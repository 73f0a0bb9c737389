/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequence classification and regression of a text or a pair of texts. The fields are input_ids and token_type_ids
 * [rows, block], attention_lengths [rows] and labels [rows]. A regression also has targets F32 [rows], or [rows,
 * values] for several values, and its labels are 0 for rows with a target. Each task of GLUE has its own columns,
 * labels and metrics. */
#ifndef TX_TASK_SEQUENCE_H
#define TX_TASK_SEQUENCE_H

#include "models/names.h"
#include "models/task/text_samples.h"
#include "models/tokenizer/buffer.h"
#include "models/tokenizer/hash.h"

/* Indices of the fields. */
enum {
    TX_SEQUENCE_INPUT_IDS,
    TX_SEQUENCE_TOKEN_TYPE_IDS,
    TX_SEQUENCE_LENGTHS,
    TX_SEQUENCE_LABELS,
    TX_SEQUENCE_LAST,   /* see tx_mark_last_token; 0 for encoders */
    TX_SEQUENCE_TARGETS /* of regression */
};

typedef struct tx_sequence_task {
    tx_task task;
    const char *first, *second; /* columns of the texts; NULL for any */
    const char *const *labels;  /* NULL for the labels of the data */
    int64_t label_count;
} tx_sequence_task;

/* Tasks with any columns and labels. Opened data have the task of the model's problem. */
extern const tx_sequence_task tx_sequence_classification, tx_sequence_regression;
/* The tasks of glue.def in its order. The name after the last is NULL. */
enum {
#define TX_GLUE(name, ...) TX_GLUE_##name,
#include "models/task/glue.def"
};
extern const tx_sequence_task tx_glue[];

/* ---- Data (sequence_data.c) --------------------------------------------------------------------------- */

typedef struct tx_sequence_data {
    tx_text_samples texts;
    int32_t *label; /* [count]; TX_IGNORE_LABEL if there is none */
    float *target;  /* [count, values], of a regression */
    int64_t values; /* numbers of a sample */
    /* Multi-label classification: all labels of all samples, and the end of those of each sample. */
    tx_ids labels;
    int64_t *labels_end; /* [count]; NULL for test data and for other tasks */
    tx_own_task own;     /* of data with several labels or numbers a sample, which fields have as their widths */
    int64_t pad;         /* see tx_task_pad */
} tx_sequence_data;

tx_status tx_sequence_data_read(tx_samples *samples, const char *path, const tx_data_options *options);
void tx_sequence_data_release(void *data);

/* ---- Labels (sequence_labels.c) ------------------------------------------------------------------------ */

/* The model's labels, sorted by name. It begins as {0}. */
typedef struct tx_label_index {
    const tx_config *config;
    tx_named *at;
    int64_t count;           /* of labels with a name */
    const char *const *task; /* names of the task that numbers mean; NULL if they are ids of the model */
    bool only_names;         /* labels are not found by their numbers */
    bool replaceable;        /* other labels may need a new head */
} tx_label_index;

void tx_label_index_free(tx_label_index *index); /* resets it to {0} */
/* TX_FORMAT, with the reason, if a text cannot be a label: it is empty, a list, an object, or means a missing value. */
tx_status tx_label_check(const char *text, size_t size);
/* Reads an integer, also with a point as in 2.0. */
bool tx_label_whole(const char *text, int64_t *value);
/* True for -1 and -100, which mark rows without a label unless they are numbers of a regression or names. */
bool tx_label_is_none(const char *text);
/* The label of a text, and its number in a regression. TX_IGNORE_LABEL if it means no label. TX_FORMAT, with the
 * reason, if it is not a label. */
tx_status tx_label_read(const tx_label_index *index, const char *text, int32_t *label, float *target);

/* The labels of a row. Begin with {0}. */
typedef struct tx_label_list {
    tx_buffer text; /* of all labels, each with a NUL at the end */
    bool numbers;   /* items may be any numbers, the values of a regression */
    size_t count, room;
    const char **label; /* [count] */
} tx_label_list;

/* Reads a list. TX_FORMAT, with the reason, if it is not a list of names or numbers, or is NULL because `text` is no
 * list. */
tx_status tx_label_list_read(tx_label_list *list, const tx_json *json, const char *text);
/* Makes a list of one label, which is checked. The text must outlive the list. */
tx_status tx_label_list_of(tx_label_list *list, const char *text, size_t size);
void tx_label_list_free(tx_label_list *list);

/* The different labels of a file. Begin with {0}. */
typedef struct tx_label_set {
    char **label; /* [count] */
    size_t count, room;
    tx_index index;
    int64_t rows, size; /* number of lists, and the size of each; 0 if sizes differ */
    bool lists;         /* the file has lists, not single labels */
} tx_label_set;

tx_status tx_label_set_add(tx_label_set *set, const tx_label_list *list);
void tx_label_set_free(tx_label_set *set);

/* Chooses the model's labels and indexes them: its own if it has a trained head, else the task's or those of the
 * data. */
tx_status tx_labels_resolve(const tx_sequence_task *task, const tx_data_options *options, const tx_label_set *set,
                            tx_label_index *index);

/* ---- Metrics (sequence_metrics.c) ---------------------------------------------------------------------- */

/* Indices of the tasks' own values of an evaluation. COMBINED is the mean of accuracy and F1, or of both correlations.
 */
enum { TX_ACCURACY, TX_F1, TX_MATTHEWS, TX_COMBINED, TX_PEARSON, TX_SPEARMAN, TX_SQUARED_ERROR };

tx_status tx_sequence_measure(const tx_samples *samples, const float *outputs, int64_t columns,
                              double sums[TX_SUMS_MAX]);
tx_status tx_sequence_measure_numbers(const tx_samples *samples, const float *outputs, int64_t columns,
                                      double sums[TX_SUMS_MAX]);
/* PEARSON, SPEARMAN, COMBINED and SQUARED_ERROR of `most` pairs of numbers, except those whose label is
 * TX_IGNORE_LABEL. `labels` may be NULL. */
tx_status tx_sequence_correlate(const float *outputs, const float *targets, const int32_t *labels, int64_t most,
                                double sums[TX_SUMS_MAX]);
/* All have the loss. ACCURACY has the accuracy. F1 has accuracy, F1 and their mean. MATTHEWS has Matthews' correlation.
 * CORRELATION has Pearson's and Spearman's correlation and their mean. ERROR has the mean squared error. SIMILARITY has
 * both correlations of cosines. NEARER has the share of triplets whose positive is nearer. */
extern const tx_metric tx_metrics_ACCURACY[], tx_metrics_F1[], tx_metrics_MATTHEWS[], tx_metrics_CORRELATION[],
    tx_metrics_ERROR[], tx_metrics_SIMILARITY[], tx_metrics_NEARER[], tx_metrics_LOSS[];

#endif
