/* SPDX-License-Identifier: Apache-2.0
 * Handles the results of a step: the log, the history, and the check that its values are finite. */
#include "models/train/running.h"

#include "api/base/clock.h"
#include "models/train/rollout.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The metrics that each step logs, up to one without a name. Their names have the prefix eval_ in evaluations. */
static const tx_metric *logged_by(const tx_running *r)
{
    static const tx_metric none = {.name = NULL};
    const tx_task *task = r->options->train.task;
    return task->refers ? task->metrics + 1 : &none;
}

static const char *name_of(const tx_metric *metric)
{
    return metric->name + strlen("eval_");
}

/* Computes a metric, given the task's results as means over the labels. Returns false if it has no value. */
static bool measure(const tx_metric *metric, const double means[TX_TASK_RESULTS], double *value)
{
    _Static_assert(TX_SUM_OWN + TX_TASK_RESULTS <= TX_SUMS_MAX, "an evaluation has a sum for each result");
    double sums[TX_SUMS_MAX] = {[TX_SUM_LABELS] = 1.0};
    memcpy(sums + TX_SUM_OWN, means, TX_TASK_RESULTS * sizeof *means);
    return tx_metric_measure(metric, sums, value);
}

static void write_step(tx_running *r, const tx_run_step *s, const tx_results *results)
{
    char n[7][TX_LOG_NUMBER], scale[96] = "", dropped[48] = "", of_task[3072] = "";
    double means[TX_TASK_RESULTS], value;
    size_t used = 0;
    for (int i = 0; i < TX_TASK_RESULTS; i++)
        means[i] = (double)results->value[TX_RESULT_TASK_0 + i];
    for (const tx_metric *m = logged_by(r); m->name && used < sizeof of_task; m++)
        if (measure(m, means, &value))
            used += (size_t)snprintf(of_task + used, sizeof of_task - used, "\"%s\": %s, ", name_of(m),
                                     tx_log_number(value, n[0]));
    tx_figure figures[TX_ROLLOUT_FIGURES];
    const int32_t count = r->rollout ? tx_rollout_figures(r->rollout, false, false, figures) : 0;
    for (int32_t i = 0; i < count && used < sizeof of_task; i++)
        used += (size_t)snprintf(of_task + used, sizeof of_task - used, "\"%s\": %s, ", figures[i].name,
                                 tx_log_number(figures[i].value, n[0]));
    if (s->loss_scale > 0)
        snprintf(scale, sizeof scale, "\"loss_scale\": %s, \"skipped\": %" PRId64 ", ",
                 tx_log_number(s->loss_scale, n[6]), s->skipped);
    if (r->options->set->capacity > 0.0)
        snprintf(dropped, sizeof dropped, "\"dropped\": %" PRId64 ", ", s->dropped);
    tx_log_line(&r->log,
                "{\"step\": %" PRId64 ", \"epoch\": %s, \"loss\": %s, \"grad_norm\": %s, \"learning_rate\": %s, "
                "%s%s%s\"tokens\": %" PRId64 ", \"padded_tokens\": %" PRId64
                ", \"tokens_per_second\": %s, \"waited\": %s}",
                s->step, tx_log_number(s->epoch, n[0]), tx_log_number(s->loss, n[1]), tx_log_number(s->grad_norm, n[2]),
                tx_log_number(s->learning_rate, n[3]), of_task, scale, dropped, s->tokens, s->padded_tokens,
                tx_log_number(s->tokens_per_second, n[4]), tx_log_number(s->waited, n[5]));
}

/* Writes the measurements of this host's GPUs, at most once a second. */
static void write_cards(tx_running *r, int64_t step)
{
    enum { SECONDS = 1 };
    if (!r->log.file || strcmp(tx_engine_device(r->engine)->id, "cpu") == 0 ||
        tx_seconds(CLOCK_MONOTONIC) - r->cards.seconds < SECONDS)
        return;
    tx_topo_cards_read(NULL, false, &r->cards);
    char *text = r->cards.count ? tx_topo_cards_json(&r->cards) : NULL;
    if (text)
        tx_log_line(&r->log, "{\"step\": %" PRId64 ", \"cards\": %s}", step, text);
    free(text);
}

/* Counts and reports steps whose loss or gradient is not finite. Fails after max_bad_steps consecutive ones. With a
 * loss scale of at least 1, gradients may overflow, since the scale is then halved. At a smaller scale the range of
 * fp16 is not the cause. */
