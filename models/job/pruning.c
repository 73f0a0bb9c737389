/* SPDX-License-Identifier: Apache-2.0
 * Pruning: checks the options, and sets the smallest initial weights to 0. They stay 0 during training. */
#include "models/job/inputs.h"

#include "models/arch/prune.h"

#include <inttypes.h>
#include <string.h>

bool tx_job_prunes(const tx_job_settings *set)
{
    return set->sparsity > 0 || set->mask_structure;
}

static tx_status read_pruning(const tx_job_settings *set, tx_pruning *pruning)
{
    return tx_pruning_read(set->mask_structure ? set->mask_structure : "unstructured", set->sparsity, pruning);
}

tx_status tx_job_check_pruning(const tx_job_settings *set)
{
    tx_pruning pruning;
    return tx_job_prunes(set) ? read_pruning(set, &pruning) : TX_OK;
}

/* A resumed run must have the same pruning: the moments of weights that were pruned later would change them. */
static tx_status check_resumed(const tx_job *j)
{
    const tx_job_settings *set = &j->set;
    double sparsity = 0;
    const char *structure = "";
    if (tx_json_has(j->inputs.state.run, TX_JOB_NAME(sparsity)))
        TX_TRY(tx_json_get_number(j->inputs.state.run, TX_JOB_NAME(sparsity), 0, 1, &sparsity));
    if (tx_json_has(j->inputs.state.run, TX_JOB_NAME(mask_structure)))
        TX_TRY(tx_json_get_string(j->inputs.state.run, TX_JOB_NAME(mask_structure), &structure));
    if (sparsity == set->sparsity && strcmp(structure, set->mask_structure ? set->mask_structure : "") == 0)
        return TX_OK;
    return tx_fail(
        TX_INVALID,
        "%s is from a run with --sparsity %g%s%s; to change the pruning, start a new run with --model_name_or_path %s",
        j->inputs.checkpoint, sparsity, *structure ? " --mask_structure " : "", structure, j->inputs.checkpoint);
}

tx_status tx_job_choose_pruning(const tx_job *j)
{
    tx_pruning pruning;
    if (j->inputs.checkpoint)
        TX_TRY(check_resumed(j));
    if (!tx_job_prunes(&j->set))
        return TX_OK;
    TX_TRY(read_pruning(&j->set, &pruning));
    const tx_status status = tx_pruning_check(&pruning, j->inputs.config);
    return status ? tx_fail_in(status, "--mask_structure") : TX_OK;
}

tx_status tx_job_prune(const tx_job *j)
{
    tx_pruning pruning;
    tx_pruned pruned;
    if (!tx_job_prunes(&j->set))
        return TX_OK;
    TX_TRY(read_pruning(&j->set, &pruning));
    TX_TRY(tx_prune(j->model, j->inputs.config, &pruning, &pruned));
    tx_job_note(j,
                "sparse  %" PRId64 " %s of the blocks: %" PRId64 " of %" PRId64 " weights are 0, %.2f %%; they stay 0",
                pruned.matrices, pruned.matrices == 1 ? "matrix" : "matrices", pruned.zeros, pruned.weights,
                pruned.weights ? 100.0 * (double)pruned.zeros / (double)pruned.weights : 0.0);
    return TX_OK;
}
