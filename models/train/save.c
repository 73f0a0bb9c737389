/* SPDX-License-Identifier: Apache-2.0
 * Checkpoints of a run. */
#include "api/base/file.h"
#include "comm/comm.h"
#include "models/files/checkpoint.h"
#include "models/train/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOG_LIMIT INT64_MAX

/* Copies from/name to to/name; nothing where there is none. */
static tx_status copy_file(const char *from, const char *to, const char *name)
{
    char *source = tx_path_join(from, name), *target = tx_path_join(to, name), *data = NULL;
    size_t size = 0;
    tx_status status = source && target ? TX_OK : TX_MEMORY;
    if (!status && tx_file_exists(source)) {
        status = tx_file_read(source, LOG_LIMIT, &data, &size);
        if (!status)
            status = tx_file_write(target, data, size);
    }
    free(data);
    free(source);
    free(target);
    return status;
}

/* Collects the optimizer's states of all ranks where they are spread, and writes them unless `status` tells of a
 * failure before. */
static tx_status write_states(tx_model *model, const char *folder, tx_status status)
{
    char *path = status ? NULL : tx_path_join(folder, TX_RUN_OPTIMIZER);
    status = status || path ? status : TX_MEMORY;
    if (!path && !tx_model_spreads(model))
        return status;
    tx_status saved = tx_optimizer_save(model, path);
    free(path);
    return status ? status : saved;
}

/* Writes the files unless `status` tells of a failure before. */
static tx_status fill(tx_engine *engine, tx_model *model, const tx_run_options *o, tx_run_state *state, bool log,
                      tx_status status, const char *folder)
{
    free(state->kernels);
    state->kernels = NULL;
    if (!status)
        status = tx_engine_choices(engine, &state->kernels);
    if (!status)
        status = o->write(o->write_context, folder);
    status = write_states(model, folder, status);
    if (!status)
        status = tx_run_state_write(state, &o->facts, o->output_dir, folder);
    return status || !log ? status : copy_file(o->output_dir, folder, TX_RUN_LOG);
}

/* Fills the checkpoint in the making, which is named as the best one where it is, and makes it last. */
static tx_status write_whole(tx_engine *engine, tx_model *model, const tx_run_options *o, tx_run_state *state, bool log,
                             const char *name, tx_checkpoint *checkpoint)
{
    const bool best = state->has_best && state->best_step == state->step;
    char *before = state->best_checkpoint;
    tx_status status = TX_OK;
    if (best) {
        state->best_checkpoint = NULL;
        status = tx_run_state_set_best(state, name);
    }
    status = fill(engine, model, o, state, log, status, tx_checkpoint_folder(checkpoint));
    if (status)
        tx_checkpoint_discard(checkpoint);
    else
        status = tx_checkpoint_commit(checkpoint);
    if (best && status) {
        free(state->best_checkpoint);
        state->best_checkpoint = before;
    } else if (best) {
        free(before);
    }
    return status;
}

static tx_status prune(const tx_run_options *o, const tx_run_state *state)
{
    char *best = NULL;
    tx_status status = state->best_checkpoint ? tx_run_state_best(state, o->output_dir, &best) : TX_OK;
    if (!status)
        status = tx_checkpoint_prune(o->output_dir, o->save_total_limit, best, &o->report);
    free(best);
    return status;
}

/* The rank that writes. */
static tx_status write_checkpoint(tx_engine *engine, tx_model *model, const tx_run_options *o, tx_run_state *state,
                                  bool log)
{
    char name[64];
    tx_checkpoint *checkpoint = NULL;
    snprintf(name, sizeof name, TX_CHECKPOINT_PREFIX "%" PRId64, state->step);
    char *folder = tx_path_join(o->output_dir, name);
    tx_status status = folder ? tx_disk_check(o->output_dir, o->checkpoint_bytes) : TX_MEMORY;
    if (!status)
        status = tx_checkpoint_begin(o->output_dir, state->step, &checkpoint);
    status = status ? write_states(model, NULL, status) : write_whole(engine, model, o, state, log, name, checkpoint);
    if (!status)
        tx_watch_saved(o->watch, folder);
    if (!status && o->listener.saved)
        o->listener.saved(o->listener.context, folder);
    if (!status && prune(o, state)) {
        char message[512]; /* the checkpoint is there all the same */
        snprintf(message, sizeof message, "old checkpoints are not removed: %.440s", tx_error());
        tx_report(&o->report, message);
    }
    free(folder);
    return status;
}

