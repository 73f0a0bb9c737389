/* SPDX-License-Identifier: Apache-2.0
 *
 * txtrain as one of many ranks: where it runs, what all must have in common, and which rows are its own. One rank goes
 * the same way. */
#ifndef TX_TOOLS_TRAIN_RANKS_H
#define TX_TOOLS_TRAIN_RANKS_H

#include "tools/train_job.h"

/* Joins the ranks. Ranks of a host that no launcher has bound share out its devices (--device auto) and its cores; all
 * but rank 0 print nothing on standard output from now on. */
tx_status tx_train_join(tx_train_job *job, int *argc, char ***argv);
/* Others wait here until rank 0 has come too: what it leaves behind, a cache or a lock, they find. */
tx_status tx_train_meet(tx_train_job *job);
/* Once the device is open: where ranks have different kinds, each weight is updated by one of them alone, since
 * devices differ in rounding; prints who is where. */
tx_status tx_train_compare_devices(tx_train_job *job);
/* Which rows of a step, and of a micro-batch, this rank does. */
tx_status tx_train_split(tx_train_job *job);
/* Prints how the work is shared out, where there is anybody to share with. */
void tx_train_print_shares(const tx_train_job *job);
/* INVALID, naming the difference, unless all ranks have the same version, configuration, data and options. */
tx_status tx_train_agree(tx_train_job *job, const tx_json *made);

#endif
