/* SPDX-License-Identifier: Apache-2.0
 * The tree of txtopo's page: packages side by side, below them NUMA nodes and PCI roots, and the devices where they
 * hang. Bridges that only lead on to one thing share a line with it. */
#include "tools/topology/txtopo.h"

#include <string.h>

/* Without a domain of zeros. */
static const char *short_bus(const char *bus)
{
    return strncmp(bus, "0000:", 5) == 0 ? bus + 5 : bus;
}

/* The only child of a node without devices of its own; -1 where it has several or none. */
static int32_t only_child(const tx_topology *t, int32_t node)
{
    int32_t child = -1;
    for (int32_t i = node + 1; i < t->node_count; i++)
        if (t->nodes[i].parent == node) {
            if (child >= 0)
                return -1;
            child = i;
        }
    for (int32_t i = 0; i < t->device_count; i++)
        if (t->devices[i].node == node)
            return -1;
    return child;
}

/* ---- What hangs at a node -------------------------------------------------------------------------- */

static void print_link(FILE *out, const tx_topo_pcie *l)
{
    const double rate = tx_topo_pcie_rate(l, false);
    const bool narrow = l->width > 0 && l->width<l->width_max, lanes = l->speed> 0 && l->width > 0;
    if (!(rate > 0) && l->width <= 0)
        return;
    tx_html(out, "<span class=\"rate%s\">", narrow ? " narrow" : "");
    if (lanes)
        tx_html(out, "%g GT/s \xc3\x97%d", l->speed, l->width);
    if (narrow)
        tx_html(out, " of \xc3\x97%d", l->width_max);
    if (rate > 0)
        tx_html(out, "%s%.1f GB/s", lanes ? ", " : "", rate);
    fputs("</span>", out);
}

static void print_chip(FILE *out, const tx_topo_device *d)
{
    tx_html(out, "<span class=\"chip %s\">%s</span>", tx_topo_device_names[d->kind], d->label);
}

static void print_name(FILE *out, const tx_topo_device *d)
{
    char memory[TX_TXTOPO_CELL];
    const char *name = *d->name ? d->name : d->kind == TX_TOPO_NIC ? d->system : d->vendor;
    tx_html(out, "<span class=\"name\">%s%s%s</span>", name, d->memory > 0 ? ", " : "",
            tx_txtopo_memory(d->memory, memory));
}

/* Partitions of one function have the same bus id and name: that of the last. */
static void print_devices_at(FILE *out, const tx_topology *t, int32_t node)
{
    const tx_topo_device *last = NULL;
    for (int32_t i = 0; i < t->device_count; i++)
        if (t->devices[i].node == node) {
            last = &t->devices[i];
            print_chip(out, last);
        }
    if (last && *last->bus)
        tx_html(out, "<span class=\"bus\">%s</span>", short_bus(last->bus));
    if (last)
        print_name(out, last);
}

static void print_bridge(FILE *out, const tx_topo_node *node)
{
    const bool root = node->kind == TX_TOPO_HOST_BRIDGE;
    tx_html(out, "<span class=\"bridge\" title=\"%s", root ? "PCI host bridge: the buses of this root" : node->name);
    if (node->vendor_id > 0)
        tx_html(out, " [%04x:%04x]", node->vendor_id, node->device_id);
    if (node->iommu_group >= 0)
        tx_html(out, "\nIOMMU group %d", node->iommu_group);
    tx_html(out, "\">%s%s</span>", root ? "PCI root " : "", short_bus(node->bus));
}

/* ---- PCI -------------------------------------------------------------------------------------------- */

static void print_children(FILE *out, const tx_topology *t, int32_t node);

/* One line: the node, and what it alone leads to; then what hangs below. */
static void print_pci(FILE *out, const tx_topology *t, int32_t node)
{
    const tx_topo_pcie *slowest = NULL;
    fputs("<li><div class=\"line\"><span class=\"what\">", out);
    for (int32_t next = node; next >= 0;) {
        node = next;
        const tx_topo_node *n = &t->nodes[node];
        double rate = tx_topo_pcie_rate(&n->link, false);
        if (rate > 0 && (!slowest || rate < tx_topo_pcie_rate(slowest, false)))
            slowest = &n->link;
        next = only_child(t, node);
        if (n->kind == TX_TOPO_FUNCTION) {
            print_devices_at(out, t, node);
            break;
        }
        print_bridge(out, n);
        if (next < 0)
            tx_html(out, "<span class=\"maker\">%s</span>", n->name);
        else
            fputs("<span class=\"to\">\xe2\x80\xba</span>", out);
    }
    fputs("</span>", out);
    if (slowest)
        print_link(out, slowest);
    fputs("</div>", out);
    print_children(out, t, node);
    fputs("</li>\n", out);
}