tx_status tx_run_save(tx_engine *engine, tx_model *model, tx_comm *comm, const tx_run_options *o, tx_run_state *state,
                      bool log)
{
    tx_watch_begin(o->watch, TX_WATCH_WRITING);
    if (!comm)
        return write_checkpoint(engine, model, o, state, log);
    const bool writes = comm->rank == 0;
    tx_status status = writes                    ? write_checkpoint(engine, model, o, state, log)
                       : tx_model_spreads(model) ? tx_optimizer_save(model, NULL)
                                                 : TX_OK;
    return tx_run_agree(comm, status, "write it");
}

tx_status tx_run_agree(tx_comm *comm, tx_status status, const char *what)
{
    int32_t *outcome = calloc((size_t)comm->size, sizeof *outcome);
    if (!outcome)
        return tx_fail(TX_MEMORY, "no memory to hear how it went on the other ranks");
    outcome[comm->rank] = (int32_t)status;
    tx_status shared = tx_comm_share(comm, outcome, sizeof *outcome);
    for (int32_t r = 0; r < comm->size && !status && !shared; r++)
        if (outcome[r])
            status = tx_fail((tx_status)outcome[r], "rank %" PRId32 " could not %s", r, what);
    free(outcome);
    return status ? status : shared;
}

/* ---- Room -------------------------------------------------------------------------------------------- */

/* Checkpoints that the run writes behind `step`; no more than that where only the best are saved. */
static int64_t count_saves(const tx_run_options *o, int64_t step, int64_t epoch_steps)
{
    const bool best = o->saving == TX_STRATEGY_BEST;
    const tx_strategy when = best ? o->evaluation : o->saving;
    const int64_t steps = best ? o->eval_steps : o->save_steps, end = o->schedule.total_steps;
    const int64_t every = when == TX_STRATEGY_STEPS ? steps : when == TX_STRATEGY_EPOCH ? epoch_steps : 0;
    return every && step < end ? end / every - step / every + (end % every != 0) : 0;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Half of what can be counted where it is more. */
static int64_t bytes_of(int64_t count, int64_t each)
{
    const int64_t most = INT64_MAX / 2;
    return count > 0 && each > most / count ? most : count * each;
}

tx_status tx_run_check_room(const tx_run_options *o, int64_t step, int64_t epoch_steps, int64_t model_bytes)
{
    const int64_t saves = count_saves(o, step, epoch_steps);
    int64_t there = 0;
    tx_status status = tx_checkpoint_count(o->output_dir, &there);
    if (status)
        return status;
    /* How many there will be besides those: at most at a time, and at the end. Without a limit older ones may be moved
     * away by others while the run goes on: two are certain. */
    int64_t most = least_of(saves, 2), end = most;
    if (o->save_total_limit) {
        const bool best = o->validation && o->evaluation; /* is kept besides the newest */
        const int64_t keep = best && o->save_total_limit == 1 ? 2 : o->save_total_limit;
        most = least_of(saves, (there < keep ? keep - there : 0) + 1);
        end = saves ? least_of(saves, keep - there) : 0;
    }
    const int64_t saving = bytes_of(most, o->checkpoint_bytes);
    const int64_t ending = bytes_of(end, o->checkpoint_bytes) + model_bytes;
    status = tx_disk_check(o->output_dir, saving > ending ? saving : ending);
    return status ? tx_fail_in(status, "no room for the run's checkpoints and its model") : TX_OK;
}

/* ---- Going on ---------------------------------------------------------------------------------------- */

tx_status tx_run_resume(tx_model *model, tx_trainer *trainer, const tx_run_state *state, const char *checkpoint,
                        const char *output_dir)
{
    char *path = tx_path_join(checkpoint, TX_RUN_OPTIMIZER);
    tx_status status = path ? tx_optimizer_load(model, path) : TX_MEMORY;
    free(path);
    tx_results results = {0};
    results.value[TX_RESULT_UPDATES] = (float)state->updates;
    results.value[TX_RESULT_SKIPPED] = (float)state->skipped;
    if (!status)
        status = tx_model_restore(model, &results);
    tx_trainer_set_steps(trainer, state->step);
    return status || !output_dir ? status : copy_file(checkpoint, output_dir, TX_RUN_LOG);
}
