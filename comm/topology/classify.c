/* SPDX-License-Identifier: Apache-2.0
 * How each two devices are tied together, read off the tree, as NVIDIA's classes are defined; which cores, memory and
 * NIC are near a device. */
#include "comm/topology/draft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The tree --------------------------------------------------------------------------------- */

/* Parents have lower indices, so the higher of two nodes is never above the other. */
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

/* The nearest node of the CPU's side. */
static int32_t place_of(const tx_topology *t, int32_t node)
{
    while (t->nodes[node].kind >= TX_TOPO_HOST_BRIDGE)
        node = t->nodes[node].parent;
    return node;
}

/* Bridges strictly between a node and one above it. */
static int32_t bridges_below(const tx_topology *t, int32_t node, int32_t above)
{
    int32_t count = 0;
    if (node == above)
        return 0;
    for (int32_t i = t->nodes[node].parent; i != above; i = t->nodes[i].parent)
        count += t->nodes[i].kind == TX_TOPO_BRIDGE;
    return count;
}

static int32_t cpu_numa_count(const tx_topology *t)
{
    int32_t count = 0;
    for (int32_t i = 0; i < t->numa_count; i++)
        count += t->numa[i].device < 0;
    return count;
}

/* Whether a set is one number. */
static bool single(const char *set)
{
    return *set && strcspn(set, ",-") == strlen(set);
}

/* ---- Classes ------------------------------------------------------------------------------------ */

/* Notes that pairs share, made at the end where some pair has one: the system tells no place; bridges inside packages
 * were counted. */
enum { NOTE_PLACE = -2, NOTE_PACKAGE = -3 };

typedef struct rules {
    const tx_topology *t;
    bool many_nodes; /* several NUMA nodes of CPUs */
} rules;

/* Switches that AMD builds into the packages of its GPUs. */
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

static void set_class(tx_topo_pair *pair, tx_topo_class value, tx_topo_confidence confidence, int32_t note)
{
    pair->class_ = value;
    pair->class_confidence = confidence;
    pair->note = note;
}

/* Two PCI functions whose ways meet on the CPU's side. */
static void classify_through_cpu(const rules *r, int32_t a, int32_t b, tx_topo_pair *pair)
{
    int32_t place_a = place_of(r->t, a), place_b = place_of(r->t, b);
    if (r->many_nodes && (place_a == 0 || place_b == 0))
        set_class(pair, TX_TOPO_SYS, TX_TOPO_GUESSED, NOTE_PLACE);
    else if (place_a == place_b)
        set_class(pair, TX_TOPO_NODE, TX_TOPO_DERIVED, -1);
    else {
        const char *nodes = r->t->nodes[place_a].nodes;
        bool same = single(nodes) && strcmp(nodes, r->t->nodes[place_b].nodes) == 0;
        set_class(pair, same ? TX_TOPO_NODE : TX_TOPO_SYS, TX_TOPO_DERIVED, -1);
    }
}

/* Two PCI functions. */
static void classify_functions(const rules *r, int32_t a, int32_t b, tx_topo_pair *pair)
{
    const tx_topology *t = r->t;
    uint64_t key_a = 0, key_b = 1 << 8;
    int32_t ancestor = common_ancestor(t, a, b);
    pair->ancestor = ancestor;
    pair->bridges_a = bridges_below(t, a, ancestor);
    pair->bridges_b = bridges_below(t, b, ancestor);
    bool keys = tx_topo_bus_parse(t->nodes[a].bus, &key_a) && tx_topo_bus_parse(t->nodes[b].bus, &key_b);
    if (a == b)
        set_class(pair, TX_TOPO_LOC, TX_TOPO_DERIVED, -1);
    else if (keys && key_a >> 3 == key_b >> 3) /* functions of one card */
        set_class(pair, TX_TOPO_PIX, TX_TOPO_DERIVED, -1);
    else if (t->nodes[ancestor].kind == TX_TOPO_HOST_BRIDGE)
        set_class(pair, TX_TOPO_PHB, TX_TOPO_DERIVED, -1);
    else if (t->nodes[ancestor].kind == TX_TOPO_BRIDGE) {
        bool near = pair->bridges_a <= 1 && pair->bridges_b <= 1;
        bool inside = crosses_package_bridge(t, a, ancestor) || crosses_package_bridge(t, b, ancestor);
        set_class(pair, near ? TX_TOPO_PIX : TX_TOPO_PXB, TX_TOPO_DERIVED, !near && inside ? NOTE_PACKAGE : -1);
    } else
        classify_through_cpu(r, a, b, pair);
}

