/* SPDX-License-Identifier: Apache-2.0
 * Many ranks of a run: where each is, and which rows it does. */
#include "models/job/parts.h"

#include "api/base/cores.h"
#include "api/base/hash.h"
#include "api/base/message.h"
#include "comm/topology/placement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* INVALID where an option of so many ranks or stages, and with others' of so many ranks in all, leaves some over. */
static tx_status check_groups(const tx_job *j, const char *kind, int64_t asked, int32_t ranks)
{
    return j->comm->size % ranks == 0
               ? TX_OK
               : tx_fail(TX_INVALID,
                         "--%s_parallel %" PRId64 ": %" PRId32 " ranks cannot be divided into groups of so many: "
                         "start %" PRId32 " (mpiexec -n %" PRId32 "), or a multiple",
                         kind, asked, j->comm->size, ranks, ranks);
}

/* Neighbours among the ranks of `all` are a group, and those at the same place in each another. */
static tx_status part(tx_comm *all, int32_t ranks, tx_comm **group, tx_comm **others)
{
    TX_TRY(tx_comm_sub(all, all->rank / ranks, all->rank, group));
    return tx_comm_sub(all, all->rank % ranks, all->rank, others);
}

/* Of ranks (stage, row, part), the part counting fastest: neighbours share a host. The rows of a stage and part are
 * those whose gradients are summed; neighbours among these divide positions, and experts. */
tx_status tx_job_make_groups(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    const int32_t parts = (int32_t)set->tensor_parallel, stages = (int32_t)set->pipeline_parallel,
                  chunks = (int32_t)set->context_parallel, experts = (int32_t)set->expert_parallel;
    const int32_t rank = j->comm->rank, times = parts * stages;
    j->data = j->sums = j->comm;
    j->tensor = j->pipeline = j->ends = j->expert = j->replicas = j->context = NULL;
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
    j->data = j->sums;
    if (chunks > 1)
        TX_TRY(part(j->sums, chunks, &j->context, &j->data));
    return experts > 1 ? part(j->sums, experts, &j->expert, &j->replicas) : TX_OK;
}

/* ---- Devices and cores ------------------------------------------------------------------------------------------- */

static bool wants_auto(const tx_job *j)
{
    return strcmp(j->set.device, "auto") == 0;
}

/* The GPU that the placement gives this rank, when it is the first to have it; the others compute on cores. */
static const char *device_of(const tx_topology *t, const tx_placement *p, int32_t rank)
{
    int32_t device = p->places[rank].device;
    for (int32_t r = 0; r < rank && device >= 0; r++)
        if (p->places[r].device == device)
            device = -1;
    const char *engine = device >= 0 ? t->devices[device].engine : "";
    return engine && *engine ? engine : "cpu";
}

/* Whether a launcher gave the ranks of this host cores of their own. What all of them alike may use is no such binding,
 * but what the container or the job has. */
static tx_status find_binding(tx_comm *comm, const char *cpus, bool *bound)
{
    const uint64_t mine = tx_hash(TX_HASH_START, cpus, strlen(cpus));
    tx_status status;
    uint64_t *all = tx_comm_gather(comm, &mine, sizeof mine, &status);
    for (int32_t r = 0; r < comm->size && !status; r++)
        *bound |= comm->ranks[r].host == comm->ranks[comm->rank].host && all[r] != mine;
    free(all);
    return status;
}

/* Takes device and cores by the host's topology, the cores from `cpus` alone. */
static tx_status take_place(tx_job *j, const char *cpus, bool moves)
{
    const tx_comm *comm = j->comm;
    tx_topology *topology = NULL;
    tx_placement *placement = NULL;
    tx_status status = tx_topology_live(NULL, &topology);
    if (!status && moves)
        status = tx_placement_confine(topology, cpus);
    TX_THEN(status, tx_placement_make(topology, comm->local_size, &placement));
    if (!status && wants_auto(j))
        snprintf(j->device, sizeof j->device, "%s", device_of(topology, placement, comm->local_rank));
    if (!status && moves)
        status = tx_placement_take(&placement->places[comm->local_rank]);
    tx_placement_free(placement);
    tx_topology_free(topology);
    return status == TX_UNSUPPORTED && !wants_auto(j) ? TX_OK : status;
}

tx_status tx_job_take_place(tx_job *j)
{
    char *cpus = NULL;
    bool bound = false;
    snprintf(j->device, sizeof j->device, "%s", wants_auto(j) ? "cpu" : j->set.device);
    tx_status status = tx_placement_cpus(&cpus);
    if (!status && j->comm->size > 1)
        status = find_binding(j->comm, cpus, &bound);
    const bool moves = j->comm->local_size > 1 && !bound;
    if (!status && (moves || wants_auto(j)))
        status = take_place(j, cpus, moves);
    free(cpus);
    return status;
}

/* The ranks of a host have one quota. */
int32_t tx_job_threads(const tx_job *j)
{
    const int32_t allowed = tx_cores_allowed(), quota = tx_cores_quota(), ranks = j->comm->local_size;
    const int32_t share = quota / ranks + (quota % ranks != 0);
    return j->set.threads > 0 ? (int32_t)j->set.threads : share < allowed ? share : allowed;
}

