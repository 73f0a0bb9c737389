/* SPDX-License-Identifier: Apache-2.0
 *
 * Training tasks. A task defines the fields of a batch, how a sample becomes a row of them, the loss of an
 * architecture's output, and the metrics of an evaluation. Each task is a tx_task in a file of its own, for example
 * causal_lm.c. Loader, trainer and evaluation handle the batches of any task:
 *
 *     samples --row--> tx_batch --by name--> inputs of a plan --> loss, sums --> metrics */
#ifndef TX_TASK_H
#define TX_TASK_H

#include "api/base/file.h"
#include "models/arch/arch.h"
#include "models/options/settings.h"
#include "models/tx_text.h"
#include "tx.h"

/* Limits of a task. */
enum { TX_FIELDS_MAX = 12, TX_SUMS_MAX = 12, TX_METRICS_MAX = 12 };

/* Width of a field that has a value for each position. */
#define TX_FIELD_BLOCK (-1)
/* The field with the number of used positions of each row, I32 [rows]. */
#define TX_FIELD_LENGTHS "attention_lengths"

/* The padding of input_ids in causal tasks. Its embedding is 0, and it is not routed to any expert. */
#define TX_NO_TOKEN (-1)

/* Fields whose values are places, or negative: among the tokens (input_ids), or among the positions of all rows. With
 * groups of G rows (tx_field.group), value v is column v / G of row v % G of the group. So the places in use are at the
 * beginnings of the rows, as plans with shorter rows need them. Otherwise v is a column of the row. */
typedef enum tx_places { TX_NO_PLACES, TX_PLACES_OF_TOKENS, TX_PLACES_IN_ROWS } tx_places;

typedef struct tx_field {
    const char *name;  /* as in transformers, if it has the field; also the name of the plan's input */
    tx_dtype dtype;    /* I32 or F32 */
    int64_t width;     /* 0 for the shape [rows], TX_FIELD_BLOCK for [rows, block], else for [rows, width] */
    double padding;    /* value of positions without a sample */
    int32_t sequences; /* of a row, each with such values, so that the shape begins with rows * sequences; 0 means 1 */
    bool target;       /* of a target of `width` positions: rows of a batch may have fewer (tx_batch.target) */
    bool of_block;     /* of at most `width` positions of the block: rows have the lesser of both numbers */
    /* So many consecutive rows share the beginning of their texts. A row has an equal part of the group's tokens, of
     * which `width` at most are after that. 0 means 1. */
    int32_t group;
    tx_places places; /* the plan's input has those in all rows of the micro-batch */
} tx_field;

/* Rows of a task's fields. The caller owns the memory of the fields. */
typedef struct tx_batch {
    int64_t rows;
    void *field[TX_FIELDS_MAX]; /* in the task's order: the values of all rows, int32_t or float */
    int64_t longest;            /* positions after it are padding in all rows; 0 if unknown */
    int64_t target;             /* the same for fields of targets */
    uint64_t epoch;             /* of random choices, which differ in each epoch; 0 in evaluations */
} tx_batch;

/* Sums of an evaluation over all batches and ranks: the loss summed over labels, and their number. The
 * task's own values begin at TX_SUM_OWN. */
enum { TX_SUM_LOSS, TX_SUM_LABELS, TX_SUM_OWN };

typedef struct tx_metric {
    const char *name; /* in files; names that begin with eval_ are also in the history, as with transformers */
    bool greater_is_better;
    double (*value)(const double sums[TX_SUMS_MAX]); /* NULL for own value `column` */
    int32_t column;
    bool measured; /* `measure` computes the value; otherwise it is a sum over the labels, and the metric their mean */
    /* The share of the labels that the value is a mean over. Logs and results leave out a value over none. NULL for a
     * value over all labels. */
    double (*share)(const double sums[TX_SUMS_MAX]);
} tx_metric;

