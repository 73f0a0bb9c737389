/* SPDX-License-Identifier: Apache-2.0
 * The layout of `nvidia-smi topo -m`, byte for byte, odd tabs and all: programs parse it. It knows NVIDIA's classes
 * alone, so what TX says beside them falls back to the PCI class. */
#include "tools/topology/txtopo.h"

#include <inttypes.h>

void tx_txtopo_affinities(FILE *out, const tx_topo_device *d, bool shown)
{
    if (!shown) {
        fputs("\t\t\t\t\n", out);
        return;
    }
    fprintf(out, "\t%s\t%s\t\t", *d->cpus ? d->cpus : "N/A", *d->nodes ? d->nodes : "N/A");
    if (d->gpu_numa >= 0)
        fprintf(out, "%" PRId32 "\n", d->gpu_numa);
    else
        fputs("N/A\n", out);
}

static bool shown(const tx_topo_device *d)
{
    return d->kind != TX_TOPO_CPU;
}

static void print_cell(FILE *out, const tx_topology *t, int32_t a, int32_t b, bool links)
{
    const tx_topo_pair *pair = tx_topo_pair_of(t, a, b);
    if (a == b)
        fputs("\t X ", out);
    else if (links && pair->link == TX_TOPO_NVLINK)
        fprintf(out, "\tNV%" PRId32, pair->links);
    else if (pair->class_ == TX_TOPO_LOC)
        fputs("\tPIX", out);
    else
        fprintf(out, "\t%s", pair->class_ == TX_TOPO_UNKNOWN ? "N/A" : tx_topo_class_name(pair->class_));
}

static void print_row(FILE *out, const tx_topology *t, int32_t a, bool links)
{
    const tx_topo_device *d = &t->devices[a];
    fputs(d->label, out);
    for (int32_t b = 0; b < t->device_count; b++)
        if (shown(&t->devices[b]))
            print_cell(out, t, a, b, links);
    tx_txtopo_affinities(out, d, d->kind == TX_TOPO_GPU);
}

void tx_txtopo_nvidia(FILE *out, const tx_topology *t, bool links)
{
    const char *start = "\t\x1b[4m";
    for (int32_t i = 0; i < t->device_count; i++)
        if (shown(&t->devices[i])) {
            fprintf(out, "%s%s", start, t->devices[i].label);
            start = "\t";
        }
    fprintf(out, "%sCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n", start);
    for (int32_t i = 0; i < t->device_count; i++)
        if (shown(&t->devices[i]))
            print_row(out, t, i, links);
    fputs("\nLegend:\n\n", out);
    static const tx_topo_class order[] = {TX_TOPO_SELF, TX_TOPO_SYS, TX_TOPO_NODE,
                                          TX_TOPO_PHB,  TX_TOPO_PXB, TX_TOPO_PIX};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        fprintf(out, "  %-4s = %s\n", tx_topo_class_name(order[i]), tx_topo_class_legend(order[i]));
    if (links)
        fprintf(out, "  NV#  = %s\n", tx_topo_link_legend(TX_TOPO_NVLINK));
    if (t->nics == 0)
        return;
    fputs("\nNIC Legend:\n\n", out);
    for (int32_t i = 0; i < t->device_count; i++)
        if (t->devices[i].kind == TX_TOPO_NIC)
            fprintf(out, "  %s: %s\n", t->devices[i].label, t->devices[i].system);
}
