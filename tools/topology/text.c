/* SPDX-License-Identifier: Apache-2.0
 * Prints a topology as text: devices, matrix, legend, notes. The matrix has the tabs of nvidia-smi, with NICs and CPU
 * devices as rows and columns. The layout of nvidia-smi itself is identical byte for byte, because programs parse it.
 * It has only NVIDIA's classes, so other links are shown by their PCI class. */
#include "tools/cli/terminal.h"
#include "tools/topology/txtopo.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* ---- Matrix --------------------------------------------------------------------------------------- */

typedef struct matrix {
    const tx_topology *t;
    tx_topo_device_kind last; /* devices of later kinds, which are last in order, are left out */
    bool links, nvidia, affinities;
    const char *letters; /* kinds of peer-to-peer access, or NULL to show classes and links */
} matrix;

static int32_t devices_of(const matrix *m)
{
    int32_t count = 0;
    while (count < m->t->device_count && m->t->devices[count].kind <= m->last)
        count++;
    return count;
}

static int access_of(char letter)
{
#define X(name, c, key) \
    if (letter == (c))  \
        return TX_TOPO_ACCESS_##name;
    TX_TOPO_ACCESS_MAP(X)
#undef X
    return -1;
}

static tx_topo_p2p p2p_of(const matrix *m, int32_t a, int32_t b)
{
    tx_topo_p2p found = TX_TOPO_P2P_OK;
    for (const char *letter = m->letters; *letter && found == TX_TOPO_P2P_OK; letter++)
        found = tx_topo_pair_of(m->t, a, b)->p2p[access_of(*letter)];
    return found;
}

static const char *pair_text(const matrix *m, int32_t a, int32_t b, char room[16])
{
    const tx_topo_pair *pair = tx_topo_pair_of(m->t, a, b);
    const bool link = m->links && (!m->nvidia || pair->link == TX_TOPO_NVLINK);
    if (a == b)
        return m->letters ? "X" : " X ";
    if (m->letters)
        return tx_topo_p2p_names[p2p_of(m, a, b)];
    if (m->nvidia && !link && pair->class_ == TX_TOPO_LOC)
        return "PIX";
    if (m->nvidia && !link && pair->class_ == TX_TOPO_UNKNOWN)
        return "N/A";
    return tx_topo_cell(m->t, a, b, link, room);
}

/* Prints the affinities of a row. nvidia-smi writes two tabs before the last field, unlike in its header. Rows of NICs
 * have no affinities. */
static void print_affinities(FILE *out, const matrix *m, const tx_topo_device *d)
{
    char number[16] = "";
    const bool near = m->nvidia ? d->kind == TX_TOPO_GPU : d->kind != TX_TOPO_NIC;
    const char *const unknown = near ? "N/A" : "";
    if (d->gpu_numa >= 0)
        snprintf(number, sizeof number, "%" PRId32, d->gpu_numa);
    fprintf(out, "\t%s\t%s\t\t%s", near && *d->cpus ? d->cpus : unknown, near && *d->nodes ? d->nodes : unknown,
            near && *number ? number : unknown);
}

/* Prints the matrix with tabs, with its first line underlined if `underline`. */
static void print_tabs(FILE *out, const matrix *m, bool underline)
{
    const int32_t count = devices_of(m);
    char room[16];
    for (int32_t k = 0; k < count; k++)
        fprintf(out, "\t%s%s", underline && k == 0 ? "\x1b[4m" : "", m->t->devices[k].label);
    fputs(m->affinities ? "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID" : "", out);
    fputs(underline ? "\x1b[0m\n" : "\n", out);
    for (int32_t row = 0; row < count; row++) {
        fputs(m->t->devices[row].label, out);
        for (int32_t k = 0; k < count; k++)
            fprintf(out, "\t%s", pair_text(m, row, k, room));
        if (m->affinities)
            print_affinities(out, m, &m->t->devices[row]);
        fputc('\n', out);
    }
}

/* Terminals get lines of their width. */
static void legend_line(FILE *out, const char *cell, const char *mark, const char *legend)
{
    const bool shown = out == stdout && isatty(STDOUT_FILENO);
    fprintf(out, "  %s%-*s = %s", cell, 4 - (int)strlen(cell), mark, shown ? "" : legend);
    if (shown)
        tx_print_filled(legend, strlen(legend), tx_terminal_width(STDOUT_FILENO), 9, 9);
    fputc('\n', out);
}

