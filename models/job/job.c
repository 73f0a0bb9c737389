/* SPDX-License-Identifier: Apache-2.0
 * A whole run: joins the ranks, reads the inputs, compiles, trains, evaluates and writes the results. Programs call it
 * through tx_train.h. */
#include "models/job/inputs.h"
#include "models/job/plans.h"
#include "models/job/ranks.h"
#include "models/job/results.h"

#include "api/base/needs.h"
#include "models/lora/lora.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The job -------------------------------------------------------------------------------------------- */

tx_status tx_job_create(tx_job **job)
{
    TX_NEEDS(job, TX_INVALID);
    tx_job *j = calloc(1, sizeof *j);
    if (!j)
        return tx_fail(TX_MEMORY, "no memory for a job");
    j->set = tx_job_defaults;
    j->options = (tx_option_values){.table = tx_job_table, .values = &j->set};
    j->report = tx_job_reporter(j);
    *job = j;
    return TX_OK;
}

void tx_job_free(tx_job *j)
{
    if (!j)
        return;
    tx_events_close(&j->events);
    tx_json_free(j->config);
    tx_output_lock_release(j->lock);
    tx_trainer_free(j->trainer);
    tx_model_free(j->model);
    tx_engine_free(j->engine);
    tx_job_release(&j->inputs);
    free(j->rows_text);
    free(j->stage_blocks);
    free(j->kept);
    free(j->notes);
    free(j->inherited);
    tx_comm_close(j->comm);
    tx_watchdog_stop(j->watch);
    tx_option_values_free(&j->options);
    free(j);
}

tx_status tx_job_set(tx_job *j, const char *name, const char *value)
{
    TX_NEEDS(j && name && value, TX_INVALID);
    return tx_option_set(&j->options, name, value);
}

tx_status tx_job_read(tx_job *j, const char *path)
{
    TX_NEEDS(j && path, TX_INVALID);
    return tx_option_read(&j->options, path);
}

tx_status tx_job_listen(tx_job *j, const tx_job_listener *listener)
{
    TX_NEEDS(j && listener, TX_INVALID);
    if (listener->size != sizeof *listener)
        return tx_fail(TX_INVALID, "tx_job_listen: the listener's size field is %zu, expected %zu", listener->size,
                       sizeof *listener);
    j->listener = *listener;
    return TX_OK;
}

int tx_job_stopped(const tx_job *j)
{
    TX_NEEDS(j, 0);
    return j->summary.stopped;
}

int64_t tx_job_step(const tx_job *j, int64_t *steps)
{
    TX_NEEDS(j && steps, 0);
    *steps = j->steps;
    return j->inputs.state.step;
}

tx_status tx_job_result(const tx_job *j, const char *name, double *value)
{
    TX_NEEDS(j && name && value, TX_INVALID);
    for (int32_t i = 0; i < j->result_count; i++)
        if (strcmp(j->results[i].name, name) == 0) {
            *value = j->results[i].value;
            return TX_OK;
        }
    return tx_fail(TX_NOT_FOUND, "%s: the run has no such result", name);
}

/* ---- Ranks ---------------------------------------------------------------------------------------------- */

tx_status tx_job_join(tx_job *j)
{
    TX_NEEDS(j, TX_INVALID);
    tx_watchdog_options watch = {.size = sizeof watch,
                                 .program = "txtrain",
                                 .advice = "start again with --resume_from_checkpoint",
                                 .timeout = j->set.comm_timeout,
                                 .join = j->set.start_timeout};
    /* The first listing of devices starts a child process, which is unsafe next to a thread that is starting and once
     * MPI has registered memory. */
    int32_t devices;
    if (!j->comm && tx_launcher_ranks(NULL) > 1)
        TX_TRY(tx_device_count(&devices));
    if (!j->watch)
        TX_TRY(tx_watchdog_start(&watch, &j->watch));
    if (j->comm)
        return TX_OK;
    TX_TRY(tx_comm_open(NULL, NULL, &j->comm));
    return tx_watchdog_join(j->watch, j->comm);
}

