/* SPDX-License-Identifier: Apache-2.0
 * txbench ddp: the Hugging Face guide's comparison of DataParallel and DistributedDataParallel ("Efficient Training on
 * Multiple GPUs": GPT-2, two devices, batch 4 each, 200 steps), on random tokens: a process with a replica a device; a
 * rank a device; the same without the window that ranks of a host share, as the guide does without NVLink. Each row of
 * each round is a program of its own, and the rows take turns. */
#include "tools/bench/ddp.h"
#include "comm/comm.h"
#include "tools/bench/bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_ALL, ROW_DP, ROW_DDP };

typedef struct settings {
    const char *config;
    int64_t ranks, batch, block, steps, warmup, rounds;
    double learning_rate;
    int32_t overlap, row;
    bool json;
} settings;

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_TEXT, "config", AT(config), .choices = "FILE|NAME",
     .help = "a config.json, a folder with one, or gpt2, gpt2-medium, gpt2-large, gpt2-xl; dropout is off"},
    {TX_OPTION_INTEGER, "ranks", AT(ranks), 2, TX_DDP_RANKS_MAX, "N",
     "devices: replicas of one process, or processes, each on its share of the cores"},
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 1 << 20, "N", "blocks of each a step"},
    {TX_OPTION_INTEGER, "block", AT(block), 2, 1 << 24, "N", "tokens a block"},
    {TX_OPTION_INTEGER, "steps", AT(steps), 1, 1 << 20, "N", "steps timed; the guide has 200"},
    {TX_OPTION_INTEGER, "warmup", AT(warmup), 0, 1 << 20, "N", "steps before those"},
    {TX_OPTION_INTEGER, "rounds", AT(rounds), 1, TX_BENCH_PAIRS, "N", "runs of each row, taken in turn"},
    {TX_OPTION_REAL, "learning_rate", AT(learning_rate), 0, 1, "X", "of AdamW"},
    {TX_OPTION_CHOICE, "ddp_overlap", AT(overlap), .choices = "auto|yes|no",
     .help =
         "DDP sums gradients while the backward pass goes on; auto: where the first 7 steps show that to be faster"},
    {TX_OPTION_CHOICE, "row", AT(row), .choices = "all|dp|ddp",
     .help =
         "all: the comparison, which starts the others; dp: DataParallel once, in this process; ddp: one rank, to be "
         "started by an MPI launcher, as many as that says"},
    {TX_OPTION_FLAG, "json", AT(json), .help = "print the figures as one JSON object; dp and ddp always do"},
};
#undef AT

static const settings defaults = {
    .config = "gpt2",
    .ranks = 2,
    .batch = 4,
    .block = 256,
    .steps = 20,
    .warmup = 1,
    .rounds = 3,
    .learning_rate = 5e-5,
};

const tx_cli tx_bench_ddp_program = {
    .name = "txbench",
    .usage = "txbench ddp [options]",
    .about =
        "Compares training by DataParallel (one process, a replica a device) and by DistributedDataParallel (a rank a "
        "device), with and without memory that the ranks share, as the Hugging Face guide does. Fails where the "
        "losses differ.",
    .options = options,
    .count = (int32_t)(sizeof options / sizeof options[0]),
    .values = &defaults,
};

/* ---- One row ----------------------------------------------------------------------------------------------- */

static tx_status make_job(const settings *set, tx_ddp_job *job)
{
    *job = (tx_ddp_job){
        .ranks = (int32_t)set->ranks,
        .batch = set->batch,
        .block = set->block,
        .warmup = set->warmup,
        .steps = set->steps,
        .learning_rate = set->learning_rate,
        .overlap = (tx_overlap)set->overlap,
    };
    return tx_bench_config(set->config, set->block, &job->config);
}

static tx_status print_line(tx_json *made)
{
    return tx_bench_print(made);
}

static tx_status print_row(const tx_ddp_job *job, const tx_ddp_result *result)
{
    tx_json *all = tx_json_object();
    tx_json_set_int(all, "ranks", job->ranks);
    tx_json_set_number(all, "seconds", result->seconds);
    tx_json_set_number(all, "bytes_per_step", result->bytes);
    tx_json_set_number(all, "loss", result->loss);
    tx_json_set_bool(all, "overlap", result->overlap);
    return print_line(all);
}

/* A rank that fails ends without closing the communicator: the launcher then ends the others. */
static tx_status run_rank(tx_ddp_job *job)
{
    tx_comm *comm = NULL;
    tx_ddp_result result;
    tx_status status = tx_comm_open(NULL, NULL, &comm);
    if (status)
        return status;
    job->ranks = comm->size;
    if (comm->size > TX_DDP_RANKS_MAX)
        status = tx_fail(TX_INVALID, "%" PRId32 " ranks; at most %d", comm->size, TX_DDP_RANKS_MAX);
    if (!status)
        status = tx_ddp_rank(job, comm, &result);
    if (!status && comm->rank == 0)
        status = print_row(job, &result);
    if (!status)
        tx_comm_close(comm);
    return status;
}

