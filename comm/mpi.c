/* SPDX-License-Identifier: Apache-2.0
 * Message transport by MPI. Only this file includes mpi.h.
 *
 * MPI moves bytes, and TX computes the sums itself. MPI_Allreduce selects an algorithm, and with it the order of a
 * sum, by size, type and number of ranks; the bits of fp32 gradients would change with it. This file also never
 * waits in MPI, because waiting calls of MPICH spin without yielding the core. */
#include "api/base/arithmetic.h"
#include "api/base/environment.h"
#include "comm/comm.h"
#include "comm/transport.h"

#include <inttypes.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PIECE = 1 << 30, /* bytes or elements in one MPI call, because MPI counts have 31 bits */
    /* Bytes of a piece to another host. Libraries send messages of this size eagerly. Before a longer message they
     * use a rendezvous with the receiver. Over TCP the rendezvous waits until all data in flight have arrived. (At 1
     * Gbit/s: 0.94 of the line rate, against 0.69 with pieces of 64 KiB.) */
    SEGMENT = 1 << 14,
};

#if defined(OPEN_MPI)
#define MPI_FAMILY "Open MPI"
#elif defined(MPICH_VERSION)
#define MPI_FAMILY "MPICH"
#else
#define MPI_FAMILY "another MPI"
#endif

typedef struct transport {
    tx_transport base;
    MPI_Comm mpi;
    bool started;               /* this file called MPI_Init and must call MPI_Finalize */
    pthread_mutex_t own, *turn; /* MPI allows one thread at a time. Parts of a transport share its mutex */
    bool synchronous;           /* sends complete when the receiver has begun (TX_COMM_SYNCHRONOUS) */
    bool hosts;                 /* there is more than one host */
    int32_t *lowest;            /* by rank: the lowest rank of its host */
    MPI_Request *request;       /* `each` requests per slot */
    int32_t each;
    int32_t *other; /* by slot: the other rank */
} transport;

/* Returns from the function if an MPI call fails. */
#define MPI_CHECK(call) TX_TRY(check((call), #call))

static tx_status check(int code, const char *call)
{
    if (code == MPI_SUCCESS)
        return TX_OK;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, text, &length);
    const tx_status status = tx_fail(TX_IO, "%.*s failed: %s", (int)strcspn(call, "("), call, text);
    tx_comm_abandon(tx_error()); /* the library notices a lost rank first, e.g. by a closed connection */
    return status;
}

/* MPI libraries read the machine with hwloc, whose plugin lists OpenCL devices in this process. A driver that aborts
 * would end the rank, so the plugin is off until TX lists them, in a child process first. */
static int initialize(int *argc, char ***argv, int *level)
{
    static const char components[] = "HWLOC_COMPONENTS";
    const bool chosen = getenv(components) != NULL;
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
    if (!chosen)
        setenv(components, "-opencl,-gl", 1);
    const int code = MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, level);
    if (!chosen)
        unsetenv(components);
    return code;
}

static tx_status start(int *argc, char ***argv, bool *started)
{
    int before = 0, after = 0, level = MPI_THREAD_SINGLE;
    MPI_CHECK(MPI_Initialized(&before));
    MPI_CHECK(MPI_Finalized(&after));
    if (after)
        return tx_fail(TX_UNSUPPORTED, "MPI has ended in this process and cannot start again; open one communicator "
                                       "and keep it open");
    if (before)
        MPI_CHECK(MPI_Query_thread(&level));
    else
        TX_TRY(check(initialize(argc, argv, &level), "MPI_Init_thread"));
    *started = !before;
    if (level < MPI_THREAD_SERIALIZED)
        return tx_fail(TX_UNSUPPORTED, "MPI was started without thread support; start it with "
                                       "MPI_Init_thread and MPI_THREAD_SERIALIZED");
    return TX_OK;
}

/* Over TCP, UCX (1.12 and later, under MPICH) requests a last reply from the other end when it closes. MPI_Finalize
 * hangs if that end has already replied within an earlier call and now waits for the launcher. No rank therefore
 * calls MPI_Finalize before all ranks have left MPI. A barrier and a delay for the slowest rank ensure this. */