static tx_status judge(tx_running *r, const tx_run_step *s, bool finite)
{
    tx_run_state *state = r->state;
    if ((finite || s->loss_scale >= 1.0) && isfinite(s->loss)) {
        state->bad = 0;
        return TX_OK;
    }
    state->bad++;
    char n[2][TX_LOG_NUMBER];
    if (r->speaks)
        tx_reporter_print(&r->options->report,
                          "step %" PRId64 ": loss %s, gradient norm %s: %s (%" PRId64 " in a row, %" PRId64
                          " skipped so far)",
                          s->step, tx_log_number(s->loss, n[0]), tx_log_number(s->grad_norm, n[1]),
                          finite ? "the loss is not finite" : "the update is skipped", state->bad, state->skipped);
    if (state->bad < r->options->set->max_bad_steps)
        return TX_OK;
    char checkpoint[64] = "there is no checkpoint yet";
    if (r->saved > 0)
        snprintf(checkpoint, sizeof checkpoint, "the last good checkpoint is checkpoint-%" PRId64, r->saved);
    return tx_fail(
        TX_INVALID,
        "stopped after step %" PRId64 ": the loss or its gradient was not finite %" PRId64
        " times in a row; lower the learning rate or max_grad_norm, use more warmup steps, or check the data; %s",
        s->step, state->bad, checkpoint);
}

static void add_points(const tx_running *r, int64_t step, const tx_figure *figures, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        tx_events_add(r->options->events, figures[i].name, step, figures[i].value);
}

/* Adds a point to the history. */
static tx_status log_point(tx_running *r, const tx_run_step *s)
{
    tx_run_state *state = r->state;
    const double steps = (double)(state->step - state->logged), loss = state->loss_sum / steps;
    tx_figure figures[3 + TX_METRICS_MAX + TX_ROLLOUT_FIGURES] = {
        {"loss", loss, -1}, {"grad_norm", s->grad_norm, -1}, {"learning_rate", s->learning_rate, -1}};
    double means[TX_TASK_RESULTS];
    int32_t count = 3;
    for (int i = 0; i < TX_TASK_RESULTS; i++)
        means[i] = state->task_sum[i] / steps;
    for (const tx_metric *m = logged_by(r); m->name; m++) {
        figures[count] = (tx_figure){name_of(m), 0.0, -1};
        count += measure(m, means, &figures[count].value);
    }
    if (r->rollout)
        count += tx_rollout_figures(r->rollout, true, true, figures + count);
    tx_status status = tx_run_state_log(state, figures, count);
    state->loss_sum = 0.0;
    memset(state->task_sum, 0, sizeof state->task_sum);
    state->logged = state->step;
    if (!status && r->listener.log)
        r->listener.log(r->listener.context, s, loss);
    add_points(r, s->step, figures, count);
    tx_events_add(r->options->events, "epoch", s->step, s->epoch);
    return status;
}

static void write_evaluation(tx_running *r, const tx_run_evaluation *e)
{
    char line[1024], n[TX_LOG_NUMBER];
    size_t used = (size_t)snprintf(line, sizeof line, "{\"step\": %" PRId64 ", \"epoch\": %s", e->step,
                                   tx_log_number(e->epoch, n));
    for (int32_t m = 0; e->metrics[m].name && used < sizeof line; m++)
        if (e->has[m])
            used += (size_t)snprintf(line + used, sizeof line - used, ", \"%s\": %s", e->metrics[m].name,
                                     tx_log_number(e->value[m], n));
    tx_log_line(&r->log, "%s}", line);
}

tx_status tx_running_evaluated(tx_running *r, const tx_run_evaluation *e)
{
    tx_figure figures[TX_RUN_FIGURES];
    const int32_t all = tx_run_figures(e, false, figures);
    write_evaluation(r, e);
    if (r->listener.evaluation)
        r->listener.evaluation(r->listener.context, e->step, figures, all);
    const int32_t count = tx_run_figures(e, true, figures);
    add_points(r, e->step, figures, count);
    return tx_run_state_log(r->state, figures, count);
}

