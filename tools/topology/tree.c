/* SPDX-License-Identifier: Apache-2.0
 * The tree of txtopo's page: packages side by side, below them NUMA nodes and PCI roots, and the devices where they
 * hang. Bridges that only lead on to one thing share a line with it. */
#include "tools/topology/html.h"

#include <inttypes.h>
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
    double rate = tx_topo_pcie_rate(l, false);
    bool narrow = l->width > 0 && l->width < l->width_max;
    if (!(rate > 0) && l->width <= 0)
        return;
    fprintf(out, "<span class=\"rate%s\">", narrow ? " narrow" : "");
    if (l->speed > 0 && l->width > 0)
        fprintf(out, "%g GT/s \xc3\x97%" PRId32, l->speed, l->width);
    if (narrow)
        fprintf(out, " of \xc3\x97%" PRId32, l->width_max);
    if (rate > 0)
        fprintf(out, "%s%.1f GB/s", l->speed > 0 && l->width > 0 ? ", " : "", rate);
    fputs("</span>", out);
}

static void print_devices_at(FILE *out, const tx_topology *t, int32_t node)
{
    char memory[32];
    bool named = false;
    for (int32_t i = 0; i < t->device_count; i++)
        if (t->devices[i].node == node)
            fprintf(out, "<span class=\"chip %s\">%s</span>", tx_topo_device_name(t->devices[i].kind),
                    t->devices[i].label);
    for (int32_t i = 0; i < t->device_count && !named; i++) {
        const tx_topo_device *d = &t->devices[i];
        if (d->node != node)
            continue;
        named = true; /* partitions of one function have the same name */
        if (*d->bus)
            fprintf(out, "<span class=\"bus\">%s</span>", short_bus(d->bus));
        fputs("<span class=\"name\">", out);
        tx_html_text(out, *d->name ? d->name : d->kind == TX_TOPO_NIC ? d->system : d->vendor);
        if (d->memory > 0)
            fprintf(out, ", %s", tx_html_memory(d->memory, memory));
        fputs("</span>", out);
    }
}

static void print_bridge(FILE *out, const tx_topo_node *node)
{
    fputs("<span class=\"bridge\" title=\"", out);
    tx_html_text(out, node->kind == TX_TOPO_HOST_BRIDGE ? "PCI host bridge: the buses of this root" : node->name);
    if (node->vendor_id > 0)
        fprintf(out, " [%04x:%04x]", (unsigned)node->vendor_id, (unsigned)node->device_id);
    if (node->iommu_group >= 0)
        fprintf(out, "\nIOMMU group %" PRId32, node->iommu_group);
    fprintf(out, "\">%s%s</span>", node->kind == TX_TOPO_HOST_BRIDGE ? "PCI root " : "", short_bus(node->bus));
}

/* ---- PCI -------------------------------------------------------------------------------------------- */

static void print_children(FILE *out, const tx_topology *t, int32_t node);