int32_t tx_job_rank(const tx_job *j, int32_t *ranks)
{
    TX_NEEDS(j && ranks, 0);
    *ranks = j->comm ? j->comm->size : 1;
    return j->comm ? j->comm->rank : 0;
}

/* Other ranks wait here for rank 0, and then find its cache and its lock. */
static tx_status wait_for_ranks(tx_job *j)
{
    return tx_comm_collect(j->comm, TX_BARRIER, NULL, 0, TX_F32, 0);
}

void tx_job_refuse(tx_job *j, int status)
{
    TX_NEEDS(j, );
    if (tx_launcher_ranks(NULL) <= 1 && !getenv("TX_LAUNCH"))
        return;
    if (tx_job_join(j) == TX_OK && j->comm->size > 1)
        tx_job_agree_on_options(j, status);
    if (status)
        tx_watchdog_failed(j->watch, status, tx_error());
    else
        tx_watchdog_done(j->watch);
}

void tx_job_leave(const tx_job *j)
{
    TX_NEEDS(j, );
    if (j->comm && j->comm->table->leave)
        j->comm->table->leave();
}

/* ---- Preparation ---------------------------------------------------------------------------------------- */

static tx_status count_steps(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    if (!j->inputs.train.count)
        return TX_OK;
    const int64_t used = tx_loader_used(j->inputs.train.count, j->all_rows, set->drop_last);
    if (!used)
        return tx_fail(TX_INVALID,
                       "--dataloader_drop_last drops all data: %" PRId64
                       " blocks do not fill a micro-batch of %" PRId64,
                       j->inputs.train.count, j->all_rows);
    j->epoch_steps = tx_loader_epoch_steps(used, j->step_rows);
    const double steps = set->max_steps > 0 ? (double)set->max_steps : ceil(set->epochs * (double)j->epoch_steps);
    if (!(steps <= (double)UINT32_MAX))
        return tx_fail(TX_INVALID, "%.0f steps are too many: set --max_steps", steps);
    j->steps = (int64_t)steps;
    tx_job_note(j, "plan    %" PRId64 " step%s an epoch, %" PRId64 " step%s in all", j->epoch_steps,
                tx_s(j->epoch_steps), j->steps, tx_s(j->steps));
    return TX_OK;
}

/* Rank 0 goes first: it locks output_dir and writes the token cache, which the other ranks read. */
static tx_status read_inputs(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    const bool first = tx_job_leads(j);
    tx_watchdog_begin(j->watch, TX_WATCHDOG_READING);
    TX_TRY(tx_job_bind_rank(j));
    if (!first)
        TX_TRY(wait_for_ranks(j));
    if (first && !set->dry_run && !set->overwrite && !set->resume && tx_job_trains(set))
        TX_TRY(tx_output_check(set->output_dir));
    /* The lock comes before the search for checkpoints: an interrupted save may have renamed one, and another process
     * may remove some. */
    if (!set->dry_run && set->resume && tx_is_folder(set->output_dir))
        TX_TRY(tx_job_open_output(j));
    TX_TRY(tx_job_open(j));
    if (first)
        TX_TRY(wait_for_ranks(j));
    TX_TRY(tx_job_share_warnings(j));
    return j->comm->size > 1 ? tx_job_agree_on_inputs(j) : TX_OK;
}

static tx_status prepare(tx_job *j)
{
    TX_TRY(read_inputs(j));
    if (j->set.parallel == TX_JOB_PARALLEL_AUTO) {
        TX_TRY(tx_job_open_device(j));
        TX_TRY(tx_job_choose_split(j));
    }
    TX_TRY(tx_job_split(j));
    TX_TRY(tx_job_plan_rollouts(j));
    TX_TRY(count_steps(j));
    tx_watchdog_begin(j->watch, TX_WATCHDOG_COMPILING);
    TX_TRY(tx_job_open_device(j));
    TX_TRY(tx_job_compile_to_fit(j));
    TX_TRY(tx_job_check_rows(j));
    TX_TRY(tx_job_agree_on_kernels(j));
    tx_job_note_adapter(j);
    tx_job_note_shares(j);
    tx_job_report_unused(j);
    return TX_OK;
}

