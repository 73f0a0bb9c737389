/* SPDX-License-Identifier: Apache-2.0
 *
 * The output formats of txtopo. Each function prints to the caller's stream. */
#ifndef TX_TOOLS_TXTOPO_H
#define TX_TOOLS_TXTOPO_H

#include "tx_topology.h"

#include <stdio.h>

/* ---- table.c ---------------------------------------------------------------------------------------- */

enum { TX_TXTOPO_CELL = 320, TX_TXTOPO_COLUMNS = 16 }; /* bytes of a cell; largest number of columns */

/* A table whose cells are computed by a callback. */
typedef struct tx_txtopo_table {
    int32_t columns, rows;
    uint32_t right; /* bit k is set if column k is right-aligned */
    /* Returns the text of a cell, or of the column's heading for row -1; "" if it is unknown. It may use `room`. */
    const char *(*cell)(const void *of, int32_t row, int32_t column, char room[TX_TXTOPO_CELL]);
    const void *of;
} tx_txtopo_table;

/* Prints a table with "-" for empty cells and without columns that are empty in all rows. */
void tx_txtopo_print(FILE *out, const tx_txtopo_table *table);
/* Prints the devices, one per row. */
void tx_txtopo_devices(FILE *out, const tx_topology *topology);
/* Formats a size as "16.0 GiB", or as "" if it is 0. Returns `text`. */
const char *tx_txtopo_memory(int64_t bytes, char text[TX_TXTOPO_CELL]);

/* ---- text.c ----------------------------------------------------------------------------------------- */

/* Prints the matrix with affinities, legend and notes. `links` adds the direct links NV#, XG# and XL# to the PCI
 * classes. `terminal` adds the table of devices and underlines the header; programs that parse the matrix do not expect
 * these. */
void tx_txtopo_text(FILE *out, const tx_topology *topology, bool links, bool terminal);
/* Prints the layout of nvidia-smi topo -m, byte for byte. */
void tx_txtopo_nvidia(FILE *out, const tx_topology *topology, bool links);
/* Prints peer-to-peer access as the drivers report it. `letters` are kinds of access such as "rw"; of several kinds, a
 * cell shows the first that is not OK. */
void tx_txtopo_p2p(FILE *out, const tx_topology *topology, const char *letters, bool underline);
/* Returns the first letter that is not a kind of access, or '\0'. */
char tx_txtopo_p2p_wrong(const char *letters);

/* ---- tree.c, bind.c --------------------------------------------------------------------------------- */

/* Prints packages, PCI bridges and devices, each with the speed and width of its upstream link. */
void tx_txtopo_tree(FILE *out, const tx_topology *topology);
/* Prints the placement of `ranks` ranks as a table and as command lines for launchers, numactl and hwloc-bind. */
tx_status tx_txtopo_bind(FILE *out, const tx_topology *topology, int64_t ranks);

#endif
