/* SPDX-License-Identifier: Apache-2.0
 * The communicator of one rank: the sum over the ranks is the rank's own data. */
#include "comm/common.h"

#include <stdlib.h>
#include <string.h>

struct tx_comm {
    tx_requests requests;
};

static tx_status self_open(int *argc, char ***argv, tx_comm **comm)
{
    (void)argc;
    (void)argv;
#ifdef TX_MPI
    const char *advice = "a program of one rank is started without a launcher";
#else
    const char *advice = "this build of TX has no MPI: start one process, or build with -DTX_MPI=ON";
#endif
    tx_status status = tx_launcher_check(1, advice);
    if (status)
        return status;
    tx_comm *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for a communicator");
    *comm = made;
    return TX_OK;
}

static void self_close(tx_comm *comm)
{
    free(comm);
}

static int32_t self_zero(const tx_comm *comm)
{
    (void)comm;
    return 0;
}

static int32_t self_one(const tx_comm *comm)
{
    (void)comm;
    return 1;
}

static tx_status self_all_reduce(tx_comm *comm, void *data, int64_t count, tx_dtype dtype)
{
    (void)comm;
    return tx_comm_check("all_reduce", data, count, 1, dtype);
}

static tx_status keep(const char *call, const void *data, void *out, int64_t count, tx_dtype dtype)
{
    tx_status status = tx_comm_check(call, data, count, 1, dtype);
    if (!status)
        status = tx_comm_check(call, out, count, 1, dtype);
    if (!status && count > 0)
        memmove(out, data, (size_t)count * tx_dtype_size(dtype));
    return status;
}

static tx_status self_reduce_scatter(tx_comm *comm, const void *data, void *out, int64_t count, tx_dtype dtype)
{
    (void)comm;
    return keep("reduce_scatter", data, out, count, dtype);
}

static tx_status self_all_gather(tx_comm *comm, const void *data, void *out, int64_t count, tx_dtype dtype)
{
    (void)comm;
    return keep("all_gather", data, out, count, dtype);
}

static tx_status self_broadcast(tx_comm *comm, void *data, int64_t count, tx_dtype dtype, int32_t root)
{
    (void)comm;
    if (root != 0)
        return tx_fail(TX_INVALID, "broadcast: there is no rank %d, the only rank is 0", (int)root);
    return tx_comm_check("broadcast", data, count, 1, dtype);
}

static tx_status self_barrier(tx_comm *comm)
{
    (void)comm;
    return TX_OK;
}

static tx_status self_begin(tx_comm *comm, void *data, int64_t count, tx_dtype dtype, int32_t *request)
{
    tx_status status = tx_comm_check("begin", data, count, 1, dtype);
    if (!status)
        *request = tx_requests_begin(&comm->requests);
    return status;
}

static tx_status self_wait(tx_comm *comm, int32_t request)
{
    return tx_requests_end(&comm->requests, request);
}

static tx_status no_other(const char *call, int32_t rank)
{
    return tx_fail(TX_INVALID, "%s: there is no rank %d beside this one", call, (int)rank);
}

static tx_status self_send(tx_comm *comm, const void *data, int64_t count, tx_dtype dtype, int32_t to)
{
    (void)comm;
    (void)data;
    (void)count;
    (void)dtype;
    return no_other("send", to);
}

static tx_status self_receive(tx_comm *comm, void *data, int64_t count, tx_dtype dtype, int32_t from)
{
    (void)comm;
    (void)data;
    (void)count;
    (void)dtype;
    return no_other("receive", from);
}

const tx_comm_table *tx_comm_self(void)
{
    static const tx_comm_table table = {
        .version = TX_COMM_VERSION,
        .name = "self",
        .open = self_open,
        .close = self_close,
        .rank = self_zero,
        .size = self_one,
        .local_rank = self_zero,
        .local_size = self_one,
        .all_reduce = self_all_reduce,
        .reduce_scatter = self_reduce_scatter,
        .all_gather = self_all_gather,
        .broadcast = self_broadcast,
        .barrier = self_barrier,
        .begin = self_begin,
        .wait = self_wait,
        .send = self_send,
        .receive = self_receive,
    };
    return &table;
}
