/* SPDX-License-Identifier: Apache-2.0
 * The loop of a training run. */
#include "models/train/run.h"

#include "api/clock.h"
#include "api/file.h"
#include "comm/comm.h"
#include "models/train/log.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>

/* A step that was given to the device and whose results are still to come. */
typedef struct pending {
    bool any, ends_epoch;
    int64_t step;
    double epoch, rate, waited, seconds; /* seconds: the host's share of the step */
    int64_t tokens;
} pending;

typedef struct run {
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    const tx_run_options *options;
    tx_run_state *state;
    tx_run_summary *summary;
    tx_comm *comm; /* NULL: one rank */
    bool speaks;   /* the rank that writes log and checkpoints */
    tx_pace *pace; /* of many ranks */
    tx_loader *loader;
    tx_log log;
    pending late;
    int64_t epoch_steps;
    int64_t saved; /* step of the last checkpoint */
    int64_t timed_steps;
    double timed_seconds; /* of the steps after the first, which compiles and warms up */
    double loss_sum;      /* of this call's steps */
} run;

/* ---- Results ---------------------------------------------------------------------------------------- */

static void write_step(run *r, const tx_run_step *s)
{
    char n[6][TX_LOG_NUMBER];
    tx_log_line(&r->log,
                "{\"step\": %" PRId64 ", \"epoch\": %s, \"loss\": %s, \"grad_norm\": %s, \"learning_rate\": %s, "
                "\"tokens\": %" PRId64 ", \"tokens_per_second\": %s, \"waited\": %s}",
                s->step, tx_log_number(s->epoch, n[0]), tx_log_number(s->loss, n[1]), tx_log_number(s->grad_norm, n[2]),
                tx_log_number(s->learning_rate, n[3]), s->tokens, tx_log_number(s->tokens_per_second, n[4]),
                tx_log_number(s->waited, n[5]));
}

/* Counts and tells steps whose numbers are not finite; fails after too many in a row. */
static tx_status judge(run *r, const tx_run_step *s, bool finite)
{
    tx_run_state *state = r->state;
    if (finite && isfinite(s->loss)) {
        state->bad = 0;
        return TX_OK;
    }
    state->bad++;
    char message[256], n[2][TX_LOG_NUMBER];
    snprintf(message, sizeof message,
             "step %" PRId64 ": loss %s, gradient norm %s: %s (%" PRId64 " in a row, %" PRId64 " skipped so far)",
             s->step, tx_log_number(s->loss, n[0]), tx_log_number(s->grad_norm, n[1]),
             finite ? "the loss is not finite" : "the update is skipped", state->bad, state->skipped);
    tx_report(&r->options->report, message);
    if (state->bad < r->options->max_bad_steps)
        return TX_OK;
    char checkpoint[64] = "there is no checkpoint yet";
    if (r->saved > 0)
        snprintf(checkpoint, sizeof checkpoint, "the last good checkpoint is checkpoint-%" PRId64, r->saved);
    return tx_fail(
        TX_INVALID,
        "stopped after step %" PRId64 ": the loss or its gradient was not finite %" PRId64
        " times in a row; lower the learning rate or max_grad_norm, warm up longer, or look into the data; %s",
        s->step, state->bad, checkpoint);
}

/* A point of the history. */
static tx_status log_point(run *r, const tx_run_step *s)
{
    tx_run_state *state = r->state;
    double loss = state->loss_sum / (double)(state->step - state->logged);
    tx_status status = tx_run_state_log(state, "loss", loss, "grad_norm", s->grad_norm, "learning_rate",
                                        s->learning_rate, (const char *)NULL);
    state->loss_sum = 0.0;
    state->logged = state->step;
    const tx_run_listener *listener = &r->options->listener;
    if (!status && listener->log)
        listener->log(listener->context, s, loss);
    return status;
}

static bool is_due(tx_strategy strategy, int64_t every, const pending *p)
{
    return (strategy == TX_STRATEGY_STEPS && every && p->step % every == 0) ||
           (strategy == TX_STRATEGY_EPOCH && p->ends_epoch);
}

