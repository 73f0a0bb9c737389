/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of CPUs, and binding of the calling thread. */
#ifndef TX_COMM_TOPOLOGY_PLACEMENT_H
#define TX_COMM_TOPOLOGY_PLACEMENT_H

#include "comm/topology/tx_topology.h"

/* Returns true if two sets have a common number. */
bool tx_topo_sets_meet(const char *a, const char *b);
/* Returns the set of ascending numbers as text, "0-7,9". The caller frees it; NULL if out of memory. */
char *tx_topo_set_text(const int32_t *numbers, int32_t count);

/* Returns the hardware threads that the calling thread may run on, as a set. The caller frees it. */
tx_status tx_placement_cpus(char **cpus);
/* Removes all hardware threads from the topology that are not in the set. Ranks are then placed only on the others.
 * Returns UNSUPPORTED and changes nothing if none would remain. */
tx_status tx_placement_confine(tx_topology *topology, const char *cpus);
/* Binds the calling thread, and the threads that it creates later, to the CPUs of a place. */
tx_status tx_placement_take(const tx_topo_place *place);

/* Takes the device of rank `rank` of the `ranks` ranks of a host from a list with one name for each, or one for all. */
tx_status tx_placement_device(const char *list, int32_t rank, int32_t ranks, size_t size, char *device);

/* ---- Two steps of placement (choose.c) ------------------------------------------------------- */

/* Chooses `count` of the topology's GPUs (at most all) and writes them in ascending order. The choice first
 * maximizes the closeness of its most distant pair. It then minimizes the number of GPUs without a core, and
 * finally maximizes the total closeness. cores[i] is the number of cores near GPU i. GPUs with equal group[i] are
 * near the same cores. */
tx_status tx_topo_choose_gpus(const tx_topology *topology, const int32_t *group, const int32_t *cores, int32_t count,
                              int32_t *chosen);

/* Assigns cores to ranks as evenly as the groups allow. The group of rank r is group[r]. If allowed[g * cores + c] is
 * true, the ranks of group g may use core c; each group has at least one core. Writes to owner[c] the rank of core c,
 * or -1. For a rank without a core of its own, writes to borrowed[r] the core that it shares with others, otherwise -1.
 */
tx_status tx_topo_share_cores(const int32_t *group, int32_t ranks, const bool *allowed, int32_t cores, int32_t *owner,
                              int32_t *borrowed);

#endif
