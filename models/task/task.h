/* SPDX-License-Identifier: Apache-2.0
 *
 * Tasks: what a model is trained for. A task says which fields a batch has, how a sample becomes a row of them, the
 * loss of an architecture's output, and the metrics of an evaluation. Each is a row, tx_task, and a file that fills it
 * (causal_lm.c). Loader, trainer and evaluation carry batches without knowing what their fields are:
 *
 *     samples --row--> tx_batch --by name--> inputs of a plan --> loss, sums --> metrics */
#ifndef TX_TASK_H
#define TX_TASK_H

#include "models/arch/arch.h"
#include "models/options/settings.h"
#include "models/tx_text.h"
#include "tx.h"

/* The most of one task. */
enum { TX_FIELDS_MAX = 8, TX_SUMS_MAX = 8, TX_METRICS_MAX = 8 };

/* Width of a field that has a value for each position. */
#define TX_FIELD_BLOCK (-1)
/* The field, I32 of one value a row, that tells how many positions of the row are used. */
#define TX_FIELD_LENGTHS "attention_lengths"

/* The padding of input_ids in causal tasks. Its embedding is 0, and it chooses no expert. */
#define TX_NO_TOKEN (-1)

typedef struct tx_field {
    const char *name; /* transformers' where it has one; the input of this name of a plan gets the field */
    tx_dtype dtype;   /* I32 or F32 */
    int64_t width;    /* 0: one value a row, [rows]; TX_FIELD_BLOCK: [rows, block]; else [rows, width] */
    double padding;   /* the value of what no sample fills */
} tx_field;

/* Rows of a task's fields. Whoever gives the memory of the fields frees it. */
typedef struct tx_batch {
    int64_t rows;
    void *field[TX_FIELDS_MAX]; /* in the task's order: the values of all rows, int32_t or float */
    int64_t longest;            /* what is behind so many positions is padding in all rows; 0: nothing need be */
} tx_batch;

/* Sums of an evaluation: over all batches and ranks the loss over the labels and their number, and from TX_SUM_OWN on
 * what the task measures of all samples. */
enum { TX_SUM_LOSS, TX_SUM_LABELS, TX_SUM_OWN };

typedef struct tx_metric {
    const char *name; /* in files. transformers' Trainer has those that begin with eval_, and so has the history */
    bool greater_is_better;
    double (*value)(const double sums[TX_SUMS_MAX]);
} tx_metric;

typedef struct tx_task tx_task;

/* What rows are made of. The data must outlive it. */
typedef struct tx_samples {
    const tx_task *task;
    const void *data;   /* the task's own */
    int64_t count;      /* 0: there are none */
    int64_t block;      /* positions of a row */
    int64_t tokens;     /* of all samples */
    const char *digest; /* of all that rows are made of; it lives as long as the data */
} tx_samples;

/* What data are for. */
typedef enum tx_data_split { TX_DATA_TRAIN, TX_DATA_VALIDATION, TX_DATA_TEST } tx_data_split;

/* How they are read; what a task has no use for it leaves alone. */
typedef struct tx_data_options {
    const tx_job_settings *set;    /* of the run that they are for */
    tx_data_split split;           /* samples of TEST have no labels */
    tx_config *config;             /* of the model, which training data may give its labels */
    const tx_tokenizer *tokenizer; /* NULL: none is known */
    int64_t block;                 /* positions of a row */
    double from, to;               /* the part of the file, in percent */
    int64_t most;                  /* samples; 0: all */
    const char *cache;             /* see tx_dataset_options, as threads */
    int32_t threads;
    uint64_t seed; /* of the order in which samples are packed, and of random choices of a task */
    tx_reporter report;
} tx_data_options;

/* What a model learns from besides the labels. */
typedef struct tx_teaching {
    tx_tensor *output; /* of the other model, as the model's own */
    float temperature, alpha;
} tx_teaching;

/* A tx_task's distill where outputs are scores of tokens or labels, and the graph has the input "labels". */
tx_tensor *tx_task_distill(tx_graph *graph, const tx_config *config, tx_tensor *output, const tx_teaching *teaching);

/* Room for what is predicted of a sample, in words. */
#define TX_PREDICTION 128

/* The token that ends the texts that a model learns to write; id -1: there is none. */
typedef struct tx_text_end {
    int32_t id;
    bool keeps_eos; /* the texts hold eos_token in another place, so that this must stay the token that it is */
} tx_text_end;

