/* SPDX-License-Identifier: Apache-2.0
 * Classifies the connection of each pair of devices from the tree, by NVIDIA's definition of the classes. Also finds
 * the cores, memory and NIC near each device. */
#include "comm/topology/draft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tree ------------------------------------------------------------------------------------ */

/* Parents have lower indices, so the node with the larger index is never an ancestor of the other. */
static int32_t common_ancestor(const tx_topology *t, int32_t a, int32_t b)
{
    while (a != b) {
        if (a > b)
            a = t->nodes[a].parent;
        else
            b = t->nodes[b].parent;
    }
    return a;
}

/* Returns the nearest node on the CPU side. */
static int32_t place_of(const tx_topology *t, int32_t node)
{
    while (t->nodes[node].kind >= TX_TOPO_HOST_BRIDGE)
        node = t->nodes[node].parent;
    return node;
}

/* Counts the bridges strictly between a node and its ancestor. */
static int32_t bridges_below(const tx_topology *t, int32_t node, int32_t above)
{
    int32_t count = 0;
    if (node == above)
        return 0;
    for (int32_t i = t->nodes[node].parent; i != above; i = t->nodes[i].parent)
        count += t->nodes[i].kind == TX_TOPO_BRIDGE;
    return count;
}

/* Returns true if there are several NUMA nodes of CPUs. */
static bool is_multi_node(const tx_topology *t)
{
    int32_t count = 0;
    for (int32_t i = 0; i < t->numa_count; i++)
        count += t->numa[i].device < 0;
    return count > 1;
}

/* Returns true if a set is a single number. */
static bool single(const char *set)
{
    return *set && strcspn(set, ",-") == strlen(set);
}

/* ---- Classes --------------------------------------------------------------------------------- */

/* Notes shared by pairs, created at the end if a pair has one: the location is unknown; bridges inside packages
 * were counted. */
enum { NOTE_PLACE = -2, NOTE_PACKAGE = -3 };

