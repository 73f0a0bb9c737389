/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning from preferences: pairs of a chosen and a rejected completion of one prompt, or completions with a label
 * (KTO). A row of a batch has two sequences in fields input_ids and completion_labels: the chosen and the rejected one,
 * or a completion and another one for the same prompt. Labels [rows] are 0 for rows with a sample, so that the loss is
 * the mean over the rows of a step. Names of options, losses and metrics are those of TRL's trainers. */
#ifndef TX_TASK_PREFERENCE_H
#define TX_TASK_PREFERENCE_H

#include "models/task/conversations.h"

/* Indices of the fields. */
enum {
    TX_PREFERENCE_INPUT_IDS,
    TX_PREFERENCE_LENGTHS,
    TX_PREFERENCE_COMPLETION_LABELS, /* the next token, if it belongs to a part whose log-probability is needed */
    TX_PREFERENCE_LABELS,
    TX_PREFERENCE_SHARES,    /* 1 / number of tokens of each completion */
    TX_PREFERENCE_REFERENCE, /* the reference model's log-probability of each completion, if precomputed */
    TX_PREFERENCE_WEIGHTS,   /* of labels in the log-probability of a completion: 0 in the prompt, 1 or --ld_alpha */
    TX_PREFERENCE_DESIRABLE  /* of KTO: 1 for a completion that is desirable, else 0 */
};

/* Indices of the fields of reward models. */
enum {
    TX_REWARD_INPUT_IDS,
    TX_REWARD_LENGTHS,
    TX_REWARD_LAST, /* see tx_mark_last_token */
    TX_REWARD_LABELS,
    TX_REWARD_MARGIN /* by which the reward of the chosen sequence should be greater */
};

/* The methods, one bit each. */
typedef enum tx_preference_method {
    TX_PREFERENCE_DPO = 1 << 0,
    TX_PREFERENCE_CPO = 1 << 1, /* and SimPO */
    TX_PREFERENCE_ORPO = 1 << 2,
    TX_PREFERENCE_KTO = 1 << 3,
    TX_PREFERENCE_REWARD = 1 << 4
} tx_preference_method;

typedef struct tx_preference_task {
    tx_task task;
    tx_preference_method method;
    const char *loss_type; /* without --loss_type; NULL if the method has one loss */
} tx_preference_task;

extern const tx_preference_task tx_preference_dpo, tx_preference_cpo, tx_preference_simpo, tx_preference_orpo,
    tx_preference_kto, tx_preference_reward;

static inline const tx_preference_task *tx_preference_of(const tx_task *task)
{
    return (const tx_preference_task *)(const void *)task;
}

/* ---- Losses (preference_loss.c, preference_types.c) ----------------------------------------------------- */

/* The numbers of a batch from which losses are made. Row i is a pair. */
typedef struct tx_preference_batch {
    tx_graph *graph;
    const tx_job_settings *set;
    tx_preference_method method;
    float beta;
    tx_tensor *weight; /* [n] 1 for a row with a pair, else 0 */
    tx_tensor *labels; /* the model's log-probabilities of all labels of the sequences [n, 2] */
    tx_tensor *counts; /* the number of these labels [n, 2] */
    tx_tensor *logps;  /* of the completions [n, 2]; for each token, if the loss averages */
    tx_tensor *statistics[TX_TOKEN_STATISTICS]; /* sums over tokens [n, 2] */
    tx_tensor *measured;                        /* the number of these tokens [n, 2] */
    tx_tensor *reference;                       /* those of the reference; NULL without one */
    tx_tensor *ratio;                           /* log-ratios [n, 2] */
    tx_tensor *chosen, *reject;                 /* their columns [n] */
    tx_tensor *delta;     /* their difference, or that of their scores with --f_divergence_type [n] */
    tx_tensor *average;   /* of DPO: delta for each token [n] */
    tx_tensor *desirable; /* of KTO: its field [n] */
    tx_tensor *kl;        /* of KTO: the estimated divergence from the reference [n] */
    tx_tensor *odds;      /* of ORPO: the log-odds ratio [n] */
    tx_tensor *nll;       /* see tx_preference_nll; NULL if the loss does not add it */
} tx_preference_batch;

enum { TX_PREFERENCE_SMOOTHS = 1 << 0, TX_PREFERENCE_SCORES = 1 << 1, TX_PREFERENCE_AVERAGES = 1 << 2 };
typedef struct tx_preference_type {
    const char *name;
    tx_preference_method method;
    int32_t traits;                                       /* see preference_losses.def */
    tx_tensor *(*loss)(const tx_preference_batch *batch); /* of each pair [n] */
} tx_preference_type;

/* The losses of a run with their weights. */
enum { TX_PREFERENCE_PARTS = 8 };
typedef struct tx_preference_losses {
    int32_t count;
    const tx_preference_type *type[TX_PREFERENCE_PARTS];
    float weight[TX_PREFERENCE_PARTS];
} tx_preference_losses;

/* Reads --loss_type and --loss_weights. TX_INVALID if the task does not have them. */
tx_status tx_preference_read(const tx_task *task, const tx_job_settings *set, tx_preference_losses *losses);
static inline bool tx_preference_has(const tx_task *task, tx_preference_method method)
{
    return task->is_preference && tx_preference_of(task)->method == method;
}

