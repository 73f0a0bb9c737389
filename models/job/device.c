/* SPDX-License-Identifier: Apache-2.0
 * Assigns a device and cores to each rank, and opens the device. */
#include "models/job/ranks.h"

#include "api/base/arithmetic.h"
#include "api/base/cores.h"
#include "api/base/hash.h"
#include "comm/topology/placement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Devices and cores ------------------------------------------------------------------------------------------- */

static bool wants_auto(const tx_job *j)
{
    return j->set.device && strcmp(j->set.device, "auto") == 0;
}

/* The GPU that the placement assigns to this rank, if no lower rank has it. Other ranks use the cpu. */
static const char *device_of(const tx_topology *t, const tx_placement *p, int32_t rank)
{
    int32_t device = p->places[rank].device;
    for (int32_t r = 0; r < rank && device >= 0; r++)
        if (p->places[r].device == device)
            device = -1;
    const char *engine = device >= 0 ? t->devices[device].engine : "";
    return engine && *engine ? engine : "cpu";
}

/* True if each of the host's ranks gets a GPU of its own, and these have one name. Otherwise ranks whose user names no
 * device use the cpu, because devices of several kinds round differently. */
static bool has_gpu_for_each(const tx_topology *t, const tx_placement *p, int32_t ranks)
{
    for (int32_t r = 0; r < ranks; r++)
        if (strcmp(device_of(t, p, r), "cpu") == 0 ||
            strcmp(t->devices[p->places[r].device].name, t->devices[p->places[0].device].name) != 0)
            return false;
    return true;
}

/* Whether a launcher bound the ranks of this host to different cores. The same cores for all ranks are not a binding,
 * but the limit of the container or the job. */
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

/* Assigns device and cores by the host's topology. If `moves`, the process is bound to cores among `cpus`. */
static tx_status assign_place(tx_job *j, const char *cpus, bool moves)
{
    const tx_comm *comm = j->comm;
    const bool chooses = !j->set.device && !j->set.use_cpu;
    tx_topology *topology = NULL;
    tx_placement *placement = NULL;
    tx_status status = tx_topology_live(NULL, &topology);
    if (!status && moves)
        status = tx_placement_confine(topology, cpus);
    TX_THEN(status, tx_placement_make(topology, comm->local_size, &placement));
    if (!status && (wants_auto(j) || (chooses && has_gpu_for_each(topology, placement, comm->local_size))))
        snprintf(j->device, sizeof j->device, "%s", device_of(topology, placement, comm->local_rank));
    if (!status && moves)
        status = tx_placement_take(&placement->places[comm->local_rank]);
    tx_placement_free(placement);
    tx_topology_free(topology);
    return status == TX_UNSUPPORTED && !wants_auto(j) ? TX_OK : status;
}

/* The device before the topology is known. One rank of a host leaves the choice to the engine. */
static const char *named_device(const tx_job *j)
{
    if (j->set.use_cpu || wants_auto(j))
        return "cpu";
    return j->set.device ? j->set.device : j->comm->local_size > 1 ? "cpu" : "auto";
}

tx_status tx_job_bind_rank(tx_job *j)
{
    char *cpus = NULL;
    bool bound = false;
    int32_t index;
    tx_status status =
        tx_placement_device(named_device(j), j->comm->local_rank, j->comm->local_size, sizeof j->device, j->device);
    TX_THEN(status, tx_placement_cpus(&cpus));
    if (!status && j->comm->size > 1)
        status = find_binding(j->comm, cpus, &bound);
    const bool moves = j->comm->local_size > 1 && !bound;
    if (!status && (moves || wants_auto(j)))
        status = assign_place(j, cpus, moves);
    free(cpus);
    /* A device that does not exist is refused before the data are read. */
    if (!status && strcmp(j->device, "auto") != 0)
        status = tx_device_find(j->device, &index);
    return status;
}

/* The number of threads. The ranks of a host share one quota. */
static int32_t threads_of(const tx_job *j)
{
    const int32_t allowed = tx_cores_allowed(), quota = tx_cores_quota(), ranks = j->comm->local_size;
    const int32_t share = (int32_t)tx_ceil_div(quota, ranks);
    return j->set.threads > 0 ? (int32_t)j->set.threads : share < allowed ? share : allowed;
}

