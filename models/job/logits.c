/* SPDX-License-Identifier: Apache-2.0
 * Chooses how many logits of the classifier exist at a time. Each chunk after the first reads and writes the table's
 * gradient once more, and its products fill a large GPU badly. So training on a GPU uses the largest chunks that fit.
 * The number of chunks changes the order of sums, so the choice depends on the devices' memory, not on free memory: a
 * resumed run chooses the same. */
#include "models/job/plans.h"

#include "models/job/fit.h"
#include "models/job/ranks.h"

/* The share of a device's memory that may be planned with larger chunks. The rest is for the kernels' scratch memory
 * and for the driver. */
#define SHARE 0.85

/* Whether a rank computes on a GPU. */
static tx_status any_gpu(const tx_job *j, bool *gpu)
{
    int32_t gpus = tx_engine_device(j->engine)->type == TX_DEVICE_GPU;
    tx_status status = tx_comm_collect(j->comm, TX_ALL_REDUCE, &gpus, 1, TX_I32, 0);
    *gpu = gpus > 0;
    return status;
}

tx_status tx_job_choose_logits(tx_job *j, tx_trainer_options *trainer)
{
    static const int64_t larger[] = {INT64_MAX, INT64_C(1) << 30};
    const bool own = tx_engine_device(j->engine)->type == TX_DEVICE_GPU;
    bool fits = false, gpu;
    tx_status status = any_gpu(j, &gpu);
    for (size_t i = 0; i < sizeof larger / sizeof larger[0] && gpu && !fits && !status; i++) {
        tx_forecast forecast;
        tx_fit fit;
        trainer->logits = own ? larger[i] : 0;
        status = tx_trainer_forecast(j->engine, j->inputs.config, trainer, &forecast);
        status = tx_comm_agree(j->comm, status, "plan its part");
        TX_THEN(status, tx_job_judge_devices(j, &forecast.memory, &fit));
        fits = !status && (double)fit.planned <= SHARE * (double)fit.limit;
    }
    if (!fits)
        trainer->logits = 0;
    return status;
}
