/* SPDX-License-Identifier: Apache-2.0
 *
 * What txtopo's files share: each prints a topology in one form, to a stream that the caller gives. */
#ifndef TX_TOOLS_TXTOPO_H
#define TX_TOOLS_TXTOPO_H

#include "comm/comm.h"
#include "comm/topology/topology.h"

#include <stdio.h>

/* ---- table.c ---------------------------------------------------------------------------------------- */

enum { TX_TXTOPO_CELL = 320, TX_TXTOPO_COLUMNS = 16 }; /* bytes of a cell; columns at most of a table as text */

/* What every format draws: rows whose cells are made as they are needed. */
typedef struct tx_txtopo_table {
    int32_t columns, rows;
    uint32_t right; /* bit k: column k is aligned to the right */
    bool sparse;    /* a page leaves out the columns that are empty in all rows, as text does */
    /* The text of a cell, of the head for row -1; "" when there is nothing to say. `room` is room to make it in. */
    const char *(*cell)(const void *of, int32_t row, int32_t column, char room[TX_TXTOPO_CELL]);
    const void *of;
} tx_txtopo_table;

/* Prints a table as text, "-" for empty cells of columns with a head, without the columns that are empty in all rows.
 */
void tx_txtopo_print(FILE *out, const tx_txtopo_table *table);
/* How wide a column is; 0: empty for all rows. */
int tx_txtopo_width(const tx_txtopo_table *table, int32_t column);

typedef enum tx_txtopo_field {
    TX_TXTOPO_BUS,
    TX_TXTOPO_OPENCL,
    TX_TXTOPO_ENGINE,
    TX_TXTOPO_SYSTEM,
    TX_TXTOPO_NIC,
    TX_TXTOPO_VENDOR,
    TX_TXTOPO_NAME,
    TX_TXTOPO_CPUS,
    TX_TXTOPO_NODES,
    TX_TXTOPO_GPU_NUMA,
    TX_TXTOPO_BYTES,  /* of memory */
    TX_TXTOPO_MEMORY, /* with a unit */
    TX_TXTOPO_EMPTY
} tx_txtopo_field;

typedef struct tx_txtopo_column {
    const char *head;
    tx_txtopo_field field;
} tx_txtopo_column;

/* Devices, a row each: the label, the matrix (a column for each of them) if it is wanted, then `more` columns. */
typedef struct tx_txtopo_sheet {
    const tx_topology *t;
    tx_topo_device_kind last; /* devices of later kinds are left out */
    const char *corner;       /* the head of the labels */
    const tx_txtopo_column *beside;
    int32_t more;
    bool matrix, links, nvidia; /* the latter as in tx_txtopo_text, tx_txtopo_nvidia */
    const char *letters;        /* as in tx_txtopo_p2p */
    /* The cell of two devices, which may be the same; it is that of tx_topo_cell unless this is set. */
    const char *(*pair)(const struct tx_txtopo_sheet *s, int32_t a, int32_t b, char room[TX_TXTOPO_CELL]);
    int32_t list[TX_TOPO_DEVICES_MAX], count; /* the devices, which tx_txtopo_sheet_table finds */
} tx_txtopo_sheet;

tx_txtopo_table tx_txtopo_sheet_table(tx_txtopo_sheet *sheet);
/* All that is told of each device by itself. */
void tx_txtopo_devices(const tx_topology *topology, tx_txtopo_sheet *sheet);
/* "16.0 GiB"; "" for 0. */
const char *tx_txtopo_memory(int64_t bytes, char text[TX_TXTOPO_CELL]);

/* ---- One host --------------------------------------------------------------------------------------- */

/* text.c: the matrix with its affinities, legend and notes. `links`: NV#, XG# and XL# beside PCI's classes. `terminal`:
 * with the table of devices before it and its header underlined, which programs that parse the matrix do not expect. */
