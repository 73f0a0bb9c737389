/* SPDX-License-Identifier: Apache-2.0
 * A communicator of simulated ranks, for planning. */
#include "models/split/pretend.h"

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* All ranks contribute the same record as this one (tx_comm_share). */
static tx_status begin(tx_comm *comm, const tx_transfer *transfer, int32_t *request)
{
    const int64_t words = transfer->count / comm->size;
    *request = 0;
    if (transfer->kind != TX_ALL_REDUCE || transfer->dtype != TX_I32 || words * comm->size != transfer->count)
        return tx_fail(TX_UNSUPPORTED, "simulated ranks support only planning");
    int32_t *all = transfer->data;
    for (int32_t r = 1; r < comm->size; r++)
        memcpy(all + r * words, all, (size_t)words * sizeof *all);
    return TX_OK;
}

static tx_status wait(tx_comm *comm, int32_t request)
{
    (void)comm;
    (void)request;
    return TX_OK;
}

static const tx_comm_table table = {.name = "pretend", .begin = begin, .wait = wait};

tx_status tx_fake_comm_open(int32_t size, int32_t host, tx_comm **comm)
{
    tx_comm *created = calloc(1, sizeof *created);
    tx_comm_rank *ranks = calloc((size_t)size, sizeof *ranks);
    if (!created || !ranks) {
        free(created);
        free(ranks);
        return tx_fail(TX_MEMORY, "no memory for %d ranks", (int)size);
    }
    for (int32_t r = 0; r < size; r++)
        ranks[r].host = r / host;
    *created = (tx_comm){.table = &table, .size = size, .local_size = size < host ? size : host, .ranks = ranks};
    *comm = created;
    return TX_OK;
}

void tx_fake_comm_close(tx_comm *comm)
{
    if (comm)
        free((void *)(uintptr_t)comm->ranks);
    free(comm);
}
