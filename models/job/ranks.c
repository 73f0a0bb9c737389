/* SPDX-License-Identifier: Apache-2.0
 * Makes the process groups, and divides rows among the ranks. */
#include "models/job/ranks.h"
#include "api/base/number.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* TX_INVALID if the number of ranks is not a multiple of `ranks`, the product of the sizes of nested groups. `given` is
 * the value of the option. */
static tx_status check_groups(const tx_job *j, const char *kind, int64_t given, int32_t ranks)
{
    return j->comm->size % ranks == 0
               ? TX_OK
               : tx_fail(TX_INVALID,
                         "--%s_parallel %" PRId64 ": the number of ranks, %" PRId32
                         ", must be a multiple of the group size %" PRId32 " (mpiexec -n %" PRId32 ")",
                         kind, given, j->comm->size, ranks, ranks);
}

/* Splits `all` into groups of `ranks` consecutive ranks. `others` are the ranks with the same index in each group. */
static tx_status make_subgroups(tx_comm *all, int32_t ranks, tx_comm **group, tx_comm **others)
{
    TX_TRY(tx_comm_sub(all, all->rank / ranks, all->rank, group));
    return tx_comm_sub(all, all->rank % ranks, all->rank, others);
}

/* Finds the size of hybrid sharding's groups: as given, or the ranks of each host. */
static tx_status find_group_size(const tx_job *j, int32_t *size)
{
    const tx_comm *sums = j->sums;
    const char *why = NULL;
    int32_t ranks = (int32_t)j->set.zero_group;
    for (int32_t r = 0; r < sums->size && j->set.zero_group == 0; r++)
        ranks += sums->ranks[r].host == sums->ranks[0].host;
    for (int32_t r = 0; r < sums->size && j->set.zero_group == 0; r++)
        if (sums->ranks[r].host != sums->ranks[r / ranks * ranks].host)
            why = "the hosts have different numbers of ranks, or ranks of different hosts take turns";
    if (ranks == 1 && sums->size > 1)
        why = "each host has one of the ranks that share gradients, so that nothing would be sharded";
    if (sums->size % ranks != 0)
        why = why ? why : "the number of ranks that share gradients must be a multiple of it";
    *size = ranks;
    return why ? tx_fail(TX_INVALID, "--zero_hpz_partition_size %" PRId64 ": %s (%" PRId32 " ranks)", j->set.zero_group,
                         why, sums->size)
               : TX_OK;
}

/* Makes the groups of hybrid sharding, unless one group has all ranks. */
static tx_status make_shards(tx_job *j)
{
    int32_t size = 1;
    j->shards = j->replicate = NULL;
    if (j->set.zero_group == 1 || j->sums->size == 1)
        return TX_OK;
    TX_TRY(find_group_size(j, &size));
    return size < j->sums->size ? make_subgroups(j->sums, size, &j->shards, &j->replicate) : TX_OK;
}

/* Ranks are numbered by (pp_rank, dp_rank, tp_rank) with tp_rank fastest, so that tensor-parallel ranks share a host.
 * Gradients are summed over the ranks with the same pp_rank and tp_rank. Consecutive ranks among these are the
 * context-parallel and expert-parallel groups. */
