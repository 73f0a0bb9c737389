/* SPDX-License-Identifier: Apache-2.0
 * NCCL's topology XML, as NCCL itself dumps it: an element a NUMA node, within it the PCIe switches, each
 * one element of the upstream port's bus id, and the GPUs and NICs. NCCL's parser knows no tabs, no entities and no
 * values of more than 253 characters. Host bridges are not among NCCL's elements: an attribute of TX's own, which NCCL
 * ignores, tells which one a child of a CPU hangs from, so that PHB is read as PHB again. */
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_MAX = 253, LEVELS_MAX = 60, CELLS_SHOWN = 4, OUTSIDE = -1 };

/* A PCI element: a switch, or a function with the devices of it. */
typedef struct element {
    int32_t node;  /* of the tree */
    int32_t above; /* the place of the switch around it among the elements; OUTSIDE: it is within a CPU */
    int32_t cpu;   /* number of its NUMA node; -1 unknown */
    int32_t level; /* how many switches are around it */
} element;

typedef struct writer {
    FILE *out;
    const tx_topology *t;
    int32_t *places; /* of a node's element among the elements; OUTSIDE: it has none */
    element *elements;
    int32_t count;
    int32_t depth; /* of XML elements that have begun */
    bool open;     /* the last one's start is not ended yet */
} writer;

/* ---- XML -------------------------------------------------------------------------------------------------- */

static void begin(writer *w, const char *name)
{
    fprintf(w->out, "%s%*s<%s", w->open ? ">\n" : "", 2 * w->depth++, "", name);
    w->open = true;
}

static void end(writer *w, const char *name)
{
    w->depth--;
    if (w->open)
        fputs("/>\n", w->out);
    else
        fprintf(w->out, "%*s</%s>\n", 2 * w->depth, "", name);
    w->open = false;
}

static void text(writer *w, const char *attribute, const char *value)
{
    if (*value && strlen(value) <= VALUE_MAX)
        tx_html(w->out, " %s=\"%s\"", attribute, value);
}

static void number(writer *w, const char *attribute, int32_t value)
{
    fprintf(w->out, " %s=\"%" PRId32 "\"", attribute, value);
}

/* PCI's class and subclass, as the system tells them. */
static void class_of(writer *w, const char *attribute, int32_t pci_class)
{
    if (pci_class > 0)
        fprintf(w->out, " %s=\"0x%04" PRIx32 "00\"", attribute, (uint32_t)pci_class);
}

/* ---- Elements ------------------------------------------------------------------------------------------- */

static bool is_bridge(const tx_topology *t, int32_t node)
{
    return node >= 0 && t->nodes[node].kind == TX_TOPO_BRIDGE;
}

/* The upstream port of the switch that a function, or another switch, hangs from: two bridges up; OUTSIDE where there
 * is none, but a root port at most. */
static int32_t switch_above(const tx_topology *t, int32_t node)
{
    const int32_t port = t->nodes[node].parent, upstream = is_bridge(t, port) ? t->nodes[port].parent : OUTSIDE;
    return is_bridge(t, upstream) && *t->nodes[upstream].bus ? upstream : OUTSIDE;
}

/* The NUMA node near a node of the tree, the first of several; -1 where the system does not say. */
static int32_t cpu_of(const tx_topology *t, int32_t node)
{
    while (t->nodes[node].kind >= TX_TOPO_HOST_BRIDGE)
        node = t->nodes[node].parent;
    const int32_t near = *t->nodes[node].nodes ? (int32_t)strtol(t->nodes[node].nodes, NULL, 10) : -1;
    for (int32_t i = 0; i < t->numa_count; i++)
        if (t->numa[i].number == near && t->numa[i].device < 0 && (node > 0 || t->numa_count == 1))
            return near;
    return -1;
}

static bool has_element(const tx_topology *t, const tx_topo_device *d)
{
    return d->kind != TX_TOPO_CPU && t->nodes[d->node].kind == TX_TOPO_FUNCTION;
}

