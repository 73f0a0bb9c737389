/* SPDX-License-Identifier: Apache-2.0
 * Computes a task's metrics over its samples. */
#include "api/base/arithmetic.h"
#include "models/train/run.h"
#include "models/train/writer.h"

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* Adds up the ranks' sums in rank order. */
static tx_status add_up(tx_comm *comm, double sums[TX_SUMS_MAX])
{
    const size_t bytes = TX_SUMS_MAX * sizeof *sums;
    tx_status status;
    double *all = tx_comm_gather(comm, sums, bytes, &status);
    memset(sums, 0, bytes);
    for (int32_t i = 0; i < comm->size * TX_SUMS_MAX && !status; i++)
        sums[i % TX_SUMS_MAX] += all[i];
    free(all);
    return status;
}

/* An evaluation in progress. In each round every group of ranks evaluates one batch. */
typedef struct pass {
    tx_trainer *trainer;
    tx_comm *comm;         /* NULL with one rank */
    int64_t group, groups; /* index and number of groups; the ranks of a group have the same rows */
    bool gathers;          /* plans communicate (sharded weights or experts), so all ranks must run them */
    const tx_samples *samples;
    tx_batch batch;
    int64_t outputs;      /* output values of a row that are kept; 0 if they are not needed */
    float *batch_outputs; /* of a batch, if the task keeps a number for each position; else NULL */
    float *round;         /* [groups, rows, outputs]: outputs of a round */
    float *all;           /* [count, outputs] */
} pass;

/* Copies the outputs of a round, which begins with sample `first`, to all ranks' outputs. */
static tx_status keep_outputs(pass *p, int64_t first, int64_t ranks)
{
    const int64_t left = p->samples->count - first, rows = ranks * p->batch.rows;
    if (!p->outputs)
        return TX_OK;
    if (p->comm)
        TX_TRY(tx_comm_share(p->comm, p->round, (size_t)(p->batch.rows * p->outputs) * sizeof *p->round));
    memcpy(p->all + first * p->outputs, p->round, (size_t)((left < rows ? left : rows) * p->outputs) * sizeof *p->all);
    return TX_OK;
}

/* Reduces the outputs of the positions of a batch to those that are kept. */
static void reduce_outputs(const pass *p, float *to)
{
    const tx_task *task = p->samples->task;
    const int64_t block = p->samples->block, positions = tx_trainer_positions(p->trainer, &p->batch);
    const int64_t columns = tx_trainer_outputs(p->trainer) / block, kept = task->kept;
    memset(to, 0, (size_t)(p->batch.rows * block * kept) * sizeof *to);
    for (int64_t r = 0; r < p->batch.rows; r++)
        for (int64_t t = 0; t < positions; t++)
            task->keep(p->batch_outputs + (r * positions + t) * columns, columns, to + (r * block + t) * kept);
}

/* Evaluates the batches of a round, which begins with sample `first`, and adds up their sums. */
static tx_status do_round(pass *p, int64_t first, double sums[TX_SUMS_MAX])
{
    const int64_t rows = p->batch.rows, own = first + p->group * rows;
    const tx_sample_order order = {0};
    float *output = p->outputs ? p->round + p->group * rows * p->outputs : NULL;
    tx_writer *writer = tx_trainer_writer(p->trainer);
    const bool any = own < p->samples->count;
    double of_batch[TX_SUMS_MAX] = {0};
    if (any || p->gathers) {
        TX_TRY(tx_samples_rows(p->samples, &order, any ? own : first, &p->batch));
        p->batch.longest = tx_batch_longest(p->samples->task, &p->batch);
        p->batch.target = tx_batch_target(p->samples->task, &p->batch);
        float *read = writer ? NULL : p->batch_outputs ? p->batch_outputs : output;
        TX_TRY(tx_trainer_evaluate(p->trainer, &p->batch, of_batch, read));
        if (p->batch_outputs)
            reduce_outputs(p, output);
    }
    if ((any || p->gathers) && writer) {
        const int64_t left = any ? p->samples->count - own : 0;
        TX_TRY(tx_writer_run(writer, &p->batch, left < rows ? left : rows, own, output));
    }
    if (!any)
        memset(of_batch, 0, sizeof of_batch);
    if (p->comm)
        TX_TRY(add_up(p->comm, of_batch));
    for (int32_t i = 0; i < TX_SUMS_MAX; i++)
        sums[i] += of_batch[i];
    return keep_outputs(p, first, p->groups);
}

