/* SPDX-License-Identifier: Apache-2.0
 * Going on from a checkpoint: which one, and with which options. */
#include "models/job/parts.h"

#include "api/base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* transformers takes True and False for resume_from_checkpoint too. */
static bool wants_newest(const char *resume)
{
    return !*resume || strcmp(resume, "True") == 0 || strcmp(resume, "true") == 0;
}

static bool resumes(const char *resume)
{
    return resume && strcmp(resume, "False") != 0 && strcmp(resume, "false") != 0;
}

/* The newest by its name alone: whether it is whole is found out later. NULL: none, or it cannot be told. */
static char *find_newest(const char *output_dir)
{
    char name[64];
    int64_t newest;
    if (!output_dir || tx_checkpoint_latest(output_dir, &newest) || newest < 0)
        return NULL;
    snprintf(name, sizeof name, TX_CHECKPOINT_PREFIX "%" PRId64, newest);
    return tx_path_join(output_dir, name);
}

/* What a run has of its own: whoever goes on says it again. */
static const char *const own[] = {"resume_from_checkpoint",
                                  "output_dir",
                                  "overwrite_output_dir",
                                  "logging_dir",
                                  "list_devices",
                                  "dry_run",
                                  "profile",
                                  "memory_plot",
                                  "dump_order"};
/* Of these one stands in the place of the other. */
static const char *const rivals[][2] = {{"num_train_epochs", "max_steps"},
                                        {"max_steps", "num_train_epochs"},
                                        {"train_file", "dataset_name"},
                                        {"train_file", "dataset_config_name"},
                                        {"dataset_name", "train_file"},
                                        {"model_name_or_path", "config_name"},
                                        {"model_name_or_path", "config_overrides"},
                                        {"config_name", "model_name_or_path"},
                                        {"config_overrides", "model_name_or_path"},
                                        {"warmup_ratio", "warmup_steps"},
                                        {"gradient_accumulation_steps", "global_batch_size"},
                                        {"tf32", "no_tf32"},
                                        {"bf16", "fp16"},
                                        {"fp16", "bf16"},
                                        {"bf16_full_eval", "fp16_full_eval"},
                                        {"fp16_full_eval", "bf16_full_eval"}};
enum { OWN = sizeof own / sizeof own[0], RIVALS = sizeof rivals / sizeof rivals[0] };

static tx_status inherit(tx_job *j, const char *checkpoint)
{
    const char *left_out[OWN + RIVALS + 1] = {NULL};
    int count = 0;
    for (; count < OWN; count++)
        left_out[count] = own[count];
    for (int i = 0; i < RIVALS; i++)
        if (tx_option_given(&j->options, tx_option_find(&tx_job_table, rivals[i][0])->offset))
            left_out[count++] = rivals[i][1];
    char *path = tx_path_join(checkpoint, TX_JOB_ARGUMENTS);
    tx_status status = path ? TX_OK : TX_MEMORY;
    if (!status && tx_file_exists(path)) { /* where it is missing so is more, which is told by who reads it */
        status = tx_option_inherit(&j->options, path, left_out);
        j->inherited = !status;
    }
    free(path);
    return status;
}

/* The folder that a checkpoint lies in. */
static tx_status set_output(tx_job *j, const char *checkpoint)
{
    char *real = realpath(checkpoint, NULL), *slash = real ? strrchr(real, '/') : NULL;
    if (slash)
        slash[slash == real] = '\0';
    tx_status status = slash ? tx_option_set(&j->options, "output_dir", real) : TX_OK;
    free(real);
    return status;
}

tx_status tx_job_inherit(tx_job *j)
{
    const char *resume = j->set.resume;
    if (!resumes(resume))
        return TX_OK;
    const bool newest = wants_newest(resume);
    char *checkpoint = newest ? find_newest(j->set.output_dir) : strdup(resume);
    tx_status status = checkpoint ? inherit(j, checkpoint) : TX_OK;
    if (!status && checkpoint && !newest && !j->set.output_dir)
        status = set_output(j, checkpoint);
    free(checkpoint);
    return status;
}

tx_status tx_job_choose_checkpoint(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    const char *resume = set->resume;
    tx_status status;
    if (!resumes(resume))
        return tx_run_state_create(&in->state);
    if (wants_newest(resume)) {
        status = tx_checkpoint_newest(set->output_dir, &j->report, &in->checkpoint);
    } else {
        status = tx_checkpoint_verify(resume, &j->report);
        if (!status)
            status = (in->checkpoint = strdup(resume)) ? TX_OK : tx_fail(TX_MEMORY, "out of memory");
    }
    if (!status)
        status = tx_run_state_read(in->checkpoint, set->output_dir, &in->state);
    if (status)
        return tx_fail_in(status, "resume_from_checkpoint");
    tx_job_note(j, "resume  %s: after step %" PRId64 "%s", in->checkpoint, in->state.step,
                j->inherited ? ", with its options where none are given" : "");
    return TX_OK;
}