static void class_line(FILE *out, tx_topo_class value)
{
    legend_line(out, tx_topo_class_names[value], "", tx_topo_class_legends[value]);
}

/* Prints nvidia-smi's lines always, and other lines only if the matrix has such cells. */
static void print_legend(FILE *out, const matrix *m)
{
    static const tx_topo_class always[] = {TX_TOPO_SELF, TX_TOPO_SYS, TX_TOPO_NODE,
                                           TX_TOPO_PHB,  TX_TOPO_PXB, TX_TOPO_PIX};
    static const tx_topo_class sometimes[] = {TX_TOPO_LOC, TX_TOPO_HOST};
    fputs("\nLegend:\n\n", out);
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        class_line(out, always[i]);
    for (int i = TX_TOPO_NVLINK; i <= TX_TOPO_XELINK && m->links; i++)
        if (i == TX_TOPO_NVLINK || (!m->nvidia && tx_topo_has_link(m->t, (tx_topo_link_kind)i)))
            legend_line(out, tx_topo_link_names[i], "#", tx_topo_link_legends[i]);
    for (size_t i = 0; i < sizeof sometimes / sizeof sometimes[0] && !m->nvidia; i++)
        if (tx_topo_has_class(m->t, sometimes[i]))
            class_line(out, sometimes[i]);
    if (!m->nvidia &&
        (tx_topo_has_class(m->t, TX_TOPO_UNKNOWN) || (m->links && tx_topo_has_link(m->t, TX_TOPO_LINK_UNKNOWN))))
        class_line(out, TX_TOPO_UNKNOWN);
    if (m->t->nics > 0)
        fputs("\nNIC Legend:\n\n", out);
    for (int32_t i = 0; i < m->t->device_count; i++)
        if (m->t->devices[i].kind == TX_TOPO_NIC)
            fprintf(out, "  %s: %s\n", m->t->devices[i].label, m->t->devices[i].system);
    if (m->t->nics > 0 && m->nvidia)
        fputc('\n', out);
}

static void print_matrix(FILE *out, const tx_topology *t, bool links, bool nvidia, bool underline)
{
    const matrix m = {
        .t = t, .last = nvidia ? TX_TOPO_NIC : TX_TOPO_CPU, .links = links, .nvidia = nvidia, .affinities = true};
    print_tabs(out, &m, underline);
    print_legend(out, &m);
}

void tx_txtopo_nvidia(FILE *out, const tx_topology *t, bool links)
{
    print_matrix(out, t, links, true, true);
}

/* ---- Notes ---------------------------------------------------------------------------------------- */

/* Lists the cells that refer to a note: "GPU0-GPU1, GPU0-GPU2, ...", or "". */
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

/* True if a note is about direct links, which are hidden if only PCI classes are shown. */
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

/* Prints the NUMA nodes of a host without devices. */
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
    if (t->device_count > 0 && terminal) {
        tx_txtopo_devices(out, t);
        fputc('\n', out);
    }
    if (t->device_count > 0)
        print_matrix(out, t, links, false, terminal);
    else
        print_host(out, t);
    print_notes(out, t, links);
}

/* ---- Peer-to-peer access ---------------------------------------------------------------------------------- */

char tx_txtopo_p2p_wrong(const char *letters)
{
    while (*letters && access_of(*letters) >= 0)
        letters++;
    return *letters;
}

void tx_txtopo_p2p(FILE *out, const tx_topology *t, const char *letters, bool underline)
{
    const matrix m = {.t = t, .last = TX_TOPO_GPU, .letters = letters};
    const int32_t count = devices_of(&m);
    bool unknown = false;
    print_tabs(out, &m, underline);
    for (int32_t a = 0; a < count; a++)
        for (int32_t b = 0; b < count; b++)
            unknown = unknown || (a != b && p2p_of(&m, a, b) == TX_TOPO_P2P_UNASKED);
    fputs("\nLegend:\n\n  X    = Self\n", out);
    for (int i = 1; i <= TX_TOPO_P2P_COUNT; i++) { /* the first value, unknown, is printed last */
        const tx_topo_p2p value = (tx_topo_p2p)(i % TX_TOPO_P2P_COUNT);
        legend_line(out, tx_topo_p2p_names[value], "", tx_topo_p2p_legends[value]);
    }
    if (unknown)
        fputs("\nU: no driver on this machine could be queried; NVML reports NVIDIA's GPUs, ROCm SMI AMD's.\n", out);
    print_notes(out, t, true);
}
