/* SPDX-License-Identifier: Apache-2.0
 * Saves and restores checkpoints of a run. */
#include "api/base/file.h"
#include "api/base/thread.h"
#include "models/files/checkpoint_files.h"
#include "models/files/folder.h"
#include "models/train/outer.h"
#include "models/train/rollout.h"
#include "models/train/running.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tx_status write_states(const tx_running *r, const char *folder)
{
    if (r->options->set->only_model)
        return TX_OK;
    TX_TRY(tx_optimizer_save(r->model, TX_PATH(folder, TX_RUN_OPTIMIZER)));
    return r->rollout ? tx_rollout_save(r->rollout, folder) : TX_OK;
}

/* Writes the files. */
static tx_status fill(const tx_running *r, const char *folder)
{
    const tx_run_options *o = r->options;
    free(r->state->kernels);
    r->state->kernels = NULL;
    TX_TRY(tx_engine_choices(r->engine, &r->state->kernels));
    TX_TRY(o->write(o->write_context, folder));
    TX_TRY(write_states(r, folder));
    TX_TRY((o->set->only_model ? tx_run_state_write_trainer : tx_run_state_write)(r->state, &o->facts,
                                                                                  o->set->output_dir, folder));
    if (r->log.recent) /* rank 0 is lost */
        return tx_log_complete(&r->log, TX_PATH(o->set->output_dir, TX_RUN_LOG), TX_PATH(folder, TX_RUN_LOG));
    return r->log.file ? tx_folder_copy_file(o->set->output_dir, folder, TX_RUN_LOG, INT64_MAX) : TX_OK;
}

/* Writes the files of the checkpoint on rank 0, unless `status` is an earlier failure. They are in the stage and in the
 * system's memory afterwards. */
static tx_status write_files(tx_running *r, tx_status status)
{
    const tx_run_options *o = r->options;
    tx_checkpoint **checkpoint = &r->committing.checkpoint;
    if (!status && o->reopen && !tx_is_folder(o->set->output_dir))
        status = o->reopen(o->write_context);
    TX_THEN(status, tx_disk_check(o->set->output_dir, o->checkpoint_bytes));
    if (!r->stage)
        TX_THEN(status, tx_stage_create(&r->stage));
    tx_stage_used = r->stage;
    TX_THEN(status, tx_checkpoint_begin(o->set->output_dir, r->state->step, checkpoint));
    if (!status) {
        tx_file_defers_flush = true;
        status = fill(r, tx_checkpoint_folder(*checkpoint));
        tx_file_defers_flush = false;
    }
    tx_stage_used = NULL;
    if (!status && r->state->best_checkpoint)
        status = tx_run_state_best(r->state, o->set->output_dir, &r->committing.kept);
    if (status) {
        tx_checkpoint_discard(*checkpoint);
        *checkpoint = NULL;
    }
    return status;
}

/* ---- Completing a checkpoint ------------------------------------------------------------------------- */

/* Keeps a warning for the thread of the run, which reports it. */
static void keep_warning(void *committing, const char *message)
{
    tx_committing *c = committing;
    const size_t used = strlen(c->warnings);
    snprintf(c->warnings + used, sizeof c->warnings - used, "%s\n", message);
}

/* Removes the oldest checkpoints. A failure is only a warning, since the new checkpoint is complete. A disk can take
 * long to free large files. */
static void prune(tx_committing *c)
{
    const tx_job_settings *set = c->options->set;
    const tx_reporter keeper = {.warn = keep_warning, .context = c};
    if (tx_checkpoint_prune(set->output_dir, set->save_total_limit, c->step, c->kept, &keeper))
        tx_reporter_print(&keeper, "cannot remove old checkpoints: %.440s", tx_error());
}

/* The thread. It has the priority of the others: on a busy machine the run would wait long for one with less. */
static void *commit(void *committing)
{
    tx_committing *c = committing;
    c->status = tx_checkpoint_commit(c->checkpoint);
    if (c->status) {
        snprintf(c->message, sizeof c->message, "%s", tx_error());
    } else {
        tx_watchdog_saved(c->options->watch, TX_CHECKPOINT_PATH(c->options->set->output_dir, c->step));
        prune(c);
    }
    atomic_store(&c->ended, true);
    return NULL;
}

