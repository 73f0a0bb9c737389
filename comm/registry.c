/* SPDX-License-Identifier: Apache-2.0
 * The list of communicators, and the public functions that open and close them. No other file names a communicator. */

#include "api/base/needs.h"
#include "comm/queue.h"

#include <inttypes.h>

#ifdef TX_MPI
extern const tx_comm_table tx_comm_mpi;
#endif

/* MPI is started only for several ranks; a single rank does not need it, with or without a launcher. */
const tx_comm_table *tx_comm_default(void)
{
#ifdef TX_MPI
    if (tx_launcher_ranks(NULL) > 1)
        return &tx_comm_mpi;
#endif
    return tx_comm_self();
}

tx_status tx_comm_open(int *argc, char ***argv, tx_comm **comm)
{
    TX_NEEDS(comm, TX_INVALID);
    return tx_comm_default()->open(argc, argv, comm);
}

void tx_comm_close(tx_comm *comm)
{
    if (comm)
        comm->table->close(comm);
}

tx_status tx_comm_sub(tx_comm *parent, int32_t colour, int32_t key, tx_comm **sub)
{
    TX_NEEDS(parent && sub, TX_INVALID);
    if (colour < 0)
        return tx_fail(TX_INVALID, "colour %" PRId32 " of a group of ranks is negative; use 0 or more", colour);
    TX_TRY(tx_queue_check_empty(parent, "sub"));
    return parent->table->sub(parent, colour, key, sub);
}

int32_t tx_comm_rank_of(const tx_comm *comm)
{
    TX_NEEDS(comm, 0);
    return comm->rank;
}

int32_t tx_comm_size_of(const tx_comm *comm)
{
    TX_NEEDS(comm, 0);
    return comm->size;
}
