/* SPDX-License-Identifier: Apache-2.0
 * Coordinates the ranks of a run: their shares of the rows, the comparison of their weights, and their votes. */
#include "api/base/number.h"
#include "models/train/outer.h"
#include "models/train/running.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static void note(const tx_running *r, const char *line)
{
    if (r->listener.note)
        r->listener.note(r->listener.context, line);
}

tx_status tx_running_load(tx_running *r, int64_t step)
{
    const tx_run_options *o = r->options;
    const tx_trainer_options *t = tx_trainer_options_of(r->trainer);
    const tx_loader_options loader = {.size = sizeof loader,
                                      .set = o->set,
                                      .step_rows = o->step_rows ? o->step_rows : t->all_rows * t->accumulation,
                                      .batch = t->all_rows,
                                      .first = t->rows_before,
                                      .rows = t->batch,
                                      .local = t->across != NULL,
                                      .report = o->report};
    r->epoch_steps =
        tx_loader_epoch_steps(tx_loader_used(o->train.count, t->all_rows, o->set->drop_last), loader.step_rows);
    tx_loader_free(r->loader);
    r->loader = NULL;
    return tx_loader_create(&o->train, &loader, step, &r->loader);
}

/* Gives this rank its new share from step `step` on. */
static tx_status change_shares(tx_running *r, const int64_t *rows, int64_t step)
{
    int64_t before = 0;
    for (int32_t k = 0; k < r->data->rank; k++)
        before += rows[k];
    char *shares = tx_pace_shares_text(rows, r->data->size);
    tx_status status = shares ? tx_running_take(r) : tx_fail(TX_MEMORY, "no memory for the ranks' shares");
    TX_THEN(status, tx_trainer_share(r->trainer, rows[r->data->rank], before));
    TX_THEN(status, tx_running_load(r, step));
    if (!status && r->state->run)
        status = tx_json_set_string(r->state->run, TX_RUN_ROWS, shares);
    if (!status) {
        char line[640];
        snprintf(line, sizeof line, "rows    %.580s of a micro-batch, by the ranks' speed", shares);
        note(r, line);
        tx_log_line(&r->log, "{\"step\": %" PRId64 ", \"rows\": [%s]}", step, shares);
    }
    free(shares);
    return status;
}

static void report_pace(tx_running *r, const tx_pace_news *news, int64_t step)
{
    char line[256];
    if (news->overlap_chosen) {
        tx_format(line, sizeof line,
                  "overlap %s: a step takes %.1f ms with the all-reduce during the backward pass, %.1f ms after it",
                  news->overlap ? "yes" : "no", 1e3 * news->with / r->data->size, 1e3 * news->without / r->data->size);
        note(r, line);
        tx_log_line(&r->log, "{\"step\": %" PRId64 ", \"overlap\": %s, \"with\": %.6f, \"without\": %.6f}", step,
                    news->overlap ? "true" : "false", news->with / r->data->size, news->without / r->data->size);
    }
    if (!news->looked)
        return;
    /* The ranks of the pace are the first ranks of tensor-parallel groups in pipeline stage 0. */
    const tx_comm *tensor = tx_trainer_options_of(r->trainer)->parallel.tensor;
    const int slowest = (int)(news->slowest * (tensor ? tensor->size : 1));
    tx_log_line(&r->log, "{\"step\": %" PRId64 ", \"slowest_rank\": %d, \"seconds\": %.6f, \"median_seconds\": %.6f}",
                step, slowest, news->seconds, news->median);
    if (r->speaks && news->seconds > TX_PACE_SLOW * news->median)
        tx_reporter_print(
            &r->options->report,
            "rank %d on %.63s is slow: %.1f ms of work a step, the ranks' median is %.1f; the others wait for it "
            "(--batch_weights auto assigns it fewer rows)",
            slowest, r->data->ranks[news->slowest].name, 1e3 * news->seconds, 1e3 * news->median);
}

tx_status tx_running_keep_pace(tx_running *r, int64_t step)
{
    tx_pace_news news;
    int64_t every = r->options->set->ddp_check;
    if (!r->pace)
        return TX_OK;
    TX_TRY(tx_pace_end(r->pace, &news));
    tx_status status = TX_OK;
    report_pace(r, &news, step);
    if (news.shared)
        status = change_shares(r, news.rows, step);
    if (!status && every && step % every == 0 && (!r->outer || r->synchronized)) {
        uint64_t hash = 0;
        status = tx_pace_compare_weights(r->model, r->comm,
                                         "its memory or its device is faulty; resume from a checkpoint", &hash);
        if (!status)
            tx_log_line(&r->log, "{\"step\": %" PRId64 ", \"weights\": \"%016" PRIx64 "\"}", step, hash);
    }
    return tx_fail_in(status, "step %" PRId64, step);
}

/* Votes are summed over the ranks in fp32. One vote to stop exceeds the votes of 4095 ranks to save. */
static const float vote_to_stop = 4096.0f, vote_to_save = 1.0f;

float tx_running_vote(void *context)
{
    tx_running *r = context;
    const tx_job_listener *listener = &r->listener;
    if (listener->save && listener->save(listener->context))
        r->wants_save = true;
    return (listener->stop && listener->stop(listener->context) ? vote_to_stop : 0.0f) +
           (r->wants_save ? vote_to_save : 0.0f);
}

tx_status tx_running_synchronize(tx_running *r, int64_t step)
{
    const int64_t every = r->options->set->sync_every;
    r->synchronized = r->outer && (step % every == 0 || step == r->options->schedule.total_steps);
    if (!r->synchronized)
        return TX_OK;
    r->votes = tx_running_vote(r);
    return tx_fail_in(tx_outer_synchronize(r->outer, &r->votes), "step %" PRId64, step);
}

/* The votes of all ranks. With local steps they are known after synchronizations. */
static float votes_of(const tx_running *r)
{
    return !r->outer ? tx_model_votes(r->model) : r->synchronized ? r->votes : 0.0f;
}

int tx_running_stop(const tx_running *r)
{
    const tx_job_listener *listener = &r->listener;
    int asked = listener->stop ? listener->stop(listener->context) : 0;
    if (!r->comm || r->comm->size == 1)
        return asked;
    return votes_of(r) < vote_to_stop ? 0 : asked ? asked : SIGTERM;
}

bool tx_running_save_requested(tx_running *r)
{
    const bool alone = !r->comm || r->comm->size == 1;
    const bool wanted = alone ? r->wants_save : fmodf(votes_of(r), vote_to_stop) >= vote_to_save;
    r->wants_save = r->outer && !r->synchronized && r->wants_save;
    return wanted;
}
