/* SPDX-License-Identifier: Apache-2.0
 *
 * txbench comm: times the all-reduce, and compares it with MPI_Allreduce and with memcpy. Within a host, memcpy is the
 * bound: a rank that sums its slice moves as many bytes as when it copies all of the data once. */
#include "comm/comm.h"
#define TX_BENCH_ONE_PROCESS NULL
#include "tools/bench/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 16 };

typedef struct settings {
    const char *sizes;
    int64_t rounds;
    double line;
    int32_t wire;
    bool no_peer, background, json;
} settings;

static const tx_option options[] = {
    {TX_OPTION_TEXT, "sizes", AT(sizes), .choices = "MB,MB,..", .help = "message sizes in MB of fp32"},
    {TX_OPTION_INTEGER, "rounds", AT(rounds), 1, TX_BENCH_PAIRS, "N", "measurements of each method, alternating"},
    {TX_OPTION_CHOICE, "wire", AT(wire), .choices = "fp32|bf16", .help = "type of inter-node traffic"},
    {TX_OPTION_FLAG, "background", AT(background), .help = "run the all-reduce in the communicator's thread"},
    {TX_OPTION_FLAG, "no_peer", AT(no_peer), .help = "do not measure MPI_Allreduce"},
    {TX_OPTION_REAL, "line", AT(line), 0, 1e6, "GBIT", "line rate of a host's network link to compare with"},
    TX_BENCH_JSON(AT),
};

static const settings defaults = {.sizes = "1,4,25,100,497", .rounds = 5};

typedef enum method { OURS, PEER, MEMCPY, METHODS } method;
static const char *const names[METHODS] = {"all_reduce", "mpi_all_reduce", "memcpy"};

/* The figures of one size. Times are those of the slowest rank. */
typedef struct figures {
    int64_t count; /* elements */
    double seconds[METHODS][TX_BENCH_PAIRS];
    double median[METHODS];
    int64_t sent; /* bytes that this rank sends to other hosts in one all-reduce */
} figures;

typedef struct bench {
    const settings *set;
    tx_comm *comm;
    float *window, *from, *to;
    float *times; /* time of each rank */
    figures figures[SIZES];
    int32_t sizes;
    int64_t longest;
} bench;

/* ---- Measuring ---------------------------------------------------------------------------------------- */

static tx_status read_sizes(bench *b)
{
    for (const char *at = b->set->sizes;; at++) {
        char *end = NULL;
        double size = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !(size >= 1e-3 && size <= 1e6) || b->sizes == SIZES)
            return tx_fail(TX_INVALID,
                           "--sizes %s: expected up to %d sizes in MB (0.001 to 1000000), separated by commas",
                           b->set->sizes, SIZES);
        int64_t count = (int64_t)(size * 1e6) / (int64_t)sizeof(float);
        b->figures[b->sizes++].count = count;
        b->longest = count > b->longest ? count : b->longest;
        at = end;
        if (!*at)
            return TX_OK;
    }
}

static tx_status prepare(bench *b)
{
    void *window = NULL;
    TX_TRY(read_sizes(b));
    TX_TRY(tx_comm_default()->open(NULL, NULL, &b->comm));
    const size_t bytes = (size_t)b->longest * sizeof(float);
    TX_TRY(b->comm->table->window(b->comm, (int64_t)bytes, &window));
    TX_TRY(b->comm->table->background(b->comm, b->set->background));
    b->window = window;
    b->from = malloc(bytes);
    b->to = malloc(bytes);
    b->times = malloc((size_t)b->comm->size * sizeof *b->times);
    if (!b->from || !b->to || !b->times)
        return tx_fail(TX_MEMORY, "no memory for %.1f MB", 3e-6 * (double)bytes);
    return TX_OK;
}

static float addend(int32_t rank)
{
    return (float)(rank + 1);
}

static void fill(float *data, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        data[i] = value;
}

static tx_status check(const bench *b, const float *sum, int64_t count, float expected, const char *name)
{
    for (int64_t i = 0; i < count; i++)
        if (!(sum[i] == expected))
            return tx_fail(TX_INTERNAL, "%s: element %" PRId64 " on rank %" PRId32 " is %g instead of %g", name, i,
                           b->comm->rank, (double)sum[i], (double)expected);
    return TX_OK;
}

static tx_status run_method(bench *b, figures *f, method how)
{
    const tx_transfer sum = {.kind = TX_ALL_REDUCE,
                             .dtype = TX_F32,
                             .wire = b->set->wire ? TX_BF16 : TX_F32,
                             .bucket = -1,
                             .data = b->window,
                             .count = f->count};
    if (how == OURS)
        return tx_comm_run(b->comm, &sum);
    if (how == PEER)
        return b->comm->table->peer_all_reduce(b->comm, b->from, b->to, f->count);
    memcpy(b->to, b->from, (size_t)f->count * sizeof(float));
    return TX_OK;
}

