/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms in which txtopo prints a topology, each to the caller's stream. */
#ifndef TX_TOOLS_TXTOPO_H
#define TX_TOOLS_TXTOPO_H

#include "tx_topology.h"

#include <stdio.h>

/* ---- table.c ---------------------------------------------------------------------------------------- */

enum { TX_TXTOPO_CELL = 320, TX_TXTOPO_COLUMNS = 16 }; /* bytes of a cell; columns at most */

/* Rows whose cells are made as they are needed. */
typedef struct tx_txtopo_table {
    int32_t columns, rows;
    uint32_t right; /* bit k: column k is aligned to the right */
    /* The text of a cell, for row -1 the column's heading; "" if it is unknown. `room` is room to make it in. */
    const char *(*cell)(const void *of, int32_t row, int32_t column, char room[TX_TXTOPO_CELL]);
    const void *of;
} tx_txtopo_table;

/* Prints a table as text: "-" for empty cells, and without the columns that are empty in all rows. */
void tx_txtopo_print(FILE *out, const tx_txtopo_table *table);
/* The devices, a row each. */
void tx_txtopo_devices(FILE *out, const tx_topology *topology);
/* "16.0 GiB"; "" for 0. */
const char *tx_txtopo_memory(int64_t bytes, char text[TX_TXTOPO_CELL]);

/* ---- text.c ----------------------------------------------------------------------------------------- */

/* The matrix with its affinities, legend and notes. `links`: NV#, XG# and XL# as well as PCI's classes. `terminal`:
 * with the table of devices before it and its header underlined, which programs that parse the matrix do not expect. */
void tx_txtopo_text(FILE *out, const tx_topology *topology, bool links, bool terminal);
/* The layout of nvidia-smi topo -m, byte for byte. */
void tx_txtopo_nvidia(FILE *out, const tx_topology *topology, bool links);
/* The drivers' answers about peer-to-peer access, letters as in "rw": several show the first that is not OK. */
void tx_txtopo_p2p(FILE *out, const tx_topology *topology, const char *letters, bool underline);
/* The first letter that names no kind of access; '\0' if all do. */
char tx_txtopo_p2p_wrong(const char *letters);

/* ---- tree.c, bind.c --------------------------------------------------------------------------------- */

/* Packages, PCI bridges and devices, each with the speed and width of the link above it. */
void tx_txtopo_tree(FILE *out, const tx_topology *topology);
/* The places of so many ranks, as a table and as lines for launchers, numactl and hwloc-bind. */
tx_status tx_txtopo_bind(FILE *out, const tx_topology *topology, int64_t ranks);

#endif
