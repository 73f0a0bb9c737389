/* SPDX-License-Identifier: Apache-2.0
 * Training as DistributedDataParallel does it: a process a device, gradients summed in buckets, every rank the same
 * update. This is the path of txtrain: trainer, pace, communicator. Also what both ways of training share. */
#include "api/base/clock.h"
#include "comm/comm.h"
#include "tools/bench/bench.h"
#include "tools/bench/ddp.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- Shared --------------------------------------------------------------------------------------------- */

tx_status tx_ddp_data_make(const tx_ddp_job *job, tx_ddp_data *data)
{
    const int64_t rows = job->ranks * job->batch;
    data->tokens = calloc((size_t)(rows * job->block), 2 * sizeof *data->tokens);
    if (!data->tokens)
        return tx_fail(TX_MEMORY, "no memory for a batch of %" PRId64 " x %" PRId64 " tokens", rows, job->block);
    data->labels = data->tokens + rows * job->block;
    data->counted = rows * (job->block - 1);
    data->random = TX_DDP_SEED;
    return TX_OK;
}

void tx_ddp_data_next(const tx_ddp_job *job, tx_ddp_data *data)
{
    tx_bench_tokens(&data->random, job->config->vocab_size, job->ranks * job->batch, job->block, data->tokens,
                    data->labels);
}

void tx_ddp_data_free(tx_ddp_data *data)
{
    free(data->tokens);
}

tx_optimizer_options tx_ddp_optimizer(void)
{
    return (tx_optimizer_options){sizeof(tx_optimizer_options), TX_ADAMW, 0.9f, 0.999f, 1e-8f, .weight_decay = 0.0f};
}

tx_status tx_ddp_places(int32_t count, tx_placement **placement)
{
    tx_topology *topology = NULL;
    tx_status status = tx_topology_live(NULL, &topology);
    if (!status)
        status = tx_placement_make(topology, count, placement);
    tx_topology_free(topology);
    return status == TX_UNSUPPORTED ? TX_OK : status;
}

tx_status tx_ddp_take(const tx_placement *placement, int32_t index, int32_t count, int32_t *threads)
{
    if (placement) {
        *threads = placement->places[index].cores;
        return tx_placement_take(&placement->places[index]);
    }
    tx_device_info cpu;
    tx_status status = tx_device_get(0, &cpu);
    if (!status)
        *threads = cpu.compute_units > count ? cpu.compute_units / count : 1;
    return status;
}

/* ---- A rank --------------------------------------------------------------------------------------------- */

typedef struct rank {
    const tx_ddp_job *job;
    tx_comm *comm;
    tx_ddp_data data;
    tx_placement *placement;
    tx_engine *engine;
    tx_model *model;
    tx_trainer *trainer;
    tx_pace *pace;
    bool overlap;
    double loss;
} rank;

static tx_status make(rank *r)
{
    const tx_ddp_job *job = r->job;
    tx_engine_options engine = {.size = sizeof engine, .device = "cpu"};
    const tx_trainer_options trainer = {
        .size = sizeof trainer,
        .task = &tx_causal_lm,
        .batch = job->batch,
        .block = job->block,
        .accumulation = 1,
        .all_rows = job->ranks * job->batch,
        .rows_before = r->comm->rank * job->batch,
        .comm = r->comm,
        .parallel = {.size = sizeof trainer.parallel},
        .max_grad_norm = TX_DDP_MAX_GRAD_NORM,
        .optimizer = tx_ddp_optimizer(),
    };
    tx_status status = tx_ddp_data_make(job, &r->data);
    if (!status)
        status = tx_ddp_places(r->comm->local_size, &r->placement);
    if (!status)
        status = tx_ddp_take(r->placement, r->comm->local_rank, r->comm->local_size, &engine.threads);
    if (!status)
        status = tx_engine_create(&engine, &r->engine);
    if (!status)
        status = tx_model_create(r->engine, &r->model);
    if (!status)
        status = tx_trainer_create(r->model, job->config, &trainer, &r->trainer);
    if (!status)
        status = tx_pace_create(r->comm, job->overlap, false, job->batch, job->ranks * job->batch, &r->pace);
    return status ? status : tx_model_init(r->model, TX_DDP_SEED);
}

static tx_status run_step(rank *r)
{
    const int64_t before = r->comm->rank * r->job->batch * r->job->block;
    const tx_batch batch = {r->job->batch, {r->data.tokens + before, r->data.labels + before}};
    tx_pace_news news;
    tx_results results = {0};
    tx_ddp_data_next(r->job, &r->data);
    tx_status status = tx_pace_begin(r->pace, r->model);
    if (!status)
        status = tx_trainer_step(r->trainer, &batch, r->data.counted, r->job->learning_rate);
    if (!status)
        status = tx_trainer_results(r->trainer, &results);
    if (!status)
        status = tx_pace_end(r->pace, &news);
    if (status)
        return status;
    r->overlap = news.overlap_chosen ? news.overlap : r->overlap;
    r->loss = (double)results.value[TX_RESULT_LOSS];
    return results.value[TX_RESULT_FINITE] == 1.0f && isfinite(r->loss)
               ? TX_OK
               : tx_fail(TX_DEVICE, "step %" PRId64 ": loss %g, and the gradient's norm is not finite",
                         tx_trainer_steps(r->trainer), r->loss);
}

/* Bytes that this rank moved so far. */
static int64_t moved(const rank *r)
{
    tx_comm_traffic traffic;
    r->comm->table->traffic(r->comm, &traffic);
    return traffic.sent + traffic.shared;
}

/* The sum of all ranks' numbers. */
static tx_status add_up(const rank *r, int64_t mine, int64_t *sum)
{
    int64_t all[TX_DDP_RANKS_MAX] = {0};
    all[r->comm->rank] = mine;
    tx_status status = tx_comm_share(r->comm, all, sizeof all[0]);
    *sum = 0;
    for (int32_t i = 0; i < r->comm->size; i++)
        *sum += all[i];
    return status;
}

static tx_status train(rank *r, tx_ddp_result *result)
{
    double begin = 0.0;
    int64_t before = 0, bytes = 0;
    uint64_t hash = 0;
    tx_status status = TX_OK;
    for (int64_t s = 0; s < r->job->warmup + r->job->steps && !status; s++) {
        if (s == r->job->warmup) {
            status = tx_comm_collect(r->comm, TX_BARRIER, NULL, 0, TX_F32, 0);
            before = moved(r);
            begin = tx_now();
        }
        if (!status)
            status = run_step(r);
    }
    const double seconds = tx_now() - begin;
    if (!status)
        status = add_up(r, moved(r) - before, &bytes);
    if (!status)
        status = tx_pace_compare_weights(r->model, r->comm, "the ways of summing differ", &hash);
    if (!status)
        *result = (tx_ddp_result){seconds, r->loss, (double)bytes / (double)r->job->steps, r->overlap};
    return status;
}

tx_status tx_ddp_rank(const tx_ddp_job *job, tx_comm *comm, tx_ddp_result *result)
{
    rank r = {.job = job, .comm = comm, .overlap = job->overlap == TX_OVERLAP_YES};
    tx_status status = make(&r);
    if (!status)
        status = train(&r, result);
    tx_pace_free(r.pace);
    tx_trainer_free(r.trainer);
    tx_model_free(r.model);
    tx_engine_free(r.engine);
    tx_placement_free(r.placement);
    tx_ddp_data_free(&r.data);
    return status;
}
