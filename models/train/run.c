/* SPDX-License-Identifier: Apache-2.0
 * The training loop. */
#include "models/train/running.h"

#include "models/files/folder.h"
#include "models/train/outer.h"
#include "models/train/rollout.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- Evaluation and checkpoints --------------------------------------------------------------------- */

/* Evaluates. `*best` is whether the evaluation is the best so far; pass NULL before the first step. */
static tx_status evaluate(tx_running *r, bool *best)
{
    tx_run_evaluation e = {.step = r->state->step, .epoch = r->state->epoch};
    tx_status status = tx_run_evaluate(r->trainer, &r->options->validation, r->options->watch, &e);
    r->unread = status == TX_IO || status == TX_FORMAT;
    TX_THEN(status, tx_running_evaluated(r, &e));
    if (!status && best)
        *best = tx_running_judge(r, &e);
    return status;
}

/* Handles a checkpoint of `step` that could not be written: as --on_save_error says. */
static tx_status judge_save(tx_running *r, int64_t step, tx_status status)
{
    const tx_run_options *o = r->options;
    if (!status)
        return TX_OK;
    if (o->set->on_save_error == TX_SAVE_ERROR_STOP || r->summary->stopped)
        return tx_fail_in(status, "checkpoint of step %" PRId64, step);
    r->summary->unsaved++;
    snprintf(r->summary->unsaved_why, sizeof r->summary->unsaved_why, "step %" PRId64 ": %.500s", step, tx_error());
    if (r->speaks)
        tx_reporter_print(&o->report, "checkpoint of step %" PRId64 " was not written: %.400s; training continues",
                          step, tx_error());
    return TX_OK;
}

/* Waits for the checkpoint that was begun. All ranks call it. */
static tx_status await_save(tx_running *r)
{
    const int64_t step = r->committing.step;
    const double began = tx_now();
    const tx_status status = tx_running_commit(r, true);
    r->summary->saving += tx_now() - began;
    return judge_save(r, step, status);
}

/* Begins a checkpoint. It is complete after the next await_save(). */
static tx_status save(tx_running *r)
{
    const tx_run_options *o = r->options;
    if (!o->set->output_dir || r->saved == r->state->step)
        return TX_OK;
    TX_TRY(await_save(r));
    const double began = tx_now();
    const bool removed = r->log.file && !tx_file_exists(r->log.path);
    tx_status status = tx_trainer_average(r->trainer, true);
    TX_THEN(status, tx_running_save(r));
    if (removed && tx_is_folder(o->set->output_dir)) {
        const char *path = r->log.path;
        tx_log_close(&r->log);
        tx_log_open(&r->log, path, true, &o->report);
    }
    r->summary->saving += tx_now() - began;
    return judge_save(r, r->state->step, status);
}

/* Ends a run that has no data for its next step: saves the last complete step and adds it to the message. With several
 * ranks, the others may be in the middle of a step; then nothing is saved. */
static tx_status end_unread(tx_running *r, tx_status status)
{
    const tx_run_options *o = r->options;
    char reason[2048];
    if (r->comm && r->comm->size > 1 && !r->together)
        return status;
    snprintf(reason, sizeof reason, "%s", tx_error());
    tx_status saved = tx_running_take(r);
    const int64_t step = r->state->step;
    const bool saves = o->set->output_dir && step > 0 && r->saved != step;
    if (!saved)
        saved = tx_model_wait(r->model);
    TX_THEN(saved, tx_trainer_average(r->trainer, true));
    TX_THEN(saved, await_save(r));
    if (!saved && saves) {
        saved = tx_running_save(r);
        TX_THEN(saved, tx_running_commit(r, true));
    }
    if (saved)
        return tx_fail(status, "%s; stopped after step %" PRId64 ", which could not be saved: %s", reason, step,
                       tx_error());
    return tx_fail(status, "%s; stopped after step %" PRId64 "%s", reason, step,
                   o->set->output_dir && step > 0 ? ", which is saved" : "");
}

static bool evaluates_after(const tx_run_options *o, const tx_pending *p, bool end)
{
    const tx_job_settings *set = o->set;
    const int64_t every = o->facts.eval_steps;
    const double passed = set->evaluation == TX_STRATEGY_EPOCH ? p->epoch : (double)p->step;
    return o->validation.count && passed >= set->eval_delay &&
           (tx_running_due(set->evaluation, every, p) || (end && set->evaluation == TX_STRATEGY_STEPS && every));
}