/* ---- Who is where ------------------------------------------------------------------------------------------------ */

typedef struct identity {
    char id[32], name[128], driver[128];
    int32_t threads;
    int64_t memory; /* of its own; 0: the host's, or unknown */
} identity;

/* How a rank's device is tied to those of the first ranks, MOST_LINKS of them or the first alone. */
typedef char cell[8];
enum { MOST_LINKS = 16 };

static int32_t link_columns(const tx_comm *comm)
{
    return comm->size <= MOST_LINKS ? comm->size : 1;
}

/* What needs no topology; NULL: two devices of one host. */
static const char *plain_link(const tx_comm *comm, const identity *all, int32_t a, int32_t b)
{
    const bool cores_a = strcmp(all[a].id, "cpu") == 0, cores_b = strcmp(all[b].id, "cpu") == 0;
    if (a == b)
        return "X";
    if (comm->ranks[a].host != comm->ranks[b].host)
        return "NET";
    if (cores_a && cores_b)
        return "SHM";
    if (cores_a || cores_b)
        return "HOST";
    return strcmp(all[a].id, all[b].id) == 0 ? "SAME" : NULL;
}

/* Of two devices of this host; without a topology it is not known. */
static void find_link(tx_topology **topology, const char *a, const char *b, cell link)
{
    char text[16] = "?";
    if (!*topology && tx_topology_live(NULL, topology))
        *topology = NULL;
    const int32_t first = *topology ? tx_topo_find(*topology, a) : -1;
    const int32_t second = *topology ? tx_topo_find(*topology, b) : -1;
    if (first >= 0 && second >= 0)
        tx_topo_cell(*topology, first, second, true, text);
    snprintf(link, sizeof(cell), "%.7s", text);
}

/* Each rank's links, by rank and column, as it knows them of its own host's topology. */
static tx_status find_links(tx_comm *comm, const identity *all, cell *links)
{
    const int32_t columns = link_columns(comm);
    tx_topology *topology = NULL;
    for (int32_t c = 0; c < columns; c++) {
        const char *plain = plain_link(comm, all, comm->rank, c);
        cell *link = &links[comm->rank * columns + c];
        if (plain)
            snprintf(*link, sizeof *link, "%s", plain);
        else
            find_link(&topology, all[comm->rank].id, all[c].id, *link);
    }
    tx_topology_free(topology);
    return tx_comm_share(comm, links, (size_t)columns * sizeof *links);
}

static tx_status note_ranks(const tx_job *j, const identity *all)
{
    tx_comm *comm = j->comm;
    const int32_t columns = link_columns(comm);
    cell *links = calloc((size_t)comm->size * (size_t)columns, sizeof *links);
    tx_status status = links ? find_links(comm, all, links) : tx_fail(TX_MEMORY, "no memory for the table of ranks");
    if (status) {
        free(links);
        return status;
    }
    char row[MOST_LINKS * (sizeof(cell) + 1)];
    size_t used = 0;
    for (int32_t c = 0; c < columns; c++)
        used += (size_t)snprintf(row + used, sizeof row - used, " %5" PRId32, c);
    tx_job_note(j, "rank    host                     device       cores%s  name", row);
    for (int32_t r = 0; r < comm->size; r++) {
        used = 0;
        for (int32_t c = 0; c < columns; c++)
            used += (size_t)snprintf(row + used, sizeof row - used, " %5s", links[r * columns + c]);
        tx_job_note(j, "%-7" PRId32 " %-24.24s %-12s %5" PRId32 "%s  %s", r, comm->ranks[r].name, all[r].id,
                    all[r].threads, row, all[r].name);
    }
    tx_job_note(j,
                "links   SHM: shared memory, HOST: host memory, SAME: one device, NET: network; others as txtopo says");
    free(links);
    return TX_OK;
}

/* Ranks that have one device share its memory. */
static int64_t find_own_memory(const tx_comm *comm, const identity *all)
{
    int64_t least = all[0].memory;
    for (int32_t r = 0; r < comm->size; r++) {
        int64_t sharers = 0;
        for (int32_t other = 0; other < comm->size; other++)
            sharers += comm->ranks[other].host == comm->ranks[r].host && strcmp(all[other].id, all[r].id) == 0;
        least = all[r].memory / sharers < least ? all[r].memory / sharers : least;
    }
    return least;
}

