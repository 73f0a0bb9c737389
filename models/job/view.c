/* SPDX-License-Identifier: Apache-2.0
 * Queries of a run for programs: its options, its progress, its plans and their memory (tx_train.h). */
#include "models/job/job.h"

#include "api/base/needs.h"

/* ---- Options -------------------------------------------------------------------------------------------- */

tx_option_values *tx_job_options(tx_job *j)
{
    TX_NEEDS(j, NULL);
    return &j->options;
}

bool tx_job_is_own(const tx_option *option)
{
    TX_NEEDS(option, false);
    return tx_job_traits(option) & TX_TRIAL;
}

tx_status tx_job_like(const tx_job *j, tx_job **other)
{
    TX_NEEDS(j && other, TX_INVALID);
    tx_job *created = NULL;
    TX_TRY(tx_job_create(&created));
    created->set = j->set;
    created->options = j->options;
    created->options.values = &created->set;
    created->options.kept = NULL; /* `j` owns the texts */
    *other = created;
    return TX_OK;
}

/* ---- Progress ------------------------------------------------------------------------------------------- */

void tx_job_doing(const tx_job *j, char *text, size_t size)
{
    TX_NEEDS(j && text && size, );
    tx_watchdog_doing(j->watch, text, size);
}

bool tx_job_is_complete(const tx_job *j)
{
    TX_NEEDS(j, false);
    return j->complete;
}

/* ---- Plans ---------------------------------------------------------------------------------------------- */

int64_t tx_job_params(const tx_job *j)
{
    TX_NEEDS(j, 0);
    return j->inputs.config ? tx_arch_param_count(j->inputs.config) : 0;
}

tx_status tx_job_memory(const tx_job *j, tx_memory *planned, tx_memory *counted)
{
    TX_NEEDS(j, TX_INVALID);
    if (!j->trainer || (counted && j->set.dry_run))
        return tx_fail(TX_NOT_FOUND, "the run has no %s yet", j->trainer ? "memory" : "plans");
    if (planned)
        TX_TRY(tx_model_memory(j->model, planned));
    return counted ? tx_engine_memory(j->engine, counted) : TX_OK;
}

const tx_plan *tx_job_plan(const tx_job *j, int32_t index, int64_t *runs)
{
    TX_NEEDS(j && runs && index >= 0, NULL);
    return j->trainer ? tx_trainer_plan(j->trainer, index, runs) : NULL;
}

int64_t tx_job_traffic(const tx_job *j, tx_traffic *traffic)
{
    TX_NEEDS(j && traffic, 0);
    *traffic = j->summary.traffic;
    return j->summary.measured_steps;
}