bool tx_running_judge(tx_running *r, const tx_run_evaluation *e)
{
    const tx_run_options *o = r->options;
    tx_run_state *state = r->state;
    const int32_t which = o->best_metric ? tx_task_metric(o->validation.task, o->best_metric) : 0;
    const bool greater =
        o->set->greater == TX_GREATER_AUTO ? e->metrics[which].greater_is_better : o->set->greater == TX_GREATER_TRUE;
    const double value = e->value[which], gain = greater ? value - state->best : state->best - value;
    const bool better = state->has_best ? gain > 0.0 && gain > o->set->stop_threshold : !isnan(value);
    state->stale = better ? 0 : state->stale + 1;
    r->enough = o->set->stop_patience && state->stale >= o->set->stop_patience;
    if (r->enough && r->listener.note) {
        char line[160];
        snprintf(line, sizeof line,
                 "early stopping after step %" PRId64 ": %" PRId64 " evaluation%s without a better %s", state->step,
                 state->stale, tx_s(state->stale), e->metrics[which].name);
        r->listener.note(r->listener.context, line);
    }
    if (tx_schedule_adapts(&o->schedule))
        tx_schedule_judge(&o->schedule, &state->schedule, value);
    return tx_run_state_judge(state, value, greater);
}

bool tx_running_due(int32_t strategy, int64_t every, const tx_pending *p)
{
    return (strategy == TX_STRATEGY_STEPS && every && p->step % every == 0) ||
           (strategy == TX_STRATEGY_EPOCH && p->ends_epoch);
}

bool tx_running_skips_schedule(const tx_running *r)
{
    return r->options->set->fp16;
}

/* Adds a step's results to state and summary. */
static void account(tx_running *r, const tx_pending *p, const tx_results *results, double seconds)
{
    tx_run_state *state = r->state;
    tx_run_summary *sum = r->summary;
    double loss = (double)results->value[TX_RESULT_LOSS];
    state->step = p->step;
    state->epoch = p->epoch;
    state->tokens += p->tokens;
    state->padded_tokens += p->padded_tokens;
    state->flops += r->options->flops_per_token * (double)p->padded_tokens;
    state->loss_sum += loss;
    for (int i = 0; i < TX_TASK_RESULTS; i++)
        state->task_sum[i] += (double)results->value[TX_RESULT_TASK_0 + i];
    state->updates = (int64_t)results->value[TX_RESULT_UPDATES];
    const int64_t skipped = (int64_t)results->value[TX_RESULT_SKIPPED];
    state->held += tx_running_skips_schedule(r) ? skipped - state->skipped : 0;
    state->skipped = skipped;
    state->loss_scale = tx_running_skips_schedule(r) ? (double)results->value[TX_RESULT_LOSS_SCALE] : 0.0;
    state->scale_steps = (int64_t)results->value[TX_RESULT_SCALE_STEPS];
    sum->steps++;
    sum->tokens += p->tokens;
    sum->padded_tokens += p->padded_tokens;
    sum->samples += p->rows;
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

tx_status tx_running_take(tx_running *r)
{
    if (!r->late.any)
        return TX_OK;
    const tx_pending p = r->late;
    r->late.any = false;
    tx_results results;
    double begin = tx_now();
    TX_TRY(tx_trainer_results(r->trainer, &results));
    /* The time of a step is the host's time for submitting it plus the wait for its results. This holds for synchronous
     * and asynchronous backends. */
    double seconds = p.seconds + (tx_now() - begin);
    const bool held = tx_running_skips_schedule(r) && r->state->skipped > p.skipped;
    account(r, &p, &results, seconds);
    const tx_run_options *o = r->options;
    int64_t left = o->schedule.total_steps - p.step;
    tx_run_step s = {
        .step = p.step,
        .steps = o->schedule.total_steps,
        .epoch = p.epoch,
        .loss = r->summary->loss,
        .grad_norm = (double)results.value[TX_RESULT_GRAD_NORM],
        .learning_rate = held ? p.held_rate : p.rate,
        .loss_scale = r->state->loss_scale,
        .skipped = r->state->skipped,
        .dropped = (int64_t)results.value[TX_RESULT_DROPPED],
        .tokens = r->state->tokens,
        .padded_tokens = r->state->padded_tokens,
        .tokens_per_second = seconds > 0.0 ? (double)p.tokens / seconds : 0.0,
        .waited = p.waited,
        .seconds_left =
            r->timed_steps ? (double)left * r->timed_seconds / (double)r->timed_steps : (double)left * seconds,
    };
    write_step(r, &s, &results);
    write_cards(r, s.step);
    if (tx_running_due(o->set->logging, o->facts.logging_steps, &p) || (o->set->log_first && p.step == 1))
        TX_TRY(log_point(r, &s));
    if (r->listener.step)
        r->listener.step(r->listener.context, &s);
    return judge(r, &s, results.value[TX_RESULT_FINITE] != 0.0f);
}
