/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a run's options, whose names and defaults are those of transformers' Trainer and run_clm, and the checks
 * of the options. */
#ifndef TX_JOB_SETTINGS_H
#define TX_JOB_SETTINGS_H

#include "models/options/option.h"
#include "models/options/settings.h"
#include "models/task/tasks.h"
#include "models/train/schedule.h"

#include <stddef.h>

/* Properties of options, one bit each (models/options/options.def). Bits 10, 11 and 13 to 19 are those of
 * tx_task_trait. */
typedef enum tx_job_trait {
    TX_NO_TRAIT = 0,
    TX_RECIPE = 1 << 0,     /* part of the description of a run that a checkpoint stores (tx_job_describe) */
    TX_DATA = 1 << 1,       /* decides which training data a step reads */
    TX_SPLIT = 1 << 2,      /* decides which texts of the training file are held out for evaluation */
    TX_STORED = 1 << 3,     /* a checkpoint stores its effect, so the value of the earlier run is kept */
    TX_OWN = 1 << 4,        /* not inherited from the checkpoint's run */
    TX_RANK = 1 << 5,       /* may differ from rank to rank */
    TX_TRIAL = 1 << 6,      /* txsearch sets it for each trial */
    TX_CARD = 1 << 7,       /* shown on the model card */
    TX_ADAPTER = 1 << 8,    /* describes an adapter */
    TX_EVALUATION = 1 << 9, /* requests an evaluation or predictions */
    TX_ORDER = 1 << 12,     /* decides which rows of the data a step reads */
} tx_job_trait;

extern const tx_option_table tx_job_table;

static inline uint32_t tx_job_traits(const tx_option *option)
{
    return tx_option_traits(&tx_job_table, option);
}

/* The offset of an option's value, by which tx_option_at finds its row: TX_JOB_AT(zero_stage). */
#define TX_JOB_AT(member) offsetof(tx_job_settings, member)

/* The name of an option, by its member. */
#define TX_JOB_NAME(member) (tx_option_at(&tx_job_table, TX_JOB_AT(member))->name)

/* The name of an option as a string. A name that no option has does not compile. */
enum {
#define OPTION(kind, type, name, ...) TX_JOB_HAS_##name,
#include "models/options/options.def"
    TX_JOB_OPTIONS
};
#define TX_JOB_SPELL(name) (&(#name)[0 * TX_JOB_HAS_##name])

/* Rules of one or two options (relations.def). */
typedef enum tx_job_relation_kind { TX_JOB_EXCLUDES, TX_JOB_NEEDS, TX_JOB_RIVAL, TX_JOB_ONLY } tx_job_relation_kind;

typedef struct tx_job_relation {
    tx_job_relation_kind kind;
    size_t a, b; /* TX_JOB_AT of the options; ONLY has one */
    const char *why;
} tx_job_relation;

const tx_job_relation *tx_job_relations(int32_t *count);
/* Whether the value of an option differs from its default. */
bool tx_job_in_use(const tx_job_settings *set, const tx_option *option);
/* Refuses options that contradict each other or are missing, or that the task does not have. One message lists all
 * rules of relations.def that are broken. Without inputs, whose task is known, the task is that of task_name, if any.
 */
struct tx_job_inputs;
tx_status tx_job_check(const tx_option_values *options, const struct tx_job_inputs *inputs);

/* Gives a configuration the new adapter that the options describe. */
tx_status tx_job_make_adapter(const tx_job_settings *set, tx_config *config);
/* Fills the options of the optimizer. TX_INVALID if optim_args has a setting that the optimizer does not have. */
tx_status tx_job_optimizer(const tx_job_settings *set, tx_optimizer_options *options);
/* The optimizer with its usual settings, without weight decay. */
tx_optimizer_options tx_job_usual_optimizer(tx_optimizer_kind kind);
/* Whether the optimizer is schedule-free. */
bool tx_job_schedule_free(const tx_job_settings *set);
/* Whether weights are pruned, and the check of the options of pruning (pruning.c). */
bool tx_job_prunes(const tx_job_settings *set);
tx_status tx_job_check_pruning(const tx_job_settings *set);
/* Reads the value of gradient_checkpointing, which is NULL if the option is not given. `limit` is the limit of
 * auto:BYTES, or 0. */
tx_status tx_job_read_checkpointing(const char *text, tx_checkpointing *how, int64_t *limit);
/* The metric that selects the best evaluation. TX_INVALID if the task has no metric of the given name. */
tx_status tx_job_metric(const tx_job_settings *set, const tx_task *task, const tx_metric **metric);
/* The name of the GLUE task that task_name is, or NULL. */
const char *tx_job_glue(const tx_job_settings *set);
/* Whether a GLUE task is named without data. The run then uses the GLUE dataset of that task, as run_glue does. */
bool tx_job_takes_glue(const tx_job_settings *set);
/* The schedule of lr_scheduler_type and lr_scheduler_kwargs (course.c). */
tx_status tx_job_make_schedule(const tx_job_settings *set, double peak, int64_t warmup, int64_t steps,
                               tx_schedule *schedule);
/* Checks the numbers of datasets, configurations and probabilities (sources.c). */
tx_status tx_job_check_datasets(const tx_job_settings *set);
/* Whether the run resumes from a checkpoint. */
bool tx_job_resumes(const tx_job_settings *set);

/* Options with their values, as training_args.json and the model card hold them; see tx_option_json. */
tx_json *tx_job_arguments(const tx_job_settings *set, uint32_t with, uint32_t without);

#endif
