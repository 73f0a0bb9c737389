/* SPDX-License-Identifier: Apache-2.0
 * txbench scale: predicted steps of data-parallel training on more ranks than there are here. */
#include "tools/bench/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *config, *device, *schedule;
    int64_t batch, block, accumulation, steps, threads, ranks, bucket_cap_mb, host_ranks;
    double step_ms, tokens_per_second, gbit, goodput, latency_us, gap_us, host_gbyte;
    uint32_t algorithms;
    int32_t comm;
    bool overlap, json;
} settings;

enum { COMM_FP32, COMM_BF16 };
#define MOST_RANKS (1 << 20)

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_HEADING, .help = "Compute of one rank"},
    {TX_OPTION_TEXT, "config", AT(config), .choices = "FILE|NAME",
     .help = "a config.json, a folder with one, or gpt2, gpt2-medium, gpt2-large, gpt2-xl"},
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 1 << 20, "N", "blocks a micro-batch"},
    {TX_OPTION_INTEGER, "block", AT(block), 2, 1 << 24, "N", "tokens a block"},
    {TX_OPTION_INTEGER, "accumulation", AT(accumulation), 1, 1 << 20, "N",
     "micro-batches a step; nothing is sent before the last"},
    {TX_OPTION_REAL, "step_ms", AT(step_ms), 0, 1e9, "MS",
     "a step of one rank, divided among the layers by arithmetic; 0: measured here"},
    {TX_OPTION_REAL, "tokens_per_second", AT(tokens_per_second), 0, 1e12, "X", "the same as a rate; 0: measured here"},
    {TX_OPTION_TEXT, "device", AT(device), .choices = "cpu|opencl|opencl:N|opencl:NAME|gpu",
     .help = "where to measure, if so"},
    {TX_OPTION_INTEGER, "threads", AT(threads), 0, 4096, "N", "of the cpu backend; 0: all there are"},
    {TX_OPTION_INTEGER, "steps", AT(steps), 1, 1 << 20, "N",
     "steps timed, and as many profiled for each layer's share"},
    {TX_OPTION_HEADING, .help = "Buckets of gradients"},
    {TX_OPTION_INTEGER, "ddp_bucket_cap_mb", AT(bucket_cap_mb), 0, 1 << 20, "MB",
     "bytes that fill a bucket; 0: 25, the first 1"},
    {TX_OPTION_CHOICE, "ddp_comm", AT(comm), .choices = "fp32|bf16", .help = "how gradients leave a host"},
    {TX_OPTION_FLAG, "overlap", AT(overlap), .help = "buckets are summed during the backward; false: after it"},
    {TX_OPTION_HEADING, .help = "Link"},
    {TX_OPTION_REAL, "gbit", AT(gbit), 1e-3, 1e5, "GBIT/S", "line rate each way"},
    {TX_OPTION_REAL, "goodput", AT(goodput), 0.01, 1, "SHARE", "of the line rate that data get"},
    {TX_OPTION_REAL, "latency_us", AT(latency_us), 0, 1e6, "US", "of a message"},
    {TX_OPTION_REAL, "gap_us", AT(gap_us), 0, 1e6, "US",
     "what a rank spends itself on each message of an exchange; MPICH takes 8 over TCP"},
    {TX_OPTION_LIST, "algorithm", AT(algorithms), .choices = "ring|tree|rabenseifner|exchange",
     .help = "how ranks sum; exchange is TX's own between hosts"},
    {TX_OPTION_INTEGER, "host_ranks", AT(host_ranks), 1, 1024, "N",
     "ranks a host; over 1 they sum within the host first"},
    {TX_OPTION_REAL, "host_gbyte", AT(host_gbyte), 1e-3, 1e5, "GB/S", "rate of that sum"},
    {TX_OPTION_HEADING, .help = "What comes out"},
    {TX_OPTION_INTEGER, "ranks", AT(ranks), 1, MOST_RANKS, "N", "the powers of two up to it, and itself"},
    {TX_OPTION_TEXT, "schedule", AT(schedule), .choices = "FILE",
     .help = "write the buckets there too, for tests/scale/run.sh"},
    {TX_OPTION_FLAG, "json", AT(json), .help = "print the figures as one JSON object"},
};
#undef AT

static const settings defaults = {
    .config = "gpt2",
    .device = "cpu",
    .batch = 4,
    .block = 256,
    .accumulation = 1,
    .steps = 3,
    .ranks = 1024,
    .host_ranks = 1,
    .gbit = 10.0,
    .goodput = 0.94,
    .latency_us = 10.0,
    .gap_us = 8.0,
    .host_gbyte = 20.0,
    .algorithms = (1u << TX_SCALE_ALGORITHMS) - 1,
    .overlap = true,
};