static tx_status run_row(const settings *set)
{
    tx_ddp_job job;
    tx_ddp_result result;
    tx_status status = make_job(set, &job);
    if (!status && set->row == ROW_DDP)
        status = run_rank(&job);
    else if (!status) {
        status = tx_ddp_replicas(&job, &result);
        if (!status)
            status = print_row(&job, &result);
    }
    tx_config_free(job.config);
    return status;
}

/* ---- The comparison --------------------------------------------------------------------------------------------- */

typedef struct row {
    const char *name, *word; /* printed, and of option row */
    const char *launcher;
    bool shared, overlap;
    double bytes, loss;                                    /* of the last round */
    double seconds[TX_BENCH_PAIRS], ratio[TX_BENCH_PAIRS]; /* of each; DataParallel's over those */
} row;

typedef struct comparison {
    const settings *set;
    row row[3];
    int32_t rows;
    double difference; /* of a loss from the first one, relative; the largest */
} comparison;

/* What rounding of the gradients' norm makes of the loss: its squares are summed by shards where there are ranks. */
#define TOLERANCE 2e-6

static tx_status start(const comparison *c, const row *r, tx_json **printed)
{
    const settings *set = c->set;
    const char *const overlaps[] = {"auto", "yes", "no"};
    char text[16][48], config[4096];
    const struct {
        const char *name;
        int64_t value;
    } number[] = {{"--ranks", set->ranks},
                  {"--batch", set->batch},
                  {"--block", set->block},
                  {"--steps", set->steps},
                  {"--warmup", set->warmup}};
    char *arguments[24] = {0};
    int32_t used = 0, texts = 0;
    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++) {
        snprintf(text[texts], sizeof text[0], "%s", number[i].name);
        arguments[used++] = text[texts++];
        snprintf(text[texts], sizeof text[0], "%" PRId64, number[i].value);
        arguments[used++] = text[texts++];
    }
    snprintf(text[texts], sizeof text[0], "--learning_rate=%.17g", set->learning_rate);
    arguments[used++] = text[texts++];
    snprintf(text[texts], sizeof text[0], "--ddp_overlap=%s", overlaps[set->overlap]);
    arguments[used++] = text[texts++];
    snprintf(text[texts], sizeof text[0], "--row=%s", r->word);
    arguments[used++] = text[texts++];
    snprintf(config, sizeof config, "--config=%s", set->config);
    arguments[used] = config;
    return tx_ddp_start(r->launcher, (int32_t)set->ranks, r->shared, arguments, printed);
}

static tx_status run_one(comparison *c, row *r, int64_t round)
{
    tx_json *printed = NULL;
    int64_t ranks = 0;
    tx_status status = start(c, r, &printed);
    if (!status)
        status = tx_json_get_int(printed, "ranks", 1, INT32_MAX, &ranks);
    if (!status)
        status = tx_json_get_number(printed, "seconds", 1e-9, 1e12, &r->seconds[round]);
    if (!status)
        status = tx_json_get_number(printed, "bytes_per_step", 0, 1e18, &r->bytes);
    if (!status)
        status = tx_json_get_number(printed, "loss", -1e30, 1e30, &r->loss);
    if (!status)
        status = tx_json_get_bool(printed, "overlap", &r->overlap);
    tx_json_free(printed);
    if (!status && ranks != c->set->ranks)
        status = tx_fail(TX_INVALID, "%" PRId64 " ranks came where %" PRId64 " were started: is %s of another MPI?",
                         ranks, c->set->ranks, r->launcher);
    return status ? tx_fail_in(status, "%s", r->name) : TX_OK;
}

/* All rows did the same steps on the same rows. */
static tx_status compare_losses(comparison *c, const row *r, double first)
{
    const double difference = fabs(r->loss - first) / fabs(first);
    if (!(difference <= TOLERANCE))
        return tx_fail(TX_INTERNAL, "%s: loss %.9g after the last step, that of %s is %.9g: they do not train alike",
                       r->name, r->loss, c->row[0].name, first);
    c->difference = fmax(c->difference, difference);
    return TX_OK;
}

static tx_status compare(comparison *c)
{
    double first = 0.0;
    tx_status status = TX_OK;
    for (int64_t round = 0; round < c->set->rounds && !status; round++) {
        fprintf(stderr, "round %" PRId64 ":", round + 1);
        for (int32_t i = 0; i < c->rows && !status; i++) {
            row *r = &c->row[i];
            status = run_one(c, r, round);
            if (status)
                break;
            first = round == 0 && i == 0 ? r->loss : first;
            r->ratio[round] = c->row[0].seconds[round] / r->seconds[round];
            fprintf(stderr, "%s %s %.3f s", i ? "," : "", r->name, r->seconds[round]);
            status = compare_losses(c, r, first);
        }
        fputc('\n', stderr);
    }
    return status;
}

