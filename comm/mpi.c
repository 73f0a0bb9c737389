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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

typedef struct ranks {
    tx_comm base;
    MPI_Comm mpi;
    bool started; /* by this communicator, which then also ends MPI */
    int32_t chunk;
    char *slots;         /* the same slice from every rank, in rank order */
    const void **slot;   /* by rank */
    peer *peers;         /* by rank */
    MPI_Request *moving; /* room for two a rank */
    MPI_Status *moved;   /* likewise; gcc takes MPICH's MPI_STATUSES_IGNORE for an array that is too short */
    tx_comm_rank *who;
    void **window;
    int32_t windows;
    tx_comm_traffic traffic;
    tx_requests requests;
    tx_transfer *pending; /* by request number */
    int32_t pending_room;
} ranks;

extern const tx_comm_table tx_comm_mpi;

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

/* Who is where: hosts are known by their lowest ranks. */
static tx_status find_hosts(ranks *c, MPI_Comm local)
{
    tx_comm_rank mine = {.host = c->base.rank};
    int length = 0;
    char name[MPI_MAX_PROCESSOR_NAME + 1] = "";
    tx_status status = check(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");
    snprintf(mine.name, sizeof mine.name, "%.63s", name);
    if (!status)
        status = check(MPI_Bcast(&mine.host, 1, MPI_INT32_T, 0, local), "MPI_Bcast");
    if (!status)
        status =
            check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, c->who, sizeof mine, MPI_BYTE, c->mpi), "MPI_Allgather");
    for (int32_t r = 0, hosts = 0; r < c->base.size && !status; r++) /* from lowest ranks to numbers */
        c->who[r].host = c->who[r].host == r ? hosts++ : c->who[c->who[r].host].host;
    return status;
}

/* Counts the ranks of all hosts and of this one. */
static tx_status find_ranks(ranks *c)
{
    MPI_Comm local = MPI_COMM_NULL;
    tx_status status = check(MPI_Comm_rank(c->mpi, &c->base.rank), "MPI_Comm_rank");
    if (!status)
        status = check(MPI_Comm_size(c->mpi, &c->base.size), "MPI_Comm_size");
    if (!status)
        status = check(MPI_Comm_split_type(c->mpi, MPI_COMM_TYPE_SHARED, c->base.rank, MPI_INFO_NULL, &local),
                       "MPI_Comm_split_type");
    if (status)
        return status;
    c->who = calloc((size_t)c->base.size, sizeof *c->who);
    c->base.ranks = c->who;
    status = c->who ? check(MPI_Comm_rank(local, &c->base.local_rank), "MPI_Comm_rank")
                    : tx_fail(TX_MEMORY, "no memory for the list of ranks");
    if (!status)
        status = check(MPI_Comm_size(local, &c->base.local_size), "MPI_Comm_size");
    if (!status)
        status = find_hosts(c, local);
    MPI_Comm_free(&local);
    return status;
}

static tx_status make_buffers(ranks *c)
{
    size_t count = (size_t)c->base.size;
    if (c->base.size > INT32_MAX / (2 * CHUNK_A_RANK))
        return tx_fail(TX_UNSUPPORTED, "%" PRId32 " ranks are too many", c->base.size);
    c->chunk = c->base.size > CHUNK / CHUNK_A_RANK ? c->base.size * CHUNK_A_RANK : CHUNK;
    /* The longest slice is rounded up, so slots may hold one element a rank more than a chunk. */
    c->slots = malloc(((size_t)c->chunk + count) * sizeof(float));
    c->slot = calloc(count, sizeof *c->slot);
    c->peers = calloc(count, sizeof *c->peers);
    c->moving = calloc(2 * count, sizeof *c->moving);
    c->moved = calloc(2 * count, sizeof *c->moved);
    if (!c->slots || !c->slot || !c->peers || !c->moving || !c->moved)
        return tx_fail(TX_MEMORY, "no memory for the communicator's buffers");
    return TX_OK;
}

static void mpi_close(tx_comm *comm)
{
    ranks *c = (ranks *)comm;
    if (!c)
        return;
    if (c->mpi != MPI_COMM_NULL)
        MPI_Comm_free(&c->mpi);
    if (c->started)
        MPI_Finalize();
    for (int32_t i = 0; i < c->windows; i++)
        free(c->window[i]);
    free(c->window);
    free(c->who);
    free(c->slots);
    free(c->slot);
    free(c->peers);
    free(c->moving);
    free(c->moved);
    free(c->pending);
    free(c);
}