/* Computes a metric. Returns false if it has no value. */
static inline bool tx_metric_measure(const tx_metric *metric, const double sums[TX_SUMS_MAX], double *value)
{
    const double tiny = 1e-6; /* shares of a step are sums of fp32 */
    const double own = sums[TX_SUM_OWN + metric->column];
    *value = metric->value ? metric->value(sums) : metric->measured ? own : own / sums[TX_SUM_LABELS];
    return !metric->share || metric->share(sums) > tiny;
}

typedef struct tx_task tx_task;

/* Samples, of which rows are made. The data must outlive them. */
typedef struct tx_samples {
    const tx_task *task;
    const void *data;   /* private to the task */
    void *own;          /* the same, if the samples own them (tx_samples_open) */
    int64_t count;      /* 0 without data */
    int64_t block;      /* positions of a row */
    int64_t tokens;     /* of all samples */
    const char *digest; /* of the contents of all rows; the data own it */
} tx_samples;

/* The use of data. */
typedef enum tx_data_split { TX_DATA_TRAIN, TX_DATA_VALIDATION, TX_DATA_TEST } tx_data_split;

/* Options for reading data. A task ignores options that it does not use. */
typedef struct tx_data_options {
    const tx_job_settings *set;    /* of the run */
    tx_data_split split;           /* samples of TX_DATA_TEST have no labels */
    tx_config *config;             /* of the model; training data may set its labels */
    bool keeps_labels;             /* its labels belong to a trained head, which stays */
    bool resumes;                  /* the run resumes from a checkpoint */
    const tx_tokenizer *tokenizer; /* may be NULL */
    int64_t block;                 /* positions of a row */
    double from, to;               /* the part of the file to use, in percent */
    int64_t most;                  /* maximum number of samples; 0 for all */
    const char *cache;             /* folder of the token cache, see tx_dataset_options */
    int32_t threads;               /* see tx_dataset_options */
    uint64_t seed;                 /* of the packing order and of the task's random choices */
    tx_reporter report;
} tx_data_options;

/* The operands of a loss, in a graph whose inputs are the task's fields. */
typedef struct tx_loss_operands {
    tx_graph *graph;
    const tx_config *config;
    const tx_task *task;
    const tx_job_settings *set;
    tx_tensor *output; /* of the model; NULL on error */
    tx_tensor *second; /* that of the reference model or of the teacher; NULL without one */
    bool train;
} tx_loss_operands;

/* Size of the text of a predicted label. */
#define TX_PREDICTION 128

/* The token that ends the texts that a model learns to write. */
typedef struct tx_text_end {
    int32_t id;     /* -1 if there is none */
    bool keeps_eos; /* eos_token also occurs elsewhere in the texts, so it must not be changed */
} tx_text_end;