static double samples(const settings *set)
{
    return (double)(set->ranks * set->batch * set->steps);
}

static void print_text(const comparison *c)
{
    const settings *set = c->set;
    printf("txbench ddp --config %s --ranks %" PRId64 " --batch %" PRId64 " --block %" PRId64 " --steps %" PRId64
           " --warmup %" PRId64 " --rounds %" PRId64 "\n",
           set->config, set->ranks, set->batch, set->block, set->steps, set->warmup, set->rounds);
    printf("%-18s %13s  %24s  %9s  %16s  %5s\n", "", "train_runtime", "train_samples_per_second", "ms a step",
           "bytes moved/step", "to DP");
    for (int32_t i = 0; i < c->rows; i++) {
        const row *r = &c->row[i];
        const double seconds = tx_bench_median(r->seconds, set->rounds);
        printf("%-18s %13.4f  %24.3f  %9.1f  %16.0f  %5.3f\n", r->name, seconds, samples(set) / seconds,
               1e3 * seconds / (double)set->steps, r->bytes, tx_bench_median(r->ratio, set->rounds));
    }
    printf("medians of %" PRId64 " rounds; to DP: samples a second over DataParallel's of the same round\n",
           set->rounds);
    printf("loss %.6f after step %" PRId64 "; the rows agree within %.1e of it\n", c->row[0].loss,
           set->warmup + set->steps, c->difference);
    if (c->rows == 1)
        printf("this build has no MPI, which the rows of DDP need: build with -DTX_MPI=ON\n");
    for (int32_t i = 1; i < c->rows; i++)
        printf("%s summed gradients %s\n", c->row[i].name,
               c->row[i].overlap ? "during the backward pass" : "after the backward pass");
}

static tx_json *json_row(const settings *set, const row *r)
{
    tx_json *one = tx_json_object(), *series = tx_json_array();
    const double seconds = tx_bench_median(r->seconds, set->rounds);
    for (int64_t i = 0; i < set->rounds; i++)
        tx_json_append_number(series, r->seconds[i]);
    tx_json_set_string(one, "name", r->name);
    tx_json_set_number(one, "train_runtime", seconds);
    tx_json_set_number(one, "train_samples_per_second", samples(set) / seconds);
    tx_json_set_number(one, "step_ms", 1e3 * seconds / (double)set->steps);
    tx_json_set_number(one, "bytes_per_step", r->bytes);
    tx_json_set_number(one, "ratio", tx_bench_median(r->ratio, set->rounds));
    tx_json_set_number(one, "loss", r->loss);
    tx_json_set_bool(one, "overlap", r->overlap);
    tx_json_set(one, "runtimes", series);
    return one;
}

static tx_status print_json(const comparison *c)
{
    const settings *set = c->set;
    tx_json *all = tx_json_object(), *rows = tx_json_array();
    tx_json_set_string(all, "config", set->config);
    tx_json_set_int(all, "ranks", set->ranks);
    tx_json_set_int(all, "batch", set->batch);
    tx_json_set_int(all, "block", set->block);
    tx_json_set_int(all, "steps", set->steps);
    tx_json_set_int(all, "warmup", set->warmup);
    tx_json_set_number(all, "loss_difference", c->difference);
    for (int32_t i = 0; i < c->rows; i++)
        tx_json_append(rows, json_row(set, &c->row[i]));
    tx_json_set(all, "rows", rows);
    return print_line(all);
}

static tx_status run_all(const settings *set)
{
    comparison c = {.set = set, .rows = 1};
    c.row[0] = (row){.name = "DP", .word = "dp", .shared = true};
#ifdef TX_MPI_LAUNCHER
    c.row[1] = (row){.name = "DDP", .word = "ddp", .launcher = TX_MPI_LAUNCHER, .shared = true};
    c.row[2] = (row){.name = "DDP, TX_COMM_SHM=0", .word = "ddp", .launcher = TX_MPI_LAUNCHER};
    c.rows = 3;
#endif
    tx_ddp_job job; /* errors of the options are told once, by this process */
    tx_status status = make_job(set, &job);
    tx_config_free(job.config);
    if (!status)
        status = compare(&c);
    if (!status && set->json)
        status = print_json(&c);
    else if (!status)
        print_text(&c);
    return status;
}

int tx_bench_ddp(int argc, char *const *argv)
{
    settings set = defaults;
    int result = tx_options_parse(&tx_bench_ddp_program, argc, argv, &set);
    if (result != TX_GO_ON)
        return result;
    tx_status status = set.row == ROW_ALL ? run_all(&set) : run_row(&set);
    return status ? tx_complain(&tx_bench_ddp_program, TX_EXIT_FAILURE, "%s", tx_error()) : 0;
}
