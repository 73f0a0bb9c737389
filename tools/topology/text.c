/* SPDX-License-Identifier: Apache-2.0
 * A topology as text: devices, matrix, legend, notes. The matrix has nvidia-smi's tabs, with NICs and CPU devices as
 * rows and columns; in nvidia-smi's own layout it is the same byte for byte, odd tabs and all, because programs parse
 * it. That layout knows NVIDIA's classes alone: what TX says beside them falls back to the PCI class. */
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <string.h>

/* What is shown of a matrix. */
typedef struct matrix {
    FILE *out;
    const tx_topology *t;
    bool links, nvidia, underline;
    int32_t list[TX_TOPO_DEVICES_MAX], count; /* rows and columns */
} matrix;

/* Lists the devices of a kind up to `last`; how many. */
static int32_t list_devices(const tx_topology *t, tx_topo_device_kind last, int32_t *list)
{
    int32_t count = 0;
    for (int32_t i = 0; i < t->device_count; i++)
        if (t->devices[i].kind <= last)
            list[count++] = i;
    return count;
}

/* ---- Matrix --------------------------------------------------------------------------------------- */

/* The labels of the first `count` of the devices in `list`, then `rest`. */
static void print_header(FILE *out, const tx_topology *t, const int32_t *list, int32_t count, const char *rest,
                         bool underline)
{
    const char *before = underline ? "\t\x1b[4m" : "\t";
    for (int32_t i = 0; i < count; i++, before = "\t")
        fprintf(out, "%s%s", before, t->devices[list[i]].label);
    fprintf(out, "%s%s%s\n", *rest ? before : "", rest, underline ? "\x1b[0m" : "");
}

static const char *cell_text(const matrix *m, int32_t a, int32_t b, char text[16])
{
    const tx_topo_pair *pair = tx_topo_pair_of(m->t, a, b);
    const bool link = m->links && (!m->nvidia || pair->link == TX_TOPO_NVLINK);
    if (m->nvidia && !link && pair->class_ == TX_TOPO_LOC)
        return "PIX";
    if (m->nvidia && !link && pair->class_ == TX_TOPO_UNKNOWN)
        return "N/A";
    return tx_topo_cell(m->t, a, b, link, text);
}

static void print_row(const matrix *m, int32_t a)
{
    const tx_topo_device *d = &m->t->devices[a];
    const bool near = m->nvidia ? d->kind == TX_TOPO_GPU : d->kind != TX_TOPO_NIC;
    char cell[16];
    fputs(d->label, m->out);
    for (int32_t i = 0; i < m->count; i++)
        fprintf(m->out, a == m->list[i] ? "\t %s " : "\t%s", cell_text(m, a, m->list[i], cell));
    if (!near) {
        fputs("\t\t\t\t\n", m->out);
        return;
    }
    snprintf(cell, sizeof cell, "%" PRId32, d->gpu_numa);
    fprintf(m->out, "\t%s\t%s\t\t%s\n", *d->cpus ? d->cpus : "N/A", *d->nodes ? d->nodes : "N/A",
            d->gpu_numa < 0 ? "N/A" : cell);
}

static void legend_line(FILE *out, const char *cell, const char *mark, const char *legend)
{
    fprintf(out, "  %s%-*s = %s\n", cell, 4 - (int)strlen(cell), mark, legend);
}

static void class_line(const matrix *m, tx_topo_class value)
{
    legend_line(m->out, tx_topo_class_names[value], "", tx_topo_class_legends[value]);
}

/* nvidia-smi's lines always; of the others what the matrix has. */
static void print_legend(const matrix *m)
{
    static const tx_topo_class always[] = {TX_TOPO_SELF, TX_TOPO_SYS, TX_TOPO_NODE,
                                           TX_TOPO_PHB,  TX_TOPO_PXB, TX_TOPO_PIX};
    static const tx_topo_class sometimes[] = {TX_TOPO_LOC, TX_TOPO_HOST};
    fputs("\nLegend:\n\n", m->out);
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        class_line(m, always[i]);
    for (int i = TX_TOPO_NVLINK; i <= TX_TOPO_XELINK && m->links; i++)
        if (i == TX_TOPO_NVLINK || (!m->nvidia && tx_topo_has_link(m->t, (tx_topo_link_kind)i)))
            legend_line(m->out, tx_topo_link_names[i], "#", tx_topo_link_legends[i]);
    for (size_t i = 0; i < sizeof sometimes / sizeof sometimes[0] && !m->nvidia; i++)
        if (tx_topo_has_class(m->t, sometimes[i]))
            class_line(m, sometimes[i]);
    if (!m->nvidia &&
        (tx_topo_has_class(m->t, TX_TOPO_UNKNOWN) || (m->links && tx_topo_has_link(m->t, TX_TOPO_LINK_UNKNOWN))))
        class_line(m, TX_TOPO_UNKNOWN);
    if (m->t->nics > 0)
        fputs("\nNIC Legend:\n\n", m->out);
    for (int32_t i = 0; i < m->t->device_count; i++)
        if (m->t->devices[i].kind == TX_TOPO_NIC)
            fprintf(m->out, "  %s: %s\n", m->t->devices[i].label, m->t->devices[i].system);
    if (m->t->nics > 0 && m->nvidia)
        fputc('\n', m->out);
}