/* One line: the node, and what it alone leads to; then what hangs below. */
static void print_pci(FILE *out, const tx_topology *t, int32_t node)
{
    const tx_topo_pcie *slowest = NULL;
    fputs("<li><div class=\"line\"><span class=\"what\">", out);
    for (;;) {
        const tx_topo_node *n = &t->nodes[node];
        double rate = tx_topo_pcie_rate(&n->link, false);
        if (rate > 0 && (!slowest || rate < tx_topo_pcie_rate(slowest, false)))
            slowest = &n->link;
        if (n->kind == TX_TOPO_FUNCTION) {
            print_devices_at(out, t, node);
            break;
        }
        print_bridge(out, n);
        int32_t next = only_child(t, node);
        if (next < 0) {
            fputs("<span class=\"maker\">", out);
            tx_html_text(out, n->name);
            fputs("</span>", out);
            break;
        }
        fputs("<span class=\"to\">\xe2\x80\xba</span>", out);
        node = next;
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
    char memory[32];
    for (int32_t i = 0; i < t->numa_count; i++) {
        const tx_topo_numa *numa = &t->numa[i];
        if (numa->node != node)
            continue;
        fprintf(out, "<div class=\"numa\"><b>NUMA node %" PRId32 "</b>", numa->number);
        if (numa->memory > 0)
            fprintf(out, "<span>%s</span>", tx_html_memory(numa->memory, memory));
        if (numa->device >= 0)
            fprintf(out, "<span>memory of %s</span>", t->devices[numa->device].label);
        if (*numa->cpus)
            fprintf(out, "<span>CPUs %s</span>", numa->cpus);
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

static void print_box(FILE *out, const tx_topology *t, int32_t node)
{
    const tx_topo_node *n = &t->nodes[node];
    bool package = n->kind == TX_TOPO_PACKAGE;
    fprintf(out, "<div class=\"%s\">\n", package ? "package" : "group");
    /* hwloc's groups around a NUMA node have no name of their own. */
    if (strncmp(n->name, "Group", 5) != 0 || !has_numa(t, node)) {
        fputs("<h3>", out);
        tx_html_text(out, n->name);
        if (*n->cpus && !has_numa(t, node))
            fprintf(out, "<span>CPUs %s</span>", n->cpus);
        fputs("</h3>\n", out);
    }
    print_numa(out, t, node);
    print_children(out, t, node);
    fputs("</div>\n", out);
}

/* What hangs below a node: PCI as a list, then groups as boxes. */
static void print_children(FILE *out, const tx_topology *t, int32_t node)
{
    bool list = false;
    for (int32_t i = node + 1; i < t->node_count; i++)
        if (t->nodes[i].parent == node && t->nodes[i].kind >= TX_TOPO_HOST_BRIDGE) {
            fputs(list ? "" : "<ul>\n", out);
            list = true;
            print_pci(out, t, i);
        }
    fputs(list ? "</ul>\n" : "", out);
    bool boxes = false;
    for (int32_t i = node + 1; i < t->node_count; i++)
        if (t->nodes[i].parent == node && t->nodes[i].kind < TX_TOPO_HOST_BRIDGE) {
            fputs(boxes ? "" : "<div class=\"groups\">\n", out);
            boxes = true;
            print_box(out, t, i);
        }
    fputs(boxes ? "</div>\n" : "", out);
}

/* What hangs at the root itself: memory that all share, CPU devices, what has no place, PCI roots near all. */
static void print_host(FILE *out, const tx_topology *t)
{
    bool any = has_numa(t, 0);
    for (int32_t i = 0; i < t->device_count; i++)
        any = any || t->devices[i].node == 0;
    for (int32_t i = 1; i < t->node_count; i++)
        any = any || (t->nodes[i].parent == 0 && t->nodes[i].kind >= TX_TOPO_HOST_BRIDGE);
    if (!any)
        return;
    fputs("<div class=\"package\">\n<h3>Host</h3>\n", out);
    print_numa(out, t, 0);
    fputs("<ul>\n", out);
    for (int32_t i = 0; i < t->device_count; i++) {
        const tx_topo_device *d = &t->devices[i];
        char memory[32];
        if (d->node != 0)
            continue;
        fprintf(out,
                "<li><div class=\"line\"><span class=\"what\"><span class=\"chip %s\">%s</span><span class=\"name\">",
                tx_topo_device_name(d->kind), d->label);
        tx_html_text(out, *d->name ? d->name : d->vendor);
        if (d->memory > 0)
            fprintf(out, ", %s", tx_html_memory(d->memory, memory));
        fputs("</span></span></div></li>\n", out);
    }
    for (int32_t i = 1; i < t->node_count; i++)
        if (t->nodes[i].parent == 0 && t->nodes[i].kind >= TX_TOPO_HOST_BRIDGE)
            print_pci(out, t, i);
    fputs("</ul>\n</div>\n", out);
}

void tx_html_tree(FILE *out, const tx_topology *t)
{
    if (t->origin == TX_TOPO_ORIGIN_PASTED)
        return;
    fputs("<section>\n<h2>Where they hang</h2>\n<div class=\"tree\">\n", out);
    print_host(out, t);
    for (int32_t i = 1; i < t->node_count; i++)
        if (t->nodes[i].parent == 0 && t->nodes[i].kind < TX_TOPO_HOST_BRIDGE)
            print_box(out, t, i);
    fputs("</div>\n</section>\n", out);
}