/* Whether the run has a loss of this name, which may be NULL, with these traits. */
bool tx_preference_uses(const tx_task *task, const tx_job_settings *set, const char *name, int32_t traits);
/* The mean loss of the tokens of the chosen sequences, as numbers [n] with this mean. */
tx_tensor *tx_preference_nll(const tx_preference_batch *batch);
/* The sum of the losses of each pair [n]. */
tx_tensor *tx_preference_sum(const tx_preference_batch *batch, const tx_preference_losses *losses);

/* The `loss` of the tasks. */
tx_tensor *tx_preference_loss(const tx_loss_operands *of, tx_tensor **rows);
/* The same of reward models, whose output is a number for each sequence. */
extern const tx_field tx_reward_fields[];
extern const tx_metric tx_reward_metrics[];
tx_status tx_reward_row(const tx_samples *samples, int64_t number, const tx_batch *to);
tx_tensor *tx_reward_loss(const tx_loss_operands *of, tx_tensor **rows);
/* Whether the method compares with a reference model. */
static inline bool tx_preference_compares(const tx_task *task)
{
    return tx_preference_of(task)->method & (TX_PREFERENCE_DPO | TX_PREFERENCE_KTO);
}
/* Whether the run does. */
bool tx_preference_has_reference(const tx_task *task, const tx_job_settings *set);
/* The first columns of the numbers of a row. */
enum { TX_PREFERENCE_LOGP_CHOSEN, TX_PREFERENCE_LOGP_REJECTED };
/* Sets the reference model's log-probabilities from the outputs of an evaluation of that model (tx_run_outputs). */
void tx_preference_set_reference(const tx_samples *samples, const float *outputs, int64_t columns);

/* Parts of graphs (preference_graph.c). Columns 0 and 1 of x [n, 2], multiplied and added: left * column 0 + right *
 * column 1 [n]. */
tx_tensor *tx_preference_mix(tx_graph *graph, tx_tensor *x, float left, float right);
/* -log sigmoid(x) = log(1 + exp(-x)) of x [n]. */
tx_tensor *tx_preference_nls(tx_graph *graph, tx_tensor *x);
tx_tensor *tx_preference_sigmoid(tx_graph *graph, tx_tensor *x);
tx_tensor *tx_preference_plus(tx_graph *graph, tx_tensor *x, float number);
/* The sum of x divided by the sum of y, both over all elements [1]. 0 if y is 0. */
tx_tensor *tx_preference_quotient(tx_graph *graph, tx_tensor *x, tx_tensor *y);
/* The mean of left * column 0 + right * column 1 of sums over tokens [n, 2] in rows of weight 1, given the numbers of
 * tokens [n, 2]. As TRL's, the mean is over the tokens of a rank's micro-batch. */
tx_tensor *tx_preference_token_mean(tx_graph *graph, tx_tensor *sums, tx_tensor *counts, float left, float right,
                                    tx_tensor *weight);
/* The number of elements of an input [2 n, T] that are not negative, for each sequence [n, 2]. */
tx_tensor *tx_preference_counts(tx_graph *graph, const char *input, int64_t vocab);
/* The sums of numbers for each token, for each sequence of each row [n, 2]. */
tx_tensor *tx_preference_sums(tx_tensor *tokens);
/* 1 if x > 0, else 0, without a gradient: the tangent of a large number is exactly -1 or 1. */
tx_tensor *tx_preference_is_positive(tx_tensor *x);
/* The columns [n] as a matrix [n, count], without a gradient. Rows of weight 0 are 0. */
tx_tensor *tx_preference_join(tx_graph *graph, tx_tensor *const *columns, int32_t count, tx_tensor *weight);

/* ---- Data (preference_data.c) -------------------------------------------------------------------------- */

typedef struct tx_preference_data {
    tx_conversation_data from; /* ids: the chosen sequence of the first pair, its rejected one, .. */
    int64_t count;
    int64_t sides;    /* sequences of a sample: 2 of a pair, 1 of a completion with a label */
    int64_t *end;     /* [sides * count]: end of each sequence's ids */
    int64_t *prompt;  /* [count]: tokens of the prompt, with which both sequences of a pair begin */
    float *value;     /* [count]: TX_PREFERENCE_DESIRABLE of KTO, TX_REWARD_MARGIN of reward models */
    int64_t pad;      /* of reward models, see tx_task_pad */
    int64_t group;    /* of KTO: samples that exchange their completions; the rows of a micro-batch */
    float ld_alpha;   /* the weight of tokens beyond the length of the other completion */
    float *reference; /* [2 * count]: see TX_PREFERENCE_REFERENCE; 0 before it is computed */
} tx_preference_data;

/* Reads objects with the keys prompt, chosen and rejected. Without prompt it is the common beginning of both sides. KTO
 * reads prompt, completion and label, or makes two samples of a pair. */
tx_status tx_preference_data_read(tx_samples *samples, const char *path, const tx_data_options *options);
void tx_preference_data_release(void *data);

/* Whether an object has its prompt apart from both sides (preference_prompt.c). A text as prompt does not count if the
 * sides are lists of messages, which have it then, too. TRL's DPOTrainer decides so. */
bool tx_preference_is_split(const tx_json *object);
/* Makes a copy of another object in which the common beginning of chosen and rejected is the prompt, as TRL's
 * extract_prompt does, or a copy with these keys of an object of OpenAI's files. The caller frees it. TX_FORMAT if
 * there is none. */
tx_status tx_preference_split(const tx_json *object, tx_json **split);

#endif