tx_status tx_job_compare_devices(tx_job *j)
{
    const tx_comm *comm = j->comm;
    const tx_device_info *device = tx_engine_device(j->engine);
    identity mine = {.threads = tx_job_threads(j), .memory = device->type == TX_DEVICE_CPU ? 0 : device->memory};
    snprintf(mine.id, sizeof mine.id, "%s", device->id);
    snprintf(mine.name, sizeof mine.name, "%s", device->name);
    snprintf(mine.driver, sizeof mine.driver, "%s", device->driver);
    tx_status status;
    identity *all = tx_comm_gather(j->comm, &mine, sizeof mine, &status);
    if (!status)
        j->own_memory = find_own_memory(comm, all);
    for (int32_t r = 1; r < comm->size && !status; r++)
        j->mixed |= strcmp(all[r].name, all[0].name) != 0 || strcmp(all[r].driver, all[0].driver) != 0;
    if (!status && comm->size > 1)
        status = note_ranks(j, all);
    free(all);
    if (!status && j->mixed && (j->tensor || j->pipeline || j->expert || j->context))
        status = tx_fail(TX_UNSUPPORTED,
                         "--%s_parallel: the ranks' devices differ in kind or driver, and round "
                         "differently: give all the same --device",
                         j->tensor     ? "tensor"
                         : j->pipeline ? "pipeline"
                         : j->expert   ? "expert"
                                       : "context");
    j->zero_stage = (int32_t)j->set.zero_stage;
    if (j->mixed && j->zero_stage == 0) {
        j->zero_stage = 1;
        tx_job_note(
            j, "zero    stage 1: the ranks' devices round differently, so each weight is updated by one rank and sent");
    }
    return status;
}

/* ---- Rows --------------------------------------------------------------------------------------------------------- */

/* As given, or as the run that goes on had it: what was measured then is not measured again. */
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

/* Rows of a step: as given; as the checkpoint's run had them, where that had other ranks; or what the ranks make. */
static int64_t wanted_rows(const tx_job *j)
{
    const tx_json *run = j->inputs.state.run;
    int64_t made = j->all_rows * j->set.accumulation, ranks = 0, rows = 0;
    if (j->set.global_batch)
        return j->set.global_batch;
    if (!run || tx_json_get_int(run, "world_size", 1, INT32_MAX, &ranks) || ranks == j->data->size ||
        tx_json_get_int(run, "global_batch", 1, INT32_MAX, &rows) || rows == made)
        return made;
    tx_job_note(j, "batch   %" PRId64 " blocks a step, as the %" PRId64 " ranks had that the run began with", rows,
                ranks);
    return rows;
}

/* DeepSpeed's three sizes of a batch, where its file says all of them. */
static tx_status check_product(const tx_job *j)
{
    const int64_t made = j->all_rows * j->set.accumulation;
    if (!j->set.deepspeed || !j->set.global_batch || made == j->step_rows || j->set.parallel == TX_JOB_PARALLEL_AUTO ||
        !tx_option_asked(&j->options, TX_JOB_AT(accumulation)))
        return TX_OK;
    return tx_fail(TX_INVALID,
                   "--deepspeed: train_batch_size %" PRId64 " is not train_micro_batch_size_per_gpu %" PRId64
                   " x gradient_accumulation_steps %" PRId64 " x %" PRId32 " ranks: leave one out",
                   j->step_rows, j->set.batch, j->set.accumulation, j->data->size);
}

/* Numbers above 0 with commas between them, one a rank; NULL text: all alike. */
static tx_status read_weights(const char *text, int32_t ranks, double *weight)
{
    for (int32_t r = 0; r < ranks; r++) {
        char *end = NULL;
        weight[r] = text ? strtod(text, &end) : 1.0;
        if (text && (end == text || !(weight[r] > 0.0 && weight[r] < 1e9) || *end != (r + 1 < ranks ? ',' : '\0')))
            return tx_fail(
                TX_INVALID,
                "batch_weights: one number above 0 for each of the %" PRId32 " ranks, with commas between them", ranks);
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

void tx_job_note_shares(const tx_job *j)
{
    int64_t elements = 0;
    int32_t buckets = tx_model_bucket_count(j->model);
    if (j->comm->size == 1)
        return;
    for (int32_t i = 0; i < buckets; i++)
        elements += tx_model_bucket_elements(j->model, i);
    if (j->tensor)
        tx_job_note(j, "tensor  %" PRId32 " ranks compute the same rows together%s, %" PRId32 " group%s of them",
                    j->tensor->size, j->set.sequence_parallel ? ", between products a chunk of the positions each" : "",
                    j->data->size, tx_s(j->data->size));
    if (j->expert)
        tx_job_note(j, "experts %" PRId32 " ranks divide those of each layer, %" PRId32 " group%s of them",
                    j->expert->size, j->replicas->size, tx_s(j->replicas->size));
    if (j->pipeline)
        tx_job_note_stages(j);
    tx_job_note(j, "shares  %s rows of a micro-batch, %" PRId64 " row%s a step", j->rows_text, j->step_rows,
                tx_s(j->step_rows));
    if (j->context)
        tx_job_note(j,
                    "chunks  %" PRId32 " ranks have %" PRId64 " positions each of the same rows, %" PRId32
                    " group%s of them",
                    j->context->size, j->inputs.block / j->context->size, j->data->size, tx_s(j->data->size));
    if (j->sums->size == 1)
        return;
    tx_job_note(j, "sums    %.1f MB of gradients in %" PRId32 " bucket%s, %s between hosts; ZeRO stage %" PRId32 "",
                4e-6 * (double)elements, buckets, tx_s(buckets), j->set.ddp_comm ? "bf16" : "fp32", j->zero_stage);
}
