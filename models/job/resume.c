/* SPDX-License-Identifier: Apache-2.0
 * Resuming: chooses the checkpoint, and inherits options from its run. */
#include "models/job/inputs.h"

#include "api/base/file.h"
#include "api/base/needs.h"
#include "models/files/folder.h"
#include "models/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* transformers also allows True and False as the value of resume_from_checkpoint. */
static bool wants_newest(const char *resume)
{
    return !*resume || strcmp(resume, "True") == 0 || strcmp(resume, "true") == 0;
}

/* The newest checkpoint by name, which is verified later. NULL if there is none, or if the folder cannot be read. */
static char *find_newest(const char *output_dir)
{
    char name[64];
    int64_t newest;
    if (!output_dir || tx_checkpoint_latest(output_dir, &newest) || newest < 0)
        return NULL;
    snprintf(name, sizeof name, TX_CHECKPOINT_PREFIX "%" PRId64, newest);
    return tx_path_join(output_dir, name);
}

/* ---- Folders that are not checkpoints of TX ------------------------------------------------------------- */

static bool has(const char *folder, const char *name)
{
    return tx_file_exists(TX_PATH(folder, name));
}

/* Fails if no run can resume from a folder. The message names the kind of the folder and the remedy. */
static tx_status check_folder(const char *folder)
{
    int64_t newest = -1;
    if (has(folder, TX_CHECKPOINT_MANIFEST) && !has(folder, TX_RUN_STATE) && has(folder, TX_TRAINER_STATE))
        return tx_fail(TX_FORMAT,
                       "%s: holds only the model (save_only_model): start a new run from its weights with "
                       "--model_name_or_path %s",
                       folder, folder);
    if (has(folder, TX_CHECKPOINT_MANIFEST))
        return TX_OK;
    if (!tx_is_folder(folder))
        return tx_fail(
            TX_NOT_FOUND,
            "%s: no such folder: check the spelling, or leave the name out to resume from the newest checkpoint in "
            "--output_dir",
            folder);
    if (has(folder, "optimizer.pt") || has(folder, "optimizer.bin") || has(folder, "scheduler.pt"))
        return tx_fail(
            TX_FORMAT,
            "%s: a checkpoint of transformers' Trainer, whose optimizer TX cannot read: start a new run from "
            "its weights with --model_name_or_path %s",
            folder, folder);
    if (tx_checkpoint_latest(folder, &newest) == TX_OK && newest >= 0)
        return tx_fail(TX_FORMAT,
                       "%s: not a checkpoint, but it contains " TX_CHECKPOINT_PREFIX "%" PRId64
                       ": give that, or give --output_dir %s and --resume_from_checkpoint without a name",
                       folder, newest, folder);
    if (has(folder, "config.json"))
        return tx_fail(TX_FORMAT,
                       "%s: a model, but not a checkpoint (it has no " TX_CHECKPOINT_MANIFEST
                       "): start a new run from its weights with --model_name_or_path %s",
                       folder, folder);
    return tx_fail(TX_FORMAT,
                   "%s: not a checkpoint (it has no " TX_CHECKPOINT_MANIFEST
                   "): leave --resume_from_checkpoint out to start a new run",
                   folder);
}

/* ---- Options of the run ------------------------------------------------------------------------------------ */

/* Marks the options that are not inherited: those with the trait TX_OWN, and the rivals of given options. */
static tx_option_marks left_out_of(const tx_job *j)
{
    int32_t count;
    const tx_job_relation *r = tx_job_relations(&count);
    tx_option_marks left_out = {{false}};
    for (int32_t i = 0; i < tx_job_table.count; i++)
        left_out.mark[i] = tx_job_traits(&tx_job_table.option[i]) & TX_OWN;
    for (int32_t i = 0; i < count; i++)
        if (r[i].kind == TX_JOB_RIVAL && tx_option_asked(&j->options, r[i].a))
            left_out.mark[tx_option_at(&tx_job_table, r[i].b) - tx_job_table.option] = true;
    return left_out;
}

/* Inherits options from a checkpoint, whose file of them is intact or missing. */
static tx_status inherit(tx_job *j, const char *checkpoint)
{
    const tx_option_marks left_out = left_out_of(j);
    const char *path = TX_PATH(checkpoint, TX_JOB_ARGUMENTS);
    if (!tx_file_exists(path))
        return TX_OK;
    TX_TRY(tx_option_inherit(&j->options, path, &left_out));
    return tx_copy_text(checkpoint, &j->inherited);
}

/* Sets output_dir to the folder that contains the checkpoint. */
static tx_status set_output(tx_job *j, const char *checkpoint)
{
    char *real = realpath(checkpoint, NULL), *slash = real ? strrchr(real, '/') : NULL;
    if (slash)
        slash[slash == real] = '\0';
    tx_status status = slash ? tx_option_set_at(&j->options, TX_JOB_AT(output_dir), real) : TX_OK;
    free(real);
    return status;
}

