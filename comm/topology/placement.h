/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of CPUs, and the calling thread moved to a place. */
#ifndef TX_COMM_TOPOLOGY_PLACEMENT_H
#define TX_COMM_TOPOLOGY_PLACEMENT_H

#include "comm/topology/tx_topology.h"

/* Whether two sets have a number in common. */
bool tx_topo_sets_meet(const char *a, const char *b);
/* The set of ascending numbers, "0-7,9". Allocated; NULL when out of memory. */
char *tx_topo_set_text(const int32_t *numbers, int32_t count);

/* The hardware threads that the calling thread may run on, a set; the caller frees it. */
tx_status tx_placement_cpus(char **cpus);
/* Leaves the topology only those of its hardware threads that are in the set: ranks are then placed there. UNSUPPORTED,
 * and all stay, where none is. */
tx_status tx_placement_confine(tx_topology *topology, const char *cpus);
/* Moves the calling thread, and with it those that it starts, to the CPUs of a place. */
tx_status tx_placement_take(const tx_topo_place *place);

#endif