static void end_together(const transport *t)
{
    MPI_Barrier(t->mpi);
    if (t->hosts)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

void tx_transport_close(tx_transport *base)
{
    transport *t = (transport *)base;
    if (!t)
        return;
    if (t->mpi != MPI_COMM_NULL) {
        if (t->turn == &t->own)
            end_together(t);
        MPI_Comm_free(&t->mpi);
    }
    if (t->started)
        MPI_Finalize();
    pthread_mutex_destroy(&t->own);
    free(t->request);
    free(t->lowest);
    free(t->other);
    free(t);
}

static tx_status find_self(transport *t)
{
    MPI_CHECK(MPI_Comm_set_errhandler(t->mpi, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_rank(t->mpi, &t->base.rank));
    MPI_CHECK(MPI_Comm_size(t->mpi, &t->base.size));
    return TX_OK;
}

static tx_status join(transport *t, int *argc, char ***argv)
{
    TX_TRY(start(argc, argv, &t->started));
    if (t->started) /* errors without a communicator use the handler of this one */
        MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &t->mpi));
    return find_self(t);
}

static tx_status split(const transport *parent, int32_t colour, int32_t key, transport *t)
{
    MPI_CHECK(MPI_Comm_split(parent->mpi, colour, key, &t->mpi));
    return find_self(t);
}

/* `turn` NULL selects a mutex of its own. */
static tx_status make(pthread_mutex_t *turn, transport **created)
{
    int32_t synchronous;
    TX_TRY(tx_environment_count("TX_COMM_SYNCHRONOUS", 0, 0, "1 to make sends wait for their receivers, or 0",
                                &synchronous));
    transport *t = calloc(1, sizeof *t);
    if (!t)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    t->synchronous = synchronous > 0;
    t->mpi = MPI_COMM_NULL;
    pthread_mutex_init(&t->own, NULL);
    t->turn = turn ? turn : &t->own;
    *created = t;
    return TX_OK;
}

tx_status tx_transport_open(int *argc, char ***argv, tx_transport **result, const char **advice)
{
    transport *t = NULL;
    TX_TRY(make(NULL, &t));
    tx_status status = join(t, argc, argv);
    if (status) {
        tx_transport_close(&t->base);
        return status;
    }
    *advice = "this build of TX uses " MPI_FAMILY ", start it with " TX_MPI_LAUNCHER;
    *result = &t->base;
    return TX_OK;
}

tx_status tx_transport_split(tx_transport *parent, int32_t colour, int32_t key, tx_transport **result)
{
    transport *t = NULL;
    TX_TRY(make(((transport *)parent)->turn, &t));
    tx_status status = split((transport *)parent, colour, key, t);
    if (status)
        tx_transport_close(&t->base);
    else
        *result = &t->base;
    return status;
}

tx_status tx_transport_gather(tx_transport *base, const void *own, void *all, size_t bytes)
{
    MPI_CHECK(MPI_Allgather(own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, ((transport *)base)->mpi));
    return TX_OK;
}

/* Returns the lowest rank of this host, and the number of ranks on it. */
static tx_status count_local(MPI_Comm local, int32_t *lowest, int *ranks)
{
    MPI_CHECK(MPI_Bcast(lowest, 1, MPI_INT32_T, 0, local));
    MPI_CHECK(MPI_Comm_size(local, ranks));
    return TX_OK;
}

tx_status tx_transport_host(tx_transport *base, char *name, size_t size, int32_t *lowest)
{
    transport *t = (transport *)base;
    MPI_Comm local = MPI_COMM_NULL;
    int length = 0, ranks = 0;
    char text[MPI_MAX_PROCESSOR_NAME + 1] = "";
    int32_t first = base->rank;
    free(t->lowest);
    t->lowest = malloc((size_t)base->size * sizeof *t->lowest);
    if (!t->lowest)
        return tx_fail(TX_MEMORY, "no memory for the list of ranks");
    MPI_CHECK(MPI_Comm_split_type(t->mpi, MPI_COMM_TYPE_SHARED, base->rank, MPI_INFO_NULL, &local));
    tx_status status = count_local(local, &first, &ranks);
    MPI_Comm_free(&local);
    TX_TRY(status);
    MPI_CHECK(MPI_Get_processor_name(text, &length));
    TX_TRY(tx_transport_gather(base, &first, t->lowest, sizeof first));
    t->hosts = ranks < base->size;
    snprintf(name, size, "%s", text);
    *lowest = first;
    return TX_OK;
}

