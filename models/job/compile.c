/* SPDX-License-Identifier: Apache-2.0
 * Compiles the plans of a run, or refuses a run that does not fit in memory. */
#include "models/job/plans.h"

#include "models/job/fit.h"
#include "models/job/results.h"
#include "models/options/bytes.h"

#include <inttypes.h>
#include <stdio.h>

static tx_status refuse(tx_job *j, const char *why, int64_t scratch)
{
    char advice[1024];
    TX_TRY(tx_job_advise(j, scratch, advice, sizeof advice));
    return tx_fail(TX_MEMORY, "the run does not fit: %s; %s", why, advice);
}

/* Refuses a run with a tensor that is too large. The last message names the tensor. */
static tx_status refuse_tensor(tx_job *j)
{
    char why[512];
    snprintf(why, sizeof why, "%s", tx_error());
    return refuse(j, why, 0);
}

static tx_status refuse_all(tx_job *j, const tx_fit *fit, int64_t scratch)
{
    char why[512];
    tx_fit_text(fit, why, sizeof why);
    tx_list_add(why, sizeof why, "; ", "weights, gradients and optimizer states are %.2f GiB of it",
                tx_gib(fit->lasting));
    return refuse(j, why, scratch);
}

static tx_status compile(tx_job *j)
{
    char text[512];
    tx_memory planned;
    tx_fit fit;
    tx_forecast forecast;
    tx_status status = tx_job_compile(j);
    if (!status || status == TX_MEMORY)
        status = tx_comm_agree(j->comm, status, "plan its part");
    if (status)
        return status == TX_MEMORY ? refuse_tensor(j) : status;
    TX_TRY(tx_model_memory(j->model, &planned));
    TX_TRY(tx_job_judge_fit(j, &planned, &fit));
    if (fit.planned > fit.limit) {
        TX_TRY(tx_job_forecast(j, planned.bytes[TX_MEMORY_SCRATCH], &forecast));
        return refuse_all(j, &fit, tx_memory_total(&planned) - tx_memory_total(&forecast.memory));
    }
    tx_fit_text(&fit, text, sizeof text);
    if (j->set.dry_run)
        tx_job_note(j, "memory  fits: %s", text);
    if (j->set.dry_run && j->trainer && j->set.saving)
        tx_job_note(j, "saving  takes %.2f GiB of host memory outside the plan, if twice as much is left",
                    tx_gib(tx_job_checkpoint_bytes(j)));
    return TX_OK;
}

/* Refuses a run that does not fit before its kernels are built, which may take minutes. Only the scratch memory of the
 * kernels is not known yet. */
static tx_status foresee_and_compile(tx_job *j)
{
    tx_fit fit;
    tx_status status = tx_job_forecast_fit(j, 0, &fit);
    if (status)
        return status == TX_MEMORY ? refuse_tensor(j) : status;
    return fit.planned > fit.limit ? refuse_all(j, &fit, 0) : compile(j);
}

/* Compiles for `rows` rows in a micro-batch of a rank and `times` micro-batches if they fit. */
static tx_status try_batch(tx_job *j, int64_t rows, int64_t times)
{
    tx_fit fit;
    j->set.batch = rows;
    j->set.accumulation = times;
    TX_TRY(tx_job_forecast_fit(j, 0, &fit));
    if (fit.planned > fit.limit)
        return tx_fail(TX_MEMORY, "%.2f GiB are planned, %s has %.2f GiB", tx_gib(fit.planned), fit.owner,
                       tx_gib(fit.limit));
    return compile(j);
}

tx_status tx_job_compile_to_fit(tx_job *j)
{
    const int64_t batch = j->set.batch, times = j->set.accumulation;
    if (!j->set.find_batch)
        return foresee_and_compile(j);
    tx_status status = TX_MEMORY;
    for (int64_t part = 1; part <= batch && status == TX_MEMORY; part++)
        if (batch % part == 0)
            status = try_batch(j, batch / part, times * part);
    if (!status && j->set.batch < batch)
        tx_job_note(j,
                    "batch   %" PRId64 " rows on a device do not fit in memory: %" PRId64 " do, with %" PRId64
                    " micro-batches instead of %" PRId64,
                    batch, j->set.batch, j->set.accumulation, times);
    return status == TX_MEMORY ? tx_fail_in(status, "--auto_find_batch_size: with one row on a device") : status;
}