/* Evaluates and saves if due after a step. Both first wait for the results of the step. */
static tx_status after(tx_running *r, const tx_pending *p)
{
    const tx_run_options *o = r->options;
    const int32_t saving = o->set->saving;
    const int64_t every = o->facts.save_steps;
    bool end = p->step == o->schedule.total_steps, best = false;
    const bool evaluates = evaluates_after(o, p, end) || r->evaluation_due;
    bool saves = tx_running_save_requested(r) || r->save_due;
    saves = saves || tx_running_due(saving, every, p) || (end && saving == TX_STRATEGY_STEPS && every);
    const bool waits = r->outer && !r->synchronized;
    r->evaluation_due = waits && evaluates;
    r->save_due = waits && saves;
    if (waits || (!evaluates && !saves))
        return TX_OK;
    tx_status status = tx_running_take(r);
    TX_THEN(status, tx_model_wait(r->model));
    if (evaluates)
        TX_THEN(status, evaluate(r, &best));
    if (saves || (best && saving == TX_STRATEGY_BEST))
        TX_THEN(status, save(r));
    tx_watchdog_begin(o->watch, TX_WATCHDOG_TRAINING);
    return status;
}

/* ---- A step ------------------------------------------------------------------------------------------ */

/* The learning rate of a step, and its rate if the pending step before it skips its update. */
static void find_rates(const tx_running *r, int64_t step, double rates[2])
{
    const tx_schedule *s = &r->options->schedule;
    const int64_t place = step - r->state->held;
    const bool follows = tx_schedule_adapts(s) && r->state->schedule.rate > 0.0;
    rates[0] = follows ? r->state->schedule.rate : tx_schedule_rate(s, place);
    rates[1] = follows ? rates[0] : tx_schedule_rate(s, place > 0 ? place - 1 : 0);
}

/* Makes the rows of the next step, with the weights after all steps before it. */
static tx_status roll_out(tx_running *r)
{
    TX_TRY(tx_running_take(r));
    TX_TRY(tx_model_wait(r->model));
    const tx_status status = tx_rollout_begin(r->rollout, r->state->step);
    r->together = status != TX_OK;
    return status;
}

/* Submits the step of the next batch to the device. */
static tx_status submit(tx_running *r, tx_pending *given)
{
    const tx_run_options *o = r->options;
    double begin = tx_now();
    const tx_step_batch *b = NULL;
    tx_status status = r->rollout ? roll_out(r) : TX_OK;
    TX_THEN(status, tx_loader_next(r->loader, &b));
    r->unread = status != TX_OK;
    TX_TRY(status);
    double rates[2];
    find_rates(r, b->step, rates);
    if (tx_running_skips_schedule(r))
        TX_TRY(tx_trainer_hold_rate(r->trainer, rates[1], r->state->skipped));
    TX_TRY(tx_trainer_step(r->trainer, &b->batch, b->labels, rates[0]));
    int64_t step = b->step + 1;
    *given = (tx_pending){
        .any = true,
        .ends_epoch = step % r->epoch_steps == 0 || step == o->schedule.total_steps,
        .step = step,
        .epoch = b->passed,
        .rate = rates[0],
        .held_rate = rates[1],
        .skipped = r->state->skipped,
        .waited = b->waited,
        .seconds = tx_now() - begin,
        .rows = b->rows,
        .tokens = b->tokens,
        .padded_tokens =
            b->rows * tx_task_sequences(r->options->train.task) * tx_trainer_positions(r->trainer, &b->batch),
    };
    return TX_OK;
}

/* Adds the traffic since `begin` to the summary. */
static tx_status add_traffic(tx_running *r, const tx_traffic *begin)
{
    tx_traffic end, *sum = &r->summary->traffic;
    TX_TRY(tx_engine_traffic(r->engine, &end));
    sum->to_device += end.to_device - begin->to_device;
    sum->from_device += end.from_device - begin->from_device;
    sum->transfers += end.transfers - begin->transfers;
    sum->launches += end.launches - begin->launches;
    r->summary->measured_steps++;
    return TX_OK;
}

/* ---- The loop --------------------------------------------------------------------------------------- */

/* One iteration of the loop: submits a step, and fetches the results of the step before. */
static tx_status iterate(tx_running *r, bool first)
{
    tx_traffic begin;
    tx_pending pending;
    TX_TRY(tx_engine_traffic(r->engine, &begin));
    tx_running_poll_save(r);
    if (r->pace)
        TX_TRY(tx_pace_begin(r->pace, r->model));
    TX_TRY(submit(r, &pending));
    TX_TRY(tx_running_take(r));
    if (!first)
        TX_TRY(add_traffic(r, &begin));
    r->late = pending;
    if (first && r->options->set->profile) {
        /* The first run also compiles and packs, so it is not part of the profile. */
        TX_TRY(tx_running_take(r));
        TX_TRY(tx_trainer_profile(r->trainer));
    }
    TX_TRY(tx_running_synchronize(r, pending.step));
    TX_TRY(tx_running_keep_pace(r, pending.step));
    tx_watchdog_step(r->options->watch, pending.step);
    return after(r, &pending);
}

