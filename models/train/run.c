/* SPDX-License-Identifier: Apache-2.0
 * The loop of a training run. */
#include "models/train/run.h"
#include "api/clock.h"

#include <inttypes.h>
#include <math.h>

/* A step that was given to the device and whose results are still to come. */
typedef struct pending {
    bool any;
    int64_t step;
    double epoch, rate, seconds; /* seconds: the host's share of the step */
    int64_t tokens;
} pending;

typedef struct run {
    tx_engine *engine;
    tx_trainer *trainer;
    const tx_run_options *options;
    tx_run_summary *summary;
    tx_log log;
    pending late;
    int64_t micro_batches; /* in one epoch */
    int64_t epoch_steps;
    int64_t in_a_row;  /* updates skipped one after the other */
    int64_t evaluated; /* step of the last evaluation */
    int64_t timed_steps;
    double timed_seconds; /* of the steps after the first, which compiles and warms up */
} run;

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t tx_run_epoch_steps(int64_t blocks, int64_t batch, int64_t accumulation)
{
    return divide_up(divide_up(blocks, batch), accumulation);
}

static void write_step(run *r, const tx_run_step *s)
{
    char n[5][TX_LOG_NUMBER];
    tx_log_line(&r->log,
                "{\"step\": %" PRId64 ", \"epoch\": %s, \"loss\": %s, \"grad_norm\": %s, \"learning_rate\": %s, "
                "\"tokens\": %" PRId64 ", \"tokens_per_second\": %s}",
                s->step, tx_log_number(s->epoch, n[0]), tx_log_number(s->loss, n[1]), tx_log_number(s->grad_norm, n[2]),
                tx_log_number(s->learning_rate, n[3]), s->tokens, tx_log_number(s->tokens_per_second, n[4]));
}

/* Counts and tells updates that the device left out; fails after too many in a row. */
static tx_status judge(run *r, const tx_run_step *s, bool finite)
{
    if (finite && isfinite(s->loss)) {
        r->in_a_row = 0;
        return TX_OK;
    }
    const tx_run_listener *listener = &r->options->listener;
    r->in_a_row++;
    r->summary->skipped += !finite;
    char message[256], n[2][TX_LOG_NUMBER];
    snprintf(message, sizeof message,
             "step %" PRId64 ": loss %s, gradient norm %s: %s (%" PRId64 " in a row, %" PRId64 " skipped so far)",
             s->step, tx_log_number(s->loss, n[0]), tx_log_number(s->grad_norm, n[1]),
             finite ? "the loss is not finite" : "the update is skipped", r->in_a_row, r->summary->skipped);
    listener->warn(listener->context, message);
    if (r->in_a_row < TX_RUN_SKIPS)
        return TX_OK;
    return tx_fail(TX_INVALID,
                   "stopped after step %" PRId64
                   ": the loss or its gradient was not finite %d times in a row; lower the "
                   "learning rate or max_grad_norm, warm up longer, or look into the data; no model was written",
                   s->step, TX_RUN_SKIPS);
}

/* Takes the results of the pending step, waiting for the device if need be, and reports them. */
static tx_status take(run *r)
{
    if (!r->late.any)
        return TX_OK;
    r->late.any = false;
    tx_results results;
    double begin = tx_now();
    tx_status status = tx_trainer_results(r->trainer, &results);
    if (status)
        return status;
    /* The time of a step is what the host spends in giving it plus what it waits for the results: that holds for a
     * backend that works while it is called and for one that works on its own. */
    double seconds = r->late.seconds + (tx_now() - begin);
    tx_run_summary *sum = r->summary;
    int64_t steps = r->options->schedule.total_steps, left = steps - r->late.step;
    sum->seconds += seconds;
    sum->tokens += r->late.tokens;
    sum->steps = r->late.step;
    sum->loss = (double)results.value[TX_RESULT_LOSS];
    if (r->late.step > 1) {
        r->timed_seconds += seconds;
        r->timed_steps++;
    }
    tx_run_step s = {
        .step = r->late.step,
        .steps = steps,
        .epoch = r->late.epoch,
        .loss = sum->loss,
        .grad_norm = (double)results.value[TX_RESULT_GRAD_NORM],
        .learning_rate = r->late.rate,
        .tokens = sum->tokens,
        .tokens_per_second = seconds > 0.0 ? (double)r->late.tokens / seconds : 0.0,
        .seconds_left =
            r->timed_steps ? (double)left * r->timed_seconds / (double)r->timed_steps : (double)left * seconds,
    };
    write_step(r, &s);
    const tx_run_listener *listener = &r->options->listener;
    if (listener->step)
        listener->step(listener->context, &s);
    return judge(r, &s, results.value[TX_RESULT_FINITE] != 0.0f);
}