/* Returns true for switches that AMD integrates into the packages of its GPUs. */
static bool package_bridge(const tx_topo_node *node)
{
    static const struct {
        int32_t vendor, device;
    } known[] = {{0x1002, 0x14a0}, {0x1002, 0x14a1}, {0x1022, 0x1470}, {0x1022, 0x1471}, {0x1022, 0x1500}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (node->vendor_id == known[i].vendor && node->device_id == known[i].device)
            return true;
    return false;
}

static bool crosses_package_bridge(const tx_topology *t, int32_t node, int32_t above)
{
    for (int32_t i = t->nodes[node].parent; i != above; i = t->nodes[i].parent)
        if (package_bridge(&t->nodes[i]))
            return true;
    return false;
}

static void set_class(tx_topo_pair *pair, tx_topo_class value, int32_t note)
{
    pair->class_ = value;
    pair->note = note;
}

/* Classifies two PCI functions whose paths meet on the CPU side. */
static void classify_through_cpu(const tx_topology *t, int32_t a, int32_t b, tx_topo_pair *pair)
{
    const int32_t place_a = place_of(t, a), place_b = place_of(t, b);
    const char *nodes = t->nodes[place_a].nodes;
    if (is_multi_node(t) && (place_a == 0 || place_b == 0))
        set_class(pair, TX_TOPO_SYS, NOTE_PLACE);
    else if (place_a == place_b || (single(nodes) && strcmp(nodes, t->nodes[place_b].nodes) == 0))
        set_class(pair, TX_TOPO_NODE, -1);
    else
        set_class(pair, TX_TOPO_SYS, -1);
}

/* Classifies two PCI functions. */
static void classify_functions(const tx_topology *t, int32_t a, int32_t b, tx_topo_pair *pair)
{
    uint64_t key_a = 0, key_b = 1 << 8;
    const int32_t ancestor = common_ancestor(t, a, b);
    const tx_topo_node_kind meeting = t->nodes[ancestor].kind;
    pair->ancestor = ancestor;
    pair->bridges_a = bridges_below(t, a, ancestor);
    pair->bridges_b = bridges_below(t, b, ancestor);
    bool keys = tx_topo_bus_parse(t->nodes[a].bus, &key_a) && tx_topo_bus_parse(t->nodes[b].bus, &key_b);
    if (a == b)
        set_class(pair, TX_TOPO_LOC, -1);
    else if (keys && key_a >> 3 == key_b >> 3) /* functions of one card */
        set_class(pair, TX_TOPO_PIX, -1);
    else if (meeting == TX_TOPO_HOST_BRIDGE)
        set_class(pair, TX_TOPO_PHB, -1);
    else if (meeting == TX_TOPO_BRIDGE && pair->bridges_a <= 1 && pair->bridges_b <= 1)
        set_class(pair, TX_TOPO_PIX, -1);
    else if (meeting == TX_TOPO_BRIDGE) {
        bool inside = crosses_package_bridge(t, a, ancestor) || crosses_package_bridge(t, b, ancestor);
        set_class(pair, TX_TOPO_PXB, inside ? NOTE_PACKAGE : -1);
    } else
        classify_through_cpu(t, a, b, pair);
}

static void classify_pair(const tx_topology *t, int32_t a, int32_t b, tx_topo_pair *pair)
{
    const tx_topo_device *da = &t->devices[a], *db = &t->devices[b];
    bool placed_a = t->nodes[da->node].kind == TX_TOPO_FUNCTION;
    bool placed_b = t->nodes[db->node].kind == TX_TOPO_FUNCTION;
    if (da->kind == TX_TOPO_CPU || db->kind == TX_TOPO_CPU)
        set_class(pair, da->kind == db->kind ? TX_TOPO_LOC : TX_TOPO_HOST, -1);
    else if (placed_a && placed_b)
        classify_functions(t, da->node, db->node, pair);
    else
        set_class(pair, TX_TOPO_SYS, placed_a ? db->note : da->note);
    if (da->kind == TX_TOPO_NIC && pair->class_ == TX_TOPO_LOC) /* two InfiniBand devices of one card */
        pair->class_ = TX_TOPO_PIX;
    const tx_topo_device *guessed = da->guessed ? da : db;
    if (guessed->guessed && guessed->note >= 0 && pair->class_ != TX_TOPO_HOST)
        pair->note = guessed->note;
}

static bool in_package_switch(const tx_topology *t, const tx_topo_device *d)
{
    return crosses_package_bridge(t, d->node, 0);
}

static bool place_unknown(const tx_topology *t, const tx_topo_device *d)
{
    return place_of(t, d->node) == 0;
}

/* If a pair has the note `mark`, creates it. The note lists the devices for which `wanted` returns true. */
static void make_note(tx_draft *draft, int32_t mark, bool warning, const char *format,
                      bool (*wanted)(const tx_topology *, const tx_topo_device *))
{
    const tx_topology *t = draft->t;
    char names[256] = "", text[512];
    size_t used = 0;
    int32_t note = -1;
    for (int32_t i = 0; i < t->device_count; i++) {
        if (t->nodes[t->devices[i].node].kind != TX_TOPO_FUNCTION || !wanted(t, &t->devices[i]))
            continue;
        if (used + sizeof t->devices[i].label + 8 < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", t->devices[i].label);
        else if (names[used - 1] != '.')
            used += (size_t)snprintf(names + used, sizeof names - used, ", ...");
    }
    for (int64_t i = 0; i < (int64_t)t->device_count * t->device_count; i++) {
        if (t->pairs[i].note != mark)
            continue;
        if (note < 0) {
            snprintf(text, sizeof text, format, names);
            note = tx_draft_note(draft, warning, "%s", text);
        }
        t->pairs[i].note = note;
    }
}

/* ---- Facts from sources ---------------------------------------------------------------------- */

/* Returns true if a source adds information about a pair's links. Drivers are more precise than hwloc's distances. */
static bool adds_information(const tx_topo_pair *pair, const tx_topo_pair *says)
{
    if (pair->class_ == TX_TOPO_LOC)
        return false;
    if (pair->link == TX_TOPO_NO_LINK)
        return true;
    if (pair->link == TX_TOPO_LINK_UNKNOWN || says->link == TX_TOPO_LINK_UNKNOWN)
        return says->link != TX_TOPO_LINK_UNKNOWN;
    if (pair->link_source == TX_TOPO_FROM_DISTANCES && says->link_source != TX_TOPO_FROM_DISTANCES)
        return true;
    return pair->links == 0 && (says->links > 0 || (says->indirect && !pair->indirect));
}

static void apply_links(tx_topo_pair *pair, const tx_topo_pair *says)
{
    if (!adds_information(pair, says))
        return;
    pair->link = says->link;
    pair->links = says->links;
    pair->indirect = says->indirect;
    pair->switched = says->switched;
    pair->link_rate = says->link_rate;
    pair->link_source = says->link_source;
    if (says->note >= 0)
        pair->note = says->note;
}

/* A driver's class overrides the class from the tree. If they differ, a note is added. */
static void apply_class(tx_draft *draft, const tx_draft_fact *fact, tx_topo_pair *pair)
{
    const tx_topo_class value = fact->says.class_;
    int32_t note = fact->says.note;
    if (fact->says.class_source != TX_TOPO_FROM_MATRIX && value != pair->class_) {
        const int32_t a = fact->a < fact->b ? fact->a : fact->b, b = fact->a < fact->b ? fact->b : fact->a;
        note = tx_draft_note(draft, true, "%s reports %s between %s and %s, but the PCI tree shows %s",
                             tx_topo_source_names[fact->says.class_source], tx_topo_class_names[value],
                             draft->t->devices[a].label, draft->t->devices[b].label, tx_topo_class_names[pair->class_]);
    }
    set_class(pair, value, note);
    pair->class_source = fact->says.class_source;
}

static void apply_stated(tx_draft *draft)
{
    const int64_t n = draft->t->device_count;
    tx_topo_pair *pairs = draft->t->pairs;
    for (int32_t i = 0; i < draft->fact_count; i++) {
        const tx_draft_fact *fact = &draft->facts[i];
        if (fact->about & TX_DRAFT_CLASS)
            apply_class(draft, fact, &pairs[fact->a * n + fact->b]);
    }
    for (int32_t i = 0; i < draft->fact_count; i++) {
        const tx_draft_fact *fact = &draft->facts[i];
        if (fact->about & TX_DRAFT_P2P)
            memcpy(pairs[fact->a * n + fact->b].p2p, fact->says.p2p, sizeof fact->says.p2p);
        if (fact->about & TX_DRAFT_LINKS) {
            apply_links(&pairs[fact->a * n + fact->b], &fact->says);
            apply_links(&pairs[fact->b * n + fact->a], &fact->says);
        }
    }
}

/* ---- Near cores and NICs --------------------------------------------------------------------- */

/* Returns true if a NIC is nearer to a device than another one, or equally near and used by fewer devices. */
static bool nearer(const tx_topology *t, int32_t device, int32_t nic, int32_t other, const int32_t *users)
{
    const tx_topo_pair *a = tx_topo_pair_of(t, device, nic), *b = tx_topo_pair_of(t, device, other);
    const int32_t keys[][2] = {{(int32_t)a->class_, (int32_t)b->class_},
                               {a->bridges_a + a->bridges_b, b->bridges_a + b->bridges_b},
                               {users[nic], users[other]}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1];
    return false;
}

/* Finds each device's nearest NIC. Among equally near NICs, the one with the fewest users is chosen. */
static void set_nics(tx_topology *t)
{
    int32_t users[TX_TOPO_DEVICES_MAX] = {0};
    for (int32_t i = 0; i < t->device_count; i++) {
        int32_t best = -1;
        for (int32_t k = 0; k < t->device_count && t->devices[i].kind != TX_TOPO_NIC; k++)
            if (t->devices[k].kind == TX_TOPO_NIC && tx_topo_pair_of(t, i, k)->class_ != TX_TOPO_UNKNOWN &&
                (best < 0 || nearer(t, i, k, best, users)))
                best = k;
        t->devices[i].nic = best;
        if (best >= 0)
            users[best]++;
    }
}

tx_status tx_topo_classify(tx_draft *draft)
{
    tx_topology *t = draft->t;
    const size_t n = (size_t)t->device_count;
    const bool stated = t->origin == TX_TOPO_ORIGIN_PASTED;
    t->pairs = calloc(n * n + 1, sizeof *t->pairs);
    if (!t->pairs)
        return tx_fail(TX_MEMORY, "topology: out of memory for the pairs of %zu devices", n);
    for (int32_t i = 0; i < t->device_count && !stated; i++) {
        const tx_topo_node *place = &t->nodes[place_of(t, t->devices[i].node)];
        t->devices[i].cpus = place->cpus;
        t->devices[i].nodes = place->nodes;
    }
    for (int32_t a = 0; a < t->device_count; a++)
        for (int32_t b = a; b < t->device_count; b++) {
            tx_topo_pair *pair = &t->pairs[(size_t)a * n + (size_t)b], *back = &t->pairs[(size_t)b * n + (size_t)a];
            pair->ancestor = -1;
            set_class(pair, TX_TOPO_UNKNOWN, -1);
            if (a == b)
                set_class(pair, TX_TOPO_SELF, -1);
            else if (!stated)
                classify_pair(t, a, b, pair);
            if (!stated)
                pair->class_source = t->devices[t->devices[a].place == TX_TOPO_FROM_NOWHERE ? b : a].place;
            *back = *pair;
            back->bridges_a = pair->bridges_b;
            back->bridges_b = pair->bridges_a;
        }
    make_note(draft, NOTE_PLACE, true, "The system does not report the NUMA node of %s; SYS between them is a guess",
              place_unknown);
    make_note(draft, NOTE_PACKAGE, false,
              "The PCIe switches inside the packages of %s are counted as bridges, as in nvidia-smi; devices under one "
              "switch of the board show PXB",
              in_package_switch);
    apply_stated(draft);
    if (!draft->status)
        set_nics(t);
    return draft->status;
}
