/* SPDX-License-Identifier: Apache-2.0
 * The mean loss over a dataset. */
#include "models/train/run.h"

#include "api/base/clock.h"
#include "comm/comm.h"

#include <math.h>
#include <stdlib.h>

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

tx_status tx_run_evaluate(tx_trainer *trainer, const tx_dataset *data, tx_watch *watch, tx_run_evaluation *evaluation)
{
    tx_comm *comm = tx_trainer_options_of(trainer)->comm;
    const int64_t rows = tx_trainer_options_of(trainer)->eval_batch, blocks = tx_dataset_blocks(data);
    const int64_t rank = comm ? comm->rank : 0, ranks = comm ? comm->size : 1;
    size_t count = (size_t)(rows * tx_dataset_block(data));
    int32_t *tokens = malloc(2 * count * sizeof *tokens);
    if (!tokens)
        return tx_fail(TX_MEMORY, "evaluation: no memory for a batch");
    double sum = 0.0, begin = tx_now();
    int64_t labels = 0;
    tx_watch_begin(watch, TX_WATCH_EVALUATING);
    tx_order order = {0};
    tx_status status = TX_OK;
    /* A batch each, then the sums of all: no rank waits for longer than the slowest takes for a batch, and the watches
     * see that all get on. */
    for (int64_t first = 0; first < blocks && !status; first += ranks * rows) {
        const int64_t own = first + rank * rows;
        double batch_sum = 0.0;
        int64_t batch_labels = 0;
        if (own < blocks) {
            status = tx_dataset_rows(data, &order, own, rows, tokens, tokens + count, NULL);
            if (!status)
                status = tx_trainer_evaluate(trainer, tokens, tokens + count, &batch_sum, &batch_labels);
        }
        if (!status && comm)
            status = add_up(comm, &batch_sum, &batch_labels);
        sum += batch_sum;
        labels += batch_labels;
        tx_watch_alive(watch, NULL);
    }
    free(tokens);
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