/* Adds the newest intact checkpoint next to a damaged one to the message. */
static tx_status advise(const char *damaged, tx_status status)
{
    char message[1024], *newest = NULL, *parent = tx_path_join(damaged, "..");
    snprintf(message, sizeof message, "%s", tx_error());
    if (status != TX_FORMAT || !parent || tx_checkpoint_newest(parent, NULL, &newest))
        tx_fail(status, "%s", message);
    else
        tx_fail(status, "%s: this checkpoint is damaged; resume from " TX_CHECKPOINT_PREFIX "%" PRId64, message,
                tx_checkpoint_step(newest));
    free(parent);
    free(newest);
    return status;
}

/* The newest checkpoint from which options can be read; TX_OK without one if there is no checkpoint. The other files
 * are verified later, under the lock. */
static tx_status find_options(tx_job *j, char **checkpoint)
{
    const char *folder = j->set.output_dir;
    char *newest = find_newest(folder);
    tx_status status = newest ? tx_checkpoint_newest_with(folder, TX_JOB_ARGUMENTS, NULL, checkpoint) : TX_OK;
    if (status == TX_FORMAT && !has(newest, TX_CHECKPOINT_MANIFEST))
        status = check_folder(newest);
    free(newest);
    return status;
}

/* The same for a checkpoint that the user named. */
static tx_status check_options(const char *resume, char **checkpoint)
{
    TX_TRY(check_folder(resume));
    TX_TRY(advise(resume, tx_checkpoint_verify_file(resume, TX_JOB_ARGUMENTS, NULL)));
    return tx_copy_text(resume, checkpoint);
}

static tx_status inherit_all(tx_job *j)
{
    const char *resume = j->set.resume;
    if (!tx_job_resumes(&j->set))
        return TX_OK;
    const bool newest = wants_newest(resume);
    char *checkpoint = NULL;
    tx_status status = newest ? find_options(j, &checkpoint) : check_options(resume, &checkpoint);
    if (status)
        return tx_fail_in(status, "%s", TX_JOB_NAME(resume));
    status = checkpoint ? inherit(j, checkpoint) : TX_OK;
    if (!status && checkpoint && !newest && !j->set.output_dir)
        status = set_output(j, checkpoint);
    free(checkpoint);
    return status;
}

/* Resolves the two names that transformers has used for the order by length. If both are given, tx_job_check refuses
 * them. */
static tx_status resolve_sampling(tx_job *j)
{
    if (!j->set.by_length || tx_option_asked(&j->options, TX_JOB_AT(sampling)))
        return TX_OK;
    TX_TRY(tx_option_set_at(&j->options, TX_JOB_AT(by_length), "false"));
    return tx_option_set_at(&j->options, TX_JOB_AT(sampling), "group_by_length");
}

tx_status tx_job_resolve(tx_job *j)
{
    TX_NEEDS(j, TX_INVALID);
    if (j->settled)
        return TX_OK;
    TX_TRY(resolve_sampling(j));
    const tx_status configured = tx_job_read_configurations(j);
    TX_TRY(configured == TX_UNSUPPORTED ? TX_OK : configured);
    char refused[3072];
    snprintf(refused, sizeof refused, "%s", configured ? tx_error() : "");
    TX_TRY(inherit_all(j));
    const tx_status checked = tx_job_check(&j->options, NULL);
    if (configured && checked)
        tx_list_add(refused, sizeof refused, "; ", "%s", tx_error());
    if (configured)
        return tx_fail(configured, "%s", refused);
    j->settled = !checked;
    return checked;
}

/* ---- The checkpoint ------------------------------------------------------------------------------------- */

static tx_status choose_newest(tx_job *j)
{
    const char *folder = j->set.output_dir;
    const tx_option_marks left_out = left_out_of(j);
    char *newest = find_newest(folder);
    tx_status status = TX_OK;
    if (!newest)
        status = tx_fail(TX_NOT_FOUND,
                         "%s: has no checkpoint to resume from: leave --resume_from_checkpoint out to start a new run",
                         folder);
    else
        status = tx_checkpoint_newest(folder, &j->report, &j->inputs.checkpoint);
    if (newest && !has(newest, TX_CHECKPOINT_MANIFEST) && status == TX_FORMAT)
        status = check_folder(newest);
    TX_THEN(status, check_folder(j->inputs.checkpoint));
    if (!status && j->inherited && strcmp(j->inherited, j->inputs.checkpoint) != 0)
        status = tx_job_check_inherited(j, j->inherited, &left_out);
    free(newest);
    return status;
}

static tx_status choose_named(tx_job *j)
{
    const char *resume = j->set.resume;
    TX_TRY(advise(resume, tx_checkpoint_verify(resume, &j->report)));
    return tx_copy_text(resume, &j->inputs.checkpoint);
}

tx_status tx_job_choose_checkpoint(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    if (!tx_job_resumes(&j->set))
        return tx_run_state_create(&in->state);
    tx_status status = wants_newest(j->set.resume) ? choose_newest(j) : choose_named(j);
    TX_THEN(status, tx_run_state_read(in->checkpoint, j->set.output_dir, &in->state));
    if (status)
        return tx_fail_in(status, "%s", TX_JOB_NAME(resume));
    tx_job_note(j, "resume  %s: after step %" PRId64 "%s", in->checkpoint, in->state.step,
                j->inherited ? ", with its options unless others are given" : "");
    return TX_OK;
}