void tx_txtopo_text(FILE *out, const tx_topology *topology, bool links, bool terminal);
/* The layout of nvidia-smi topo -m, byte for byte. */
void tx_txtopo_nvidia(FILE *out, const tx_topology *topology, bool links);
/* What the drivers promise of peer-to-peer access, letters as in "rw": several kinds show the first that is not OK. */
void tx_txtopo_p2p(FILE *out, const tx_topology *topology, const char *letters, bool underline);
/* The first letter that names no kind of access; '\0' where all do. */
char tx_txtopo_p2p_wrong(const char *letters);

/* csv.c: the matrix with labels, then affinities, after RFC 4180. */
void tx_txtopo_csv(FILE *out, const tx_topology *topology, bool links);

/* bind.c: where so many ranks go, as a table and as lines for launchers, numactl and hwloc-bind. */
tx_status tx_txtopo_bind(FILE *out, const tx_topology *topology, int64_t ranks);

/* explain.c: the way between two devices in words. `pair` is "A,B"; each is what tx_topo_find takes. */
tx_status tx_txtopo_explain(FILE *out, const tx_topology *topology, const char *pair);

/* measured.c: what was measured beside the class, and what of it is odd; nothing where nothing was measured. */
void tx_txtopo_measured(FILE *out, const tx_topology *topology);
/* The table of it, and its columns. */
enum {
    TX_TXTOPO_FROM,
    TX_TXTOPO_TO,
    TX_TXTOPO_CLASS,
    TX_TXTOPO_NUMA,
    TX_TXTOPO_METHOD,
    TX_TXTOPO_RATE,
    TX_TXTOPO_LATENCY,
    TX_TXTOPO_REMARK
};
tx_txtopo_table tx_txtopo_copies(const tx_topology *topology);
/* The line on a terminal while copy `done` of `count` is measured. */
void tx_txtopo_measuring(FILE *out, const tx_topology *topology, const tx_topo_copy *next, int32_t done, int32_t count);

/* html.c: one page with matrix and tree, and what was measured, that needs nothing else. */
void tx_txtopo_html(FILE *out, const tx_topology *topology);
/* txtopo.html: the page around what is filled in. */
extern const unsigned char tx_txtopo_page[];
/* escape.c: prints as fprintf does, with text escaped as values of HTML; the format may use %s, %d, %x, %f and %g. */
void tx_html(FILE *out, const char *format, ...) TX_PRINTF(2, 3);
/* tree.c: the tree with the devices where they hang. */
void tx_html_tree(FILE *out, const tx_topology *topology);

/* ---- Many hosts ------------------------------------------------------------------------------------- */

/* kinds.c: what of `other` is not as in `usual`, a line each to `out` (NULL: nowhere); how many lines. Hosts are
 * of one kind where there is none: the same devices, tied together alike, the same CPUs and memory. Names, bus ids and
 * what differs with every start of the machine do not count. */
int32_t tx_txtopo_differ(FILE *out, const tx_topology *usual, const tx_topology *other);

typedef struct tx_txtopo_host {
    int32_t rank;          /* the first of the host's */
    tx_topology *topology; /* on rank 0; NULL: it failed, for `error` */
    char *error;
} tx_txtopo_host;

/* Prints each kind of host once, the most common first, with the names of its hosts. */
tx_status tx_txtopo_kinds(FILE *out, const tx_txtopo_host *hosts, int32_t count, bool links, bool underline);

typedef struct tx_txtopo_many {
    bool links, underline, measure;
    bool (*stopped)(void); /* whether the user wants an end */
    bool *partial;         /* set where measuring was stopped */
} tx_txtopo_many;

/* mpi.c: the topologies of all hosts under a launcher, printed by rank 0. */
tx_status tx_txtopo_mpi(FILE *out, const tx_txtopo_many *many, int *argc, char ***argv);

/* hosts.c: bandwidth (GB/s) and latency (microseconds) from each host to each other, pair by pair; all ranks
 * call it. `*rates` gets two numbers for [from * count + to], 0 for what was not measured; allocated. */
tx_status tx_txtopo_between(tx_comm *comm, const tx_txtopo_host *hosts, int32_t count, bool (*stopped)(void),
                            float **rates, bool *partial);

#endif
