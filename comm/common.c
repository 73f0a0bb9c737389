/* SPDX-License-Identifier: Apache-2.0
 * Functions that every communicator needs: argument checks, small collectives, and the launcher's environment. */
#include "comm/common.h"
#include "api/base/arithmetic.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *kind_name(tx_collective kind)
{
    static const char *const names[] = {
#define X(name, text) text,
        TX_COLLECTIVE_MAP(X)
#undef X
    };
    return (unsigned)kind < TX_COLLECTIVE_COUNT ? names[kind] : "unknown transfer";
}

static tx_status check_data(const char *call, const void *data, int64_t count, tx_dtype dtype)
{
    if (dtype != TX_F32 && dtype != TX_BF16 && dtype != TX_I32)
        return tx_fail(TX_INVALID, "%s: type %s is not supported; use F32, BF16 or I32", call, tx_dtype_name(dtype));
    if (count < 0 || count > INT64_MAX / (int64_t)tx_dtype_size(dtype))
        return tx_fail(TX_INVALID, "%s: %" PRId64 " elements are out of range", call, count);
    if (!data && count > 0)
        return tx_fail(TX_INVALID, "%s: no data given for %" PRId64 " elements", call, count);
    return TX_OK;
}

tx_status tx_comm_check(const tx_comm *comm, const tx_transfer *t)
{
    const char *call = kind_name(t->kind);
    if ((unsigned)t->kind >= TX_COLLECTIVE_COUNT)
        return tx_fail(TX_INVALID, "collective number %d is unknown", (int)t->kind);
    if (t->kind == TX_BARRIER)
        return TX_OK;
    TX_TRY(check_data(call, t->data, t->count, t->dtype));
    if (t->wire != t->dtype && !(t->dtype == TX_F32 && t->wire == TX_BF16) && !(t->dtype != TX_I32 && t->wire == TX_U8))
        return tx_fail(TX_INVALID, "%s: %s cannot be sent as %s", call, tx_dtype_name(t->dtype),
                       tx_dtype_name(t->wire));
    if (t->kind == TX_BROADCAST && (t->root < 0 || t->root >= comm->size))
        return tx_fail(TX_INVALID, "%s: rank %" PRId32 " is out of range; there are %" PRId32 " ranks", call, t->root,
                       comm->size);
    return TX_OK;
}

tx_status tx_comm_check_message(const tx_comm *comm, const tx_message *m)
{
    static const char call[] = "begin_message";
    if (m->number < 0 || m->number >= TX_MESSAGE_NUMBERS)
        return tx_fail(TX_INVALID, "%s: number %" PRId32 " is outside 0..%d", call, m->number, TX_MESSAGE_NUMBERS - 1);
    TX_TRY(check_data(call, m->data, m->count, m->dtype == TX_F16 ? TX_BF16 : m->dtype));
    if (m->other < 0 || m->other >= comm->size || m->other == comm->rank)
        return tx_fail(TX_INVALID, "%s: rank %" PRId32 " is not another one of the %" PRId32 " ranks", call, m->other,
                       comm->size);
    return TX_OK;
}

tx_status tx_comm_check_block(const tx_all_to_all *a, int32_t rank)
{
    const tx_dtype dtype = a->dtype == TX_F16 ? TX_BF16 : a->dtype;
    TX_TRY(check_data("all_to_all", a->out, a->out_count[rank], dtype));
    return check_data("all_to_all", a->in, a->in_count[rank], dtype);
}

int64_t tx_comm_bytes(int64_t count, tx_dtype dtype)
{
    return dtype == TX_U8 ? tx_ceil_div(count, TX_COMM_BLOCK) * (int64_t)(sizeof(float) + TX_COMM_BLOCK)
                          : count * (int64_t)tx_dtype_size(dtype);
}

tx_status tx_comm_run(tx_comm *comm, const tx_transfer *transfer)
{
    int32_t request = 0;
    TX_TRY(comm->table->begin(comm, transfer, &request));
    return comm->table->wait(comm, request);
}

tx_status tx_comm_collect(tx_comm *comm, tx_collective kind, void *data, int64_t count, tx_dtype dtype, int32_t root)
{
    const tx_transfer transfer = {
        .kind = kind, .dtype = dtype, .wire = dtype, .root = root, .bucket = -1, .data = data, .count = count};
    return tx_comm_run(comm, &transfer);
}

tx_status tx_comm_share(tx_comm *comm, void *records, size_t bytes)
{
    for (int32_t r = 0; r < comm->size; r++)
        if (r != comm->rank)
            memset((char *)records + (size_t)r * bytes, 0, bytes);
    return tx_comm_collect(comm, TX_ALL_REDUCE, records, (int64_t)(bytes / sizeof(int32_t)) * comm->size, TX_I32, 0);
}

void *tx_comm_gather(tx_comm *comm, const void *mine, size_t bytes, tx_status *status)
{
    char *all = calloc((size_t)comm->size, bytes);
    if (all)
        memcpy(all + (size_t)comm->rank * bytes, mine, bytes);
    *status = all ? tx_comm_share(comm, all, bytes) : tx_fail(TX_MEMORY, "no memory to compare the ranks");
    if (!*status)
        return all;
    free(all);
    return NULL;
}

