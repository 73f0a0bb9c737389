/* SPDX-License-Identifier: Apache-2.0
 * Saves and restores checkpoints of a run. */
#include "comm/comm.h"
#include "models/files/checkpoint.h"
#include "models/files/folder.h"
#include "models/train/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A checkpoint that is to be written. */
typedef struct save {
    tx_engine *engine;
    tx_model *model;
    const tx_run_options *options;
    tx_run_state *state;
    tx_checkpoint *checkpoint; /* NULL on ranks that write nothing */
    bool log;
    char name[64];
} save;

static tx_status write_states(const save *s)
{
    char digest[TX_DIGEST_TEXT];
    if (s->options->set->only_model)
        return TX_OK;
    TX_TRY(tx_optimizer_save(s->model, TX_PATH(tx_checkpoint_folder(s->checkpoint), TX_RUN_OPTIMIZER), digest));
    return tx_checkpoint_expect(s->checkpoint, TX_RUN_OPTIMIZER, digest);
}

/* Writes the files. */
static tx_status fill(const save *s)
{
    const tx_run_options *o = s->options;
    const char *folder = tx_checkpoint_folder(s->checkpoint);
    free(s->state->kernels);
    s->state->kernels = NULL;
    TX_TRY(tx_engine_choices(s->engine, &s->state->kernels));
    TX_TRY(o->write(o->write_context, folder));
    TX_TRY(write_states(s));
    TX_TRY((o->set->only_model ? tx_run_state_write_trainer : tx_run_state_write)(s->state, &o->facts,
                                                                                  o->set->output_dir, folder));
    return s->log ? tx_folder_copy_file(o->set->output_dir, folder, TX_RUN_LOG, INT64_MAX) : TX_OK;
}

/* Writes the checkpoint on rank 0, unless `status` is an earlier failure. */
static tx_status write_checkpoint(save *s, tx_status status)
{
    const tx_run_options *o = s->options;
    const char *folder = TX_PATH(o->set->output_dir, s->name);
    if (!status && o->reopen && !tx_is_folder(o->set->output_dir))
        status = o->reopen(o->write_context);
    TX_THEN(status, tx_disk_check(o->set->output_dir, o->checkpoint_bytes));
    TX_THEN(status, tx_checkpoint_begin(o->set->output_dir, s->state->step, &s->checkpoint));
    TX_THEN(status, fill(s));
    if (!status)
        status = tx_checkpoint_commit(s->checkpoint);
    else
        tx_checkpoint_discard(s->checkpoint);
    if (!status)
        tx_watchdog_saved(o->watch, folder);
    if (!status && o->listener.saved)
        o->listener.saved(o->listener.context, folder);
    return status;
}

/* Removes the oldest checkpoints. A failure is only a warning, since the new checkpoint is complete. */
static void prune(const tx_run_options *o, const tx_run_state *state)
{
    char *best = NULL;
    tx_status status = state->best_checkpoint ? tx_run_state_best(state, o->set->output_dir, &best) : TX_OK;
    TX_THEN(status, tx_checkpoint_prune(o->set->output_dir, o->set->save_total_limit, state->step, best, &o->report));
    free(best);
    if (status)
        tx_reporter_print(&o->report, "cannot remove old checkpoints: %.440s", tx_error());
}

tx_status tx_run_save(tx_engine *engine, tx_model *model, tx_comm *comm, const tx_run_options *o, tx_run_state *state,
                      bool log)
{
    const bool writes = !comm || comm->rank == 0, best = state->has_best && state->best_step == state->step;
    save s = {.engine = engine, .model = model, .options = o, .state = state, .log = log};
    char *before = state->best_checkpoint;
    tx_status status = TX_OK;
    snprintf(s.name, sizeof s.name, TX_CHECKPOINT_PREFIX "%" PRId64, state->step);
    tx_watchdog_begin(o->watch, TX_WATCHDOG_WRITING);
    if (best) { /* on all ranks, since each loads it at the end */
        state->best_checkpoint = NULL;
        status = tx_run_state_set_best(state, s.name);
    }
    if (writes) {
        TX_THEN(status, tx_model_read_alone(model, true));
        status = write_checkpoint(&s, status);
    }
    const tx_status answered = writes ? tx_model_read_alone(model, false) : tx_model_serve_reads(model);
    status = status ? status : answered;
    if (comm)
        status = tx_comm_agree(comm, status, "write it");
    if (best) {
        free(status ? state->best_checkpoint : before);
        state->best_checkpoint = status ? before : state->best_checkpoint;
    }
    if (!status && writes) /* all ranks now have the same best checkpoint, which is kept */
        prune(o, state);
    return status;
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

tx_status tx_run_resume(tx_model *model, tx_trainer *trainer, const tx_run_state *state, const char *checkpoint,
                        const char *output_dir)
{
    tx_results results = {0};
    TX_TRY(tx_optimizer_load(model, TX_PATH(checkpoint, TX_RUN_OPTIMIZER)));
    results.value[TX_RESULT_UPDATES] = (float)state->updates;
    results.value[TX_RESULT_SKIPPED] = (float)state->skipped;
    results.value[TX_RESULT_LOSS_SCALE] = (float)state->loss_scale;
    results.value[TX_RESULT_SCALE_STEPS] = (float)state->scale_steps;
    TX_TRY(tx_trainer_restore(trainer, &results));
    tx_trainer_set_steps(trainer, state->step);
    return output_dir ? tx_folder_copy_file(checkpoint, output_dir, TX_RUN_LOG, INT64_MAX) : TX_OK;
}