static void print_matrix(matrix *m)
{
    m->count = list_devices(m->t, m->nvidia ? TX_TOPO_NIC : TX_TOPO_CPU, m->list);
    print_header(m->out, m->t, m->list, m->count, "CPU Affinity\tNUMA Affinity\tGPU NUMA ID", m->underline);
    for (int32_t i = 0; i < m->count; i++)
        print_row(m, m->list[i]);
    print_legend(m);
}

void tx_txtopo_nvidia(FILE *out, const tx_topology *t, bool links)
{
    print_matrix(&(matrix){.out = out, .t = t, .links = links, .nvidia = true, .underline = true});
}

/* ---- Notes ---------------------------------------------------------------------------------------- */

/* Which cells a note is about: "GPU0-GPU1, GPU0-GPU2, ..."; "" where it is about none. */
static void note_cells(const tx_topology *t, int32_t note, char text[256])
{
    size_t used = 0;
    int32_t count = 0;
    text[0] = '\0';
    for (int32_t a = 0; a < t->device_count && count < 5; a++)
        for (int32_t b = a + 1; b < t->device_count && count < 5; b++)
            if (tx_topo_pair_of(t, a, b)->note == note)
                used += (size_t)(++count == 5 ? snprintf(text + used, 256 - used, ", ...")
                                              : snprintf(text + used, 256 - used, "%s%s-%s", used ? ", " : "",
                                                         t->devices[a].label, t->devices[b].label));
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
        note_cells(t, i, cells);
        fprintf(out, "  %" PRId32 ". %s%s%s%s%s.\n", number, t->notes[i].warning ? "Warning: " : "", t->notes[i].text,
                *cells ? " (" : "", cells, *cells ? ")" : "");
    }
}

/* ---- All ------------------------------------------------------------------------------------------ */

/* NUMA nodes of the host, where there is no matrix to say it. */
static void print_host(FILE *out, const tx_topology *t)
{
    char memory[TX_TXTOPO_CELL];
    fputs("No GPU, no NIC and no OpenCL device.\n\n", out);
    for (int32_t i = 0; i < t->numa_count; i++)
        if (t->numa[i].device < 0)
            fprintf(out, "NUMA node %" PRId32 ": CPUs %s, %s\n", t->numa[i].number,
                    *t->numa[i].cpus ? t->numa[i].cpus : "-", tx_txtopo_memory(t->numa[i].memory, memory));
}

void tx_txtopo_text(FILE *out, const tx_topology *t, bool links, bool terminal)
{
    const tx_txtopo_table devices = tx_txtopo_devices(t);
    if (t->device_count > 0 && terminal) {
        tx_txtopo_print(out, &devices);
        fputc('\n', out);
    }
    if (t->device_count > 0)
        print_matrix(&(matrix){.out = out, .t = t, .links = links, .underline = terminal});
    else
        print_host(out, t);
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
    int32_t gpus[TX_TOPO_DEVICES_MAX] = {0};
    const int32_t count = list_devices(t, TX_TOPO_GPU, gpus);
    bool unknown = false;
    print_header(out, t, gpus, count, "", underline);
    for (int32_t a = 0; a < count; a++) {
        fputs(t->devices[gpus[a]].label, out);
        for (int32_t b = 0; b < count; b++) {
            tx_topo_p2p value = a == b ? TX_TOPO_P2P_OK : worst(tx_topo_pair_of(t, gpus[a], gpus[b]), letters);
            unknown = unknown || value == TX_TOPO_P2P_UNASKED;
            fprintf(out, "\t%s", a == b ? "X" : tx_topo_p2p_names[value]);
        }
        fputc('\n', out);
    }
    fputs("\nLegend:\n\n  X    = Self\n", out);
    for (int i = 1; i <= TX_TOPO_P2P_COUNT; i++) { /* what is unknown, the first, comes last */
        const tx_topo_p2p value = (tx_topo_p2p)(i % TX_TOPO_P2P_COUNT);
        legend_line(out, tx_topo_p2p_names[value], "", tx_topo_p2p_legends[value]);
    }
    if (unknown)
        fputs("\nU: no driver here could be asked; NVML answers for NVIDIA's GPUs, ROCm SMI for AMD's.\n", out);
    print_notes(out, t, true);
}