/* Ends the thread, and reports the checkpoint. */
static void join(tx_running *r)
{
    const tx_run_options *o = r->options;
    tx_committing *c = &r->committing;
    if (c->started)
        pthread_join(c->thread, NULL);
    c->started = false;
    c->checkpoint = NULL;
    if (!c->status && o->listener.saved)
        o->listener.saved(o->listener.context, TX_CHECKPOINT_PATH(o->set->output_dir, c->step));
    for (const char *line = c->warnings; *line; line += *line == '\n') { /* the last one may be cut */
        const size_t length = strcspn(line, "\n");
        tx_reporter_print(&o->report, "%.*s", (int)length, line);
        line += length;
    }
}

void tx_running_poll_save(tx_running *r)
{
    if (r->committing.checkpoint && atomic_load(&r->committing.ended))
        join(r);
}

tx_status tx_running_commit(tx_running *r, bool together)
{
    tx_committing *c = &r->committing;
    if (!c->pending)
        return TX_OK;
    tx_watchdog_begin(r->options->watch, TX_WATCHDOG_WRITING);
    if (c->checkpoint)
        join(r);
    tx_status status = c->status ? tx_fail(c->status, "%s", c->message) : TX_OK;
    if (together && r->comm)
        status = tx_comm_agree(r->comm, status, "write it");
    if (c->best) {
        free(status ? r->state->best_checkpoint : c->before);
        r->state->best_checkpoint = status ? c->before : r->state->best_checkpoint;
    }
    if (status)
        r->saved = -1;
    free(c->kept);
    *c = (tx_committing){0};
    return status;
}

/* ---- Beginning one ----------------------------------------------------------------------------------- */

/* Sets the best checkpoint on all ranks, since each loads it at the end. */
static tx_status set_best(tx_running *r)
{
    tx_run_state *state = r->state;
    char name[TX_CHECKPOINT_NAME];
    r->committing.best = state->has_best && state->best_step == state->step;
    if (!r->committing.best)
        return TX_OK;
    r->committing.before = state->best_checkpoint;
    state->best_checkpoint = NULL;
    return tx_run_state_set_best(state, tx_checkpoint_name(state->step, name));
}

/* With local steps every rank has states of its own. It writes them to rank 0's folder. */
static tx_status save_apart(tx_running *r, tx_status status)
{
    char folder[TX_PATH_ROOM] = "";
    if (!r->outer || r->options->set->only_model)
        return status;
    if (!status && r->committing.checkpoint)
        snprintf(folder, sizeof folder, "%s", tx_checkpoint_folder(r->committing.checkpoint));
    const tx_status sent = tx_comm_collect(r->comm, TX_BROADCAST, folder, sizeof folder / sizeof(int32_t), TX_I32, 0);
    if (status || sent || !*folder)
        return status ? status : sent;
    tx_file_defers_flush = true;
    status = tx_outer_save(r->outer, folder);
    tx_file_defers_flush = false;
    return status;
}

tx_status tx_running_save(tx_running *r)
{
    tx_committing *c = &r->committing;
    const bool writes = !r->comm || r->comm->rank == 0;
    tx_watchdog_begin(r->options->watch, TX_WATCHDOG_WRITING);
    *c = (tx_committing){.pending = true, .step = r->state->step, .options = r->options};
    tx_status status = set_best(r);
    if (writes) {
        TX_THEN(status, tx_model_read_alone(r->model, true));
        status = write_files(r, status);
    }
    const tx_status answered = writes ? tx_model_read_alone(r->model, false) : tx_model_serve_reads(r->model);
    status = save_apart(r, status ? status : answered);
    if (r->comm)
        status = tx_comm_agree(r->comm, status, "write it");
    if (status) {
        c->status = status;
        snprintf(c->message, sizeof c->message, "%s", tx_error());
        tx_checkpoint_discard(c->checkpoint);
        c->checkpoint = NULL;
        return tx_running_commit(r, false);
    }
    r->saved = c->step;
    if (writes && !(c->started = tx_thread_start(&c->thread, commit, c)))
        commit(c);
    return TX_OK;
}

