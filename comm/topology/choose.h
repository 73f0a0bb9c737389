/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a placement: which GPUs, and which core for which rank. */
#ifndef TX_COMM_TOPOLOGY_CHOOSE_H
#define TX_COMM_TOPOLOGY_CHOOSE_H

#include "comm/topology/tx_topology.h"

/* Chooses `count` of the topology's GPUs, at most all, that are near to each other, ascending: the two that are worst
 * tied as well as can be, then a core for each, then all of them as near as can be. cores[i] is the number of cores
 * near GPU i; GPUs of the same group[i] are near the same ones. */
tx_status tx_topo_choose_gpus(const tx_topology *topology, const int32_t *group, const int32_t *cores, int32_t count,
                              int32_t *chosen);

/* Shares cores out. group[r] is the group of rank r; allowed[g * cores + c] whether the ranks of group g may have core
 * c (one at least). Writes owner[c], the rank of a core or -1, as evenly as the groups allow; and for a rank without a
 * core borrowed[r], the core that it shares with others; -1 for the others. */
tx_status tx_topo_share_cores(const int32_t *group, int32_t ranks, const bool *allowed, int32_t cores, int32_t *owner,
                              int32_t *borrowed);

#endif
