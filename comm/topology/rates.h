/* SPDX-License-Identifier: Apache-2.0
 *
 * What the way between two devices carries, as far as a topology tells: an expectation for choosing and explaining, not
 * a measurement. The rates of one link are those that NCCL and RCCL reckon with, less than the links' names say. */
#ifndef TX_COMM_TOPOLOGY_RATES_H
#define TX_COMM_TOPOLOGY_RATES_H

#include "comm/topology/topology.h"

typedef enum tx_topo_limit {
    TX_TOPO_LIMIT_UNKNOWN, /* the topology does not tell */
    TX_TOPO_LIMIT_NONE,    /* no link between the two: one chip, or the host itself */
    TX_TOPO_LIMIT_LINKS,   /* the direct links */
    TX_TOPO_LIMIT_PCIE,    /* the PCIe link of `node` */
    TX_TOPO_LIMIT_NUMA     /* the interconnect between NUMA nodes */
} tx_topo_limit;

typedef struct tx_topo_rate {
    tx_topo_limit limit;
    double rate;  /* GB/s in one direction; 0 for UNKNOWN and NONE */
    int32_t node; /* of PCIE; else -1 */
} tx_topo_rate;

/* What a PCIe link may carry: the speed that it can have (an idle link is slow to save power) and the lanes that it
 * has. 0 unknown. */
double tx_topo_pcie_expected(const tx_topo_pcie *link);
tx_topo_rate tx_topo_pair_rate(const tx_topology *topology, int32_t a, int32_t b);
/* The slowest way of a ring through `count` (at least 2) devices in that order, and between which two it is; UNKNOWN
 * where the rate of one way is. */
tx_topo_rate tx_topo_ring_rate(const tx_topology *topology, const int32_t *devices, int32_t count, int32_t slowest[2]);
/* Seconds for an all-reduce of `bytes` among `ranks`: each link of the ring carries 2 (ranks - 1) / ranks of them. */
double tx_topo_allreduce_seconds(double bytes, int32_t ranks, double rate);

#endif
