/* SPDX-License-Identifier: Apache-2.0
 *
 * A topology in the making: every reader and collector adds what it knows to a draft, and tx_draft_finish makes the
 * topology of it. The first failure (of memory, or more devices than allowed) is kept; later calls do nothing. */
#ifndef TX_COMM_TOPOLOGY_DRAFT_H
#define TX_COMM_TOPOLOGY_DRAFT_H

#include "comm/topology/topology.h"

/* What some source says about the links between two devices of a draft. */
typedef struct tx_draft_link {
    int32_t a, b;
    tx_topo_link_kind kind;
    int32_t links;
    bool indirect;
    double rate;
    tx_topo_source source;
    tx_topo_confidence confidence;
    int32_t note;
} tx_draft_link;

/* As a source states it, of unknown number and rate. */
static inline tx_draft_link tx_draft_link_of(int32_t a, int32_t b, tx_topo_link_kind kind, tx_topo_source source)
{
    return (tx_draft_link){.a = a, .b = b, .kind = kind, .source = source, .confidence = TX_TOPO_STATED, .note = -1};
}

/* What a driver promises, one way. */
typedef struct tx_draft_p2p {
    int32_t a, b;
    tx_topo_access access;
    tx_topo_p2p value;
} tx_draft_p2p;

/* A class of a and b, one way, that is stated, not derived from the tree. */
typedef struct tx_draft_class {
    int32_t a, b;
    tx_topo_class value;
    tx_topo_source source;
    int32_t note;
} tx_draft_class;

typedef struct tx_draft {
    tx_topology *t;
    tx_status status;
    int32_t device_room, node_room, numa_room, cpu_room, note_room;
    tx_draft_link *links;
    int32_t link_count, link_room;
    tx_draft_p2p *p2p;
    int32_t p2p_count, p2p_room;
    tx_draft_class *classes;
    int32_t class_count, class_room;
} tx_draft;

/* `file` is "" for this machine. */
tx_status tx_draft_begin(tx_topo_origin origin, const char *file, tx_draft *draft);
/* Sorts and numbers the devices, drops what nothing hangs from, derives classes and affinities, and hands the topology
 * over; frees the rest. Returns the first failure. */
tx_status tx_draft_finish(tx_draft *draft, tx_topology **topology);
void tx_draft_discard(tx_draft *draft);

/* Copies into the topology's pool; valid UTF-8 without control characters comes out whatever goes in. "" after a
 * failure.
 */
const char *tx_draft_text(tx_draft *draft, const char *text);
const char *tx_draft_format(tx_draft *draft, const char *format, ...) TX_PRINTF(2, 3);

/* New elements, with unknown values; indices, -1 after a failure. */
int32_t tx_draft_node(tx_draft *draft, tx_topo_node_kind kind, int32_t parent);
int32_t tx_draft_device(tx_draft *draft, tx_topo_device_kind kind, int32_t node);
int32_t tx_draft_numa(tx_draft *draft, int32_t number);
int32_t tx_draft_cpu(tx_draft *draft, int32_t number);
/* The same text again is the same note. */
int32_t tx_draft_note(tx_draft *draft, bool warning, const char *format, ...) TX_PRINTF(3, 4);
/* Between device a and device b, both ways. Said twice: what is known goes before unknown, drivers before hwloc's
 * distances, then who tells a number of links, then the first. */
void tx_draft_link_add(tx_draft *draft, const tx_draft_link *link);
void tx_draft_p2p_add(tx_draft *draft, int32_t a, int32_t b, tx_topo_access access, tx_topo_p2p value);
void tx_draft_class_add(tx_draft *draft, const tx_draft_class *stated);

/* The FUNCTION node of a bus id in any spelling ("3b:00.0", "00000000:3B:00.0"); -1 none. */
int32_t tx_draft_find_bus(const tx_draft *draft, const char *bus);
/* The k-th device of a function; -1 none. */
int32_t tx_draft_device_at(const tx_draft *draft, int32_t node, int32_t partition);

/* A device that a source lists but that is not known to compute (a display adapter): dropped at the end unless another
 * source vouches for it by setting `source`. */
#define TX_DRAFT_UNSURE TX_TOPO_FROM_NOWHERE

/* ---- Classes (classify.c) ------------------------------------------------------------------------- */

/* Fills pairs, affinities and nearest NICs from the finished tree. */
tx_status tx_topo_classify(tx_draft *draft);

/* ---- Words (names.c, bus.c) ------------------------------------------------------------------------ */

/* Domain, bus, device and function as one number that sorts; false when `text` is no bus id. */
bool tx_topo_bus_parse(const char *text, uint64_t *key);
const char *tx_topo_vendor(int32_t vendor_id);

#endif