/* Enters a step's results into state and summary. */
static void account(run *r, const pending *p, const tx_results *results, double seconds)
{
    tx_run_state *state = r->state;
    tx_run_summary *sum = r->summary;
    double loss = (double)results->value[TX_RESULT_LOSS];
    state->step = p->step;
    state->epoch = p->epoch;
    state->tokens += p->tokens;
    state->flops += r->options->flops_per_token * (double)p->tokens;
    state->loss_sum += loss;
    state->updates = (int64_t)results->value[TX_RESULT_UPDATES];
    state->skipped = (int64_t)results->value[TX_RESULT_SKIPPED];
    sum->steps++;
    sum->tokens += p->tokens;
    sum->seconds += seconds;
    sum->waited += p->waited;
    sum->loss = loss;
    r->loss_sum += loss;
    sum->mean_loss = r->loss_sum / (double)sum->steps;
    if (sum->steps > 1) {
        r->timed_seconds += seconds;
        r->timed_steps++;
    }
}

/* Takes the results of the pending step, waiting for the device if need be, and reports them. */
static tx_status take(run *r)
{
    if (!r->late.any)
        return TX_OK;
    const pending p = r->late;
    r->late.any = false;
    tx_results results;
    double begin = tx_now();
    tx_status status = tx_trainer_results(r->trainer, &results);
    if (status)
        return status;
    /* The time of a step is what the host spends in giving it plus what it waits for the results: that holds for a
     * backend that works while it is called and for one that works on its own. */
    double seconds = p.seconds + (tx_now() - begin);
    account(r, &p, &results, seconds);
    const tx_run_options *o = r->options;
    int64_t left = o->schedule.total_steps - p.step;
    tx_run_step s = {
        .step = p.step,
        .steps = o->schedule.total_steps,
        .epoch = p.epoch,
        .loss = r->summary->loss,
        .grad_norm = (double)results.value[TX_RESULT_GRAD_NORM],
        .learning_rate = p.rate,
        .tokens = r->state->tokens,
        .tokens_per_second = seconds > 0.0 ? (double)p.tokens / seconds : 0.0,
        .waited = p.waited,
        .seconds_left =
            r->timed_steps ? (double)left * r->timed_seconds / (double)r->timed_steps : (double)left * seconds,
    };
    write_step(r, &s);
    if (o->listener.step)
        o->listener.step(o->listener.context, &s);
    if (is_due(o->logging, o->logging_steps, &p))
        status = log_point(r, &s);
    return status ? status : judge(r, &s, results.value[TX_RESULT_FINITE] != 0.0f);
}

/* ---- Evaluation and checkpoints --------------------------------------------------------------------- */

/* The ranks' losses and labels, added in their order. */
static tx_status add_up(tx_comm *comm, double *sum, int64_t *labels)
{
    struct {
        double sum;
        int64_t labels;
    } *all = calloc((size_t)comm->size, sizeof *all);
    if (!all)
        return tx_fail(TX_MEMORY, "evaluation: out of memory");
    all[comm->rank].sum = *sum;
    all[comm->rank].labels = *labels;
    tx_status status = tx_comm_share(comm, all, sizeof *all);
    *sum = 0.0;
    *labels = 0;
    for (int32_t r = 0; r < comm->size; r++) {
        *sum += all[r].sum;
        *labels += all[r].labels;
    }
    free(all);
    return status;
}

tx_status tx_run_evaluate(tx_trainer *trainer, const tx_dataset *data, tx_run_evaluation *evaluation)
{
    tx_comm *comm = tx_trainer_options_of(trainer)->comm;
    int64_t rows = tx_trainer_options_of(trainer)->eval_batch, blocks = tx_dataset_blocks(data);
    int64_t begin_at = comm ? comm->rank : 0, stride = comm ? comm->size : 1;
    size_t count = (size_t)(rows * tx_dataset_block(data));
    int32_t *tokens = malloc(2 * count * sizeof *tokens);
    if (!tokens)
        return tx_fail(TX_MEMORY, "evaluation: no memory for a batch");
    double sum = 0.0, begin = tx_now();
    int64_t labels = 0;
    tx_order order = {0};
    tx_status status = TX_OK;
    for (int64_t first = begin_at * rows; first < blocks && !status; first += stride * rows) {
        tx_dataset_rows(data, &order, first, rows, tokens, tokens + count);
        status = tx_trainer_evaluate(trainer, tokens, tokens + count, &sum, &labels);
    }
    free(tokens);
    if (!status && comm)
        status = add_up(comm, &sum, &labels);
    if (status)
        return status;
    evaluation->loss = sum / (double)labels;
    evaluation->perplexity = exp(evaluation->loss);
    evaluation->seconds = tx_now() - begin;
    evaluation->samples = blocks;
    evaluation->batches = (blocks + rows - 1) / rows;
    return TX_OK;
}