static void classify_pair(const rules *r, int32_t a, int32_t b, tx_topo_pair *pair)
{
    const tx_topology *t = r->t;
    const tx_topo_device *da = &t->devices[a], *db = &t->devices[b];
    bool placed_a = t->nodes[da->node].kind == TX_TOPO_FUNCTION;
    bool placed_b = t->nodes[db->node].kind == TX_TOPO_FUNCTION;
    pair->class_source = da->place == TX_TOPO_FROM_NOWHERE ? db->place : da->place;
    if (a == b)
        set_class(pair, TX_TOPO_SELF, TX_TOPO_STATED, -1);
    else if (da->kind == TX_TOPO_CPU || db->kind == TX_TOPO_CPU)
        set_class(pair, da->kind == db->kind ? TX_TOPO_LOC : TX_TOPO_HOST, TX_TOPO_DERIVED, -1);
    else if (placed_a && placed_b)
        classify_functions(r, da->node, db->node, pair);
    else
        set_class(pair, TX_TOPO_SYS, TX_TOPO_GUESSED, placed_a ? db->note : da->note);
    const tx_topo_device *guessed = da->confidence == TX_TOPO_GUESSED ? da : db;
    if (a != b && guessed->confidence == TX_TOPO_GUESSED && pair->class_ != TX_TOPO_HOST) {
        pair->class_confidence = TX_TOPO_GUESSED;
        pair->note = guessed->note >= 0 ? guessed->note : pair->note;
    }
}

/* The names of the devices that `wanted` holds for, in a sentence of at most `size` bytes. */
static void list_devices(const tx_topology *t, bool (*wanted)(const tx_topology *, const tx_topo_device *), char *text,
                         size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < t->device_count; i++) {
        if (!wanted(t, &t->devices[i]))
            continue;
        if (used + sizeof t->devices[i].label + 8 < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", t->devices[i].label);
        else if (text[used - 1] != '.')
            used += (size_t)snprintf(text + used, size - used, ", ...");
    }
}

static bool place_unknown(const tx_topology *t, const tx_topo_device *d)
{
    return t->nodes[d->node].kind == TX_TOPO_FUNCTION && place_of(t, d->node) == 0;
}

static bool in_package_switch(const tx_topology *t, const tx_topo_device *d)
{
    return t->nodes[d->node].kind == TX_TOPO_FUNCTION && crosses_package_bridge(t, d->node, 0);
}

/* Makes the note that `mark` stands for, where some pair has it. */
static void make_note(tx_draft *draft, int32_t mark)
{
    const tx_topology *t = draft->t;
    int32_t note = -1;
    char names[256];
    for (int64_t i = 0; i < (int64_t)t->device_count * t->device_count; i++) {
        if (t->pairs[i].note != mark)
            continue;
        if (note < 0 && mark == NOTE_PLACE) {
            list_devices(t, place_unknown, names, sizeof names);
            note = tx_draft_note(draft, true,
                                 "The system does not say which NUMA node is near %s: SYS between them is "
                                 "a guess",
                                 names);
        } else if (note < 0) {
            list_devices(t, in_package_switch, names, sizeof names);
            note = tx_draft_note(draft, false,
                                 "The PCIe switches inside the packages of %s are counted as nvidia-smi counts "
                                 "bridges: under one switch of the board such devices show PXB",
                                 names);
        }
        t->pairs[i].note = note;
    }
}

/* The other direction of a pair. */
static tx_topo_pair reversed(const tx_topo_pair *pair)
{
    tx_topo_pair other = *pair;
    other.bridges_a = pair->bridges_b;
    other.bridges_b = pair->bridges_a;
    return other;
}

/* ---- What sources state ---------------------------------------------------------------------------- */

/* Whether a source says more about a pair's links than what was said before. What hwloc's distances tell is coarser
 * than what a driver does. */
static bool says_more(const tx_topo_pair *pair, const tx_draft_link *link)
{
    if (pair->link == TX_TOPO_NO_LINK)
        return true;
    if (pair->link == TX_TOPO_LINK_UNKNOWN || link->kind == TX_TOPO_LINK_UNKNOWN)
        return link->kind != TX_TOPO_LINK_UNKNOWN;
    if (pair->link_source == TX_TOPO_FROM_DISTANCES && link->source != TX_TOPO_FROM_DISTANCES)
        return true;
    return pair->links == 0 && (link->links > 0 || (link->indirect && !pair->indirect));
}

static void apply_link(tx_topo_pair *pair, const tx_draft_link *link)
{
    if (pair->class_ == TX_TOPO_LOC || pair->class_ == TX_TOPO_SELF || !says_more(pair, link))
        return;
    pair->link = link->kind;
    pair->links = link->links;
    pair->indirect = link->indirect;
    pair->link_rate = link->rate;
    pair->link_source = link->source;
    pair->link_confidence = link->confidence;
    if (link->note >= 0)
        pair->note = link->note;
}