/* ---- Messages -------------------------------------------------------------------------------- */

tx_status tx_transport_slots(tx_transport *base, int32_t slots, int64_t bytes)
{
    transport *t = (transport *)base;
    const int64_t each = tx_ceil_div(bytes, SEGMENT), count = slots * each;
    if (bytes > PIECE || count > INT32_MAX)
        return tx_fail(TX_UNSUPPORTED, "%" PRId32 " messages of %" PRId64 " bytes exceed the limits of MPI", slots,
                       bytes);
    MPI_Request *request = malloc((size_t)count * sizeof *request);
    int32_t *other = calloc((size_t)slots, sizeof *other);
    if (!request || !other) {
        free(request);
        free(other);
        return tx_fail(TX_MEMORY, "no memory for %" PRId32 " messages", slots);
    }
    for (int64_t i = 0; i < count; i++)
        request[i] = MPI_REQUEST_NULL;
    free(t->request);
    free(t->other);
    t->request = request;
    t->other = other;
    t->each = (int32_t)each;
    return TX_OK;
}

/* Starts a piece of a message. */
static tx_status start_piece(transport *t, bool out, char *data, int length, int32_t other, int32_t tag,
                             MPI_Request *request)
{
    pthread_mutex_lock(t->turn);
    const int code = !out             ? MPI_Irecv(data, length, MPI_BYTE, other, tag, t->mpi, request)
                     : t->synchronous ? MPI_Issend(data, length, MPI_BYTE, other, tag, t->mpi, request)
                                      : MPI_Isend(data, length, MPI_BYTE, other, tag, t->mpi, request);
    pthread_mutex_unlock(t->turn);
    return check(code, out ? "MPI_Isend" : "MPI_Irecv");
}

/* Starts a message piece by piece, in the requests of a slot. */
static tx_status move(transport *t, bool out, char *data, int64_t bytes, int32_t other, int32_t tag, int32_t slot)
{
    const int64_t piece = t->lowest[other] == t->lowest[t->base.rank] ? PIECE : SEGMENT;
    MPI_Request *request = t->request + (int64_t)slot * t->each;
    t->other[slot] = other;
    int64_t at = 0;
    do {
        int length = (int)(bytes - at < piece ? bytes - at : piece);
        TX_TRY(start_piece(t, out, data + at, length, other, tag, request++));
        at += piece;
    } while (at < bytes);
    return TX_OK;
}

tx_status tx_transport_send(tx_transport *base, const void *data, int64_t bytes, int32_t to, int32_t tag, int32_t slot)
{
    return move((transport *)base, true, (char *)(uintptr_t)data, bytes, to, tag, slot); /* send only reads the data */
}

tx_status tx_transport_receive(tx_transport *base, void *data, int64_t bytes, int32_t from, int32_t tag, int32_t slot)
{
    return move((transport *)base, false, data, bytes, from, tag, slot);
}

static tx_status test(transport *t, MPI_Request *request, int *over)
{
    MPI_Status result;
    pthread_mutex_lock(t->turn);
    const int code = MPI_Test(request, over, &result);
    pthread_mutex_unlock(t->turn);
    return check(code, "MPI_Test");
}

/* Stops at the first incomplete request; testing it makes progress on the others as well. */
tx_status tx_transport_test(tx_transport *base, int32_t first, int32_t count, int32_t *missing)
{
    transport *t = (transport *)base;
    for (int32_t slot = first; slot < first + count; slot++)
        for (int32_t i = 0; i < t->each; i++) {
            MPI_Request *request = t->request + (int64_t)slot * t->each + i;
            int over = 1;
            *missing = t->other[slot];
            if (*request != MPI_REQUEST_NULL)
                TX_TRY(test(t, request, &over));
            if (!over)
                return TX_OK;
        }
    *missing = -1;
    return TX_OK;
}

tx_status tx_transport_all_reduce(tx_transport *base, const float *data, float *sum, int64_t count)
{
    for (int64_t at = 0; at < count; at += PIECE) {
        int length = count - at < PIECE ? (int)(count - at) : PIECE;
        MPI_CHECK(MPI_Allreduce(data + at, sum + at, length, MPI_FLOAT, MPI_SUM, ((transport *)base)->mpi));
    }
    return TX_OK;
}