/* Evaluates, tells, and sets `*best` when it was the best so far. */
static tx_status evaluate(run *r, bool *best)
{
    tx_run_evaluation e = {.step = r->state->step, .epoch = r->state->epoch};
    tx_status status = tx_run_evaluate(r->trainer, r->options->validation, &e);
    if (status)
        return status;
    char n[3][TX_LOG_NUMBER];
    tx_log_line(&r->log, "{\"step\": %" PRId64 ", \"epoch\": %s, \"eval_loss\": %s, \"perplexity\": %s}", e.step,
                tx_log_number(e.epoch, n[0]), tx_log_number(e.loss, n[1]), tx_log_number(e.perplexity, n[2]));
    const tx_run_listener *listener = &r->options->listener;
    if (listener->evaluation)
        listener->evaluation(listener->context, &e);
    *best = tx_run_state_judge(r->state, r->options->perplexity ? e.perplexity : e.loss);
    return tx_run_state_log(r->state, "eval_loss", e.loss, "eval_runtime", e.seconds, "eval_samples_per_second",
                            (double)e.samples / e.seconds, "eval_steps_per_second", (double)e.batches / e.seconds,
                            (const char *)NULL);
}

static tx_status save(run *r)
{
    const tx_run_options *o = r->options;
    if (!o->output_dir || r->saved == r->state->step)
        return TX_OK;
    tx_status status = tx_run_save(r->engine, r->model, r->comm, o, r->state, r->log.file != NULL);
    if (!status) {
        r->saved = r->state->step;
        return TX_OK;
    }
    if (o->stop_on_save_error || r->summary->stopped)
        return tx_fail_in(status, "checkpoint of step %" PRId64, r->state->step);
    char message[512];
    snprintf(message, sizeof message, "checkpoint of step %" PRId64 " was not written: %.400s; training goes on",
             r->state->step, tx_error());
    tx_report(&o->report, message);
    return TX_OK;
}

/* What is due after a step, once its results are there. */
static tx_status after(run *r, const pending *p)
{
    const tx_run_options *o = r->options;
    bool end = p->step == o->schedule.total_steps, best = false;
    bool evaluates = o->validation && (is_due(o->evaluation, o->eval_steps, p) ||
                                       (end && o->evaluation == TX_STRATEGY_STEPS && o->eval_steps));
    bool saves = is_due(o->saving, o->save_steps, p) || (end && o->saving == TX_STRATEGY_STEPS && o->save_steps);
    if (!evaluates && !saves)
        return TX_OK;
    tx_status status = take(r);
    if (!status)
        status = tx_model_settle(r->model);
    if (!status && evaluates)
        status = evaluate(r, &best);
    if (!status && (saves || (best && o->saving == TX_STRATEGY_BEST)))
        status = save(r);
    return status;
}

/* ---- A step ------------------------------------------------------------------------------------------ */

/* Gives the next batch to the device. */
static tx_status give(run *r, pending *given)
{
    const tx_run_options *o = r->options;
    double begin = tx_now();
    const tx_step_batch *b = NULL;
    tx_status status = tx_loader_next(r->loader, &b);
    if (status)
        return status;
    double rate = tx_schedule_rate(&o->schedule, b->step);
    status = tx_trainer_step(r->trainer, b->tokens, b->targets, b->labels, b->micro_batches, rate);
    int64_t step = b->step + 1;
    *given = (pending){
        .any = true,
        .ends_epoch = step % r->epoch_steps == 0 || step == o->schedule.total_steps,
        .step = step,
        .epoch = b->passed,
        .rate = rate,
        .waited = b->waited,
        .seconds = tx_now() - begin,
        .tokens = b->rows * tx_dataset_block(o->train),
    };
    return status;
}

/* Adds the traffic since `begin` to the summary. */
static tx_status add_traffic(run *r, const tx_traffic *begin)
{
    tx_traffic end, *sum = &r->summary->traffic;
    tx_status status = tx_engine_traffic(r->engine, &end);
    if (status)
        return status;
    sum->to_device += end.to_device - begin->to_device;
    sum->from_device += end.from_device - begin->from_device;
    sum->launches += end.launches - begin->launches;
    r->summary->measured_steps++;
    return TX_OK;
}

