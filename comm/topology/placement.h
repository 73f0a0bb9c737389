/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the ranks of one host go: a device for each, and the cores, memory and NIC that are near it. */
#ifndef TX_COMM_TOPOLOGY_PLACEMENT_H
#define TX_COMM_TOPOLOGY_PLACEMENT_H

#include "comm/topology/topology.h"

#define TX_TOPO_RANKS_MAX 4096

typedef struct tx_topo_place {
    int32_t device; /* a GPU of the topology; -1: the rank computes on its cores */
    char *cpus;     /* the rank's hardware threads, a set: all that may be used of each of its cores */
    int32_t cores;
    char *nodes; /* the NUMA nodes of its memory, a set; "" unknown */
    int32_t nic; /* the nearest NIC; -1 none */
    bool far;    /* no core near its device may be used: it has others */
    bool shared; /* there are more ranks than cores near its device: others have its core as well */
} tx_topo_place;

typedef struct tx_placement {
    tx_topo_place *places; /* by rank */
    int32_t ranks;
    int32_t gpus; /* how many are used; fewer than ranks: each has several. 0: the ranks compute on cores */
    int32_t cores, least_cores, most_cores; /* of the host; of the rank that has least, most */
} tx_placement;

/* Places `ranks` ranks. With GPUs: those that are nearest to each other, ranks in their order; the cores near several
 * of them are shared out evenly. Without: the ranks are shared out among the NUMA nodes by their number of cores, and a
 * node's cores among its ranks, neighbours together. A core belongs to one rank alone unless there are more ranks than
 * cores. UNSUPPORTED where the topology does not tell the cores. */
tx_status tx_placement_make(const tx_topology *topology, int64_t ranks, tx_placement **placement);
/* The hardware threads that the calling thread may run on, a set; the caller frees it. */
tx_status tx_placement_cpus(char **cpus);
/* Leaves the topology only those of its hardware threads that are in the set: ranks are then placed there. UNSUPPORTED,
 * and all stay, where none is. */
tx_status tx_placement_confine(tx_topology *topology, const char *cpus);
/* Moves the calling thread, and with it those that it starts, to the CPUs of a place. */
tx_status tx_placement_take(const tx_topo_place *place);
void tx_placement_free(tx_placement *placement); /* NULL is fine */

#endif
