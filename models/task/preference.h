/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning from preferences: pairs of a chosen and a rejected completion of one prompt. A row of a batch is a pair.
 * Fields input_ids and completion_labels have two sequences for each row, first the chosen one. Labels [rows] are 0 for
 * rows with a pair, so that the loss is the mean over the pairs of a step. Names of options, losses and metrics are
 * those of TRL's DPOTrainer. */
#ifndef TX_TASK_PREFERENCE_H
#define TX_TASK_PREFERENCE_H

#include "models/chat/chat.h"
#include "models/task/store.h"

/* Indices of the fields. */
enum {
    TX_PREFERENCE_INPUT_IDS,
    TX_PREFERENCE_LENGTHS,
    TX_PREFERENCE_COMPLETION_LABELS,
    TX_PREFERENCE_LABELS,
    TX_PREFERENCE_SHARES,   /* 1 / number of tokens of each completion */
    TX_PREFERENCE_REFERENCE /* the reference model's log-probability of each completion, if precomputed */
};

extern const tx_task tx_dpo;

/* The `prefer` of the task (preference_loss.c). */
tx_tensor *tx_preference_loss(tx_graph *graph, const tx_config *config, const tx_preferring *how, tx_tensor **rows);
/* Whether the loss compares with a reference model. */
bool tx_preference_has_reference(const tx_job_settings *set);
/* Sets the reference model's log-probabilities from the outputs of an evaluation of that model (tx_run_outputs). */
void tx_preference_set_reference(const tx_samples *samples, const float *outputs, int64_t columns);

/* ---- Data (preference_data.c) -------------------------------------------------------------------------- */

typedef struct tx_preference_data {
    tx_store ids; /* of all sequences, one after the other: the chosen one of the first pair, its rejected one, .. */
    int64_t count;
    int64_t *end;     /* [2 * count]: end of each sequence's ids */
    int64_t *prompt;  /* [count]: tokens of the prompt, with which both sequences of a pair begin */
    float *reference; /* [2 * count]: see TX_PREFERENCE_REFERENCE; 0 before it is computed */
    tx_chat *chat;    /* NULL if no sample needed a chat template */
    int32_t eos;      /* id of eos_token, which ends texts without a template; -1 if there is none */
    char digest[65];
} tx_preference_data;

/* Reads objects with the keys prompt, chosen and rejected. Without prompt it is the common beginning of both sides. */
tx_status tx_preference_open(const tx_task *task, const char *path, const tx_data_options *options,
                             tx_samples *samples);
void tx_preference_close(const tx_samples *samples);
tx_status tx_preference_save(const tx_samples *samples, const char *folder);
tx_text_end tx_preference_end(const tx_samples *samples);

/* Whether an object has its prompt apart from both sides (preference_prompt.c). A text as prompt does not count if the
 * sides are lists of messages, which have it then, too. TRL's DPOTrainer decides so. */
bool tx_preference_is_split(const tx_json *object);
/* Makes a copy of another object in which the common beginning of chosen and rejected is the prompt, as TRL's
 * extract_prompt does, or a copy with these keys of an object of OpenAI's files. The caller frees it. TX_FORMAT if
 * there is none. */
tx_status tx_preference_split(const tx_json *object, tx_json **split);

#endif
