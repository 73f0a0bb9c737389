/* SPDX-License-Identifier: Apache-2.0
 * A topology as text: devices, matrix, legend, notes. The matrix has nvidia-smi's tabs, with NICs and CPU devices as
 * rows and columns. */
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <string.h>

/* ---- Devices ------------------------------------------------------------------------------------ */

static int widest(const tx_topology *t, const char *head, const char *(*text)(const tx_topo_device *))
{
    size_t width = strlen(head);
    for (int32_t i = 0; i < t->device_count; i++)
        if (strlen(text(&t->devices[i])) > width)
            width = strlen(text(&t->devices[i]));
    return (int)width;
}

static const char *or_dash(const char *text)
{
    return *text ? text : "-";
}

static const char *bus_text(const tx_topo_device *d)
{
    return or_dash(d->bus);
}

static const char *opencl_text(const tx_topo_device *d)
{
    return or_dash(d->opencl);
}

static const char *vendor_text(const tx_topo_device *d)
{
    return or_dash(d->vendor);
}

static const char *system_text(const tx_topo_device *d)
{
    return or_dash(d->system);
}

static const char *memory_text(const tx_topo_device *d, char text[32])
{
    if (d->memory > 0)
        snprintf(text, 32, "%.1f GiB", (double)d->memory / (1 << 30));
    else
        snprintf(text, 32, "-");
    return text;
}

static void print_devices(FILE *out, const tx_topology *t)
{
    const int bus = widest(t, "Bus ID", bus_text), opencl = widest(t, "OpenCL", opencl_text);
    const int vendor = widest(t, "Vendor", vendor_text), system = widest(t, "System", system_text);
    char memory[32];
    fprintf(out, "%-7s %-*s  %-*s  %-*s  %-*s  %10s  %s\n", "Device", bus, "Bus ID", opencl, "OpenCL", system, "System",
            vendor, "Vendor", "Memory", "Name");
    for (int32_t i = 0; i < t->device_count; i++) {
        const tx_topo_device *d = &t->devices[i];
        fprintf(out, "%-7s %-*s  %-*s  %-*s  %-*s  %10s  %s\n", d->label, bus, bus_text(d), opencl, opencl_text(d),
                system, system_text(d), vendor, vendor_text(d), memory_text(d, memory), or_dash(d->name));
    }
    fputc('\n', out);
}

/* NUMA nodes of the host, where there is no matrix to say it. */
static void print_host(FILE *out, const tx_topology *t)
{
    for (int32_t i = 0; i < t->numa_count; i++)
        if (t->numa[i].device < 0)
            fprintf(out, "NUMA node %" PRId32 ": CPUs %s, %.1f GiB\n", t->numa[i].number, or_dash(t->numa[i].cpus),
                    (double)t->numa[i].memory / (1 << 30));
}

/* ---- Matrix --------------------------------------------------------------------------------------- */

static void print_header(FILE *out, const tx_topology *t, bool (*shown)(const tx_topo_device *), bool affinity,
                         bool underline)
{
    const char *before = underline ? "\t\x1b[4m" : "\t";
    for (int32_t i = 0; i < t->device_count; i++)
        if (shown(&t->devices[i])) {
            fprintf(out, "%s%s", before, t->devices[i].label);
            before = "\t";
        }
    if (affinity)
        fprintf(out, "%sCPU Affinity\tNUMA Affinity\tGPU NUMA ID", before);
    fputs(underline ? "\x1b[0m\n" : "\n", out);
}

static bool any(const tx_topo_device *d)
{
    (void)d;
    return true;
}

static bool gpu(const tx_topo_device *d)
{
    return d->kind == TX_TOPO_GPU;
}

static void print_row(FILE *out, const tx_topology *t, int32_t a, bool links)
{
    const tx_topo_device *d = &t->devices[a];
    char cell[16];
    fputs(d->label, out);
    for (int32_t b = 0; b < t->device_count; b++)
        fprintf(out, a == b ? "\t %s " : "\t%s", tx_topo_cell(t, a, b, links, cell));
    tx_txtopo_affinities(out, d, d->kind != TX_TOPO_NIC);
}

/* ---- Legend and notes ---------------------------------------------------------------------------------- */

/* nvidia-smi's lines always; of the others what the matrix has. */
static void print_legend(FILE *out, const tx_topology *t, bool links)
{
    static const tx_topo_class always[] = {TX_TOPO_SELF, TX_TOPO_SYS, TX_TOPO_NODE,
                                           TX_TOPO_PHB,  TX_TOPO_PXB, TX_TOPO_PIX};
    static const tx_topo_class sometimes[] = {TX_TOPO_LOC, TX_TOPO_HOST};
    fputs("\nLegend:\n\n", out);
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        fprintf(out, "  %-4s = %s\n", tx_topo_class_name(always[i]), tx_topo_class_legend(always[i]));
    for (int i = TX_TOPO_NVLINK; i <= TX_TOPO_XELINK && links; i++)
        if (i == TX_TOPO_NVLINK || tx_topo_has_link(t, (tx_topo_link_kind)i))
            fprintf(out, "  %s#  = %s\n", tx_topo_link_name((tx_topo_link_kind)i),
                    tx_topo_link_legend((tx_topo_link_kind)i));
    for (size_t i = 0; i < sizeof sometimes / sizeof sometimes[0]; i++)
        if (tx_topo_has_class(t, sometimes[i]))
            fprintf(out, "  %-4s = %s\n", tx_topo_class_name(sometimes[i]), tx_topo_class_legend(sometimes[i]));
    if (tx_topo_has_class(t, TX_TOPO_UNKNOWN) || (links && tx_topo_has_link(t, TX_TOPO_LINK_UNKNOWN)))
        fprintf(out, "  %-4s = %s\n", tx_topo_class_name(TX_TOPO_UNKNOWN), tx_topo_class_legend(TX_TOPO_UNKNOWN));
}