/* In the tree's order, so that a switch comes before what is within it. */
static void list_elements(writer *w)
{
    const tx_topology *t = w->t;
    for (int32_t i = 0; i < t->node_count; i++)
        w->places[i] = OUTSIDE;
    for (int32_t i = 0; i < t->device_count; i++)
        for (int32_t at = t->devices[i].node; has_element(t, &t->devices[i]) && at >= 0 && w->places[at] == OUTSIDE;
             at = switch_above(t, at))
            w->places[at] = 0;
    for (int32_t i = 0; i < t->node_count; i++) {
        if (w->places[i] == OUTSIDE)
            continue;
        const int32_t around = switch_above(t, i), above = around < 0 ? OUTSIDE : w->places[around];
        const int32_t level = above < 0 ? 0 : w->elements[above].level + 1;
        w->elements[w->count] = (element){i, level < LEVELS_MAX ? above : OUTSIDE, cpu_of(t, i), level % LEVELS_MAX};
        w->places[i] = w->count++;
    }
}

/* ---- CPUs ------------------------------------------------------------------------------------------------- */

static void cpu_attributes(writer *w, int32_t near)
{
    static const char *const words[][2] = {{"aarch64", "arm64"}, {"ppc64le", "ppc64"}};
    const tx_topology *t = w->t;
    const char *arch = t->arch, *cpus = near < 0 ? t->nodes[0].cpus : "";
    char *mask = NULL;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        arch = strcmp(t->arch, words[i][0]) == 0 ? words[i][1] : arch;
    for (int32_t i = 0; i < t->numa_count && near >= 0; i++)
        cpus = t->numa[i].number == near ? t->numa[i].cpus : cpus;
    number(w, "numaid", near);
    if (*cpus && tx_topo_mask_text(cpus, &mask) == TX_OK)
        text(w, "affinity", mask);
    free(mask);
    text(w, "arch", arch);
    text(w, "vendor", t->cpu_vendor);
    if (t->cpu_family == 0)
        return;
    /* NCCL takes the extended family, which AMD's have, for the upper digit. */
    number(w, "familyid", t->cpu_family > 0xF ? 0xF + ((t->cpu_family - 0xF) << 4) : t->cpu_family);
    number(w, "modelid", t->cpu_model);
}

/* ---- PCI -------------------------------------------------------------------------------------------------- */

/* What both ends of a link can do; 0 unknown. */
static double lesser(double own, double port)
{
    return port > 0 && port < own ? port : own;
}

static void pci_attributes(writer *w, const element *e)
{
    const tx_topo_node *nodes = w->t->nodes, *node = &nodes[e->node], *above = &nodes[node->parent];
    const tx_topo_pcie none = {0}, *link = &node->link, *port = above->kind == TX_TOPO_BRIDGE ? &above->link : &none;
    const double speed = lesser(link->speed_max > 0 ? link->speed_max : link->speed, port->speed_max);
    const double width = lesser(link->width_max > 0 ? link->width_max : link->width, port->width_max);
    text(w, "busid", node->bus);
    class_of(w, "class", node->pci_class);
    if (node->vendor_id > 0)
        fprintf(w->out, " vendor=\"0x%04" PRIx32 "\" device=\"0x%04" PRIx32 "\"", (uint32_t)node->vendor_id,
                (uint32_t)node->device_id);
    if (speed > 0)
        fprintf(w->out, " link_speed=\"%.1f GT/s PCIe\"", speed);
    if (width > 0)
        number(w, "link_width", (int32_t)width);
    while (above->kind == TX_TOPO_BRIDGE && e->above == OUTSIDE)
        above = &nodes[above->parent];
    if (above->kind == TX_TOPO_HOST_BRIDGE)
        text(w, "host_bridge", above->bus);
}

/* ---- Devices --------------------------------------------------------------------------------------------- */

static void write_link(writer *w, const char *name, const char *target, int32_t count, int32_t pci_class)
{
    begin(w, name);
    text(w, "target", target);
    number(w, "count", count);
    class_of(w, "tclass", pci_class);
    end(w, name);
}

