/* SPDX-License-Identifier: Apache-2.0
 * Generation batches of a run that learns from rewards. */
#include "models/train/rolling.h"

#include "comm/comm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Chooses the prompts: those of a chunk of the epoch's order, each `group` times in a row. */
static void choose_prompts(tx_rollout *r, int64_t generation)
{
    const tx_policy_data *d = r->data;
    const tx_policy_batch *b = &d->batch;
    const int64_t prompts = b->count / b->group, an_epoch = d->count / prompts;
    const tx_sample_order order = {.shuffle = r->set->sampling != TX_SAMPLING_SEQUENTIAL && !r->set->rollout_file,
                                   .seed = tx_job_data_seed(r->set),
                                   .epoch = (uint64_t)(generation / an_epoch)};
    for (int64_t i = 0; i < b->count; i++)
        b->sample[i] = tx_sample_order_at(&order, d->count, generation % an_epoch * prompts + i / b->group);
}

/* ---- Log-probabilities ------------------------------------------------------------------------------------ */

/* Evaluates the completions from `first` on, as many as an evaluation batch has. */
static tx_status evaluate_batch(tx_rollout *r, int64_t first)
{
    enum { COLUMNS = 2 };
    const tx_policy_batch *b = &r->data->batch;
    const tx_sample_order order = {0};
    double sums[TX_SUMS_MAX] = {0};
    TX_TRY(tx_samples_rows(&r->samples, &order, first, &r->batch));
    r->batch.longest = tx_batch_longest(r->task, &r->batch);
    TX_TRY(tx_trainer_evaluate(r->trainer, &r->batch, sums, r->outputs));
    const int64_t positions = tx_field_values(&r->task->fields[TX_POLICY_ROWS], /* of a row of the plan */
                                              tx_trainer_positions(r->trainer, &r->batch));
    for (int64_t i = first; i < b->count && i < first + r->batch.rows; i++) {
        const float *from = r->outputs + (i - first) * positions * COLUMNS;
        for (int64_t t = 0; t < b->length[i]; t++) {
            b->old[i * b->most + t] = from[t * COLUMNS];
            b->reference[i * b->most + t] = from[t * COLUMNS + 1];
        }
    }
    return TX_OK;
}

/* Computes the log-probabilities that the loss reads. The ranks divide the batches; a sum with zeros is exact. */
static tx_status find_logps(tx_rollout *r)
{
    const tx_policy_batch *b = &r->data->batch;
    const int64_t ranks = r->comm ? r->comm->size : 1, rank = r->comm ? r->comm->rank : 0, all = b->count * b->most;
    if (tx_policy_is_current(r->set) && !(r->set->beta > 0.0))
        return TX_OK;
    memset(b->old, 0, (size_t)all * sizeof *b->old);
    memset(b->reference, 0, (size_t)all * sizeof *b->reference);
    for (int64_t k = rank; k * r->batch.rows < b->count; k += ranks)
        TX_TRY(evaluate_batch(r, k * r->batch.rows));
    if (r->comm)
        TX_TRY(tx_comm_collect(r->comm, TX_ALL_REDUCE, b->old, all, TX_F32, 0));
    if (r->comm && r->set->beta > 0.0)
        TX_TRY(tx_comm_collect(r->comm, TX_ALL_REDUCE, b->reference, all, TX_F32, 0));
    for (int64_t i = 0; i < b->count; i++) {
        b->kl[i] = 0.0;
        for (int64_t t = 0; t < b->length[i]; t++)
            b->kl[i] += (double)b->old[i * b->most + t] - (double)b->reference[i * b->most + t];
    }
    return TX_OK;
}

/* ---- A generation batch ----------------------------------------------------------------------------------- */

