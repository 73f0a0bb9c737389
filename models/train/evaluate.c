/* SPDX-License-Identifier: Apache-2.0
 * A task's metrics over its samples. */
#include "models/train/run.h"

#include "api/base/clock.h"
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* The ranks' sums, added in their order. */
static tx_status add_up(tx_comm *comm, double sums[TX_SUMS_MAX])
{
    const size_t bytes = TX_SUMS_MAX * sizeof *sums;
    double *all = calloc((size_t)comm->size, bytes);
    if (!all)
        return tx_fail(TX_MEMORY, "evaluation: out of memory");
    memcpy(all + comm->rank * TX_SUMS_MAX, sums, bytes);
    tx_status status = tx_comm_share(comm, all, bytes);
    memset(sums, 0, bytes);
    for (int32_t i = 0; i < comm->size * TX_SUMS_MAX; i++)
        sums[i % TX_SUMS_MAX] += all[i];
    free(all);
    return status;
}

tx_status tx_run_evaluate(tx_trainer *trainer, const tx_samples *samples, tx_watch *watch,
                          tx_run_evaluation *evaluation)
{
    const tx_task *task = samples->task;
    tx_comm *comm = tx_trainer_options_of(trainer)->comm;
    const int64_t rows = tx_trainer_options_of(trainer)->eval_batch;
    const int64_t rank = comm ? comm->rank : 0, ranks = comm ? comm->size : 1;
    tx_status status = tx_trainer_check_samples(trainer, samples);
    void *memory = status ? NULL : malloc((size_t)(rows * tx_task_row_bytes(task, samples->block)));
    if (!memory)
        return status ? status : tx_fail(TX_MEMORY, "evaluation: no memory for a batch");
    const tx_batch batch = tx_batch_of(task, samples->block, rows, memory);
    double sums[TX_SUMS_MAX] = {0}, begin = tx_now();
    tx_watch_begin(watch, TX_WATCH_EVALUATING);
    tx_sample_order order = {0};
    /* A batch each, then the sums of all: no rank waits for longer than the slowest takes for a batch, and the watches
     * see that all get on. */
    for (int64_t first = 0; first < samples->count && !status; first += ranks * rows) {
        const int64_t own = first + rank * rows;
        double of_batch[TX_SUMS_MAX] = {0};
        if (own < samples->count) {
            status = tx_samples_rows(samples, &order, own, &batch);
            TX_THEN(status, tx_trainer_evaluate(trainer, &batch, of_batch));
        }
        if (!status && comm)
            status = add_up(comm, of_batch);
        for (int32_t i = 0; i < TX_SUMS_MAX; i++)
            sums[i] += of_batch[i];
        tx_watch_alive(watch, NULL);
    }
    free(memory);
    if (status)
        return status;
    evaluation->metrics = task->metrics;
    for (int32_t m = 0; task->metrics[m].name; m++)
        evaluation->value[m] = task->metrics[m].value(sums);
    evaluation->seconds = tx_now() - begin;
    evaluation->samples = samples->count;
    evaluation->batches = (samples->count + rows - 1) / rows;
    return TX_OK;
}

int32_t tx_run_figures(const tx_run_evaluation *e, bool of_trainer, tx_figure figures[TX_RUN_FIGURES])
{
    int32_t count = 0;
    for (int32_t m = 0; e->metrics[m].name; m++)
        if (!of_trainer || strncmp(e->metrics[m].name, "eval_", 5) == 0)
            figures[count++] = (tx_figure){e->metrics[m].name, e->value[m], -1};
    figures[count++] = (tx_figure){"eval_runtime", e->seconds, 4};
    figures[count++] = (tx_figure){"eval_samples_per_second", (double)e->samples / e->seconds, 3};
    figures[count++] = (tx_figure){"eval_steps_per_second", (double)e->batches / e->seconds, 3};
    return count;
}