/* ---- The ranks' pace ----------------------------------------------------------------------------------- */

static void note(const run *r, const char *line)
{
    if (r->options->listener.note)
        r->options->listener.note(r->options->listener.context, line);
}

static tx_status open_loader(run *r, int64_t step)
{
    const tx_run_options *o = r->options;
    const tx_trainer_options *t = tx_trainer_options_of(r->trainer);
    tx_loader_options loader = {.size = sizeof loader,
                                .step_rows = o->step_rows ? o->step_rows : t->all_rows * t->accumulation,
                                .batch = t->all_rows,
                                .first = t->rows_before,
                                .rows = t->batch,
                                .seed = o->data_seed,
                                .workers = o->workers,
                                .pin = o->pin,
                                .report = o->report};
    r->epoch_steps = tx_loader_epoch_steps(tx_dataset_blocks(o->train), loader.step_rows);
    tx_loader_free(r->loader);
    r->loader = NULL;
    return tx_loader_create(o->train, &loader, step, &r->loader);
}

/* Gives this rank its new share from step `step` on. */
static tx_status share_out(run *r, const int64_t *rows, int64_t step)
{
    char text[512] = "", line[640];
    size_t used = 0;
    int64_t before = 0;
    for (int32_t k = 0; k < r->comm->size; k++) {
        before += k < r->comm->rank ? rows[k] : 0;
        if (used < sizeof text - 24)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRId64, k ? "," : "", rows[k]);
    }
    tx_status status = take(r);
    if (!status)
        status = tx_trainer_share(r->trainer, rows[r->comm->rank], before);
    if (!status)
        status = open_loader(r, step);
    if (!status && r->state->run)
        status = tx_json_set_string(r->state->run, TX_RUN_ROWS, text);
    snprintf(line, sizeof line, "rows    %s of a micro-batch, by the ranks' speed", text);
    note(r, line);
    tx_log_line(&r->log, "{\"step\": %" PRId64 ", \"rows\": [%s]}", step, text);
    return status;
}

static void tell_pace(run *r, const tx_pace_news *news, int64_t step)
{
    char line[256];
    if (news->overlap_chosen) {
        snprintf(line, sizeof line,
                 "overlap %s: a step takes %.1f ms with the sums during the backward pass, %.1f after it",
                 news->overlap ? "yes" : "no", 1e3 * news->with / r->comm->size, 1e3 * news->without / r->comm->size);
        note(r, line);
        tx_log_line(&r->log, "{\"step\": %" PRId64 ", \"overlap\": %s, \"with\": %.6f, \"without\": %.6f}", step,
                    news->overlap ? "true" : "false", news->with / r->comm->size, news->without / r->comm->size);
    }
    if (!news->looked)
        return;
    tx_log_line(&r->log, "{\"step\": %" PRId64 ", \"slowest_rank\": %d, \"seconds\": %.6f, \"median_seconds\": %.6f}",
                step, (int)news->slowest, news->seconds, news->median);
    if (news->seconds > TX_PACE_SLOW * news->median) {
        snprintf(line, sizeof line,
                 "rank %d on %.63s is slow: %.1f ms of work a step, the ranks' median is %.1f; the others wait for it "
                 "(--batch_weights auto gives it less)",
                 (int)news->slowest, r->comm->ranks[news->slowest].name, 1e3 * news->seconds, 1e3 * news->median);
        tx_report(&r->options->report, line);
    }
}

/* What all ranks do after a step. */
static tx_status keep_pace(run *r, int64_t step)
{
    tx_pace_news news;
    int64_t every = r->options->check_steps;
    if (!r->pace)
        return TX_OK;
    tx_status status = tx_pace_end(r->pace, &news);
    if (status)
        return status;
    tell_pace(r, &news, step);
    if (news.shared)
        status = share_out(r, news.rows, step);
    if (!status && every && step % every == 0)
        status = tx_pace_compare_weights(r->model, r->comm);
    return status ? tx_fail_in(status, "step %" PRId64, step) : TX_OK;
}

/* ---- The loop --------------------------------------------------------------------------------------- */