/* Direct links to other GPUs; links to switches are told once, for all that lies behind. */
static void write_links(writer *w, int32_t gpu)
{
    const tx_topology *t = w->t;
    int32_t switched = 0;
    for (int32_t b = 0; b < t->gpus; b++) {
        const tx_topo_pair *pair = tx_topo_pair_of(t, gpu, b);
        const tx_topo_node *other = &t->nodes[t->devices[b].node];
        const char *name = pair->link == TX_TOPO_NVLINK ? "nvlink" : pair->link == TX_TOPO_XGMI ? "xgmi" : NULL;
        if (b == gpu || pair->links == 0 || pair->indirect || !name)
            continue;
        if (pair->switched)
            switched = pair->links > switched ? pair->links : switched;
        else if (t->devices[b].partition == 0 && other->kind == TX_TOPO_FUNCTION)
            write_link(w, name, other->bus, pair->links, other->pci_class);
    }
    if (switched > 0) /* the bus id that NVML and NCCL have for a switch that a virtual machine hides */
        write_link(w, "nvlink", "fffffff:ffff:ff", switched, 0x0680);
}

/* AMD's RCCL numbers the same form 2, and refuses 1. */
static bool is_rccl(const tx_topology *t)
{
    bool amd = false;
    for (int32_t i = 0; i < t->gpus; i++) {
        amd = amd || t->devices[i].vendor_id == 0x1002;
        if (t->devices[i].vendor_id == 0x10de)
            return false;
    }
    return amd;
}

/* "nvml3" and "rsmi3" are the numbers that NCCL has too. */
static void write_gpu(writer *w, int32_t gpu)
{
    const tx_topo_device *d = &w->t->devices[gpu];
    const bool numbered = strncmp(d->system, "nvml", 4) == 0 || strncmp(d->system, "rsmi", 4) == 0;
    begin(w, "gpu");
    if (numbered)
        text(w, "dev", d->system + 4);
    if (d->sm > 0)
        number(w, "sm", d->sm);
    if (w->t->origin == TX_TOPO_ORIGIN_NCCL)
        text(w, "gcn", d->name);
    write_links(w, gpu);
    end(w, "gpu");
}

/* What is on a function. NICs without names of their own are known by the function's class. */
static void write_devices(writer *w, int32_t node)
{
    bool nic = false;
    for (int32_t i = 0; i < w->t->device_count; i++) {
        const tx_topo_device *d = &w->t->devices[i];
        if (d->node == node && d->kind == TX_TOPO_GPU)
            write_gpu(w, i);
        if (d->node != node || d->kind != TX_TOPO_NIC || strcmp(d->system, d->bus) == 0)
            continue;
        if (!nic)
            begin(w, "nic");
        nic = true;
        begin(w, "net");
        text(w, "name", d->system);
        end(w, "net");
    }
    if (nic)
        end(w, "nic");
}

/* The elements within a switch, or within a CPU. */
static void write_within(writer *w, int32_t above, int32_t cpu)
{
    for (int32_t i = 0; i < w->count; i++) {
        if (w->elements[i].above != above || w->elements[i].cpu != cpu)
            continue;
        begin(w, "pci");
        pci_attributes(w, &w->elements[i]);
        write_devices(w, w->elements[i].node);
        write_within(w, i, cpu);
        end(w, "pci");
    }
}

static void write_cpu(writer *w, int32_t near)
{
    begin(w, "cpu");
    cpu_attributes(w, near);
    write_within(w, OUTSIDE, near);
    end(w, "cpu");
}

