/* SPDX-License-Identifier: Apache-2.0
 * txbench train: times training steps of a training method, optionally compared with PyTorch. */
#include "api/base/clock.h"
#include "models/job/settings.h"
#include "models/lora/lora.h"
#include "tools/bench/account.h"
#include "tools/bench/bench.h"
#include "tools/bench/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    tx_pairs_settings pairs;
    tx_job_settings job; /* the training method */
    bool profile;
} settings;

#define PAIRS(field) offsetof(settings, pairs.field)
#define JOB(field) offsetof(settings, job.field)
static const tx_option options[] = {
    TX_BENCH_MODEL(PAIRS),
    TX_BENCH_BATCH(PAIRS),
    {TX_OPTION_INTEGER, "steps", PAIRS(count), 1, 1 << 20, "N", "steps of a measurement"},
    TX_BENCH_MEASUREMENTS(PAIRS),
    {TX_OPTION_CHOICE, "peer", PAIRS(peer), .choices = "none|torch|torch-compile",
     .help = "program to compare with; torch trains the same model and method with transformers and peft on PyTorch, "
             "with the Python in $TX_PYTHON; torch-compile compiles that model"},
    {TX_OPTION_FLAG, "profile", AT(profile),
     .help = "also time each operation of a step, and print the memory of kernels"},
    TX_BENCH_DEVICE(PAIRS),
    TX_BENCH_JSON(PAIRS),
    {TX_OPTION_HEADING, .help = "method (options of txtrain)"},
#define METHOD(...) {__VA_ARGS__},
#define RUN(...)
#define OPTION(kind, type, name, member, initial, group, traits, least, most, choices, help) \
    group(TX_OPTION_##kind, #name, JOB(member), least, most, choices, help)
#include "models/options/options.def"
};

/* Settings without an option here have txtrain's defaults. */
static const settings defaults = {
    .pairs = {.config = "gpt2", .device = "auto", .batch = 4, .block = 256, .count = 3, .pairs = 5, .seconds = 1e6},
    .job = {.accumulation = 1,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .epsilon = 1e-8,
            .init_scale = 65536,
            .growth_interval = 2000,
            .max_grad_norm = TX_BENCH_GRAD_NORM,
            .lora_alpha = 8},
};

typedef struct bench {
    tx_pairs pairs;
    double first_step;        /* seconds */
    tx_traffic before, after; /* traffic counters before and after the first measurement of TX */
} bench;

static const settings *settings_of(const tx_pairs *p)
{
    return (const settings *)p->set; /* `pairs` is the first member of the settings */
}

/* ---- Both sides ------------------------------------------------------------------------------------------- */

static tx_status make_options(const tx_config *config, const settings *set, tx_trainer_options *made)
{
    const tx_job_settings *job = &set->job;
    int64_t limit;
    *made = tx_bench_trainer_options(config, set->pairs.batch, set->pairs.block);
    made->set = job;
    made->accumulation = job->accumulation;
    made->autocast = job->bf16 ? TX_BF16 : job->fp16 ? TX_F16 : TX_F32;
    if (job->bf16 && job->fp16)
        return tx_fail(TX_INVALID, "--bf16 and --fp16 exclude each other");
    if (job->residual_dtype && !job->bf16)
        return tx_fail(TX_INVALID, "--residual_dtype bfloat16 needs --bf16");
    made->residual = job->residual_dtype ? TX_BF16 : TX_F32;
    made->fp32_residual_gradient = job->fp32_residual_gradient;
    TX_TRY(tx_job_optimizer(job, &made->optimizer));
    TX_TRY(tx_job_read_checkpointing(job->checkpointing, &made->checkpointing, &limit));
    return limit ? tx_fail(TX_UNSUPPORTED, "--gradient_checkpointing auto:BYTES is not supported here: give the number "
                                           "of segments that it chose, or auto")
                 : TX_OK;
}

static tx_status open_side(const tx_pairs *p, bool profile, tx_bench_training *side, double *first)
{
    const settings *set = settings_of(p);
    const tx_engine_options engine = {.size = sizeof engine,
                                      .device = set->pairs.device,
                                      .threads = (int32_t)set->pairs.threads,
                                      .profile = profile,
                                      .tf32 = set->job.tf32,
                                      .report = tx_alive_reporter()};
    tx_trainer_options trainer;
    TX_TRY(make_options(p->config, set, &trainer));
    TX_TRY(tx_bench_training_open(&engine, p->config, &trainer, side));
    return tx_bench_training_first(side, first);
}

static tx_status set_adapter(const tx_lora *lora, tx_json *method)
{
    tx_json *adapter =
        tx_json_pack("{s:I, s:f, s:f, s:s, s:s, s:b, s:b}", "r", lora->rank, "lora_alpha", lora->alpha, "lora_dropout",
                     lora->dropout, "target_modules", lora->targets, "modules_to_save", lora->saved ? lora->saved : "",
                     "use_dora", lora->dora, "use_rslora", lora->rank_stabilised);
    return adapter ? tx_json_set(method, "adapter", adapter) : TX_MEMORY;
}

/* Describes the training method for the peer's script. */
static tx_status describe_method(const settings *set, const tx_config *config, tx_json **method)
{
    const tx_job_settings *job = &set->job;
    tx_optimizer_kind kind;
    tx_checkpointing how;
    int64_t limit;
    TX_TRY(tx_job_read_checkpointing(job->checkpointing, &how, &limit));
    if (how.cheap || how.segments > 0)
        return tx_fail(TX_UNSUPPORTED, "--peer torch can only recompute whole blocks: give --gradient_checkpointing "
                                       "without a value");
    if (job->residual_dtype)
        return tx_fail(
            TX_UNSUPPORTED,
            "--peer torch keeps the residual stream in fp32: leave out --residual_dtype, or add --peer none");
    const char *precision = job->bf16 ? "bf16" : job->fp16 ? "fp16" : job->tf32 ? "tf32" : "fp32";
    *method = tx_json_pack("{s:s, s:s, s:s, s:b, s:I}", "precision", precision, "optim",
                           tx_optimizer_word(job->optim, &kind), "optim_args", job->optim_args ? job->optim_args : "",
                           "checkpointing", how.whole != 0, "micro", job->accumulation);
    if (!*method)
        return TX_MEMORY;
    return config->lora ? set_adapter(config->lora, *method) : TX_OK;
}

static tx_status open_all(tx_pairs *p)
{
    bench *b = (bench *)p;
    const tx_job_settings *job = &settings_of(p)->job;
    if (job->lora_rank)
        TX_TRY(tx_job_make_adapter(job, p->config));
    if (p->set->peer != TX_PEER_NONE)
        TX_TRY(describe_method(settings_of(p), p->config, &p->method));
    TX_TRY(open_side(p, false, &p->tx, &b->first_step));
    TX_TRY(tx_engine_traffic(p->tx.engine, &b->before));
    return TX_OK;
}

/* Measures the time of a step. */
static tx_status run_steps(tx_pairs *p, bool peer, tx_peer_time *time)
{
    bench *b = (bench *)p;
    const int64_t steps = p->set->count;
    const double begin = tx_seconds(CLOCK_PROCESS_CPUTIME_ID);
    TX_TRY(peer ? tx_peer_run(p->peer, steps, time) : tx_bench_training_run(&p->tx, steps, &time->clock));
    if (!peer)
        time->processor = tx_seconds(CLOCK_PROCESS_CPUTIME_ID) - begin;
    if (!peer && b->after.launches == 0)
        TX_TRY(tx_engine_traffic(p->tx.engine, &b->after));
    return TX_OK;
}

static double step_tokens(const tx_pairs_settings *set)
{
    return (double)(set->batch * set->block * ((const settings *)set)->job.accumulation);
}

#define PROFILE_STEPS 3.0 /* estimated time of a profile, in times of the first step */
#define PROFILE_TIMES 4.0 /* a profile must end within this multiple of --seconds */

/* ---- More figures ----------------------------------------------------------------------------------------- */

/* Profiles a step on a device that is opened again with profiling, which may slow down launches. */
static tx_status add_profile(tx_pairs *p, tx_json *figures)
{
    double ignored;
    tx_bench_training_close(&p->tx);
    TX_TRY(open_side(p, true, &p->tx, &ignored));
    TX_TRY(tx_trainer_profile(p->tx.trainer));
    TX_TRY(tx_bench_training_run(&p->tx, 1, &ignored));
    return tx_account_profile(&p->tx, figures);
}

/* The operations of a step's products and attention, as the nodes of its plans count them. They include nodes that are
 * computed again. A classifier has no nodes for most positions of its last block. */
static double step_flops(const tx_bench_training *training, int64_t accumulation)
{
    const struct {
        int32_t which;
        double runs;
    } plans[] = {{TX_TRAINER_TRAIN, (double)accumulation}, {TX_TRAINER_UPDATE, 1.0}};
    double sum = 0.0;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        int64_t ignored;
        double flops, bytes;
        const tx_plan *plan = tx_trainer_plan(training->trainer, plans[i].which, &ignored);
        if (!plan)
            continue;
        tx_plan_work(plan, &flops, &bytes);
        sum += plans[i].runs * flops;
    }
    return sum;
}