tx_status tx_running_save_alone(tx_running *r, const char *fence)
{
    tx_committing *c = &r->committing;
    *c = (tx_committing){.pending = true, .step = r->state->step, .options = r->options};
    tx_status status = set_best(r);
    status = write_files(r, status);
    if (!status && !tx_is_folder(fence)) {
        status = tx_fail(TX_IO, "the run has continued without this rank");
        tx_checkpoint_discard(c->checkpoint);
        c->checkpoint = NULL;
    }
    if (!status)
        commit(c);
    c->status = status ? status : c->status;
    if (status)
        snprintf(c->message, sizeof c->message, "%s", tx_error());
    return tx_running_commit(r, false);
}

/* ---- Disk space -------------------------------------------------------------------------------------- */

/* The number of checkpoints that the run writes after `step`. With save_strategy best it is the maximum. */
static int64_t count_saves(const tx_run_options *o, int64_t step, int64_t epoch_steps)
{
    const bool best = o->set->saving == TX_STRATEGY_BEST;
    const int32_t when = best ? o->set->evaluation : o->set->saving;
    const int64_t steps = best ? o->facts.eval_steps : o->facts.save_steps, end = o->schedule.total_steps;
    const int64_t every = when == TX_STRATEGY_STEPS ? steps : when == TX_STRATEGY_EPOCH ? epoch_steps : 0;
    return every && step < end ? end / every - step / every + (end % every != 0) : 0;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The product, at most half of INT64_MAX, so that two of them can be added. */
static int64_t bytes_of(int64_t count, int64_t each)
{
    const int64_t most = INT64_MAX / 2;
    return count > 0 && each > most / count ? most : count * each;
}

tx_status tx_run_check_room(const tx_run_options *o, int64_t step, int64_t epoch_steps, int64_t model_bytes)
{
    const int64_t saves = count_saves(o, step, epoch_steps);
    int64_t existing = 0;
    TX_TRY(tx_checkpoint_count(o->set->output_dir, &existing));
    /* New checkpoints besides the existing ones: the most at a time, and those at the end. Without a limit, users may
     * move older ones away during the run, so only two are counted. */
    int64_t most = least_of(saves, 2), end = most;
    if (o->set->save_total_limit) {
        const bool best = o->validation.count && o->set->evaluation; /* the best one is kept besides the newest */
        const int64_t keep = best && o->set->save_total_limit == 1 ? 2 : o->set->save_total_limit;
        most = least_of(saves, (existing < keep ? keep - existing : 0) + 1);
        end = saves ? least_of(saves, keep - existing) : 0;
    }
    const int64_t saving = bytes_of(most, o->checkpoint_bytes);
    const int64_t at_end = bytes_of(end, o->checkpoint_bytes) + model_bytes;
    tx_status status = tx_disk_check(o->set->output_dir, saving > at_end ? saving : at_end);
    return tx_fail_in(status, "not enough disk space for the run's checkpoints and its model");
}

/* ---- Resuming ---------------------------------------------------------------------------------------- */

/* The path of this rank's optimizer states. With local steps ranks that a checkpoint does not have begin with those of
 * rank 0. */
static const char *states_of(const tx_trainer *trainer, const char *checkpoint, char *path, size_t size)
{
    const tx_comm *across = tx_trainer_options_of(trainer)->across;
    char name[64];
    snprintf(path, size, "%s/%s", checkpoint, across ? tx_outer_states_name(across->rank, name) : "");
    if (!across || !tx_file_exists(path))
        snprintf(path, size, "%s/%s", checkpoint, TX_RUN_OPTIMIZER);
    return path;
}

tx_status tx_run_resume(tx_model *model, tx_trainer *trainer, const tx_run_state *state, const char *checkpoint,
                        const char *output_dir)
{
    tx_results results = {0};
    char path[TX_PATH_ROOM];
    TX_TRY(tx_optimizer_load(model, states_of(trainer, checkpoint, path, sizeof path)));
    results.value[TX_RESULT_UPDATES] = (float)state->updates;
    results.value[TX_RESULT_SKIPPED] = (float)state->skipped;
    results.value[TX_RESULT_LOSS_SCALE] = (float)state->loss_scale;
    results.value[TX_RESULT_SCALE_STEPS] = (float)state->scale_steps;
    TX_TRY(tx_trainer_restore(trainer, &results));
    tx_trainer_set_steps(trainer, state->step);
    return output_dir ? tx_folder_copy_file(checkpoint, output_dir, TX_RUN_LOG, INT64_MAX) : TX_OK;
}
