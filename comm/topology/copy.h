/* SPDX-License-Identifier: Apache-2.0
 *
 * One copy, prepared so that it can be run again and again and timed: through OpenCL, and in the host's memory. */
#ifndef TX_COMM_TOPOLOGY_COPY_H
#define TX_COMM_TOPOLOGY_COPY_H

#include "comm/topology/topology.h"

/* ---- opencl_copy.c ---------------------------------------------------------------------------------- */

typedef struct tx_topo_cl tx_topo_cl;         /* the devices of a topology; opened when first used */
typedef struct tx_topo_cl_way tx_topo_cl_way; /* the buffers of one copy */

tx_status tx_topo_cl_open(const tx_topology *topology, tx_topo_cl **cl);
void tx_topo_cl_close(tx_topo_cl *cl); /* NULL is fine */
/* Makes buffers of `bytes`; host memory is touched first by the calling thread, which decides where it lies. */
tx_status tx_topo_cl_way_open(tx_topo_cl *cl, const tx_topo_copy *copy, size_t bytes, tx_topo_cl_way **way);
/* Copies all of it and waits for the end. */
tx_status tx_topo_cl_way_run(tx_topo_cl_way *way, double *seconds);
void tx_topo_cl_way_close(tx_topo_cl_way *way); /* NULL is fine */

/* ---- cpus.c ------------------------------------------------------------------------------------------ */

/* The calling thread runs on a set of CPUs from now on; tx_placement_cpus tells on which it does. */
tx_status tx_topo_cpus_move(const char *set);

#endif
