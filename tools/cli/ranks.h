/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of several ranks, which divide a model. All ranks have the same command line, and only rank 0 prints. */
#ifndef TX_TOOLS_RANKS_H
#define TX_TOOLS_RANKS_H

#include "tools/cli/program.h"
#include "tx_parallel.h"

/* The ranks that a launcher started; 1 without one. A batch job of Slurm has SLURM_NTASKS outside of a step, too. */
int32_t tx_ranks_started(void);
/* Silences this process if it is not rank 0. */
void tx_ranks_hush(void);
/* Restores standard error. Call it before the process may execute itself again (tx_wait_passively), which then is
 * silenced anew. */
void tx_ranks_speak(void);
/* Joins the ranks, if there are several. */
tx_status tx_ranks_join(tx_comm **ranks);
/* Leaves them and returns the exit status. Other ranks than 0 report a failure late: rank 0 often fails likewise, and
 * the launcher then ends them. */
int tx_ranks_leave(const tx_cli *program, tx_status status, tx_comm *ranks);

#endif