tx_status tx_job_make_groups(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    const int32_t parts = (int32_t)set->tensor_parallel, stages = (int32_t)set->pipeline_parallel,
                  chunks = (int32_t)set->context_parallel, experts = (int32_t)set->expert_parallel;
    const int32_t rank = j->comm->rank, times = parts * stages;
    j->data = j->sums = j->comm;
    j->tensor = j->pipeline = j->ends = j->peers = j->expert = j->replicas = j->context = NULL;
    TX_TRY(check_groups(j, stages > 1 ? "pipeline" : "tensor", stages > 1 ? stages : parts, times));
    TX_TRY(check_groups(j, "context", chunks, times * chunks));
    TX_TRY(check_groups(j, "expert", experts, times * experts));
    const int32_t of_stage = j->comm->size / stages, stage = rank / of_stage, end = stage > 0 && stage < stages - 1;
    if (parts > 1)
        TX_TRY(tx_comm_sub(j->comm, rank / parts, rank, &j->tensor));
    if (stages > 1) {
        TX_TRY(tx_comm_sub(j->comm, rank % of_stage, rank, &j->pipeline));
        TX_TRY(tx_comm_sub(j->pipeline, end, rank, &j->ends));
    }
    if (times > 1)
        TX_TRY(tx_comm_sub(j->comm, stage * parts + rank % parts, rank, &j->sums));
    TX_TRY(make_shards(j));
    j->data = j->sums;
    if (set->sync_every > 1 && j->comm->size > 1)
        TX_TRY(tx_comm_sub(j->comm, rank, rank, &j->sums));
    if (chunks > 1)
        TX_TRY(make_subgroups(j->sums, chunks, &j->context, &j->data));
    if (set->gather_across || set->top_entropy_quantile < 1.0)
        TX_TRY(tx_comm_sub(j->data, 0, j->data->rank, &j->peers));
    return experts > 1 ? make_subgroups(j->sums, experts, &j->expert, &j->replicas) : TX_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

/* The weights as given. With auto, a resumed run on as many ranks reuses the measured shares of the earlier run. */
static const char *wanted_weights(const tx_job *j)
{
    const tx_json *run = j->inputs.state.run;
    const char *given = j->set.batch_weights, *rows = NULL;
    int64_t ranks = 0;
    if (!given || strcmp(given, "auto") != 0)
        return given;
    bool same = run && !tx_json_get_int(run, "world_size", 1, INT32_MAX, &ranks) && ranks == j->data->size;
    return same && !tx_json_get_string(run, TX_RUN_ROWS, &rows) ? rows : NULL;
}

/* The rows of a step: the given number, the earlier run's if it had another number of ranks, or else the rows of all
 * ranks times accumulation. */
static int64_t wanted_rows(const tx_job *j)
{
    const tx_json *run = j->inputs.state.run;
    int64_t result = j->all_rows * j->set.accumulation, ranks = 0, rows = 0;
    if (j->set.global_batch)
        return j->set.global_batch;
    if (!run || tx_json_get_int(run, "world_size", 1, INT32_MAX, &ranks) || ranks == j->data->size ||
        tx_json_get_int(run, "global_batch", 1, INT32_MAX, &rows) || rows == result)
        return result;
    tx_job_note(j, "batch   %" PRId64 " blocks a step, as in the earlier run on %" PRId64 " ranks", rows, ranks);
    return rows;
}

/* Checks DeepSpeed's three batch sizes if its file has all of them. */
static tx_status check_product(const tx_job *j)
{
    const int64_t result = j->all_rows * j->set.accumulation;
    if (!j->set.deepspeed || !j->set.global_batch || result == j->step_rows ||
        j->set.parallel == TX_JOB_PARALLEL_AUTO || !tx_option_asked(&j->options, TX_JOB_AT(accumulation)))
        return TX_OK;
    return tx_fail(TX_INVALID,
                   "--deepspeed: train_batch_size %" PRId64 " is not train_micro_batch_size_per_gpu %" PRId64
                   " x gradient_accumulation_steps %" PRId64 " x %" PRId32 " ranks: leave one out",
                   j->step_rows, j->set.batch, j->set.accumulation, j->data->size);
}

/* Reads positive numbers with commas between them, one for each rank. Without a text all weights are 1. */
static tx_status read_weights(const char *text, int32_t ranks, double *weight)
{
    for (int32_t r = 0; r < ranks; r++) {
        char *end = NULL;
        weight[r] = text ? tx_number_read(text, &end) : 1.0;
        if (text && (end == text || !(weight[r] > 0.0 && weight[r] < 1e9) || *end != (r + 1 < ranks ? ',' : '\0')))
            return tx_fail(
                TX_INVALID,
                "batch_weights: give a positive number for each of the %" PRId32 " ranks, separated by commas", ranks);
        text = text ? end + 1 : NULL;
    }
    return TX_OK;
}

static tx_status write_rows(tx_job *j, const int64_t *share)
{
    free(j->rows_text);
    j->rows_text = tx_pace_shares_text(share, j->data->size);
    return j->rows_text ? TX_OK : tx_fail(TX_MEMORY, "no memory for the ranks' shares");
}

tx_status tx_job_split(tx_job *j)
{
    const tx_comm *comm = j->data;
    double *weight = calloc((size_t)comm->size, sizeof *weight);
    int64_t *share = calloc((size_t)comm->size, sizeof *share);
    const char *weights = wanted_weights(j);
    j->all_rows = j->set.batch * comm->size;
    j->balance = !weights && j->set.batch_weights;
    tx_status status = weight && share ? TX_OK : tx_fail(TX_MEMORY, "no memory for the ranks' shares");
    TX_THEN(status, read_weights(weights, comm->size, weight));
    TX_THEN(status, tx_pace_apportion(weight, comm->size, j->all_rows, share));
    j->rows_before = 0;
    for (int32_t r = 0; r < comm->rank && !status; r++)
        j->rows_before += share[r];
    j->rows = status ? 0 : share[comm->rank];
    j->step_rows = wanted_rows(j);
    TX_THEN(status, check_product(j));
    TX_THEN(status, write_rows(j, share));
    free(weight);
    free(share);
    return status;
}

/* Fails if every micro-batch would have one row. */
static tx_status need_rows(const tx_job *j)
{
    const int64_t count = j->inputs.train.count, rows = j->peers ? j->all_rows : j->rows;
    if (!count || (rows > 1 && count > 1))
        return TX_OK;
    return tx_fail(TX_INVALID,
                   "the loss of %s compares the rows of a micro-batch and learns nothing from one row: use at least 2 "
                   "samples and --per_device_train_batch_size 2%s",
                   j->inputs.task->name,
                   (j->inputs.row->traits & TX_EMBED) ? ", or several ranks with --gather_across_devices" : "");
}

tx_status tx_job_check_rows(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    const tx_task *task = j->inputs.task;
    const int64_t count = j->inputs.train.count, micro = j->peers ? j->all_rows : set->batch,
                  step = count < j->step_rows ? count : j->step_rows, last = set->drop_last ? 0 : count % j->step_rows;
    if (!task->compares || !task->compares(task, set))
        return TX_OK;
    TX_TRY(tx_comm_agree(j->comm, need_rows(j), "compare rows"));
    if (tx_job_leads(j) && (step % micro == 1 || last % micro == 1))
        tx_reporter_print(&j->report,
                          "a micro-batch of one row teaches nothing, because the loss of %s compares rows: "
                          "use --dataloader_drop_last or another batch size",
                          task->name);
    if (tx_job_leads(j) && tx_job_evaluates(set) && set->eval_batch == 1)
        tx_reporter_print(&j->report, "eval_loss of %s compares rows: use a --per_device_eval_batch_size of 2 or more",
                          task->name);
    return TX_OK;
}

void tx_job_note_shares(const tx_job *j)
{
    static const char *const wires[] = {
#define X(name, word) word,
        TX_DDP_COMM_MAP(X)
#undef X
    };
    int64_t elements = 0;
    int32_t buckets = tx_model_bucket_count(j->model);
    if (j->comm->size == 1)
        return;
    for (int32_t i = 0; i < buckets; i++)
        elements += tx_model_bucket_elements(j->model, i);
    if (j->tensor)
        tx_job_note(j, "tensor  %" PRId32 " ranks compute the same rows%s; %" PRId32 " group%s", j->tensor->size,
                    j->set.sequence_parallel ? " and shard the positions of the residual stream" : "", j->data->size,
                    tx_s(j->data->size));
    if (j->expert)
        tx_job_note(j, "experts %" PRId32 " ranks shard the experts of each layer; %" PRId32 " group%s",
                    j->expert->size, j->replicas->size, tx_s(j->replicas->size));
    if (j->pipeline)
        tx_job_note_stages(j);
    tx_job_note(j, "shares  %s rows of a micro-batch, %" PRId64 " row%s a step", j->rows_text, j->step_rows,
                tx_s(j->step_rows));
    if (j->context)
        tx_job_note(j,
                    "chunks  %" PRId32 " ranks have %" PRId64 " positions each of the same rows; %" PRId32 " group%s",
                    j->context->size, j->inputs.block / j->context->size, j->data->size, tx_s(j->data->size));
    if (j->data->size > 1 && j->set.sync_every > 1)
        tx_job_note(j,
                    "local   %" PRId64 " steps of each rank between averages of the weights; outer learning rate %g, "
                    "momentum %g; the log has the loss of rank 0",
                    j->set.sync_every, j->set.outer_rate, j->set.outer_momentum);
    if (j->sums->size == 1)
        return;
    tx_job_note(j, "sums    %.1f MB of gradients in %" PRId32 " bucket%s, %s between hosts; ZeRO stage %" PRId32 "",
                4e-6 * (double)elements, buckets, tx_s(buckets), wires[j->set.ddp_comm], j->zero_stage);
    if (j->zero_stage > 0 && j->shards)
        tx_job_note(j, "hybrid  %" PRId32 " ranks shard, %" PRId32 " group%s have the same shards", j->shards->size,
                    j->replicate->size, tx_s(j->replicate->size));
}
