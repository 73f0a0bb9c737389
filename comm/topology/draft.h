/* SPDX-License-Identifier: Apache-2.0
 *
 * A draft is a topology under construction. Every reader and collector adds its information to the draft, and
 * tx_draft_finish creates the topology. The first failure (out of memory, or too many devices) is kept; later calls
 * then do nothing. */
#ifndef TX_COMM_TOPOLOGY_DRAFT_H
#define TX_COMM_TOPOLOGY_DRAFT_H

#include "comm/topology/tx_topology.h"

/* The properties of a device pair that a source reports, as bits. Class and peer-to-peer access are directed from a
 * to b; links apply to both directions. */
enum { TX_DRAFT_CLASS = 1, TX_DRAFT_LINKS = 2, TX_DRAFT_P2P = 4 };

typedef struct tx_draft_fact {
    int32_t a, b;
    unsigned about;
    tx_topo_pair says; /* valid are the members that `about` selects, and the note */
} tx_draft_fact;

typedef struct tx_draft {
    tx_topology *t;
    tx_status status;
    tx_draft_fact *facts;
    int32_t fact_count;
} tx_draft;

tx_status tx_draft_begin(tx_topo_origin origin, tx_draft *draft);
/* Sorts and numbers the devices, removes unused nodes, derives classes and affinities, and returns the topology.
 * Frees the draft; after a failure it also frees the topology. Returns the first failure. */
tx_status tx_draft_finish(tx_draft *draft, tx_topology **topology);
void tx_draft_discard(tx_draft *draft);

/* Copies a string into the topology's pool. The copy is valid UTF-8 without control characters, for every input.
 * Returns "" after a failure. */
const char *tx_draft_text(tx_draft *draft, const char *text);
const char *tx_draft_format(tx_draft *draft, const char *format, ...) TX_PRINTF(2, 3);

/* Add elements with unknown values. Return their indices; -1 after a failure. */
int32_t tx_draft_node(tx_draft *draft, tx_topo_node_kind kind, int32_t parent);
int32_t tx_draft_device(tx_draft *draft, tx_topo_device_kind kind, int32_t node);
int32_t tx_draft_numa(tx_draft *draft, int32_t number);
/* Adds a note. An equal text returns the existing note. */
int32_t tx_draft_note(tx_draft *draft, bool warning, const char *format, ...) TX_PRINTF(3, 4);
/* Returns links of unknown number and rate, for tx_draft_state. */
static inline tx_topo_pair tx_draft_links(tx_topo_link_kind kind, tx_topo_source source)
{
    return (tx_topo_pair){.link = kind, .link_source = source, .note = -1};
}
/* Adds XGMI links, given the bandwidth of one link and of all links in MB/s; 0 if unknown. If the number of links
 * is unknown, the note explains why. */
void tx_draft_xgmi(tx_draft *draft, int32_t a, int32_t b, tx_topo_pair says, int64_t one, int64_t all,
                   const char *note);
/* Adds a fact about a pair. If several sources report links, known values override unknown ones, drivers override
 * hwloc's distances, a known number of links overrides an unknown one, and otherwise the first source counts. */
void tx_draft_state(tx_draft *draft, int32_t a, int32_t b, unsigned about, const tx_topo_pair *says);
/* Appends one zeroed element of `size` bytes to an array of `*count` elements. Returns NULL after a failure. */
void *tx_draft_append(tx_draft *draft, void **array, int32_t *count, size_t size);
#define TX_DRAFT_APPEND(draft, array, count) tx_draft_append(draft, (void **)&(array), &(count), sizeof *(array))

/* Returns the FUNCTION node of a bus id in any format ("3b:00.0", "00000000:3B:00.0"); -1 if there is none. */
int32_t tx_draft_find_bus(const tx_draft *draft, const char *bus);
/* The same for a bus id as a number (tx_topo_bus_parse). */
int32_t tx_draft_find_key(const tx_draft *draft, uint64_t key);
/* Returns the bus id as text. */
const char *tx_draft_bus(tx_draft *draft, uint64_t key);
/* Returns the device of a function with this partition index; -1 if there is none. */
int32_t tx_draft_device_at(const tx_draft *draft, int32_t node, int32_t partition);

/* Marks a device that may not be a compute device (a display adapter). It is removed at the end unless another
 * source confirms it by setting `source`. */
#define TX_DRAFT_UNSURE TX_TOPO_FROM_NOWHERE

/* ---- Strings ------------------------------------------------------------------------------ */

typedef struct tx_topo_pool tx_topo_pool; /* owner of all strings of a topology */

/* Returns a copy that lives as long as the pool, without leading and trailing spaces. Invalid UTF-8 and control
 * characters are replaced by "?". Returns NULL if out of memory. */
const char *tx_topo_pool_text(tx_topo_pool *pool, const char *text);

/* ---- Classes (classify.c) -------------------------------------------------------------------- */

/* Computes pairs, affinities and nearest NICs from the complete tree. */
tx_status tx_topo_classify(tx_draft *draft);

/* ---- Names (names.c) ------------------------------------------------------------------------ */

/* Parses a bus id into one number that can be sorted: domain << 16 | bus << 8 | device << 3 | function. Returns
 * false if `text` is not a bus id. */
bool tx_topo_bus_parse(const char *text, uint64_t *key);
/* Returns the vendor name of a PCI vendor id, a constant; "" if unknown. */
const char *tx_topo_vendor(int32_t vendor_id);

#endif