/* Takes one measurement. A barrier lets all ranks start together. */
static tx_status measure_one(bench *b, figures *f, method how, double *seconds)
{
    const float own = addend(b->comm->rank), sum = (float)(b->comm->size * (b->comm->size + 1) / 2);
    tx_comm_traffic before, after;
    fill(how == OURS ? b->window : b->from, f->count, own);
    TX_TRY(tx_comm_collect(b->comm, TX_BARRIER, NULL, 0, TX_F32, 0));
    b->comm->table->traffic(b->comm, &before);
    const double begin = tx_now();
    TX_TRY(run_method(b, f, how));
    *seconds = tx_now() - begin;
    b->comm->table->traffic(b->comm, &after);
    if (how == OURS)
        f->sent = after.sent - before.sent;
    TX_TRY(check(b, how == OURS ? b->window : b->to, f->count, how == MEMCPY ? own : sum, names[how]));
    memset(b->times, 0, (size_t)b->comm->size * sizeof *b->times);
    b->times[b->comm->rank] = (float)*seconds;
    TX_TRY(tx_comm_collect(b->comm, TX_ALL_REDUCE, b->times, b->comm->size, TX_F32, 0));
    for (int32_t r = 0; r < b->comm->size; r++)
        *seconds = (double)b->times[r] > *seconds ? (double)b->times[r] : *seconds;
    return TX_OK;
}

static bool has(const bench *b, method how)
{
    return how != PEER || (b->comm->table->peer_all_reduce && !b->set->no_peer);
}

/* Warms up, then measures the methods alternately, so that other load affects all of them equally. */
static tx_status measure(bench *b)
{
    for (int32_t s = 0; s < b->sizes; s++) {
        figures *f = &b->figures[s];
        double ignored;
        for (int64_t round = -1; round < b->set->rounds; round++)
            for (method how = 0; how < METHODS; how++)
                if (has(b, how))
                    TX_TRY(measure_one(b, f, how, round < 0 ? &ignored : &f->seconds[how][round]));
        for (method how = 0; how < METHODS; how++)
            if (has(b, how))
                f->median[how] = tx_bench_median(f->seconds[how], b->set->rounds);
    }
    return TX_OK;
}

/* ---- Printing ------------------------------------------------------------------------------------------- */

/* Returns the share of the line rate: bytes that this host sends in one all-reduce, over the bytes that its link can
 * send in that time. */
static double line_share(const bench *b, const figures *f)
{
    return 8e-9 * (double)(f->sent * b->comm->local_size) / (f->median[OURS] * b->set->line);
}

static tx_status print(const bench *b)
{
    char key[64];
    tx_json *all = tx_bench_figures(&tx_bench_comm.program, b->set), *sizes = tx_json_array();
    tx_json_set_string(all, "communicator", b->comm->table->name);
    tx_json_set_int(all, "ranks", b->comm->size);
    for (int32_t s = 0; s < b->sizes; s++) {
        const figures *f = &b->figures[s];
        const double bytes = (double)(f->count * (int64_t)sizeof(float));
        tx_json *one = tx_json_object();
        tx_json_set_int(one, "bytes", (int64_t)bytes);
        tx_json_set_int(one, "sent_by_rank_0", f->sent);
        for (method how = 0; how < METHODS; how++) {
            if (!has(b, how))
                continue;
            snprintf(key, sizeof key, "%s_seconds", names[how]);
            tx_bench_set_series(one, key, f->seconds[how], b->set->rounds);
            snprintf(key, sizeof key, "%s_gbytes", names[how]);
            tx_json_set_number(one, key, 1e-9 * bytes / f->median[how]);
        }
        tx_json_set_number(one, "of_memcpy", f->median[MEMCPY] / f->median[OURS]);
        if (has(b, PEER))
            tx_json_set_number(one, "over_mpi", f->median[PEER] / f->median[OURS]);
        if (b->set->line > 0.0)
            tx_json_set_number(one, "of_line", line_share(b, f));
        tx_json_append(sizes, one);
    }
    tx_json_set(all, "sizes", sizes);
    return tx_bench_print(all, b->set->json, NULL);
}

/* On errors a rank ends without closing the communicator, and the launcher then ends the others. */
static tx_status run(const void *settings_, char *const *argv)
{
    bench b = {.set = settings_};
    (void)argv;
    tx_status status = prepare(&b);
    TX_THEN(status, measure(&b));
    if (!status && b.comm->rank == 0)
        status = print(&b);
    if (!status)
        b.comm->table->close(b.comm);
    free(b.from);
    free(b.to);
    free(b.times);
    return status;
}

TX_BENCH_COMMAND(comm, "mpiexec -n N ",
                 "Times TX's all-reduce (fp32, in place), MPI_Allreduce (out of place), and a memcpy on all ranks at "
                 "once.\nPrints medians of the slowest rank in GB of fp32 per second, and checks every result.");