static tx_status add_figures(tx_pairs *p, tx_json *figures)
{
    const bench *b = (const bench *)p;
    const tx_config *c = p->config;
    tx_json *start = tx_json_object();
    const double flops = step_flops(&p->tx, settings_of(p)->job.accumulation);
    tx_json_set_number(figures, "flops", flops);
    tx_json_set_number(figures, "gflops", 1e-9 * flops / tx_bench_median(p->ours, p->measured));
    tx_json_set_int(figures, "parameters", tx_arch_param_count(c));
    tx_json_set_number(start, "open_seconds", p->tx.open_seconds);
    tx_json_set_number(start, "compile_seconds", p->tx.compile_seconds);
    tx_json_set_number(start, "first_step_seconds", b->first_step);
    tx_json_set(figures, "start", start);
    TX_TRY(tx_account_memory(&p->tx, figures));
    TX_TRY(tx_account_traffic(&b->before, &b->after, p->set->count, figures));
    TX_TRY(tx_account_choices(&p->tx, figures));
    if (settings_of(p)->profile && !tx_pairs_late(p, PROFILE_STEPS * b->first_step, PROFILE_TIMES))
        return add_profile(p, figures);
    return tx_json_set_bool(figures, "profile", false);
}

static tx_status run(const void *set, char *const *argv)
{
    static const tx_pairs_task task = {"train",   "seconds_per_step", true,       open_all,
                                       run_steps, step_tokens,        add_figures};
    bench b = {0};
    (void)argv;
    tx_status status = tx_pairs_run(&task, &tx_bench_train.program, set, &b.pairs);
    tx_pairs_close(&b.pairs);
    return status;
}

TX_BENCH_COMMAND(train, "",
                 "Times training steps (forward, backward, clip, update) on random tokens. - and _ in names of options "
                 "are\nthe same.");
