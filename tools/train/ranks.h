/* SPDX-License-Identifier: Apache-2.0
 *
 * txtrain as one of many ranks: where it runs, what all must have in common, and which rows are its own. One rank goes
 * the same way. */
#ifndef TX_TOOLS_TRAIN_RANKS_H
#define TX_TOOLS_TRAIN_RANKS_H

#include "tools/train/job.h"

/* Starts the watch and joins the ranks; all but rank 0 print nothing on standard output from now on. */
tx_status tx_train_join(tx_train_job *job, int *argc, char ***argv);
/* Ranks of a host that no launcher has bound share out its devices (--device auto) and its cores. */
tx_status tx_train_take_place(tx_train_job *job);
/* Threads as asked for, else as many as the rank has cores and its share of the time that the ranks' container has. */
int32_t tx_train_threads(const tx_train_job *job);
/* Others wait here until rank 0 has come too: what it leaves behind, a cache or a lock, they find. */
tx_status tx_train_meet(tx_train_job *job);
/* Once the device is open: where ranks have different kinds, each weight is updated by one of them alone, since
 * devices differ in rounding; prints who is where. */
tx_status tx_train_compare_devices(tx_train_job *job);
/* Which rows of a step, and of a micro-batch, this rank does. */
tx_status tx_train_split(tx_train_job *job);
/* Prints how the work is shared out, where there is anybody to share with. */
void tx_train_print_shares(const tx_train_job *job);
/* What all ranks must have in common (train_agree.c): INVALID, naming ranks and values, where they differ.
 * `ending`: with which status this rank ends for what its options say (a mistake, --help), TX_GO_ON where it does not.
 */
tx_status tx_train_agree_on_options(tx_train_job *job, int ending);
/* Checkpoint, configuration, tokenizer, data. */
tx_status tx_train_agree_on_inputs(tx_train_job *job);
/* What the run is made of (tx_train_describe), but for devices. */
tx_status tx_train_agree_on_run(tx_train_job *job, const tx_json *made);

#endif