tx_status tx_txtopo_nccl(FILE *out, const tx_topology *t)
{
    writer w = {.out = out, .t = t};
    bool unknown = false;
    w.places = malloc((size_t)t->node_count * sizeof *w.places);
    w.elements = malloc((size_t)t->node_count * sizeof *w.elements);
    if (!w.places || !w.elements) {
        free(w.places);
        free(w.elements);
        return tx_fail(TX_MEMORY, "out of memory");
    }
    list_elements(&w);
    fputs("<!-- By txtopo. Left out is what NCCL asks for itself when it starts, such as ranks, GPUDirect, and the "
          "speeds and "
          "ports of NICs, and each attribute that txtopo does not know. -->\n",
          out);
    begin(&w, "system");
    number(&w, "version", is_rccl(t) ? 2 : 1);
    for (int32_t i = 0; i < t->numa_count; i++)
        if (t->numa[i].device < 0)
            write_cpu(&w, t->numa[i].number);
    for (int32_t i = 0; i < w.count; i++)
        unknown = unknown || w.elements[i].cpu < 0;
    if (unknown || t->numa_count == 0)
        write_cpu(&w, -1);
    end(&w, "system");
    free(w.places);
    free(w.elements);
    return TX_OK;
}

/* ---- What is lost -------------------------------------------------------------------------------------------- */

/* The same device where it was read again; -1 it is not there. */
static int32_t find_again(const tx_topology *again, const tx_topo_device *d)
{
    for (int32_t i = 0; i < again->device_count; i++) {
        const tx_topo_device *other = &again->devices[i];
        const bool same_name = d->kind != TX_TOPO_NIC || strcmp(d->system, other->system) == 0;
        if (d->kind == other->kind && strcmp(d->bus, other->bus) == 0 && d->partition == other->partition && same_name)
            return i;
    }
    return -1;
}

static void print_affinity(FILE *out, const tx_topo_device *d, const tx_topo_device *other)
{
    if (strcmp(d->cpus, other->cpus) != 0 || strcmp(d->nodes, other->nodes) != 0)
        fprintf(out, "%s: the file tells CPUs %s and NUMA nodes %s near it, where %s and %s are.\n", d->label,
                *other->cpus ? other->cpus : "N/A", *other->nodes ? other->nodes : "N/A", *d->cpus ? d->cpus : "N/A",
                *d->nodes ? d->nodes : "N/A");
    if (d->gpu_numa != other->gpu_numa)
        fprintf(out, "%s: left out that its memory is NUMA node %" PRId32 ".\n", d->label, d->gpu_numa);
}

/* How many cells read otherwise, and the first of them. */
static void print_cells(FILE *out, const tx_topology *t, const tx_topology *again, const int32_t *places)
{
    char cell[16], other[16];
    int32_t count = 0;
    for (int32_t a = 0; a < t->device_count; a++)
        for (int32_t b = a + 1; b < t->device_count; b++) {
            if (places[a] < 0 || places[b] < 0 ||
                strcmp(tx_topo_cell(t, a, b, true, cell), tx_topo_cell(again, places[a], places[b], true, other)) == 0)
                continue;
            if (++count <= CELLS_SHOWN)
                fprintf(out, "%s%s-%s: %s, where %s is known", count > 1 ? "; " : "The file tells ",
                        t->devices[a].label, t->devices[b].label, other, cell);
        }
    if (count > CELLS_SHOWN)
        fprintf(out, "; and %" PRId32 " others", count - CELLS_SHOWN);
    fputs(count > 0 ? ".\n" : "", out);
}

void tx_txtopo_nccl_lost(FILE *out, const tx_topology *t, const tx_topology *again)
{
    int32_t places[TX_TOPO_DEVICES_MAX];
    for (int32_t i = 0; i < t->device_count; i++) {
        const tx_topo_device *d = &t->devices[i];
        places[i] = d->kind == TX_TOPO_CPU ? -1 : find_again(again, d);
        if (d->kind == TX_TOPO_CPU)
            fprintf(out, "%s: left out, for NCCL knows no CPU devices.\n", d->label);
        else if (places[i] < 0)
            fprintf(out, "%s: left out, for its PCI function is not known.\n", d->label);
        else
            print_affinity(out, d, &again->devices[places[i]]);
    }
    print_cells(out, t, again, places);
}