/* A driver's word goes before what the tree tells; where they differ a note says so. */
static void apply_class(tx_draft *draft, const tx_draft_class *stated, tx_topo_pair *pair)
{
    const tx_topology *t = draft->t;
    int32_t note = stated->note;
    if (stated->source != TX_TOPO_FROM_MATRIX && stated->value != pair->class_) {
        int32_t a = stated->a < stated->b ? stated->a : stated->b, b = stated->a < stated->b ? stated->b : stated->a;
        note = tx_draft_note(draft, true, "%s says %s of %s and %s, where the PCI tree says %s",
                             tx_topo_source_name(stated->source), tx_topo_class_name(stated->value),
                             t->devices[a].label, t->devices[b].label, tx_topo_class_name(pair->class_));
    }
    set_class(pair, stated->value, stated->value == TX_TOPO_UNKNOWN ? TX_TOPO_UNSURE : TX_TOPO_STATED, note);
    pair->class_source = stated->source;
}

static void apply_stated(tx_draft *draft)
{
    const int64_t n = draft->t->device_count;
    tx_topo_pair *pairs = draft->t->pairs;
    for (int32_t i = 0; i < draft->class_count; i++)
        apply_class(draft, &draft->classes[i], &pairs[draft->classes[i].a * n + draft->classes[i].b]);
    for (int32_t i = 0; i < draft->link_count; i++) {
        apply_link(&pairs[draft->links[i].a * n + draft->links[i].b], &draft->links[i]);
        apply_link(&pairs[draft->links[i].b * n + draft->links[i].a], &draft->links[i]);
    }
    for (int32_t i = 0; i < draft->p2p_count; i++)
        pairs[draft->p2p[i].a * n + draft->p2p[i].b].p2p[draft->p2p[i].access] = draft->p2p[i].value;
}

/* ---- What is near ------------------------------------------------------------------------------------ */

static void set_affinity(tx_topology *t)
{
    for (int32_t i = 0; i < t->device_count; i++) {
        const tx_topo_node *place = &t->nodes[place_of(t, t->devices[i].node)];
        t->devices[i].cpus = place->cpus;
        t->devices[i].nodes = place->nodes;
    }
}

/* Each GPU's nearest NIC; of several equally near the one that fewest GPUs have. */
static tx_status set_nics(tx_topology *t)
{
    int32_t *users = calloc((size_t)t->device_count + 1, sizeof *users);
    if (!users)
        return tx_fail(TX_MEMORY, "topology: out of memory");
    for (int32_t i = 0; i < t->device_count; i++) {
        int32_t best = -1;
        for (int32_t k = 0; k < t->device_count && t->devices[i].kind != TX_TOPO_NIC; k++) {
            if (t->devices[k].kind != TX_TOPO_NIC || tx_topo_pair_of(t, i, k)->class_ == TX_TOPO_UNKNOWN)
                continue;
            const tx_topo_pair *pair = tx_topo_pair_of(t, i, k), *old = best < 0 ? NULL : tx_topo_pair_of(t, i, best);
            int32_t bridges = pair->bridges_a + pair->bridges_b;
            int32_t old_bridges = old ? old->bridges_a + old->bridges_b : 0;
            bool nearer = !old || pair->class_ < old->class_ || (pair->class_ == old->class_ && bridges < old_bridges);
            bool equal = old && pair->class_ == old->class_ && bridges == old_bridges;
            if (nearer || (equal && users[k] < users[best]))
                best = k;
        }
        t->devices[i].nic = best;
        if (best >= 0)
            users[best]++;
    }
    free(users);
    return TX_OK;
}

tx_status tx_topo_classify(tx_draft *draft)
{
    tx_topology *t = draft->t;
    rules r = {.t = t, .many_nodes = cpu_numa_count(t) > 1};
    size_t n = (size_t)t->device_count;
    t->pairs = calloc(n * n + 1, sizeof *t->pairs);
    if (!t->pairs)
        return tx_fail(TX_MEMORY, "topology: out of memory for the pairs of %zu devices", n);
    bool stated = t->origin == TX_TOPO_ORIGIN_PASTED;
    if (!stated)
        set_affinity(t);
    for (int32_t a = 0; a < t->device_count; a++)
        for (int32_t b = a; b < t->device_count; b++) {
            tx_topo_pair *pair = &t->pairs[(size_t)a * n + (size_t)b];
            *pair = (tx_topo_pair){.ancestor = -1, .note = -1, .class_ = TX_TOPO_UNKNOWN};
            pair->class_confidence = TX_TOPO_UNSURE;
            if (!stated)
                classify_pair(&r, a, b, pair);
            else if (a == b)
                set_class(pair, TX_TOPO_SELF, TX_TOPO_STATED, -1);
            t->pairs[(size_t)b * n + (size_t)a] = reversed(pair);
        }
    make_note(draft, NOTE_PLACE);
    make_note(draft, NOTE_PACKAGE);
    apply_stated(draft);
    return draft->status ? draft->status : set_nics(t);
}