/* ---- Placement --------------------------------------------------------------------------------------------------- */

typedef struct identity {
    char id[32], name[128], driver[128];
    int32_t threads;
    int64_t memory; /* device memory in bytes; 0 if it is host memory or unknown */
} identity;

static void note_ranks(const tx_job *j, const identity *all)
{
    tx_job_note(j, "rank    host                     device       cores  name");
    for (int32_t r = 0; r < j->comm->size; r++)
        tx_job_note(j, "%-7" PRId32 " %-24.24s %-12s %5" PRId32 "  %s", r, j->comm->ranks[r].name, all[r].id,
                    all[r].threads, all[r].name);
}

/* The least device memory of a rank. Ranks on one device share its memory. */
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

static tx_status compare_devices(tx_job *j)
{
    const tx_comm *comm = j->comm;
    const tx_device_info *device = tx_engine_device(j->engine);
    identity mine = {.threads = threads_of(j), .memory = device->type == TX_DEVICE_CPU ? 0 : device->memory};
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
        note_ranks(j, all);
    free(all);
    if (!status && j->mixed && (j->tensor || j->pipeline || j->expert || j->context))
        status = tx_fail(TX_UNSUPPORTED,
                         "--%s_parallel: the ranks' devices differ in kind or driver, so they round "
                         "differently: give all ranks the same --device",
                         j->tensor     ? "tensor"
                         : j->pipeline ? "pipeline"
                         : j->expert   ? "expert"
                                       : "context");
    if (!status && j->mixed && j->set.zero_group != 1)
        status = tx_fail(TX_UNSUPPORTED, "--zero_hpz_partition_size: the ranks' devices differ in kind or driver, so "
                                         "copies of a weight would differ: give all ranks the same --device");
    j->zero_stage = (int32_t)j->set.zero_stage;
    if (j->mixed && j->zero_stage == 0 && j->sums->size > 1) {
        j->zero_stage = 1;
        tx_job_note(
            j, "zero    stage 1: the ranks' devices round differently, so one rank updates each weight and sends it");
    }
    return status;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

bool tx_job_in_host(const tx_job *j)
{
    return strcmp(tx_engine_device(j->engine)->id, "cpu") == 0;
}

/* Selects the kernels that the autotuner chose in the checkpoint's run. Other kernels may differ in the last bits. */
static void choose_kernels(tx_job *j)
{
    const char *kernels = j->inputs.state.kernels;
    if (kernels && tx_engine_choose(j->engine, kernels))
        tx_reporter_print(
            &j->report,
            "this device lacks kernels that the checkpoint's run used: results may differ in the last bits");
}

tx_status tx_job_open_device(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    const bool tf32 = set->tf32 && !set->no_tf32;
    tx_engine_options engine = {.size = sizeof engine,
                                .device = j->device,
                                .threads = getenv("OMP_NUM_THREADS") ? (int32_t)set->threads : threads_of(j),
                                .profile = set->profile,
                                .tf32 = tf32,
                                .report = &j->report};
    if (j->engine)
        return TX_OK;
    TX_TRY(tx_engine_create(&engine, &j->engine));
    const tx_device_info *device = tx_engine_device(j->engine);
    const char *reason = tx_engine_reason(j->engine);
    tx_job_note(j, "device  %s: %s, %s%s%s%s", device->id, device->name, device->platform, *reason ? " (" : "", reason,
                *reason ? ")" : "");
    if (tf32)
        tx_job_note(j, "tf32    %s",
                    device->tf32 ? "fp32 matrix products may round their operands to tf32"
                                 : "TX uses no tf32 units of this device: products are in fp32");
    const bool bf16 = set->bf16 || set->dtype;
    if (bf16 || set->fp16)
        tx_job_note(j, "%s    matrix products %s", bf16 ? "bf16" : "fp16",
                    (bf16 ? device->bf16 : device->fp16)
                        ? "read 16 bits and sum in fp32"
                        : "run faster in fp32 on this device: operands are converted, which saves memory, not time");
    choose_kernels(j);
    return compare_devices(j);
}