const tx_cli tx_bench_scale_program = {
    .name = "txbench",
    .usage = "txbench scale [options]",
    .about = "Predicts steps of data-parallel training on many ranks from one rank's compute, the buckets of gradients "
             "and the link's latency and rate (tools/bench/scale.h has the formulas). Efficiency is one rank's step "
             "over that "
             "of N; every rank has a micro-batch of its own.",
    .options = options,
    .count = (int32_t)(sizeof options / sizeof options[0]),
    .values = &defaults,
};

typedef struct plan {
    const settings *set;
    tx_config *config;
    tx_scale_layer *layers;
    tx_scale_schedule schedule;
    tx_scale_link link;
    bool measured;
} plan;

/* ---- Predicting ------------------------------------------------------------------------------------------- */

static tx_status find_compute(plan *p, double *update)
{
    const settings *set = p->set;
    double step = 1e-3 * set->step_ms;
    const double tokens = (double)(set->batch * set->block * set->accumulation);
    if (set->tokens_per_second > 0.0)
        step = tokens / set->tokens_per_second;
    p->measured = !(step > 0.0);
    if (p->measured) {
        const tx_bench_scale_options measure = {set->device, (int32_t)set->threads, set->batch, set->block, set->steps};
        return tx_bench_scale_measure(p->config, &measure, p->layers, update);
    }
    tx_scale_divide(p->config, set->block, step / (double)set->accumulation, p->layers);
    return TX_OK;
}

static tx_status prepare(plan *p)
{
    const settings *set = p->set;
    tx_status status = tx_bench_config(set->config, set->block, &p->config);
    if (status)
        return status;
    p->layers = calloc((size_t)tx_scale_layers(p->config), sizeof *p->layers);
    if (!p->layers)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " layers", p->config->layers);
    tx_scale_split split = {
        .cap = set->bucket_cap_mb << 20,
        .bf16 = set->comm == COMM_BF16,
        .accumulation = set->accumulation,
    };
    p->link = (tx_scale_link){
        .latency = 1e-6 * set->latency_us,
        .rate = 1e9 / 8.0 * set->gbit * set->goodput,
        .gap = 1e-6 * set->gap_us,
        .host_ranks = set->host_ranks,
        .local_rate = 1e9 * set->host_gbyte,
    };
    status = find_compute(p, &split.update);
    if (!status)
        status = tx_scale_schedule_make(p->config, p->layers, &split, &p->schedule);
    if (!status && set->schedule)
        status = tx_scale_schedule_write(set->schedule, &p->schedule);
    return status;
}

/* The number of ranks after `ranks` in the table; beyond the last one 0. */
static int64_t next_ranks(const settings *set, int64_t ranks)
{
    if (ranks == set->ranks)
        return 0;
    return 2 * ranks < set->ranks ? 2 * ranks : set->ranks;
}

static tx_scale_step predict(const plan *p, int32_t algorithm, int64_t ranks)
{
    return tx_scale_predict(&p->schedule, &p->link, (tx_scale_algorithm)algorithm, ranks, p->set->overlap);
}

static double tokens_per_second(const plan *p, const tx_scale_step *step, int64_t ranks)
{
    const settings *set = p->set;
    return (double)ranks * (double)(set->batch * set->block * set->accumulation) / step->seconds;
}

static int64_t gradient_bytes(const tx_scale_schedule *schedule)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < schedule->count; i++)
        bytes += schedule->buckets[i].bytes;
    return bytes;
}

/* ---- Printing ------------------------------------------------------------------------------------------------ */

static void print_text(const plan *p)
{
    const settings *set = p->set;
    const tx_scale_schedule *s = &p->schedule;
    printf("model    %s: %" PRId64 " parameters, %.1f MB of gradients in %" PRId32 " buckets, sent as %s, %s\n",
           set->config, tx_arch_param_count(p->config), 1e-6 * (double)gradient_bytes(s), s->count,
           set->comm == COMM_BF16 ? "bf16" : "fp32", set->overlap ? "during the backward" : "after the backward");
    printf("compute  %.1f ms a step of %" PRId64 " x %" PRId64 " x %" PRId64
           " tokens: forward %.1f, backward %.1f, update %.1f (%s%s)\n",
           1e3 * (s->forward + s->backward + s->update), set->accumulation, set->batch, set->block, 1e3 * s->forward,
           1e3 * s->backward, 1e3 * s->update, p->measured ? "measured on " : "given", p->measured ? set->device : "");
    printf("link     %g Gbit/s x %g, latency %g us, gap %g us", set->gbit, set->goodput, set->latency_us, set->gap_us);
    if (set->host_ranks > 1)
        printf("; %" PRId64 " ranks a host, %g GB/s among them", set->host_ranks, set->host_gbyte);
    printf("\n\n%-14s %7s %17s %11s %11s %11s %14s\n", "algorithm", "ranks", "communication ms", "exposed ms",
           "step ms", "efficiency", "tokens/s");
    for (int32_t a = 0; a < TX_SCALE_ALGORITHMS; a++) {
        if (!(set->algorithms >> a & 1))
            continue;
        for (int64_t ranks = 1; ranks; ranks = next_ranks(set, ranks)) {
            const tx_scale_step step = predict(p, a, ranks);
            printf("%-14s %7" PRId64 " %17.1f %11.1f %11.1f %11.3f %14.1f\n",
                   tx_scale_algorithm_name((tx_scale_algorithm)a), ranks, 1e3 * step.communication, 1e3 * step.exposed,
                   1e3 * step.seconds, step.efficiency, tokens_per_second(p, &step, ranks));
        }
    }
}

