/* SPDX-License-Identifier: Apache-2.0
 * txresearch scale: predicts steps of data-parallel training on many ranks. scale.h has the formulas. */
#include "tools/research/scale.h"
#include "api/graph/op.h"
#include "api/parallel/buckets.h"
#include "api/plan/plan.h"
#include "comm/comm.h"
#include "tools/research/research.h"

#include <math.h>
#include <stdlib.h>

#define GOODPUT 0.94 /* share of the line rate that is available for data */
#define STEPS 3      /* number of measured steps */

/* ---- Schedule -------------------------------------------------------------------------------------------- */

static double flops_of(const tx_plan *plan, int32_t command)
{
    double flops, bytes;
    tx_op_work(&plan->commands[command], &flops, &bytes);
    return flops;
}

/* Sets the time at which the buckets of the gradients that a command writes are ready. */
static void mark_ready(const tx_model *model, const tx_command *command, double seconds, tx_scale_bucket *bucket)
{
    const tx_parallel *p = model->parallel;
    for (int k = 0; k < TX_MAX_OUT; k++) {
        const tx_operand *out = &command->out[k];
        const int64_t address = out->chunk * model->arena[out->arena].chunk_bytes + out->offset;
        for (int32_t i = 0; i < p->buckets && tx_present(out) && out->arena == TX_ARENA_GRADIENTS; i++)
            if (address >= p->bucket[i].address && address < p->bucket[i].address + bucket[i].bytes)
                bucket[i].ready = seconds;
    }
}

tx_status tx_scale_schedule_make(const tx_bench_training *training, double seconds, int64_t accumulation, bool bf16,
                                 tx_scale_schedule *schedule)
{
    int64_t runs;
    double once = 0.0;
    const tx_plan *plan = tx_trainer_plan(training->trainer, TX_TRAINER_TRAIN, &runs);
    const int32_t count = tx_model_bucket_count(training->model);
    tx_scale_bucket *bucket = calloc((size_t)count, sizeof *bucket);
    if (!bucket)
        return tx_fail(TX_MEMORY, "no memory for the list of buckets");
    for (int32_t i = 0; i < count; i++) {
        bucket[i].bytes = tx_model_bucket_elements(training->model, i) * (int64_t)sizeof(float);
        bucket[i].sent = bf16 ? bucket[i].bytes / 2 : bucket[i].bytes;
    }
    for (int32_t i = 0; i < tx_plan_length(plan); i++)
        once += flops_of(plan, i);
    double done = once * (double)(accumulation - 1);
    const double unit = seconds / (once * (double)accumulation);
    for (int32_t i = 0; i < tx_plan_length(plan); i++) {
        done += flops_of(plan, i);
        mark_ready(training->model, &plan->commands[i], fmin(unit * done, seconds), bucket);
    }
    *schedule = (tx_scale_schedule){seconds, bucket, count};
    return TX_OK;
}

/* ---- Prediction -------------------------------------------------------------------------------------------- */

/* Returns the seconds of an all-reduce among `ranks` ranks, each with a link of its own. */
static double sum_flat(const tx_scale_link *link, int algorithm, int64_t ranks, double bytes)
{
    if (ranks < 2)
        return 0.0;
    const double n = (double)ranks, a = link->latency, whole = bytes / link->rate;
    const int power = ilogb(n);
    const double most = ldexp(1.0, power);
    const bool even = most == n;
    if (algorithm == TX_RING)
        return 2.0 * (n - 1.0) * (a + whole / n);
    if (algorithm == TX_TREE)
        return 2.0 * (power + !even) * (a + whole);
    if (algorithm == TX_RABENSEIFNER)
        return 2.0 * power * a + 2.0 * (most - 1.0) / most * whole + (even ? 0.0 : 2.0 * (a + whole));
    return 2.0 * (a + (n - 1.0) * fmax(whole / n, link->gap));
}

double tx_scale_sum(const tx_scale_link *link, int algorithm, int64_t ranks, const tx_scale_bucket *bucket)
{
    const int64_t hosts = (ranks + link->host_ranks - 1) / link->host_ranks;
    const bool local = link->host_ranks > 1 && ranks > 1;
    return (local ? 2.0 * (double)bucket->bytes / link->local_rate : 0.0) +
           sum_flat(link, algorithm, hosts, (double)bucket->sent);
}

