/* SPDX-License-Identifier: Apache-2.0
 * The only file that names the communicators. */
#include "comm/common.h"

#ifdef TX_MPI
extern const tx_comm_table tx_comm_mpi;
#endif

/* MPI is started for many ranks only: one rank needs none of it, under a launcher or not. */
const tx_comm_table *tx_comm_default(void)
{
#ifdef TX_MPI
    if (tx_launcher_ranks(NULL) > 1)
        return &tx_comm_mpi;
#endif
    return tx_comm_self();
}