static tx_json *json_layers(const plan *p)
{
    tx_json *all = tx_json_array();
    for (int32_t i = 0; i < tx_scale_layers(p->config); i++) {
        tx_json *one = tx_json_object();
        tx_json_set_number(one, "forward_ms", 1e3 * p->layers[i].forward);
        tx_json_set_number(one, "backward_ms", 1e3 * p->layers[i].backward);
        tx_json_append(all, one);
    }
    return all;
}

static tx_json *json_buckets(const plan *p)
{
    tx_json *all = tx_json_array();
    for (int32_t i = 0; i < p->schedule.count; i++) {
        const tx_scale_bucket *bucket = &p->schedule.buckets[i];
        tx_json *one = tx_json_object();
        tx_json_set_number(one, "ready_ms", 1e3 * bucket->ready);
        tx_json_set_int(one, "bytes", bucket->bytes);
        tx_json_set_int(one, "sent", bucket->sent);
        tx_json_append(all, one);
    }
    return all;
}

static tx_json *json_predictions(const plan *p)
{
    tx_json *all = tx_json_array();
    for (int32_t a = 0; a < TX_SCALE_ALGORITHMS; a++)
        for (int64_t ranks = 1; ranks && p->set->algorithms >> a & 1; ranks = next_ranks(p->set, ranks)) {
            const tx_scale_step step = predict(p, a, ranks);
            tx_json *one = tx_json_object();
            tx_json_set_string(one, "algorithm", tx_scale_algorithm_name((tx_scale_algorithm)a));
            tx_json_set_int(one, "ranks", ranks);
            tx_json_set_number(one, "communication_ms", 1e3 * step.communication);
            tx_json_set_number(one, "exposed_ms", 1e3 * step.exposed);
            tx_json_set_number(one, "step_ms", 1e3 * step.seconds);
            tx_json_set_number(one, "efficiency", step.efficiency);
            tx_json_set_number(one, "tokens_per_second", tokens_per_second(p, &step, ranks));
            tx_json_append(all, one);
        }
    return all;
}

static tx_status print_json(const plan *p)
{
    const settings *set = p->set;
    tx_json *all = tx_json_object(), *link = tx_json_object();
    tx_json_set_string(all, "config", set->config);
    tx_json_set_string(all, "compute", p->measured ? "measured" : "given");
    tx_json_set_int(all, "batch", set->batch);
    tx_json_set_int(all, "block", set->block);
    tx_json_set_int(all, "accumulation", set->accumulation);
    tx_json_set_number(all, "forward_ms", 1e3 * p->schedule.forward);
    tx_json_set_number(all, "backward_ms", 1e3 * p->schedule.backward);
    tx_json_set_number(all, "update_ms", 1e3 * p->schedule.update);
    tx_json_set(all, "layers", json_layers(p));
    tx_json_set_bool(all, "overlap", set->overlap);
    tx_json_set(all, "buckets", json_buckets(p));
    tx_json_set_number(link, "latency_us", set->latency_us);
    tx_json_set_number(link, "gap_us", set->gap_us);
    tx_json_set_number(link, "bytes_per_second", p->link.rate);
    tx_json_set_int(link, "host_ranks", set->host_ranks);
    tx_json_set_number(link, "host_bytes_per_second", p->link.local_rate);
    tx_json_set(all, "link", link);
    tx_json_set(all, "predictions", json_predictions(p));
    return tx_bench_print(all);
}

int tx_bench_scale(int argc, char *const *argv)
{
    settings set = defaults;
    int result = tx_options_parse(&tx_bench_scale_program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
    if (set.step_ms > 0.0 && set.tokens_per_second > 0.0)
        return tx_complain(&tx_bench_scale_program, TX_EXIT_USAGE,
                           "--step_ms and --tokens_per_second say the same: give one of them");
    plan p = {.set = &set};
    tx_status status = prepare(&p);
    if (!status && set.json)
        status = print_json(&p);
    else if (!status)
        print_text(&p);
    free(p.schedule.buckets);
    free(p.layers);
    tx_config_free(p.config);
    return status ? tx_complain(&tx_bench_scale_program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
}