static tx_status mpi_open(int *argc, char ***argv, tx_comm **comm)
{
    ranks *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    made->base.table = &tx_comm_mpi;
    made->mpi = MPI_COMM_NULL;
    tx_status status = start(argc, argv, &made->started);
    if (!status)
        status = check(MPI_Comm_dup(MPI_COMM_WORLD, &made->mpi), "MPI_Comm_dup");
    if (!status)
        status = check(MPI_Comm_set_errhandler(made->mpi, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    if (!status)
        status = find_ranks(made);
    if (!status)
        status =
            tx_launcher_check(made->base.size, "this build of TX uses " MPI_FAMILY ", start it with " TX_MPI_LAUNCHER);
    if (!status)
        status = make_buffers(made);
    if (status) {
        mpi_close(&made->base);
        return status;
    }
    *comm = &made->base;
    return TX_OK;
}

static tx_status mpi_window(tx_comm *comm, int64_t bytes, void **memory)
{
    ranks *c = (ranks *)comm;
    void **grown = realloc(c->window, (size_t)(c->windows + 1) * sizeof *grown);
    if (grown)
        c->window = grown;
    void *made = NULL;
    if (!grown || bytes <= 0 || posix_memalign(&made, (size_t)sysconf(_SC_PAGESIZE), (size_t)bytes) != 0)
        return tx_fail(TX_MEMORY, "no memory for a window of %" PRId64 " bytes", bytes);
    memset(made, 0, (size_t)bytes);
    c->window[c->windows++] = *memory = made;
    return TX_OK;
}

/* ---- Moving -------------------------------------------------------------------------------------- */

static MPI_Datatype type_of(tx_dtype dtype)
{
    return dtype == TX_F32 ? MPI_FLOAT : dtype == TX_I32 ? MPI_INT32_T : MPI_UINT16_T;
}

/* Waits for `count` of comm->moving. */
static tx_status finish(ranks *c, int32_t count)
{
    int done = 0;
    for (int32_t tries = 0;; tries += tries < SPINS) {
        tx_status status = check(MPI_Testall(count, c->moving, &done, c->moved), "MPI_Testall");
        if (status || done)
            return status;
        if (tries >= SPINS)
            sched_yield();
    }
}

/* Gives and gets what c->peers says. The peers are taken from this rank's neighbour on, so that no rank is sent to
 * by all at once. */
static tx_status exchange(ranks *c, tx_dtype dtype)
{
    const peer *self = &c->peers[c->base.rank];
    if (self->receive != self->send && self->send_count > 0)
        memcpy(self->receive, self->send, (size_t)self->send_count * tx_dtype_size(dtype));
    MPI_Datatype type = type_of(dtype);
    tx_status status = TX_OK;
    int32_t moving = 0;
    for (int32_t i = 1; i < c->base.size && !status; i++) {
        int32_t from = (c->base.rank - i + c->base.size) % c->base.size;
        const peer *p = &c->peers[from];
        if (p->receive_count > 0)
            status = check(MPI_Irecv(p->receive, p->receive_count, type, from, 0, c->mpi, &c->moving[moving++]),
                           "MPI_Irecv");
    }
    for (int32_t i = 1; i < c->base.size && !status; i++) {
        int32_t to = (c->base.rank + i) % c->base.size;
        const peer *p = &c->peers[to];
        if (p->send_count > 0)
            status = check(MPI_Isend(p->send, p->send_count, type, to, 0, c->mpi, &c->moving[moving++]), "MPI_Isend");
    }
    return status ? status : finish(c, moving);
}

/* ---- Collectives ------------------------------------------------------------------------------------- */

static int32_t least(int64_t a, int64_t b)
{
    return (int32_t)(a < b ? a : b);
}

/* Shard r of a transfer, from its element `at` on. */
static peer shard_of(const ranks *c, const tx_transfer *t, int32_t r, int64_t at, int32_t most)
{
    int64_t first = tx_comm_shard(t->count, c->base.size, r) + at;
    int64_t end = r + 1 < c->base.size ? tx_comm_shard(t->count, c->base.size, r + 1) : t->count;
    char *data = (char *)t->data + (size_t)first * tx_dtype_size(t->dtype);
    int32_t count = first < end ? least(end - first, most) : 0;
    return (peer){.send = data, .receive = data, .send_count = count, .receive_count = count};
}

static int64_t longest_shard(const ranks *c, int64_t count)
{
    int64_t longest = 0;
    for (int32_t r = 0; r < c->base.size; r++) {
        int64_t first = tx_comm_shard(count, c->base.size, r);
        int64_t end = r + 1 < c->base.size ? tx_comm_shard(count, c->base.size, r + 1) : count;
        longest = end - first > longest ? end - first : longest;
    }
    return longest;
}

static tx_status scatter_piece(ranks *c, const tx_transfer *t, int64_t at, int32_t piece)
{
    peer own = shard_of(c, t, c->base.rank, at, piece);
    for (int32_t r = 0; r < c->base.size; r++) {
        c->peers[r] = shard_of(c, t, r, at, piece);
        c->slot[r] = c->peers[r].receive = c->slots + (size_t)r * (size_t)own.send_count * tx_dtype_size(t->dtype);
        c->peers[r].receive_count = own.send_count;
    }
    tx_status status = exchange(c, t->dtype);
    if (!status)
        tx_comm_sum(c->slot, c->base.size, own.receive, own.send_count, t->dtype);
    return status;
}

static tx_status gather_piece(ranks *c, const tx_transfer *t, int64_t at, int32_t piece)
{
    peer own = shard_of(c, t, c->base.rank, at, piece);
    for (int32_t r = 0; r < c->base.size; r++) {
        c->peers[r] = shard_of(c, t, r, at, piece);
        c->peers[r].send = own.send;
        c->peers[r].send_count = own.send_count;
    }
    return exchange(c, t->dtype);
}

static tx_status by_pieces(ranks *c, const tx_transfer *t)
{
    int64_t longest = longest_shard(c, t->count);
    int32_t piece = c->chunk / c->base.size;
    tx_status status = TX_OK;
    for (int64_t at = 0; at < longest && !status; at += piece) {
        if (t->kind != TX_ALL_GATHER)
            status = scatter_piece(c, t, at, piece);
        if (!status && t->kind != TX_REDUCE_SCATTER)
            status = gather_piece(c, t, at, piece);
    }
    return status;
}

static tx_status broadcast(ranks *c, const tx_transfer *t)
{
    tx_status status = TX_OK;
    for (int64_t at = 0; at < t->count && !status; at += c->chunk) {
        char *chunk = (char *)t->data + (size_t)at * tx_dtype_size(t->dtype);
        status = check(MPI_Ibcast(chunk, least(t->count - at, c->chunk), type_of(t->dtype), t->root, c->mpi, c->moving),
                       "MPI_Ibcast");
        if (!status)
            status = finish(c, 1);
    }
    return status;
}

static tx_status barrier(ranks *c)
{
    tx_status status = check(MPI_Ibarrier(c->mpi, c->moving), "MPI_Ibarrier");
    return status ? status : finish(c, 1);
}

/* Keeps the request; the sum is made by the wait. */
static tx_status mpi_begin(tx_comm *comm, const tx_transfer *transfer, int32_t *request)
{
    ranks *c = (ranks *)comm;
    tx_status status = tx_comm_check(comm, transfer);
    if (status)
        return status;
    if (c->requests.begun == c->pending_room) {
        int32_t room = c->pending_room ? 2 * c->pending_room : 64;
        tx_transfer *grown = realloc(c->pending, (size_t)room * sizeof *grown);
        if (!grown)
            return tx_fail(TX_MEMORY, "no memory for %" PRId32 " requests", room);
        c->pending = grown;
        c->pending_room = room;
    }
    *request = tx_requests_begin(&c->requests);
    c->pending[*request] = *transfer;
    return TX_OK;
}

static tx_status mpi_wait(tx_comm *comm, int32_t request)
{
    ranks *c = (ranks *)comm;
    tx_status status = tx_requests_end(&c->requests, request);
    if (status)
        return status;
    const tx_transfer *t = &c->pending[request];
    return t->kind == TX_BROADCAST ? broadcast(c, t) : t->kind == TX_BARRIER ? barrier(c) : by_pieces(c, t);
}

static tx_status mpi_background(tx_comm *comm, bool on)
{
    (void)comm;
    (void)on;
    return TX_OK;
}

/* ---- From rank to rank ------------------------------------------------------------------------------- */

enum { PAIR_TAG = 1 }; /* collectives use 0 */

static tx_status mpi_send(tx_comm *comm, const void *data, int64_t count, tx_dtype dtype, int32_t to)
{
    ranks *c = (ranks *)comm;
    tx_status status = tx_comm_check_pair(comm, "send", data, count, dtype, to);
    for (int64_t at = 0; at < count && !status; at += c->chunk) {
        const char *chunk = (const char *)data + (size_t)at * tx_dtype_size(dtype);
        status = check(MPI_Isend(chunk, least(count - at, c->chunk), type_of(dtype), to, PAIR_TAG, c->mpi, c->moving),
                       "MPI_Isend");
        if (!status)
            status = finish(c, 1);
    }
    return status;
}

static tx_status mpi_receive(tx_comm *comm, void *data, int64_t count, tx_dtype dtype, int32_t from)
{
    ranks *c = (ranks *)comm;
    tx_status status = tx_comm_check_pair(comm, "receive", data, count, dtype, from);
    for (int64_t at = 0; at < count && !status; at += c->chunk) {
        char *chunk = (char *)data + (size_t)at * tx_dtype_size(dtype);
        status = check(MPI_Irecv(chunk, least(count - at, c->chunk), type_of(dtype), from, PAIR_TAG, c->mpi, c->moving),
                       "MPI_Irecv");
        if (!status)
            status = finish(c, 1);
    }
    return status;
}

static void mpi_traffic(const tx_comm *comm, tx_comm_traffic *traffic)
{
    *traffic = ((const ranks *)comm)->traffic;
}

static void mpi_mark(tx_comm *comm, int64_t step)
{
    (void)comm;
    (void)step;
}

static bool mpi_laggard(tx_comm *comm, tx_comm_laggard *laggard)
{
    (void)comm;
    (void)laggard;
    return false;
}

const tx_comm_table tx_comm_mpi = {
    .version = TX_COMM_VERSION,
    .name = "mpi",
    .open = mpi_open,
    .close = mpi_close,
    .window = mpi_window,
    .begin = mpi_begin,
    .wait = mpi_wait,
    .background = mpi_background,
    .send = mpi_send,
    .receive = mpi_receive,
    .traffic = mpi_traffic,
    .mark = mpi_mark,
    .laggard = mpi_laggard,
};