/* ---- Training ------------------------------------------------------------------------------------------- */

/* Restores the states of the checkpoint if it matches this run, which `description` describes. */
static tx_status restore(tx_job *j, const tx_json *description)
{
    tx_job_inputs *in = &j->inputs;
    TX_TRY(tx_job_agree_with_checkpoint(j, description));
    tx_job_judge_anew(j, description);
    const char *output = tx_job_leads(j) && !tx_job_is_over(j) ? j->set.output_dir : NULL;
    TX_TRY(tx_job_explain_states(j, tx_run_resume(j->model, j->trainer, &in->state, in->checkpoint, output)));
    tx_job_find_best(j);
    return TX_OK;
}

/* Compares the description of the run with those of the other ranks and of the checkpoint, and resumes. */
static tx_status resume(tx_job *j)
{
    tx_job_inputs *in = &j->inputs;
    tx_json *description = NULL;
    TX_TRY(tx_job_describe(j, &description));
    tx_status status = tx_job_agree_on_run(j, description);
    if (in->checkpoint)
        TX_THEN(status, restore(j, description));
    tx_json_free(status ? description : in->state.run);
    in->state.run = status ? in->state.run : description;
    return status;
}

/* Everything that can fail before the first step. */
static tx_status begin(tx_job *j, tx_run_options *run)
{
    TX_TRY(tx_job_make_run(j, run));
    TX_TRY(resume(j));
    if (tx_job_leads(j))
        TX_TRY(tx_job_check_room(j, run));
    if (tx_job_leads(j) && j->set.dump_order)
        TX_TRY(tx_job_dump_order(j));
    if (j->listener.begin)
        j->listener.begin(j->listener.context);
    const tx_status status = tx_job_share_warnings(j);
    tx_job_print_warnings(j);
    return status;
}

/* Writes the model, the history and the results after the last step. */
static tx_status end(tx_job *j, const tx_run_options *run)
{
    const tx_run_summary *s = &j->summary;
    const char *folder = j->set.output_dir;
    if (s->unsaved)
        tx_job_note_missing(j, "%" PRId64 " %s not written, the last of %s", s->unsaved,
                            s->unsaved == 1 ? "checkpoint was" : "checkpoints were", s->unsaved_why);
    tx_watchdog_begin(j->watch, TX_WATCHDOG_WRITING);
    TX_TRY(tx_job_load_best(j));
    TX_TRY(tx_job_log_training(j));
    TX_TRY(tx_job_write_model(j, folder));
    if (!tx_job_leads(j))
        return TX_OK;
    tx_job_note(j, "saved   %s: %s, config.json%s", folder,
                j->inputs.config->lora ? TX_LORA_CONFIG ", " TX_LORA_WEIGHTS : TX_WEIGHTS_SINGLE,
                j->inputs.tokenizer ? ", tokenizer" : "");
    TX_TRY(tx_run_state_write_trainer(&j->inputs.state, &run->facts, folder, folder));
    return tx_job_report_training(j);
}

/* Resumes a complete run: its files do not change, and it evaluates only if the options request it again. If the model
 * was not written, it is written now. */
static tx_status end_again(tx_job *j, const tx_run_options *run)
{
    const tx_job_inputs *in = &j->inputs;
    const char *folder = j->set.output_dir;
    bool written = false;
    TX_TRY(tx_job_is_written(j, &written));
    j->summary = (tx_run_summary){.loss = (double)NAN, .mean_loss = (double)NAN};
    j->already_complete = written && !tx_job_evaluates_at_end(j);
    tx_job_note(j, "already complete: %s is after step %" PRId64 " of %" PRId64 "%s; %s %s", in->checkpoint,
                in->state.step, j->steps, in->state.step < j->steps ? " (early stopping)" : "",
                j->already_complete ? "nothing changes in"
                : written           ? "only its evaluations change in"
                                    : "the model is written to",
                folder);
    if (!written)
        return end(j, run);
    return j->already_complete ? TX_OK : tx_job_load_best(j);
}

