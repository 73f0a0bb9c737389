/* SPDX-License-Identifier: Apache-2.0
 *
 * Two steps of placement: choosing GPUs, and assigning cores to ranks. */
#ifndef TX_COMM_TOPOLOGY_CHOOSE_H
#define TX_COMM_TOPOLOGY_CHOOSE_H

#include "comm/topology/tx_topology.h"

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
