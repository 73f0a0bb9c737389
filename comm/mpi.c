/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator over MPI, and the only file that includes mpi.h.
 *
 * MPI moves bytes here and TX does the sums: MPI_Allreduce orders a sum by algorithm, which the library picks by size,
 * type and number of ranks, and fp32 gradients would change with it. A sum goes by chunks. Rank r fetches slice r of
 * the chunk from every rank, adds the slices in rank order, and (all_reduce) gives the sum to every rank: 2 (N-1)/N
 * of the data leave each rank, as in a ring. The bits depend on the number of ranks alone.
 *
 * Waits give the core away when nothing arrives: MPICH's own spin, which is thousands of times slower where ranks share
 * a core. */
#include "comm/common.h"

#include <inttypes.h>
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 1 << 20,        /* elements summed at a time ... */
    CHUNK_A_RANK = 1 << 14, /* ... or more, so that no message gets small among many ranks */
    SPINS = 200,            /* tests of a message before the core is given away */
};

#if defined(OPEN_MPI)
#define MPI_FAMILY "Open MPI"
#elif defined(MPICH_VERSION)
#define MPI_FAMILY "MPICH"
#else
#define MPI_FAMILY "another MPI"
#endif

/* What this rank gives to another one and gets from it. */
typedef struct peer {
    const void *send;
    void *receive;
    int32_t send_count, receive_count;
} peer;

typedef struct pending {
    void *data;
    int64_t count;
    tx_dtype dtype;
} pending;

struct tx_comm {
    MPI_Comm mpi;
    int32_t rank, size, local_rank, local_size;
    bool started; /* by this communicator, which then also ends MPI */
    int32_t chunk;
    char *slots;         /* the same slice from every rank, in rank order */
    peer *peers;         /* by rank */
    MPI_Request *moving; /* room for two a rank */
    MPI_Status *moved;   /* likewise; gcc takes MPICH's MPI_STATUSES_IGNORE for an array that is too short */
    tx_requests requests;
    pending *pending; /* by request number */
    int32_t pending_room;
};

