/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of tasks (tasks.def): how a run chooses its task, and the options that depend on it. */
#ifndef TX_TASK_TASKS_H
#define TX_TASK_TASKS_H

#include "models/task/task.h"

/* Kinds of options that only some tasks have, and of data, one bit each. Options have them next to the traits of
 * tx_job_trait (models/job/settings.h), which has the other bits. */
typedef enum tx_task_trait {
    TX_TALK = 1 << 10,         /* conversations */
    TX_MASKED = 1 << 11,       /* masked language modelling */
    TX_PREFERENCE = 1 << 13,   /* preferences */
    TX_EMBED = 1 << 14,        /* embeddings */
    TX_ASK = 1 << 15,          /* question answering */
    TX_WRITE = 1 << 16,        /* text that is written for a text */
    TX_PLAIN_TEXT = 1 << 17,   /* of data: texts without columns, which threads tokenize */
    TX_GLUE_COLUMNS = 1 << 18, /* of data: those of a GLUE task */
    TX_POLICY = 1 << 19,       /* rewards */
} tx_task_trait;
#define TX_TASK_OPTIONS (TX_TALK | TX_MASKED | TX_PREFERENCE | TX_EMBED | TX_ASK | TX_WRITE | TX_POLICY)

/* The default of an option. */
typedef struct tx_task_usual {
    size_t at;         /* of the value in tx_job_settings */
    const char *value; /* NULL after the last */
} tx_task_usual;

/* What decides the task of a run without --task_name. */
typedef struct tx_task_signs {
    tx_head head;     /* of the model */
    const char *path; /* of the data; NULL without data */
    bool labelled;    /* the data are a table, or have a column of labels */
    bool trains;      /* the run trains, so that an encoder may get a new head */
} tx_task_signs;

typedef tx_status tx_task_detector(const tx_task *task, const tx_task_signs *signs, bool *is);

typedef struct tx_task_row {
    const char *word; /* for --task_name, or NULL; the other members are those of tasks.def */
    const tx_task *task;
    const char *noun;
    uint32_t traits;
    const tx_task_usual *usual;
    const char *unit;
    tx_task_detector *detect;
} tx_task_row;

/* The row of a choice of --task_name. NULL for 0, auto. */
const tx_task_row *tx_task_named(int32_t choice);
/* The first row that the model and the data are for. NULL if there is none. */
tx_status tx_task_detect(const tx_task_signs *signs, const tx_task_row **row);
/* Writes which tasks have a kind of options: "preferences (--task_name dpo, cpo and reward)". */
void tx_task_owners(uint32_t trait, char *text, size_t size);

/* The tasks of the rows with an object of their own. */
#define TX_TASK_PART(...)
#define TX_TASK(word, task, ...) extern const tx_task task;
#define TX_TASK_FOUND TX_TASK
#include "models/task/tasks.def"

/* Detectors: never; and for models with the task's head. */
tx_task_detector tx_task_never, tx_task_by_head;

#endif