/* Fills the trainer's rows for step number `step` (from 0) and gives it to the device. */
static tx_status give(run *r, int64_t step, pending *given)
{
    const tx_run_options *o = r->options;
    const tx_trainer_options *t = tx_trainer_options_of(r->trainer);
    double begin = tx_now();
    int64_t epoch = step / r->epoch_steps, first = step % r->epoch_steps * t->accumulation;
    int64_t micro = r->micro_batches - first < t->accumulation ? r->micro_batches - first : t->accumulation;
    tx_order order = {.shuffle = true, .seed = o->seed, .epoch = (uint64_t)epoch};
    int64_t real = tx_dataset_rows(o->train, &order, first * t->batch, micro * t->batch, tx_trainer_tokens(r->trainer),
                                   tx_trainer_labels(r->trainer));
    double rate = tx_schedule_rate(&o->schedule, step);
    tx_status status = tx_trainer_step(r->trainer, micro, rate);
    *given = (pending){
        .any = true,
        .step = step + 1,
        .epoch = (double)epoch + (double)(first + micro) / (double)r->micro_batches,
        .rate = rate,
        .seconds = tx_now() - begin,
        .tokens = real * t->block,
    };
    return status;
}

static tx_status evaluate(run *r, int64_t step, double epoch)
{
    const tx_run_options *o = r->options;
    int64_t rows = tx_trainer_options_of(r->trainer)->eval_batch, blocks = tx_dataset_blocks(o->validation);
    double sum = 0.0;
    int64_t labels = 0;
    tx_order order = {0};
    for (int64_t first = 0; first < blocks; first += rows) {
        tx_dataset_rows(o->validation, &order, first, rows, tx_trainer_tokens(r->trainer),
                        tx_trainer_labels(r->trainer));
        tx_status status = tx_trainer_evaluate(r->trainer, &sum, &labels);
        if (status)
            return status;
    }
    double loss = sum / (double)labels;
    char n[3][TX_LOG_NUMBER];
    tx_log_line(&r->log, "{\"step\": %" PRId64 ", \"epoch\": %s, \"eval_loss\": %s, \"perplexity\": %s}", step,
                tx_log_number(epoch, n[0]), tx_log_number(loss, n[1]), tx_log_number(exp(loss), n[2]));
    if (o->listener.evaluation)
        o->listener.evaluation(o->listener.context, step, loss, exp(loss));
    r->summary->eval_loss = loss;
    r->evaluated = step;
    return TX_OK;
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

/* One turn of the loop: step `step` is given, the results of the one before are taken. */
static tx_status turn(run *r, int64_t step)
{
    const tx_run_options *o = r->options;
    tx_traffic begin;
    pending given;
    tx_status status = tx_engine_traffic(r->engine, &begin);
    if (!status)
        status = give(r, step, &given);
    if (!status)
        status = take(r);
    if (!status && step > 0)
        status = add_traffic(r, &begin);
    if (status)
        return status;
    r->late = given;
    if (step == 0 && o->profile) {
        /* What is compiled or packed at the first run stays out of the profile. */
        status = take(r);
        if (!status)
            status = tx_trainer_profile(r->trainer);
    }
    if (!status && o->validation && o->eval_steps && (step + 1) % o->eval_steps == 0) {
        status = take(r);
        if (!status)
            status = evaluate(r, step + 1, given.epoch);
    }
    return status;
}

static tx_status loop(run *r)
{
    const tx_run_options *o = r->options;
    tx_traffic first = {0}, last;
    tx_status status = TX_OK;
    int64_t step = 0;
    for (; step < o->schedule.total_steps && !status && !r->summary->stopped; step++) {
        if (step == 1)
            status = tx_engine_traffic(r->engine, &first);
        if (!status)
            status = turn(r, step);
        if (!status && o->listener.stop)
            r->summary->stopped = o->listener.stop(o->listener.context);
    }
    double epoch = r->late.epoch;
    if (!status)
        status = take(r);
    if (!status && o->validation && !r->summary->stopped && r->evaluated != step)
        status = evaluate(r, step, epoch);
    if (!status && step > 1) {
        status = tx_engine_traffic(r->engine, &last);
        r->summary->traffic.allocations = last.allocations - first.allocations;
    }
    return status;
}

tx_status tx_run(tx_engine *engine, tx_trainer *trainer, const tx_run_options *options, tx_run_summary *summary)
{
    *summary = (tx_run_summary){.loss = (double)NAN, .eval_loss = (double)NAN};
    const tx_trainer_options *t = tx_trainer_options_of(trainer);
    if (options->size != sizeof *options)
        return tx_fail(TX_INVALID, "run: the options' size field is %zu, expected %zu", options->size, sizeof *options);
    if (tx_dataset_block(options->train) != t->block ||
        (options->validation && tx_dataset_block(options->validation) != t->block))
        return tx_fail(TX_INVALID, "run: the blocks of the data are not of the trainer's %" PRId64 " tokens", t->block);
    if (options->schedule.total_steps < 1 || (options->validation && !t->eval_batch))
        return tx_fail(TX_INVALID, "run: no steps to do, or no evaluation planned");
    int64_t blocks = tx_dataset_blocks(options->train);
    run r = {
        .engine = engine,
        .trainer = trainer,
        .options = options,
        .summary = summary,
        .micro_batches = divide_up(blocks, t->batch),
        .epoch_steps = tx_run_epoch_steps(blocks, t->batch, t->accumulation),
    };
    tx_log_open(&r.log, options->log_path, options->listener.warn, options->listener.context);
    tx_status status = loop(&r);
    tx_log_close(&r.log);
    return status;
}