/* One turn of the loop: a step is given, the results of the one before are taken. */
static tx_status turn(run *r, bool first)
{
    tx_traffic begin;
    pending given;
    tx_status status = tx_engine_traffic(r->engine, &begin);
    if (!status && r->pace)
        status = tx_pace_begin(r->pace, r->model);
    if (!status)
        status = give(r, &given);
    if (!status)
        status = take(r);
    if (!status && !first)
        status = add_traffic(r, &begin);
    if (status)
        return status;
    r->late = given;
    if (first && r->options->profile) {
        /* What is compiled or packed at the first run stays out of the profile. */
        status = take(r);
        if (!status)
            status = tx_trainer_profile(r->trainer);
    }
    if (!status)
        status = keep_pace(r, given.step);
    return status ? status : after(r, &given);
}

/* Why to end after this step, 0 to go on. Of many ranks all end where one was asked to before the update. */
static int stop_reason(const run *r)
{
    const tx_run_listener *listener = &r->options->listener;
    int asked = listener->stop ? listener->stop(listener->context) : 0;
    if (!r->comm || r->comm->size == 1)
        return asked;
    return tx_model_votes(r->model) == 0.0f ? 0 : asked ? asked : SIGTERM;
}

static tx_status loop(run *r)
{
    const tx_run_options *o = r->options;
    tx_traffic first = {0}, last;
    tx_status status = TX_OK;
    int64_t begin = r->state->step, step = begin;
    for (; step < o->schedule.total_steps && !status && !r->summary->stopped; step++) {
        if (step == begin + 1)
            status = tx_engine_traffic(r->engine, &first);
        if (!status)
            status = turn(r, step == begin);
        if (!status)
            r->summary->stopped = stop_reason(r);
    }
    if (!status)
        status = take(r);
    if (!status)
        status = tx_model_settle(r->model);
    if (!status && r->summary->stopped)
        status = save(r);
    if (!status && step > begin + 1) {
        status = tx_engine_traffic(r->engine, &last);
        r->summary->traffic.allocations = last.allocations - first.allocations;
    }
    return status;
}

static tx_status check(const tx_run_options *o, const tx_trainer_options *t)
{
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "run: the options' size field is %zu, expected %zu", o->size, sizeof *o);
    if (tx_dataset_block(o->train) != t->block || (o->validation && tx_dataset_block(o->validation) != t->block))
        return tx_fail(TX_INVALID, "run: the blocks of the data are not of the trainer's %" PRId64 " tokens", t->block);
    if (o->schedule.total_steps < 1 || o->max_bad_steps < 1 || (o->validation && !t->eval_batch) ||
        (o->output_dir && !o->write))
        return tx_fail(TX_INVALID, "run: no steps to do, no evaluation planned, or nothing that writes the model");
    return TX_OK;
}

static tx_status start(run *r, char **log_path)
{
    const tx_run_options *o = r->options;
    const tx_trainer_options *t = tx_trainer_options_of(r->trainer);
    tx_status status = open_loader(r, r->state->step);
    if (!status && r->comm && r->comm->size > 1)
        status = tx_pace_create(r->comm, o->overlap, o->balance, t->batch, t->all_rows, &r->pace);
    if (!status && r->speaks && o->output_dir && !(*log_path = tx_path_join(o->output_dir, TX_RUN_LOG)))
        status = TX_MEMORY;
    if (!status)
        tx_log_open(&r->log, *log_path, r->state->step > 0, &o->report);
    return status;
}

tx_status tx_run(tx_engine *engine, tx_model *model, tx_trainer *trainer, const tx_run_options *options,
                 tx_run_state *state, tx_run_summary *summary)
{
    *summary = (tx_run_summary){.loss = (double)NAN, .mean_loss = (double)NAN};
    tx_status status = check(options, tx_trainer_options_of(trainer));
    if (status)
        return status;
    run r = {
        .engine = engine,
        .model = model,
        .trainer = trainer,
        .options = options,
        .state = state,
        .summary = summary,
        .saved = state->step > 0 ? state->step : -1,
        .comm = tx_trainer_options_of(trainer)->comm,
    };
    r.speaks = !r.comm || r.comm->rank == 0;
    tx_trainer_ask(trainer, options->listener.stop, options->listener.context);
    char *log_path = NULL;
    double begin = tx_now();
    status = start(&r, &log_path);
    if (!status)
        status = loop(&r);
    summary->wall = tx_now() - begin;
    if (r.log.path)
        tx_log_close(&r.log);
    tx_loader_free(r.loader);
    tx_pace_free(r.pace);
    free(log_path);
    return status;
}
