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

#endif