static tx_status loop(tx_running *r)
{
    const tx_run_options *o = r->options;
    tx_traffic first = {0}, last;
    tx_status status = TX_OK;
    int64_t begin = r->state->step, step = begin;
    if (o->set->eval_first && o->validation.count && step < o->schedule.total_steps)
        status = evaluate(r, NULL);
    tx_watchdog_begin(o->watch, TX_WATCHDOG_TRAINING);
    for (; step < o->schedule.total_steps && !status && !r->summary->stopped && !r->enough; step++) {
        if (step == begin + 1)
            status = tx_engine_traffic(r->engine, &first);
        TX_THEN(status, iterate(r, step == begin));
        if (!status)
            r->summary->stopped = tx_running_stop(r);
    }
    TX_THEN(status, tx_running_take(r));
    TX_THEN(status, tx_model_wait(r->model));
    TX_THEN(status, tx_trainer_average(r->trainer, true));
    if (!status && r->summary->stopped)
        status = save(r);
    TX_THEN(status, await_save(r));
    if (status)
        status = tx_running_rescue(r, status);
    if (status && r->unread)
        status = end_unread(r, status);
    if (status) { /* the checkpoint that was begun is good, though the other ranks may not be there any more */
        char reason[2048];
        snprintf(reason, sizeof reason, "%s", tx_error());
        (void)tx_running_commit(r, false);
        tx_fail(status, "%s", reason);
    }
    if (!status && step > begin + 1) {
        status = tx_engine_traffic(r->engine, &last);
        r->summary->traffic.allocations = last.allocations - first.allocations;
    }
    return status;
}

static tx_status check(const tx_run_options *o, const tx_trainer *trainer)
{
    const tx_trainer_options *t = tx_trainer_options_of(trainer);
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "run: the options' size field is %zu, expected %zu", o->size, sizeof *o);
    if (o->schedule.total_steps < 1 || o->set->max_bad_steps < 1 || (o->validation.count && !t->eval_batch) ||
        (o->set->output_dir && !o->write))
        return tx_fail(TX_INVALID, "run: no steps, no plan for the evaluation, or no function that writes the model");
    if (o->best_metric && tx_task_metric(t->task, o->best_metric) < 0)
        return tx_fail(TX_INVALID, "run: %s has no metric %s", t->task->name, o->best_metric);
    TX_TRY(tx_trainer_check_samples(t, &o->train));
    return o->validation.count ? tx_trainer_check_samples(t, &o->validation) : TX_OK;
}

static tx_status start(tx_running *r, const char *log_path)
{
    const tx_run_options *o = r->options;
    const tx_trainer_options *t = tx_trainer_options_of(r->trainer);
    if (o->train.task->generates) {
        const tx_status status = tx_rollout_create(r->trainer, o, &r->rollout);
        TX_TRY(r->comm ? tx_comm_agree(r->comm, status, "open its rewards") : status);
    }
    r->state->rollout = r->rollout;
    TX_TRY(tx_running_load(r, r->state->step));
    const tx_pace_ranks ranks = {r->data, t->parallel.shards, t->parallel.replicate};
    if (r->comm && r->comm->size > 1)
        TX_TRY(tx_pace_create(&ranks, (tx_overlap)o->set->overlap, o->balance, t->batch, t->all_rows, &r->pace));
    if (t->across)
        TX_TRY(tx_outer_create(r->model, t->across, o->set, o->checkpoint, &r->outer));
    tx_log_open(&r->log, log_path, r->state->step > 0, &o->report);
    return tx_running_keep(r);
}

tx_status tx_run(tx_engine *engine, tx_model *model, tx_trainer *trainer, const tx_run_options *options,
                 tx_run_state *state, tx_run_summary *summary)
{
    *summary = (tx_run_summary){.loss = (double)NAN, .mean_loss = (double)NAN};
    TX_TRY(check(options, trainer));
    tx_running r = {
        .engine = engine,
        .model = model,
        .trainer = trainer,
        .options = options,
        .state = state,
        .summary = summary,
        .saved = state->step > 0 ? state->step : -1,
        .comm = options->comm ? options->comm : tx_trainer_options_of(trainer)->comm,
        .data = tx_trainer_options_of(trainer)->comm,
    };
    r.speaks = !r.comm || r.comm->rank == 0;
    r.listener = options->listener;
    if (!r.speaks)
        r.listener = (tx_job_listener){.context = r.listener.context, .stop = r.listener.stop, .save = r.listener.save};
    tx_trainer_ask(trainer, tx_running_vote, &r);
    const char *output = options->set->output_dir;
    const char *log_path = r.speaks && output ? TX_PATH(output, TX_RUN_LOG) : NULL;
    double begin = tx_now();
    tx_status status = start(&r, log_path);
    TX_THEN(status, loop(&r));
    summary->wall = tx_now() - begin;
    tx_log_close(&r.log);
    tx_running_keep_end(&r);
    tx_loader_free(r.loader);
    tx_pace_free(r.pace);
    tx_outer_free(r.outer);
    tx_rollout_free(r.rollout);
    tx_stage_free(r.stage);
    state->rollout = NULL;
    return status;
}
