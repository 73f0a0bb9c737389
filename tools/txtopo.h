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

#endif
