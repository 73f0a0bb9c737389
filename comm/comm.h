/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract between the engine and a communicator: the ranks that train together. `self` is one rank
 * and does all of it for real; `mpi` is many. The engine and the trainer see this table only.
 *
 * Every rank calls the same functions in the same order, but for send and receive. Sums are in rank order whatever the timing, so a run
 * repeated with the same ranks gives the same bits.
 */
#ifndef TX_COMM_H
#define TX_COMM_H

#include "tx.h"

#define TX_COMM_VERSION 1

typedef struct tx_comm tx_comm;

typedef struct tx_comm_table {
    uint32_t version; /* TX_COMM_VERSION */
    const char *name; /* "self", "mpi" */

    /* Joins the ranks. Fails when the launcher started more ranks than this communicator sees, naming
     * the launcher to use. */
    tx_status (*open)(int *argc, char ***argv, tx_comm **comm);
    void (*close)(tx_comm *comm);

    int32_t (*rank)(const tx_comm *comm);
    int32_t (*size)(const tx_comm *comm);
    int32_t (*local_rank)(const tx_comm *comm); /* among the ranks of this host */
    int32_t (*local_size)(const tx_comm *comm);

    /* Blocking, on host memory; counts are elements and may pass 2^31. dtype F32, BF16 (summed in fp32) or I32. */
    tx_status (*all_reduce)(tx_comm *comm, void *data, int64_t count, tx_dtype dtype);
    /* Rank r keeps elements [r * count, (r+1) * count) of the sum in `out`; `data` holds size * count. */
    tx_status (*reduce_scatter)(tx_comm *comm, const void *data, void *out, int64_t count, tx_dtype dtype);
    tx_status (*all_gather)(tx_comm *comm, const void *data, void *out, int64_t count, tx_dtype dtype);
    tx_status (*broadcast)(tx_comm *comm, void *data, int64_t count, tx_dtype dtype, int32_t root);
    tx_status (*barrier)(tx_comm *comm);
    /* all_reduce that is started and waited for; requests are waited for in the order they began. */
    tx_status (*begin)(tx_comm *comm, void *data, int64_t count, tx_dtype dtype, int32_t *request);
    tx_status (*wait)(tx_comm *comm, int32_t request);
    /* From one rank to another, which call them as a pair; other ranks need not. Blocking; what one rank sends another
     * arrives in order. No rank sends to itself. */
    tx_status (*send)(tx_comm *comm, const void *data, int64_t count, tx_dtype dtype, int32_t to);
    tx_status (*receive)(tx_comm *comm, void *data, int64_t count, tx_dtype dtype, int32_t from);
} tx_comm_table;

/* The communicator of this process: mpi where it was built in and a launcher says that it started several ranks, else
 * self. */
const tx_comm_table *tx_comm_default(void);
const tx_comm_table *tx_comm_self(void);

#endif