tx_status tx_rollout_begin(tx_rollout *r, int64_t step)
{
    tx_policy_batch *b = &r->data->batch;
    for (int32_t i = 0; i < r->figures; i++)
        r->figure[i].value = (double)NAN;
    if (step / r->steps == r->generation)
        return TX_OK;
    r->generation = step / r->steps;
    r->step = step;
    memset(b->kl, 0, (size_t)b->count * sizeof *b->kl);
    choose_prompts(r, r->generation);
    TX_TRY(tx_rollout_write(r));
    tx_rollout_score(r); /* also marks the tokens whose log-probabilities are needed */
    TX_TRY(find_logps(r));
    if (r->task->one_out)
        tx_rollout_score(r);
    tx_rollout_measure(r);
    if (r->set->log_completions && tx_rollout_log(r))
        tx_reporter_print(&r->report, "completions of step %" PRId64 " were not written: %.400s; training continues",
                          r->step + 1, tx_error());
    return TX_OK;
}

/* ---- Creation --------------------------------------------------------------------------------------------- */

static tx_status open_recorded(tx_rollout *r)
{
    const tx_policy_batch *b = &r->data->batch;
    const int64_t needed = r->data->count * b->group;
    TX_TRY(tx_recorded_open(r->set->rollout_file, b->most, r->data->vocab, &r->recorded));
    if (r->recorded.count < needed)
        return tx_fail(TX_INVALID, "--rollout_file %s: has %" PRId64 " completions; the prompts need %" PRId64,
                       r->set->rollout_file, r->recorded.count, needed);
    r->names = r->recorded.names;
    return tx_reward_weigh(r->set->reward_weights, &r->names);
}

static tx_status open_rewards(tx_rollout *r)
{
    r->rewards = tx_trainer_options_of(r->trainer)->rewards;
    if (r->rewards)
        r->names = *tx_rewards_names(r->rewards);
    else
        TX_TRY(open_recorded(r));
    return tx_policy_reserve(&r->data->batch, r->names.count);
}

static tx_status allocate(tx_rollout *r)
{
    const int64_t rows = tx_trainer_options_of(r->trainer)->eval_batch, block = r->samples.block;
    const size_t count = (size_t)r->data->batch.count;
    void *memory = malloc((size_t)(rows * tx_task_row_bytes(r->task, block)));
    r->batch = tx_batch_of(r->task, block, rows, memory);
    r->outputs = malloc((size_t)(rows * tx_trainer_outputs(r->trainer)) * sizeof *r->outputs);
    r->total = calloc(count, sizeof *r->total);
    r->deviation = calloc(count, sizeof *r->deviation);
    return memory && r->outputs && r->total && r->deviation ? TX_OK
                                                            : tx_fail(TX_MEMORY, "no memory for a generation batch");
}

tx_status tx_rollout_create(tx_trainer *trainer, const tx_run_options *options, tx_rollout **rollout)
{
    const tx_trainer_options *t = tx_trainer_options_of(trainer);
    tx_rollout *r = calloc(1, sizeof *r);
    if (!r)
        return tx_fail(TX_MEMORY, "no memory for a generation batch");
    r->trainer = trainer;
    r->set = options->set;
    r->samples = options->train;
    r->task = r->samples.task;
    r->data = r->samples.own;
    r->comm = t->comm && t->comm->size > 1 ? t->comm : NULL;
    r->report = options->report;
    r->watch = options->watch;
    r->generation = -1;
    r->steps = r->data->batch.count / options->step_rows * r->set->num_iterations;
    tx_status status = tx_policy_read(r->task, r->set, &r->type);
    TX_THEN(status, allocate(r));
    TX_THEN(status, open_rewards(r));
    if (options->checkpoint)
        TX_THEN(status, tx_rollout_load(r, options->checkpoint));
    return TX_RETURN(status, r, rollout, tx_rollout_free);
}

void tx_rollout_free(tx_rollout *r)
{
    if (!r)
        return;
    tx_recorded_close(&r->recorded);
    free(r->batch.field[0]);
    free(r->outputs);
    free(r->total);
    free(r->deviation);
    free(r);
}