static void print_nics(FILE *out, const tx_topology *t)
{
    if (t->nics == 0)
        return;
    fputs("\nNIC Legend:\n\n", out);
    for (int32_t i = 0; i < t->device_count; i++)
        if (t->devices[i].kind == TX_TOPO_NIC)
            fprintf(out, "  %s: %s\n", t->devices[i].label, t->devices[i].system);
}

/* Which cells a note is about: "GPU0-GPU1, GPU0-GPU2, ..."; "" where it is about none. */
static void note_cells(const tx_topology *t, int32_t note, char *text, size_t size)
{
    size_t used = 0;
    int32_t shown = 0;
    text[0] = '\0';
    for (int32_t a = 0; a < t->device_count && shown < 5; a++)
        for (int32_t b = a + 1; b < t->device_count && shown < 5; b++)
            if (tx_topo_pair_of(t, a, b)->note == note && used < size) {
                int put = ++shown == 5 ? snprintf(text + used, size - used, ", ...")
                                       : snprintf(text + used, size - used, "%s%s-%s", used ? ", " : "",
                                                  t->devices[a].label, t->devices[b].label);
                used += put > 0 ? (size_t)put : 0;
            }
}

/* Whether a note is about direct links, which are not shown with PCI classes alone. */
static bool about_links(const tx_topology *t, int32_t note)
{
    for (int64_t i = 0; i < (int64_t)t->device_count * t->device_count; i++)
        if (t->pairs[i].note == note && t->pairs[i].link != TX_TOPO_NO_LINK)
            return true;
    return false;
}

static void print_notes(FILE *out, const tx_topology *t, bool links)
{
    char cells[256];
    int32_t number = 0;
    for (int32_t i = 0; i < t->note_count; i++) {
        if (!links && about_links(t, i))
            continue;
        if (number++ == 0)
            fputs("\nNotes:\n\n", out);
        note_cells(t, i, cells, sizeof cells);
        fprintf(out, "  %" PRId32 ". %s%s%s%s%s.\n", number, t->notes[i].warning ? "Warning: " : "", t->notes[i].text,
                *cells ? " (" : "", cells, *cells ? ")" : "");
    }
}

void tx_txtopo_text(FILE *out, const tx_topology *t, bool links, bool underline)
{
    if (t->device_count > 0) {
        print_devices(out, t);
        print_header(out, t, any, true, underline);
        for (int32_t i = 0; i < t->device_count; i++)
            print_row(out, t, i, links);
        print_legend(out, t, links);
        print_nics(out, t);
    } else {
        fputs("No GPU, no NIC and no OpenCL device.\n\n", out);
        print_host(out, t);
    }
    print_notes(out, t, links);
}

/* ---- Peer-to-peer access ---------------------------------------------------------------------------------- */

static int access_of(char letter)
{
#define X(name, c, key) \
    if (letter == (c))  \
        return TX_TOPO_ACCESS_##name;
    TX_TOPO_ACCESS_MAP(X)
#undef X
    return -1;
}

char tx_txtopo_p2p_wrong(const char *letters)
{
    while (*letters && access_of(*letters) >= 0)
        letters++;
    return *letters;
}

static tx_topo_p2p worst(const tx_topo_pair *pair, const char *letters)
{
    tx_topo_p2p found = TX_TOPO_P2P_OK;
    for (; *letters && found == TX_TOPO_P2P_OK; letters++)
        found = pair->p2p[access_of(*letters)];
    return found;
}

void tx_txtopo_p2p(FILE *out, const tx_topology *t, const char *letters, bool underline)
{
    bool unknown = false;
    print_header(out, t, gpu, false, underline);
    for (int32_t a = 0; a < t->gpus; a++) {
        fputs(t->devices[a].label, out);
        for (int32_t b = 0; b < t->gpus; b++) {
            tx_topo_p2p value = a == b ? TX_TOPO_P2P_OK : worst(tx_topo_pair_of(t, a, b), letters);
            unknown = unknown || value == TX_TOPO_P2P_UNASKED;
            fprintf(out, "\t%s", a == b ? "X" : tx_topo_p2p_name(value));
        }
        fputc('\n', out);
    }
    fputs("\nLegend:\n\n  X    = Self\n", out);
    for (int i = TX_TOPO_P2P_OK; i < TX_TOPO_P2P_COUNT; i++)
        fprintf(out, "  %-4s = %s\n", tx_topo_p2p_name((tx_topo_p2p)i), tx_topo_p2p_legend((tx_topo_p2p)i));
    fprintf(out, "  %-4s = %s\n", tx_topo_p2p_name(TX_TOPO_P2P_UNASKED), tx_topo_p2p_legend(TX_TOPO_P2P_UNASKED));
    if (unknown)
        fputs("\nU: no driver here could be asked; NVML answers for NVIDIA's GPUs, ROCm SMI for AMD's.\n", out);
    print_notes(out, t, true);
}