/* ---- The CPU's side ------------------------------------------------------------------------------------ */

static void print_numa(FILE *out, const tx_topology *t, int32_t node)
{
    char memory[TX_TXTOPO_CELL];
    for (int32_t i = 0; i < t->numa_count; i++) {
        const tx_topo_numa *numa = &t->numa[i];
        if (numa->node != node)
            continue;
        tx_html(out, "<div class=\"numa\"><b>NUMA node %d</b>", numa->number);
        if (numa->memory > 0)
            tx_html(out, "<span>%s</span>", tx_txtopo_memory(numa->memory, memory));
        if (numa->device >= 0)
            tx_html(out, "<span>memory of %s</span>", t->devices[numa->device].label);
        if (*numa->cpus)
            tx_html(out, "<span>CPUs %s</span>", numa->cpus);
        fputs("</div>\n", out);
    }
}

static bool has_numa(const tx_topology *t, int32_t node)
{
    for (int32_t i = 0; i < t->numa_count; i++)
        if (t->numa[i].node == node)
            return true;
    return false;
}

/* PCI below a node, as a list; below the root with the devices that have no place in PCI. */
static void print_list(FILE *out, const tx_topology *t, int32_t node)
{
    bool list = false;
    for (int32_t i = 0; i < t->device_count && node == 0; i++)
        if (t->devices[i].node == 0) {
            fputs(list ? "" : "<ul>\n", out);
            list = true;
            fputs("<li><div class=\"line\"><span class=\"what\">", out);
            print_chip(out, &t->devices[i]);
            print_name(out, &t->devices[i]);
            fputs("</span></div></li>\n", out);
        }
    for (int32_t i = node + 1; i < t->node_count; i++)
        if (t->nodes[i].parent == node && t->nodes[i].kind >= TX_TOPO_HOST_BRIDGE) {
            fputs(list ? "" : "<ul>\n", out);
            list = true;
            print_pci(out, t, i);
        }
    fputs(list ? "</ul>\n" : "", out);
}

static void print_box(FILE *out, const tx_topology *t, int32_t node)
{
    const tx_topo_node *n = &t->nodes[node];
    const bool memory = has_numa(t, node);
    tx_html(out, "<div class=\"%s\">\n", n->kind == TX_TOPO_PACKAGE ? "package" : "group");
    /* hwloc's groups around a NUMA node have no name of their own. */
    if (strncmp(n->name, "Group", 5) != 0 || !memory) {
        tx_html(out, "<h3>%s", n->name);
        if (*n->cpus && !memory)
            tx_html(out, "<span>CPUs %s</span>", n->cpus);
        fputs("</h3>\n", out);
    }
    print_numa(out, t, node);
    print_children(out, t, node);
    fputs("</div>\n", out);
}

/* What hangs below a node: PCI as a list, then groups as boxes. */
static void print_children(FILE *out, const tx_topology *t, int32_t node)
{
    bool boxes = false;
    print_list(out, t, node);
    for (int32_t i = node + 1; i < t->node_count; i++)
        if (t->nodes[i].parent == node && t->nodes[i].kind < TX_TOPO_HOST_BRIDGE) {
            fputs(boxes ? "" : "<div class=\"groups\">\n", out);
            boxes = true;
            print_box(out, t, i);
        }
    fputs(boxes ? "</div>\n" : "", out);
}

void tx_html_tree(FILE *out, const tx_topology *t)
{
    if (t->origin == TX_TOPO_ORIGIN_PASTED)
        return;
    /* At the root itself: memory that all share, CPU devices, what has no place, PCI roots near all. */
    bool any = has_numa(t, 0);
    for (int32_t i = 0; i < t->device_count; i++)
        any = any || t->devices[i].node == 0;
    for (int32_t i = 1; i < t->node_count; i++)
        any = any || (t->nodes[i].parent == 0 && t->nodes[i].kind >= TX_TOPO_HOST_BRIDGE);
    fputs("<section>\n<h2>Where they hang</h2>\n<div class=\"tree\">\n", out);
    if (any) {
        fputs("<div class=\"package\">\n<h3>Host</h3>\n", out);
        print_numa(out, t, 0);
        print_list(out, t, 0);
        fputs("</div>\n", out);
    }
    for (int32_t i = 1; i < t->node_count; i++)
        if (t->nodes[i].parent == 0 && t->nodes[i].kind < TX_TOPO_HOST_BRIDGE)
            print_box(out, t, i);
    fputs("</div>\n</section>\n", out);
}