struct tx_task {
    const char *name;
    tx_head head;          /* of the models for the task */
    bool of_texts;         /* a sample is a text of up to `block` tokens; else all samples have `block` tokens */
    const tx_task *packed; /* the task for rows of several samples, --packing; NULL if there is none */
    /* The data begin as `data_size` zeros, samples->own. `read` reads a file, which the message of a failure names, and
     * sets the other members of the samples, with a task of their own if the data need one. `release` frees the
     * data, also those of a failure. A `data_size` of 0 leaves samples->own to `read`. */
    size_t data_size;
    tx_status (*read)(tx_samples *samples, const char *path, const tx_data_options *options);
    void (*release)(void *data);
    /* Writes files that belong to the training data to a model's folder, after all other files. May be NULL. */
    tx_status (*save)(const tx_samples *samples, const char *folder);
    tx_text_end (*end)(const tx_samples *samples); /* NULL if texts have no end token */
    /* The name after the last is NULL. The labels are in the field "labels". I32 labels that are TX_IGNORE_LABEL and
     * F32 labels that are NaN are ignored. */
    const tx_field *fields;
    /* Writes sample `number`, counted from 0, to a batch of one row: every value of each field. Several threads call it
     * at the same time. */
    tx_status (*row)(const tx_samples *samples, int64_t number, const tx_batch *row);
    /* The number of positions that sample `number` uses in its row. NULL if all rows have one length. */
    int64_t (*length)(const tx_samples *samples, int64_t number);
    /* The scalar loss: the mean over the labels, by control INVERSE_LABELS. NULL on error. If it sets `*rows`, a row of
     * numbers for each row of the batch, `measure` reads these instead of the model's output. */
    tx_tensor *(*loss)(const tx_loss_operands *of, tx_tensor **rows);
    bool distills;      /* outputs are logits of the labels, so that tx_task_distill may replace `loss` */
    bool is_preference; /* a tx_preference_task */
    /* The model writes the rows before each step (tx_policy_data), so that batches are prepared when their step begins,
     * in order. */
    bool generates;
    bool one_out; /* of rewards: a completion is compared with the mean of the others (RLOO) */
    /* Whether the loss compares with a reference model. NULL if it never does. Each step of a task with this function
     * logs the means of the loss's rows, all metrics but the first. */
    bool (*refers)(const tx_task *task, const tx_job_settings *set);
    /* If outputs are [rows, positions, columns]: writes the `kept` numbers that an evaluation keeps of each position.
     * Its outputs are then [rows, block, kept]. NULL if outputs are [rows, columns]. */
    void (*keep)(const float *output, int64_t columns, float *to);
    int64_t kept;
    /* Whether the loss compares the rows of a micro-batch, so that it learns nothing from one row. NULL if it does not.
     */
    bool (*compares)(const tx_task *task, const tx_job_settings *set);
    /* Computes the task's own sums from the outputs of all samples, [count, columns]. NULL if there are none; the
     * output of a whole batch is then never stored. */
    tx_status (*measure)(const tx_samples *samples, const float *outputs, int64_t columns, double sums[TX_SUMS_MAX]);
    /* Writes the prediction for a sample to a file. NULL if the task predicts nothing. */
    tx_status (*predict)(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                         tx_file *file);
    const tx_metric *metrics; /* the name after the last is NULL; the first is the default metric_for_best_model */
};

/* A task with fields of its own. Its address must not change. */
typedef struct tx_own_task {
    tx_task task;
    tx_field field[TX_FIELDS_MAX + 1];
} tx_own_task;

/* Makes a copy of a task whose fields may then be changed. */
void tx_own_task_make(const tx_task *task, tx_own_task *own);

/* The beginning of sample `number` in an array of all samples, given their ends. */
static inline int64_t tx_sample_begin(const int64_t *end, int64_t number)
{
    return number ? end[number - 1] : 0;
}

/* For tasks that read texts: fails if there is no tokenizer. */
tx_status tx_task_need_tokenizer(const char *path, const tx_data_options *options);
/* The range of a file's `count` samples that the options select. Fails if it is empty. `what` names samples in the
 * plural. */
tx_status tx_task_choose_range(const tx_data_options *options, int64_t count, const char *what, int64_t *begin,
                               int64_t *end);
/* Refuses ids outside the model's vocabulary. */
tx_status tx_task_check_ids(const tx_data_options *options, const int32_t *ids, size_t count);
/* The padding of a decoder's classifier: pad_token_id of the configuration, else the tokenizer's padding, which becomes
 * that. -1 for other models. */
tx_status tx_task_pad(const tx_data_options *options, int64_t *pad);
/* The cross-entropy of logits and the input "labels". `smoothing` is that of tx_cross_entropy_smoothed. */
tx_tensor *tx_label_loss(tx_graph *graph, const tx_config *config, tx_tensor *logits, float smoothing);
/* The `loss` of tasks of logits, and the same of a distillation, whose `second` is the teacher's output. */
tx_tensor *tx_task_label_loss(const tx_loss_operands *of, tx_tensor **rows);
tx_tensor *tx_task_distill(const tx_loss_operands *of);
/* The weights of the rows of a batch, whose labels are 0 for rows with a sample: 1 for these, else 0. [rows] */
tx_tensor *tx_task_row_weights(tx_graph *graph);

/* The metric eval_loss: the mean loss of the labels; and a metric that `measure` computes, own value `place`. */
double tx_task_mean_loss(const double sums[TX_SUMS_MAX]);
#define TX_METRIC_LOSS                          \
    {                                           \
        "eval_loss", .value = tx_task_mean_loss \
    }
