/* SPDX-License-Identifier: Apache-2.0
 * The way between two devices in words: what it crosses, what limits it, and the all-reduce to expect. */
#include "comm/topology/rates.h"
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct way {
    const tx_topology *t;
    int32_t a, b;
    const tx_topo_pair *pair;
    int32_t *path, count;
    int32_t top; /* place of the common ancestor in the path */
} way;

static const tx_topo_device *device(const way *w, int32_t index)
{
    return &w->t->devices[index];
}

/* ---- The two ------------------------------------------------------------------------------------ */

static void print_device(FILE *out, const tx_topo_device *d)
{
    bool named = strncmp(d->name, d->vendor, strlen(d->vendor)) == 0; /* "NVIDIA A100" needs no "NVIDIA" */
    const char *words[] = {d->bus, named ? "" : d->vendor, d->name};
    fprintf(out, "%-6s", d->label);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (*words[i])
            fprintf(out, "  %s", words[i]);
    if (d->kind == TX_TOPO_NIC && *d->system)
        fprintf(out, "  %s", d->system);
    fputc('\n', out);
}

/* The legend up to its ";", in which "# " becomes the number of links; where that is not known it goes. */
static void print_link_legend(FILE *out, const tx_topo_pair *pair)
{
    const char *legend = tx_topo_link_legends[pair->link];
    const int length = (int)strcspn(legend, ";"), before = (int)strcspn(legend, "#");
    if (before >= length)
        fprintf(out, "%.*s", length, legend);
    else if (pair->links > 0)
        fprintf(out, "%.*s%" PRId32 "%.*s", before, legend, pair->links, length - before - 1, legend + before + 1);
    else
        fprintf(out, "%.*s%.*s, their number not known", before, legend, length - before - 2, legend + before + 2);
}

static void print_class(FILE *out, const way *w)
{
    char cell[16];
    const tx_topo_pair *p = w->pair;
    const bool told = p->class_source != TX_TOPO_FROM_NOWHERE;
    fputc('\n', out);
    if (p->link != TX_TOPO_NO_LINK) {
        fprintf(out, "%-4s  ", tx_topo_cell(w->t, w->a, w->b, true, cell));
        print_link_legend(out, p);
        fputs(p->indirect ? ", through another device" : p->switched ? ", through switches" : "", out);
        if (p->link_rate > 0)
            fprintf(out, ", %.1f GB/s one way", p->link_rate);
        fprintf(out, " (%s by %s)\n", tx_topo_confidence_names[p->link_confidence],
                tx_topo_source_names[p->link_source]);
    }
    fprintf(out, "%-4s  %s (%s%s%s)\n", tx_topo_class_names[p->class_], tx_topo_class_legends[p->class_],
            tx_topo_confidence_names[p->class_confidence], told ? " by " : "",
            told ? tx_topo_source_names[p->class_source] : "");
    if (p->note >= 0)
        fprintf(out, "      %s.\n", w->t->notes[p->note].text);
}

/* ---- The way -------------------------------------------------------------------------------------- */

/* "8 GT/s x16, 15.8 GB/s"; as much of it as is known. */
static void print_lanes(FILE *out, double speed, int32_t width, double rate)
{
    const bool lanes = speed > 0 || width > 0;
    if (speed > 0)
        fprintf(out, "%g GT/s", speed);
    else if (lanes)
        fputs("? GT/s", out);
    if (width > 0)
        fprintf(out, " x%" PRId32, width);
    else if (lanes)
        fputs(" x?", out);
    if (rate > 0)
        fprintf(out, "%s%.1f GB/s", lanes ? ", " : "", rate);
}

static void print_link(FILE *out, const tx_topo_node *node)
{
    const tx_topo_pcie *l = &node->link;
    const double rate = tx_topo_pcie_rate(l, false);
    if (l->speed > 0 || l->width > 0 || rate > 0)
        print_lanes(out, l->speed, l->width, rate);
    else
        fputs("speed and width not known", out);
    if (l->speed_max > 0 || l->width_max > 0) {
        fputs(", at most ", out);
        print_lanes(out, l->speed_max, l->width_max, tx_topo_pcie_rate(l, true));
    }
    if (node->iommu_group >= 0)
        fprintf(out, ", IOMMU group %" PRId32, node->iommu_group);
}

static void node_text(const way *w, int32_t place, char text[128])
{
    const tx_topo_node *node = &w->t->nodes[w->path[place]];
    const char *name = node->name;
    bool first = place == 0, last = place == w->count - 1;
    if (first || last)
        snprintf(text, 128, "%s", device(w, first ? w->a : w->b)->label);
    else if (node->kind == TX_TOPO_HOST_BRIDGE)
        snprintf(text, 128, "host bridge");
    else if (node->kind == TX_TOPO_BRIDGE)
        snprintf(text, 128, "%s%s%s", name, *name ? " " : "", strstr(name, "ridge") ? "" : "bridge");
    else if (node->kind == TX_TOPO_MACHINE)
        snprintf(text, 128, "machine");
    else
        snprintf(text, 128, "%s", name);
}

