/* SPDX-License-Identifier: Apache-2.0
 * Prints the tree with one line per node, indented by its depth. Input files may nest to any depth, so it does not
 * recurse. */
#include "tools/topology/txtopo.h"

#include <inttypes.h>

enum { DEPTH_MOST = 40 }; /* the largest indentation */

/* Returns the next child of `parent` after node `last`, or -1. */
static int32_t child_after(const tx_topology *t, int32_t parent, int32_t last)
{
    for (int32_t i = last + 1; i < t->node_count; i++)
        if (t->nodes[i].parent == parent)
            return i;
    return -1;
}

/* Prints ", 8 GT/s x8 of at most 16 GT/s x16, 7.9 GB/s", without unknown parts. */
static void print_link(FILE *out, const tx_topo_pcie *l)
{
    const double rate = tx_topo_pcie_rate(l, false);
    if (l->speed > 0 && l->width > 0)
        fprintf(out, ", %g GT/s x%" PRId32, l->speed, l->width);
    if (l->speed_max > l->speed || l->width_max > l->width)
        fprintf(out, " of at most %g GT/s x%" PRId32, l->speed_max, l->width_max);
    if (rate > 0)
        fprintf(out, ", %.1f GB/s", rate);
}

static void print_device(FILE *out, const tx_topo_device *d)
{
    char room[TX_TXTOPO_CELL];
    const char *name = *d->name ? d->name : d->kind == TX_TOPO_NIC ? d->system : d->vendor;
    const char *memory = tx_txtopo_memory(d->memory, room);
    fprintf(out, "%s%s%s%s%s", d->label, *name ? " " : "", name, *memory ? ", " : "", memory);
}

static void print_set(FILE *out, const char *what, const char *set)
{
    if (*set)
        fprintf(out, ", %s %s", what, set);
}

static void print_node(FILE *out, const tx_topology *t, int32_t node, int32_t depth)
{
    const tx_topo_node *n = &t->nodes[node];
    const int indent = 2 * (depth < DEPTH_MOST ? depth : DEPTH_MOST);
    const char *name = *n->name ? n->name : tx_topo_node_names[n->kind];
    const bool function = n->kind == TX_TOPO_FUNCTION;
    fprintf(out, "%*s%s%s%s", indent, "", n->bus, *n->bus && !function ? " " : "", function ? "" : name);
    for (int32_t i = 0; i < t->device_count && function; i++)
        if (t->devices[i].node == node) {
            fputs("  ", out);
            print_device(out, &t->devices[i]);
        }
    print_link(out, &n->link);
    if (n->iommu_group >= 0)
        fprintf(out, ", IOMMU group %" PRId32, n->iommu_group);
    print_set(out, "CPUs", n->cpus);
    print_set(out, "NUMA nodes", n->nodes);
    fputc('\n', out);
    for (int32_t i = 0; i < t->device_count && !function; i++)
        if (t->devices[i].node == node) { /* devices without a PCI function */
            fprintf(out, "%*s", indent + 2, "");
            print_device(out, &t->devices[i]);
            fputc('\n', out);
        }
}

void tx_txtopo_tree(FILE *out, const tx_topology *t)
{
    int32_t depth = 0;
    for (int32_t node = 0; node >= 0;) {
        print_node(out, t, node, depth);
        int32_t next = child_after(t, node, node); /* the array has parents before children */
        depth += next >= 0;
        while (next < 0 && node > 0) {
            next = child_after(t, t->nodes[node].parent, node);
            node = t->nodes[node].parent;
            depth -= next < 0;
        }
        node = next;
    }
}