#define TX_METRIC_GREATER(name, place)                \
    {                                                 \
        name, true, .column = place, .measured = true \
    }
#define TX_METRIC_LESS(name, place)             \
    {                                           \
        name, .column = place, .measured = true \
    }

/* The number of values of a field in a row. */
int64_t tx_field_values(const tx_field *field, int64_t block);
/* The field input_ids; NULL if the task has none. */
const tx_field *tx_task_ids(const tx_task *task);
tx_shape tx_field_shape(const tx_field *field, int64_t rows, int64_t block);
/* Writes the field's padding to `count` values. */
void tx_field_pad(const tx_field *field, void *values, int64_t count);

/* The number of sequences of a row. */
int64_t tx_task_sequences(const tx_task *task);
/* Bytes of a row, all fields together. */
int64_t tx_task_row_bytes(const tx_task *task, int64_t block);
/* Whether rows of one task fit a plan of the other. Some data have a task of their own. */
bool tx_task_is_same(const tx_task *one, const tx_task *other, int64_t block);
/* The index of the metric of this name, with or without the prefix eval_, or -1. */
int32_t tx_task_metric(const tx_task *task, const char *name);

/* A batch whose fields are stored one after the other in `memory` of rows * tx_task_row_bytes bytes. */
tx_batch tx_batch_of(const tx_task *task, int64_t block, int64_t rows, void *memory);
/* A view of rows first .. first + rows - 1 of a batch. */
tx_batch tx_batch_rows(const tx_task *task, int64_t block, const tx_batch *batch, int64_t first, int64_t rows);
/* The maximum number of positions that a row of the batch uses. 0 if the task has no TX_FIELD_LENGTHS. */
int64_t tx_batch_longest(const tx_task *task, const tx_batch *batch);
/* The maximum number of positions of a target: up to the last label. 0 if the task has no targets. */
int64_t tx_batch_target(const tx_task *task, const tx_batch *batch);
/* Positions of the task's targets, or 0. */
int64_t tx_task_target(const tx_task *task);
/* The number of tokens: used positions that are not TX_NO_TOKEN. */
int64_t tx_batch_tokens(const tx_task *task, int64_t block, const tx_batch *batch);
/* The number of labels that are not ignored. */
int64_t tx_batch_labels(const tx_task *task, int64_t block, const tx_batch *batch);

/* part / whole, or 0 if `whole` is 0. */
static inline double tx_task_ratio(double part, double whole)
{
    return whole > 0.0 ? part / whole : 0.0;
}
/* Writes the name of a label of the model, or its number if it has none. */
tx_status tx_task_write_label(const tx_config *config, int64_t label, tx_file *file);
/* The index of the largest value. */
int64_t tx_task_best(const float *values, int64_t count);

/* ---- Samples ------------------------------------------------------------------------------------------- */

/* Reads a file as data of a task. The caller closes the samples. */
tx_status tx_samples_open(const tx_task *task, const char *path, const tx_data_options *options, tx_samples *samples);
/* Frees data that the samples own, and resets the samples. */
void tx_samples_close(tx_samples *samples);

/* The order of the samples in an epoch. It depends only on (seed, epoch, number of samples) and is computed position by
 * position, so that all ranks and resumed runs have the same order. */
typedef struct tx_sample_order {
    bool shuffle; /* false for the order of the file */
    uint64_t seed;
    uint64_t epoch;
} tx_sample_order;

/* The index of the sample at `place`, 0 <= place < count. The mapping is a bijection. */
int64_t tx_sample_order_at(const tx_sample_order *order, int64_t count, int64_t place);

/* Writes the samples at positions first, first + 1, ... of the order to the rows of `batch`. Rows after the last sample
 * are padding. Fails as the task's `row` does. */
tx_status tx_samples_rows(const tx_samples *samples, const tx_sample_order *order, int64_t first,
                          const tx_batch *batch);

#endif
