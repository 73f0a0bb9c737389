/* SPDX-License-Identifier: Apache-2.0
 * txresearch ddp: repeats the comparison of DataParallel and DistributedDataParallel in the Hugging Face guide
 * "Efficient Training on Multiple GPUs" (GPT-2, two devices, batch 4 each, 200 steps), on random tokens. DP is one
 * process with a replica for each device, DDP one rank for each device. The third row is DDP without shared memory
 * between the ranks of a host, like the guide's row without NVLink. Each row of each round runs as a separate process,
 * and the rows alternate. */
#include "tools/research/ddp.h"
#include "comm/comm.h"
#include "tools/process/child.h"
#include "tools/research/research.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>

typedef tx_ddp_settings settings;
enum { ALL, DP, DDP };

static const tx_option options[] = {
    TX_BENCH_MODEL(AT),
    {TX_OPTION_INTEGER, "ranks", AT(ranks), 2, TX_DDP_RANKS_MAX, "N",
     "number of devices: replicas in one process, or processes; they divide the cores"},
    TX_BENCH_BATCH(AT),
    {TX_OPTION_INTEGER, "steps", AT(steps), 1, 1 << 20, "N", "number of timed steps; the guide has 200"},
    {TX_OPTION_INTEGER, "rounds", AT(rounds), 1, TX_BENCH_PAIRS, "N", "runs of each row, alternating"},
    {TX_OPTION_CHOICE, "row", AT(row), .choices = "all|dp|ddp",
     .help = "all runs the comparison and starts the others; dp runs DataParallel in this process; ddp runs one rank "
             "under an MPI launcher"},
    TX_BENCH_JSON(AT),
};

static const settings defaults = {.config = "gpt2", .ranks = 2, .batch = 4, .block = 256, .steps = 20, .rounds = 3};

/* ---- One row ----------------------------------------------------------------------------------------------- */

/* Sums up the bytes that all ranks have transferred so far. */
static tx_status add_up_traffic(tx_comm *comm, int64_t *bytes)
{
    tx_comm_traffic traffic;
    int64_t all[TX_DDP_RANKS_MAX] = {0};
    comm->table->traffic(comm, &traffic);
    all[comm->rank] = traffic.sent + traffic.shared;
    TX_TRY(tx_comm_share(comm, all, sizeof all[0]));
    *bytes = 0;
    for (int32_t i = 0; i < comm->size; i++)
        *bytes += all[i];
    return TX_OK;
}

/* Measures the seconds and the transferred bytes of the steps. */
static tx_status time_rank(const settings *set, tx_bench_training *t, tx_comm *comm, tx_ddp_result *result)
{
    double seconds = 0.0;
    int64_t before, after;
    TX_TRY(tx_model_init(t->model, 1));
    TX_TRY(tx_bench_training_run(t, TX_DDP_WARMUP, &seconds));
    TX_TRY(add_up_traffic(comm, &before)); /* also synchronizes the ranks */
    TX_TRY(tx_bench_training_run(t, set->steps, &seconds));
    TX_TRY(add_up_traffic(comm, &after));
    *result = (tx_ddp_result){comm->size, seconds, (double)(after - before) / (double)set->steps, t->loss};
    return TX_OK;
}

/* Trains as DistributedDataParallel does, with one process for each device, as txtrain does. */
static tx_status train_rank(const settings *set, const tx_config *config, tx_comm *comm, tx_ddp_result *result)
{
    const tx_engine_options engine = {.size = sizeof engine, .threads = tx_ddp_threads(comm->local_size)};
    tx_bench_training t = {0};
    tx_trainer_options trainer = tx_bench_trainer_options(config, set->batch, set->block);
    trainer.comm = comm;
    if (comm->size > TX_DDP_RANKS_MAX)
        return tx_fail(TX_INVALID, "%" PRId32 " ranks; at most %d", comm->size, TX_DDP_RANKS_MAX);
    TX_TRY(tx_bench_training_open(&engine, config, &trainer, &t));
    tx_status status = time_rank(set, &t, comm, result);
    tx_bench_training_close(&t);
    return status;
}

/* On errors a rank ends without closing the communicator, and the launcher then ends the others. */
static tx_status run_row(const settings *set, const tx_config *config)
{
    tx_comm *comm = NULL;
    tx_ddp_result r = {0};
    if (set->row == DDP)
        TX_TRY(tx_comm_default()->open(NULL, NULL, &comm));
    TX_TRY(comm ? train_rank(set, config, comm, &r) : tx_ddp_replicas(set, config, &r));
    if (!comm || comm->rank == 0)
        printf("ranks %d seconds %.9g bytes_per_step %.0f loss %.17g\n", r.ranks, r.seconds, r.bytes, r.loss);
    if (comm)
        comm->table->close(comm);
    return TX_OK;
}

/* ---- The comparison ------------------------------------------------------------------------------------------ */

typedef struct row {
    const char *name;
    tx_ddp_result last;
    double seconds[TX_BENCH_PAIRS];
} row;

typedef struct comparison {
    const settings *set;
    const char **arguments; /* "env TX_COMM_SHM=0 mpiexec -n 2 txresearch ddp .."; each row uses the end of it */
    int last;               /* index of the option --row */
    row row[3];
    double difference; /* largest relative difference of a loss from that of DP */
} comparison;

#ifdef TX_MPI_LAUNCHER
enum { ROWS = 3 };
#else
enum { ROWS = 1 };
#define TX_MPI_LAUNCHER "mpiexec"
#endif
static const int begins[] = {5, 2, 0};

/* Tolerance of losses: with ranks, the squares of the gradient norm are summed by shards, which rounds differently. */
#define TOLERANCE 2e-6

