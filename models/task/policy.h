/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning from rewards: the model writes completions of prompts, and a row of a batch is one of them. The rows of a
 * step are made after its completions are written and scored (models/train/rollout.h). Names of options, losses and
 * metrics are those of TRL's GRPOTrainer and RLOOTrainer. */
#ifndef TX_TASK_POLICY_H
#define TX_TASK_POLICY_H

#include "models/task/conversations.h"

/* Indices of the fields. */
enum {
    TX_POLICY_INPUT_IDS,
    TX_POLICY_LENGTHS,
    TX_POLICY_ROWS,              /* positions before the completion's tokens: only their logits are computed */
    TX_POLICY_COMPLETION_LABELS, /* the tokens, if they belong to the loss */
    TX_POLICY_LABELS,
    TX_POLICY_MASK,      /* 1 for tokens of the loss, else 0 */
    TX_POLICY_OLD,       /* the log-probabilities of the labels at generation */
    TX_POLICY_REFERENCE, /* those of the reference model */
    TX_POLICY_VALUES,    /* numbers of the row */
    /* Only if completions share the tokens of their prompt (tx_policy_share). */
    TX_POLICY_POSITION_IDS,
    TX_POLICY_SHARED, /* the places of the row's prompt and completion among the tokens */
    TX_POLICY_PLACES  /* for each token, its place among the positions of all rows */
};

/* The numbers of a row. */
enum {
    TX_POLICY_ADVANTAGE,
    TX_POLICY_WEIGHT,         /* of each token in the loss, times the rows of a step */
    TX_POLICY_RATIO_SHARE,    /* by which a sum of log-ratios becomes the log-ratio of a sequence */
    TX_POLICY_TOKEN_SHARE,    /* of a token in a mean over the tokens of a micro-batch, times its rows */
    TX_POLICY_CLIP_SHARE,     /* the same in the share of clipped tokens or sequences */
    TX_POLICY_SEQUENCE_SHARE, /* of a token in a mean over its sequence */
    TX_POLICY_LOSS_SHARE,     /* by which TRL's policy_loss differs from the loss of a step */
    TX_POLICY_NUMBERS
};

/* The completions of a generation batch. Rewards are NaN if a function does not apply. */
typedef struct tx_policy_batch {
    int64_t count, group;   /* completions; consecutive ones of a prompt */
    int64_t most;           /* max_completion_length */
    int64_t rows, all_rows; /* of a micro-batch: of a rank, and of all ranks */
    int64_t accumulation;   /* micro-batches of a step */
    int64_t *sample;        /* [count]: number of the prompt */
    int64_t *length;        /* [count]: tokens */
    int32_t *ids;           /* [count, most] */
    bool *truncated;        /* [count]: without an end token */
    float *old, *reference; /* [count, most]: log-probabilities; 0 if not computed */
    float *numbers;         /* [count, TX_POLICY_NUMBERS] */
    double *rewards;        /* [count, functions] */
    double *advantage;      /* [count] */
    double *kl;             /* [count]: the sum of old - reference */
    double *scratch;        /* [count] */
    int32_t functions;
} tx_policy_batch;

typedef struct tx_policy_data {
    tx_conversation_data from; /* ids: the prompts, one after the other */
    const tx_tokenizer *tokenizer;
    int64_t vocab;
    int64_t count, longest; /* prompts; tokens of the longest */
    int64_t *end;           /* [count]: of each prompt's ids */
    char **object;          /* [count]: the row of the file as JSON */
    tx_policy_batch batch;  /* the current one */
} tx_policy_data;

/* The ways to sum the token losses x (TRL 1.16, _compute_loss). */
typedef enum tx_policy_sum {
    TX_POLICY_ALL_TOKENS,   /* the mean over the tokens of the generation batch */
    TX_POLICY_SEQUENCES,    /* the mean over sequences of the mean over their tokens */
    TX_POLICY_MICRO_BATCH,  /* the mean over the tokens of a micro-batch */
    TX_POLICY_CONSTANT,     /* the sum divided by rows times max_completion_length */
    TX_POLICY_SEQUENCE_SUMS /* the mean over sequences of their sums */
} tx_policy_sum;

typedef enum tx_policy_form { TX_POLICY_CLIPPED, TX_POLICY_CISPO, TX_POLICY_SAPO, TX_POLICY_VESPO } tx_policy_form;

typedef struct tx_policy_type {
    const char *name;
    tx_policy_sum sum;
    tx_policy_form form;
} tx_policy_type;

extern const tx_task tx_grpo, tx_rloo;

/* Makes a copy of such a task for completions of at most `most` tokens. */
void tx_policy_sized(const tx_task *task, int64_t most, tx_own_task *own);
/* Lets each `count` consecutive rows, completions of one prompt, share the tokens of the prompt: a step computes these
 * once (Liu et al., Prefix Grouper, 2025). */
void tx_policy_share(tx_own_task *own, int64_t count);

/* The type of --loss_type. TX_INVALID if the task has no such loss. */
tx_status tx_policy_read(const tx_task *task, const tx_job_settings *set, const tx_policy_type **type);
/* Whether each generation batch is learnt in one step, so that the old log-probabilities are the current ones. */
static inline bool tx_policy_is_current(const tx_job_settings *set)
{
    return set->num_iterations == 1 && set->steps_per_generation == 0;
}
/* Whether the log-ratio is that of a whole sequence. RLOO's is the sum, not the mean. */
static inline bool tx_policy_by_sequence(const tx_task *task, const tx_job_settings *set)
{
    return task->one_out || set->importance_sampling == TX_IMPORTANCE_SEQUENCE;
}

/* Gives the samples room for generation batches of `count` completions, and sets their count to the rows of an epoch.
 * A micro-batch has `rows` rows on a rank and `all_rows` on all, a step `step_rows`. Each batch is learnt
 * num_iterations times. Incomplete ones are dropped, as by TRL. */
tx_status tx_policy_plan(tx_samples *samples, const tx_job_settings *set, int64_t count, int64_t rows, int64_t all_rows,
                         int64_t step_rows);
/* Makes room for the rewards of `functions` functions. */
tx_status tx_policy_reserve(tx_policy_batch *batch, int32_t functions);
/* Computes the advantages and all numbers of the rows from the rewards (policy_advantages.c). `total` [count] receives
 * the weighted sums of the rewards, `deviation` [count] the standard deviation that each advantage is compared with. */
void tx_policy_score(const tx_task *task, const tx_job_settings *set, const tx_policy_type *type, const double *weights,
                     tx_policy_batch *batch, double *total, double *deviation);
/* The mean and the standard deviation (n - 1) of the numbers that are not NaN. NaN if there are too few. */
double tx_policy_mean(const double *x, int64_t count);
double tx_policy_deviation(const double *x, int64_t count);

/* The `loss` of the tasks. In evaluations the rows are [rows, positions, 2]: the log-probabilities of the labels, and
 * those of the reference model if there is one (policy_loss.c). */
tx_tensor *tx_policy_loss(const tx_loss_operands *of, tx_tensor **rows);
extern const tx_metric tx_policy_metrics[];

/* Reads objects with a prompt, a text or a list of messages, and other keys for rewards (policy_data.c). */
tx_status tx_policy_data_read(tx_samples *samples, const char *path, const tx_data_options *options);
void tx_policy_data_release(void *data);

#endif
