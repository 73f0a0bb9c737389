/* SPDX-License-Identifier: Apache-2.0
 *
 * A topology in the making: every reader and collector adds what it knows to a draft, and tx_draft_finish makes the
 * topology of it. The first failure (of memory, or more devices than allowed) is kept; later calls do nothing. */
#ifndef TX_COMM_TOPOLOGY_DRAFT_H
#define TX_COMM_TOPOLOGY_DRAFT_H

#include "comm/topology/tx_topology.h"

/* What a source states of device a to device b, bits: the class and peer-to-peer access one way, links both ways. */
enum { TX_DRAFT_CLASS = 1, TX_DRAFT_LINKS = 2, TX_DRAFT_P2P = 4 };

typedef struct tx_draft_fact {
    int32_t a, b;
    unsigned about;
    tx_topo_pair says; /* of it those members that `about` is about, and the note */
} tx_draft_fact;

typedef struct tx_draft {
    tx_topology *t;
    tx_status status;
    tx_draft_fact *facts;
    int32_t fact_count;
} tx_draft;

tx_status tx_draft_begin(tx_topo_origin origin, tx_draft *draft);
/* Sorts and numbers the devices, drops what nothing hangs from, derives classes and affinities, and hands the topology
 * over; frees the rest, and all of it where something failed before. Returns the first failure. */
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
/* The same text again is the same note. */
int32_t tx_draft_note(tx_draft *draft, bool warning, const char *format, ...) TX_PRINTF(3, 4);
/* Links of unknown number and rate, to be stated. */
static inline tx_topo_pair tx_draft_links(tx_topo_link_kind kind, tx_topo_source source)
{
    return (tx_topo_pair){.link = kind, .link_source = source, .note = -1};
}
/* XGMI links by the bandwidth of one link and of all of them, in MB/s; 0 where that is not told: XG stands without a
 * number then, for the reason of the note. */
void tx_draft_xgmi(tx_draft *draft, int32_t a, int32_t b, tx_topo_pair says, int64_t one, int64_t all,
                   const char *note);
/* Links said twice: what is known goes before unknown, drivers before hwloc's distances, then who tells a number of
 * links, then the first. */
void tx_draft_state(tx_draft *draft, int32_t a, int32_t b, unsigned about, const tx_topo_pair *says);
/* One more element, zeroed, of `size` bytes behind `*count` others; NULL after a failure. */
void *tx_draft_append(tx_draft *draft, void **array, int32_t *count, size_t size);
#define TX_DRAFT_APPEND(draft, array, count) tx_draft_append(draft, (void **)&(array), &(count), sizeof *(array))

/* The FUNCTION node of a bus id in any spelling ("3b:00.0", "00000000:3B:00.0"); -1 none. */
int32_t tx_draft_find_bus(const tx_draft *draft, const char *bus);
/* The same by the numbers in it, as tx_topo_bus_parse makes one of them. */
int32_t tx_draft_find_key(const tx_draft *draft, uint64_t key);
/* The bus id as text. */
const char *tx_draft_bus(tx_draft *draft, uint64_t key);
/* The k-th device of a function; -1 none. */
int32_t tx_draft_device_at(const tx_draft *draft, int32_t node, int32_t partition);

/* A device that a source lists but that is not known to compute (a display adapter): dropped at the end unless another
 * source vouches for it by setting `source`. */
#define TX_DRAFT_UNSURE TX_TOPO_FROM_NOWHERE

/* ---- Strings ------------------------------------------------------------------------------ */

typedef struct tx_topo_pool tx_topo_pool; /* what owns the strings of a topology, freed together */

/* A copy that lives as long as the pool, with what is no UTF-8 and control characters made "?" and the spaces at both
 * ends removed; NULL: out of memory. */
const char *tx_topo_pool_text(tx_topo_pool *pool, const char *text);

/* ---- Classes (classify.c) ------------------------------------------------------------------------- */

/* Fills pairs, affinities and nearest NICs from the finished tree. */
tx_status tx_topo_classify(tx_draft *draft);

/* ---- Words (names.c) ------------------------------------------------------------------------ */

/* Domain, bus, device and function as one number that sorts, domain << 16 | bus << 8 | device << 3 | function; false
 * when `text` is no bus id. */
bool tx_topo_bus_parse(const char *text, uint64_t *key);
/* The maker's name of PCI's number, which is a constant; "" unknown. */
const char *tx_topo_vendor(int32_t vendor_id);

#endif
