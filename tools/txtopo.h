/* SPDX-License-Identifier: Apache-2.0
 *
 * What txtopo's files share: each prints a topology in one form, to a stream that the caller gives. */
#ifndef TX_TOOLS_TXTOPO_H
#define TX_TOOLS_TXTOPO_H

#include "comm/topology/topology.h"

#include <stdio.h>

/* txtopo_text.c: the table of devices, the matrix with its affinities, legend and notes. `links`: NV#, XG# and XL#
 * beside PCI's classes. `underline`: the header of the matrix, as on a terminal. */
void tx_txtopo_text(FILE *out, const tx_topology *topology, bool links, bool underline);
/* What the drivers promise of peer-to-peer access, letters as in "rw": several kinds show the first that is not OK. */
void tx_txtopo_p2p(FILE *out, const tx_topology *topology, const char *letters, bool underline);
/* The first letter that names no kind of access; '\0' where all do. */
char tx_txtopo_p2p_wrong(const char *letters);

/* txtopo_nvidia.c: the layout of nvidia-smi topo -m, byte for byte. */
void tx_txtopo_nvidia(FILE *out, const tx_topology *topology, bool links);

/* txtopo_csv.c: the matrix with labels, then affinities, after RFC 4180. */
void tx_txtopo_csv(FILE *out, const tx_topology *topology, bool links);

/* txtopo_bind.c: where so many ranks go, as a table and as lines for mpiexec and hwloc-bind. */
tx_status tx_txtopo_bind(FILE *out, const tx_topology *topology, int64_t ranks);

/* txtopo_explain.c: the way between two devices in words. `pair` is "A,B"; each is what tx_topo_find takes, or
 * "opencl:PLATFORM:DEVICE". */
tx_status tx_txtopo_explain(FILE *out, const tx_topology *topology, const char *pair);

/* What was measured between devices, where something was: [a * device_count + b], 0 for what was not. */
typedef struct tx_txtopo_measured {
    const double *bandwidth; /* GB/s from a to b */
    const double *latency;   /* microseconds */
    const char *method;
} tx_txtopo_measured;

/* txtopo_html.c: one page with matrix and tree that needs nothing else. `measured` may be NULL. */
void tx_txtopo_html(FILE *out, const tx_topology *topology, const tx_txtopo_measured *measured);

#endif