static void print_way(FILE *out, const way *w)
{
    char text[128];
    int wide = 0;
    if (w->count < 2)
        return;
    for (int32_t i = 0; i < w->count; i++) {
        node_text(w, i, text);
        wide = (int)strlen(text) > wide ? (int)strlen(text) : wide;
    }
    fputs("\nThe way through PCI, each line with the link above it:\n\n", out);
    for (int32_t i = 0; i < w->count; i++) {
        const tx_topo_node *node = &w->t->nodes[w->path[i]];
        node_text(w, i, text);
        bool link = i != w->top && node->kind >= TX_TOPO_BRIDGE,
             numa = node->kind < TX_TOPO_HOST_BRIDGE && *node->nodes;
        fprintf(out, "  %-4s  %-13s  ", i < w->top ? "up" : i > w->top ? "down" : "top", node->bus);
        fprintf(out, "%-*s", link || numa || i == w->top ? wide + 2 : 0, text);
        if (i == w->top)
            fputs("both ways meet here", out);
        else if (link)
            print_link(out, node);
        else if (numa)
            fprintf(out, "NUMA node%s %s", strcspn(node->nodes, ",-") < strlen(node->nodes) ? "s" : "", node->nodes);
        fputc('\n', out);
    }
    fprintf(out, "\nBridges between: %" PRId32 " on the side of %s, %" PRId32 " on the side of %s.\n",
            w->pair->bridges_a, device(w, w->a)->label, w->pair->bridges_b, device(w, w->b)->label);
}

static void print_places(FILE *out, const way *w)
{
    const tx_topo_device *a = device(w, w->a), *b = device(w, w->b);
    int32_t first = w->t->nodes[a->node].iommu_group, second = w->t->nodes[b->node].iommu_group;
    if (strcmp(a->nodes, b->nodes) == 0)
        fprintf(out, "NUMA node: %s for both.\n", *a->nodes ? a->nodes : "not known");
    else
        fprintf(out, "NUMA nodes: %s at %s, %s at %s.\n", a->label, *a->nodes ? a->nodes : "?", b->label,
                *b->nodes ? b->nodes : "?");
    if (w->count < 2 || w->pair->class_ == TX_TOPO_HOST)
        return;
    if (first < 0 || second < 0)
        fputs("IOMMU groups: not known; ACS may redirect peer-to-peer transfers.\n", out);
    else if (first == second)
        fprintf(out, "IOMMU group: %" PRId32 " for both, so nothing keeps them apart.\n", first);
    else
        fprintf(out, "IOMMU groups: %" PRId32 " and %" PRId32 "%s.\n", first, second,
                w->pair->class_ == TX_TOPO_PIX || w->pair->class_ == TX_TOPO_PXB
                    ? ": ACS may send what goes between them up to the CPU instead of across the switch"
                    : "");
}

/* ---- What limits it -------------------------------------------------------------------------------- */

static void print_limit(FILE *out, const way *w, const tx_topo_rate *rate)
{
    static const char *const texts[] = {
        [TX_TOPO_LIMIT_UNKNOWN] = "not known: the rate of a part of the way is not told",
        [TX_TOPO_LIMIT_NONE] = "no link: both are in one chip, or one of them is the host",
        [TX_TOPO_LIMIT_LINKS] = "the direct links",
        [TX_TOPO_LIMIT_PCIE] = "the PCIe link of ",
        [TX_TOPO_LIMIT_NUMA] = "the interconnect between NUMA nodes"};
    fprintf(out, "\nWhat limits it: %s%s", texts[rate->limit],
            rate->limit == TX_TOPO_LIMIT_PCIE ? w->t->nodes[rate->node].bus : "");
    if (rate->rate > 0)
        fprintf(out, ", about %.1f GB/s one way", rate->rate);
    if (rate->limit == TX_TOPO_LIMIT_LINKS && w->pair->links > 0)
        fprintf(out, " (%" PRId32 " of %.1f GB/s)", w->pair->links, rate->rate / w->pair->links);
    else if (rate->limit == TX_TOPO_LIMIT_LINKS)
        fputs(" if there is one", out);
    fputs(".\n", out);
}