int64_t tx_run_columns(const tx_trainer *trainer)
{
    const tx_trainer_options *o = tx_trainer_options_of(trainer);
    const int64_t outputs = tx_trainer_outputs(trainer);
    return outputs && o->task->keep ? o->block * o->task->kept : outputs;
}

tx_status tx_run_outputs(tx_trainer *trainer, const tx_samples *samples, tx_watchdog *watch, double sums[TX_SUMS_MAX],
                         float **outputs)
{
    const tx_trainer_options *o = tx_trainer_options_of(trainer);
    tx_comm *comm = o->across ? o->across : o->comm;
    const int64_t rows = o->eval_batch, same = tx_trainer_chunks(o), ranks = comm ? comm->size / same : 1;
    TX_TRY(tx_trainer_check_samples(o, samples));
    if (same > 1 && samples->task->keep)
        return tx_fail(TX_UNSUPPORTED, "context parallelism is not implemented for evaluations of %s",
                       samples->task->name);
    pass p = {.trainer = trainer,
              .comm = comm,
              .group = comm ? comm->rank / same : 0,
              .groups = ranks,
              .samples = samples,
              .outputs = tx_run_columns(trainer)};
    const tx_parallel_options *parallel = &o->parallel;
    p.gathers = parallel->zero_stage == 3 || parallel->expert;
    void *memory = malloc((size_t)(rows * tx_task_row_bytes(samples->task, samples->block)));
    const bool reduces = p.outputs && samples->task->keep;
    if (reduces)
        p.batch_outputs = malloc((size_t)(rows * tx_trainer_outputs(trainer)) * sizeof *p.batch_outputs);
    p.round = calloc((size_t)(ranks * rows * p.outputs) + 1, sizeof *p.round);
    p.all = calloc((size_t)(samples->count * p.outputs) + 1, sizeof *p.all);
    const bool has = memory && p.round && p.all && (p.batch_outputs || !reduces);
    tx_status status = has ? TX_OK : tx_fail(TX_MEMORY, "evaluation: no memory for a batch");
    p.batch = tx_batch_of(samples->task, samples->block, rows, memory);
    tx_watchdog_begin(watch, TX_WATCHDOG_EVALUATING);
    /* The ranks add up their sums after each batch. So no rank waits longer than the slowest rank's batch takes, and
     * the watch sees progress on all ranks. */
    for (int64_t first = 0; first < samples->count && !status; first += ranks * rows) {
        status = do_round(&p, first, sums);
        tx_watchdog_alive(watch, NULL);
    }
    free(memory);
    free(p.round);
    free(p.batch_outputs);
    return TX_RETURN(status, p.all, outputs, free);
}

tx_status tx_run_evaluate(tx_trainer *trainer, const tx_samples *samples, tx_watchdog *watch,
                          tx_run_evaluation *evaluation)
{
    const tx_task *task = samples->task;
    const int64_t rows = tx_trainer_options_of(trainer)->eval_batch;
    double sums[TX_SUMS_MAX] = {0}, begin = tx_now();
    float *outputs = NULL;
    TX_TRY(tx_run_outputs(trainer, samples, watch, sums, &outputs));
    const tx_status status = task->measure ? task->measure(samples, outputs, tx_run_columns(trainer), sums) : TX_OK;
    free(outputs);
    TX_TRY(status);
    evaluation->metrics = task->metrics;
    for (int32_t m = 0; task->metrics[m].name; m++)
        evaluation->has[m] = tx_metric_measure(&task->metrics[m], sums, &evaluation->value[m]);
    evaluation->seconds = tx_now() - begin;
    evaluation->samples = samples->count;
    evaluation->batches = tx_ceil_div(samples->count, rows);
    return TX_OK;
}

int32_t tx_run_figures(const tx_run_evaluation *e, bool of_trainer, tx_figure figures[TX_RUN_FIGURES])
{
    int32_t count = 0;
    for (int32_t m = 0; e->metrics[m].name; m++)
        if (e->has[m] && (!of_trainer || strncmp(e->metrics[m].name, "eval_", 5) == 0))
            figures[count++] = (tx_figure){e->metrics[m].name, e->value[m], -1};
    figures[count++] = (tx_figure){"eval_runtime", e->seconds, 4};
    figures[count++] = (tx_figure){"eval_samples_per_second", (double)e->samples / e->seconds, 3};
    figures[count++] = (tx_figure){"eval_steps_per_second", (double)e->batches / e->seconds, 3};
    return count;
}
