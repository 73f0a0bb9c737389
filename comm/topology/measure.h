/* SPDX-License-Identifier: Apache-2.0
 *
 * What copies between the host's memory and the OpenCL devices of this machine, and among these, really take. It uses
 * plain OpenCL, which cannot say which way a driver sends the bytes: every number comes with the method. */
#ifndef TX_COMM_TOPOLOGY_MEASURE_H
#define TX_COMM_TOPOLOGY_MEASURE_H

#include "comm/topology/topology.h"

typedef struct tx_topo_measure_options {
    size_t size;       /* of this struct */
    int64_t bytes_max; /* of one run; 0: 128 MiB */
    /* Called before each copy, the `done`th of `count`; false stops. NULL: never. */
    bool (*go_on)(void *context, const tx_topology *topology, const tx_topo_copy *next, int32_t done, int32_t count);
    void *context;
} tx_topo_measure_options;

/* Measures this machine, of which `topology` must be, and adds the copies to it: memory within each NUMA node; each
 * device from and to each NUMA node's memory by a thread of that node, pinned and pageable; each two devices both ways.
 * What cannot be measured says why in its `failure`. Being stopped is no failure of the call. The calling thread moves
 * among the CPUs and returns to its own. `options` may be NULL. */
tx_status tx_topo_measure(tx_topology *topology, const tx_topo_measure_options *options);

/* The median of values, which it sorts; 0 of none. */
double tx_topo_median(double *values, int32_t count);
/* How near the two ends of a copy are, to compare with others of its kind, method and (to the host) device: less is
 * nearer; -1 where that says nothing. */
int32_t tx_topo_copy_distance(const tx_topology *topology, const tx_topo_copy *copy);
/* The fastest copy whose ends are farther from each other and which is yet more than a tenth faster than copy `index`:
 * a sign that something is wrong, or that the driver goes another way. -1 none. */
int32_t tx_topo_copy_beaten(const tx_topology *topology, int32_t index);

#endif