void tx_scale_predict(const tx_scale_schedule *schedule, const tx_scale_link *link, int algorithm, int64_t ranks,
                      bool overlap, double *communication, double *exposed)
{
    double end = 0.0;
    *communication = 0.0;
    for (int32_t i = 0; i < schedule->count; i++) {
        const double seconds = tx_scale_sum(link, algorithm, ranks, &schedule->buckets[i]);
        *communication += seconds;
        end = fmax(end, overlap ? schedule->buckets[i].ready : schedule->seconds) + seconds;
    }
    *exposed = fmax(end - schedule->seconds, 0.0);
}

/* ---- The command ------------------------------------------------------------------------------------------- */

typedef struct settings {
    const char *config, *device;
    int64_t batch, block, accumulation, threads, ranks, bucket_cap_mb, host_ranks;
    double step_ms, gbit, latency_us, gap_us, host_gbyte;
    uint32_t algorithms;
    int32_t bf16;
    bool overlap, json;
} settings;

static const tx_option options[] = {
    TX_BENCH_MODEL(AT),
    TX_BENCH_BATCH(AT),
    {TX_OPTION_INTEGER, "accumulation", AT(accumulation), 1, 1 << 20, "N",
     "micro-batches of a step; gradients are sent only in the last"},
    {TX_OPTION_REAL, "step_ms", AT(step_ms), 0, 1e9, "MS", "time of a step on one rank; 0 measures it here"},
    TX_BENCH_DEVICE(AT),
    {TX_OPTION_INTEGER, "ddp_bucket_cap_mb", AT(bucket_cap_mb), 0, 1 << 20, "MB",
     "size of a bucket of gradients; 0 means 25, and 1 for the first bucket"},
    {TX_OPTION_CHOICE, "ddp_comm", AT(bf16), .choices = "fp32|bf16", .help = "type of gradients in inter-node traffic"},
    {TX_OPTION_FLAG, "overlap", AT(overlap),
     .help = "all-reduce buckets during the backward pass; false starts after it"},
    {TX_OPTION_REAL, "gbit", AT(gbit), 1e-3, 1e5, "GBIT/S", "line rate in each direction; data get 94 % of it"},
    {TX_OPTION_REAL, "latency_us", AT(latency_us), 0, 1e6, "US", "latency of a message"},
    {TX_OPTION_REAL, "gap_us", AT(gap_us), 0, 1e6, "US",
     "CPU time of a rank for each message of an exchange; MPICH needs 8 over TCP"},
    {TX_OPTION_LIST, "algorithm", AT(algorithms), .choices = "ring|tree|rabenseifner|exchange",
     .help = "all-reduce algorithms; exchange is that of TX between hosts"},
    {TX_OPTION_INTEGER, "host_ranks", AT(host_ranks), 1, 1024, "N",
     "ranks on a host; several ranks first sum within the host"},
    {TX_OPTION_REAL, "host_gbyte", AT(host_gbyte), 1e-3, 1e5, "GB/S", "rate of the sum within a host"},
    {TX_OPTION_INTEGER, "ranks", AT(ranks), 1, 1 << 20, "N", "largest number of ranks; smaller ones are powers of two"},
    TX_BENCH_JSON(AT),
};

static const char *const algorithms[] = {"ring", "tree", "rabenseifner", "exchange"};

static const settings defaults = {.config = "gpt2",
                                  .device = "cpu",
                                  .batch = 4,
                                  .block = 256,
                                  .accumulation = 1,
                                  .ranks = 1024,
                                  .host_ranks = 1,
                                  .gbit = 10.0,
                                  .latency_us = 10.0,
                                  .gap_us = 8.0,
                                  .host_gbyte = 20.0,
                                  .algorithms = (1u << TX_SCALE_ALGORITHMS) - 1,
                                  .overlap = true};

/* Measures the seconds of a step after two steps of warm-up. */
static tx_status measure_steps(tx_bench_training *training, int64_t steps, double *seconds)
{
    double all;
    TX_TRY(tx_bench_training_first(training, &all));
    TX_TRY(tx_bench_training_run(training, 1, &all));
    TX_TRY(tx_bench_training_run(training, steps, &all));
    *seconds = all / (double)steps;
    return TX_OK;
}