struct tx_task {
    const char *name;
    tx_head head;  /* of the models that it is for */
    bool of_texts; /* a sample is a text of its own, of any length up to a row's; else all have a row's */
    /* Reads a file; the message names it. The caller closes what was opened, if the task has a close. */
    tx_status (*open)(const tx_task *task, const char *path, const tx_data_options *options, tx_samples *samples);
    void (*close)(const tx_samples *samples);
    /* Writes to a model's folder what a program needs of the training data, once all else is there; NULL: nothing. */
    tx_status (*save)(const tx_samples *samples, const char *folder);
    tx_text_end (*end)(const tx_samples *samples); /* may be NULL if texts have no end of their own */
    /* NULL in the name behind the last. The labels are in "labels": those of I32 that are TX_IGNORE_LABEL, and those of
     * F32 that are NaN, do not count. */
    const tx_field *fields;
    /* Makes sample `number` (from 0) the only row of a batch, every value of each field. What a task draws it draws
     * anew in each epoch, of evaluations 0. Threads call it at once. */
    tx_status (*row)(const tx_samples *samples, int64_t number, uint64_t epoch, const tx_batch *row);
    /* The positions that sample `number` uses of its row. It is NULL if all rows have one length. */
    int64_t (*length)(const tx_samples *samples, int64_t number);
    /* Scalar loss of an architecture's output in a graph that has the fields as inputs: mean over the labels by control
     * INVERSE_LABELS. `smoothing` is that of tx_cross_entropy_smoothed. NULL on error. */
    tx_tensor *(*loss)(tx_graph *graph, const tx_config *config, tx_tensor *output, float smoothing);
    /* The same of training from another model's output besides the labels, as tx_distillation has it; NULL: the task
     * cannot. */
    tx_tensor *(*distill)(tx_graph *graph, const tx_config *config, tx_tensor *output, const tx_teaching *teaching);
    /* Writes what the task measures of all samples to its own sums; the architecture's outputs are [count, columns].
     * NULL: it measures nothing, and the output of a whole batch need never exist. */
    void (*measure)(const tx_samples *samples, const float *outputs, int64_t columns, double sums[TX_SUMS_MAX]);
    /* What an output says of a sample; NULL: the task predicts nothing. */
    void (*tell)(const tx_config *config, const float *output, char text[TX_PREDICTION]);
    const tx_metric *metrics; /* NULL in the name behind the last; the first chooses the best model unless told */
};

/* Where sample `number` begins in an array of all samples, which has their ends. */
static inline int64_t tx_sample_begin(const int64_t *end, int64_t number)
{
    return number ? end[number - 1] : 0;
}

/* For tasks that read texts. Refuses a file for which no tokenizer is known. */
tx_status tx_task_need_tokenizer(const char *path, const tx_data_options *options);
/* The part of `count` samples of a file that is used, which has some. `what` names samples in the plural. */
tx_status tx_task_choose_range(const tx_data_options *options, int64_t count, const char *what, int64_t *begin,
                               int64_t *end);
/* Refuses ids outside the model's vocabulary. */
tx_status tx_task_check_ids(const tx_data_options *options, const int32_t *ids, size_t count);
/* A metric: the loss over the labels. */
double tx_task_mean_loss(const double sums[TX_SUMS_MAX]);

/* Values of a field in a row. */
int64_t tx_field_values(const tx_field *field, int64_t block);
tx_shape tx_field_shape(const tx_field *field, int64_t rows, int64_t block);
/* Writes the field's padding to `count` values. */
void tx_field_pad(const tx_field *field, void *values, int64_t count);

/* Bytes of a row, all fields together. */
int64_t tx_task_row_bytes(const tx_task *task, int64_t block);
/* Number of the metric of this name, which may lack or have too much an eval_; -1: there is none. */
int32_t tx_task_metric(const tx_task *task, const char *name);

/* Fields of so many rows, one after the other in memory of rows * tx_task_row_bytes. */
tx_batch tx_batch_of(const tx_task *task, int64_t block, int64_t rows, void *memory);
/* Rows first .. first + rows - 1 of a batch, where they lie. */
tx_batch tx_batch_rows(const tx_task *task, int64_t block, const tx_batch *batch, int64_t first, int64_t rows);
/* The most positions that a row of the batch uses; 0: the task has no such field. */
int64_t tx_batch_longest(const tx_task *task, const tx_batch *batch);
/* Tokens: positions that their row uses and that are not TX_NO_TOKEN. */
int64_t tx_batch_tokens(const tx_task *task, int64_t block, const tx_batch *batch);
/* Labels that count. */
int64_t tx_batch_labels(const tx_task *task, int64_t block, const tx_batch *batch);

/* ---- Samples (samples.c) ------------------------------------------------------------------------------- */

/* The order in which an epoch visits the samples. It depends on (seed, epoch, number of samples) alone and is computed
 * place by place, so that any rank and any resumed run sees the same one. */
typedef struct tx_sample_order {
    bool shuffle; /* false: as they are */
    uint64_t seed;
    uint64_t epoch;
} tx_sample_order;

/* Which of `count` items stands at `place` (0 <= place < count): a bijection. */
int64_t tx_sample_order_at(const tx_sample_order *order, int64_t count, int64_t place);

/* Makes the samples at places first, first + 1, ... of the order the rows of `batch`. Rows beyond the last sample are
 * padding. Fails as the task's `row` does. */
tx_status tx_samples_rows(const tx_samples *samples, const tx_sample_order *order, int64_t first,
                          const tx_batch *batch);

#endif
