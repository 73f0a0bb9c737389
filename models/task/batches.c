/* SPDX-License-Identifier: Apache-2.0
 * Batches of tokens for programs that link the library (tx_text.h). They use the loader of training runs with one batch
 * a step. */
#include "models/task/causal_lm.h"

#include "api/base/needs.h"
#include "models/task/loader.h"

#include <inttypes.h>
#include <stdlib.h>

struct tx_batches {
    tx_loader *loader;
    int64_t count; /* batches in an epoch */
};

tx_status tx_batches_create(const tx_dataset *dataset, const tx_batches_options *options, tx_batches **batches)
{
    TX_NEEDS(dataset && options && batches, TX_INVALID);
    const tx_samples samples = tx_causal_lm_samples(dataset);
    const tx_job_settings set = {.seed = (int64_t)options->seed, .data_seed = -1, .workers = options->workers};
    const tx_loader_options loader = {
        .size = sizeof loader, .set = &set, .step_rows = options->rows, .batch = options->rows};
    if (options->size != sizeof *options)
        return tx_fail(TX_INVALID, "batches: the options' size field is %zu, expected %zu", options->size,
                       sizeof *options);
    if (options->rows < 1 || options->first < 0)
        return tx_fail(TX_INVALID, "batches: invalid: %" PRId64 " rows from batch %" PRId64 " on", options->rows,
                       options->first);
    tx_batches *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "batches: out of memory");
    created->count = tx_loader_epoch_steps(samples.count, options->rows);
    tx_status status = tx_loader_create(&samples, &loader, options->first, &created->loader);
    return TX_RETURN(status, created, batches, free);
}

void tx_batches_free(tx_batches *batches)
{
    if (batches)
        tx_loader_free(batches->loader);
    free(batches);
}

tx_status tx_batches_next(tx_batches *batches, tx_token_batch *batch)
{
    TX_NEEDS(batches && batch, TX_INVALID);
    const tx_step_batch *step = NULL;
    TX_TRY(tx_loader_next(batches->loader, &step));
    *batch = (tx_token_batch){.number = step->step,
                              .epoch = step->epoch,
                              .rows = step->rows,
                              .labels = step->labels,
                              .input_ids = step->batch.field[TX_CAUSAL_LM_INPUT_IDS],
                              .label = step->batch.field[TX_CAUSAL_LM_LABELS]};
    return TX_OK;
}

int64_t tx_batches_count(const tx_batches *batches)
{
    TX_NEEDS(batches, 0);
    return batches->count;
}