/* Makes the schedule from --step_ms, or from measured steps. */
static tx_status time_step(const settings *set, const tx_config *config, tx_comm *comm, tx_bench_training *training,
                           tx_scale_schedule *schedule)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = set->device, .threads = (int32_t)set->threads};
    tx_trainer_options trainer = tx_bench_trainer_options(config, set->batch, set->block);
    double seconds = 1e-3 * set->step_ms;
    trainer.comm = comm;
    trainer.parallel.bucket_bytes = set->bucket_cap_mb << 20;
    TX_TRY(tx_bench_training_open(&engine, config, &trainer, training));
    if (set->step_ms == 0.0) {
        TX_TRY(measure_steps(training, STEPS, &seconds));
        seconds *= (double)set->accumulation;
    }
    return tx_scale_schedule_make(training, seconds, set->accumulation, set->bf16, schedule);
}

static tx_status make_schedule(const settings *set, const tx_config *config, tx_scale_schedule *schedule)
{
    tx_comm *comm = NULL;
    tx_bench_training training = {0};
    TX_TRY(tx_comm_self()->open(NULL, NULL, &comm));
    tx_status status = time_step(set, config, comm, &training, schedule);
    tx_bench_training_close(&training);
    comm->table->close(comm);
    return status;
}

static tx_json *predictions_json(const settings *set, const tx_scale_schedule *schedule)
{
    const tx_scale_link link = {1e-6 * set->latency_us, 1e9 / 8.0 * set->gbit * GOODPUT, 1e-6 * set->gap_us,
                                set->host_ranks, 1e9 * set->host_gbyte};
    const double tokens = (double)(set->batch * set->block * set->accumulation);
    tx_json *all = tx_json_array();
    for (int a = 0; a < TX_SCALE_ALGORITHMS; a++)
        for (int64_t ranks = 1, next; ranks && set->algorithms >> a & 1; ranks = next) {
            double communication, exposed;
            tx_scale_predict(schedule, &link, a, ranks, set->overlap, &communication, &exposed);
            const double seconds = schedule->seconds + exposed;
            tx_json *one = tx_json_object();
            tx_json_set_string(one, "algorithm", algorithms[a]);
            tx_json_set_int(one, "ranks", ranks);
            tx_json_set_number(one, "communication_ms", 1e3 * communication);
            tx_json_set_number(one, "exposed_ms", 1e3 * exposed);
            tx_json_set_number(one, "step_ms", 1e3 * seconds);
            tx_json_set_number(one, "efficiency", schedule->seconds / seconds);
            tx_json_set_number(one, "tokens_per_second_at_most", (double)ranks * tokens / seconds);
            tx_json_append(all, one);
            next = ranks == set->ranks ? 0 : 2 * ranks < set->ranks ? 2 * ranks : set->ranks;
        }
    return all;
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    tx_config *config = NULL;
    tx_scale_schedule schedule = {0};
    (void)argv;
    tx_status status = tx_bench_config(set->config, set->block, &config);
    if (!status)
        status = make_schedule(set, config, &schedule);
    if (!status) {
        tx_json *all = tx_bench_figures(&tx_bench_scale.program, set), *buckets = tx_json_array();
        for (int32_t i = 0; i < schedule.count; i++) {
            const tx_scale_bucket *b = &schedule.buckets[i];
            tx_json_append(buckets, tx_json_pack("{s:f, s:I, s:I}", "ready_ms", 1e3 * b->ready, "bytes", b->bytes,
                                                 "sent", b->sent));
        }
        tx_json_set_string(all, "measured", TX_AT_MOST);
        tx_json_set_string(all, "compute", set->step_ms > 0.0 ? "given" : "measured");
        tx_json_set_number(all, "compute_ms", 1e3 * schedule.seconds);
        tx_json_set(all, "buckets", buckets);
        tx_json_set(all, "predictions", predictions_json(set, &schedule));
        status = tx_bench_print(all, set->json, NULL);
    }
    free(schedule.buckets);
    tx_config_free(config);
    return status;
}

TX_BENCH_COMMAND(
    scale, "",
    "Predicts steps of data-parallel training on many ranks from the step of one rank, the buckets of\n"
    "gradients and the latency and rate of the link (tools/research/scale.h has the formulas). "
    "Efficiency is\nthe step time of one rank over that of N ranks; every rank has a micro-batch of its own.");