static tx_status train(tx_job *j)
{
    const tx_run_summary *s = &j->summary;
    tx_run_options run;
    TX_TRY(begin(j, &run));
    if (tx_job_is_over(j))
        return end_again(j, &run);
    TX_TRY(tx_run(j->engine, j->model, j->trainer, &run, &j->inputs.state, &j->summary));
    char padded[64] = "";
    if (s->padded_tokens != s->tokens)
        snprintf(padded, sizeof padded, " (%" PRId64 " with padding)", s->padded_tokens);
    tx_job_note(j,
                "trained %" PRId64 " step%s, %" PRId64 " token%s%s, %.1f s, %.0f tokens/s, waited %.1f s for data, "
                "last loss %.4f",
                s->steps, tx_s(s->steps), s->tokens, tx_s(s->tokens), padded, s->seconds,
                s->seconds > 0 ? (double)s->tokens / s->seconds : 0.0, s->waited, s->loss);
    return s->stopped ? TX_OK : end(j, &run);
}

static tx_status evaluate(tx_job *j)
{
    tx_run_evaluation e = {.step = j->inputs.state.step, .epoch = j->inputs.state.epoch};
    TX_TRY(tx_run_evaluate(j->trainer, &j->inputs.validation, j->watch, &e));
    return tx_job_report_evaluation(j, &e);
}

/* Trains, evaluates, predicts and writes the model card. A stopped run ends with its checkpoint. No rank returns before
 * rank 0 has written everything. */
static tx_status work(tx_job *j)
{
    if (!j->lock)
        TX_TRY(tx_job_open_output(j));
    TX_TRY(tx_job_load_weights(j));
    if (!tx_job_is_over(j))
        TX_TRY(tx_job_open_events(j));
    if (j->inputs.train.count)
        TX_TRY(train(j));
    if (j->summary.stopped)
        return TX_OK;
    if (j->inputs.validation.count && !j->already_complete)
        TX_TRY(evaluate(j));
    if (j->inputs.test.count && !j->already_complete)
        TX_TRY(tx_job_predict(j));
    TX_TRY(tx_job_write_card(j));
    TX_TRY(wait_for_ranks(j));
    tx_job_note_next(j);
    return TX_OK;
}

/* Fails with the collected errors of a run that is otherwise complete. */
static tx_status finish(tx_job *j)
{
    j->complete = !j->summary.stopped;
    return j->missing[0] ? tx_fail(TX_IO, "%s; the final model is in %s", j->missing, j->set.output_dir) : TX_OK;
}

tx_status tx_job_run(tx_job *j)
{
    TX_NEEDS(j, TX_INVALID);
    enum { FAILED = 1, SIGNAL = 128 }; /* exit statuses, as in a shell */
    if (j->runs)
        return tx_fail(TX_INVALID, "tx_job_run: a job runs once");
    j->runs = true;
    tx_status status = tx_job_join(j);
    TX_THEN(status, tx_job_resolve(j));
    if (j->notes)
        tx_job_note(j, "%s", j->notes);
    if (!status && j->comm->size > 1)
        status = tx_job_agree_on_options(j, TX_JOB_RUNS);
    TX_THEN(status, tx_job_make_groups(j));
    TX_THEN(status, prepare(j));
    if (!status && !j->set.dry_run)
        status = work(j);
    TX_THEN(status, finish(j));
    tx_events_close(&j->events);
    if (j->complete)
        tx_watchdog_done(j->watch);
    else if (status || j->summary.stopped)
        tx_watchdog_failed(j->watch, status ? FAILED : SIGNAL + j->summary.stopped, status ? tx_error() : "");
    return status;
}
