/* SPDX-License-Identifier: Apache-2.0
 * The defaults of a run's settings, and values that follow from several settings. */
#include "models/options/settings.h"

#include "tx.h"

const tx_job_settings tx_job_defaults = {
#define OPTION(kind, type, name, member, initial, ...) .member = initial,
#include "models/options/options.def"
};

bool tx_job_trains(const tx_job_settings *set)
{
    return set->do_train || (!set->do_eval && !set->do_predict);
}

bool tx_job_evaluates(const tx_job_settings *set)
{
    return set->do_eval || set->evaluation || set->eval_first || (!set->do_train && set->validation_file);
}

int32_t tx_job_chunks(const tx_job_settings *set)
{
    return set->pipeline_schedule == TX_PIPELINE_INTERLEAVED ? (int32_t)set->pipeline_chunks : 1;
}

tx_dtype tx_job_wire(const tx_job_settings *set)
{
    static const tx_dtype wire[] = {
        [TX_DDP_COMM_FP32] = TX_F32, [TX_DDP_COMM_BF16] = TX_BF16, [TX_DDP_COMM_INT8] = TX_U8};
    return wire[set->ddp_comm];
}

uint64_t tx_job_data_seed(const tx_job_settings *set)
{
    return (uint64_t)(set->data_seed >= 0 ? set->data_seed : set->seed);
}