static tx_status check(int code, const char *call)
{
    if (code == MPI_SUCCESS)
        return TX_OK;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return tx_fail(TX_IO, "%s failed: %s", call, text);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static tx_status start(int *argc, char ***argv, bool *started)
{
    int before = 0, after = 0, level = MPI_THREAD_SINGLE;
    tx_status status = check(MPI_Initialized(&before), "MPI_Initialized");
    if (!status)
        status = check(MPI_Finalized(&after), "MPI_Finalized");
    if (status)
        return status;
    if (after)
        return tx_fail(TX_UNSUPPORTED, "MPI has ended in this process and cannot start again: open one communicator "
                                       "and keep it");
    if (before)
        status = check(MPI_Query_thread(&level), "MPI_Query_thread");
    else
        status = check(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    if (status)
        return status;
    *started = !before;
    if (level < MPI_THREAD_SERIALIZED) {
        if (*started)
            MPI_Finalize();
        return tx_fail(TX_UNSUPPORTED, "MPI was started without support for threads: start it with "
                                       "MPI_Init_thread and MPI_THREAD_SERIALIZED");
    }
    return TX_OK;
}

/* Counts the ranks of all hosts and of this one. */
static tx_status find_ranks(tx_comm *comm)
{
    int rank = 0, size = 0, local_rank = 0, local_size = 0;
    MPI_Comm local = MPI_COMM_NULL;
    tx_status status = check(MPI_Comm_rank(comm->mpi, &rank), "MPI_Comm_rank");
    if (!status)
        status = check(MPI_Comm_size(comm->mpi, &size), "MPI_Comm_size");
    if (!status)
        status = check(MPI_Comm_split_type(comm->mpi, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local),
                       "MPI_Comm_split_type");
    if (status)
        return status;
    status = check(MPI_Comm_rank(local, &local_rank), "MPI_Comm_rank");
    if (!status)
        status = check(MPI_Comm_size(local, &local_size), "MPI_Comm_size");
    MPI_Comm_free(&local);
    comm->rank = rank;
    comm->size = size;
    comm->local_rank = local_rank;
    comm->local_size = local_size;
    return status;
}

static tx_status make_buffers(tx_comm *comm)
{
    size_t ranks = (size_t)comm->size;
    if (comm->size > INT32_MAX / (2 * CHUNK_A_RANK))
        return tx_fail(TX_UNSUPPORTED, "%" PRId32 " ranks are too many", comm->size);
    comm->chunk = comm->size > CHUNK / CHUNK_A_RANK ? comm->size * CHUNK_A_RANK : CHUNK;
    /* The longest slice is rounded up, so slots may hold one element a rank more than a chunk. */
    comm->slots = malloc(((size_t)comm->chunk + ranks) * sizeof(float));
    comm->peers = calloc(ranks, sizeof *comm->peers);
    comm->moving = calloc(2 * ranks, sizeof *comm->moving);
    comm->moved = calloc(2 * ranks, sizeof *comm->moved);
    if (!comm->slots || !comm->peers || !comm->moving || !comm->moved)
        return tx_fail(TX_MEMORY, "no memory for the communicator's buffers");
    return TX_OK;
}

static void mpi_close(tx_comm *comm)
{
    if (!comm)
        return;
    if (comm->mpi != MPI_COMM_NULL)
        MPI_Comm_free(&comm->mpi);
    if (comm->started)
        MPI_Finalize();
    free(comm->slots);
    free(comm->peers);
    free(comm->moving);
    free(comm->moved);
    free(comm->pending);
    free(comm);
}

static tx_status mpi_open(int *argc, char ***argv, tx_comm **comm)
{
    tx_comm *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    made->mpi = MPI_COMM_NULL;
    tx_status status = start(argc, argv, &made->started);
    if (!status)
        status = check(MPI_Comm_dup(MPI_COMM_WORLD, &made->mpi), "MPI_Comm_dup");
    if (!status)
        status = check(MPI_Comm_set_errhandler(made->mpi, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    if (!status)
        status = find_ranks(made);
    if (!status)
        status = tx_launcher_check(made->size, "this build of TX uses " MPI_FAMILY ", start it with " TX_MPI_LAUNCHER);
    if (!status)
        status = make_buffers(made);
    if (status) {
        mpi_close(made);
        return status;
    }
    *comm = made;
    return TX_OK;
}

static int32_t mpi_rank(const tx_comm *comm)
{
    return comm->rank;
}

static int32_t mpi_size(const tx_comm *comm)
{
    return comm->size;
}

static int32_t mpi_local_rank(const tx_comm *comm)
{
    return comm->local_rank;
}

static int32_t mpi_local_size(const tx_comm *comm)
{
    return comm->local_size;
}

/* ---- Moving -------------------------------------------------------------------------------------- */

static MPI_Datatype type_of(tx_dtype dtype)
{
    return dtype == TX_F32 ? MPI_FLOAT : dtype == TX_I32 ? MPI_INT32_T : MPI_UINT16_T;
}

/* Waits for `count` of comm->moving. */
static tx_status finish(tx_comm *comm, int32_t count)
{
    int done = 0;
    for (int32_t tries = 0;; tries += tries < SPINS) {
        tx_status status = check(MPI_Testall(count, comm->moving, &done, comm->moved), "MPI_Testall");
        if (status || done)
            return status;
        if (tries >= SPINS)
            sched_yield();
    }
}

/* Gives and gets what comm->peers says. The peers are taken from this rank's neighbour on, so that no rank is sent to
 * by all at once. */
static tx_status exchange(tx_comm *comm, tx_dtype dtype)
{
    const peer *self = &comm->peers[comm->rank];
    if (self->receive != self->send && self->send_count > 0)
        memcpy(self->receive, self->send, (size_t)self->send_count * tx_dtype_size(dtype));
    MPI_Datatype type = type_of(dtype);
    tx_status status = TX_OK;
    int32_t moving = 0;
    for (int32_t i = 1; i < comm->size && !status; i++) {
        int32_t from = (comm->rank - i + comm->size) % comm->size;
        const peer *p = &comm->peers[from];
        if (p->receive_count > 0)
            status = check(MPI_Irecv(p->receive, p->receive_count, type, from, 0, comm->mpi, &comm->moving[moving++]),
                           "MPI_Irecv");
    }
    for (int32_t i = 1; i < comm->size && !status; i++) {
        int32_t to = (comm->rank + i) % comm->size;
        const peer *p = &comm->peers[to];
        if (p->send_count > 0)
            status =
                check(MPI_Isend(p->send, p->send_count, type, to, 0, comm->mpi, &comm->moving[moving++]), "MPI_Isend");
    }
    return status ? status : finish(comm, moving);
}

/* ---- Collectives ------------------------------------------------------------------------------------- */

static int32_t least(int64_t a, int64_t b)
{
    return (int32_t)(a < b ? a : b);
}

/* First element of slice `r` of `count` elements. */
static int32_t slice_start(const tx_comm *comm, int32_t r, int32_t count)
{
    return (int32_t)((int64_t)count * r / comm->size);
}

static tx_status reduce_chunk(tx_comm *comm, char *data, int32_t count, tx_dtype dtype)
{
    size_t bytes = tx_dtype_size(dtype);
    int32_t first = slice_start(comm, comm->rank, count);
    int32_t own = slice_start(comm, comm->rank + 1, count) - first;
    char *sum = data + (size_t)first * bytes;
    for (int32_t r = 0; r < comm->size; r++) {
        int32_t start = slice_start(comm, r, count), length = slice_start(comm, r + 1, count) - start;
        comm->peers[r] = (peer){
            .send = data + (size_t)start * bytes,
            .send_count = length,
            .receive = comm->slots + (size_t)r * (size_t)own * bytes,
            .receive_count = own,
        };
    }
    tx_status status = exchange(comm, dtype);
    if (status)
        return status;
    tx_comm_sum(comm->slots, comm->size, sum, own, dtype);
    for (int32_t r = 0; r < comm->size; r++) {
        int32_t start = slice_start(comm, r, count), length = slice_start(comm, r + 1, count) - start;
        comm->peers[r] = (peer){
            .send = sum,
            .send_count = own,
            .receive = data + (size_t)start * bytes,
            .receive_count = length,
        };
    }
    return exchange(comm, dtype);
}

static tx_status all_reduce(tx_comm *comm, char *data, int64_t count, tx_dtype dtype)
{
    tx_status status = TX_OK;
    for (int64_t at = 0; at < count && !status; at += comm->chunk)
        status = reduce_chunk(comm, data + (size_t)at * tx_dtype_size(dtype), least(count - at, comm->chunk), dtype);
    return status;
}

static tx_status mpi_all_reduce(tx_comm *comm, void *data, int64_t count, tx_dtype dtype)
{
    tx_status status = tx_comm_check("all_reduce", data, count, 1, dtype);
    return status ? status : all_reduce(comm, data, count, dtype);
}

static tx_status mpi_reduce_scatter(tx_comm *comm, const void *data, void *out, int64_t count, tx_dtype dtype)
{
    tx_status status = tx_comm_check("reduce_scatter", data, count, comm->size, dtype);
    if (!status)
        status = tx_comm_check("reduce_scatter", out, count, 1, dtype);
    int32_t piece = comm->chunk / comm->size;
    size_t bytes = tx_dtype_size(dtype);
    for (int64_t at = 0; at < count && !status; at += piece) {
        int32_t length = least(count - at, piece);
        for (int32_t r = 0; r < comm->size; r++) {
            comm->peers[r] = (peer){
                .send = (const char *)data + (size_t)(r * count + at) * bytes,
                .send_count = length,
                .receive = comm->slots + (size_t)r * (size_t)length * bytes,
                .receive_count = length,
            };
        }
        status = exchange(comm, dtype);
        if (!status)
            tx_comm_sum(comm->slots, comm->size, (char *)out + (size_t)at * bytes, length, dtype);
    }
    return status;
}

static tx_status mpi_all_gather(tx_comm *comm, const void *data, void *out, int64_t count, tx_dtype dtype)
{
    tx_status status = tx_comm_check("all_gather", data, count, 1, dtype);
    if (!status)
        status = tx_comm_check("all_gather", out, count, comm->size, dtype);
    size_t bytes = tx_dtype_size(dtype);
    for (int64_t at = 0; at < count && !status; at += comm->chunk) {
        int32_t length = least(count - at, comm->chunk);
        for (int32_t r = 0; r < comm->size; r++) {
            comm->peers[r] = (peer){
                .send = (const char *)data + (size_t)at * bytes,
                .send_count = length,
                .receive = (char *)out + (size_t)(r * count + at) * bytes,
                .receive_count = length,
            };
        }
        status = exchange(comm, dtype);
    }
    return status;
}

static tx_status mpi_broadcast(tx_comm *comm, void *data, int64_t count, tx_dtype dtype, int32_t root)
{
    tx_status status = tx_comm_check("broadcast", data, count, 1, dtype);
    if (!status && (root < 0 || root >= comm->size))
        status = tx_fail(TX_INVALID, "broadcast: there is no rank %" PRId32 " among %" PRId32, root, comm->size);
    for (int64_t at = 0; at < count && !status; at += comm->chunk) {
        char *chunk = (char *)data + (size_t)at * tx_dtype_size(dtype);
        status = check(MPI_Ibcast(chunk, least(count - at, comm->chunk), type_of(dtype), root, comm->mpi, comm->moving),
                       "MPI_Ibcast");
        if (!status)
            status = finish(comm, 1);
    }
    return status;
}

static tx_status mpi_barrier(tx_comm *comm)
{
    tx_status status = check(MPI_Ibarrier(comm->mpi, comm->moving), "MPI_Ibarrier");
    return status ? status : finish(comm, 1);
}

/* Keeps the request; the sum is made by the wait. No MPI of today moves data by itself while the caller computes, so
 * nothing would be won by starting here. */
static tx_status mpi_begin(tx_comm *comm, void *data, int64_t count, tx_dtype dtype, int32_t *request)
{
    tx_status status = tx_comm_check("begin", data, count, 1, dtype);
    if (status)
        return status;
    if (comm->requests.begun == comm->pending_room) {
        int32_t room = comm->pending_room ? 2 * comm->pending_room : 64;
        pending *grown = realloc(comm->pending, (size_t)room * sizeof *grown);
        if (!grown)
            return tx_fail(TX_MEMORY, "no memory for %" PRId32 " requests", room);
        comm->pending = grown;
        comm->pending_room = room;
    }
    int32_t number = tx_requests_begin(&comm->requests);
    comm->pending[number] = (pending){data, count, dtype};
    *request = number;
    return TX_OK;
}

static tx_status mpi_wait(tx_comm *comm, int32_t request)
{
    tx_status status = tx_requests_end(&comm->requests, request);
    if (status)
        return status;
    const pending *p = &comm->pending[request];
    return all_reduce(comm, p->data, p->count, p->dtype);
}

/* ---- From rank to rank ------------------------------------------------------------------------------- */

enum { PAIR_TAG = 1 }; /* collectives use 0 */

static tx_status check_pair(const tx_comm *comm, const char *call, const void *data, int64_t count, tx_dtype dtype,
                            int32_t other)
{
    tx_status status = tx_comm_check(call, data, count, 1, dtype);
    if (!status && (other < 0 || other >= comm->size || other == comm->rank))
        status =
            tx_fail(TX_INVALID, "%s: rank %" PRId32 " is no other of the %" PRId32 " ranks", call, other, comm->size);
    return status;
}

static tx_status mpi_send(tx_comm *comm, const void *data, int64_t count, tx_dtype dtype, int32_t to)
{
    tx_status status = check_pair(comm, "send", data, count, dtype, to);
    for (int64_t at = 0; at < count && !status; at += comm->chunk) {
        const char *chunk = (const char *)data + (size_t)at * tx_dtype_size(dtype);
        status = check(
            MPI_Isend(chunk, least(count - at, comm->chunk), type_of(dtype), to, PAIR_TAG, comm->mpi, comm->moving),
            "MPI_Isend");
        if (!status)
            status = finish(comm, 1);
    }
    return status;
}

static tx_status mpi_receive(tx_comm *comm, void *data, int64_t count, tx_dtype dtype, int32_t from)
{
    tx_status status = check_pair(comm, "receive", data, count, dtype, from);
    for (int64_t at = 0; at < count && !status; at += comm->chunk) {
        char *chunk = (char *)data + (size_t)at * tx_dtype_size(dtype);
        status = check(
            MPI_Irecv(chunk, least(count - at, comm->chunk), type_of(dtype), from, PAIR_TAG, comm->mpi, comm->moving),
            "MPI_Irecv");
        if (!status)
            status = finish(comm, 1);
    }
    return status;
}

extern const tx_comm_table tx_comm_mpi;
const tx_comm_table tx_comm_mpi = {
    .version = TX_COMM_VERSION,
    .name = "mpi",
    .open = mpi_open,
    .close = mpi_close,
    .rank = mpi_rank,
    .size = mpi_size,
    .local_rank = mpi_local_rank,
    .local_size = mpi_local_size,
    .all_reduce = mpi_all_reduce,
    .reduce_scatter = mpi_reduce_scatter,
    .all_gather = mpi_all_gather,
    .broadcast = mpi_broadcast,
    .barrier = mpi_barrier,
    .begin = mpi_begin,
    .wait = mpi_wait,
    .send = mpi_send,
    .receive = mpi_receive,
};