tx_status tx_comm_agree(tx_comm *comm, tx_status status, const char *what)
{
    enum { GROUP = 64 }; /* ranks at a time; needs no allocation, which may be the failure itself */
    const tx_status own = status;
    for (int32_t first = 0; first < comm->size; first += GROUP) {
        int32_t outcome[GROUP] = {0};
        if (comm->rank >= first && comm->rank < first + GROUP)
            outcome[comm->rank - first] = (int32_t)own;
        tx_status shared = tx_comm_collect(comm, TX_ALL_REDUCE, outcome, GROUP, TX_I32, 0);
        for (int32_t r = 0; r < GROUP && !status && !shared; r++)
            if (outcome[r])
                status = tx_fail((tx_status)outcome[r], "rank %" PRId32 " could not %s", first + r, what);
        status = status ? status : shared;
    }
    return status;
}

static char abandoned_because[512]; /* the first caller's, written before the flag */
static atomic_bool abandoning, abandoned;

void tx_comm_abandon(const char *why)
{
    if (atomic_exchange(&abandoning, true))
        return;
    snprintf(abandoned_because, sizeof abandoned_because, "%s", why);
    atomic_store_explicit(&abandoned, true, memory_order_release);
}

tx_status tx_comm_abandoned(void)
{
    return atomic_load_explicit(&abandoned, memory_order_acquire) ? tx_fail(TX_IO, "%s", abandoned_because) : TX_OK;
}

void tx_comm_resume(void)
{
    atomic_store_explicit(&abandoned, false, memory_order_release);
    atomic_store(&abandoning, false);
}

int64_t tx_comm_shard(int64_t count, int32_t size, int32_t rank)
{
    int64_t blocks = tx_ceil_div(count, TX_PARAM_BLOCK);
    int64_t first = (blocks / size * rank + blocks % size * rank / size) * TX_PARAM_BLOCK;
    return first < count ? first : count;
}

int32_t tx_comm_split(int32_t count)
{
    int32_t split = 1;
    while (split < count - split)
        split *= 2;
    return split;
}

/* Environment variables by which launchers announce the number of ranks and the rank of a process. The last entry
 * is for launchers other than MPI's (torchrun, accelerate, deepspeed); to MPI each of their processes is a job of one
 * rank. Open MPI comes first, because under Slurm srun starts its daemons. */
static const struct {
    const char *size, *rank;
} launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                 {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
                 {"PMI_SIZE", "PMI_RANK"},
                 {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
                 {"SLURM_NTASKS", "SLURM_PROCID"},
                 {"FLUX_JOB_SIZE", "FLUX_TASK_RANK"},
                 {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"},
                 {"WORLD_SIZE", "RANK"}};

/* Returns the index of the launcher in the list, and its number of ranks; -1 if there is none. */
static int32_t find_launcher(int32_t *ranks)
{
    for (int32_t i = 0; i < (int32_t)(sizeof launchers / sizeof launchers[0]); i++) {
        const char *text = getenv(launchers[i].size);
        long found = text ? strtol(text, NULL, 10) : 0;
        if (found <= 0 || found > INT32_MAX)
            continue;
        *ranks = (int32_t)found;
        return i;
    }
    return -1;
}

int32_t tx_launcher_ranks(const char **variable)
{
    int32_t ranks = 0, found = find_launcher(&ranks);
    if (found >= 0 && variable)
        *variable = launchers[found].size;
    return ranks;
}

int32_t tx_launcher_rank(void)
{
    int32_t ranks = 0, found = find_launcher(&ranks);
    const char *text = found >= 0 ? getenv(launchers[found].rank) : NULL;
    char *end = NULL;
    long rank = text ? strtol(text, &end, 10) : -1;
    return text && end != text && rank >= 0 && rank < ranks ? (int32_t)rank : -1;
}

/* Writes the command line of this process with shell quoting; "PROGRAM" if it is unavailable. */
static void own_command(char *text, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    char words[4096];
    size_t used = 0;
    FILE *file = fopen("/proc/self/cmdline", "r");
    const size_t length = file ? fread(words, 1, sizeof words - 1, file) : 0;
    if (file)
        fclose(file);
    words[length] = '\0';
    snprintf(text, size, "%s", length ? "" : "PROGRAM");
    for (size_t at = 0; at < length && used < size; at += strlen(words + at) + 1) {
        const char *word = words + at, *quote = word[0] && !word[strspn(word, plain)] ? "" : "'";
        used += (size_t)snprintf(text + used, size - used, "%s%s%s%s", at ? " " : "", quote, word, quote);
    }
}

tx_status tx_launcher_check(int32_t size, const char *advice, bool with_line)
{
    const char *variable = "";
    char line[2400] = "";
    int32_t ranks = tx_launcher_ranks(&variable);
    if (ranks <= 1 || size > 1)
        return TX_OK;
    if (with_line) {
        snprintf(line, sizeof line, " -n %" PRId32 " ", ranks);
        own_command(line + strlen(line), sizeof line - strlen(line));
    }
    return tx_fail(TX_UNSUPPORTED,
                   "the launcher started %" PRId32
                   " ranks (%s) but this process sees one: %s%s (to run a single process, "
                   "remove %s from the environment)",
                   ranks, variable, advice, line, variable);
}