/* Reads the figures that a row prints. Launchers may print other lines before. */
static tx_status read_result(const settings *set, FILE *from, tx_ddp_result *r)
{
    char line[256];
    int found = 0;
    while (fgets(line, sizeof line, from))
        if (found < 4)
            found = sscanf(line, "ranks %d seconds %lf bytes_per_step %lf loss %lf", &r->ranks, &r->seconds, &r->bytes,
                           &r->loss);
    if (found < 4)
        return tx_fail(TX_FORMAT, "printed no figures");
    return r->ranks == set->ranks
               ? TX_OK
               : tx_fail(TX_INVALID, "%d ranks instead of %" PRId64 ": is %s the launcher of another MPI?", r->ranks,
                         set->ranks, TX_MPI_LAUNCHER);
}

static tx_status run_one(comparison *c, int which, int64_t round)
{
    static char option[][12] = {"--row=dp", "--row=ddp"};
    tx_ddp_result *r = &c->row[which].last;
    const double *first = &c->row[0].last.loss;
    tx_child child;
    c->arguments[c->last] = option[which > 0];
    TX_TRY(
        tx_child_start(c->arguments + begins[which], "install the launcher of the MPI that TX was built with", &child));
    const tx_status status = read_result(c->set, child.from, r);
    const int end = tx_child_end(&child);
    if (WIFSIGNALED(end))
        return tx_fail(TX_IO, "was ended by signal %d", WTERMSIG(end));
    if (WEXITSTATUS(end))
        return tx_fail(TX_IO, "failed with status %d: see its message above", WEXITSTATUS(end));
    TX_TRY(status);
    c->row[which].seconds[round] = r->seconds;
    const double difference = fabs(r->loss - *first) / fabs(*first);
    if (!(difference <= TOLERANCE))
        return tx_fail(TX_INTERNAL, "loss %.9g after the last step, but that of DP is %.9g: they train differently",
                       r->loss, *first);
    c->difference = fmax(c->difference, difference);
    return TX_OK;
}

static tx_status run_rounds(comparison *c)
{
    for (int64_t round = 0; round < c->set->rounds; round++)
        for (int i = 0; i < ROWS; i++) {
            const tx_status status = run_one(c, i, round);
            if (status)
                return tx_fail_in(status, "%s", c->row[i].name);
            fprintf(stderr, "round %" PRId64 ": %s %.3f s\n", round + 1, c->row[i].name, c->row[i].seconds[round]);
        }
    return TX_OK;
}

static tx_status print(const comparison *c)
{
    const settings *set = c->set;
    tx_json *all = tx_bench_figures(&tx_bench_ddp.program, set), *rows = tx_json_array();
    tx_json_set_number(all, "loss_difference", c->difference);
    if (ROWS == 1)
        tx_json_set_string(all, "note", "this build has no MPI, so DDP is missing: build with -DTX_MPI=ON");
    for (int i = 0; i < ROWS; i++) {
        const row *r = &c->row[i];
        const double seconds = tx_bench_median(r->seconds, set->rounds);
        tx_json *one = tx_json_object();
        tx_json_set_string(one, "name", r->name);
        tx_json_set_number(one, "train_runtime", seconds);
        tx_json_set_number(one, "train_samples_per_second", (double)(set->ranks * set->batch * set->steps) / seconds);
        tx_json_set_number(one, "step_ms", 1e3 * seconds / (double)set->steps);
        tx_json_set_int(one, "bytes_per_step", (int64_t)r->last.bytes);
        tx_json_set_number(one, "ratio", tx_bench_median_ratio(c->row[0].seconds, r->seconds, set->rounds));
        tx_json_set_number(one, "loss", r->last.loss);
        tx_bench_set_series(one, "runtimes", r->seconds, set->rounds);
        tx_json_append(rows, one);
    }
    tx_json_set(all, "rows", rows);
    return tx_bench_print(all, set->json, NULL);
}

static tx_status run_all(const settings *set, char *const *argv)
{
    char words[][24] = {"env", "TX_COMM_SHM=0", TX_MPI_LAUNCHER, "-n", ""}, program[4096];
    enum { WORDS = sizeof words / sizeof words[0] };
    comparison c = {
        .set = set, .last = WORDS + 1, .row = {{.name = "DP"}, {.name = "DDP"}, {.name = "DDP, TX_COMM_SHM=0"}}};
    while (argv[c.last - WORDS - 1])
        c.last++;
    TX_TRY(tx_child_self(program, sizeof program));
    c.arguments = calloc((size_t)c.last + 2, sizeof *c.arguments);
    if (!c.arguments)
        return tx_fail(TX_MEMORY, "no memory for a command line");
    snprintf(words[WORDS - 1], sizeof words[0], "%" PRId64, set->ranks);
    for (int i = 0; i < c.last; i++)
        c.arguments[i] = i < WORDS ? words[i] : i == WORDS ? program : argv[i - WORDS - 1];
    tx_status status = run_rounds(&c);
    free(c.arguments);
    return status ? status : print(&c);
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    tx_config *config = NULL; /* checked here, so that errors are printed once, before other processes start */
    tx_status status = tx_bench_config(set->config, set->block, &config);
    if (!status)
        status = set->row == ALL ? run_all(set, argv) : run_row(set, config);
    tx_config_free(config);
    return status;
}

TX_BENCH_COMMAND(ddp, "",
                 "Compares training by DataParallel (one process with a replica for each device) and by "
                 "DistributedDataParallel\n(one rank for each device), with and without shared memory, as in the "
                 "Hugging Face guide. Fails if the losses differ.");