/* What a link below its maximum means: the slot has no more, or the link did not come up with all of it. */
static void print_advice(FILE *out, const way *w)
{
    for (int32_t i = 0; i < w->count; i++) {
        const tx_topo_node *node = &w->t->nodes[w->path[i]];
        if (i == w->top || node->kind < TX_TOPO_BRIDGE)
            continue;
        const tx_topo_pcie *l = &node->link, *above = &w->t->nodes[node->parent].link;
        if (l->width > 0 && l->width < l->width_max)
            fprintf(out, "  %s has %" PRId32 " of the %" PRId32 " lanes that it could have: %s.\n", node->bus, l->width,
                    l->width_max,
                    above->width_max > 0 && above->width_max < l->width_max
                        ? "what it is plugged into has no more; a wider slot would help"
                        : "look at its slot, riser and cables, and at the firmware's settings of lanes");
        if (l->speed > 0 && l->speed < l->speed_max)
            fprintf(out, "  %s runs at %g of %g GT/s: %s.\n", node->bus, l->speed, l->speed_max,
                    above->speed_max > 0 && above->speed_max < l->speed_max
                        ? "what it is plugged into is no faster"
                        : "idle links do, to save power; look again under load");
    }
}

/* ---- All-reduce --------------------------------------------------------------------------------------- */

static void print_ring(FILE *out, const way *w, const int32_t *devices, int32_t count, const char *who)
{
    int32_t slowest[2];
    tx_topo_rate rate = tx_topo_ring_rate(w->t, devices, count, slowest);
    if (!(rate.rate > 0)) {
        fprintf(out, "  %s: no rate is known to reckon with", who);
        if (rate.limit == TX_TOPO_LIMIT_UNKNOWN && count > 2)
            fprintf(out, " between %s and %s", device(w, slowest[0])->label, device(w, slowest[1])->label);
        fputs(".\n", out);
        return;
    }
    double seconds = tx_topo_allreduce_seconds(1e9, count, rate.rate);
    fprintf(out, "  %s: %.4g B over %.1f GB/s", who, 2.0 * (count - 1) / count, rate.rate);
    if (count > 2)
        fprintf(out, " (%s-%s)", device(w, slowest[0])->label, device(w, slowest[1])->label);
    fprintf(out, ": 1 GB in %.1f ms, %.1f GB/s.\n", seconds * 1e3, 1 / seconds);
}

static void print_allreduce(FILE *out, const way *w)
{
    char who[64];
    int32_t all[TX_TOPO_DEVICES_MAX], count = 0;
    if (device(w, w->a)->kind != TX_TOPO_GPU || device(w, w->b)->kind != TX_TOPO_GPU)
        return;
    for (int32_t i = 0; i < w->t->device_count; i++)
        if (w->t->devices[i].kind == TX_TOPO_GPU)
            all[count++] = i;
    fputs("\nAll-reduce of B bytes among N ranks, as a ring: 2 (N-1)/N B over the slowest way. To expect, not "
          "measured:\n",
          out);
    print_ring(out, w, (const int32_t[]){w->a, w->b}, 2, "these 2");
    snprintf(who, sizeof who, "all %" PRId32 " GPUs in order", count);
    if (count > 2)
        print_ring(out, w, all, count, who);
}

/* ---- Both ------------------------------------------------------------------------------------------------ */

static tx_status find(const tx_topology *t, const char *text, size_t length, int32_t *index)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", length < 64 ? (int)length : 63, text);
    int32_t found = tx_topo_find(t, name);
    if (found < 0)
        return tx_fail(TX_NOT_FOUND,
                       "%s: no such device; GPU0, NIC0, a bus id such as 3b:00.0, a name such as mlx5_0, or "
                       "opencl:PLATFORM:DEVICE name one",
                       name);
    *index = found;
    return TX_OK;
}

static void explain(FILE *out, way *w)
{
    tx_topo_rate rate = tx_topo_pair_rate(w->t, w->a, w->b);
    w->pair = tx_topo_pair_of(w->t, w->a, w->b);
    while (w->top < w->count - 1 && w->path[w->top + 1] < w->path[w->top])
        w->top++;
    print_device(out, device(w, w->a));
    print_device(out, device(w, w->b));
    print_class(out, w);
    print_way(out, w);
    print_places(out, w);
    print_limit(out, w, &rate);
    print_advice(out, w);
    print_allreduce(out, w);
}

tx_status tx_txtopo_explain(FILE *out, const tx_topology *topology, const char *pair)
{
    way w = {.t = topology};
    size_t first = strcspn(pair, ",");
    const char *second = pair + first + (pair[first] == ',');
    tx_status status = find(topology, pair, first, &w.a);
    TX_THEN(status, find(topology, second, strlen(second), &w.b));
    if (!status && w.a == w.b)
        status = tx_fail(TX_INVALID, "%s names the same device twice, %s", pair, topology->devices[w.a].label);
    TX_THEN(status, tx_topo_path(topology, w.a, w.b, &w.path, &w.count));
    if (!status)
        explain(out, &w);
    free(w.path);
    return status;
}
